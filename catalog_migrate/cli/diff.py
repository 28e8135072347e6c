"""``diff``: what leads from one release to another, without a catalog."""

from __future__ import annotations

import click

from catalog_migrate.cli.approval import note_unmet
from catalog_migrate.cli.options import (
    approve_option,
    catalog_option,
    detailed_option,
    format_option,
    out_option,
    settings_of,
)
from catalog_migrate.cli.output import REPORT_FORMATS, emit_plan, plan_exit
from catalog_migrate.cli.sources import COMMITTED, between, committed, read_release
from catalog_migrate.policy import Policy


@click.command("diff")
@click.argument("old")
@click.argument("new")
@catalog_option
@approve_option
@format_option(*REPORT_FORMATS)
@out_option
@detailed_option
@click.pass_context
def command(
    ctx: click.Context,
    old: str,
    new: str,
    catalog: str | None,
    approve: tuple[str, ...],
    format_: str,
    out: str | None,
    detailed_exitcode: bool,
) -> int:
    """Compare the releases OLD and NEW: directories, manifests, `git:REF:PATH` for what a commit
    has there, or `catalog:` for the one in force.

    Needs no catalog, Spark or network (but for `catalog:`). Unknown row counts are taken for rows.
    Exit 3 when decisions are missing or something stands in the way.

    \b
    Example:
      catalog-migrate diff release-15.json release-16.json
      catalog-migrate diff git:v15:release release
      catalog-migrate diff catalog: release --catalog catalog
    """
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.planner.plan_validation import with_bodies
    from catalog_migrate.planner.planning import plan_migration

    settings = settings_of(ctx, catalog=catalog)
    if old.startswith(COMMITTED):
        former, baseline = committed(settings, old)
    else:
        former = read_release(settings, old)
        baseline = Baseline.from_release(former)
    if new.startswith(COMMITTED):
        release = committed(settings, new)[0]
    else:
        release = read_release(settings, new)
    policy = Policy(rules=settings.policy)
    migration = with_bodies(
        plan_migration(baseline, release, approve=approve, policy=policy), release
    )
    plan = between(migration, baseline, former, release)
    note_unmet(plan, approve)
    emit_plan(plan, format_, settings, out)
    return plan_exit(plan, detailed=detailed_exitcode)
