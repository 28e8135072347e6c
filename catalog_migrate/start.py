"""One start of one process: plan, and only if something is to do take the lease and do it.

The hook (:mod:`catalog_migrate.hook`) and a rollback hand in engine, log and clock; so does
the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.errors import CatalogNotFound, CommitConflict
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import (
    create_catalog,
    default_warehouse,
    read_state,
    require_in_use,
    require_warehouse,
)
from catalog_migrate.catalog.records import Owner
from catalog_migrate.catalog.sessions import register_session
from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.paths import shard_location
from catalog_migrate.planner.assembly import in_force, rebased
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.fencing import fenced_out
from catalog_migrate.planner.migration import Migration
from catalog_migrate.planner.missing_data import missing_data
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.plan_validation import ROWS_GONE, with_missing_data
from catalog_migrate.planner.planfile import same_plan, stale
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.policy_evaluation import POLICY_ASKS, POLICY_REFUSES
from catalog_migrate.policy import Policy
from catalog_migrate.program.operations import Executed, Operation
from catalog_migrate.reconciler import cleanup
from catalog_migrate.reconciler.bundled_streams import BundledStreams
from catalog_migrate.reconciler.commit import put_in_force, put_release
from catalog_migrate.reconciler.execution_context import (
    ExecutionContext,
    Journal,
    OnProgress,
    Progress,
)
from catalog_migrate.reconciler.prepare import Populate, prepare, validate
from catalog_migrate.reconciler.reconcile import (
    NotReconciled,
    finish_shared,
    names_complete,
    reconcile_names,
    shared_pending,
)
from catalog_migrate.reconciler.refill import refill, unfilled
from catalog_migrate.reconciler.refusal import blocked
from catalog_migrate.reconciler.retention import expired
from catalog_migrate.reconciler.stream_tables import StreamTables
from catalog_migrate.reconciler.workers import Workers
from catalog_migrate.release.release import Release

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Engine

Outcome = Literal[
    "initialized", "unchanged", "migrated", "resumed", "followed", "fenced_out", "planned",
    "rolled_back",
]


class BootstrapReport(msgspec.Struct, frozen=True):
    """What a start did.

    ``outcome``: ``initialized`` (first release of a new catalog), ``unchanged``, ``migrated``,
    ``resumed`` (finished what an earlier process left), ``followed`` (another process committed
    this release while we waited), ``fenced_out`` (a later release is in force; nothing was done),
    ``planned`` (read-only with changes pending; nothing was written), ``rolled_back`` (what an
    earlier serial had is in force again). ``plan`` is the plan of the release, ``rows_copied``
    counts rows, ``names`` the registrations made or dropped in the session's catalog or the
    metastore, our own views' among them, ``unfilled`` the derived tables that nobody has
    populated. ``outstanding`` says in words what could not be done for users' objects: the software
    starts without it, what can be tried again is tried at every start, what was set aside stays so
    until it is dropped. ``steps`` is the program that this start had to execute: what was left of
    the plan's steps and, of phase ``session``, the names of this session; ``executed`` is what it
    executed of it. Our own views are in neither.
    """

    outcome: Outcome
    plan: Plan | None
    release: str
    serial: int
    rows_copied: int = 0
    names: int = 0
    unfilled: tuple[str, ...] = ()
    reason: str | None = None
    outstanding: tuple[str, ...] = ()
    steps: tuple[Operation, ...] = ()
    executed: tuple[Executed, ...] = ()


_OF_HERE = (POLICY_REFUSES, POLICY_ASKS, ROWS_GONE)
"""What the plan made now may say and the approved one not: its policy and its disks are others."""

REPLANS = 3
"""How often a start plans again when others change what it planned from."""


class Start:
    """One start of one process: plan, and only if something is to do take the lease and do it."""

    def __init__(
        self, engine: Engine, log: CatalogLog, release: Release, *, clock: Clock, holder: str,
        approve: tuple[str, ...], populate: Populate | None, wait: float | None, threads: int,
        policy: Policy, approved: Plan | None, on_progress: OnProgress, system: Release | None,
        token: Callable[[], str], ttl: float, margin: float, settings: tuple[bool, str],
        streams: StreamTables, session: bool = False,
    ) -> None:
        self.engine = engine
        self.log = log
        self.release = release
        self.clock = clock
        self.holder = holder
        self.approve = tuple(approved.approved) if approved is not None else approve
        self.populate = populate
        self.wait = wait
        self.workers = Workers(threads)
        self.policy = policy
        self.approved = approved
        self.on_progress = on_progress
        self.token = token
        self.ttl = ttl
        self.margin = margin
        self.settings = settings
        self.session = session
        self.opening: Migration | None = None
        self.first: tuple[int, Migration] | None = None
        self.streams = streams
        self.bundled = BundledStreams(streams, release.statements)
        self.unnamed: list[str] = []
        self.journal = Journal()
        self.parts: list[tuple[Owner, Release]] = [("release", release)]
        if system is not None:
            self.parts.append(("system", system))

    # -- reading -------------------------------------------------------------------------------

    def read_only(self, warehouse: str | None) -> BootstrapReport:
        """Plan and compare; not one byte is written."""
        try:
            state = read_state(self.log)
        except CatalogNotFound:
            self._free_place(warehouse)
            migration = plan_migration(
                Baseline.empty(), self.release, approve=self.approve, policy=self.policy
            )
            return self._report("planned", migration.plan, 0)
        require_warehouse(state, warehouse)
        refusal = fenced_out(state, self.release, self.policy)
        if refusal is not None:
            return self._report("fenced_out", None, state.serial, reason=refusal)
        migration = self._planned(state, "release", self.release)
        changed = not migration.plan.is_empty or not migration.plan.applyable
        return self._report(
            "planned" if changed else "unchanged", migration.plan, state.serial,
            unfilled=unfilled(state), outstanding=self._outstanding(state),
        )

    # -- doing ---------------------------------------------------------------------------------

    def run(self, warehouse: str | None) -> BootstrapReport:
        """Do what there is to do, then see to it that the audit has it."""
        try:
            report = self._run(warehouse)
        finally:
            self.workers.close()
        if report.outcome != "fenced_out":
            self._audit()
        return report

    def _audit(self) -> None:
        """Copy commits to the audit table; what fails is left to the next start."""
        from catalog_migrate.errors import CatalogMigrateError

        try:
            self.log.keep_audit()
        except CatalogMigrateError as error:
            self.on_progress(Progress("audit", 0, 1, f"left to the next start: {error.message}"))

    def _run(self, warehouse: str | None) -> BootstrapReport:
        state, created = self._open(warehouse)
        require_in_use(state, self.log)
        require_warehouse(state, warehouse)
        work = self._work(state, None)
        refusal = fenced_out(state, self.release, self.policy)
        if refusal is not None:
            return self._report("fenced_out", None, state.serial, reason=refusal)
        first = self._first_plan(state)
        self._check_approved(state, first)
        if not first.plan.applyable:
            raise blocked(first.plan)
        if not self._shared_to_do(state, first):
            local = not self.engine.persistent_names
            if local or not self._names_to_do(work, state):
                signed = self._register_session(state)
                if signed is None:
                    self.opening = None
                    return self.run(warehouse)
                names = 0
                if local:
                    signed, names = self._session_names(signed)
                return self._done("unchanged", first.plan, signed, names=names)
        self.first = (state.serial, first)
        seen_hash = _manifest_in_force(state)
        lease = acquire(
            self.log, holder=self.holder, ttl=self.ttl, margin=self.margin, wait=self.wait,
            clock=self.clock, on_wait=self._on_wait,
        )
        try:
            report = self._under_lease(lease, created=created, seen=seen_hash)
        finally:
            lease.release()
        if report.outcome == "fenced_out":
            return report
        signed = self._signed_in()
        if self.engine.persistent_names:
            return report
        committed = report.plan is not None and report.outcome in ("initialized", "migrated")
        state, names = self._session_names(
            signed, report.plan.steps if committed and report.plan is not None else ()
        )
        return self._done(report.outcome, report.plan, state, rows=report.rows_copied, names=names)

    def _signed_in(self) -> State:
        """The newest state, with word left of this process."""
        signed = None
        while signed is None:
            signed = self._register_session(read_state(self.log))
        return signed

    def _register_session(self, state: State) -> State | None:
        """Leave word of this process before it makes names of ``state``; None when that is old."""
        if not self.session:
            return state
        return register_session(
            self.log, state, release=self.release.name, holder=self.holder, clock=self.clock,
            token=self.token,
        )

    def _session_names(
        self, state: State, program: tuple[Operation, ...] = ()
    ) -> tuple[State, int]:
        """Bring this session's names in line; again when the catalog moved on meanwhile.

        Nothing keeps another process from changing tables in place under these statements.
        """
        for _ in range(REPLANS):
            try:
                return state, reconcile_names(self._work(state, None), state, program)
            except NotReconciled:
                newest = self._signed_in()
                if newest.serial == state.serial:
                    raise
                state = newest
        return state, reconcile_names(self._work(state, None), state)

    def _under_lease(self, lease: Lease, *, created: bool, seen: str | None) -> BootstrapReport:
        state = read_state(self.log)
        work = self._work(state, lease)
        refusal = fenced_out(state, self.release, self.policy)
        if refusal is not None:
            return self._report("fenced_out", None, state.serial, reason=refusal)
        followed = seen != _manifest_in_force(state)
        resumed = self._is_shared_pending(work, state)
        state = cleanup.clean_up(work, state)
        state = finish_shared(work, state)
        plan: Plan | None = None
        rows = 0
        committed = False
        if len(self.parts) > 1:
            self._audit()  # a view of our own reads it, so it must be there
        for owner, release in self.parts:
            state, migration, copied, did = self._bring_in(work, state, owner, release)
            rows += copied
            if owner == "release":
                plan, committed = migration.plan, did
        state = self.bundled.bring_in(work, state)
        state = self._refill(work, state)
        if work.engine.persistent_names and not names_complete(work, state):
            state = finish_shared(work, state)
            reconcile_names(work, state)
        outcome: Outcome
        if committed:
            outcome = "initialized" if created or seen is None else "migrated"
        elif followed:
            outcome = "followed"
        else:
            outcome = "resumed" if resumed else "unchanged"
        return self._done(outcome, plan, state, rows=rows, names=work.named)

    def run_own(self) -> None:
        """Bring in our own built-ins alone, which ``release`` is, and name them."""
        lease = acquire(
            self.log, holder=self.holder, ttl=self.ttl, margin=self.margin, wait=self.wait,
            clock=self.clock, on_wait=self._on_wait,
        )
        try:
            state = read_state(self.log)
            work = self._work(state, lease)
            state = finish_shared(work, cleanup.clean_up(work, state))
            self._audit()  # a view of our own reads it, so it must be there
            state, *_ = self._bring_in(work, state, "system", self.release)
            if work.engine.persistent_names and not names_complete(work, state):
                state = finish_shared(work, state)
                reconcile_names(work, state)
        finally:
            lease.release()
        if not self.engine.persistent_names:
            self._session_names(state)

    def _bring_in(
        self, work: ExecutionContext, state: State, owner: Owner, release: Release
    ) -> tuple[State, Migration, int, bool]:
        """Plan, validate, prepare, commit and finish one release; (state, plan, rows, committed).

        When the catalog or a table moved under the plan, what was begun is undone and the plan is
        made again.
        """
        for attempt in range(1, REPLANS + 1):
            migration = self._plan_again(state, owner, release)
            if not migration.plan.applyable:
                raise blocked(migration.plan)
            if migration.plan.is_empty:
                return self._keep(work, state, owner, release, migration), migration, 0, False
            migration = validate(work, state, migration)
            try:
                prepared = prepare(work, state, migration, populate=self.populate)
                state = put_in_force(work, state, migration, prepared, owner=owner)
            except CommitConflict:
                # another attempt under this epoch would forget what this one has left behind
                if not self._abandon(work) or attempt == REPLANS:
                    raise
                state = read_state(self.log)
                continue
            except (Exception, KeyboardInterrupt):
                self._abandon(work)
                raise
            return finish_shared(work, state), migration, prepared.rows, True
        raise AssertionError("unreachable")

    def _plan_again(self, state: State, owner: Owner, release: Release) -> Migration:
        """The plan under the lease; the one made before it, when nothing was committed since."""
        first, self.first = self.first, None
        if owner == "release" and first is not None and first[0] == state.serial:
            return first[1]
        migration = self._planned(state, owner, release)
        if owner == "release":
            self._check_approved(state, migration)
        return migration

    def _keep(
        self,
        work: ExecutionContext,
        state: State,
        owner: Owner,
        release: Release,
        migration: Migration,
    ) -> State:
        """Nothing differs: put the release's name (and its new decisions) on record."""
        in_force = state.release_in_force(owner)
        if in_force is not None and (in_force.name, in_force.manifest_hash) == (
            release.name, release.manifest_hash
        ):
            return state
        return put_release(work, migration, owner=owner)

    def _abandon(self, work: ExecutionContext) -> bool:
        """Undo a failed attempt now; when that fails too (False), the next start does it."""
        from catalog_migrate.errors import CatalogMigrateError

        try:
            cleanup.abandon(work)
        except CatalogMigrateError as error:
            self.on_progress(Progress("clean up", 0, 1, f"left to the next start: {error.message}"))
            return False
        return True

    def _refill(self, work: ExecutionContext, state: State) -> State:
        if self.populate is None or not unfilled(state):
            return state
        return refill(work, state, self.populate)

    # -- parts ---------------------------------------------------------------------------------

    def _open(self, warehouse: str | None) -> tuple[State, bool]:
        try:
            return read_state(self.log), False
        except CatalogNotFound:
            place = self._free_place(warehouse)
            first = plan_migration(
                Baseline.empty(), self.release, approve=self.approve, policy=self.policy
            )
            if not first.plan.applyable:
                raise blocked(first.plan) from None
            try:
                ansi, time_zone = self.settings
                state = create_catalog(
                    self.log, warehouse=place, ansi=ansi, time_zone=time_zone
                )
                self.opening = first
                return state, True
            except CommitConflict:  # another process created it in this very moment
                return read_state(self.log), False

    def _free_place(self, warehouse: str | None) -> str:
        """Where rows of a new catalog go; CatalogLost where rows of one that is gone lie."""
        from catalog_migrate.administration.lost import refuse_lost

        place = warehouse or default_warehouse(self.log)
        refuse_lost(self.log.home, place)
        return place

    def _work(self, state: State, lease: Lease | None) -> ExecutionContext:
        return ExecutionContext(
            engine=self.engine, log=self.log, clock=self.clock,
            warehouse=state.config["warehouse"].value, streams=self.streams, workers=self.workers,
            on_progress=self.on_progress, token=self.token, lease=lease, tolerated=self.unnamed,
            journal=self.journal,
        )

    def _first_plan(self, state: State) -> Migration:
        """The plan before the lease; of a catalog just created it was made already."""
        if self.opening is None:
            return self._planned(state, "release", self.release)
        return rebased(self.opening, Baseline.outline(state, uri=self.log.uri).base)

    def _planned(self, state: State, owner: Owner, release: Release) -> Migration:
        """The plan, blocked where rows of tables in force are gone."""
        migration = self._plan(state, owner, release)
        if owner != "release":
            return migration
        return with_missing_data(migration, missing_data(state, self.engine.why_no_shard))

    def _plan(self, state: State, owner: Owner, release: Release) -> Migration:
        if not self.approve:
            known = in_force(
                state, release.name, release.manifest_hash, len(release.objects), owner=owner,
                uri=self.log.uri,
            )
            if known is not None:
                return known
        migration = plan_migration(
            Baseline.from_state(state, owner=owner, uri=self.log.uri), release,
            approve=self.approve, sizes=lambda item_id: self._size(state, item_id),
            policy=self.policy if owner == "release" else None,
        )
        if owner != "release" or not (release.statements or state.has_streams):
            return migration
        return self.streams.with_streams(migration, state, release.statements)

    def _size(self, state: State, item_id: str) -> tuple[int, int] | None:
        item = state.items.get(item_id)
        if item is None or item.shard is None:
            return None
        path = shard_location(state.setting("warehouse"), item.shard)
        if self.engine.shard_version(path) is None:
            return None
        rows, size = self.engine.shard_size(path)
        return None if rows < 0 else (rows, size)

    def _shared_to_do(self, state: State, first: Migration) -> bool:
        if not first.plan.is_empty:
            return True
        if self._is_shared_pending(self._work(state, None), state):
            return True
        if self.populate is not None and unfilled(state):
            return True
        if self.bundled.pending(state):
            return True
        for owner, release in self.parts:
            in_force = state.release_in_force(owner)
            if in_force is None or (in_force.name, in_force.manifest_hash) != (
                release.name, release.manifest_hash
            ):
                return True
        return False

    def _is_shared_pending(self, work: ExecutionContext, state: State) -> bool:
        given_up = expired(state, self.clock.wall(), work.retention, self.streams)
        return bool(shared_pending(state, given_up))

    def _names_to_do(self, work: ExecutionContext, state: State) -> bool:
        if self.engine.persistent_names:
            return not names_complete(work, state)
        return True

    def _check_approved(self, state: State, migration: Migration) -> None:
        """An approved plan was handed in: the plan made now must be that very plan."""
        approved = self.approved
        if approved is None or same_plan(approved, migration.plan):
            return
        in_force = _manifest_in_force(state)
        if migration.plan.is_empty and in_force == self.release.manifest_hash == (
            approved.target.manifest_hash
        ):
            return  # it was applied already: a second apply has nothing to do
        if any(entry.code in _OF_HERE for entry in migration.plan.blocked):
            raise blocked(migration.plan)
        raise stale(
            approved, Baseline.from_state(state, owner="release", uri=self.log.uri), self.release
        )

    def _on_wait(self, *_: object) -> None:
        self.on_progress(Progress("wait for the lease", 0, 1))

    def _done(
        self, outcome: Outcome, plan: Plan | None, state: State, *, rows: int = 0, names: int = 0
    ) -> BootstrapReport:
        return self._report(
            outcome, plan, state.serial, rows=rows, names=names, unfilled=unfilled(state),
            outstanding=self._outstanding(state),
        )

    def _outstanding(self, state: State) -> tuple[str, ...]:
        """What could not be done for users' objects, each once."""
        told = (*self.bundled.waiting, *self.bundled.unmade, *self.unnamed, *state.quarantined())
        return tuple(dict.fromkeys(told))

    def _report(
        self, outcome: Outcome, plan: Plan | None, serial: int, *, rows: int = 0, names: int = 0,
        unfilled: tuple[str, ...] = (), reason: str | None = None,
        outstanding: tuple[str, ...] = (),
    ) -> BootstrapReport:
        own = {
            each.schema.lower() for owner, part in self.parts if owner == "system"
            for each in part.objects
        }
        return BootstrapReport(
            outcome=outcome, plan=plan, release=self.release.name, serial=serial,
            rows_copied=rows, names=names, unfilled=unfilled, reason=reason,
            outstanding=outstanding,
            steps=tuple(s for s in self.journal.steps if parse_reference(s.name)[1] not in own),
            executed=tuple(
                s for s in self.journal.executed if parse_reference(s.name)[1] not in own
            ),
        )


def _manifest_in_force(state: State) -> str | None:
    record = state.release_in_force("release")
    return None if record is None else record.manifest_hash
