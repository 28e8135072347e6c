"""``apply``: carries out a saved plan, or a release after asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from catalog_migrate.cli.approval import approved, note_unmet
from catalog_migrate.cli.options import (
    approve_option,
    catalog_option,
    downgrade_option,
    format_option,
    no_input_option,
    release_option,
    settings_of,
    timeout_option,
    warehouse_option,
    yes_option,
)
from catalog_migrate.cli.plan import applying_policy, make_plan
from catalog_migrate.cli.sources import open_catalog, read_release, refuse_other_warehouse
from catalog_migrate.config import Settings
from catalog_migrate.errors import CatalogNotFound, EditedPlan, StalePlan
from catalog_migrate.files import read_file
from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.release.release import Release


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", required=False)
@catalog_option
@warehouse_option
@release_option
@approve_option
@timeout_option
@downgrade_option
@format_option("text", "json")
@yes_option
@no_input_option
@click.pass_context
def command(
    ctx: click.Context,
    plan_file: str | None,
    catalog: str | None,
    warehouse: str | None,
    release: str | None,
    approve: tuple[str, ...],
    timeout: float | None,
    allow_downgrade: bool,
    format_: str,
    yes: bool,
    no_input: bool,
) -> int:
    """Apply PLAN (a file of `plan --out` or `rollback --out`) exactly as it says, or the release
    after asking.

    Exit 3 blocked, 4 the plan is stale, 5 lease held or fenced out, 6 run it again. Without a
    terminal it needs --yes.

    \b
    Example:
      catalog-migrate apply plan.json --catalog catalog --release release --yes
      catalog-migrate apply --catalog catalog --release release
    """
    from catalog_migrate.cli.hook import refuse_fenced_out, run_hook

    settings = settings_of(
        ctx, catalog=catalog, warehouse=warehouse, release=release, timeout=timeout
    )
    saved = None if plan_file is None else read_plan(plan_file)
    if saved is not None and saved.target.serial is not msgspec.UNSET:
        return _apply_rollback(saved, settings, format_, yes=yes, no_input=no_input)
    loaded = read_release(settings)
    if saved is not None:
        refuse_stale(saved, loaded, settings)
    policy = applying_policy(settings, loaded, allow_downgrade=allow_downgrade)
    refuse_fenced_out(settings, loaded, policy)
    if saved is not None:
        # the flag of this call counts, and the rows that are seen now
        plan = as_it_is_now(msgspec.structs.replace(saved, fenced_out=None), settings)
    else:
        plan = make_plan(settings, approve, allow_downgrade=allow_downgrade)
        note_unmet(plan, approve)
    if not approved(
        plan, settings, format_, question="Apply this?", yes=yes, no_input=no_input,
        remedy="write what the report asks for into the release, or approve it",
    ):
        return 1
    run_hook(
        settings, loaded, format_=format_, approve=(*plan.approved, *approve),
        plan=plan if plan_file is not None or plan.base.serial is not None else None,
        policy=policy,
    )
    return 0


def _apply_rollback(
    plan: Plan, settings: Settings, format_: str, *, yes: bool, no_input: bool
) -> int:
    """A plan of `rollback --out`: it says by itself what it leads to, so no release is read."""
    from catalog_migrate.cli.rollback import approve_and_carry_out
    from catalog_migrate.planner.fencing import fenced_out
    from catalog_migrate.rollback import going_back_by, read_past

    serial = plan.target.serial
    assert serial is not msgspec.UNSET
    opened = open_catalog(settings)
    release = read_past(opened.log, serial).release
    refuse_stale(plan, release, settings)
    policy = going_back_by(Policy(rules=settings.policy))
    plan = msgspec.structs.replace(plan, fenced_out=fenced_out(opened.state(), release, policy))
    plan = as_it_is_now(plan, settings)
    return approve_and_carry_out(settings, plan, format_, yes=yes, no_input=no_input)


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


def as_it_is_now(plan: Plan, settings: Settings) -> Plan:
    """A saved plan, blocked by rows that are gone since; asked before Spark is started.

    StalePlan for one that was blocked by rows which are there again. UsageError where another
    directory of rows is configured than the catalog's, and the plan leads to a release.
    """
    from catalog_migrate.planner.plan_validation import with_rows_of_now

    try:
        opened = open_catalog(settings)
    except CatalogNotFound:  # the plan is of a catalog that is to be made
        return plan
    if plan.target.serial is msgspec.UNSET:  # what rolls back asks for no directory of rows
        refuse_other_warehouse(opened, settings)
    return with_rows_of_now(plan, opened.gone(opened.state()))


def refuse_stale(plan: Plan, release: Release, settings: Settings) -> None:
    """StalePlan before Spark is started, when catalog or release are not those of the plan.

    A plan whose release is in force by now passes: applying it again has nothing to do.
    """
    from catalog_migrate.planner.planfile import AGAIN, explain_staleness, other_target

    for reason in other_target(plan, release):
        which = "; or name the release that it was made for with --release"
        back = plan.target.serial is not msgspec.UNSET
        raise StalePlan(reason, remedy=AGAIN if back else AGAIN + which)
    try:
        opened = open_catalog(settings)
    except CatalogNotFound:
        if plan.base.serial is None:
            return
        raise
    state = opened.state()
    if (plan.base.lineage, plan.base.serial) == (state.lineage, state.serial):
        return
    in_force = state.release_in_force("release")
    if in_force is not None and in_force.manifest_hash == plan.target.manifest_hash:
        return
    from catalog_migrate.planner.baseline import Baseline

    baseline = Baseline.from_state(state, owner="release", uri=opened.log.uri)
    raise StalePlan(
        "the catalog is not what this plan was made from",
        changes=explain_staleness(plan, baseline),
        remedy=AGAIN,
    )
