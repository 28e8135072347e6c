"""``doctor``: tries everything the product needs, and says what to do about what fails."""

from __future__ import annotations

import click

from catalog_migrate.api.doctor import examine
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit, note


@click.command("doctor")
@options.catalog
@click.option("--no-spark", is_flag=True, help="Leave the Spark session out (10 s).")
@options.format_("text", "json")
def command(no_spark: bool, format_: str) -> int:
    """Try Java, jars, the catalog, its lease, commits against each other, and a Delta session.

    Exit 1 when anything fails.

    \b
    Example:
      catalog-migrate doctor --catalog catalog
    """
    findings = examine(options.settings(), spark=not no_spark, on_note=note)
    if format_ == "json":
        emit(as_json([
            {"name": f.name, "ok": f.ok, "text": f.text, "remedy": f.remedy} for f in findings
        ]))
    else:
        for found in findings:
            emit(f"{'ok  ' if found.ok else 'FAIL'}  {found.name:<8} {found.text}\n")
            if found.remedy:
                emit(f"                remedy: {found.remedy}\n")
    return 0 if all(found.ok for found in findings) else 1
