"""From declared objects to a valid release: types, names and decisions checked, all errors at once.

The path of a compiled manifest (canonical types, ``depends_on`` present) touches every column once
and imports nothing; texts are tokenised only for objects that do not say what they depend on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from catalog_migrate.errors import InvalidName, Problem, UnknownType, suggest
from catalog_migrate.model.names import (
    Identity,
    identity_of,
    parse_reference,
    quote_part,
    spark_refuses,
    split_name,
)
from catalog_migrate.model.objects import KIND_RANK, Column, ObjectDefinition
from catalog_migrate.model.renames import find_clashes
from catalog_migrate.model.table_properties import OWN, canonical_key, faults_of
from catalog_migrate.model.types import canonical_type
from catalog_migrate.model.walks import find_cycle
from catalog_migrate.policy import Policy
from catalog_migrate.release.release import Declared, Place, inside
from catalog_migrate.sql.references import (
    Occurrence,
    count_select_items,
    occurrences,
    splice,
    type_names,
)
from catalog_migrate.sql.tokens import tokenise

DUPLICATE_OBJECT = "CM0102"
DUPLICATE_COLUMN = "CM0103"
UNKNOWN_REFERENCE = "CM0104"
CONTRACT_ARITY = "CM0105"
BAD_DECISION = "CM0106"
NO_CONTRACT = "CM0107"
NO_SCHEMA = "CM0109"
UNKNOWN_KIND = "CM0111"
EMPTY = "CM0112"
UNKNOWN_TYPE = "CM0120"
CYCLE = "CM0130"
NOT_IN_SPARK = "CM0115"
OUR_SCHEMA = "CM0116"
VARIABLE = "CM0118"
BAD_PROPERTY = "CM0124"
UNKNOWN_PROPERTY = "CM0125"
SYSTEM_SCHEMA = "catalog_migrate"
"""Where our own views are; with a suffix where another installation has its own there."""

OUR_SCHEMAS = re.compile(rf"{SYSTEM_SCHEMA}(?:_[0-9a-f]{{8}})?\Z")
"""Schemas, folded, that are reserved for our own views, those of any installation."""
_VARIABLE = re.compile(r"\$\{\S+?\}")
"""What Spark takes for a variable: its own pattern, ``ConfigReader.REF_RE``."""

_SHOWN = 60

_TYPE_WORDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING",
    "CHAR", "VARCHAR", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "VARIANT", "ARRAY", "MAP",
    "STRUCT", "INTERVAL",
)


_TYPES_ELSEWHERE = {
    "INTERGER": "INT", "DATETIME": "TIMESTAMP", "DATETIME2": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT",
    "MEDIUMINT": "INT", "SERIAL": "INT, and fill the column when writing",
    "BIGSERIAL": "BIGINT, and fill the column when writing",
    "NUMBER": "DECIMAL(precision, scale)", "MONEY": "DECIMAL(19,4)",
    "VARCHAR2": "VARCHAR(n) or STRING", "NVARCHAR": "VARCHAR(n) or STRING",
    "NVARCHAR2": "VARCHAR(n) or STRING", "NCHAR": "CHAR(n) or STRING", "TEXT": "STRING",
    "CLOB": "STRING", "JSON": "STRING or VARIANT", "JSONB": "STRING or VARIANT", "UUID": "STRING",
    "BIT": "BOOLEAN, or BINARY for several bits", "BOOL": "BOOLEAN",
    "BLOB": "BINARY", "BYTEA": "BINARY", "VARBINARY": "BINARY",
}
"""Types of other databases, and what to write for them: never one that holds less."""
_UNSIGNED = {
    "TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "INTEGER": "BIGINT",
    "BIGINT": "DECIMAL(20,0)",
}
"""Types that hold what these do without a sign."""
_TYPE_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(TINYINT|SMALLINT|INT|INTEGER|BIGINT)\s+UNSIGNED", re.IGNORECASE),
     lambda found: f"write {_UNSIGNED[found[1].upper()]}"),
    (re.compile(r"(.+?)\s*\[\s*\d*\s*\]"), lambda found: f"write ARRAY<{found[1]}>"),
)
"""Ways in which others write types, and what to write here."""
_NUMBER = re.compile(r"NUMBER\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)


def is_our_schema(schema: str) -> bool:
    """Return whether a schema is reserved for our own views, those of any installation."""
    return OUR_SCHEMAS.match(schema.lower()) is not None


class Resolved(NamedTuple):
    """What :func:`resolve` finds; ``objects`` and ``uses`` are of use only without problems."""

    objects: tuple[ObjectDefinition, ...]
    uses: dict[Identity, tuple[Identity, ...]]
    problems: list[Problem]


def resolve(
    declared: Sequence[Declared], *, default_schema: str | None = None, contracts: bool = True,
    own: bool = False, policy: Policy | None = None, unread: Collection[Identity] = (),
) -> Resolved:
    """Resolve names and types of a whole release and find everything that is wrong with it.

    ``contracts``: whether a view without a typed column list is a problem (it is not for
    ``release compile``, which is what fills it in). ``own``: these are our own views, which alone
    may be in our schema. ``policy`` may allow properties that Delta is not known to have.
    ``unread`` is what statements declare that have an error of their own: using it is none.
    """
    resolver = _Resolver(declared, default_schema, contracts, policy or Policy(), unread)
    if not own:
        resolver.refuse_our_schema(declared)
    objects: list[ObjectDefinition] = []
    uses: dict[Identity, tuple[Identity, ...]] = {}
    for entry in declared:
        definition, used = resolver.object(entry)
        objects.append(definition)
        uses[definition.identity] = used
    resolver.problems.extend(rename_problems(declared))
    if not declared:
        resolver.problems.append(
            Problem(EMPTY, "the release declares nothing", remedy="add a CREATE statement")
        )
    acyclic = dict(uses)
    while path := find_cycle(acyclic, acyclic.__getitem__, acyclic):
        # every circle is worth a line: cut this one and look for the next
        acyclic[path[0]] = tuple(used for used in acyclic[path[0]] if used != path[1])
        names = [str(resolver.found[identity].definition.key) for identity in path]
        resolver.report(
            resolver.found[path[0]].place, CYCLE, "objects use each other: " + " -> ".join(names),
            remedy="break the circle: one of them must not read the next",
        )
    return Resolved(tuple(objects), uses, resolver.problems)


class _Resolver:
    """State of one resolution: what exists, what was already looked up, what is wrong."""

    def __init__(
        self, declared: Sequence[Declared], default_schema: str | None, contracts: bool,
        policy: Policy, unread: Collection[Identity],
    ) -> None:
        self.problems: list[Problem] = []
        self.contracts, self.policy = contracts, policy
        self.default = default_schema.lower() if default_schema else None
        self.found: dict[Identity, Declared] = {}
        self.schemas: set[str] = set()
        self.references: dict[str, Identity | None] = {}
        self.types: dict[str, tuple[str | None, frozenset[Identity]]] = {}
        self.unread = unread
        self.expanded: dict[Identity, str | None] = dict.fromkeys(unread)
        self.decided = False  # whether the object at hand takes decisions that need a look
        for entry in declared:
            self.add(entry)
        self.has_types = any(identity[0] == "type" for identity in (*self.found, *unread))

    def add(self, entry: Declared) -> None:
        definition = entry.definition
        identity = definition.identity
        self.schemas.add(identity[1])
        if definition.kind not in KIND_RANK:
            near = difflib.get_close_matches(definition.kind, KIND_RANK, 1)
            self.report(
                entry.place, UNKNOWN_KIND,
                f"{quote_part(definition.schema)}.{quote_part(definition.name)} is of unknown "
                f"kind {definition.kind!r}",
                remedy="known kinds: " + ", ".join(KIND_RANK) if not near else f"write {near[0]}",
            )
        schema = definition.schema or definition.name  # that it has none is told already
        odd = spark_refuses(definition.kind, schema, definition.name)
        if odd is not None:
            self.report(
                entry.place, NOT_IN_SPARK,
                f"Spark cannot have a {definition.kind} called {definition.key}",
                text=quote_part(odd if len(odd) <= _SHOWN else odd[:_SHOWN] + "…"),
                remedy="use at most 255 of A-Z, a-z, 0-9 and _ for schemas, tables and views;"
                " columns may be called anything",
            )
        other = self.found.setdefault(identity, entry)
        if other is not entry:
            where = "" if other.place.line is None else (
                f", first in {other.place.file}:{other.place.line}"
            )
            what = f"{definition.key} is declared twice"
            if other.definition.kind != definition.kind:
                what += f", as {other.definition.kind} and as {definition.kind}"
            self.report(
                entry.place, DUPLICATE_OBJECT, what + where, remedy="keep one, or rename one"
            )

    def refuse_our_schema(self, declared: Sequence[Declared]) -> None:
        """An object there would be committed, and then be in the way of our own at every start."""
        if not any(map(is_our_schema, self.schemas)):
            return
        for entry in declared:
            definition = entry.definition
            if is_our_schema(definition.schema):
                self.report(
                    entry.place, OUR_SCHEMA,
                    f"{definition.key} is in the schema {quote_part(definition.schema)}, which is "
                    "reserved for the views of catalog-migrate",
                    text=str(definition.item_name), remedy="put it into another schema",
                )

    def report(
        self, place: Place, code: str, message: str, *, text: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problems.append(
            Problem(code, message, place.file, place.line, place.column, text, remedy)
        )

    # -- one object ----------------------------------------------------------------------------

    def object(self, entry: Declared) -> tuple[ObjectDefinition, tuple[Identity, ...]]:
        """Return the resolved definition and what it uses."""
        definition = entry.definition
        used: set[Identity] = set()
        changes: dict[str, Any] = {}
        self.decided = False
        columns = self.columns(entry, definition.columns, used)
        if columns is not None:
            changes["columns"] = columns
        if definition.properties:
            self.properties(entry, columns or definition.columns, changes)
        self.of_kind(entry, used, changes)
        if self.decided or _takes_decisions(definition):
            self.problems.extend(decision_problems(definition, entry.place, entry.columns))
        declared = definition.depends_on
        if declared is None:
            self.texts(entry, used, changes)
        else:
            for name in declared:
                identity = self.reference(name, entry)
                if identity is not None:
                    used.add(identity)
        if changes:
            definition = msgspec.structs.replace(definition, **changes)
        return definition, tuple(sorted(used))

    def of_kind(self, entry: Declared, used: set[Identity], changes: dict[str, Any]) -> None:
        """What only tables, views, functions or types have."""
        definition = entry.definition
        if definition.kind == "table":
            if not definition.columns:
                self.report(
                    entry.place, NO_CONTRACT, f"table {definition.key} has no columns",
                    remedy="list its columns",
                )
            elif definition.filled_from is not None:
                self.fill(entry, definition.filled_from)
        elif definition.kind == "view":
            self.contract(entry)
        elif definition.kind == "function":
            self.signature(entry, used, changes)
        elif definition.kind == "type" and definition.definition is not None:
            text = self.expand(definition.identity, ())
            used |= self.type_uses(definition.definition)
            if text is not None:
                changes["definition"] = text

    def columns(
        self, entry: Declared, columns: tuple[Column, ...], used: set[Identity]
    ) -> tuple[Column, ...] | None:
        """Return the columns with canonical types, None when nothing changed."""
        types = self.types
        result: list[Column] | None = None
        names: set[str] = set()
        for position, column in enumerate(columns):
            text = column.type
            entry_of_type = types.get(text)
            if entry_of_type is None:
                entry_of_type = self.type(text, entry, column)
            canonical, uses = entry_of_type
            if uses:
                used |= uses
            if canonical is not None and canonical != text:
                if result is None:
                    result = list(columns)
                result[position] = msgspec.structs.replace(column, type=canonical)
            names.add(column.name.lower())
            if column.renamed_from is not None or column.using is not None:
                self.decided = True
        if len(names) != len(columns):
            self.duplicate_columns(entry, columns)
        return None if result is None else tuple(result)

    def duplicate_columns(self, entry: Declared, columns: Sequence[Column]) -> None:
        seen: set[str] = set()
        for column in columns:
            folded = column.name.lower()
            if folded in seen:
                self.report(
                    entry.place, DUPLICATE_COLUMN,
                    f"column {quote_part(column.name)} of {entry.definition.key} stands there "
                    "twice",
                    text=column.name, remedy="names compare without case: keep one, or rename one",
                )
            seen.add(folded)

    def properties(
        self, entry: Declared, columns: Sequence[Column], changes: dict[str, Any]
    ) -> None:
        """Properties of a table by Delta's rules, with the keys as Delta writes them."""
        definition = entry.definition
        written = definition.properties
        if definition.kind != "table":
            for key in written:
                if key.lower().startswith(OWN):
                    self.report(
                        entry.properties.get(key, entry.place), BAD_PROPERTY,
                        f"property {key} of {definition.key} begins with {OWN}, which marks our own"
                        " views and functions", text=key, remedy="give it another prefix",
                    )
            return
        types = {column.name: column.type for column in columns}
        faults = (
            faults_of(written, types, definition.partitioned_by)
            if self.policy.checks_properties else ()
        )
        for fault in faults:
            if fault.unknown and self.policy.says("allow", "unknown_property", fault.key):
                continue
            self.report(
                entry.properties.get(fault.key, entry.place),
                UNKNOWN_PROPERTY if fault.unknown else BAD_PROPERTY,
                f"property {fault.key} of {definition.key} {fault.reason}", text=fault.key,
                remedy=fault.remedy,
            )
        canonical = {canonical_key(key): value for key, value in written.items()}
        if canonical != written:
            changes["properties"] = canonical

    def contract(self, entry: Declared) -> None:
        """A view needs its typed list, with as many columns as its query selects."""
        definition = entry.definition
        if not definition.columns:
            if self.contracts:
                self.report(
                    entry.place, NO_CONTRACT, f"view {definition.key} has no typed column list",
                    remedy="write the list, or have Spark do it: "
                    "`catalog-migrate release compile --write DIR`",
                )
            return
        if definition.sql is None or definition.depends_on is not None:
            return
        count = count_select_items(definition.sql)
        if count is not None and count != len(definition.columns):
            self.report(
                entry.text if entry.text.line is not None else entry.place, CONTRACT_ARITY,
                f"view {definition.key} declares {len(definition.columns)} columns, its query "
                f"selects {count}",
                remedy="make the column list and the SELECT list equally long",
            )

    def fill(self, entry: Declared, query: str) -> None:
        """A query gives as many columns as the table has that Delta does not compute."""
        definition = entry.definition
        wanted = sum(column.generated is None for column in definition.columns)
        count = count_select_items(query)
        if count is not None and count != wanted:
            self.report(
                entry.text if entry.text.line is not None else entry.place, CONTRACT_ARITY,
                f"table {definition.key} has {wanted} columns to fill, its FILLED FROM selects "
                f"{count}",
                remedy="select one value for each column, in the order of the columns",
            )

    def signature(self, entry: Declared, used: set[Identity], changes: dict[str, Any]) -> None:
        """Canonical types of a function's arguments and of what it returns."""
        definition = entry.definition
        arguments = []
        for argument in definition.arguments:
            canonical, uses = self.types.get(argument.type) or self.type(argument.type, entry)
            used |= uses
            arguments.append(msgspec.structs.replace(argument, type=canonical or argument.type))
        if tuple(arguments) != definition.arguments:
            changes["arguments"] = tuple(arguments)
        if isinstance(definition.returns, str):
            text = definition.returns
            canonical, uses = self.types.get(text) or self.type(text, entry)
            used |= uses
            if canonical is not None and canonical != text:
                changes["returns"] = canonical
        elif definition.returns is not None:
            columns = self.columns(entry, definition.returns, used)
            if columns is not None:
                changes["returns"] = columns

    # -- types ---------------------------------------------------------------------------------

    def type(
        self, text: str, entry: Declared, column: Column | None = None
    ) -> tuple[str | None, frozenset[Identity]]:
        """Canonical text (None when unknown, reported then) and the user types in it; cached."""
        try:
            uses = self.type_uses(text) if self.has_types else frozenset()
            plain = self.expand_text(text, ()) if uses else text
            if plain is None:
                return None, uses  # the type's own declaration is reported
            result = (canonical_type(plain), uses)
        except UnknownType as error:
            place = entry.place
            what = f"{entry.definition.key}"
            if column is not None:
                place = entry.columns.get(column.name.lower(), place)
                what = f"column {quote_part(column.name)} of {entry.definition.key}"
            self.report(
                place, UNKNOWN_TYPE, f"{what} has the unknown type {text}", text=text,
                remedy=self.nearest_type(text, error),
            )
            return None, frozenset()
        self.types[text] = result
        return result

    def type_uses(self, text: str) -> frozenset[Identity]:
        return frozenset(
            identity for name in type_names(text)
            if (identity := self.user_type(name)) is not None
        )

    def user_type(self, name: Occurrence) -> Identity | None:
        if name.name is None:
            return None
        schema, bare = name.name
        identity = ("type", schema or self.default or "", bare)
        return identity if identity in self.found or identity in self.unread else None

    def expand_text(self, text: str, path: tuple[Identity, ...]) -> str | None:
        """``text`` with user types replaced by what they stand for; None when one is unusable."""
        pieces: list[tuple[int, int, str | None]] = []
        for name in type_names(text):
            identity = self.user_type(name)
            if identity is None:
                continue
            expansion = self.expand(identity, path)
            if expansion is None:
                return None
            pieces.append((name.start, name.end, expansion))
        return splice(text, pieces)

    def expand(self, identity: Identity, path: tuple[Identity, ...]) -> str | None:
        """The canonical type that a user type stands for; None (reported once) without one."""
        if identity in path:
            return None  # a circle, reported as one
        if identity in self.expanded:
            return self.expanded[identity]
        entry = self.found[identity]
        declared = entry.definition.definition or ""
        result = None
        try:
            text = self.expand_text(declared, (*path, identity))
            result = None if text is None else canonical_type(text)
        except UnknownType as error:
            self.report(
                entry.place, UNKNOWN_TYPE,
                f"{entry.definition.key} stands for the unknown type {declared}", text=declared,
                remedy=self.nearest_type(declared, error),
            )
        self.expanded[identity] = result
        return result

    def nearest_type(self, text: str, error: UnknownType) -> str:
        for pattern, remedy in _TYPE_FORMS:
            form = pattern.fullmatch(text.strip())
            if form is not None:
                return remedy(form)
        own = {
            f"{entry.definition.schema}.{entry.definition.name}": entry
            for identity, entry in self.found.items() if identity[0] == "type"
        }
        known = {word: word for word in _TYPE_WORDS} | {name.upper(): name for name in own}
        for name in type_names(text):
            written = ".".join(name.parts).upper()
            if written in known:
                continue
            meant = _type_elsewhere(written, text) or suggest(written, known, "")
            if meant:
                return meant
        return error.remedy or "write a Spark type or a type of the release"

    # -- references ----------------------------------------------------------------------------

    def reference(self, text: str, entry: Declared) -> Identity | None:
        """Return the identity that an entry of ``depends_on`` names, None when it is outside."""
        if text in self.references:
            return self.references[text]
        try:
            identity = parse_reference(text, self.default)
        except InvalidName as error:
            self.report(
                entry.place, NO_SCHEMA, f"{entry.definition.key} depends on {error.message}",
                text=text, remedy=error.remedy,
            )
            return None
        if identity not in self.found:
            if identity[1] in self.schemas:
                self.unknown(entry.definition, identity, entry.place, text)
                return None
            self.references[text] = None
            return None
        self.references[text] = identity
        return identity

    def unknown(
        self, definition: ObjectDefinition, identity: Identity, place: Place, text: str
    ) -> None:
        if identity in self.unread:
            return
        kind = "relation" if identity[0] == "relation" else identity[0]
        names = {
            f"{schema}.{name}": str(entry.definition.item_name)
            for (namespace, schema, name), entry in self.found.items()
            if namespace == identity[0]
        }
        self.report(
            place, UNKNOWN_REFERENCE,
            f"{definition.key} uses {kind} {quote_part(identity[1])}.{quote_part(identity[2])}, "
            "which the release does not declare",
            text=text,
            remedy=suggest(f"{identity[1]}.{identity[2]}", names, f"declare the {kind}"),
        )

    def texts(self, entry: Declared, used: set[Identity], changes: dict[str, Any]) -> None:
        """Find what the SQL of an object uses and qualify it; fills ``used`` and ``changes``."""
        definition = entry.definition
        for key in ("sql", "body"):
            text = getattr(definition, key)
            if text is not None:
                resolved = self.text(text, entry, entry.text, used)
                if resolved != text:
                    changes[key] = resolved
        if definition.kind != "table":
            return
        if definition.filled_from is not None:
            filled = self.former(definition.filled_from, entry, used)
            if filled != definition.filled_from:
                changes["filled_from"] = filled
        columns = changes.get("columns", definition.columns)
        resolved_columns = tuple(self.column_texts(column, entry, used) for column in columns)
        if resolved_columns != columns:
            changes["columns"] = resolved_columns
        for check in definition.checks:
            self.refuse_variable(check.expression, entry, entry.place, f"CHECK {check.name}")
        checks = tuple(
            msgspec.structs.replace(
                check,
                expression=self.text(check.expression, entry, entry.place, used, exact=False),
            )
            for check in definition.checks
        )
        if checks != definition.checks:
            changes["checks"] = checks

    def column_texts(self, column: Column, entry: Declared, used: set[Identity]) -> Column:
        """Return a column, the names in its expressions qualified."""
        for key in ("using", "default", "generated"):
            text = getattr(column, key)
            if text is None:
                continue
            place = entry.columns.get(column.name.lower(), entry.place)
            if key != "using":
                self.refuse_variable(text, entry, place, f"{key} of {column.name}")
            resolved = self.text(text, entry, place, used, exact=False)
            if resolved != text:
                column = msgspec.structs.replace(column, **{key: resolved})
        return column

    def former(self, query: str, entry: Declared, used: set[Identity]) -> str:
        """Return a query over the release before, its relations qualified and this release's types
        expanded; which of them are there, the plan finds out."""
        pieces: list[tuple[int, int, str | None]] = []
        for name in occurrences(tokenise(query)):
            if name.name is None:
                continue
            schema, bare = name.name
            if name.kind == "type":
                identity = (name.kind, schema or self.default or "", bare)
                if identity in self.found:
                    used.add(identity)
                    pieces.append((name.start, name.end, self.expand(identity, ())))
            elif name.kind == "relation" and schema is None:
                if self.default is None:
                    self.lacks_schema(
                        inside(entry.text, query, name.start), bare, query[name.start : name.end],
                        f"FILLED FROM of {entry.definition.key} reads",
                    )
                    continue
                part = quote_part(name.parts[-1])
                pieces.append((name.start, name.end, f"{quote_part(self.default)}.{part}"))
        return splice(query, pieces)

    def refuse_variable(self, text: str, entry: Declared, place: Place, what: str) -> None:
        """Each writer's Spark parses these anew, and puts its own variables in."""
        found = _VARIABLE.search(text)
        if found is not None:
            self.report(
                place, VARIABLE,
                f"{what} in {entry.definition.key}: Spark puts a variable in for {found[0]} with "
                "every write, another one in each process",
                text=found[0], remedy="write it in two parts: concat('$', '{…}')",
            )

    def text(
        self, text: str, entry: Declared, place: Place, used: set[Identity], *, exact: bool = True
    ) -> str:
        """``text`` with the release's names qualified and its types expanded.

        ``exact``: ``place`` is where the text starts, so that a place inside can be computed.
        """
        pieces: list[tuple[int, int, str | None]] = []
        for name in occurrences(tokenise(text)):
            if name.name is None:
                continue
            schema, bare = name.name
            spelt = text[name.start : name.end]
            identity = (name.kind, schema or self.default or "", bare)
            # what was declared without a schema was told there
            if not identity[1] and identity not in self.found:
                if name.kind == "relation":
                    where = inside(place, text, name.start) if exact else place
                    self.lacks_schema(where, bare, spelt, f"{entry.definition.key} uses")
                continue
            known = self.found.get(identity)
            if known is not None:
                used.add(identity)
                if name.kind == "type":
                    pieces.append((name.start, name.end, self.expand(identity, ())))
                elif schema is None:
                    target = quote_part(known.definition.schema)
                    pieces.append((name.start, name.end, f"{target}.{quote_part(name.parts[-1])}"))
            elif identity[1] in self.schemas and (schema is not None or name.kind == "relation"):
                where = inside(place, text, name.start) if exact else place
                self.unknown(entry.definition, identity, where, spelt)
        return splice(text, pieces)

    def lacks_schema(self, where: Place, bare: str, spelt: str, who: str) -> None:
        self.report(
            where, NO_SCHEMA, f"{who} {bare} without a schema", text=spelt,
            remedy=f"write schema.{bare}, or set default_schema in release.toml",
        )


