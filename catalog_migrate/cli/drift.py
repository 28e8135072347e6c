"""``drift``: is Spark's catalog what is committed?"""

from __future__ import annotations

import click

from catalog_migrate.api.registrations import compare_registrations
from catalog_migrate.cli import options
from catalog_migrate.cli.logs import progress
from catalog_migrate.cli.output import as_columns, as_json, confirm, emit, note


@click.command("drift")
@options.catalog
@click.option("--repair", is_flag=True, help="Mend it; names that are not ours are left alone.")
@options.timeout
@options.format_("text", "json")
@options.detailed
@options.yes
@options.no_input
def command(repair: bool, format_: str, detailed_exitcode: bool, yes: bool, no_input: bool) -> int:
    """Compare the names in Spark's catalog with what is committed, and fix them with --repair.

    Of use where names outlive the session (spark.metastore). Exit 2 with --detailed-exitcode when
    something differs and was not repaired.

    \b
    Example:
      catalog-migrate drift --catalog catalog --detailed-exitcode
      catalog-migrate drift --catalog catalog --repair --yes
    """
    def wanted(count: int) -> bool:
        return confirm(f"Mend {count}?", yes=yes, no_input=no_input)

    with progress() as on_progress:
        found = compare_registrations(
            options.settings(), repair=repair, confirm=wanted,
            on_progress=on_progress, on_note=note,
        )
    if found is None:
        nothing = as_json({"drift": [], "mended": 0, "left": []})
        emit(nothing if format_ == "json" else "no names outlive the session: nothing can drift\n")
        return 0
    if format_ == "json":
        entries = [
            {"kind": each.kind, "name": each.name, "reason": each.reason, "remedy": each.remedy}
            for each in found.found
        ]
        left = [each.name for each in found.left]
        emit(as_json({"drift": entries, "mended": found.repaired, "left": left}))
    else:
        rows = [(each.kind, each.name, each.reason) for each in found.found]
        emit(as_columns(rows) if rows else "no drift: every name is what is committed\n")
        if found.left and not repair:
            emit("next: catalog-migrate drift --repair (names that are not ours are left alone)\n")
        if found.repaired:
            steps = f"{found.repaired} step{'s' if found.repaired != 1 else ''}"
            emit(f"repaired in {steps}; {len(found.left)} left\n")
    return 2 if detailed_exitcode and found.left else 0
