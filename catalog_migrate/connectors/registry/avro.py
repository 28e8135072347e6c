"""Avro schemas against columns: how a writer's records become rows, and what a sink registers.

Pure. A record is read inside one of ours that has an end mark behind it: bytes that are missing or
left over then run into the mark, where Avro's own decoder passes over them in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from catalog_migrate.delta import datatypes
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import (
    Array,
    Atomic,
    Decimal,
    Map,
    Sized,
    Struct,
    Type,
    parse_type,
)
from catalog_migrate.sql.tokens import string_literal

END_MARK = "c5a7a1061d39f402be5d7ee08b13946f"
"""Hexadecimal of the 16 bytes behind each record; no beginning of it is also an end of it."""

ROW, END = "row", "end"
"""The two fields of what a record is read inside of."""

_KEPT = ("logicalType", "precision", "scale", "size", "symbols")
_PRIMITIVES = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LOCAL = frozenset({"local-timestamp-millis", "local-timestamp-micros"})
_INSTANTS = frozenset({"timestamp-millis", "timestamp-micros"})
_FITTING: Mapping[str, frozenset[str]] = {
    "BOOLEAN": frozenset({"boolean"}),
    "INT": frozenset({"int"}),
    "BIGINT": frozenset({"int", "long"}),
    "FLOAT": frozenset({"float"}),
    "DOUBLE": frozenset({"int", "float", "double"}),
    "STRING": frozenset({"string", "enum"}),
    "BINARY": frozenset({"bytes", "fixed"}),
    "DATE": frozenset({"date"}),
    "TIMESTAMP": _INSTANTS,
    "TIMESTAMP_NTZ": _LOCAL,
}
"""By Spark's type the types of Avro, logical ones by their own name, that it holds exactly."""