def _type_elsewhere(written: str, text: str) -> str | None:
    """What to write for a type that other databases have."""
    number = _NUMBER.match(text) if written == "NUMBER" else None
    if number is not None:
        return f"write DECIMAL({number[1]},{number[2] or 0})"
    found = _TYPES_ELSEWHERE.get(written)
    return None if found is None else f"write {found}"


def _takes_decisions(definition: ObjectDefinition) -> bool:
    """Whether an object has, beside its columns, what needs a look."""
    return bool(
        definition.dropped or definition.partitioned_by or definition.clustered_by
        or definition.filled_from is not None
        or (definition.contents is not None and definition.kind != "table")
    )


def rename_problems(declared: Sequence[Declared]) -> list[Problem]:
    """Objects that are renamed from themselves, or more than one from the same earlier name.

    Whether an earlier name is in force, and as what, is for the planner to see.
    """
    found: list[Problem] = []
    renamed = {
        entry.definition.identity: entry
        for entry in declared if entry.definition.renamed_from is not None
    }
    earlier: dict[Identity, list[tuple[str, Identity]]] = {}
    for identity, entry in renamed.items():
        definition = entry.definition
        earlier[identity] = []
        for old in definition.earlier_names:
            try:
                schema, bare = split_name(old)
            except InvalidName as error:
                found.append(Problem(
                    BAD_DECISION, f"{definition.key} is renamed from {error.message}",
                    entry.place.file, entry.place.line, entry.place.column, old, error.remedy,
                ))
                continue
            name = identity_of(
                definition.was or definition.kind, schema or definition.schema, bare
            )
            if name == identity:
                found.append(Problem(
                    BAD_DECISION, f"{definition.key} is renamed from itself", entry.place.file,
                    entry.place.line, entry.place.column, old, "leave it out of RENAMED FROM",
                ))
                continue
            # one that was a view may have an earlier name that another gets which was a table
            kinds = dict.fromkeys(filter(None, (definition.was, definition.kind)))
            earlier[identity] += [(kind, name) for kind in kinds]
    for one, other in find_clashes(earlier):
        entry = renamed[other]
        old = entry.definition.earlier_names[0]
        found.append(Problem(
            BAD_DECISION,
            f"{renamed[one].definition.key} and {entry.definition.key} are both renamed from {old}",
            entry.place.file, entry.place.line, entry.place.column, old,
            "an object can have only one successor: take the name out of one of them",
        ))
    return found


