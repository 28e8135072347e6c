"""The long-lived runtime of one cluster: follows the catalog, drives its queries, does its work.

One process holds the lease ``cluster/<item id>``; whoever takes it over fences the earlier holder
out. The same object runs in a notebook's session (:meth:`Runtime.start`) and under
``catalog-migrate run`` (:meth:`Runtime.run`).

Operations are carried out by the runtime of their cluster, or by whoever asks when there is none: a
row is the same for both. Whoever waits for one takes the lease of a cluster that has no runtime,
and ends what can be ended without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pkgutil import resolve_name
from typing import Any

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.lease import Lease, OnWait, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.records import ClusterRecord, ItemRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put
from catalog_migrate.connectors.base import find_if_installed
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    CheckpointCorrupt,
    EngineFailure,
    LeaseExpired,
    LeaseLost,
    UpstreamChanged,
)
from catalog_migrate.retry import retry
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import (
    FENCE,
    UPSTREAM,
    ClusterLog,
    cluster_key,
    log_path,
)
from catalog_migrate.streams.catalog.failures import HOLD_AFTER, of_error
from catalog_migrate.streams.catalog.queries import QueryEngine
from catalog_migrate.streams.catalog.upstream_tables import UpstreamColumns
from catalog_migrate.streams.runtime.fencing import fence_out, retry_fencing
from catalog_migrate.streams.runtime.observation import Report
from catalog_migrate.streams.runtime.ports import Ports, Running
from catalog_migrate.streams.runtime.probes import Answered, ask_together, share_clients
from catalog_migrate.streams.runtime.runner import BACKFILLS, Runner
from catalog_migrate.streams.runtime.slots import drop_slots, slots_to_drop
from catalog_migrate.streams.runtime.starts import starts_by_cores
from catalog_migrate.streams.runtime.supervisor import EnsureShards, Supervisor
from catalog_migrate.streams.upstreams.upstream import require_same_cluster_and_topics

TICK = 0.25
"""Seconds between two looks at the catalog."""

POLL_UPSTREAM = 5.0
"""Seconds between two looks at the ids of the topics that sources read."""

REFRESH_SURVEYS = 60.0
"""Seconds between two looks at whether sources on PostgreSQL have gone on from DDL."""

REPORT = 5.0
"""Seconds between two rows of a query whose progress is all that changed."""

NAMES = 10.0
"""Seconds until names that could not be brought in line are tried again."""

FENCE_AGAIN = 10.0
"""Seconds until a query whose earlier runtime could not be fenced out is tried again."""

Reconcile = Callable[[State], None]
"""Brings the names in the session's catalog in line with a state."""


# -- the runtime -----------------------------------------------------------------------------------


@dataclass(slots=True)
class RuntimeOptions:
    """``drain``, ``ttl`` and ``margin`` are seconds; ``wait`` is how long a held lease is waited
    for, None until it is known whether its holder lives. ``unsafe`` opens the gate of unsafe
    operations on this cluster. ``upstream_columns`` is for sources on PostgreSQL that do not say
    themselves what becomes of a column that is added upstream. ``hold_after`` is how often a query
    fails of the same cause before it is held, ``show_values`` whether errors may quote rows.
    ``starts_at_once`` is how many queries start at once, 0 for as many as this machine's cores
    admit."""

    drain: float = 30.0
    ttl: float = 30.0
    margin: float = 10.0
    wait: float | None = None
    threads: int = 4
    unsafe: bool = False
    upstream_columns: UpstreamColumns = "evolve"
    hold_after: int = HOLD_AFTER
    show_values: bool = False
    starts_at_once: int = 0


def _says(state: State, item_id: str, reason: str) -> bool:
    """Whether the hold of a changed upstream gives this reason already."""
    hold = state.holds.get(f"{item_id}/{UPSTREAM}/1")
    return hold is not None and hold.reason == reason


