"""``apply``, ``bootstrap``, ``rollback``: a start on a local session, forward or back."""

from __future__ import annotations

import sys

import click

from catalog_migrate.api.releases import plan_rollback
from catalog_migrate.api.starts import apply_release, roll_back, start_release
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import (
    asking,
    blocked_plan_printed,
    emit_plan,
    emit_start,
    note,
    render_plan,
)
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code


@click.command("apply")
@click.argument("plan_file", metavar="[PLAN]", required=False)
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.timeout
@options.downgrade
@options.format_("text", "json")
@options.yes
@options.no_input
def apply(
    plan_file: str | None, approve: tuple[str, ...], allow_downgrade: bool, format_: str, yes: bool,
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
    settings = options.settings()
    with blocked_plan_printed(format_, settings), progress() as on_progress:
        report = apply_release(
            settings, plan_file, approve=approve, allow_downgrade=allow_downgrade,
            confirm=asking(settings, yes=yes, no_input=no_input), on_progress=on_progress,
            on_note=note,
        )
    return emit_start(report, format_)


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
def bootstrap(
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


@click.command("rollback")
@options.catalog
@options.conf
@click.option(
    "--to", type=click.IntRange(min=0), metavar="SERIAL",
    help="The serial to go back to (see history). Default: before the newest migration.",
)
@options.approve
@click.option("--plan", "--dry-run", "only_plan", is_flag=True, help="Only say what it would do.")
@options.out
@options.timeout
@options.format_(*FORMATS)
@options.yes
@options.no_input
def rollback(
    to: int | None, approve: tuple[str, ...], only_plan: bool, out: str | None, format_: str,
    yes: bool, no_input: bool,
) -> int:
    """Bring back the release of an earlier serial: its names, columns and rows.

    Rows written since are carried back where the old columns hold them. With --plan or --out FILE
    nothing is changed: `apply FILE` carries a saved plan out. Exit 3 when rows would be lost
    without an approval, when what is needed was deleted by retention, or when a column that the
    serial has was dropped in place since (CM0340: no approval helps; docs/runbooks/rollback.md).

    \b
    Example:
      catalog-migrate rollback --plan --catalog catalog
      catalog-migrate rollback --to 3 --out back.json --catalog catalog
      catalog-migrate apply back.json --catalog catalog --yes
    """
    settings = options.settings()
    plan = plan_rollback(settings, to, approve=approve, on_note=note)
    if only_plan or out is not None:
        emit_plan(plan, format_, settings, out)
        return exit_code(plan, detailed=False)
    with blocked_plan_printed(format_, settings), progress() as on_progress:
        report = roll_back(
            settings, plan, confirm=asking(settings, yes=yes, no_input=no_input),
            on_progress=on_progress, on_note=note,
        )
    return emit_start(report, format_)
