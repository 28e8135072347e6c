"""The side of whoever asks: plan, gates, confirmation, then by the runtime, or alone without one.

An operation's row is there before anything is done, and the same for both: whoever holds the lease
of the cluster takes it to its end.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.errors import CommitConflict, LeaseHeld
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.process import this_host
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import commit
from catalog_migrate.errors import CatalogMigrateError, EngineFailure
from catalog_migrate.planner.planfile import StalePlan
from catalog_migrate.streams.errors import UnsafeBlocked, UnsafeRefused, ValidationFailed
from catalog_migrate.streams.operation_records import BACKFILLING, UNSAFE
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.queries import PreparedQuery, QueryEngine, QuerySpec, RunningQuery
from catalog_migrate.streams.status import cluster_key, moment, runtime_lives
from catalog_migrate.streams.supervisor import Supervisor
from catalog_migrate.streams.tables import Tables
from catalog_migrate.streams.unsafe.backfill import Backfills
from catalog_migrate.streams.unsafe.operation import UnsafeOperations
from catalog_migrate.streams.unsafe.planning import UnsafePlan, plan_unsafe
from catalog_migrate.streams.unsafe.requests import Request
from catalog_migrate.streams.unsafe.rows import OPEN, missing, new_row, require, submit
from catalog_migrate.streams.unsafe.undo import operation_row

Confirm = Callable[[UnsafePlan], bool]
"""Whether the plan shown is really meant; asked last."""


def nobody(_plan: UnsafePlan) -> bool:
    """Where nobody can say yes: it is told with all else that is missing, before anything."""
    return False


_POLL = 0.05
LEASE_TTL = 30.0


class OfflineQueries:
    """A query engine without Spark: it knows what tables have, and can start nothing."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def prepare(self, spec: QuerySpec) -> PreparedQuery:
        """Never: whoever acts alone starts nothing."""
        raise EngineFailure(f"{spec.kind} {spec.name} cannot be started without a runtime")

    def start(self, spec: QuerySpec) -> RunningQuery:
        """Never, as :meth:`prepare`."""
        raise EngineFailure(f"{spec.kind} {spec.name} cannot be started without a runtime")

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:  # noqa: ARG002
        """A batch that only some of its tables have must be run, which needs Spark."""
        raise EngineFailure(
            f"a batch of {spec.kind} {spec.name} was under way and must be run once more, which "
            "needs Spark",
            remedy="start the cluster (catalog-migrate run), let it run, and say it again",
        )

    def append_range(
        self, spec: QuerySpec, places: Sequence[tuple[str, int, int, int]],  # noqa: ARG002
        *, app: str, version: int,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Never: records are read by Spark."""
        raise EngineFailure(f"records of {spec.kind} {spec.name} cannot be read without Spark")

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """As the port says, read by delta-rs; nothing for what only a runtime can ask."""
        if spec.kind != "source":
            return {}
        found = {"shard": self._tables.batch(spec.shard, query_id)}
        if spec.dead_letters is not None:
            found["dead_letters"] = self._tables.batch(spec.dead_letters, query_id)
        return found


class Outcome(msgspec.Struct, frozen=True):
    """What became of an operation; ``key`` is None when there was nothing to do."""

    plan: UnsafePlan | None
    key: str | None
    row: OperationRecord | None
    alone: bool = False


@dataclass(slots=True)
class UnsafeClient:
    """Asks for unsafe operations on one catalog; see :class:`~…execute.Executor` for the fields."""

    log: CatalogLog
    clock: Clock
    ports: Ports
    make_shards: Callable[[State, str], None]
    limit: float
    on_progress: Callable[[str], None]
    new_key: Callable[[Clock], str]

    def plan(self, request: Request, reason: str, *, with_times: bool = False) -> UnsafePlan:
        """The dry run; see :func:`~catalog_migrate.streams.unsafe.planning.plan_unsafe`."""
        return plan_unsafe(
            read_state(self.log), request, reason, ports=self.ports, now=self.clock.wall(),
            at=moment(self.clock), with_times=with_times,
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
            return self._wait(key, None)
        what, kind = "the unsafe operation", request.parts[0].after.kind
        asked = confirm is not nobody
        require(
            missing(state, cluster, reason=reason, confirmed=asked, said=said, kind=kind), what
        )
        plan = self.plan(request, reason or "")
        if not plan.changes:
            return Outcome(plan, None, None)
        require(
            missing(state, cluster, reason=reason, confirmed=confirm(plan), said=said, kind=kind),
            what,
        )
        if request.tolerance is not None and request.approved is None:
            request = msgspec.structs.replace(request, approved=plan.totals)
        row = new_row(
            state, request, reason=(reason or "").strip(), who=who(), host=this_host(),
            at=moment(self.clock), limit=self.limit,
        )
        key = key or self.new_key(self.clock)
        if not runtime_lives(state, cluster) and self._open(state, cluster):
            self._alone(cluster)  # what somebody left half-way is ended first
        submit(
            lambda changes: commit(self.log, changes, kind="unsafe request", reason=reason),
            row, key,
        )
        return self._wait(key, plan)

    def read_skipped(self, key: str, engine: QueryEngine) -> bool:
        """Read what an operation skipped from here, with Spark; False when it is read already.

        Raises :class:`LeaseHeld` where a runtime lives, which does it, and what Spark, the broker
        or the catalog raise: then it goes on from there when it is called again.
        """
        row = operation_row(read_state(self.log), key)
        if row.state != BACKFILLING:
            return False
        lease = acquire(
            self.log, holder="backfill", clock=self.clock, key=cluster_key(row.cluster), wait=0,
            fence=_not_alone,
        )
        try:
            state = read_state(self.log)
            supervisor = Supervisor(
                log=self.log, lease=lease, engine=engine, clock=self.clock, cluster=row.cluster,
                ensure_shards=self.make_shards,
                ports=self.ports,
            )
            reader = Backfills(
                supervisor, lambda: read_state(self.log), lease.ensure, self.on_progress
            )
            if key not in reader.pending(state):
                raise UnsafeBlocked(
                    f"operation {key} waits for a hold of its source",
                    remedy="see which (SHOW SOURCES), and lift it",
                )
            reader.work(key)
        finally:
            lease.release()
        return True

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self, key: str, plan: UnsafePlan | None) -> Outcome:
        """Wait for the runtime to end the operation; without one, end it from here."""
        said, beat, heard = "", "", self.clock.monotonic()
        state = read_state(self.log)
        while True:
            if self.log.version() != state.version:
                state = read_state(self.log)
            row = state.operations[key]
            if row.state not in OPEN:
                return _ended(Outcome(plan, key, row))
            if row.state != said:
                said = row.state
                self.on_progress(f"operation {key}: {said}")
            lease_key = cluster_key(row.cluster)
            now = self.clock.monotonic()
            current = f"{state.leases.get(lease_key)} {self.log.heartbeat(lease_key)}"
            if current != beat:
                beat, heard = current, now
            if not runtime_lives(state, row.cluster):
                after = self._alone(row.cluster)
                if after is not None:
                    return _ended(Outcome(plan, key, after.operations[key], alone=True))
            elif now - heard > LEASE_TTL:
                raise _unheard(key)
            self.clock.sleep(_POLL)

    def _open(self, state: State, cluster: str) -> bool:
        """Whether an unsafe operation of the cluster was begun and not ended."""
        return any(
            row.kind == UNSAFE and row.state in OPEN and row.cluster == cluster
            for row in state.operations.values()
        )

    def _alone(self, cluster: str) -> State | None:
        """Take all operations of a cluster to their end under its lease, the state afterwards;
        None when a runtime has it.

        What somebody else had begun and not committed is over; what was committed is finished.
        """
        lease_key = cluster_key(cluster)
        try:
            lease = acquire(
                self.log, holder="unsafe operation", clock=self.clock, key=lease_key, wait=0,
                fence=_not_alone,
            )
        except LeaseHeld:
            return None
        try:
            state = read_state(self.log)
            supervisor = Supervisor(
                log=self.log, lease=lease, engine=OfflineQueries(self.ports.tables),
                clock=self.clock, cluster=cluster,
                ensure_shards=self.make_shards, ports=self.ports,
            )
            operations = UnsafeOperations(
                supervisor, lambda: read_state(self.log), lease.require_fresh, self.on_progress
            )
            for key, row in operations.pending(state):
                operations.carry_out(
                    read_state(self.log), key, inherited=row.state != "requested"
                )
            return read_state(self.log)
        finally:
            lease.release()


def _not_alone(_: Lease) -> None:
    """Whoever has no Spark cannot fence out a runtime that may wake up in the middle of a batch."""
    raise UnsafeBlocked(
        "the runtime of the cluster is gone, but not proven dead: its queries may still run",
        remedy="start the cluster again (catalog-migrate run), which fences it out, and say it "
        "again",
    )


def _unheard(key: str) -> UnsafeBlocked:
    return UnsafeBlocked(
        f"nothing was heard of the runtime for {LEASE_TTL:.0f} s, and it is not proven dead",
        remedy=f"its successor ends operation {key}: start the cluster (catalog-migrate run), then "
        "look at SHOW OPERATIONS",
    )


def who() -> str:
    """The account that this process runs under."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def _ended(outcome: Outcome) -> Outcome:
    """The outcome of an operation that was carried out; what refused it is raised again."""
    row = outcome.row
    assert row is not None
    if row.state in ("done", BACKFILLING):
        return outcome
    detail = row.detail
    message = f"operation {outcome.key}: {detail.get('reason', row.state)}"
    findings = [text for name, text in sorted(detail.items()) if name.startswith("finding")]
    raise _REFUSALS.get(detail.get("outcome", ""), _blocked)(
        message, findings, detail.get("remedy")
    )


_Refusal = Callable[[str, list[str], "str | None"], CatalogMigrateError]


def _blocked(message: str, findings: list[str], remedy: str | None) -> CatalogMigrateError:
    return UnsafeBlocked(message, problems=findings, remedy=remedy)


_REFUSALS: Mapping[str, _Refusal] = {
    ValidationFailed.code: lambda message, findings, remedy: ValidationFailed(
        message, verdicts=findings, remedy=remedy
    ),
    StalePlan.code: lambda message, findings, remedy: StalePlan(
        message, changes=findings, remedy=remedy
    ),
    CommitConflict.code: lambda message, _, remedy: CommitConflict(message, remedy=remedy),
    UnsafeRefused.code: lambda message, findings, remedy: UnsafeRefused(
        message, missing=findings, remedy=remedy
    ),
}
