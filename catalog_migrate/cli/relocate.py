"""``relocate``: follows a move, or makes a copy an installation of its own."""

from __future__ import annotations

import click

from catalog_migrate.api.administration import relocate
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit
from catalog_migrate.model.wording import counted


@click.command("relocate")
@options.catalog
@click.option(
    "--warehouse", metavar="DIR",
    help="Where a new catalog keeps its rows (configuration: catalog.warehouse).",
)
@click.option("--new-lineage", is_flag=True, help="This is a copy: make it one of its own.")
@click.option(
    "--names-too", is_flag=True, help="With --new-lineage: the metastore is a copy as well."
)
@click.option(
    "--table", "tables", multiple=True, metavar="NAME=PATH",
    help="Where an adopted table lies now.",
)
@click.option("--dry-run", is_flag=True, help="Look only; writes nothing.")
@options.timeout
@options.format_("text", "json")
def command(
    warehouse: str | None, new_lineage: bool, names_too: bool, tables: tuple[str, ...],
    dry_run: bool, format_: str,
) -> None:
    """Tell a catalog that it, or its warehouse, lies somewhere else now (docs/administration.md).

    Every table is looked for first; when one is missing nothing is changed. The next start
    registers the names again.

    \b
    Example:
      catalog-migrate relocate --catalog /new/catalog
      catalog-migrate relocate --catalog catalog --warehouse /new/warehouse
      catalog-migrate relocate --catalog /copy/catalog --new-lineage
    """
    done = relocate(
        options.settings(), warehouse=warehouse, tables=tables, new_lineage=new_lineage,
        names_too=names_too, dry_run=dry_run,
    )
    if format_ == "json":
        emit(as_json({
            "changed": done.changed and not dry_run, "home": done.home,
            "warehouse": done.warehouse, "lineage": done.lineage, "tables": done.tables,
            "held": list(done.held), "notes": list(done.notes),
        }))
        return
    lines = [f"note: {note}" for note in done.notes]
    if not done.changed:
        lines.append("nothing to do: everything is where the catalog says")
    else:
        lines.append(
            f"{counted(done.tables, 'table')} found below {done.warehouse}"
            + ("; nothing was written" if dry_run else "")
        )
        if done.new_lineage and not dry_run:
            lines.append(f"new lineage {done.lineage}")
        lines += [f"on hold until you start it: {name}" for name in done.held]
        if not dry_run:
            lines.append("next: catalog-migrate bootstrap")
    emit("\n".join(lines) + "\n")
