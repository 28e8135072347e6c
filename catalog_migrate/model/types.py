"""Spark's types: one canonical spelling for each, and which casts between them are safe.

A *canonical* text is the one spelling that fingerprints, plans and contracts use: upper case,
aliases replaced (``INTEGER`` is ``INT``, ``DECIMAL`` is ``DECIMAL(10,0)``), struct fields in order
with their nullability, comments dropped, user types expanded. Spark's parser reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import combinations
from typing import NamedTuple, NoReturn, TypeAlias

import msgspec

from catalog_migrate.errors import UnknownType
from catalog_migrate.model.names import quote_part

UserTypes = Mapping[tuple[str, str], str]
"""Types of a release: (folded schema, folded name) -> the text of the type."""

MAX_PRECISION = 38
MAX_DEPTH = 100
"""Deepest nesting that is accepted: far above real types, far below Python's recursion limit."""

_ATOMIC = {
    "TINYINT": "TINYINT", "BYTE": "TINYINT", "SMALLINT": "SMALLINT", "SHORT": "SMALLINT",
    "INT": "INT", "INTEGER": "INT", "BIGINT": "BIGINT", "LONG": "BIGINT",
    "FLOAT": "FLOAT", "REAL": "FLOAT", "DOUBLE": "DOUBLE",
    "STRING": "STRING", "BINARY": "BINARY", "BOOLEAN": "BOOLEAN", "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP", "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "VARIANT": "VARIANT", "VOID": "VOID",
}  # fmt: skip
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_SIZED = {"CHAR": "CHAR", "CHARACTER": "CHAR", "VARCHAR": "VARCHAR"}
_YEAR_MONTH = ("YEAR", "MONTH")
_DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")
_INSTEAD = {
    "TEXT": "STRING", "CLOB": "STRING", "UUID": "STRING", "NVARCHAR": "VARCHAR(n)",
    "BOOL": "BOOLEAN", "BIT": "BOOLEAN", "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT",
    "SERIAL": "INT", "BIGSERIAL": "BIGINT", "DATETIME": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP", "BYTEA": "BINARY", "BLOB": "BINARY", "VARBINARY": "BINARY",
    "JSON": "VARIANT", "JSONB": "VARIANT", "NUMBER": "DECIMAL(p,s)", "MONEY": "DECIMAL(19,2)",
    "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "CHAR": "CHAR(n)", "CHARACTER": "CHAR(n)",
    "VARCHAR": "VARCHAR(n)", "NULL": "VOID",
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[<>(),:.])"
    r"|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"))"
)


class Atomic(msgspec.Struct, frozen=True):
    """A type without parameters; ``name`` is canonical."""

    name: str

    def __str__(self) -> str:
        return self.name


class Decimal(msgspec.Struct, frozen=True):
    """``DECIMAL(precision,scale)``: ``precision`` digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"

    @property
    def whole(self) -> int:
        """Digits before the point."""
        return self.precision - self.scale


class Sized(msgspec.Struct, frozen=True):
    """``CHAR(length)`` or ``VARCHAR(length)``, length in characters."""

    name: str
    length: int

    def __str__(self) -> str:
        return f"{self.name}({self.length})"


class Interval(msgspec.Struct, frozen=True):
    """``INTERVAL first TO last`` within one family; ``fields`` is empty for a calendar interval."""

    fields: tuple[str, ...]

    def __str__(self) -> str:
        if not self.fields:
            return "INTERVAL"
        first, last = self.fields[0], self.fields[-1]
        return f"INTERVAL {first}" if first == last else f"INTERVAL {first} TO {last}"

    @property
    def family(self) -> tuple[str, ...]:
        """All units that this interval's family has, coarsest first; () for calendar intervals."""
        if not self.fields:
            return ()
        return _YEAR_MONTH if self.fields[0] in _YEAR_MONTH else _DAY_TIME


class Array(msgspec.Struct, frozen=True):
    """``ARRAY<element>``; DDL cannot say that elements are not null."""

    element: Type

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


