"""Rows as lines of PostgreSQL's ``COPY … FROM STDIN`` (text format), made by Spark itself.

So the driver handles one string a row and no Python values, whatever the types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Array, Atomic, Interval, Map, Struct, parse_type
from catalog_migrate.streams.spark.json_text import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

_AS_CAST = frozenset({
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP_NTZ",
})  # fmt: skip
_NULL = "\\N"


def copy_line(columns: Sequence[Column]) -> Expression:
    """One line, without its end: fields separated by tabs, NULL as ``\\N``."""
    fields = [F.coalesce(_field(column), F.lit(_NULL)) for column in columns]
    return F.concat_ws("\t", *fields)


def _field(column: Column) -> Expression:
    """One value as PostgreSQL reads it; NULL stays NULL.

    Timestamps carry UTC's offset; arrays, maps, structs and variants are JSON (for columns of type
    json, jsonb or text); floats print so that they read back to the same bits.
    """
    value = F.col(quote_sql(column.name))
    tree = parse_type(column.type)
    if isinstance(tree, Array | Map | Struct):
        return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
    if isinstance(tree, Interval):
        raise EngineFailure(
            f"column {column.name} is {column.type}: intervals cannot be written to POSTGRES",
            remedy="send a table without it",
        )
    if isinstance(tree, Atomic):
        if tree.name in _AS_CAST:
            return value.cast("string")
        if tree.name == "BINARY":
            # the backslash of \x is escaped, as every one is
            return F.concat(F.lit("\\\\x"), F.lower(F.hex(value)))
        if tree.name == "TIMESTAMP":
            return F.concat(value.cast("string"), F.lit("+00"))
        if tree.name == "VARIANT":
            return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
        if tree.name == "VOID":
            return F.lit(None).cast("string")
    return _escaped(value.cast("string"))


def _escaped(text: Expression) -> Expression:
    for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = F.replace(text, F.lit(plain), F.lit(escaped))
    return text