def decision_problems(
    definition: ObjectDefinition, place: Place, columns: Mapping[str, Place]
) -> list[Problem]:
    """Decisions and column lists that contradict the object they stand in."""
    return [
        Problem(BAD_DECISION, message, at.file, at.line, at.column, text, remedy)
        for rule in (_dropped, _renamed, _laid_out, _without_rows)
        for message, text, remedy, at in rule(definition, place, columns)
    ]


_Wrong = Iterator[tuple[str, str, str, Place]]
"""What is wrong, the text that it is about, what to do, and where."""


def _dropped(definition: ObjectDefinition, place: Place, _: Mapping[str, Place]) -> _Wrong:
    present = {column.name.lower() for column in definition.columns}
    for name in definition.dropped:
        if name.lower() in present:
            yield (
                f"{definition.key} drops column {quote_part(name)}, which it also declares",
                name, "take the column out of the list, or out of DROPPED", place,
            )


def _renamed(
    definition: ObjectDefinition, place: Place, columns: Mapping[str, Place]
) -> _Wrong:
    present = {column.name.lower(): column for column in definition.columns}
    for column in definition.columns:
        at = columns.get(column.name.lower(), place)
        for old in column.earlier_names:
            other = present.get(old.lower())
            if other is column:
                yield (
                    f"column {quote_part(column.name)} of {definition.key} is renamed from itself",
                    old, "leave RENAMED FROM out", at,
                )
            elif other is not None and other.renamed_from is None:
                yield (
                    f"column {quote_part(column.name)} of {definition.key} is renamed from "
                    f"{quote_part(old)}, which {definition.key} still declares",
                    old, f"take {quote_part(old)} out of the list, or RENAMED FROM", at,
                )
    earlier = {
        name: [old.lower() for old in column.earlier_names if old.lower() != name]
        for name, column in present.items() if column.earlier_names
    }
    for one, another in find_clashes(earlier):
        first, second = present[one], present[another]
        old = second.earlier_names[0]
        yield (
            f"columns {quote_part(first.name)} and {quote_part(second.name)} of "
            f"{definition.key} are both renamed from {quote_part(old)}",
            old, "one column can have only one successor", columns.get(another, place),
        )


