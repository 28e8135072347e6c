"""Rows that a writer without Spark appends to a shard, by delta-rs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from catalog_migrate.delta.table import shard_columns

_TYPES = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}


def append(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One commit; a column that a row does not name is NULL."""
    schema = pa.schema(
        [pa.field(each.name, _TYPES[each.type], each.nullable) for each in shard_columns(path)]
    )
    write_deltalake(path, pa.Table.from_pylist([dict(row) for row in rows], schema), mode="append")