class Map(msgspec.Struct, frozen=True):
    """``MAP<key, value>``; keys are never null, values may be."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


class Field(msgspec.Struct, frozen=True):
    """One field of a struct; ``name`` as written."""

    name: str
    type: Type
    nullable: bool = True

    def __str__(self) -> str:
        return f"{quote_part(self.name)}: {self.type}{'' if self.nullable else ' NOT NULL'}"


class Struct(msgspec.Struct, frozen=True):
    """``STRUCT<a: INT NOT NULL, ...>``, fields in order."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(map(str, self.fields))}>"


Type: TypeAlias = "Atomic | Decimal | Sized | Interval | Array | Map | Struct"


class _Token(NamedTuple):
    kind: str
    text: str


class _Parser:
    """Recursive descent over one type text; remembers every user type it expanded."""

    def __init__(self, text: str, user_types: UserTypes, used: dict[tuple[str, str], str]) -> None:
        self.text = text
        self.user_types = user_types
        self.used = used
        self.expanding: tuple[tuple[str, str], ...] = ()
        self.depth = 0
        self.tokens = self._split(text)
        self.position = 0

    def whole(self) -> Type:
        """Return the tree of the whole text; UnknownType when anything is left over."""
        tree = self.type()
        if self.position < len(self.tokens):
            self.fail(f"{self.tokens[self.position].text!r} is left over")
        return tree

    def type(self) -> Type:
        """One type at the current position."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        tree = self._one_type()
        self.depth -= 1
        return tree

    def _one_type(self) -> Type:
        token = self.take()
        if token.kind not in ("word", "quoted"):
            self.fail(f"a type was expected at {token.text!r}")
        if self.accept("."):
            return self._user_type(token.text, self.take())
        word = token.text.upper() if token.kind == "word" else ""
        if word in _ATOMIC:
            return Atomic(_ATOMIC[word])
        if word in _DECIMALS:
            return self._decimal()
        if word in _SIZED and self.peek() == "(":
            length = self._numbers(1, 1)[0]
            if length < 1:
                self.fail("a length is at least 1")
            return Sized(_SIZED[word], length)
        if word == "INTERVAL":
            return self._interval()
        if word not in ("ARRAY", "MAP", "STRUCT") or self.peek() != "<":
            self.fail(f"there is no type {token.text!r}", instead=_INSTEAD.get(word))
        return self._parse_nested(word)

    def _decimal(self) -> Decimal:
        numbers = self._numbers(1, 2) if self.peek() == "(" else [10]
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if not 1 <= precision <= MAX_PRECISION:
            self.fail(f"a precision is 1 to {MAX_PRECISION}, not {precision}")
        if scale > precision:
            self.fail(f"the scale {scale} is above the precision {precision}")
        return Decimal(precision, scale)

    def _interval(self) -> Interval:
        first = self.peek().upper()
        family = next((units for units in (_YEAR_MONTH, _DAY_TIME) if first in units), None)
        if family is None:
            return Interval(())
        self.take()
        last = first
        if self.accept("TO"):
            last = self.take().text.upper()
            if last not in family or family.index(last) <= family.index(first):
                self.fail(f"INTERVAL {first} TO {last} does not exist")
        return Interval(family[family.index(first) : family.index(last) + 1])

    def _parse_nested(self, word: str) -> Type:
        self.expect("<")
        tree: Type
        if word == "ARRAY":
            tree = Array(self.type())
        elif word == "MAP":
            key = self.type()
            self.expect(",")
            tree = Map(key, self.type())
        else:
            tree = self._struct()
        self.expect(">")
        return tree

    def _struct(self) -> Struct:
        fields: list[Field] = []
        names: set[str] = set()
        while self.peek() != ">":
            if fields:
                self.expect(",")
            name = self.take()
            if name.kind not in ("word", "quoted"):
                self.fail(f"a field name was expected at {name.text!r}")
            if name.text.lower() in names:
                self.fail(f"the field {name.text!r} is twice in one struct")
            names.add(name.text.lower())
            self.accept(":")
            tree = self.type()
            nullable = not self.accept("NOT")
            if not nullable:
                self.expect("NULL")
            if self.accept("COMMENT") and self.take().kind != "string":
                self.fail("COMMENT needs a text in quotes")
            fields.append(Field(name.text, tree, nullable))
        return Struct(tuple(fields))

    def _user_type(self, schema: str, token: _Token) -> Type:
        key = schema.lower(), token.text.lower()
        shown = f"{quote_part(schema)}.{quote_part(token.text)}"
        if token.kind not in ("word", "quoted"):
            self.fail(f"a name was expected after {schema!r}.")
        definition = self.user_types.get(key)
        if definition is None:
            self.fail(f"there is no type {shown} in the release")
        if key in self.expanding:
            path = (*self.expanding[self.expanding.index(key) :], key)
            circle = " -> ".join(f"{quote_part(s)}.{quote_part(n)}" for s, n in path)
            self.fail(f"types contain each other: {circle}")
        self.used[key] = definition
        inner = _Parser(definition, self.user_types, self.used)
        inner.expanding = (*self.expanding, key)
        inner.depth = self.depth
        return inner.whole()

    def _numbers(self, least: int, most: int) -> list[int]:
        self.expect("(")
        numbers = [self._number()]
        while self.accept(","):
            numbers.append(self._number())
        self.expect(")")
        if not least <= len(numbers) <= most:
            self.fail(f"{len(numbers)} parameters are too many")
        return numbers

    def _number(self) -> int:
        text = self.take().text
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            self.fail(f"a number was expected at {text!r}")
        return int(text)

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                self.fail(f"{text[position:].strip()[:20]!r} does not belong into a type")
            kind = str(match.lastgroup)
            part = match[kind]
            tokens.append(_Token(kind, part.replace("``", "`") if kind == "quoted" else part))
            position = match.end()
        return tokens

    def peek(self) -> str:
        """Return the text of the next bare token; empty at the end and before a quoted one."""
        if self.position == len(self.tokens):
            return ""
        token = self.tokens[self.position]
        return token.text if token.kind in ("word", "mark") else ""

    def take(self) -> _Token:
        """Return the next token; UnknownType at the end."""
        if self.position == len(self.tokens):
            self.fail("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, text: str) -> bool:
        """Take the next token when it is ``text`` (upper case)."""
        if self.peek().upper() != text:
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        """Take the next token, which must be ``text``."""
        if not self.accept(text):
            found = self.tokens[self.position].text if self.position < len(self.tokens) else ""
            at = f"at {found!r}" if found else "at the end"
            self.fail(f"{text!r} was expected {at}")

    def fail(self, reason: str, instead: str | None = None) -> NoReturn:
        """Raise UnknownType for the whole text."""
        remedy = (
            f"write {instead}" if instead else "write a Spark type, or schema.name of a CREATE TYPE"
        )
        shown = self.text if len(self.text) <= 80 else f"{self.text[:77]}..."
        raise UnknownType(
            f"{shown!r} is not a type: {reason}", remedy=remedy, text=self.text, reason=reason
        )


_BUILT_IN: dict[str, str] = {}
"""Texts seen so far that name no user type, with their canonical text; valid for ever."""
_WITH_USER_TYPES: dict[str, tuple[str, tuple[tuple[tuple[str, str], str], ...]]] = {}
"""The others, with the user types they used: valid while the caller's mapping agrees on those."""
_CACHE_LIMIT = 8192


