"""The side of whoever asks: plan, gates, confirmation, then by the runtime, or alone without one.

An operation's row is there before anything is done, and the same for both: whoever holds the lease
of the cluster takes it to its end.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping

import msgspec

from catalog_migrate.catalog.lease import Lease
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.operation_states import find_declared_state
from catalog_migrate.catalog.process import this_host
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import (
    CatalogMigrateError,
    CommitConflict,
    StalePlan,
    UnsafeBlocked,
    UnsafeRefused,
    ValidationFailed,
)
from catalog_migrate.operations.kinds import BACKFILLING
from catalog_migrate.streams.catalog.cluster_log import runtime_lives, utc_now
from catalog_migrate.streams.catalog.operation_records import findings_in, operation_row
from catalog_migrate.streams.catalog.queries import QueryEngine
from catalog_migrate.streams.positions.backfill import Backfills
from catalog_migrate.streams.positions.operation_row import (
    Allowed,
    list_missing,
    new_row,
    require,
    unsafe_program,
)
from catalog_migrate.streams.positions.plan import UnsafePlan
from catalog_migrate.streams.positions.planning import Bound, plan_unsafe
from catalog_migrate.streams.positions.requests import Request
from catalog_migrate.streams.runtime.client import OperationClient, operation_key
from catalog_migrate.streams.runtime.operations import pending

Confirm = Callable[[UnsafePlan], bool]
"""Whether the plan shown is really meant; asked last."""


def never_confirm(_plan: UnsafePlan) -> bool:
    """Refuse, where there is no terminal: it is reported with all else that is missing, first."""
    return False


class Outcome(msgspec.Struct, frozen=True):
    """What became of an operation; ``key`` is None when there was nothing to do."""

    plan: UnsafePlan | None
    key: str | None
    row: OperationRecord | None
    alone: bool = False


class UnsafeClient(OperationClient):
    """Asks for unsafe operations on one catalog."""

    def plan(self, request: Request, reason: str, *, with_times: bool = False) -> UnsafePlan:
        """The dry run; see :func:`~catalog_migrate.streams.positions.planning.plan_unsafe`."""
        return plan_unsafe(
            read_state(self.log), request, reason, ports=self.ports, now=self.clock.wall(),
            at=utc_now(self.clock), with_times=with_times,
        )

    def run(
        self, request: Request, reason: str | None, *, confirm: Confirm, key: str | None = None,
        said: bool = True,
    ) -> Outcome:
        """Carry a request out, or find that nothing is to be done.

        Under a ``key`` that the catalog has already, the operation of that key is waited for.
        Raises :class:`UnsafeRefused`, :class:`UnsafeBlocked`, :class:`ValidationFailed`,
        :class:`StalePlan`, :class:`CommitConflict`.
        """
        state = read_state(self.log)
        cluster = state.items[request.parts[0].item_id].links.get("cluster", "")
        if key is not None and key in state.operations:
            return self.await_end(key)
        what, kind = "the unsafe operation", request.parts[0].after.kind
        can_confirm = confirm is not never_confirm
        require(
            list_missing(
                state, cluster, reason=reason, confirmed=can_confirm, said=said, kind=kind
            ),
            what,
        )
        plan = self.plan(request, reason or "")
        if not plan.changes:
            return Outcome(plan, None, None)
        require(
            list_missing(
                state, cluster, reason=reason, confirmed=confirm(plan), said=said, kind=kind
            ),
            what,
        )
        if request.tolerance is not None and request.approved is None:
            request = msgspec.structs.replace(request, approved=plan.totals)
        program = unsafe_program(
            state, request, plan.edited, runs=runtime_lives(state, cluster)
        )
        row = new_row(
            state, request, program, reason=(reason or "").strip(), who=who(), host=this_host(),
            at=utc_now(self.clock), limit=self.limit,
        )
        key = key or operation_key(self.clock)
        left = any(find_declared_state(each).alone for _, each in pending(state, cluster))
        if left and not runtime_lives(state, cluster):
            self.end_here(cluster, _not_alone)  # what somebody left half-way is ended first
        self.ask(row, key, "unsafe request", reason, Bound(request), Allowed(row))
        return self.await_end(key, plan)

    def await_end(self, key: str, plan: UnsafePlan | None = None) -> Outcome:
        """Wait for the end of an operation that is on record; raise again what refused it."""

        def unfinished(_: State, why: str) -> UnsafeBlocked:
            return UnsafeBlocked(
                f"operation {key}: {why}",
                remedy="its successor ends the operation: start the cluster (catalog-migrate run), "
                "then look at SHOW OPERATIONS",
            )

        ended = self.wait(key, unfinished)
        if ended.row.state not in ("done", BACKFILLING):
            raise refusal_of(key, ended.row)
        return Outcome(plan, key, ended.row, ended.alone)

    def read_skipped(self, key: str, engine: QueryEngine) -> bool:
        """Read what an operation skipped from here, with Spark; False when it is read already.

        Raises :class:`LeaseHeld` where a runtime lives, which does it, and what Spark, the broker
        or the catalog raise: then it goes on from there when it is called again.
        """
        row = operation_row(read_state(self.log), key)
        if row.state != BACKFILLING:
            return False
        with self.alone(row.cluster, engine, _not_alone) as supervisor:
            reader = Backfills(
                supervisor, lambda: read_state(self.log), supervisor.lease.ensure,
                self.on_progress,
            )
            if key not in reader.pending(read_state(self.log)):
                raise UnsafeBlocked(
                    f"operation {key} waits for a hold of its source",
                    remedy="see which (SHOW SOURCES), and lift it",
                )
            reader.work(key)
        return True


def _not_alone(_: Lease) -> None:
    """Whoever has no Spark cannot fence out a runtime that may wake up in the middle of a batch."""
    raise UnsafeBlocked(
        "the runtime of the cluster is gone, but not proven dead: its queries may still run",
        remedy="start the cluster again (catalog-migrate run), which fences it out, and run the "
        "command again",
    )


def who() -> str:
    """The account that this process runs under."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


_REFUSALS: Mapping[str, type[CatalogMigrateError]] = {
    kind.code: kind for kind in (ValidationFailed, StalePlan, CommitConflict, UnsafeRefused)
}


def refusal_of(key: str, row: OperationRecord) -> CatalogMigrateError:
    """What refused an operation, as whoever carried it out wrote it down."""
    detail, found = row.detail, findings_in(row)
    kind = _REFUSALS.get(detail.get("outcome", ""), UnsafeBlocked)
    listed = found if kind is ValidationFailed else tuple(map(str, found))
    return kind(
        f"operation {key}: {detail.get('reason', row.state)}", remedy=detail.get("remedy"),
        **{kind.listed or "problems": listed},
    )