def _laid_out(definition: ObjectDefinition, place: Place, _: Mapping[str, Place]) -> _Wrong:
    present = {column.name.lower() for column in definition.columns}
    for clause, names in (
        ("partitioned", definition.partitioned_by), ("clustered", definition.clustered_by)
    ):
        for name in names:
            if name.lower() not in present:
                yield (
                    f"{definition.key} is {clause} by {quote_part(name)}, which is not one of its "
                    "columns", name, "name a column of the table", place,
                )


def _without_rows(
    definition: ObjectDefinition, place: Place, columns: Mapping[str, Place]
) -> _Wrong:
    if definition.filled_from is not None and (definition.is_derived or definition.kind != "table"):
        yield (
            f"{definition.kind} {definition.key} has FILLED FROM", "FILLED FROM",
            "leave it out: the application's populate callback fills a derived table"
            if definition.is_derived else "leave it out: only tables hold rows", place,
        )
    if definition.kind == "table":
        return
    if definition.contents is not None:
        yield (
            f"{definition.kind} {definition.key} has contents {definition.contents}",
            definition.contents, "only tables have contents", place,
        )
    for column in definition.columns:
        if column.using is not None or column.renamed_from is not None:
            yield (
                f"column {quote_part(column.name)} of {definition.kind} {definition.key} has "
                "USING or RENAMED FROM", column.name, "only columns of tables hold rows",
                columns.get(column.name.lower(), place),
            )