def canonical_type(text: str, user_types: UserTypes | None = None) -> str:
    """Return the one spelling of a type.

    ``text`` is a type as written, ``user_types`` the types of the release, keyed (folded schema,
    folded name); only qualified names are looked up there, and their texts may use others.
    Raises :class:`UnknownType` for anything that Spark or the release does not know, a parameter
    out of bounds, a field twice in a struct, or user types that contain each other.
    """
    found = _BUILT_IN.get(text)
    if found is not None:
        return found
    known = _WITH_USER_TYPES.get(text)
    if known is not None and user_types is not None:
        canonical, uses = known
        if all(user_types.get(key) == definition for key, definition in uses):
            return canonical
    used: dict[tuple[str, str], str] = {}
    canonical = str(_Parser(text, user_types or {}, used).whole())
    if len(_BUILT_IN) + len(_WITH_USER_TYPES) >= _CACHE_LIMIT:
        _BUILT_IN.clear()
        _WITH_USER_TYPES.clear()
    if used:
        _WITH_USER_TYPES[text] = canonical, tuple(used.items())
    else:
        _BUILT_IN[text] = canonical
    return canonical


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The tree of a type without user types; :class:`UnknownType` as :func:`canonical_type`."""
    return _Parser(text, {}, {}).whole()


NUMERIC = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
_DIGITS_BY_SPARK = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
"""Precision of the decimal that Spark takes for an integer; BIGINT needs 19, Spark says 20."""
_DIGITS_NEEDED = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_EXACT = {
    "TINYINT": frozenset({"SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING"}),
    "SMALLINT": frozenset({"INT", "BIGINT", "FLOAT", "DOUBLE", "STRING"}),
    "INT": frozenset({"BIGINT", "DOUBLE", "STRING"}),
    "BIGINT": frozenset({"STRING"}),
    "FLOAT": frozenset({"DOUBLE"}),
    "BOOLEAN": frozenset({"STRING"}),
    "DATE": frozenset({"STRING"}),
}
"""Casts between types without parameters that keep every value (24 and 53 bits of mantissa)."""
_UP_CASTS = frozenset(
    {
        *combinations(NUMERIC, 2),
        ("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP_NTZ"),
        ("TIMESTAMP", "TIMESTAMP_NTZ"), ("TIMESTAMP_NTZ", "TIMESTAMP"),
        ("BIGINT", "TIMESTAMP"), ("TIMESTAMP", "BIGINT"),
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def is_up_cast(source: str, target: str) -> bool:
    """Return whether Spark casts by itself under ``WITH SCHEMA BINDING`` (its ``Cast.canUpCast``).

    An up-cast may round (BIGINT to FLOAT), cut (TIMESTAMP to BIGINT) or fail at run time
    (DECIMAL(19,0) to BIGINT); :func:`is_lossless` is the stricter question.
    """
    return _up_cast(parse_type(source), parse_type(target))


Holds = Callable[["Type", "Type"], bool]


def holds_inside(
    source: Type, target: Type, holds: Holds, fields: Callable[[Struct, Struct, Holds], bool]
) -> bool | None:
    """Return whether something holds for all that is in two arrays, maps or structs.

    ``fields`` says it of structs. None where the two are not of one of these kinds.
    """
    if isinstance(source, Array) and isinstance(target, Array):
        return holds(source.element, target.element)
    if isinstance(source, Map) and isinstance(target, Map):
        return holds(source.key, target.key) and holds(source.value, target.value)
    if isinstance(source, Struct) and isinstance(target, Struct):
        return fields(source, target, holds)
    return None


def by_place(source: Struct, target: Struct, holds: Holds) -> bool:
    """Compare fields as Spark's casts do: by their places, whatever their names are."""
    return len(source.fields) == len(target.fields) and all(
        (to.nullable or not of.nullable) and holds(of.type, to.type)
        for of, to in zip(source.fields, target.fields, strict=True)
    )


