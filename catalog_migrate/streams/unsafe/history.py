"""The history of unsafe operations as rows, read from the catalog without Spark."""

from __future__ import annotations

from typing import Any

import msgspec

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.streams.operation_records import UNSAFE, kind_of
from catalog_migrate.streams.unsafe.audit import unacknowledged


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
    for key, row in unacknowledged(state):
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
        entry(key, row) for key, row in sorted(state.operations.items(), key=_asked)
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
        "seconds": act.seconds or None,
        "undoes": act.undoes or None,
        "acknowledged": act.acknowledged or None,
    }


def _asked(each: tuple[str, OperationRecord]) -> tuple[str, str]:
    key, row = each
    return ("" if row.unsafe is None else row.unsafe.at), key
