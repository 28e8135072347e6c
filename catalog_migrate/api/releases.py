"""A release and a catalog: plan, check, compare, apply, start, roll back.

Each function takes the configuration and says in ``on_note`` what a person should know besides;
nothing is printed here. Where ``confirm`` is given it is shown the plan that is about to be carried
out and says whether that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.api.configured import (
    COMMITTED,
    OnNote,
    between,
    catalog_uri,
    committed,
    engine_on,
    local_spark,
    open_catalog,
    read_release,
    refuse_other_warehouse,
    release_outline,
    threads_of,
    unheard,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import (
    DECISION_CODES,
    CatalogExported,
    CatalogMoved,
    CatalogNotFound,
    EditedPlan,
    FencedOut,
    InvalidRelease,
    MigrationBlocked,
    StalePlan,
)
from catalog_migrate.policy import Policy
from catalog_migrate.store.local import read_file

if TYPE_CHECKING:
    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.planner.migration import Migration
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.reconciler.execution_context import OnProgress
    from catalog_migrate.release.release import Release

Confirm = Callable[["Plan"], bool]
"""Whether a plan, which changes something and may be applied, is to be carried out."""


class Check(msgspec.Struct, frozen=True):
    """A release without errors and the plan that leads to it; ``base`` says in words from where."""

    release: Release
    plan: Plan
    base: str


# -- planning --------------------------------------------------------------------------------------


def plan_release(
    settings: Settings, *, approve: Collection[str] = (), bind: bool = False,
    allow_downgrade: bool = False, on_note: OnNote = unheard,
) -> Plan:
    """The plan for the configured release on the configured catalog, which need not exist yet.

    It says what :func:`apply_release` would do, which may go back where ``allow_downgrade`` or a
    rule lets it. ``bind`` has Spark's analyser bind every view, else nothing starts Spark.
    """
    plan = _plan(
        settings, approve, bind=bind, allow_downgrade=allow_downgrade, on_note=on_note
    )
    note_unmet(plan, approve, on_note)
    return plan


def check_release(
    settings: Settings, *, against: str | None = None, approve: Collection[str] = (),
    bind: bool = False, on_note: OnNote = unheard,
) -> Check | InvalidRelease:
    """Read the configured release whole, and plan it from ``against``.

    That is a release (a directory, a manifest, ``git:REF:PATH``) or ``catalog:`` for the configured
    catalog; None stands for that catalog where one is configured, else for nothing. Errors of the
    release are what was asked for and come back as a value; those of ``against`` are raised.
    """
    from catalog_migrate.planner.plan_validation import with_unparsed
    from catalog_migrate.release.loader import require_bodies

    try:
        release = read_release(settings)
        unparsed = require_bodies(release, views=not bind)
    except InvalidRelease as error:
        return error
    if against is not None and against.startswith(COMMITTED):
        open_catalog(settings)  # it was named, so it has to be there
        plan, base = _plan(settings, approve, bind=bind, on_note=on_note), against
    elif against is None and settings.text("catalog.uri") is not None:
        plan, base = _plan(settings, approve, bind=bind, on_note=on_note), "the catalog"
    else:
        plan = _plan_from(settings, release, against, approve, bind=bind, on_note=on_note)
        base = against or "an empty catalog"
    plan = with_unparsed(plan, unparsed)
    note_unmet(plan, approve, on_note)
    return Check(release, plan, base)


def compare_releases(
    settings: Settings, old: str, new: str, *, approve: Collection[str] = (),
    on_note: OnNote = unheard,
) -> Plan:
    """The plan that leads from one release to another; needs no Spark.

    Both are directories, manifests, ``git:REF:PATH``, or ``catalog:[URI]`` for what is in force
    there. Row counts are unknown, and taken for rows.
    """
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan_validation import with_bodies
    from catalog_migrate.planner.planning import plan_migration

    if old.startswith(COMMITTED):
        former, baseline = committed(settings, old)
    else:
        former = read_release(settings, old)
        baseline = Baseline.from_release(former)
    if new.startswith(COMMITTED):
        release = committed(settings, new)[0]
    else:
        release = read_release(settings, new)
    migration = with_bodies(
        plan_migration(
            baseline, release, approve=approve, policy=Policy(rules=settings.policy)
        ),
        release,
    )
    plan = between(migration, baseline, former, release)
    note_unmet(plan, approve, on_note)
    return plan


def plan_rollback(
    settings: Settings, to: int | None = None, *, approve: Collection[str] = (),
    on_note: OnNote = unheard,
) -> Plan:
    """The plan that leads back to serial ``to`` (default: before the newest migration)."""
    plan = open_catalog(settings).plan_rollback(
        to, approve=approve, policy=Policy(rules=settings.policy)
    )
    note_unmet(plan, approve, on_note)
    return plan


def release_graph(settings: Settings) -> DependencyGraph:
    """What uses what in the configured release."""
    from catalog_migrate.model.graph import DependencyGraph

    release = read_release(settings)
    keys = {definition.identity: definition.key for definition in release.objects}
    uses = {
        identity: [use for use in release.uses.get(identity, ()) if use in keys]
        for identity in keys
    }
    return DependencyGraph(uses, keys)


def _plan(
    settings: Settings, approve: Collection[str], *, bind: bool = False,
    allow_downgrade: bool = False, on_note: OnNote,
) -> Plan:
    outline = None if approve or bind else release_outline(settings)
    release = None if outline is not None else read_release(settings)
    try:
        catalog = open_catalog(settings)
    except CatalogNotFound:
        on_note(f"there is no catalog at {settings.text('catalog.uri')} yet; applying creates it")
        return _first_plan(
            settings, release or read_release(settings), approve, bind=bind, on_note=on_note
        )
    refuse_other_warehouse(catalog, settings)
    known = None if outline is None else catalog.plan_in_force(outline)
    if known is not None:
        return known
    release = release or read_release(settings)
    policy = _applying_policy(settings, release, allow_downgrade=allow_downgrade)
    migration = catalog.migration(release, approve=approve, policy=policy, views=not bind)
    if migration.plan.fenced_out is None:
        _note_refused(catalog, release, settings, on_note)
    if not bind:
        return migration.plan
    with local_spark(settings, on_note) as spark:
        return catalog.bind(migration, engine_on(spark, settings))


def _first_plan(
    settings: Settings, release: Release, approve: Collection[str], *, bind: bool, on_note: OnNote
) -> Plan:
    """The plan for a catalog that is still to be made."""
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan_validation import with_bodies
    from catalog_migrate.planner.planning import plan_migration

    migration = with_bodies(
        plan_migration(
            Baseline.empty(), release, approve=approve, policy=Policy(rules=settings.policy)
        ),
        release, views=not bind,
    )
    return _bound(settings, migration, on_note) if bind else migration.plan


def _plan_from(
    settings: Settings, release: Release, against: str | None, approve: Collection[str], *,
    bind: bool, on_note: OnNote,
) -> Plan:
    """The plan from another release, or from nothing; the texts of both are known to be whole."""
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.planning import plan_migration

    baseline = (
        Baseline.empty() if against is None
        else Baseline.from_release(read_release(settings, against))
    )
    migration = plan_migration(
        baseline, release, approve=approve, policy=Policy(rules=settings.policy)
    )
    return _bound(settings, migration, on_note) if bind else migration.plan


def _bound(settings: Settings, migration: Migration, on_note: OnNote) -> Plan:
    """The plan with every view bound against stand-ins, where there is no catalog."""
    from catalog_migrate.reconciler.prepare import bind_requests, blocked_by

    with local_spark(settings, on_note) as spark:
        engine: Engine = engine_on(spark, settings)
        return blocked_by(list(engine.bind(bind_requests(migration))), migration).plan


def _applying_policy(settings: Settings, release: Release, *, allow_downgrade: bool) -> Policy:
    """Whoever applies goes back where the call or a rule of the configuration lets it."""
    may_go_back = Policy(rules=settings.policy).says("allow", "downgrade", release.name)
    return Policy(allow_downgrade=allow_downgrade or may_go_back, rules=settings.policy)


def _note_refused(
    catalog: Catalog, release: Release, settings: Settings, on_note: OnNote
) -> None:
    """Say that no start does what this plan says: only `apply` goes back, or nothing does."""
    from catalog_migrate.catalog.store import require_in_use
    from catalog_migrate.planner.fencing import fenced_out

    state = catalog.state()
    refusal = fenced_out(state, release, Policy(rules=settings.policy))
    if refusal is not None:
        on_note(f"{refusal}: a start with it does nothing (exit 5), `apply` goes back to it")
    try:
        require_in_use(state, catalog.log)
    except (CatalogExported, CatalogMoved) as error:
        on_note(
            f"{error.message}; every start is refused ({error.code}) until this is done:"
            f" {error.remedy}"
        )


def note_unmet(plan: Plan, approve: Collection[str], on_note: OnNote) -> None:
    """Say which approvals no change of ``plan`` needed, with the names most like them.

    They are no error: a job may go on giving the approvals of a release that is in force by now.
    """
    if not approve:
        return
    from difflib import get_close_matches

    from catalog_migrate.planner.policy_evaluation import approval_parts

    met = {approval_parts(name) for name in plan.approved}
    known = {
        *(change.name for change in plan.changes),
        *(f"{b.name}.{b.column}" if b.column else b.name for b in plan.blocked),
    }
    for entry in approve:
        parts = approval_parts(entry)
        if parts in met or parts[:2] in met or (
            len(parts) == 2 and any(name[:2] == parts for name in met)
        ):
            continue
        if any(":" not in name and approval_parts(name) == parts for name in known):
            on_note(f"--approve {entry} was not needed: the change of it asks for no approval")
            continue
        near = get_close_matches(entry, sorted(known), n=2, cutoff=0.6)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        on_note(f"--approve {entry} met nothing: no change of this plan needs it{meant}")


# -- carrying out ----------------------------------------------------------------------------------


def apply_release(
    settings: Settings, plan_file: str | None = None, *, approve: Collection[str] = (),
    allow_downgrade: bool = False, confirm: Confirm | None = None,
    on_progress: OnProgress | None = None, on_note: OnNote = unheard,
) -> BootstrapReport | None:
    """Bring the configured release in force, exactly as ``plan_file`` says when one is given.

    A saved plan of a rollback says by itself what it leads to: no release is read for it. None
    when ``confirm`` says no. A plan that changes nothing is not asked for.

    Raises MigrationBlocked with the plan, StalePlan before Spark is started when catalog or release
    are not those of the plan, FencedOut, and what :func:`~catalog_migrate.hook.bootstrap` raises.
    """
    saved = None if plan_file is None else read_plan(plan_file)
    if saved is not None and saved.target.serial is not msgspec.UNSET:
        return _apply_rollback(
            settings, saved, saved.target.serial, confirm=confirm, on_progress=on_progress,
            on_note=on_note,
        )
    release = read_release(settings)
    if saved is not None:
        _refuse_stale(saved, release, settings)
    policy = _applying_policy(settings, release, allow_downgrade=allow_downgrade)
    _refuse_fenced_out(settings, release, policy)
    if saved is not None:
        # the flag of this call counts, and the rows that are seen now
        plan = _as_it_is_now(msgspec.structs.replace(saved, fenced_out=None), settings)
    else:
        plan = plan_release(
            settings, approve=approve, allow_downgrade=allow_downgrade, on_note=on_note
        )
    remedy = "write what the report asks for into the release, or approve it"
    if not _confirmed(plan, confirm, remedy):
        return None
    return _start(
        settings, release, policy, approve=(*plan.approved, *approve),
        plan=plan if saved is not None or plan.base.serial is not None else None,
        on_progress=on_progress, on_note=on_note,
    )


def start_release(
    settings: Settings, plan_file: str | None = None, *, approve: Collection[str] = (),
    read_only: bool = False, on_progress: OnProgress | None = None, on_note: OnNote = unheard,
) -> BootstrapReport:
    """What an application's start-up hook does, on a local session: wait, migrate or follow.

    ``plan_file`` is an approved plan, anything else is refused then; ``read_only`` plans and writes
    nothing. Raises as :func:`apply_release`; nothing goes back to an earlier release.
    """
    plan = None if plan_file is None else read_plan(plan_file)
    release = read_release(settings)
    policy = Policy(rules=settings.policy)
    _refuse_fenced_out(settings, release, policy)
    return _start(
        settings, release, policy, approve=approve, plan=plan, read_only=read_only,
        on_progress=on_progress, on_note=on_note,
    )


def roll_back(
    settings: Settings, plan: Plan, *, confirm: Confirm | None = None,
    on_progress: OnProgress | None = None, on_note: OnNote = unheard,
) -> BootstrapReport | None:
    """Carry a plan of :func:`plan_rollback` out on a local session; None when it is not confirmed.

    Raises FencedOut where a rule of the policy refuses to go back, MigrationBlocked with the plan.
    """
    from catalog_migrate.rollback import rollback

    if plan.fenced_out is not None:
        raise _refused(plan.fenced_out)
    remedy = "approve what the report lists at `rollback`, or choose another serial"
    if not _confirmed(plan, confirm, remedy):
        return None
    with local_spark(settings, on_note) as spark:
        report = rollback(
            spark, catalog=catalog_uri(settings), plan=plan,
            policy=Policy(rules=settings.policy),
            timeout=settings.number("bootstrap.timeout"), on_progress=on_progress,
            threads=threads_of(settings), storage_options=settings.storage.options(),
        )
    if report.outcome == "fenced_out":
        raise _refused(report.reason or "a rule of the policy refuses to go back")
    return report


def read_plan(path: str) -> Plan:
    """A plan file; EditedPlan when it is unreadable or was changed by hand."""
    from catalog_migrate.planner.planfile import decode_plan

    try:
        data = read_file(path)
    except OSError as error:
        raise EditedPlan(
            f"{path} cannot be read: {error.strerror}", remedy="name a file of `plan --out FILE`"
        ) from error
    return decode_plan(data)


def _apply_rollback(
    settings: Settings, plan: Plan, serial: int, *, confirm: Confirm | None,
    on_progress: OnProgress | None, on_note: OnNote,
) -> BootstrapReport | None:
    from catalog_migrate.planner.fencing import fenced_out
    from catalog_migrate.rollback import going_back_by, read_past

    catalog = open_catalog(settings)
    release = read_past(catalog.log, serial).release
    _refuse_stale(plan, release, settings)
    policy = going_back_by(Policy(rules=settings.policy))
    plan = msgspec.structs.replace(plan, fenced_out=fenced_out(catalog.state(), release, policy))
    plan = _as_it_is_now(plan, settings)
    return roll_back(
        settings, plan, confirm=confirm, on_progress=on_progress, on_note=on_note
    )


def _as_it_is_now(plan: Plan, settings: Settings) -> Plan:
    """A saved plan, blocked by rows that are gone since; asked before Spark is started.

    StalePlan for one that was blocked by rows which are there again. UsageError where another
    directory of rows is configured than the catalog's, and the plan leads to a release.
    """
    from catalog_migrate.planner.plan_validation import with_rows_of_now

    try:
        catalog = open_catalog(settings)
    except CatalogNotFound:  # the plan is of a catalog that is to be made
        return plan
    if plan.target.serial is msgspec.UNSET:  # what rolls back asks for no directory of rows
        refuse_other_warehouse(catalog, settings)
    return with_rows_of_now(plan, catalog.gone(catalog.state()))


def _refuse_stale(plan: Plan, release: Release, settings: Settings) -> None:
    """StalePlan before Spark is started, when catalog or release are not those of the plan.

    A plan whose release is in force by now passes: applying it again has nothing to do.
    """
    from catalog_migrate.planner.planfile import AGAIN, explain_staleness, other_target

    for reason in other_target(plan, release):
        which = "; or name the release that it was made for with --release"
        back = plan.target.serial is not msgspec.UNSET
        raise StalePlan(reason, remedy=AGAIN if back else AGAIN + which)
    try:
        catalog = open_catalog(settings)
    except CatalogNotFound:
        if plan.base.serial is None:
            return
        raise
    state = catalog.state()
    if (plan.base.lineage, plan.base.serial) == (state.lineage, state.serial):
        return
    in_force = state.release_in_force("release")
    if in_force is not None and in_force.manifest_hash == plan.target.manifest_hash:
        return
    from catalog_migrate.planner.baseline import Baseline

    baseline = Baseline.from_state(state, owner="release", uri=catalog.log.uri)
    raise StalePlan(
        "the catalog is not what this plan was made from",
        changes=explain_staleness(plan, baseline),
        remedy=AGAIN,
    )


def _confirmed(plan: Plan, confirm: Confirm | None, remedy: str) -> bool:
    """Whether ``plan`` is to be carried out; MigrationBlocked where it may not be.

    A plan that changes nothing, the release in force included, is not asked for.
    """
    if not plan.applyable:
        if plan.blocked and all(entry.code not in DECISION_CODES for entry in plan.blocked):
            remedy = "do what stands below each entry; no approval helps"
        raise MigrationBlocked(
            "the plan may not be applied; nothing was touched", plan=plan, remedy=remedy
        )
    changes = not plan.is_noop or plan.only_release
    return confirm is None or not changes or confirm(plan)


def _start(
    settings: Settings, release: Release, policy: Policy, *, approve: Collection[str],
    plan: Plan | None, read_only: bool = False, on_progress: OnProgress | None, on_note: OnNote,
) -> BootstrapReport:
    """The start-up hook on a local session; FencedOut where it did not do what it was told."""
    from catalog_migrate.catalog.store import open_log
    from catalog_migrate.hook import bootstrap

    uri = catalog_uri(settings)
    open_log(uri, settings.storage).exists()  # what is no catalog is told before Spark starts
    with local_spark(settings, on_note) as spark:
        report = bootstrap(
            spark,
            release=release,
            catalog=uri,
            warehouse=settings.text("catalog.warehouse"),
            policy=policy,
            approve=approve,
            plan=plan,
            read_only=read_only,
            timeout=settings.number("bootstrap.timeout"),
            on_progress=on_progress,
            threads=threads_of(settings),
            session=False,
            storage_options=settings.storage.options(),
        )
    if report.outcome == "fenced_out":
        reason = report.reason or f"a later release than {release.name} is in force"
        raise _fenced_out(reason, release, policy)
    return report


def _refuse_fenced_out(settings: Settings, release: Release, policy: Policy) -> None:
    """Raise FencedOut as a start would, before Spark is started and anybody is asked."""
    from catalog_migrate.planner.fencing import fenced_out

    try:
        state = open_catalog(settings).state()
    except CatalogNotFound:
        return
    refusal = fenced_out(state, release, policy)
    if refusal is not None:
        raise _fenced_out(refusal, release, policy)


def _fenced_out(reason: str, release: Release, policy: Policy) -> FencedOut:
    way = "to bring this one in force again: catalog-migrate apply --allow-downgrade"
    if policy.says("refuse", "downgrade", release.name):
        way = "to go back, have the rule changed by whoever keeps it"
    return FencedOut(
        reason, remedy=f"start the software of the release that is in force; {way}"
    )


def _refused(reason: str) -> FencedOut:
    return FencedOut(reason, remedy="have the rule changed by whoever keeps it")
