"""``rebuild``: a lost catalog, made again from shards and the release that was in force."""

from __future__ import annotations

import click

from catalog_migrate.api.administration import rebuild
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit, note


@click.command("rebuild")
@options.catalog
@options.warehouse
@options.release
@click.option(
    "--table", "tables", multiple=True, metavar="NAME=PATH",
    help="The directory of a table: adopted ones, or one of several.",
)
@click.option("--missing", multiple=True, metavar="NAME", help="A table that has no rows.")
@click.option("--lineage", metavar="LINEAGE", help="Which installation, where there are several.")
@click.option(
    "--schema", "schemas", multiple=True, metavar="S",
    help="Look at the names that still stand in this schema (starts Spark).",
)
@click.option("--ansi/--no-ansi", default=True, show_default=True, help="ANSI mode of sessions.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of sessions.")
@click.option("--dry-run", is_flag=True, help="Say what would be found; writes nothing.")
@options.format_("text", "json")
def command(
    tables: tuple[str, ...], missing: tuple[str, ...], lineage: str | None,
    schemas: tuple[str, ...], ansi: bool, time_zone: str, dry_run: bool, format_: str,
) -> None:
    """Make a lost or unreadable catalog again, with every row where it lies.

    --release is the release that was in force. What could not be known is listed; what could be
    one thing or another is asked, and nothing is written then (docs/administration.md).

    \b
    Example:
      catalog-migrate rebuild --catalog catalog --release release --dry-run
      catalog-migrate rebuild --catalog catalog --release release --table shop.orders=/data/orders
    """
    done = rebuild(
        options.settings(), tables=tables,
        missing=missing, lineage=lineage, schemas=schemas, ansi=ansi, time_zone=time_zone,
        dry_run=dry_run, on_note=note,
    )
    if format_ == "json":
        emit(as_json({
            "written": not dry_run, "lineage": done.lineage,
            "tables": [
                {"name": name, "item_id": item, "shard": shard}
                for name, item, shard in done.tables
            ],
            "unknown": list(done.unknown), "left_alone": list(done.left_alone),
            "set_aside": done.set_aside,
        }))
        return
    lines = [as_columns([("table", "item", "shard"), *done.tables])]
    for title, entries in (("could not be known", done.unknown), ("left alone", done.left_alone)):
        if entries:
            lines.append(title + "\n" + "".join(f"  {entry}\n" for entry in entries))
    if done.set_aside is not None:
        lines.append(f"what was left of the log is in {done.set_aside}\n")
    lines.append(
        "nothing was written\n" if dry_run
        else f"lineage {done.lineage}; next: catalog-migrate plan, then apply\n"
    )
    emit("".join(lines))
