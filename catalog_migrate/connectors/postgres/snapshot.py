"""The rows that stood before a slot's first change, copied into Parquet files.

All tables are read in one transaction under the snapshot that the slot exports, so that rows and
changes join without a gap or a repeat. Values are the text that the stream would give. A manifest
is written last: without it the rows are not whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.postgres.pgoutput import snapshot_batch, unfit_text
from catalog_migrate.connectors.postgres.server import CreatedSlot
from catalog_migrate.connectors.postgres.sessions import refusals, session
from catalog_migrate.connectors.postgres.types import DiscoveredTable, Position
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ReplicationFailed, RowsHidden, UnfitValue
from catalog_migrate.model.names import quote_postgres

if TYPE_CHECKING:
    import psycopg

MANIFEST = "manifest.json"
ROWS = 50_000
"""At most so many rows a file."""
BYTES = 32 << 20
"""At about so many bytes of text a file ends with fewer."""

Put = Callable[[str, bytes], None]
"""Writes a file by its name."""

_FILTER = """
SELECT p.rowfilter FROM pg_publication_tables AS p
WHERE p.pubname = %s AND p.schemaname = %s AND p.tablename = %s
"""
_REWRITTEN = """
SELECT c.oid::regclass::text FROM pg_class AS c
WHERE c.relkind = 'r' AND c.relfilenode <> pg_relation_filenode(c.oid)
  AND (c.oid = %(table)s::regclass
       OR c.oid IN (SELECT t.relid FROM pg_partition_tree(%(table)s::regclass) AS t))
"""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class StagedTable(msgspec.Struct, frozen=True):
    """The files of one table, ``columns`` in the order of the rows' values."""

    table: str
    columns: tuple[str, ...]
    rows: int
    files: tuple[str, ...]


class Manifest(msgspec.Struct, frozen=True):
    """The proof that every row was staged: changes go on from ``position``.

    ``taken`` is the time of the snapshot, in microseconds since 1970.
    """

    slot: str
    position: Position
    taken: int
    tables: tuple[StagedTable, ...]


def read_manifest(data: bytes) -> Manifest:
    """The manifest of a snapshot; raises ValueError for bytes that are none."""
    return msgspec.json.decode(data, type=Manifest)


