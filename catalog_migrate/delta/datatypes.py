"""Canonical types in the JSON form that Spark's schemas and the Delta protocol share, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import (
    Array,
    Atomic,
    Decimal,
    Field,
    Interval,
    Map,
    Sized,
    Struct,
    Type,
    canonical_type,
    parse_type,
)
from catalog_migrate.sql.tokens import escape_doubled_quotes

SIZED_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Column metadata under which Spark keeps CHAR(n) and VARCHAR(n); the column itself is a string."""
GENERATED_KEY = "delta.generationExpression"

_JSON_NAMES = {
    "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long",
    "FLOAT": "float", "DOUBLE": "double", "STRING": "string", "BINARY": "binary",
    "BOOLEAN": "boolean", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz", "VARIANT": "variant", "VOID": "void",
}  # fmt: skip
_NAMES = {text: name for name, text in _JSON_NAMES.items()}


def _to_json(tree: Type) -> Any:
    if isinstance(tree, Array):
        return {"type": "array", "elementType": _to_json(tree.element), "containsNull": True}
    if isinstance(tree, Map):
        return {
            "type": "map",
            "keyType": _to_json(tree.key),
            "valueType": _to_json(tree.value),
            "valueContainsNull": True,
        }
    if isinstance(tree, Struct):
        return {"type": "struct", "fields": [_field(f) for f in tree.fields]}
    if isinstance(tree, Decimal):
        return f"decimal({tree.precision},{tree.scale})"
    if isinstance(tree, Sized):
        return "string"
    if isinstance(tree, Interval):
        return str(tree).lower()
    return _JSON_NAMES[tree.name]


def _field(field: Field) -> dict[str, Any]:
    return {
        "name": field.name, "type": _to_json(field.type), "nullable": field.nullable,
        "metadata": {},
    }


def _write_type(tree: Type) -> str:
    """The type as Spark's ``CharVarcharUtils`` writes it into metadata."""
    if isinstance(tree, Array):
        return f"array<{_write_type(tree.element)}>"
    if isinstance(tree, Map):
        return f"map<{_write_type(tree.key)},{_write_type(tree.value)}>"
    if isinstance(tree, Struct):
        fields = ",".join(f"{f.name}:{_write_type(f.type)}" for f in tree.fields)
        return f"struct<{fields}>"
    return str(tree).lower()


def holds(tree: Type, *names: str) -> bool:
    """Whether a type is, or contains, one of the named ones (``VARCHAR``, ``INTERVAL``, ...)."""
    if isinstance(tree, Array):
        return holds(tree.element, *names)
    if isinstance(tree, Map):
        return holds(tree.key, *names) or holds(tree.value, *names)
    if isinstance(tree, Struct):
        return any(holds(field.type, *names) for field in tree.fields)
    name = tree.name if isinstance(tree, Atomic | Sized) else type(tree).__name__.upper()
    return name in names


@lru_cache(maxsize=4096)
def json_type(canonical: str) -> Any:
    """Return the JSON form of a canonical type; CHAR and VARCHAR come out as strings."""
    return _to_json(parse_type(canonical))


def without_lengths(canonical: str) -> str:
    """Return the type that a query sees: CHAR and VARCHAR are strings to it, at any depth."""
    if "CHAR(" not in canonical:
        return canonical
    return canonical_of(json_type(canonical))


def json_schema(columns: Iterable[Column], *, stored: bool) -> dict[str, Any]:
    """Return a schema in JSON. ``stored``: with comments, lengths and generation expressions."""
    return {
        "type": "struct",
        "fields": [
            {
                "name": column.name,
                "type": json_type(column.type),
                "nullable": column.nullable,
                "metadata": column_metadata(column) if stored else {},
            }
            for column in columns
        ],
    }


def column_metadata(column: Column) -> dict[str, str]:
    """Return what a shard's schema keeps of a column beyond name, type and nullability."""
    metadata: dict[str, str] = {}
    if column.comment:
        metadata["comment"] = column.comment
    tree = parse_type(column.type)
    if holds(tree, "CHAR", "VARCHAR"):
        metadata[SIZED_KEY] = _write_type(tree)
    if column.generated is not None:
        metadata[GENERATED_KEY] = escape_doubled_quotes(column.generated)
    return metadata


def text_of(json: Any) -> str:
    """The text of a type; :func:`canonical_type` reads it unless only Spark knows that type."""
    if isinstance(json, str):
        return _NAMES.get(json, json)
    if json["type"] == "array":
        return f"ARRAY<{text_of(json['elementType'])}>"
    if json["type"] == "map":
        return f"MAP<{text_of(json['keyType'])}, {text_of(json['valueType'])}>"
    fields = (
        "`" + field["name"].replace("`", "``") + f"`: {text_of(field['type'])}"
        + ("" if field["nullable"] else " NOT NULL")
        for field in json["fields"]
    )
    return f"STRUCT<{', '.join(fields)}>"


def canonical_of(json: Any, metadata: Mapping[str, Any] | None = None) -> str:
    """The canonical type of a JSON type; ``metadata`` is its column's, for CHAR and VARCHAR."""
    sized = (metadata or {}).get(SIZED_KEY)
    return canonical_type(sized if isinstance(sized, str) else text_of(json))


def columns_of(schema: Mapping[str, Any]) -> Sequence[Column]:
    """Return the columns of a schema in JSON, with canonical types and comments."""
    return tuple(
        Column(
            field["name"], canonical_of(field["type"], field.get("metadata")), field["nullable"],
            comment=(field.get("metadata") or {}).get("comment") or None,
            generated=(field.get("metadata") or {}).get(GENERATED_KEY),
        )
        for field in schema["fields"]
    )
