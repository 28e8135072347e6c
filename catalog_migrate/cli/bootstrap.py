"""``bootstrap``: the start-up hook with a local session."""

from __future__ import annotations

import sys

import click

from catalog_migrate.api.starts import start_release
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import blocked_plan_printed, emit_start, note, render_plan
from catalog_migrate.report.verdict import exit_code


@click.command("bootstrap")
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.timeout
@click.option("--plan", "plan_file", metavar="FILE", type=click.Path(dir_okay=False),
              help="An approved plan: anything else is refused.")
@click.option("--read-only", is_flag=True, help="Plan and write nothing.")
@options.format_("text", "json")
@options.detailed
def command(
    approve: tuple[str, ...], plan_file: str | None, read_only: bool, format_: str,
    detailed_exitcode: bool,
) -> int:
    """Do what an application's start-up hook does: wait, migrate or follow, finish, and say so.

    Exit 3 blocked, 5 another process holds the lease or a later release is in force, 6 committed
    but not finished (run it again).

    \b
    Example:
      catalog-migrate bootstrap --catalog catalog --warehouse rows --release release
    """
    settings = options.settings()
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
