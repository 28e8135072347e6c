"""``diff``: what leads from one release to another, without a catalog."""

from __future__ import annotations

import click

from catalog_migrate.api.releases import compare_releases
from catalog_migrate.cli import options
from catalog_migrate.cli.output import emit_plan, note
from catalog_migrate.report import FORMATS
from catalog_migrate.report.verdict import exit_code


@click.command("diff")
@click.argument("old")
@click.argument("new")
@options.catalog
@options.approve
@options.format_(*FORMATS)
@options.out
@options.detailed
def command(
    old: str, new: str, approve: tuple[str, ...], format_: str, out: str | None,
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
    settings = options.settings()
    plan = compare_releases(settings, old, new, approve=approve, on_note=note)
    emit_plan(plan, format_, settings, out)
    return exit_code(plan, detailed=detailed_exitcode)
