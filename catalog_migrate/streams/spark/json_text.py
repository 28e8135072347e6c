"""How values are written as JSON, everywhere the same: nulls shown, microseconds kept, UTC."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.model.names import quote_sql

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

JSON_OPTIONS = MappingProxyType({
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
})
"""Spark's own default drops nulls and everything below a millisecond."""


def json_of(columns: Sequence[str], *, nulls: bool = True) -> Expression:
    """One JSON object of those columns; BINARY is base64. Without ``nulls`` their fields miss."""
    options = {**JSON_OPTIONS, "ignoreNullFields": str(not nulls).lower()}
    return F.to_json(F.struct(*(F.col(quote_sql(name)) for name in columns)), options)