_WHOLE_DIGITS = {"int": 10, "long": 19}
_WRITTEN: Mapping[str, Any] = {
    "TINYINT": "int", "SMALLINT": "int", "INT": "int", "BIGINT": "long", "FLOAT": "float",
    "DOUBLE": "double", "STRING": "string", "BINARY": "bytes", "BOOLEAN": "boolean",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "TIMESTAMP_NTZ": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip

Conversion = Callable[[str], str]
"""From an expression of Spark's SQL to the one that has the column's type."""


class UnfitSchema(ValueError):
    """A schema whose records cannot become rows of the columns, or columns that Avro cannot have;
    the message is the reason."""


class Reading(msgspec.Struct, frozen=True):
    """How records of one writer's schema are read.

    ``writer`` and ``reader`` are schemas of Avro for ``from_avro`` around record and end mark;
    ``columns`` maps a column to the conversion of its field, None where the writer has no such
    field.
    """

    writer: str
    reader: str
    columns: dict[str, Conversion | None]


def reading(text: str, references: Iterable[str], columns: Sequence[Column]) -> Reading:
    """How records of a writer's schema become rows of the columns.

    Fields are compared with their case; those that no column has are passed over, a column that
    the writer has no field for is NULL. Raises :class:`UnfitSchema`.
    """
    names = _Names()
    for each in references:
        names.learn(_parsed(each))
    root = names.learn(_parsed(text))
    record = names.resolved(root, "")
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise UnfitSchema(f"its schema is {_word(record)}, no record")
    space = names.space(record, "")
    fields = {str(field["name"]): field["type"] for field in record["fields"]}
    found: dict[str, Conversion | None] = {}
    for column in columns:
        if column.name not in fields:
            found[column.name] = None
            continue
        found[column.name] = _conversion(
            names, fields[column.name], space, parse_type(column.type), column.name, ()
        )
    kept = [field for field in record["fields"] if found.get(str(field["name"])) is not None]
    return Reading(
        writer=_wrapped(names.whole(record, "")),
        reader=_wrapped(names.whole({**record, "fields": kept}, "")),
        columns=found,
    )


def key_reading(text: str, references: Iterable[str]) -> tuple[str, Conversion]:
    """The schema for ``from_avro`` of a key as a whole, and the conversion into its text.

    One value is its text, a record the JSON of its fields. Raises :class:`UnfitSchema`.
    """
    names = _Names()
    for each in references:
        names.learn(_parsed(each))
    root = names.learn(_parsed(text))
    schema, _ = _not_null(names, root, "")
    kind = names.resolved(schema, "")
    base = kind.get("type") if isinstance(kind, Mapping) else kind
    wrapped = _wrapped(names.whole(root, ""))
    if base in ("record", "array", "map"):
        return wrapped, lambda value: f"to_json({value})"
    if base in ("bytes", "fixed") and not (
        isinstance(kind, Mapping) and kind.get("logicalType") == "decimal"
    ):
        return wrapped, lambda value: f"base64({value})"
    return wrapped, lambda value: f"CAST({value} AS STRING)"


def written_schema(columns: Sequence[Column], record: str) -> str:
    """The schema of rows of the columns, as Avro's JSON; nullable columns have the default null.

    Raises :class:`UnfitSchema` for a name or a type that Avro cannot have.
    """
    parts = record.split(".")
    if not all(map(_NAME.match, parts)):
        raise UnfitSchema(f"{record} is no name of a record: letters, digits and _, parts by dots")
    schema: dict[str, Any] = {"type": "record", "name": parts[-1]}
    if len(parts) > 1:
        schema["namespace"] = ".".join(parts[:-1])
    schema["fields"] = [
        _field(column.name, parse_type(column.type), column.nullable, parts[-1])
        for column in columns
    ]
    return json.dumps(schema)


# -- of writers ------------------------------------------------------------------------------------


class _Names:
    """The named types of a schema and of what it imports, by full name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], str]] = {}

    def learn(self, schema: Any, space: str = "") -> Any:
        """Remember every named type inside of a schema; returns the schema."""
        if isinstance(schema, list):
            for each in schema:
                self.learn(each, space)
        elif isinstance(schema, Mapping):
            kind = schema.get("type")
            if isinstance(kind, (list, Mapping)):
                self.learn(kind, space)
            elif kind in _NAMED:
                self._known[self.full(schema, space)] = schema, space
                for field in schema.get("fields", ()):
                    self.learn(field["type"], self.space(schema, space))
            else:
                self.learn(schema.get("items"), space)
                self.learn(schema.get("values"), space)
        return schema

    def resolved(self, schema: Any, space: str) -> Any:
        """A schema itself in place of its name; UnfitSchema for a name that nothing has."""
        if isinstance(schema, Mapping) and isinstance(schema.get("type"), (list, Mapping)):
            return self.resolved(schema["type"], space)
        if isinstance(schema, Mapping) and schema.get("type") in _PRIMITIVES:
            return schema if schema.get("logicalType") else schema["type"]
        if not isinstance(schema, str) or schema in _PRIMITIVES:
            return schema
        return self._found(schema, space)[0]

    def space(self, schema: Mapping[str, Any], space: str) -> str:
        """The namespace of names inside of a named type."""
        return self.full(schema, space).rpartition(".")[0]

    def inner_space(self, schema: Any, space: str) -> str:
        """The namespace in which a schema's parts are to be read, by name or as it is."""
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            found, where = self._found(schema, space)
            return self.space(found, where)
        if isinstance(schema, Mapping) and schema.get("type") in _NAMED:
            return self.space(schema, space)
        return space

    def full(self, schema: Mapping[str, Any], space: str) -> str:
        """The full name of a named type."""
        name = str(schema["name"])
        if "." in name:
            return name
        return ".".join(filter(None, (str(schema.get("namespace", space)), name)))

    def whole(self, schema: Any, space: str, seen: set[str] | None = None) -> Any:
        """A schema that needs no other: each named type where it comes first, then its name."""
        seen = set() if seen is None else seen
        if isinstance(schema, list):
            return [self.whole(each, space, seen) for each in schema]
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema
            found, space = self._found(schema, space)
            return self.whole(found, space, seen)
        kind = schema.get("type")
        if isinstance(kind, (list, Mapping)):
            return self.whole(kind, space, seen)
        if kind not in _NAMED and kind not in _PRIMITIVES and kind not in ("array", "map"):
            return self.whole(kind, space, seen)
        result = {name: schema[name] for name in ("type", *_KEPT) if name in schema}
        if kind in _NAMED:
            full = self.full(schema, space)
            if full in seen:
                return full
            seen.add(full)
            result["namespace"], _, result["name"] = full.rpartition(".")
        if kind in ("record", "error"):
            inner = self.space(schema, space)
            result["fields"] = [
                {"name": field["name"], "type": self.whole(field["type"], inner, seen)}
                for field in schema["fields"]
            ]
        for part in ("items", "values"):
            if part in schema:
                result[part] = self.whole(schema[part], space, seen)
        return result

    def _found(self, name: str, space: str) -> tuple[Mapping[str, Any], str]:
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if full in self._known:
                return self._known[full]
        raise UnfitSchema(f"its schema uses {name}, which it does not hold")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if _NAME.match(text.strip()):
            return text.strip()
        raise UnfitSchema("its schema is no schema of Avro") from None


def _not_null(names: _Names, schema: Any, space: str) -> tuple[Any, bool]:
    """What a schema is beside null, and whether it may be null."""
    found = schema
    if isinstance(found, Mapping) and isinstance(found.get("type"), list):
        found = found["type"]
    if not isinstance(found, list):
        return schema, False
    others = [each for each in found if names.resolved(each, space) != "null"]
    if len(others) != 1:
        words = ", ".join(_word(names.resolved(each, space)) for each in others)
        raise UnfitSchema(f"a union of several types ({words})")
    return others[0], len(others) < len(found)


def _conversion(
    names: _Names, schema: Any, space: str, tree: Type, where: str, above: tuple[str, ...]
) -> Conversion:
    """How a value becomes one of a type of Spark; UnfitSchema that names the field."""
    try:
        schema, _ = _not_null(names, schema, space)
        inner = names.inner_space(schema, space)
        found = names.resolved(schema, space)
    except UnfitSchema as error:
        raise UnfitSchema(f"its field {where} is {error}, which no column is") from None
    kind = found["type"] if isinstance(found, Mapping) else found
    if kind == "record" and isinstance(tree, Struct):
        return _record(names, found, inner, tree, where, above)
    if kind == "array" and isinstance(tree, Array):
        one = _conversion(names, found["items"], space, tree.element, where + "[]", above)
        if not _by_name(tree.element):
            return _cast(tree)
        return lambda value: f"transform({value}, x -> {one('x')})"
    if kind == "map" and isinstance(tree, Map) and str(tree.key) == "STRING":
        one = _conversion(names, found["values"], space, tree.value, where + "{}", above)
        if not _by_name(tree.value):
            return _cast(tree)
        return lambda value: f"transform_values({value}, (k, x) -> {one('x')})"
    if not _fits(found, kind, tree):
        raise UnfitSchema(f"its field {where} is {_word(found)}, which does not fit {tree}")
    return _cast(tree)


def _cast(tree: Type) -> Conversion:
    target = datatypes.without_lengths(str(tree))
    return lambda value: f"CAST({value} AS {target})"


def _by_name(tree: Type) -> bool:
    """Whether a type holds fields, which a cast would match by their places."""
    if isinstance(tree, Array):
        return _by_name(tree.element)
    if isinstance(tree, Map):
        return _by_name(tree.value)
    return isinstance(tree, Struct)


def _record(
    names: _Names, record: Mapping[str, Any], space: str, tree: Struct, where: str,
    above: tuple[str, ...],
) -> Conversion:
    full = names.full(record, space)
    if full in above:
        raise UnfitSchema(f"its field {where} holds itself, which no column does")
    fields = {str(field["name"]): field["type"] for field in record["fields"]}
    parts: list[tuple[str, Conversion | None, str]] = []
    for field in tree.fields:
        inside = f"{where}.{field.name}"
        if field.name not in fields:
            if not field.nullable:
                raise UnfitSchema(f"it has no {inside}, which is NOT NULL")
            parts.append((field.name, None, datatypes.without_lengths(str(field.type))))
            continue
        if not field.nullable and _not_null(names, fields[field.name], space)[1]:
            raise UnfitSchema(f"its field {inside} may be null, the column's may not")
        one = _conversion(
            names, fields[field.name], space, field.type, inside, (*above, full)
        )
        parts.append((field.name, one, ""))

    def convert(value: str) -> str:
        inner = ", ".join(
            f"{string_literal(name)}, "
            + (f"CAST(NULL AS {text})" if one is None else one(f"{value}.{quote_sql(name)}"))
            for name, one, text in parts
        )
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inner}) END"

    return convert