def by_place_and_name(source: Struct, target: Struct, holds: Holds) -> bool:
    """Compare fields by their places where their names are the same."""
    before, after = ([field.name.lower() for field in each.fields] for each in (source, target))
    return before == after and by_place(source, target, holds)


def _by_name(source: Struct, target: Struct, holds: Holds) -> bool:
    """Compare fields by their names; new ones that are nullable may stand between them."""
    pairs = match_fields(source, target)
    return [of for _, of in pairs if of is not None] == list(source.fields) and all(
        to.nullable if of is None
        else (to.nullable or not of.nullable) and holds(of.type, to.type)
        for to, of in pairs
    )


def _up_cast(source: Type, target: Type) -> bool:
    if source == target or source == Atomic("VOID"):
        return True
    inside = holds_inside(source, target, _up_cast, by_place)
    if inside is not None:
        return inside
    if target == Atomic("STRING"):
        return not isinstance(source, Array | Map | Struct) and source != Atomic("VARIANT")
    if isinstance(source, Interval) and isinstance(target, Interval):
        return source.family == target.family
    if isinstance(source, Sized) and isinstance(target, Sized):
        return _fits(source, target)
    if isinstance(source, Decimal) or isinstance(target, Decimal):
        return _fits_digits(source, target, _DIGITS_BY_SPARK)
    return (str(source), str(target)) in _UP_CASTS


