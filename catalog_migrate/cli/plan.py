"""``plan``: what applying a release to the catalog would do."""

from __future__ import annotations

import click

from catalog_migrate.api.releases import plan_release
from catalog_migrate.cli import options
from catalog_migrate.cli.output import emit_plan, note
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code


@click.command("plan")
@options.catalog
@options.conf
@options.warehouse
@options.release
@options.approve
@options.bind
@options.downgrade
@options.format_(*FORMATS)
@options.out
@options.detailed
def command(
    approve: tuple[str, ...], bind: bool, allow_downgrade: bool, format_: str, out: str | None,
    detailed_exitcode: bool,
) -> int:
    """Say what applying a release would do. Writes nothing; starts Spark only with --bind.

    --out FILE saves the plan for `apply FILE`, blocked or not. Exit 3 when it may not be applied, 5
    when a later release is in force and neither --allow-downgrade nor the policy lets it go back.

    \b
    Example:
      catalog-migrate plan --catalog catalog --release release --out plan.json
    """
    settings = options.settings()
    plan = plan_release(
        settings, approve=approve, bind=bind, allow_downgrade=allow_downgrade, on_note=note
    )
    emit_plan(plan, format_, settings, out)
    return exit_code(plan, detailed=detailed_exitcode)
