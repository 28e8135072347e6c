"""Bring a release in force, or an earlier serial back, by a start on a local Spark session.

Each function takes the configuration, and as arguments what only a call can say
(:class:`~catalog_migrate.migrations.options.CallArguments`); ``on_note`` hears what a person should
know besides. Where ``confirm`` is given it is shown the plan that is about to be carried out, and
says whether that is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from catalog_migrate.api.configured import (
    OnNote,
    catalog_uri,
    find_rows_location,
    make_options,
    open_catalog,
    open_spark,
    read_release,
    refuse_other_warehouse,
    unheard,
)
from catalog_migrate.api.releases import applying_policy, plan_release
from catalog_migrate.config import Settings
from catalog_migrate.errors import (
    DECISION_CODES,
    CatalogNotFound,
    FencedOut,
    MigrationBlocked,
    StalePlan,
)
from catalog_migrate.migrations.options import BootstrapOptions
from catalog_migrate.migrations.options import read_plan as read_plan
from catalog_migrate.migrations.plan import ReleaseToApply, going_back_to
from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.migrations.options import CallArguments
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.release.release import Release

_RULE = "have the owner of the policy change the rule"

Confirm = Callable[["Plan"], bool]
"""Whether a plan, which changes something and may be applied, is to be carried out."""


def apply_release(
    settings: Settings, plan_file: str | None = None, *, allow_downgrade: bool = False,
    confirm: Confirm | None = None, on_note: OnNote = unheard,
    **arguments: Unpack[CallArguments],
) -> BootstrapReport | None:
    """Bring the configured release in force, exactly as ``plan_file`` says when one is given.

    A saved plan of a rollback says by itself what it leads to: no release is read for it. Beside a
    saved plan's approvals ``approve`` counts for users' objects. None when ``confirm`` says no. A
    plan that changes nothing is not asked for.

    Raises MigrationBlocked with the plan, StalePlan before Spark is started when catalog or release
    are not those of the plan, FencedOut, and what :func:`~catalog_migrate.hook.bootstrap` raises.
    """
    options = make_options(settings, **arguments)
    saved = None if plan_file is None else read_plan(plan_file)
    if saved is not None and saved.target.serial is not msgspec.UNSET:
        return roll_back(
            settings, _rollback_as_it_is_now(saved, saved.target.serial, settings),
            confirm=confirm, on_note=on_note, **arguments,
        )
    release = read_release(settings)
    if saved is not None:
        _refuse_stale(saved, release, settings)
    policy = applying_policy(settings, release, allow_downgrade=allow_downgrade)
    _refuse_fenced_out(settings, release, policy)
    if saved is not None:
        # the flag of this call counts, and the rows that are seen now
        plan = _as_it_is_now(replace(saved, fenced_out=None), settings)
    else:
        plan = plan_release(
            settings, approve=options.approve, allow_downgrade=allow_downgrade, on_note=on_note,
            release=release,
        )
    remedy = "write what the report asks for into the release, or approve it"
    if not _confirm(plan, confirm, remedy):
        return None
    options = replace(
        options, policy=policy, approve=(*plan.approved, *options.approve),
        plan=plan if saved is not None or plan.base.serial is not None else None,
        asks_for_users=True,
    )
    return _start(settings, ReleaseToApply(release), options, on_note)


def start_release(
    settings: Settings, plan_file: str | None = None, *, on_note: OnNote = unheard,
    **arguments: Unpack[CallArguments],
) -> BootstrapReport:
    """Return what an application's start-up hook does, on a local session: wait, migrate or follow.

    ``plan_file`` is an approved plan, anything else is refused then; ``read_only`` plans and writes
    nothing. Raises as :func:`apply_release`; nothing goes back to an earlier release.
    """
    options = make_options(settings, **arguments)
    if plan_file is not None:
        options = replace(options, plan=read_plan(plan_file))
    release = read_release(settings)
    _refuse_fenced_out(settings, release, options.policy)
    return _start(settings, ReleaseToApply(release), options, on_note)


def roll_back(
    settings: Settings, plan: Plan, *, confirm: Confirm | None = None, on_note: OnNote = unheard,
    **arguments: Unpack[CallArguments],
) -> BootstrapReport | None:
    """Carry a plan of :func:`plan_rollback` out on a local session; None when it is not confirmed.

    ``approve`` counts for users' objects beside what the plan has. Raises FencedOut where a rule of
    the policy refuses to go back, MigrationBlocked with the plan.
    """
    options = make_options(settings, **arguments)
    if plan.fenced_out is not None:
        raise FencedOut(plan.fenced_out, remedy=_RULE)
    remedy = "approve what the report lists at `rollback`, or choose another serial"
    if not _confirm(plan, confirm, remedy):
        return None
    options = replace(options, plan=plan, asks_for_users=True)
    return _start(
        settings, *going_back_to(open_catalog(settings).log, None, options), on_note
    )


def _rollback_as_it_is_now(plan: Plan, serial: int, settings: Settings) -> Plan:
    """A saved plan of a rollback to ``serial``, fenced out or blocked by what is so now."""
    from catalog_migrate.migrations.rollback import going_back_by, read_past
    from catalog_migrate.planner.policy_evaluation import find_fence

    catalog = open_catalog(settings)
    release = read_past(catalog.log, serial).release
    _refuse_stale(plan, release, settings)
    policy = going_back_by(Policy(rules=settings.policy))
    plan = replace(plan, fenced_out=find_fence(catalog.state(), release, policy))
    return _as_it_is_now(plan, settings)


def _as_it_is_now(plan: Plan, settings: Settings) -> Plan:
    """A saved plan, blocked by rows that are gone since; asked before Spark is started.

    Decisions on users' objects are left to the start, which looks at those of now.
    StalePlan for one that was blocked by rows which are there again. UsageError where another
    directory of rows is configured than the catalog's, and the plan leads to a release.
    """
    from catalog_migrate.planner.plan_validation import with_rows_of_now
    from catalog_migrate.planner.user_objects import without_decisions

    plan = without_decisions(plan)
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


def _confirm(plan: Plan, confirm: Confirm | None, remedy: str) -> bool:
    """Whether ``plan`` is to be carried out; MigrationBlocked where it may not be.

    A plan that changes nothing, the release in force included, is not asked for.
    """
    if not plan.applyable:
        if plan.blocked and all(entry.code not in DECISION_CODES for entry in plan.blocked):
            remedy = "do what is written below each entry; no approval helps"
        raise MigrationBlocked(
            "the plan may not be applied; nothing was touched", plan=plan, remedy=remedy
        )
    changes = not plan.is_noop or plan.only_release
    return confirm is None or not changes or confirm(plan)


def _start(
    settings: Settings, part: ReleaseToApply, options: BootstrapOptions, on_note: OnNote
) -> BootstrapReport:
    """The start-up hook on a local session; FencedOut where it did not do what it was told."""
    from catalog_migrate.catalog.opening import default_warehouse, open_log
    from catalog_migrate.hook import bring_in

    if part.past is None:
        options = replace(options, warehouse=find_rows_location(settings))
    log = open_log(catalog_uri(settings), settings.storage)
    # what is no catalog, and what says not where its rows are to be, is told before Spark starts
    if not log.exists() and options.warehouse is None:
        default_warehouse(log)
    with open_spark(settings, on_note) as spark:
        report = bring_in(spark, log, part, options)
    if report.outcome == "fenced_out":
        raise _fenced_error(report.reason or "", part, options.policy)
    return report


def _refuse_fenced_out(settings: Settings, release: Release, policy: Policy) -> None:
    """Raise FencedOut as a start would, before Spark is started and anybody is asked."""
    from catalog_migrate.planner.policy_evaluation import find_fence

    try:
        state = open_catalog(settings).state()
    except CatalogNotFound:
        return
    refusal = find_fence(state, release, policy)
    if refusal is not None:
        raise _fenced_error(refusal, ReleaseToApply(release), policy)


def _fenced_error(reason: str, part: ReleaseToApply, policy: Policy) -> FencedOut:
    if part.past is not None:
        return FencedOut(reason, remedy=_RULE)
    way = "to bring this one in force again: catalog-migrate apply --allow-downgrade"
    if policy.says("refuse", "downgrade", part.release.name):
        way = f"to go back, {_RULE}"
    return FencedOut(
        reason, remedy=f"start the software of the release that is in force; {way}"
    )