def _fits(schema: Any, kind: str, tree: Type) -> bool:
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    if isinstance(tree, Sized):
        tree = Atomic("STRING")
    if isinstance(tree, Decimal):
        if logical == "decimal" and isinstance(schema, Mapping):
            scale = int(schema.get("scale", 0))
            whole = int(schema["precision"]) - scale
            return whole <= tree.whole and scale <= tree.scale
        return logical is None and tree.whole >= _WHOLE_DIGITS.get(kind, 99)
    if not isinstance(tree, Atomic):
        return False
    known = frozenset({"date", "decimal"}) | _LOCAL | _INSTANTS
    return (logical if logical in known else kind) in _FITTING.get(tree.name, frozenset())


def _wrapped(schema: Any) -> str:
    mark = {"type": "fixed", "name": "catalog_migrate_end", "size": len(END_MARK) // 2}
    return json.dumps({
        "type": "record", "name": "catalog_migrate_record",
        "fields": [{"name": ROW, "type": schema}, {"name": END, "type": mark}],
    })


def _word(schema: Any) -> str:
    """What a schema is, in a word or two."""
    if isinstance(schema, list):
        return "a union"
    if not isinstance(schema, Mapping):
        return str(schema)
    kind = str(schema.get("type"))
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    if schema.get("logicalType"):
        return f"{kind} ({schema['logicalType']})"
    return f"{kind} {schema['name']}" if "name" in schema else kind


# -- of sinks --------------------------------------------------------------------------------------


def _field(name: str, tree: Type, nullable: bool, above: str) -> dict[str, Any]:
    if not _NAME.match(name):
        raise UnfitSchema(f"{name} is no name of a field in Avro: letters, digits and _")
    written = _written(tree, name, f"{above}_{name}")
    if not nullable:
        return {"name": name, "type": written}
    return {"name": name, "type": ["null", written], "default": None}


def _written(tree: Type, where: str, record: str) -> Any:
    if isinstance(tree, Sized):
        return "string"
    if isinstance(tree, Decimal):
        return {
            "type": "bytes", "logicalType": "decimal", "precision": tree.precision,
            "scale": tree.scale,
        }
    if isinstance(tree, Array):
        return {"type": "array", "items": ["null", _written(tree.element, where, record)]}
    if isinstance(tree, Map) and str(tree.key) == "STRING":
        return {"type": "map", "values": ["null", _written(tree.value, where, record)]}
    if isinstance(tree, Struct):
        fields = [_field(each.name, each.type, each.nullable, record) for each in tree.fields]
        return {"type": "record", "name": record, "fields": fields}
    if isinstance(tree, Atomic) and tree.name in _WRITTEN:
        return _WRITTEN[tree.name]
    raise UnfitSchema(f"{where} is {tree}, which Avro has no type for")


def unwritable(columns: Sequence[Column]) -> Iterator[str]:
    """Why columns cannot be written as Avro, one by one."""
    for column in columns:
        try:
            written_schema([column], "r")
        except UnfitSchema as error:
            yield str(error)