_CASTS = frozenset(
    {
        ("number", "exact number"), ("exact number", "number"),
        ("number", "BOOLEAN"), ("exact number", "BOOLEAN"),
        ("BOOLEAN", "number"), ("BOOLEAN", "exact number"),
        ("number", "TIMESTAMP"), ("exact number", "TIMESTAMP"),
        ("TIMESTAMP", "number"), ("TIMESTAMP", "exact number"),
        ("time without zone", "TIMESTAMP"), ("TIMESTAMP", "time without zone"),
        ("exact number", "YEAR"), ("YEAR", "exact number"),
        ("exact number", "DAY"), ("DAY", "exact number"),
    }
)  # fmt: skip
"""Pairs of families, beside those of one family, between which Spark casts under ANSI rules."""


def _family(tree: Type) -> str:
    """What Spark's rules of casting tell types by; intervals by their coarsest unit."""
    if isinstance(tree, Interval):
        return next(iter(tree.family), "INTERVAL")
    if isinstance(tree, Decimal):
        return "exact number"
    name = str(tree)
    if name in NUMERIC:
        return "number" if name in ("FLOAT", "DOUBLE") else "exact number"
    return "time without zone" if name in ("DATE", "TIMESTAMP_NTZ") else name


@lru_cache(maxsize=4096)
def is_cast(source: str, target: str) -> bool:
    """Whether CAST takes these types (Spark's ``Cast.canAnsiCast``); a value may still fail."""
    return can_cast(parse_type(source), parse_type(target))


def can_cast(
    source: Type, target: Type, fields: Callable[[Struct, Struct, Holds], bool] = by_place
) -> bool:
    """:func:`is_cast` of two trees, with another way to tell ``fields`` of structs by."""
    if source == target or source == Atomic("VOID"):
        return True
    inside = holds_inside(source, target, partial(can_cast, fields=fields), fields)
    if inside is not None:
        return inside
    if is_text(target):
        return True
    if Atomic("VARIANT") in (source, target):
        other = target if source == Atomic("VARIANT") else source
        return not _without_variant(other, reads=source == Atomic("VARIANT"))
    if isinstance(source, Array | Map | Struct) or isinstance(target, Array | Map | Struct):
        return False
    if is_text(source):
        return target != Atomic("VOID")
    of, to = _family(source), _family(target)
    return of == to or (of, to) in _CASTS


def _without_variant(tree: Type, *, reads: bool) -> bool:
    """Whether a type cannot be made of a VARIANT (``reads``), or become one."""
    if isinstance(tree, Array):
        return _without_variant(tree.element, reads=reads)
    if isinstance(tree, Map):
        return not reads or not is_text(tree.key) or _without_variant(tree.value, reads=reads)
    if isinstance(tree, Struct):
        return not reads or any(_without_variant(each.type, reads=reads) for each in tree.fields)
    return isinstance(tree, Interval) or tree == Atomic("VOID")


@lru_cache(maxsize=4096)
def is_null_from_cast(source: str, target: str) -> bool:
    """Return whether Spark takes what CAST gives for nullable although the value is not (its
    ``Cast.forceNullable``)."""
    return _null_from_cast(parse_type(source), parse_type(target))


