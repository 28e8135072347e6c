"""``rollback``: back to what an earlier serial had, as a plan that is shown, asked for, applied."""

from __future__ import annotations

import click

from catalog_migrate.api.releases import plan_rollback
from catalog_migrate.api.starts import roll_back
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import (
    asking,
    blocked_plan_printed,
    emit_plan,
    emit_start,
    note,
)
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code


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
def command(
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
