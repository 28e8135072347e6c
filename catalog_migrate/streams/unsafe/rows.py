"""The durable row of an unsafe operation: how it begins, and what it is about to commit."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CommitConflict
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.edit import Edit
from catalog_migrate.streams.operation_records import BACKFILLING, UNSAFE, Chunk, Image
from catalog_migrate.streams.unsafe.forecast import Totals
from catalog_migrate.streams.unsafe.gates import missing, require
from catalog_migrate.streams.unsafe.planning import dependent_jobs, require_bound
from catalog_migrate.streams.unsafe.requests import Request, request_in
from catalog_migrate.streams.unsafe.restore import Restore

OPEN = frozenset({"requested", "stopping", "restoring", "committed"})
"""States that are not the last."""


class Prepared(msgspec.Struct, frozen=True):
    """Everything that the one commit of an operation writes, by item where it is of an item.

    It is in the row before a RESTORE, so that whoever resumes after that commits the very same.
    """

    images: tuple[Image, ...]
    edits: dict[str, Edit]
    upstreams: dict[str, str]
    topics: dict[str, dict[str, str]]
    totals: Totals
    injected: int
    snapshots: dict[str, int]
    restore: Restore | None = None
    chunks: tuple[Chunk, ...] = ()
    expired: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


def prepared_in(row: OperationRecord) -> Prepared:
    """What an operation that is restoring is about to commit."""
    assert row.unsafe is not None
    return msgspec.json.decode(row.unsafe.prepared, type=Prepared)


def new_row(
    state: State, request: Request, *, reason: str, who: str, host: str, at: str, limit: float
) -> OperationRecord:
    """The first row of an operation."""
    items = tuple(part.item_id for part in request.parts)
    names = tuple(
        dependencies.display(state, part.item_id) for part in request.parts if not part.past
    )
    jobs = {str(job.name): None for item_id in items for job in dependent_jobs(state, item_id)}
    return OperationRecord(
        kind=UNSAFE, state="requested",
        cluster=state.items[items[0]].links.get("cluster", ""), target=items[0],
        dependents=items, limit=limit, validate=not request.skip_validate,
        detail={"since": at, "summary": f"unsafe operation on {', '.join(names)}"},
        unsafe=UnsafeAct(
            who=who, host=host, at=at, reason=reason,
            request=msgspec.json.encode(request).decode(), sources=names, jobs=tuple(jobs),
            keys=tuple(sorted({key for part in request.parts for key in part.keys})),
            reset=any(part.reset is not None for part in request.parts), undoes=request.undoes,
        ),
    )


def submit(
    log_commit: Callable[[Callable[[State], Changes | None]], State], row: OperationRecord,
    key: str,
) -> State:
    """Write an operation's first row, once: under a key that is known nothing is written.

    Raises :class:`CommitConflict` when another operation is at work on one of its items, or they
    are not what it was planned on; :class:`UnsafeRefused` for a closed gate.
    """

    def opened(state: State) -> Changes | None:
        if key in state.operations:
            return None
        mine = {*row.dependents}
        for other_key, other in state.operations.items():
            at_work = other.state in (*OPEN, BACKFILLING, "validating", "trial")
            if at_work and mine & {other.target, *other.dependents}:
                raise CommitConflict(
                    f"operation {other_key} is at work on the same query ({other.state})",
                    remedy="wait for it (SHOW OPERATIONS), then plan again", operation=other_key,
                )
        request = request_in(row)
        require_bound(state, request)
        assert row.unsafe is not None
        require(
            missing(state, row.cluster, reason=row.unsafe.reason, confirmed=True),
            row.detail["summary"],
        )
        changes = Changes()
        changes.put("operation", key, row)
        return changes

    return log_commit(opened)