def _null_from_cast(source: Type, target: Type) -> bool:
    name, to = str(source), str(target)
    if source == target or name == "VOID":
        return False
    if name == "VARIANT":
        return True
    if is_text(source):
        return to not in ("BINARY", "STRING")
    if is_text(target):
        return False
    if name == "DATE":
        return to != "TIMESTAMP"
    if to == "DATE":
        return name != "TIMESTAMP"
    if to == "TIMESTAMP":
        return name in ("FLOAT", "DOUBLE")
    if isinstance(target, Decimal):
        return not _is_null_safe(source, target)
    if to in _DIGITS_BY_SPARK:
        if name == "TIMESTAMP":
            return to != "BIGINT"
        return isinstance(source, Decimal) or name in ("FLOAT", "DOUBLE")
    return target == Interval(())


def _is_null_safe(source: Type, target: Decimal) -> bool:
    if isinstance(source, Decimal):
        wider = source.whole <= target.whole and source.scale <= target.scale
        return wider or target.whole > source.whole
    return (str(source) == "BOOLEAN" and target.whole > 0) or (
        _fits_digits(source, target, _DIGITS_BY_SPARK)
    )


@lru_cache(maxsize=4096)
def is_assignable(source: str, target: str) -> bool:
    """Return whether an INSERT stores a value without a CAST, under ANSI store assignment (Spark's
    ``Cast.canANSIStoreAssign``): a value that does not fit fails there."""
    return _assignable(parse_type(source), parse_type(target))


_DATES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})


def _assignable(source: Type, target: Type) -> bool:
    if source == target or source == Atomic("VOID"):
        return True
    inside = holds_inside(source, target, _assignable, by_place_and_name)
    if inside is not None:
        return inside
    if isinstance(source, Array | Map | Struct) or isinstance(target, Array | Map | Struct):
        return False
    if is_text(target):
        return source != Atomic("VARIANT")
    if isinstance(source, Interval) and isinstance(target, Interval):
        return source.family == target.family
    if _is_number(source) and _is_number(target):
        return True
    return str(source) in _DATES and str(target) in _DATES


def is_number(text: str) -> bool:
    """Return whether a type is one of numbers, DECIMAL included."""
    return _is_number(parse_type(text))


def _is_number(tree: Type) -> bool:
    return isinstance(tree, Decimal) or (isinstance(tree, Atomic) and tree.name in NUMERIC)


@lru_cache(maxsize=4096)
def is_lossless(source: str, target: str) -> bool:
    """Whether every value of ``source`` survives :func:`conversion` to ``target`` unchanged and
    distinct.

    Stricter than :func:`is_up_cast`: nothing that rounds, depends on the session's time zone,
    fails at run time, pads, or moves a value under another field name of a struct. A struct may get
    nullable fields.
    """
    return _lossless(parse_type(source), parse_type(target))


@lru_cache(maxsize=4096)
def becomes_text(source: str, target: str) -> bool:
    """Return whether a value that was none, at any depth, is turned into text."""
    return any(
        is_text(to) and not is_text(of)
        for of, to in _leaves(parse_type(source), parse_type(target))
    )


def is_text(tree: Type) -> bool:
    return isinstance(tree, Sized) or tree == Atomic("STRING")


def _leaves(source: Type, target: Type) -> Iterator[tuple[Type, Type]]:
    """What becomes what within two types; fields that only one of them has are left out."""
    if isinstance(source, Array) and isinstance(target, Array):
        yield from _leaves(source.element, target.element)
    elif isinstance(source, Map) and isinstance(target, Map):
        yield from _leaves(source.key, target.key)
        yield from _leaves(source.value, target.value)
    elif isinstance(source, Struct) and isinstance(target, Struct):
        for to, of in match_fields(source, target):
            if of is not None:
                yield from _leaves(of.type, to.type)
    else:
        yield source, target


def match_fields(source: Struct, target: Struct) -> list[tuple[Field, Field | None]]:
    """Return each field of ``target`` with the one of ``source`` that it continues, by name."""
    known = {field.name.lower(): field for field in source.fields}
    return [(field, known.get(field.name.lower())) for field in target.fields]


class AddedField(NamedTuple):
    """A field that a struct gets: the names that lead to it, and the field before it (None: first).

    ``element``, ``key`` and ``value`` lead into arrays and maps, as in Spark's ALTER TABLE.
    """

    path: tuple[str, ...]
    type: str
    after: str | None


