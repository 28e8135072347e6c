"""``bootstrap``: the start-up hook with a local session."""

from __future__ import annotations

import sys

import click

from catalog_migrate.api.starts import start_release
from catalog_migrate.cli.logs import progress
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
from catalog_migrate.cli.output import blocked_plan_printed, emit_start, note, render_plan
from catalog_migrate.report.verdict import exit_code


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
    settings = settings_of(
        ctx, catalog=catalog, warehouse=warehouse, release=release, timeout=timeout
    )
    with blocked_plan_printed(format_, settings), progress() as on_progress:
        report = start_release(
            settings, plan_file, approve=approve, read_only=read_only, on_progress=on_progress,
            on_note=note,
        )
    done = emit_start(report, format_)
    if report.outcome != "planned" or report.plan is None:
        return done
    if format_ == "text":
        sys.stdout.write(render_plan(report.plan, "text", settings))
    return exit_code(report.plan, detailed=detailed_exitcode)
