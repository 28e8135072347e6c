"""One start of one process: plan, and only if something is to do take the lease and do it.

The hook (:mod:`catalog_migrate.hook`) hands in engine, log and clock; so does the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Literal

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import (
    create_catalog,
    default_warehouse,
    read_state,
    require_in_use,
    require_warehouse,
)
from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.sessions import register_session
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogNotFound,
    CommitConflict,
    NotReconciled,
    StalePlan,
)
from catalog_migrate.migrations import cleanup
from catalog_migrate.migrations.cleanup import RETENTION_SECONDS, find_expired
from catalog_migrate.migrations.commit import (
    bring_in_bundled,
    pending_bundled,
    put_in_force,
    put_release,
)
from catalog_migrate.migrations.execution_context import (
    ExecutionContext,
    Journal,
    StreamTables,
    new_token,
)
from catalog_migrate.migrations.failures import clear_session_failure, record_session_failure
from catalog_migrate.migrations.options import BootstrapOptions
from catalog_migrate.migrations.plan import (
    PlanningInputs,
    ReleaseToApply,
    plan_from_baseline,
    plan_release,
)
from catalog_migrate.migrations.prepare import (
    prepare,
    validate,
    validate_views,
    with_validation,
)
from catalog_migrate.migrations.reconcile import (
    finish_shared,
    list_pending_work,
    names_complete,
    reconcile_names,
)
from catalog_migrate.migrations.refill import refill
from catalog_migrate.migrations.reshape import Rehearsed, rehearse
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.progress import Progress, silent
from catalog_migrate.operations.steps import Executed, Step
from catalog_migrate.planner.assembly import rebase
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration, Plan
from catalog_migrate.planner.plan_validation import ROWS_GONE, blocked_error
from catalog_migrate.planner.planfile import same_plan, stale
from catalog_migrate.planner.policy_evaluation import (
    POLICY_ASKS,
    POLICY_REFUSES,
    find_fence,
)
from catalog_migrate.retry import retry

if TYPE_CHECKING:
    from catalog_migrate.catalog.updates import Update
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.release.release import Release
    from catalog_migrate.users.examination import Examination, Found

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
    starts without it, what can be tried again is tried at every start, what is quarantined stays so
    until it is dropped. ``steps`` is the program that this start had to execute: what was left of
    the plan's steps and, of phase ``session``, the names of this session, of phase ``retention``
    replaced rows that were deleted; ``executed`` is what it executed of it. Our own views are in
    neither. ``repaired`` names the users' objects whose text this start replaced.
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
    steps: tuple[Step, ...] = ()
    executed: tuple[Executed, ...] = ()
    repaired: tuple[str, ...] = ()


_OF_HERE = (POLICY_REFUSES, POLICY_ASKS, ROWS_GONE)
"""What the plan made now may say and the approved one not: its policy and its disks are others."""

REPLANS = 3
"""How often a start plans again when others change what it planned from."""


def start(
    engine: Engine, log: CatalogLog, parts: Sequence[ReleaseToApply], options: BootstrapOptions, *,
    clock: Clock, streams: StreamTables,
) -> BootstrapReport:
    """Do what there is to do for ``parts``, the first of which is reported; then keep the audit.

    ``options.read_only`` only looks. What is raised is said by
    :func:`~catalog_migrate.hook.bootstrap`.
    """
    if options.read_only:
        return look(engine, log, parts[0], options, clock=clock, streams=streams)
    workers = Workers(options.threads)
    journal = Journal(tolerated=[])
    report = None
    try:
        while report is None:
            work = ExecutionContext(
                engine, log, clock, "", streams, workers, options.on_progress or silent,
                options.token or new_token, journal=journal,
            )
            state, opening = open_catalog(work, parts[0].release, options)
            work = replace(work, warehouse=state.setting("warehouse"))
            report = _start(work, parts, options, state, opening)
    finally:
        workers.close()
    if report.outcome != "fenced_out":
        _keep_audit(work)
        log.keep_state()
    return report


def look(
    engine: Engine, log: CatalogLog, part: ReleaseToApply, options: BootstrapOptions, *,
    clock: Clock, streams: StreamTables,
) -> BootstrapReport:
    """Return what a start would do, with what becomes of users' objects; not one byte is written.

    Of what Spark can prove besides the plan says nothing: that takes a look at rows as well.
    """
    release = part.release
    try:
        state = read_state(log)
    except CatalogNotFound:
        _free_place(log, options.warehouse)
        first = plan_from_baseline(Baseline.empty(), release, options)
        return BootstrapReport("planned", first.plan, release.name, 0)
    require_warehouse(state, options.warehouse)
    fenced = _report_fenced_out(state, release, options)
    if fenced is not None:
        return fenced
    migration = plan_release(part, state, PlanningInputs(log, engine, streams), options)
    work = ExecutionContext(
        engine, log, clock, state.setting("warehouse"), streams,
        on_progress=options.on_progress or silent,
    )
    if not migration.plan.is_empty:
        bound = with_validation(work, state, migration)
        examination = _examine_users(work, options, state, bound)
        migration = _decide_on_users(work, options, migration, examination)
    plan = migration.plan
    outcome: Outcome = "unchanged" if plan.is_empty and plan.applyable else "planned"
    return BootstrapReport(
        outcome, plan, release.name, state.serial, unfilled=state.unfilled_tables,
        outstanding=work.journal.outstanding(state),
    )


# -- read and plan -----------------------------------------------------------------------------


def open_catalog(
    work: ExecutionContext, release: Release, options: BootstrapOptions
) -> tuple[State, Migration | None]:
    """The newest state, and the plan of the first release where the catalog is made for it now.

    It is made once the release is known to go in: a start that is refused leaves nothing behind.
    """
    log = work.log
    try:
        return read_state(log), None
    except CatalogNotFound:
        pass
    try:
        place = _free_place(log, options.warehouse)
        first = plan_from_baseline(Baseline.empty(), release, options)
        if not first.plan.applyable:
            raise blocked_error(first.plan)
        first = validate(replace(work, warehouse=place), None, first)
        state = create_catalog(
            log, warehouse=place, sessions=options.sessions
        )
    except CatalogMigrateError:
        if not log.exists():
            raise
        return read_state(log), None  # another process made it meanwhile: rows and names are of it
    return state, rebase(first, Baseline.outline(state, uri=log.uri).base)


def _free_place(log: CatalogLog, warehouse: str | None) -> str:
    """Where rows of a new catalog go; CatalogLost where rows of one that is gone lie."""
    from catalog_migrate.catalog.marks import refuse_lost

    place = warehouse or default_warehouse(log)
    refuse_lost(log, place)
    return place


def _applyable(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions, state: State,
    known: Migration | None = None,
) -> Migration:
    """The plan of a part as it is now, which is ``known`` if it was made already.

    Raises MigrationBlocked, and StalePlan where another plan of the software was approved.
    """
    migration = known or plan_release(
        part, state, PlanningInputs(work.log, work.engine, work.streams), options
    )
    if part.owner == "release" and options.plan is not None:
        _require_approved(options.plan, migration.plan, part.release, state, work.log.uri)
    if not migration.plan.applyable:
        raise blocked_error(migration.plan)
    return migration


def _require_approved(
    approved: Plan, plan: Plan, release: Release, state: State, uri: str
) -> None:
    """An approved plan was handed in: the plan made now must be that very plan."""
    if same_plan(approved, plan):
        return
    if plan.is_empty and _manifest_in_force(state) == release.manifest_hash == (
        approved.target.manifest_hash
    ):
        return  # it was applied already: a second apply has nothing to do
    if any(entry.code in _OF_HERE for entry in plan.blocked):
        raise blocked_error(plan)
    raise stale(approved, Baseline.from_state(state, owner="release", uri=uri), release)


def _report_fenced_out(
    state: State, release: Release, options: BootstrapOptions
) -> BootstrapReport | None:
    reason = find_fence(state, release, options.policy)
    if reason is None:
        return None
    return BootstrapReport("fenced_out", None, release.name, state.serial, reason=reason)


def _manifest_in_force(state: State) -> str | None:
    record = state.release_in_force("release")
    return None if record is None else record.manifest_hash


# -- before, under and after the lease ---------------------------------------------------------


def _start(
    work: ExecutionContext, parts: Sequence[ReleaseToApply], options: BootstrapOptions,
    state: State, opening: Migration | None,
) -> BootstrapReport | None:
    """The start from ``state``; None when the catalog moved on before anything was done."""
    part = parts[0]
    require_in_use(state, work.log)
    require_warehouse(state, options.warehouse)
    fenced = _report_fenced_out(state, part.release, options)
    if fenced is not None:
        return fenced
    first = _applyable(work, part, options, state, opening)
    lasting = work.engine.persistent_names
    if _has_shared_work(work, parts, options, state, first) or (
        lasting and not names_complete(work, state)
    ):
        done = _do_shared_work(work, parts, options, state, first)
        if isinstance(done, BootstrapReport):
            return done
        outcome, plan, state, found = done
        newest = state
        if options.session or not lasting:
            newest = _newest_registered(work, part, options)
    else:
        registered = _register_session(work, part, options, state)
        if registered is None:
            return None
        outcome, plan, state, newest = "unchanged", first.plan, registered, registered
        found = None
    if not lasting:
        committed = outcome in ("initialized", "migrated", "rolled_back")
        program = plan.steps if committed else ()
        made = _session_names(
            work, part, options, newest, program, owed=committed or outcome == "resumed"
        )
        state = clear_session_failure(work, made)
        if state is not made and outcome == "unchanged":
            outcome = "resumed"
        _report_users_of_session(work, state, found)
    return _make_report(work, parts, state, outcome, plan)


def _has_shared_work(
    work: ExecutionContext, parts: Sequence[ReleaseToApply], options: BootstrapOptions,
    state: State, first: Migration,
) -> bool:
    """Whether something is to be done that needs the lease, names apart."""
    return (
        not first.plan.is_empty
        or _is_shared_pending(work, state)
        or (options.populate is not None and bool(state.unfilled_tables))
        or pending_bundled(work, state, parts[0].bundled) is not None
        or not all(part.is_in_force(state) for part in parts)
    )


def _is_shared_pending(work: ExecutionContext, state: State) -> bool:
    if work.engine.persistent_names and state.is_users_look_due:
        return True
    given_up = find_expired(state, work.clock.wall(), RETENTION_SECONDS, work.streams)
    return bool(list_pending_work(state, given_up, session=work.engine.persistent_names))


def _do_shared_work(
    work: ExecutionContext, parts: Sequence[ReleaseToApply], options: BootstrapOptions,
    before: State, first: Migration,
) -> tuple[Outcome, Plan, State, Found | None] | BootstrapReport:
    """What is done under the lease; ``first`` is the plan made from ``before``, without it.

    A report where the release turns out to be fenced out.
    """
    part = parts[0]
    lease = acquire(
        work.log, holder=options.holder, ttl=options.ttl, margin=options.margin,
        wait=options.timeout, clock=work.clock,
        on_wait=lambda *_: work.on_progress(Progress("wait for the lease", 0, 1)), known=before,
    )
    with lease.keep():
        state = lease.read_state()
        work = work.at(state, lease)
        fenced = _report_fenced_out(state, part.release, options)
        if fenced is not None:
            return fenced
        seen = _manifest_in_force(before)
        outcome: Outcome = "resumed" if _is_shared_pending(work, state) else "unchanged"
        if seen != _manifest_in_force(state):
            outcome = "followed"
        state = finish_shared(work, cleanup.clean_up(work, state))
        if any(each.owner == "system" for each in parts):
            _keep_audit(work)  # a view of our own reads it, so it must be there
        known = first if state.serial == before.serial and part.past is None else None
        state, migration, commit, found = _migrate_part(work, part, options, state, known)
        for other in parts[1:]:
            state, *_ = _migrate_part(work, other, options, state)
        state = bring_in_bundled(work, state, part.bundled)
        if options.populate is not None and state.unfilled_tables:
            state = refill(work, state, options.populate)
        if work.engine.persistent_names and not names_complete(work, state):
            state = finish_shared(work, state)
        state = _look_at_users(work, options, state, found)
    if part.past is not None and commit is not None:
        outcome = "rolled_back"
    elif commit == "migration":
        outcome = "migrated" if seen is not None else "initialized"
    return outcome, migration.plan, state, found


def _migrate_part(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions, state: State,
    known: Migration | None = None,
) -> tuple[State, Migration, Literal["migration", "release"] | None, Found | None]:
    """Plan, validate, prepare, commit and reconcile one part; ``known`` is its plan, if made.

    Besides says what was committed: nothing but the release's name where no object differs; and
    which users' objects read ours, where that was looked at.
    When the catalog or a table moved under the plan, what was begun is undone and the plan is made
    again.
    """
    reason = options.reason if part.owner == "release" else None

    def bring_in() -> tuple[State, Migration, Literal["migration", "release"] | None, Found | None]:
        migration = _applyable(work, part, options, state, known)
        if migration.plan.is_empty:
            if part.is_in_force(state):
                return state, migration, None, None
            named = put_release(work, migration, owner=part.owner, reason=reason)
            return named, migration, "release", None
        examination = None
        if part.owner == "release":
            migration = validate(work, state, migration)
            examination = _examine_users(work, options, state, migration)
            migration = _decide_on_users(work, options, migration, examination)
            if not migration.plan.applyable:
                raise blocked_error(migration.plan)
        else:  # a name of our own views that others hold keeps no release out
            migration = validate_views(work, migration)
        try:
            rehearsed = _rehearse(work, part, options, state, migration)
            migration = rehearsed.migration
            prepared = prepare(work, state, migration, rehearsed.shapes, populate=options.populate)
            committed = put_in_force(
                work, state, migration, prepared, owner=part.owner,
                beside=() if examination is None else _predict_users(
                    work, options, migration, examination
                ),
                reason=reason,
            )
        except CommitConflict:
            raise  # it is undone before the next plan is made
        except (Exception, KeyboardInterrupt):
            _abandon(work)
            raise
        work.journal.rows += prepared.rows
        found = None if examination is None else examination.found
        return committed, migration, "migration", found

    def plan_again(_: CommitConflict) -> bool:
        nonlocal state, known
        # another attempt under this epoch would forget what this one has left behind
        if not _abandon(work):
            return False
        state, known = read_state(work.log), None
        return True

    state, migration, commit, found = retry(
        bring_in, CommitConflict, repeat(0.0, REPLANS - 1), when=plan_again
    )
    if commit == "migration":
        state = finish_shared(work, state)
    return state, migration, commit, found


def _rehearse(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions, state: State,
    migration: Migration,
) -> Rehearsed:
    """The migration once its changes in place were tried: another plan where tables are copied.

    Raises StalePlan where a table refuses what was approved.
    """
    rehearsed = rehearse(work, state, migration)
    if rehearsed.refused and part.owner == "release" and options.plan is not None:
        raise StalePlan(
            "tables refuse the changes in place that the plan has", changes=rehearsed.refused,
            remedy="start without the plan file, so that they are copied; or do without the change",
        )
    return rehearsed


# -- users' objects ----------------------------------------------------------------------------


def _examine_users(
    work: ExecutionContext, options: BootstrapOptions, state: State, migration: Migration
) -> Examination:
    """What a migration makes of users' objects; what could not be found out is reported."""
    from catalog_migrate.users.examination import describe_unknown, examine

    examination = examine(work.engine, state, migration, options.users, work.on_progress)
    work.journal.users = describe_unknown(examination.users)
    return examination


