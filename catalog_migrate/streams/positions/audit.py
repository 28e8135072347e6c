"""What came of unsafe operations: rows that stay for good, counted, and seen by somebody.

Their history is read from the catalog without Spark. What came of them is also told as metrics
through OpenTelemetry's API, where the application has it: without the package ``opentelemetry-api``
nothing is measured, and without an SDK the API does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put
from catalog_migrate.connectors.base import find_if_installed, has_tables
from catalog_migrate.connectors.positions import OffsetRange, Partition
from catalog_migrate.operations.kinds import BACKFILLING, UNSAFE
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import (
    Move,
    find_moved_ranges,
    findings_in,
    kind_of,
    moves_in,
    operation_row,
    with_act,
)
from catalog_migrate.streams.catalog.tables import Tables
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.requests import split_of
from catalog_migrate.streams.runtime.supervisor import Supervisor
from catalog_migrate.streams.upstreams.upstream import next_records


def list_unacknowledged(state: State) -> tuple[tuple[str, OperationRecord], ...]:
    """Unsafe operations that are in force and that nobody has acknowledged, oldest first.

    One that was taken back is seen by whoever did that; the undo stands here in its place.
    """
    back = find_undos(state)
    return tuple(
        (key, row) for key, row in sorted(state.operations.items())
        if row.kind == UNSAFE and row.state in ("done", BACKFILLING)
        and row.unsafe is not None and not row.unsafe.acknowledged and key not in back
    )


def find_undos(state: State) -> dict[str, str]:
    """The undo of each operation that is taken back now; an undo that was undone is none."""
    by = {
        row.unsafe.undoes: key for key, row in sorted(state.operations.items())
        if row.kind == UNSAFE and row.state == "done"
        and row.unsafe is not None and row.unsafe.undoes
    }

    def stands(key: str) -> bool:
        return key not in by or not stands(by[key])

    return {key: undo for key, undo in by.items() if stands(undo)}


class Acknowledge(msgspec.Struct, frozen=True):
    """Note who has seen an operation, and when, unless another person has already."""

    key: str
    by: str

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return its row with that; UnknownOperation where there is none."""
        row = operation_row(state, self.key)
        assert row.unsafe is not None
        return () if row.unsafe.acknowledged else (
            Put("operation", self.key, with_act(row, acknowledged=self.by)),
        )


def list_uncounted(state: State) -> list[tuple[str, OperationRecord]]:
    """Operations that are done and whose actual numbers are not known yet."""
    return [
        (key, row) for key, row in sorted(state.operations.items())
        if row.kind == UNSAFE and row.state == "done" and row.unsafe is not None
        and row.unsafe.actual_doubled is None and row.unsafe.injected
    ]


def actual(
    state: State, row: OperationRecord, tables: Tables
) -> tuple[int, int] | None:
    """Count (doubled, skipped) records as the shards have them; None until the sources are past it.

    Doubled are those that the shard had at the stop and has once more since; skipped is what the
    operation passed over without what had expired before it or was not written yet. None for good
    where another operation moved a source meanwhile. A topic that is another one by now is left
    out: its offsets say nothing about the old one's.
    """
    doubled = skipped = 0
    for move in moves_in(row):
        item = state.items.get(move.item_id)
        if item is None or item.shard is None or item.definition.kind != "source":
            continue
        if not move.target or move.item_id not in state.streams:
            continue
        found = _count_move(state, move, item.shard, tables)
        if found is None:
            return None
        doubled, skipped = doubled + found[0], skipped + found[1]
    return doubled, skipped


def _count_move(
    state: State, move: Move, shard: str, tables: Tables
) -> tuple[int, int] | None:
    item, stream = state.items[move.item_id], state.streams[move.item_id]
    external = dependencies.external_of(item)
    if find_if_installed(external.connector) is None:
        return None
    # tables of PostgreSQL tell changes by _lsn, of which no record is numbered
    if has_tables(item.definition) or stream.generation != move.generation:
        return None
    back, over = (
        [
            each for each in find_moved_ranges(move, back=is_back)
            if stream.topics.get(each.topic, "") == move.topics.get(each.topic)
        ]
        for is_back in (True, False)
    )
    checkpoint = Checkpoint(dependencies.location(state, stream.checkpoint))
    now = next_records(external, checkpoint) or {}
    if any(now.get(each.topic_partition, -1) < each.until for each in back):
        return None
    path = dependencies.location(state, shard)
    rows = tables.rows_in(path, [*back, *over], None)
    base = tables.rows_in(path, back, move.base) if back and move.base is not None else {}
    doubled = sum(_more(rows, each) - _more(base, each) for each in back)
    return doubled, sum(_missing(rows, each, move.expired) for each in over)


def _missing(
    rows: Mapping[Partition, tuple[int, int]], each: OffsetRange, expired: Mapping[str, int]
) -> int:
    _, distinct = rows.get(each.topic_partition, (0, 0))
    return max(
        0, each.until - each.first - distinct - expired.get(split_of(each.topic_partition), 0)
    )


