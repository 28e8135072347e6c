"""Rows that the destination of a sink does not take: which they are, why, and where they are kept.

A batch goes out whole. Only when the destination refuses something in it is it divided, until every
row that is refused is alone. With ON ERROR INTO these rows go to a table of ours, in the form
of the records that a source could not read, and the others to the destination; else the first one
is the error of the batch, which shows no value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.connectors.query import (
    OFFSET,
    PARTITION,
    POSITION,
    TIMESTAMP,
    TOPIC,
    QuerySpec,
    find_columns,
    has_record_positions,
    written_columns,
)
from catalog_migrate.connectors.row_values import hash_key
from catalog_migrate.connectors.spark_rows import append_once, json_of
from catalog_migrate.errors import RowRefused
from catalog_migrate.model.names import quote_sql
from catalog_migrate.store.address import local_path

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession


CHUNK = 1000
"""Rows of a batch that is divided which are tried together at first."""


class RefusedRow(msgspec.Struct, frozen=True):
    """A row as a dead letter: where a row of a Kafka source came from (``timestamp`` in
    microseconds), its key, all of it as JSON, and why it was refused."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: str
    error: str


class Refusal(NamedTuple):
    """What a destination says of a row: ``cause`` without any value, ``text`` in its own words."""

    cause: str
    text: str
    column: str | None = None
    again: bool = False
    """Whether it may take the row once others are there (a foreign key)."""


class SinkRow(NamedTuple):
    """One row of a batch that is divided; ``sent`` is what goes to the destination."""

    sent: tuple[bytes | str | None, ...]
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: str

    def refuse(self, refusal: Refusal) -> RefusedRow:
        """The dead letter."""
        return RefusedRow(
            self.topic, self.partition, self.offset, self.timestamp, self.key, self.value,
            f"{refusal.cause}: {refusal.text}",
        )


def sink_rows(
    frame: DataFrame, spec: QuerySpec, sent: Sequence[Expression]
) -> Iterator[SinkRow]:
    """The rows of a batch with what is known of them, in its order."""
    if has_record_positions(spec):
        place = [
            F.col(TOPIC), F.col(PARTITION), F.col(OFFSET), F.unix_micros(F.col(TIMESTAMP)),
        ]
    else:
        place = [F.lit(None) for _ in POSITION]
    value = json_of([column.name for column in written_columns(spec)])
    rows = frame.select(F.array(*sent), *place, key_text(spec).cast("binary"), value)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        going, topic, partition, offset, at, key, text = row
        yield SinkRow(
            tuple(going), topic, partition, offset, at, None if key is None else bytes(key), text
        )


def key_text(spec: QuerySpec) -> Expression:
    """A single KEY column as text (BINARY as it is), several as a JSON object, none as NULL."""
    columns = find_columns(spec.columns, spec.external.key, where=f"what {spec.name} reads")
    if not columns:
        return F.lit(None).cast("string")
    only = columns[0]
    if len(columns) > 1 or only.type.startswith(("ARRAY<", "MAP<", "STRUCT<")):
        return json_of([column.name for column in columns])
    value = F.col(quote_sql(only.name))
    return value if only.type == "BINARY" else value.cast("string")


def divide(
    rows: Iterable[SinkRow], put: Callable[[Sequence[SinkRow]], Refusal | None]
) -> Iterator[tuple[SinkRow, Refusal]]:
    """Put all rows that can be put; the others, each with its refusal.

    ``put`` takes all of some rows or none, and then says why. What is refused for the want of
    other rows is tried again until no more of it goes.
    """
    waiting: list[tuple[SinkRow, Refusal]] = []
    for row, refusal in _put_in_pieces(rows, put):
        if refusal.again:
            waiting.append((row, refusal))
        else:
            yield row, refusal
    while waiting:
        left = list(_put_in_pieces([row for row, _ in waiting], put))
        if len(left) == len(waiting):
            break
        waiting = left
    yield from waiting


def _put_in_pieces(
    rows: Iterable[SinkRow], put: Callable[[Sequence[SinkRow]], Refusal | None]
) -> Iterator[tuple[SinkRow, Refusal]]:
    left = iter(rows)
    while chunk := list(islice(left, CHUNK)):
        pieces = [chunk]
        while pieces:
            piece = pieces.pop()
            refusal = put(piece)
            if refusal is None:
                continue
            if len(piece) == 1:
                yield piece[0], refusal
            else:
                half = len(piece) // 2
                pieces += [piece[half:], piece[:half]]


def refused_error(spec: QuerySpec, where: str, row: SinkRow, refusal: Refusal) -> RowRefused:
    """The typed error for a row, without any value of it."""
    key = None if row.key is None else hash_key(row.key)
    column = f", column {refusal.column}" if refusal.column is not None else ""
    place = f" (key sha256 {key})" if key is not None else ""
    if row.topic is not None:
        place += f", from topic {row.topic}, partition {row.partition}, offset {row.offset}"
    kind, _, name = where.partition(" ")
    source = {"topic": row.topic, "partition": row.partition, "offset": row.offset}
    return RowRefused(
        f"{where} refuses a row of sink {spec.name}: {refusal.cause}{column}{place}",
        remedy=f"let the {kind} take the row, or create the sink with ON ERROR INTO, which keeps"
        " such rows in a table",
        **(source if kind == "table" else {}), **{kind: name}, column=refusal.column, key=key,
    )


def append_refused(
    spark: SparkSession, spec: QuerySpec, rows: Sequence[RefusedRow], query_id: str, batch: int
) -> None:
    """Put rows among the dead letters, once under (query, batch)."""
    import pyarrow as pa

    assert spec.dead_letters is not None
    data = pa.table({
        TOPIC: pa.array([row.topic for row in rows], pa.string()),
        PARTITION: pa.array([row.partition for row in rows], pa.int32()),
        OFFSET: pa.array([row.offset for row in rows], pa.int64()),
        TIMESTAMP: pa.array([row.timestamp for row in rows], pa.timestamp("us", tz="UTC")),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value.encode() for row in rows], pa.binary()),
        "error": pa.array([row.error for row in rows], pa.string()),
    })
    append_once(spark.createDataFrame(data), local_path(spec.dead_letters), query_id, batch)


def encode_row(row: RefusedRow) -> str:
    """A row as text that any database takes: in ASCII, without a NUL."""
    return json.dumps(msgspec.to_builtins(row))


def decode_row(text: str) -> RefusedRow:
    """The row of :func:`encode_row`."""
    return msgspec.json.decode(text, type=RefusedRow)
