"""``apply``: carries out a saved plan, or a release after asking."""

from __future__ import annotations

import click

from catalog_migrate.api.starts import apply_release
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import asking, blocked_plan_printed, emit_start, note


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
def command(
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
