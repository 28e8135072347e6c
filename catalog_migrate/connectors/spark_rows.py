"""How every writer puts rows: into a table once, and values as JSON.

Nulls are shown, microseconds kept, times in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.model.names import quote_sql

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame


def append_once(rows: DataFrame, path: str, app: str, version: int) -> None:
    """Append to a table under the transaction (app, version); a table that has it skips it."""
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app)
        .option("txnVersion", str(version))
        .save(path)
    )


JSON_OPTIONS = MappingProxyType({
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
})
"""Spark's own default drops nulls and everything below a millisecond."""


def json_of(columns: Sequence[str], *, nulls: bool = True) -> Expression:
    """Return one JSON object of those columns; BINARY is base64. ``nulls``: they have fields."""
    options = {**JSON_OPTIONS, "ignoreNullFields": str(not nulls).lower()}
    return F.to_json(F.struct(*(F.col(quote_sql(name)) for name in columns)), options)