def _decide_on_users(
    work: ExecutionContext, options: BootstrapOptions, migration: Migration,
    examination: Examination,
) -> Migration:
    """The migration with what becomes of users' objects, blocked where that must not be."""
    from catalog_migrate.planner.user_objects import with_users

    return with_users(
        migration, examination.users, options.approvals_of_users, options.policy,
        asks=options.asks_for_users,
        repairs=options.users.repair and work.engine.persistent_names,
    )


def _predict_users(
    work: ExecutionContext, options: BootstrapOptions, migration: Migration,
    examination: Examination,
) -> tuple[Update, ...]:
    """What the commit puts on record of users' objects; those of a session are its own."""
    if not (work.engine.persistent_names and examination.found.readers.definitions):
        return ()
    from catalog_migrate.users.records import PredictUsers

    return (PredictUsers(examination, migration, options.users.repair, work.clock.wall()),)


def _look_at_users(
    work: ExecutionContext, options: BootstrapOptions, state: State, found: Found | None
) -> State:
    """Look again at users' objects behind a change, ``found`` before it, and put it on record.

    What fails is reported; where nothing could be put on record the next start looks again.
    """
    if not work.engine.persistent_names or not (found or state.is_users_look_due):
        return state
    from catalog_migrate.users.examination import describe_unknown, find
    from catalog_migrate.users.records import bind_again, record_look

    if found is None:
        found = find(work.engine, state, options.users, work.on_progress)
        work.journal.users = describe_unknown(found.entries)
    if not (found.readers.definitions or state.user_objects):
        return state
    work.ensure()
    looked = bind_again(
        work.engine, state, found, repairs=options.users.repair, now=work.clock.wall(),
        ensure=work.ensure,
    )
    work.journal.users += looked.failures
    work.journal.repaired += looked.replaced
    try:
        return record_look(work.log, looked, work.held)
    except CatalogMigrateError as error:
        _leave_to_the_next_start(work, "users' objects", error)
        return state


