"""Changes and rows as Arrow: one form for those of a stream and those of a snapshot.

Columns: table STRING, lsn BIGINT, sequence INT, operation STRING, transaction BIGINT,
committed TIMESTAMP, before and after ARRAY<STRING>, unchanged ARRAY<INT>, as
:class:`~catalog_migrate.replication.pgoutput.Change` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog_migrate.replication.pgoutput import Change

SNAPSHOT = "snapshot"
"""Operation of a row that stood before the first change."""
NAMES = (
    "table", "lsn", "sequence", "operation", "transaction", "committed", "before", "after",
    "unchanged",
)


def arrow_batch(found: Sequence[Change]) -> pa.RecordBatch:
    """Changes of a stream."""
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    columns = [
        pa.array([one.table for one in found], text),
        pa.array([one.lsn for one in found], pa.int64()),
        pa.array([one.sequence for one in found], number),
        pa.array([one.operation for one in found], text),
        pa.array([one.transaction for one in found], pa.int64()),
        pa.array([one.committed for one in found], pa.timestamp("us", tz="UTC")),
        _lists([one.before for one in found], text),
        _lists([one.after for one in found], text),
        _lists([one.unchanged for one in found], number),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES))


def snapshot_batch(
    table: str, lsn: int, taken: int, first: int, values: list[str | None], width: int
) -> pa.RecordBatch:
    """Rows of a snapshot, from their values one behind the other, ``width`` to a row.

    ``taken`` is the time of the snapshot in microseconds, ``first`` the number of the first row.
    """
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    count = len(values) // width
    offsets = pa.array(range(0, len(values) + 1, width), number)
    columns = [
        pa.repeat(pa.scalar(table, text), count),
        pa.repeat(pa.scalar(lsn, pa.int64()), count),
        pa.array([at & 0x7FFFFFFF for at in range(first, first + count)], number),
        pa.repeat(pa.scalar(SNAPSHOT, text), count),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(taken, pa.timestamp("us", tz="UTC")), count),
        pa.nulls(count, pa.list_(text)),
        pa.ListArray.from_arrays(offsets, pa.array(values, text)),
        pa.ListArray.from_arrays(pa.array([0] * (count + 1), number), pa.array([], number)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES))


def _lists(values: Sequence[Sequence[Any] | None], kind: pa.DataType) -> pa.Array:
    """A column of lists, from flat values and offsets: several times faster than by pa.array."""
    import pyarrow as pa

    flat: list[Any] = []
    offsets: list[int | None] = []
    at = 0
    for value in values:
        if value is None:
            offsets.append(None)
            continue
        offsets.append(at)
        flat += value
        at += len(value)
    offsets.append(at)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, kind))
