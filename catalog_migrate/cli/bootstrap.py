"""``bootstrap``: the start-up hook with a local session."""

from __future__ import annotations

import sys

import click

from catalog_migrate.cli.options import (
    approve_option,
    catalog_option,
    detailed_option,
    format_option,
    release_option,
    settings_of,
    timeout_option,
    warehouse_option,
)
from catalog_migrate.cli.output import plan_exit, render_plan
from catalog_migrate.cli.sources import read_release


@click.command("bootstrap")
@catalog_option
@warehouse_option
@release_option
@approve_option
@timeout_option
@click.option("--plan", "plan_file", metavar="FILE", type=click.Path(dir_okay=False),
              help="An approved plan: anything else is refused.")
@click.option("--read-only", is_flag=True, help="Plan and write nothing.")
@format_option("text", "json")
@detailed_option
@click.pass_context
def command(
    ctx: click.Context,
    catalog: str | None,
    warehouse: str | None,
    release: str | None,
    approve: tuple[str, ...],
    timeout: float | None,
    plan_file: str | None,
    read_only: bool,
    format_: str,
    detailed_exitcode: bool,
) -> int:
    """Do what an application's start-up hook does: wait, migrate or follow, finish, and say so.

    Exit 3 blocked, 5 another process holds the lease or a later release is in force, 6 committed
    but not finished (run it again).

    \b
    Example:
      catalog-migrate bootstrap --catalog catalog --warehouse rows --release release
    """
    from catalog_migrate.cli.apply import read_plan
    from catalog_migrate.cli.hook import refuse_fenced_out, run_hook
    from catalog_migrate.policy import Policy

    settings = settings_of(
        ctx, catalog=catalog, warehouse=warehouse, release=release, timeout=timeout
    )
    plan = None if plan_file is None else read_plan(plan_file)
    loaded = read_release(settings)
    refuse_fenced_out(settings, loaded, Policy(rules=settings.policy))
    report = run_hook(
        settings, loaded, format_=format_, approve=approve,
        plan=plan, read_only=read_only,
    )
    if report.outcome != "planned" or report.plan is None:
        return 0
    if format_ == "text":
        sys.stdout.write(render_plan(report.plan, "text", settings))
    return plan_exit(report.plan, detailed=detailed_exitcode)