def _more(rows: Mapping[Partition, tuple[int, int]], each: OffsetRange) -> int:
    total, distinct = rows.get(each.topic_partition, (0, 0))
    return total - distinct


def count_pending(state: State, supervisor: Supervisor) -> None:
    """Count what can be counted by now, and write it into the rows."""
    found = {}
    for key, row in list_uncounted(state):
        if row.cluster == supervisor.cluster:
            numbers = actual(state, row, supervisor.ports.tables)
            if numbers is not None:
                found[key] = numbers
    if not found:
        return

    supervisor.commit(Commit("count", (Count(found),)))


class Count(msgspec.Struct, frozen=True):
    """Write down the actual numbers of operations, (doubled, skipped) by key."""

    found: Mapping[str, tuple[int, int]]

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the rows of those that are on record."""
        for key, (doubled, skipped) in self.found.items():
            if key in state.operations:
                yield Put("operation", key, with_act(
                    state.operations[key], actual_doubled=doubled, actual_skipped=skipped
                ))


OPERATIONS = "catalog_migrate.unsafe.operations"
"""Counter; ``kind`` is alter, reset, inject or undo, ``result`` done, refused or stale."""

PARTITIONS = "catalog_migrate.unsafe.partitions"
"""Counter of partitions that were put elsewhere; attribute ``kind``."""

LAST = "catalog_migrate.unsafe.last"
"""Gauge: when the last operation on a source ended, seconds since 1970; attribute ``source``."""


def measure(row: OperationRecord, now: float) -> None:
    """Count an operation that has ended; ``now`` is in seconds since 1970."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return
    act = row.unsafe
    if act is None:
        return
    meter = metrics.get_meter("catalog_migrate")
    kind = kind_of(row)
    result = "done" if row.state == BACKFILLING else row.state
    meter.create_counter(OPERATIONS).add(1, {"kind": kind, "result": result})
    if result != "done":
        return
    meter.create_counter(PARTITIONS).add(act.injected, {"kind": kind})
    for source in act.sources:
        meter.create_gauge(LAST, unit="s").set(now, {"source": source})


class Unseen(msgspec.Struct, frozen=True):
    """An operation that nobody has acknowledged; ``partitions`` is how many were put elsewhere.

    ``doubled`` and ``skipped`` are the actual numbers once they are known, the predicted before.
    """

    operation: str
    kind: str
    state: str
    at: str
    sources: str
    partitions: int
    doubled: int
    skipped: int
    undoes: str
    reason: str


def unseen(state: State) -> tuple[Unseen, ...]:
    """What ``status`` reminds of, oldest first."""
    found = []
    for key, row in list_unacknowledged(state):
        act = row.unsafe
        assert act is not None
        found.append(
            Unseen(
                key, kind_of(row), row.state, act.at, ", ".join(act.sources), act.injected,
                act.doubled if act.actual_doubled is None else act.actual_doubled,
                act.skipped if act.actual_skipped is None else act.actual_skipped,
                act.undoes, act.reason,
            )
        )
    return tuple(found)


def history(state: State) -> list[dict[str, Any]]:
    """All unsafe operations that were ever asked for, oldest first; the columns of the view
    ``catalog_migrate.unsafe_operations``."""
    return [
        entry(key, row) for key, row in sorted(state.operations.items(), key=_order_by_time)
        if row.kind == UNSAFE
    ]


def entry(key: str, row: OperationRecord) -> dict[str, Any]:
    """One operation; texts and lists that are empty are None, as in the view."""
    act = row.unsafe
    assert act is not None
    return {
        "operation": key,
        "kind": kind_of(row),
        "at": act.at,
        "who": act.who,
        "host": act.host,
        "reason": act.reason,
        "sources": list(act.sources) or None,
        "jobs": list(act.jobs) or None,
        "keys": list(act.keys) or None,
        "reset": act.reset,
        "injected": act.injected,
        "partitions": list(act.partitions) or None,
        "doubled": act.doubled,
        "skipped": act.skipped,
        "expired": act.expired,
        "exact": act.exact,
        "actual_doubled": act.actual_doubled,
        "actual_skipped": act.actual_skipped,
        "restored": act.restored,
        "removed": act.removed,
        "brought_back": act.brought_back,
        "backfill_records": act.backfill_records,
        "backfill": row.detail.get("phase", row.detail.get("backfill")),
        "state": row.state,
        "refusal": row.detail.get("reason"),
        "detail": dict(row.detail) or None,
        "findings": [
            {
                "subject": each.subject, "option": each.option, "message": each.message,
                "remedy": each.remedy,
            }
            for each in findings_in(row)
        ] or None,
        "seconds": act.seconds or None,
        "undoes": act.undoes or None,
        "acknowledged": act.acknowledged or None,
    }


def _order_by_time(each: tuple[str, OperationRecord]) -> tuple[str, str]:
    key, row = each
    return ("" if row.unsafe is None else row.unsafe.at), key