def _report_users_of_session(
    work: ExecutionContext, state: State, found: Found | None
) -> None:
    """Report which users' objects of this session are broken behind a change.

    They end with it, as the names that they read: they are on no record.
    """
    if found is None or not found.readers.definitions:
        return
    from catalog_migrate.users.records import bind_again

    looked = bind_again(work.engine, state, found, now=work.clock.wall())
    own = {identity_text(identity) for identity in found.readers.definitions}
    work.journal.users += [
        str(row) for key, row in sorted(looked.rows.items()) if key in own and row.state != "bound"
    ]


def _abandon(work: ExecutionContext) -> bool:
    """Undo a failed attempt now; when that fails too (False), the next start does it."""
    try:
        cleanup.abandon(work)
    except CatalogMigrateError as error:
        _leave_to_the_next_start(work, "clean up", error)
        return False
    return True


def _keep_audit(work: ExecutionContext) -> None:
    """Copy commits to the audit table; what fails is left to the next start."""
    try:
        work.log.keep_audit()
    except CatalogMigrateError as error:
        _leave_to_the_next_start(work, "audit", error)


def _leave_to_the_next_start(
    work: ExecutionContext, phase: str, error: CatalogMigrateError
) -> None:
    work.on_progress(Progress(phase, 0, 1, f"left to the next start: {error.message}"))


