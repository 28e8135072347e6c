"""What the columns and expressions of an analysed plan come down to: columns of the relations that
are read, by the names that they had before a change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain

from catalog_migrate.users.column_changes import RetypedColumn
from catalog_migrate.users.plan_text import ATTRIBUTE, UnreadablePlan

_LONGEST = 400
"""Characters of an expression that are kept; of a longer one a digest is."""
_MOST = 64
"""Columns of an expression that are kept for the reason."""
OTHER_ROWS = " with other rows"
"""What is put behind the name of a relation whose rows are others."""
TYPE_DEPENDENT = frozenset({"hash", "xxhash64", "typeof", "hive_hash", "schema_of_json", "reflect"})
"""Functions whose value depends on the width of a whole number."""
_OF_VALUE = frozenset({
    "", "distinct", "sum", "min", "max", "avg", "count", "coalesce", "if", "nullif", "in", "abs",
    "first", "last", "any_value", "first_value", "last_value", "lag", "lead", "nth_value",
    "greatest", "least", "isnull", "isnotnull", "windowspecdefinition", "min_by", "max_by", "sign",
})
"""Functions whose value depends on that of a number alone, not on its type; empty: an operator."""
_OF_PRESENCE = frozenset({"count", "isnull", "isnotnull"})
"""Functions that ask of a value only whether there is one."""
_RANDOM = re.compile(r"\b(rand|randn|uuid|shuffle|randstr|uniform|random)\(")
_SEED = re.compile(r"Some\(-?\d+\)|-?\d{5,}")
_SUBQUERY = re.compile(
    r"(?<![a-z-])(?P<kind>exists|list|[a-z-]+subquery)"
    r"#\d+L?(?: \[)?"
)
_TO_NUMBER = re.compile(
    r" as (?:tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\))(?=\)|$)"
)
_WORD_BEFORE = re.compile(r"(?<![\w.])[\w.]*$")


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of the ``leaf``-th relation of the plan: by what it was called, and is called here.

    ``type`` is how it is retyped.
    """

    leaf: int
    relation: str
    name: str
    identity: str
    type: RetypedColumn | None = None
    other: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.relation}.{self.name}" if self.relation else self.name


@dataclass(frozen=True, slots=True)
class Definition:
    """What an attribute or expression comes down to. ``bare``: it is that column, passed on."""

    text: str
    refs: tuple[Ref, ...] = ()
    plans: tuple[Query, ...] = ()
    bare: Ref | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """An operator that decides over rows, what it looks at, and its inputs.

    ``unordered``: it looks at a set.
    """

    operator: str
    parts: tuple[Definition, ...] = ()
    inputs: tuple[Rows, ...] = ()
    unordered: bool = False

    def digest(self) -> str:
        texts = [part.text for part in self.parts]
        text = "\n".join((
            self.operator, *(sorted(texts) if self.unordered else texts),
            *(each.digest() for each in self.inputs),
        ))
        return digest_of(text)


@dataclass(frozen=True, slots=True)
class Query:
    """A plan as read: its columns by name, and its rows."""

    names: tuple[str, ...]
    columns: tuple[Definition, ...]
    rows: Rows


@dataclass(slots=True)
class Scope:
    """What an operator gives: its columns in order (name, id), and what each id is."""

    outputs: list[tuple[str, int]]
    definitions: dict[int, tuple[str, Definition]]
    rows: Rows

    def as_query(self) -> Query:
        return Query(tuple(name for name, _ in self.outputs), self.columns, self.rows)

    @property
    def columns(self) -> tuple[Definition, ...]:
        return tuple(self.definitions[number][1] for _, number in self.outputs)


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def make(
    text: str, refs: Iterable[Ref], plans: Iterable[Query] = (), bare: Ref | None = None
) -> Definition:
    short = text if len(text) <= _LONGEST else f"<{digest_of(text)}>"
    return Definition(short, tuple(refs)[:_MOST], tuple(plans), bare)


def passing_definition(ref: Ref) -> Definition:
    mark = "~" if ref.other else ""
    return Definition(f"⟨{ref.leaf}:{ref.identity}{mark}⟩", (ref,), (), ref)


def of_use(definition: Definition, use: int) -> Definition:
    """The column of a common table expression as one use of it gives it: each use is a relation of
    its own."""
    ref = definition.bare
    if ref is None:
        text = f"use {use} of {definition.text}"
        return make(text, definition.refs, definition.plans)
    return passing_definition(replace(ref, identity=f"{use}:{ref.identity}"))


def as_compared(definition: Definition) -> Definition:
    """Return a column as an operator compares it: with its type, where that may matter."""
    if definition.bare is None:
        return definition
    return Definition(
        definition.text + _type_mark(definition.bare, "", ""), definition.refs, definition.plans
    )