def stage(
    connection: Resolved, slot: CreatedSlot, tables: Sequence[DiscoveredTable], put: Put, *,
    publication: str, rows: int = ROWS, on_progress: Callable[[str, int], None] | None = None,
) -> Manifest:
    """Copy the published rows and columns of every table; to be called while the slot is held.

    ``put`` gets files of at most ``rows`` rows, the manifest last; ``on_progress`` the table and
    its rows so far. What is kept in memory is one file. Raises ReplicationFailed when a table was
    truncated or rewritten since the slot was made: its old rows cannot be read any more.
    """
    staged = []
    with session(connection) as opened, opened.transaction():
        opened.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        snapshot = slot.snapshot.replace("'", "''")
        opened.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        taken = _microseconds(opened)
        for number, table in enumerate(tables):
            quoted = table.sql
            opened.execute("SET LOCAL statement_timeout = '60s'")
            opened.execute(f"LOCK TABLE {quoted} IN ACCESS SHARE MODE".encode())
            rewritten = opened.execute(_REWRITTEN, {"table": quoted}).fetchall()
            if rewritten:
                raise ReplicationFailed(
                    f"{rewritten[0][0]} was truncated or rewritten while its snapshot began",
                    remedy="drop the slot and begin again",
                )
            opened.execute("SET LOCAL statement_timeout = 0")
            with _naming(table), refusals(opened, connection):
                files = _read_files(
                    opened, table, publication, lsn=slot.position.lsn, taken=taken, rows=rows
                )
                staged.append(_stage_table(table, number, files, put, on_progress))
    manifest = Manifest(slot.name, slot.position, taken, tuple(staged))
    put(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return manifest


@contextmanager
def _naming(table: DiscoveredTable) -> Iterator[None]:
    """Whose rows are hidden: the server says the table's name without its schema."""
    try:
        yield
    except RowsHidden as error:
        error.message = f"{table.full_name}: {error.message}"
        error.data["table"] = table.full_name
        raise


def _stage_table(
    table: DiscoveredTable, number: int, files: Iterable[tuple[int, bytes]], put: Put,
    on_progress: Callable[[str, int], None] | None,
) -> StagedTable:
    names: list[str] = []
    done = 0
    for done, content in files:
        names.append(f"{number:04}-{len(names):06}.parquet")
        put(names[-1], content)
        if on_progress is not None:
            on_progress(table.full_name, done)
    columns = tuple(column.name for column in table.published)
    return StagedTable(table.full_name, columns, done, tuple(names))


def _read_files(
    opened: psycopg.Connection[Any], table: DiscoveredTable, publication: str, *, lsn: int,
    taken: int, rows: int,
) -> Iterator[tuple[int, bytes]]:
    """Each file of a table's rows, behind how many rows there are with it."""
    names = [column.name for column in table.published]
    width = len(names)
    query = selection(opened, table, publication, list(map(quote_postgres, names)))
    done = 0
    for values in chunks(read_texts(opened, query, table.full_name, names), width, rows):
        content = _parquet(snapshot_batch(table.full_name, lsn, taken, done, values, width))
        done += len(values) // width
        yield done, content


def read_texts(
    opened: psycopg.Connection[Any], query: str, table: str, columns: Sequence[str]
) -> Iterator[str]:
    """The rows of a query as :func:`copy_lines` has them; UnfitValue for a value that is no text.

    The error names ``table`` and which of ``columns``, those of the query in their order, and has
    nothing of the row.
    """
    try:
        yield from copy_lines(opened, query)
    except UnicodeDecodeError as error:
        raise _no_text(table, columns, error.object) from None


def selection(
    opened: psycopg.Connection[Any], table: DiscoveredTable, publication: str,
    columns: Sequence[str], *, where: str = "",
) -> str:
    """The query for the rows of a table that a publication gives; ``columns`` are expressions.

    ``where`` is one more condition, "" for none.
    """
    # the rows of tables that inherit from it are theirs; those of partitions are its own
    only = "" if table.partitioned else "ONLY "
    conditions = [f"({where})"] if where else []
    if opened.info.server_version >= 150000:
        row = opened.execute(_FILTER, (publication, table.schema, table.name)).fetchone()
        conditions += [f"({row[0]})"] if row is not None and row[0] else []
    listed = ", ".join(columns)
    query = f"SELECT {listed} FROM {only}{table.sql}"
    return f"{query} WHERE {' AND '.join(conditions)}" if conditions else query


def copy_lines(opened: psycopg.Connection[Any], query: str) -> Iterator[str]:
    """The rows of a query as COPY writes them, without the ends of their lines."""
    with opened.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT".encode()) as copy:
        for line in copy:
            yield str(line, "utf-8")[:-1]


def _no_text(table: str, columns: Sequence[str], line: bytes) -> UnfitValue:
    """The typed error for a row of which a value cannot be read as UTF-8."""
    def is_text(field: bytes) -> bool:
        try:
            return field.decode() is not None
        except UnicodeDecodeError:
            return False

    unread = [is_text(field) for field in line.split(b"\t")].index(False)
    return unfit_text(table, columns[unread])


def chunks(lines: Iterator[str], width: int, rows: int) -> Iterator[list[str | None]]:
    """The values of at most so many rows, one behind the other."""
    values: list[str | None] = []
    size = 0
    for line in lines:
        if "\\" in line:
            values += [_value(field) for field in line.split("\t")]
        else:
            values += line.split("\t")
        size += len(line)
        if len(values) >= rows * width or size >= BYTES:
            yield values
            values, size = [], 0
    if values:
        yield values


def _value(field: str) -> str | None:
    if field == "\\N":
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), field)


def _parquet(batch: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), sink, compression="zstd")
    return bytes(sink.getvalue())


def _microseconds(opened: psycopg.Connection[Any]) -> int:
    row = opened.execute(
        "SELECT (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"
    ).fetchone()
    assert row is not None
    return int(row[0])