class Runtime:
    """Runs the queries of one cluster until it is asked to stop, or is fenced out."""

    def __init__(
        self, log: CatalogLog, cluster: str, engine: QueryEngine, *, ensure_shards: EnsureShards,
        reconcile: Reconcile, clock: Clock | None = None, ports: Ports | None = None,
        options: RuntimeOptions | None = None, on_event: Callable[[str], None] | None = None,
    ) -> None:
        self.log = log
        self.cluster = cluster
        self.engine = engine
        self.clock: Clock = clock or SystemClock()
        self.options = options or RuntimeOptions()
        self._ensure_shards = ensure_shards
        self._reconcile = reconcile
        self._ports = ports or Ports()
        self._say = on_event or (lambda _: None)
        self._stop = self._ports.threads.event()
        self._lost: CatalogMigrateError | None = None
        self._state: State | None = None
        self._named = -1
        self._names_again = 0.0
        self._polled = 0.0
        self._refreshed = 0.0
        self._fenced = 0.0
        self._fencing: Running | None = None
        self._dropping: Running | None = None
        self._tidying: Running | None = None
        self.cluster_id = ""
        self._reported = 0.0
        self._thread: Running | None = None
        self._failure: BaseException | None = None
        self._backfills: Any = None
        self.ready = self._ports.threads.event()
        self.supervisor: Supervisor | None = None
        self.round_at: float | None = None
        """The moment (monotonic) at which its last round ended, None before the first."""
        self.reported: Report | None = None
        """How its queries were at its last report."""

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Runtime:
        """Run in a background thread of the caller's session; :meth:`close` ends it."""
        self._thread = self._ports.threads.run(self._run_thread, "runtime")
        return self

    def _run_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - handed to whoever closes the runtime
            self._failure = error
            self.ready.set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, or has to."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Ask :meth:`run` to stop cleanly; may be called from a signal handler."""
        self._stop.set()

    def close(self) -> None:
        """Stop the background thread and wait for it; raises what it died of."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def run(self, *, on_wait: OnWait | None = None) -> None:
        """Take the cluster over and keep its queries until asked to stop.

        Raises :class:`LeaseHeld` when another runtime has it, :class:`LeaseLost` when another one
        took it over.
        """
        state = read_state(self.log)
        cluster = self.cluster_id = dependencies.find(state, "cluster", self.cluster).item_id

        def supervise(lease: Lease) -> Supervisor:
            return Supervisor(
                log=self.log, lease=lease, engine=self.engine, clock=self.clock,
                cluster=cluster, ensure_shards=self._ensure_shards,
                ports=self._ports, drain=self.options.drain, threads=self.options.threads,
                say=self._say, upstream_columns=self.options.upstream_columns,
                hold_after=self.options.hold_after,
                show_values=self.options.show_values,
                starts_at_once=self.options.starts_at_once or starts_by_cores(),
            )

        def fence(lease: Lease) -> None:
            self._say("the earlier runtime is not proven dead: its queries are fenced out")
            fence_out(supervise(lease), lease.read_state())

        lease = acquire(
            self.log, holder=this_holder(), clock=self.clock,
            key=cluster_key(cluster), wait=self.options.wait, ttl=self.options.ttl,
            margin=self.options.margin, on_wait=on_wait, fence=fence,
        )
        supervisor = supervise(lease)
        self.supervisor = supervisor
        self._ports.threads.repeat(
            lambda: self._renew(lease), lease.interval / 2, self._stop, "cluster heartbeat"
        )
        status: ClusterLog | None = None
        try:
            state = lease.read_state()
            self._ensure_shards(state, cluster)
            status = self._ports.cluster_log(log_path(state, cluster), this_holder())
            self._follow_names(state)
            gate = Put("cluster", cluster, ClusterRecord(unsafe=self.options.unsafe))
            supervisor.commit(Commit(
                "gate", (gate,),
                reason=f"unsafe operations {'on' if self.options.unsafe else 'off'}",
            ))
            self._backfills = resolve_name(BACKFILLS)(
                supervisor, lease.read_state, self._alive, self._say
            )
            runner = Runner(supervisor, self._follow, self._alive, self._say)
            for key, _ in runner.pending(state):
                self._say(f"operation {key} of an earlier runtime is taken up")
                runner.carry_out(key, inherited=True)
            self.ready.set()
            while not self._stop.is_set():
                self._round(supervisor, runner, status)
                self.round_at = self.clock.monotonic()
                self._stop.wait(TICK)
            if self._lost is not None:
                raise self._lost  # the heartbeat found out and ended the loop
        except LeaseLost as error:
            self._lost = error
            raise
        finally:
            self._leave(supervisor, lease, status)

    def _round(self, supervisor: Supervisor, runner: Runner, status: ClusterLog) -> None:
        self._alive()
        before = self._state
        state = self._follow()
        if self._named != state.serial and self.clock.monotonic() >= self._names_again:
            self._follow_names(state)
        for key, _ in runner.pending(state):
            runner.carry_out(key)
            state = self._follow()
        if any(hold.holder == FENCE for hold in state.holds.values()):
            self._fence_again(supervisor, state)
        acted = supervisor.round(state)
        if self._backfills is not None:
            self._backfills.tend(state)
        now = self.clock.monotonic()
        if now - self._polled >= POLL_UPSTREAM:
            self._polled = now
            self._poll_upstream(supervisor, state)
            self._drop_slots(supervisor, state)
            self._count(state)
        if now - self._refreshed >= REFRESH_SURVEYS:
            self._refreshed = now
            self._refresh_surveys(supervisor, state)
        if acted or before is not state or now - self._reported >= REPORT:
            self._reported = now
            self._report(supervisor, state, status)

    def _leave(self, supervisor: Supervisor, lease: Lease, status: ClusterLog | None) -> None:
        """Drain and stop; a runtime that was fenced out stops at once and writes nothing more."""
        supervisor.drain = 0.0 if self._lost is not None else self.options.drain
        if self._backfills is not None:
            self._backfills.close(supervisor.drain)
        supervisor.close(self._state)
        self._stop.set()
        if self._lost is not None:
            return
        try:
            if status is not None and self._state is not None:
                self._report(supervisor, self._state, status)
        finally:
            lease.release()

    def _renew(self, lease: Lease) -> None:
        """Renew the lease in time, whatever the main thread is waiting for."""
        lost = lease.beat()
        if lost is not None:
            self._lost = lost
            self._stop.set()

    def require_alive(self) -> None:
        """LeaseLost once another runtime may be at work, EngineFailure once this one is to stop."""
        if self._stop.is_set():
            raise EngineFailure("the runtime stops", condition="RUNTIME_STOPS", transient=True)
        self._alive()

    def _alive(self) -> None:
        """Raise LeaseLost once another process has the lease.

        One that has only expired (the machine was suspended, or too loaded to renew it) is taken
        again, by a commit that fails where another process was faster. Where that commit cannot be
        made it stays expired, and nothing may be drained under it.
        """
        if self.supervisor is None:
            return
        lease = self.supervisor.lease

        def take_again() -> None:
            if self._lost is not None:
                raise self._lost
            try:
                lease.require_fresh()
            except LeaseExpired as error:
                self._say(f"{error.message}; it is taken again unless another runtime has it")
                lease.ensure()

        try:
            retry(take_again, LeaseExpired, repeat(0.0))
        except LeaseLost:
            raise
        except CatalogMigrateError as error:
            try:
                lease.require_fresh()
            except LeaseExpired as expired:
                raise expired from error

    # -- what it does in a round ---------------------------------------------------------------

    def _follow(self) -> State:
        """The newest state; costs a listing when nothing was committed."""
        if self._state is None or self.log.version() != self._state.version:
            assert self.supervisor is not None
            self._state = self.supervisor.lease.read_state()
        return self._state

    def _follow_names(self, state: State) -> None:
        """Bring names in line with a new serial; what fails (a migration under way) comes again."""
        try:
            self._reconcile(state)
        except CatalogMigrateError as error:
            self._names_again = self.clock.monotonic() + NAMES
            self._say(f"names could not be brought in line: {error}")
        else:
            self._named = state.serial

    def _fence_again(self, supervisor: Supervisor, state: State) -> None:
        """Queries whose destination did not answer at the take-over are held until it does.

        Asked in a thread: a server that swallows questions holds nobody else up.
        """
        now = self.clock.monotonic()
        if now - self._fenced < FENCE_AGAIN or (self._fencing and self._fencing.is_alive()):
            return
        self._fenced = now

        def again() -> None:
            try:
                retry_fencing(supervisor, state)
            except CatalogMigrateError as error:
                self._say(f"queries that wait for a fence are still held: {error.message}")

        self._fencing = self._ports.threads.run(again, "fence again")

    def _report(self, supervisor: Supervisor, state: State, status: ClusterLog) -> None:
        statuses = supervisor.statuses(state)
        self.reported = Report(self.clock.wall(), state, tuple(statuses))
        try:
            status.write(statuses)
        except CatalogWriteRefused as error:
            self._say(str(error))
        if status.untidy and not (self._tidying and self._tidying.is_alive()):
            self._tidying = self._ports.threads.run(status.tidy, "tidy log")

    def _count(self, state: State) -> None:
        """Count what unsafe operations doubled and skipped; what fails now is tried later."""
        try:
            self._backfills.count(state)
        except (EngineFailure, CheckpointCorrupt) as error:
            self._say(f"an unsafe operation cannot be counted yet: {error}")

    def _poll_upstream(self, supervisor: Supervisor, state: State) -> None:
        """A topic that was recreated under a running query is silent otherwise, and a transaction
        that is never ended looks like nothing to read.

        One that is held because its topic was gone says so too, once there is another one.
        """
        held = {hold.item_id for hold in state.holds.values() if hold.holder == UPSTREAM}
        running = [
            item_id for item_id, each in supervisor.managed.items()
            if (each.active or item_id in held) and item_id in state.items
            and state.items[item_id].definition.kind == "source"
            and _is_watched(state.items[item_id])
        ]
        if not running:
            return
        specs: list[QuerySpec] = []
        for item_id in running:
            with suppress(CatalogMigrateError):  # a secret without a value: the query says so
                specs.append(supervisor.spec(state, item_id))
        groups = share_clients(state, specs)
        if not groups:
            return

        def ask(group: Sequence[QuerySpec]) -> Mapping[str, Answered]:
            try:
                return ask_together(group, self._ports.upstreams)
            except CatalogMigrateError:
                return {}  # not reachable now: the queries themselves will say so

        with self._ports.threads.pool(min(8, len(groups)), "upstream") as pool:
            answers = [each for found in pool.map(ask, groups) for each in found.items()]
        found = dict(answers)
        for spec in specs:
            error = self._find_change(state, spec, found.get(spec.item_id), supervisor)
            if error is not None and not _says(state, spec.item_id, error.message):
                supervisor.hold(
                    spec.item_id, of_error(error, dependencies.display(state, spec.item_id))
                )

    def _refresh_surveys(self, supervisor: Supervisor, state: State) -> None:
        """Record what sources on PostgreSQL depend on, after DDL that they go on from."""
        running = [
            item_id for item_id, each in supervisor.managed.items()
            if each.active and item_id in state.items and item_id not in supervisor.pinned
            and dependencies.external_of(state.items[item_id]).tables
        ]
        if not running:
            return

        def refresh(item_id: str) -> None:
            try:
                supervisor.refresh_survey(state, item_id)
            except LeaseLost:
                raise
            except CatalogMigrateError:
                return  # a server or a store that is down, an entry half written: later

        with self._ports.threads.pool(min(8, len(running)), "surveys") as pool:
            list(pool.map(refresh, running))

    def _drop_slots(self, supervisor: Supervisor, state: State) -> None:
        """Slots of sources that were dropped and whose queries have stopped; in a thread."""
        rows = {
            key: row for key, row in slots_to_drop(state).items()
            if row.cluster == self.cluster_id
            and not any(key.endswith(f"/{item_id}") for item_id in supervisor.managed)
        }
        if not rows or (self._dropping and self._dropping.is_alive()):
            return

        def drop() -> None:
            try:
                drop_slots(state, rows, ports=self._ports, commit=supervisor.commit)
            except CatalogMigrateError as error:
                self._say(f"replication slots could not be dropped: {error.message}")

        self._dropping = self._ports.threads.run(drop, "drop slots")

    def _find_change(
        self, state: State, spec: QuerySpec, answer: Answered | None, supervisor: Supervisor
    ) -> UpstreamChanged | None:
        stream: StreamRecord | None = state.streams.get(spec.item_id)
        _, found, whole = answer or ((), None, False)
        if stream is None or not stream.upstream or found is None:
            return None
        try:
            if not whole:  # a topic is missing, or may not be seen
                found = self._ports.upstreams.identify(spec)
            require_same_cluster_and_topics(spec, stream, found)
            supervisor.managed[spec.item_id].open_records = found.open_records
        except UpstreamChanged as error:
            return error
        except CatalogMigrateError:
            return None  # not reachable now: the query itself will say so
        return None


def _is_watched(item: ItemRecord) -> bool:
    connector = find_if_installed(dependencies.external_of(item).connector)
    return connector is not None and connector.source is not None and connector.source.watched