@lru_cache(maxsize=4096)
def find_added_fields(source: str, target: str) -> tuple[AddedField, ...] | None:
    """The nullable fields that make ``target`` of ``source``, an outer one before those beside it.

    None where anything else differs: another type, name, place or nullability of a field.
    """
    return _find_added(parse_type(source), parse_type(target), ())


def _find_added(source: Type, target: Type, path: tuple[str, ...]) -> tuple[AddedField, ...] | None:
    if source == target:
        return ()
    parts: list[tuple[AddedField, ...] | None]
    if isinstance(source, Array) and isinstance(target, Array):
        parts = [_find_added(source.element, target.element, (*path, "element"))]
    elif isinstance(source, Map) and isinstance(target, Map):
        parts = [
            _find_added(source.key, target.key, (*path, "key")),
            _find_added(source.value, target.value, (*path, "value")),
        ]
    elif isinstance(source, Struct) and isinstance(target, Struct):
        parts = _find_added_in_struct(source, target, path)
    else:
        return None
    return None if None in parts else tuple(field for part in parts for field in part or ())


def _find_added_in_struct(
    source: Struct, target: Struct, path: tuple[str, ...]
) -> list[tuple[AddedField, ...] | None]:
    """What each field of a struct adds, None where anything else differs."""
    pairs = match_fields(source, target)
    if [of for _, of in pairs if of is not None] != list(source.fields):
        return [None]
    parts: list[tuple[AddedField, ...] | None] = []
    after: str | None = None
    for to, of in pairs:
        if of is None:
            new = AddedField((*path, to.name), str(to.type), after)
            parts.append((new,) if to.nullable else None)
        else:
            same = (to.name, to.nullable) == (of.name, of.nullable)
            parts.append(_find_added(of.type, to.type, (*path, to.name)) if same else None)
        after = to.name
    return parts


def is_longer_text(source: str, target: str) -> bool:
    """Return whether a VARCHAR becomes one that takes more: a longer one, or STRING.

    Delta keeps the length beside the schema, where Spark looks it up before each write (its
    ``CharVarcharUtils``): the files of both are the same, and nobody has to copy them.
    """
    before, after = parse_type(source), parse_type(target)
    return (
        isinstance(before, Sized) and before.name == "VARCHAR"
        and before != after and is_lossless(source, target)
    )


def _lossless(source: Type, target: Type) -> bool:
    if source == target or source == Atomic("VOID"):
        return True
    inside = holds_inside(source, target, _lossless, _by_name)
    if inside is not None:
        return inside
    if isinstance(source, Interval) and isinstance(target, Interval):
        return _keeps_units(source, target)
    if isinstance(source, Sized):
        return target == Atomic("STRING") or (isinstance(target, Sized) and _fits(source, target))
    if isinstance(source, Decimal) or isinstance(target, Decimal):
        return target == Atomic("STRING") or _fits_digits(source, target, _DIGITS_NEEDED)
    return str(target) in _EXACT.get(str(source), ())


def _keeps_units(source: Interval, target: Interval) -> bool:
    """Spark cuts what is finer than the last unit and keeps everything above it."""
    units = source.family
    return bool(units) and units == target.family and (
        units.index(target.fields[-1]) >= units.index(source.fields[-1])
    )


def _fits(source: Sized, target: Sized) -> bool:
    """A longer CHAR pads, so only VARCHAR takes texts of another length."""
    return target.name == "VARCHAR" and source.length <= target.length


def _fits_digits(source: Type, target: Type, digits: Mapping[str, int]) -> bool:
    """Whether all digits fit, one of both being a DECIMAL; ``digits`` are those of integers."""
    if isinstance(target, Decimal):
        if isinstance(source, Decimal):
            return source.whole <= target.whole and source.scale <= target.scale
        return digits.get(str(source), MAX_PRECISION + 1) <= target.whole
    return (
        isinstance(source, Decimal) and source.scale == 0
        and source.precision < digits.get(str(target), 0)
    )