def combine(operator: str, columns: Sequence[Definition]) -> Definition:
    """One column of several."""
    return make(
        f"{operator}({', '.join(as_compared(each).text for each in columns)})",
        chain.from_iterable(each.refs for each in columns),
        chain.from_iterable(each.plans for each in columns),
    )


class Expressions:
    """Resolves the attributes of one operator's expressions to what they come down to."""

    def __init__(
        self, known: Mapping[int, tuple[str, Definition]], plans: Sequence[Query]
    ) -> None:
        self.known = known
        self.plans = plans
        self._next = 0

    def define(self, text: str) -> Definition:
        """Return what an expression is."""
        pieces: list[str] = []
        refs: list[Ref] = []
        plans: list[Query] = []
        local: dict[str, int] = {}
        position = 0
        text, found = self._without_subqueries(text)
        text = without_seeds(text)
        for match in ATTRIBUTE.finditer(text):
            number = int(match[1])
            before = text[position : match.start()]
            position = match.end()
            name, definition = self.known.get(number, ("", None))
            if definition is None or not before.lower().endswith(name.lower()):
                # of the expression alone, as the argument of a lambda, or a part of a literal
                pieces.append(f"{before}#{local.setdefault(match[1], len(local))}")
                continue
            before = before[: len(before) - len(name)]
            pieces.append(before)
            mark = ""
            if definition.bare is not None and definition.bare.type is not None:
                called = _find_call("".join(pieces))
                mark = _type_mark(definition.bare, called, text[position : position + 30])
            pieces.append(definition.text + mark)
            refs += definition.refs
            plans += definition.plans
            if before == "" and len(pieces) == 2 and position == len(text):
                return definition
        pieces.append(text[position:])
        plans += found
        return make(_without_numeric_casts("".join(pieces)), refs, plans)

    def _without_subqueries(self, text: str) -> tuple[str, list[Query]]:
        """The text with digests of plans in place of subqueries, and those plans."""
        pieces: list[str] = []
        found: list[Query] = []
        position = 0
        for match in _SUBQUERY.finditer(text):
            if match.start() < position:
                continue
            end = match.end()
            if match[0].endswith("["):
                depth = 1
                while depth and end < len(text):
                    depth += (text[end] == "[") - (text[end] == "]")
                    end += 1
            plan = self.plans[self._next] if self._next < len(self.plans) else None
            self._next += 1
            kind = match["kind"]
            if plan is None:
                raise UnreadablePlan("a subquery without its plan")
            columns = () if kind == "exists" else plan.columns
            shown = digest_of("\n".join((plan.rows.digest(), *(each.text for each in columns))))
            pieces += (text[position : match.start()], f"{kind} {shown}")
            found.append(plan if columns else Query((), (), plan.rows))
            position = end
        pieces.append(text[position:])
        return "".join(pieces), found


def _find_call(before: str) -> str:
    """The function whose argument comes next, ``distinct`` where a set of it is taken; else ''."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        sign = before[at]
        if sign in ")]":
            depth += 1
        elif sign in "([":
            if depth == 0:
                word = _WORD_BEFORE.search(before[:at])
                inner = before[at + 1 :].lstrip()
                return "distinct" if inner.startswith("distinct ") else word[0] if word else ""
            depth -= 1
    return ""


def _type_mark(ref: Ref, called: str, behind: str) -> str:
    """The type of a column, where what is done with it may depend on that."""
    type_ = ref.type
    if type_ is None or called in _OF_PRESENCE:
        return ""
    if type_.manner == "whole" and called not in TYPE_DEPENDENT:
        return ""
    if type_.manner == "number" and (called in _OF_VALUE or _TO_NUMBER.match(behind)):
        return ""
    if type_.manner == "fields" and behind.startswith("."):
        return ""
    return f" {type_.new}"


def without_seeds(text: str) -> str:
    """The text without the seeds that Spark makes up for each analysis."""
    if _RANDOM.search(text):
        text = _SEED.sub("?", text)
    return text


def _without_numeric_casts(text: str) -> str:
    """The text without casts to numbers: of a query that is one text, those which differ are the
    analyser's own, and what else than a wider number becomes one is marked with its type."""
    if "cast(" not in text:
        return text
    opened: list[tuple[int, bool]] = []  # where each bracket's content starts, and whether a cast's
    pieces: list[str] = []
    for sign in re.findall(r"\bcast\(|[()]|[^()c]+|c", text):
        if sign == "cast(":
            opened.append((len(pieces), True))
            pieces.append(sign)
        elif sign == "(":
            opened.append((len(pieces), False))
            pieces.append(sign)
        elif sign == ")" and opened:
            start, is_cast = opened.pop()
            inner = "".join(pieces[start + 1 :])
            end = inner.rfind(" as ")
            to_number = is_cast and end >= 0 and _TO_NUMBER.fullmatch(inner, end)
            pieces[start:] = [inner[:end]] if to_number else [pieces[start], inner, sign]
        else:
            pieces.append(sign)
    return "".join(pieces)
