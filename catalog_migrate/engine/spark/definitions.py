"""Views and SQL functions that no release made, as Spark's catalog has them.

A view is read from its row of SHOW TABLE EXTENDED, which a listing gives anyway. All there is text
between labels, and users may write such labels too: then DESCRIBE … AS JSON is asked, a statement
of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from catalog_migrate.engine.port import SchemaMode, UserDefinition
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.binding import NO_FUNCTIONS
from catalog_migrate.engine.spark.registrations import (
    MARK,
    NO_FUNCTION,
    Registrations,
    parse_comment,
    read_properties,
)
from catalog_migrate.engine.spark.replacement import replace_text
from catalog_migrate.engine.spark.statements import rows
from catalog_migrate.engine_failures import METASTORE_AWAY, failing
from catalog_migrate.errors import EngineFailure, UnknownType
from catalog_migrate.model.names import Identity, ItemName, identity_of, quote_sql
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.model.types import canonical_type
from catalog_migrate.sql.tokens import Token, end_token, string_value, tokenise

TOGETHER = 100
"""Most views whose names are the pattern of one statement; more are read with all of a schema."""

_TEXT = "\nView Text: "
_ORIGINAL = "\nView Original Text: "
_MODE = "\nView Schema Mode: "
_NAMESPACE = "\nView Catalog and Namespace: "
_OUTPUTS = "\nView Query Output Columns: ["
_SCHEMA = "\nSchema: root\n"
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_FIELD = re.compile(r"( \|(?: {4}\|)*)-- (.*)\Z", re.DOTALL)
_TYPED = re.compile(
    r"(?s)(.*): ([^:]+?)(?: \((?:nullable|containsNull|valueContainsNull) = (true|false)\))?\Z"
)
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_BINARY = "UTF8_BINARY"
"""The collation of every string that has none."""
_LOOKS_LIKE_A_TYPE = re.compile(r"STRING COLLATE \w+\Z|TIME\(\d\)\Z")
"""Types of Spark that no release may have."""
_ROW = re.compile(r"([A-Z][A-Za-z ]*):(?:\s+|\Z)(.*)\Z", re.DOTALL)
_STORED = "sqlFunction."
"""The class of a SQL function, and what the keys begin with under which it is stored."""
_WIDTH = 15
"""Where the values of DESCRIBE FUNCTION EXTENDED begin."""
_ANALYSED = "== Analyzed Logical Plan ==\n"
_FAILED = re.compile(r"[\w.$]*Exception: (?:\[([A-Z_.]+)\])?(.*)")
_LEAF = re.compile(r"SubqueryAlias (\w+)\.(\w+)\.(\w+)$", re.MULTILINE)
_VIEW = re.compile(r"View \(`(\w+)`\.`(\w+)`\.`(\w+)`,")


class Definitions(Registrations):
    """What :class:`~catalog_migrate.engine.port.Engine` says of users' views and functions."""

    def schemas(self) -> Sequence[str]:
        """SHOW SCHEMAS."""
        with failing("list the schemas"):
            return [_unquote(row[0]) for row in rows(self._spark, "SHOW SCHEMAS")]

    def user_definitions(
        self, schema: str, *, but: Container[Identity] = ()
    ) -> Sequence[UserDefinition]:
        """SHOW VIEWS, SHOW TABLE EXTENDED of those, and DESCRIBE FUNCTION for each function."""
        views = sorted(
            name for name in self._views(schema) if identity_of("view", *name) not in but
        )
        found = list(self._read_views(schema, views))
        try:
            functions = self._functions(schema)
        except EngineFailure as error:
            if _is_away(error):
                raise
            functions = []
            if error.condition not in NO_FUNCTIONS:  # what was found of views counts all the same
                every = ItemName(schema, "*")
                found.append(UserDefinition(every, "function", unread=error.message))
        for name in functions:
            if identity_of("function", *name) not in but:
                found += self._read_function(name)
        return found

    def _views(self, schema: str) -> Iterable[ItemName]:
        """Names of views; of all relations where the catalog does not list views alone."""
        try:
            shown = self._show(f"SHOW VIEWS IN {quote_sql(schema)}", schema)
        except EngineFailure as error:
            if not _is_inability(error):
                raise
            return self.names(schema)
        return [ItemName(schema, row["viewName"]) for row in shown if row["namespace"]]

    def _read_views(
        self, schema: str, names: Sequence[ItemName]
    ) -> Iterator[UserDefinition]:
        """Those of the names that are views without marks.

        By one statement where the schema has hardly anything else, unless it is refused.
        """
        if len(names) > TOGETHER and 2 * len(names) > len(self.names(schema)):
            try:
                shown = self._informations(names, every=True)
            except EngineFailure as error:
                if _is_away(error):
                    raise
            else:
                yield from self._read_rows(shown)
                return
        for first in range(0, len(names), TOGETHER):
            yield from self._read_group(names[first : first + TOGETHER])

    def _read_group(self, names: Sequence[ItemName]) -> Iterator[UserDefinition]:
        """By one statement; Spark gives no row where it cannot give all, so then by halves."""
        try:
            shown = self._informations(names)
        except EngineFailure as error:
            if _is_away(error):
                raise
            if len(names) > 1:
                half = len(names) // 2
                yield from self._read_group(names[:half])
                yield from self._read_group(names[half:])
            elif names[0] in self.names(names[0].schema):
                why = error.reason
                yield UserDefinition(names[0], "view", unread=f"it cannot be read: {why}")
            return
        yield from self._read_rows(shown)

    def _read_rows(self, shown: Mapping[ItemName, str]) -> Iterator[UserDefinition]:
        for name, information in shown.items():
            if "\nType: VIEW\n" in information and not _is_marked(read_properties(information)):
                yield read_view(name, information, self.catalog) or self._describe(name)

    def _describe(self, name: ItemName) -> UserDefinition:
        """A view by DESCRIBE … AS JSON."""
        try:
            with failing(f"describe the view {name}"):
                shown = rows(self._spark, f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON")
            return read_described_view(name, json.loads(shown[0][0]), self.catalog)
        except EngineFailure as error:
            return UserDefinition(name, "view", unread=error.message)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return UserDefinition(name, "view", unread=f"its description cannot be read: {error}")

    def _read_function(self, name: ItemName) -> Iterator[UserDefinition]:
        """A SQL function without marks; nothing for one of a class, and for one that is missing."""
        try:
            with failing(f"describe the function {name}"):
                shown = rows(self._spark, f"DESCRIBE FUNCTION EXTENDED {name.sql}")
        except EngineFailure as error:
            if _is_away(error):
                raise
            if error.condition not in NO_FUNCTION:
                yield UserDefinition(name, "function", unread=error.message)
            return
        lines = [row[0] for row in shown]
        comment = parse_comment(lines)
        if _is_marked(statements.read_function_comment(comment)):
            return
        try:
            found = read_function(name, lines, self.catalog)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            yield UserDefinition(
                name, "function", unread=f"its description cannot be read: {error}"
            )
        else:
            if found is not None:
                yield found

    def replace_text(self, definition: UserDefinition, sql: str) -> None:
        """ALTER VIEW … AS, or CREATE OR REPLACE FUNCTION, while the definition is still found."""
        name = definition.name
        settings: Mapping[str, str] = {}
        comment = ""
        if definition.kind == "view":
            found = list(self._read_group([name]))
        else:
            found = list(self._read_function(name))
        if list(map(_comparable, found)) != [_comparable(definition)]:
            raise EngineFailure(
                f"cannot replace the text of {name}: another process has changed or dropped it",
                condition="CHANGED",
            )
        if definition.kind == "view":
            with failing(f"describe the view {name}"):
                shown = rows(self._spark, f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON")
            settings = json.loads(shown[0][0]).get("view_creation_spark_configuration") or {}
        else:
            with failing(f"describe the function {name}"):
                shown = rows(self._spark, f"DESCRIBE FUNCTION EXTENDED {name.sql}")
            labelled = _read_labels([row[0] for row in shown])
            pairs = (line.partition("=") for line in labelled.get("Configs", ()))
            settings = {key: value for key, _, value in pairs}
            comment = "\n".join(labelled.get("Comment", ()))
        replace_text(
            self._spark, self.catalog, definition, sql, comment=comment, settings=settings
        )

    def relations_read(self, definition: UserDefinition) -> Sequence[ItemName]:
        """Return the relations in the analysed plan of EXPLAIN EXTENDED."""
        query = definition.query
        with failing(f"analyse {definition.name}"):
            plan = str(rows(self._spark, f"EXPLAIN EXTENDED {query}")[0][0])
        found = read_relations(plan, self.catalog) - {definition.name}
        failed = _FAILED.match(plan.partition(_ANALYSED)[2])
        if failed is not None and not found:
            raise EngineFailure(
                f"cannot analyse {definition.name}: {failed[2].strip()}", condition=failed[1]
            )
        return sorted(found)


def _comparable(definition: UserDefinition) -> object:
    """What two definitions of one name are compared by."""
    return msgspec.to_builtins(definition)


def _is_away(error: EngineFailure) -> bool:
    """Whether no other statement would do better."""
    return error.transient or error.condition == METASTORE_AWAY


def _is_inability(error: EngineFailure) -> bool:
    condition = error.condition or ""
    return condition.startswith(("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE"))


def _is_marked(properties: Mapping[str, str]) -> bool:
    """Whether a release made it."""
    return any(key.startswith(MARK) for key in properties)


def _unquote(name: str) -> str:
    quoted = _QUOTED.fullmatch(name)
    return name if quoted is None else quoted[1].replace("``", "`")


# -- views -------------------------------------------------------------------------------------


def read_view(name: ItemName, information: str, catalog: str) -> UserDefinition | None:
    """One row of SHOW TABLE EXTENDED; None where it is not clear what is a label and what a text.

    ``catalog`` is the session's current one.
    """
    if any(information.count(label) != 1 for label in (_TEXT, _ORIGINAL, _SCHEMA)):
        return None
    if any(information.count(label) > 1 for label in (_MODE, _NAMESPACE, _OUTPUTS)):
        return None
    text, _, rest = information.partition(_TEXT)[2].partition(_ORIGINAL)
    outputs = _read_outputs(rest.partition(_OUTPUTS)[2])
    mode = _line_behind(rest, _MODE)
    columns = _read_tree(rest.partition(_SCHEMA)[2].rstrip("\n").split("\n"))
    if columns is None or outputs is None or (outputs and len(outputs) != len(columns)):
        return None
    namespace = _read_namespace(_line_behind(rest, _NAMESPACE), name, catalog)
    return UserDefinition(name, "view", text, columns, outputs, namespace, _schema_mode(mode))


def _line_behind(text: str, label: str) -> str:
    return text.partition(label)[2].partition("\n")[0]


def _schema_mode(said: str) -> SchemaMode:
    """A view without one was made before there were modes: it binds."""
    return cast("SchemaMode", said) if said in get_args(SchemaMode) else "BINDING"


def _read_outputs(text: str) -> tuple[str, ...] | None:
    """Names up to the closing bracket; none where the text is empty, None where that is unclear."""
    if not text.startswith("`"):
        names = text.partition("]\n")[0]
        return tuple(names.split(", ")) if names else ()
    found: list[str] = []
    position = 0
    while (match := _QUOTED.match(text, position)) is not None:
        found.append(match[1].replace("``", "`"))
        position = match.end() + 2
        if text.startswith("]", match.end()):
            return tuple(found)
    return None


def _read_namespace(said: str, name: ItemName, catalog: str) -> str:
    """The schema of a catalog and schema; that of the view where none is said."""
    if not said:
        return name.schema
    parts = [
        quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(said)
    ]
    return parts[1] if len(parts) == 2 and parts[0].lower() == catalog.lower() else ""


class _Unclear(Exception):
    """A line of a tree that may be read in two ways."""


def _read_tree(lines: Sequence[str]) -> tuple[Column, ...] | None:
    """The columns that a schema prints as a tree; None where a name has an escape in it."""
    fields = [_FIELD.match(line) for line in lines if line]
    if any(field is None for field in fields):
        return None
    levels = [(len(field[1]) // 5, field[2]) for field in fields if field is not None]
    columns: list[Column] = []
    position = 0
    try:
        while position < len(levels):
            name, text, nullable, position = _read_field(levels, position)
            columns.append(Column(name, known_type(text), nullable))
    except (_Unclear, RecursionError):
        return None
    return tuple(columns)


def _read_field(
    levels: Sequence[tuple[int, str]], position: int
) -> tuple[str, str, bool, int]:
    """Name, type, nullability of the field at ``position``, and the position behind it."""
    level, text = levels[position]
    match = _TYPED.match(text)
    if match is None or "\\" in match[1]:
        raise _Unclear
    position += 1
    inner: list[tuple[str, str, bool]] = []
    while position < len(levels) and levels[position][0] > level:
        name, type_, nullable, position = _read_field(levels, position)
        inner.append((name, type_, nullable))
    return match[1], _nest(match[2], inner), match[3] != "false", position


def _nest(kind: str, inner: Sequence[tuple[str, str, bool]]) -> str:
    """The text of a type of which the tree prints the kind and, below it, what is inside."""
    if kind == "struct":
        fields = (
            f"{quote_sql(name)}: {type_}{'' if nullable else ' NOT NULL'}"
            for name, type_, nullable in inner
        )
        return f"STRUCT<{', '.join(fields)}>"
    if kind in ("array", "map"):
        return f"{kind.upper()}<{', '.join(type_ for _, type_, _ in inner)}>"
    return kind


def known_type(text: str) -> str:
    """Return the canonical type; the text as Spark writes it where we know none."""
    try:
        return canonical_type(text)
    except UnknownType:
        return text


def read_described_view(
    name: ItemName, described: Mapping[str, Any], catalog: str
) -> UserDefinition:
    """Return what DESCRIBE … AS JSON says of a view; KeyError where it is none."""
    columns = tuple(
        Column(each["name"], known_type(_json_type(each["type"])), each.get("nullable", True))
        for each in described["columns"]
    )
    return UserDefinition(
        name, "view", described["view_text"], columns,
        tuple(described.get("view_query_output_columns") or ()),
        _read_namespace(described.get("view_catalog_and_namespace", ""), name, catalog),
        _schema_mode(described.get("view_schema_mode", "")),
    )


def _json_type(shown: Mapping[str, Any]) -> str:
    """The text of a type."""
    kind = shown["name"]
    if kind == "struct":
        return _nest(kind, [
            (each["name"], _json_type(each["type"]), each.get("nullable", True))
            for each in shown["fields"]
        ])
    if kind == "array":
        return f"ARRAY<{_json_type(shown['element_type'])}>"
    if kind == "map":
        return f"MAP<{_json_type(shown['key_type'])}, {_json_type(shown['value_type'])}>"
    if kind == "decimal":
        return f"DECIMAL({shown['precision']},{shown['scale']})"
    if kind in ("char", "varchar"):
        return f"{kind}({shown['length']})"
    if kind == "interval" and "start_unit" in shown:
        units = dict.fromkeys((shown["start_unit"], shown.get("end_unit", shown["start_unit"])))
        return f"INTERVAL {' TO '.join(units)}".upper()
    if kind == "string" and shown.get("collation", _BINARY) != _BINARY:
        return f"string collate {shown['collation']}"
    return str(kind)


# -- functions ---------------------------------------------------------------------------------


def read_function(
    name: ItemName, lines: Sequence[str], catalog: str
) -> UserDefinition | None:
    """Return what DESCRIBE FUNCTION EXTENDED says of a SQL function; None for one of a class.

    Before 4.2 it has the function as it is stored, in JSON.
    """
    shown = _read_labels(lines)
    if shown.get("Class") == [_STORED]:
        return _read_stored(name, json.loads(shown["Usage"][0]), catalog)
    if "Body" not in shown:
        return None
    if shown["Type"] == ["TABLE"]:
        columns = [Column(f.name, f.type, comment=f.comment) for f in _fields(shown["Returns"])]
    else:
        columns = [Column("", known_type(shown["Returns"][0].strip()))]
    return UserDefinition(
        name, "function", shown["Body"][0], tuple(columns), namespace=name.schema,
        arguments=tuple(_fields(shown["Input"])),
    )


def _read_stored(
    name: ItemName, stored: Mapping[str, str], catalog: str
) -> UserDefinition:
    returns = stored.get(f"{_STORED}returnType", "")
    if stored.get(f"{_STORED}isTableFunc") == "true":
        columns = [Column(f.name, f.type, comment=f.comment) for f in _read_declared(returns)]
    else:
        columns = [Column("", known_type(returns))]
    parts = [stored.get(f"catalogAndNamespace.part.{number}", "") for number in (0, 1)]
    namespace = name.schema
    if all(parts):
        namespace = parts[1] if parts[0].lower() == catalog.lower() else ""
    text = stored.get(f"{_STORED}expression") or stored[f"{_STORED}query"]
    arguments = _read_declared(stored.get(f"{_STORED}inputParam", ""))
    return UserDefinition(
        name, "function", text, tuple(columns), namespace=namespace, arguments=tuple(arguments)
    )


def _read_declared(text: str) -> list[Argument]:
    """Arguments or columns as a CREATE FUNCTION declares them, with commas between them."""
    tokens = tokenise(text)
    found: list[Argument] = []
    depth = 0
    parts: dict[str, int] = {}
    first = 0
    for number, token in enumerate([*tokens, end_token(len(text))]):
        depth += token.is_operator("<", "(") - token.is_operator(">", ")")
        if depth == 0 and number > first + 1 and token.is_word("default", "comment"):
            parts.setdefault(token.value, number)
        if token.kind == "end" or (depth == 0 and token.is_operator(",")):
            if number > first:
                found.append(_read_declared_field(text, tokens[first:number], parts, first))
            first, parts = number + 1, {}
    return found


def _read_declared_field(
    text: str, tokens: Sequence[Token], parts: Mapping[str, int], first: int
) -> Argument:
    """One of them: ``parts`` are the indexes of DEFAULT and COMMENT, counted from ``first``."""
    stop = tokens[-1].end
    comment = default = None
    if "comment" in parts:
        mark = tokens[parts["comment"] - first]
        comment, stop = string_value(text[mark.end : stop].strip()), mark.start
    if "default" in parts:
        mark = tokens[parts["default"] - first]
        default, stop = text[mark.end : stop].strip(), mark.start
    type_ = known_type(text[tokens[0].end : stop].strip())
    return Argument(tokens[0].name, type_, default, comment)


def _read_labels(lines: Iterable[str]) -> Mapping[str, list[str]]:
    """Values by label; those that go on below it are in the same column."""
    shown: dict[str, list[str]] = {}
    values: list[str] = []
    for line in lines:
        match = _ROW.match(line)
        if match is not None and not line.startswith(" "):
            values = shown.setdefault(match[1], [])
            values.append(line[_WIDTH:] if line[: _WIDTH].endswith("  ") else match[2])
        elif line.startswith(" " * _WIDTH):
            values.append(line[_WIDTH:])
    return shown


def _fields(shown: Sequence[str]) -> list[Argument]:
    """Arguments or columns: name, type, default and comment, each in its own column."""
    if shown == ["()"]:
        return []
    for start in range(1, min(map(len, shown)) + 1):
        if all(line[start - 1] == " " and line[start:start + 1].strip() for line in shown):
            fields = [_field(line[:start].rstrip(), line[start:]) for line in shown]
            if all(field is not None for field in fields):
                return [field for field in fields if field is not None]
    raise ValueError(f"{shown!r} are no fields")


def _field(name: str, text: str) -> Argument | None:
    """A field of which the part behind its name is ``text``; None where that is no type."""
    type_ = text[: _end_of_type(text)].rstrip()
    try:
        canonical_type(type_)
    except UnknownType:
        if not _LOOKS_LIKE_A_TYPE.match(type_):
            return None
    default, rest = None, text[len(type_):].strip()
    if rest.startswith("DEFAULT "):
        default = rest.removeprefix("DEFAULT ").strip()
        *before, last = tokenise(default)
        is_comment = before and last.is_string and (
            before[-1].kind != "operator" or before[-1].text in ")]"
        )
        rest = default[last.start :] if is_comment else ""
        default = default.removesuffix(rest).rstrip()
    return Argument(name, known_type(type_), default, rest[1:-1] or None)


def _end_of_type(text: str) -> int:
    """Where a default or a comment begins."""
    depth = 0
    for number, token in enumerate(tokenise(text)):
        depth += token.is_operator("<", "(") - token.is_operator(">", ")")
        if depth == 0 and number and (token.is_word("default") or token.text[0] == "'"):
            return token.start
    return len(text)


def read_relations(plan: str, catalog: str) -> set[ItemName]:
    """Return the relations of a catalog in the analysed part of a plan's text."""
    analysed = plan.partition(_ANALYSED)[2].partition("\n== Optimized Logical Plan ==")[0]
    return {
        ItemName(schema, name)
        for found in (_LEAF, _VIEW) for owner, schema, name in found.findall(analysed)
        if owner.lower() == catalog.lower()
    }
