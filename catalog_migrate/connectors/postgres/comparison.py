"""The rows of a table upstream as digests, a bucket of keys at a time, each at an LSN of its own.

A bucket is read in one read-only transaction that sees one moment of the server, by a session with
row security off: where a policy would hide rows the server refuses. What is kept of a row are 24
bytes: digests of its key, of its values, and of where the server keeps this version of it, which is
another one after every change of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.postgres import server
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import chunks, read_texts, selection
from catalog_migrate.connectors.postgres.types import DiscoveredTable, Position, lsn_number
from catalog_migrate.connectors.postgres.values import (
    bucket_sql,
    key_sql,
    key_texts,
    row_digests,
    upstream_values,
)
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ReplicationFailed
from catalog_migrate.model.names import quote_postgres

if TYPE_CHECKING:
    import numpy as np
    import psycopg

TIMEOUT = 300.0
"""Seconds that the server may take for one bucket."""
_ROWS = 20_000
"""Rows that are converted at once."""
_VERSION = "tableoid, ctid, xmin"
"""Where the server keeps a version of a row; xmin alone is that of all rows of a transaction."""

_ESTIMATE = """
SELECT coalesce(sum(CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 64 ELSE c.reltuples
                    END), 0)::bigint
FROM pg_class AS c
WHERE c.relkind = 'r' AND (
  c.oid = %(table)s::regclass
  OR c.oid IN (SELECT t.relid FROM pg_partition_tree(%(table)s::regclass) AS t)
)
"""
_LOG = "SELECT pg_current_wal_insert_lsn()::text, current_setting('wal_block_size')::int"
_FLUSHED = "SELECT pg_current_wal_flush_lsn()::text"
_PAGE_HEADERS = (24, 40)
"""Bytes at the start of a page of the log, and of the first page of a file of it."""


class ComparedColumn(msgspec.Struct, frozen=True):
    """A column of both sides: its name upstream, its name and type here, whether it is in the key.
    """

    upstream: str
    ours: str
    type: str
    key: bool = False


class Bucket(msgspec.Struct, frozen=True):
    """The rows whose keys fall on ``number`` of ``buckets``."""

    number: int
    buckets: int


class Rows(msgspec.Struct, frozen=True):
    """Rows as digests: of keys, of values; ``marks`` of versions of rows, or what else shows when
    a row changed."""

    keys: Any
    digests: Any
    marks: Any

    def __len__(self) -> int:
        return len(self.keys)


class Look(msgspec.Struct, frozen=True):
    """A bucket as the server had it: every commit before ``begun`` had been written to its log, and
    none behind ``lsn``."""

    begun: int
    lsn: int
    rows: Rows


def look(
    connection: Resolved, table: DiscoveredTable, columns: Sequence[ComparedColumn], bucket: Bucket,
    *, publication: str, timeout: float = TIMEOUT,
) -> Look:
    """The published rows of one bucket, in one moment.

    Raises ReplicationFailed where the server refuses, also because row security would hide rows,
    UnfitValue for a value that is no text, and ConnectionFailed.
    """
    with session(connection, timeout=timeout) as opened:
        begun = _log_end(opened)
        with opened.transaction():
            opened.execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
                " SET LOCAL max_parallel_workers_per_gather = 0"
            )
            lsn = _log_end(opened)  # the first query: the transaction sees this moment
            keys = [key_sql(each.type, quote_postgres(each.upstream))
                    for each in columns if each.key]
            where = bucket_sql(keys, bucket.buckets, bucket.number) if bucket.buckets > 1 else ""
            query = selection(
                opened, table, publication,
                [*(quote_postgres(each.upstream) for each in columns),
                 f"concat_ws('/', {_VERSION})"],
                where=where,
            )
            rows = _read_rows(opened, query, table.full_name, columns)
    return Look(begun, lsn, rows)


def _read_rows(
    opened: psycopg.Connection[Any], query: str, table: str, columns: Sequence[ComparedColumn]
) -> Rows:
    import numpy as np
    import pyarrow as pa

    width = len(columns) + 1
    parts = []
    lines = read_texts(opened, query, table, [each.upstream for each in columns])
    for values in chunks(lines, width, _ROWS):
        texts = [pa.array(values[place::width], pa.string()) for place in range(width)]
        parts.append((*digests(columns, [
            _convert(column, text) for column, text in zip(columns, texts, strict=False)
        ]), row_digests(texts[-1:])))
    if not parts:
        empty: np.ndarray[Any, Any] = np.zeros(0, np.uint64)
        return Rows(empty, empty, empty)
    return Rows(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _convert(column: ComparedColumn, texts: Any) -> Any:
    try:
        return upstream_values(column.type, texts)
    except (ValueError, OverflowError):
        # no value of a row goes into a message
        raise ReplicationFailed(
            f"a value of column {column.upstream} is no {column.type}, the type of its column here",
            remedy="correct the value upstream, or leave the column out of the publication",
        ) from None


def digests(columns: Sequence[ComparedColumn], values: Sequence[Any]) -> tuple[Any, Any]:
    """(digests of keys, digests of rows); ``values`` are Arrow arrays, one for each column."""
    keys = [value for column, value in zip(columns, values, strict=True) if column.key]
    return row_digests(keys), row_digests(values)


def texts_of_keys(columns: Sequence[ComparedColumn], values: Sequence[Any]) -> list[list[str]]:
    """The texts by which rows fall into buckets, a list for each column of the key."""
    return [
        key_texts(column.type, value)
        for column, value in zip(columns, values, strict=True) if column.key
    ]


def estimate_rows(connection: Resolved, table: DiscoveredTable) -> int:
    """About how many rows a table has, by the server's statistics."""
    with session(connection, timeout=5.0) as opened:
        row = opened.execute(_ESTIMATE, {"table": table.sql}).fetchone()
    assert row is not None
    return int(row[0])


def is_behind(
    connection: Resolved, slot: str, publication: str, position: Position, lsn: int
) -> bool:
    """Whether a reader at a position may have changes to come that were committed before ``lsn``.

    Raises SlotInUse while a batch is read, and what :func:`server.check_slot` and
    :func:`server.check_position` raise for a position that is not of this server's log.
    """
    with session(connection) as opened:
        here = server.check_position(opened, connection, position)
        if here.lsn >= lsn:
            return False
        row = opened.execute(_FLUSHED).fetchone()
        assert row is not None
        if lsn_number(row[0]) < lsn:
            return True  # committed, and not given to readers yet
        found = server.check_slot(server.read_slot(opened, slot), slot, here)
        return server.has_changes(opened, found, publication, here.lsn, lsn)


def _log_end(opened: psycopg.Connection[Any]) -> int:
    """Behind the last record of the log: on a page with nothing but its header, where that begins,
    which is as far as the log can be flushed."""
    row = opened.execute(_LOG).fetchone()
    assert row is not None
    lsn, page = lsn_number(row[0]), int(row[1])
    return lsn - lsn % page if lsn % page in _PAGE_HEADERS else lsn