# -- this session ------------------------------------------------------------------------------


def _register_session(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions, state: State
) -> State | None:
    """Leave word of this process before it makes names of ``state``; None when that is old."""
    if not options.session:
        return state
    return register_session(
        work.log, state, release=part.release.name, holder=options.holder, clock=work.clock,
        token=work.token,
    )


def _newest_registered(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions
) -> State:
    """The newest state, with word left of this process."""
    registered = None
    while registered is None:
        registered = _register_session(work, part, options, read_state(work.log))
    return registered


def _session_names(
    work: ExecutionContext, part: ReleaseToApply, options: BootstrapOptions, state: State,
    program: Sequence[Step], *, owed: bool,
) -> State:
    """Bring this session's names in line; again when the catalog moved on meanwhile.

    Nothing keeps another process from changing tables in place under these statements. What fails
    goes on record where this start committed what the names are ``owed`` to.
    """
    def has_moved_on(error: NotReconciled) -> bool:
        nonlocal state
        newest = _newest_registered(work, part, options)
        if newest.serial == state.serial:
            if owed:
                with suppress(CatalogMigrateError):  # the error itself is all there is then
                    record_session_failure(work, newest, error)
            return False
        state = newest
        return True

    retry(
        lambda: reconcile_names(work.at(state), state, program), NotReconciled,
        repeat(0.0, REPLANS), when=has_moved_on,
    )
    return state


def _make_report(
    work: ExecutionContext, parts: Sequence[ReleaseToApply], state: State, outcome: Outcome,
    plan: Plan,
) -> BootstrapReport:
    journal = work.journal
    own = {
        each.schema.lower() for part in parts if part.owner == "system"
        for each in part.release.objects
    }

    def is_own(step: Step | Executed) -> bool:
        return step.kind != "shard" and parse_reference(step.name)[1] in own

    return BootstrapReport(
        outcome, plan, parts[0].release.name, state.serial, journal.rows, journal.names,
        state.unfilled_tables,
        outstanding=journal.outstanding(state),
        steps=tuple(s for s in journal.steps if not is_own(s)),
        executed=tuple(s for s in journal.executed if not is_own(s)),
        repaired=tuple(journal.repaired),
    )
