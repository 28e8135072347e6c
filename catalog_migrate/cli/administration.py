"""``export``, ``rebuild``, ``relocate``, ``unlock``: end, restore, move or free a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from catalog_migrate.api import administration
from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.cli.output import (
    as_columns,
    as_json,
    confirm,
    emit,
    note,
    pick,
    require_answer,
    save,
)
from catalog_migrate.errors import UsageError
from catalog_migrate.model.wording import counted

if TYPE_CHECKING:
    from catalog_migrate.administration.relocation import Relocation


@click.command("export")
@options.catalog
@click.option(
    "--sql", "sql", metavar="FILE", help="Write SQL to FILE (- for stdout); changes nothing."
)
@options.timeout
@options.answers
def export(sql: str | None) -> None:
    """Export every table as a plain registration; the rows stay where they lie.

    With --sql as text. Without, in Spark's catalog (spark.metastore): names lose our marks, and
    the durable catalog is closed for good (docs/administration.md).

    \b
    Example:
      catalog-migrate export --sql names.sql
      catalog-migrate export --yes
    """
    settings = options.settings()
    if sql is not None:
        text = administration.registrations_sql(settings)
        if sql == "-":
            emit(text)
        else:  # one of before may be replaced: it is SQL of ours
            save(sql, text)
            note(f"saved to {sql}")
        return
    open_catalog(settings, write=True)  # where there is none, nobody is asked
    require_answer()
    given = administration.export(
        settings, on_note=note,
        confirm=lambda: confirm("Export all tables and close the catalog?"),
    )
    if given is None:
        return
    click.echo(
        f"exported: {counted(given.tables, 'table')}, {counted(given.views, 'view')}, "
        f"{counted(given.functions, 'function')}; the catalog is closed"
    )
    if given.below:
        click.echo(f"keep {given.below}, also when the catalog's directory is removed: rows are "
                   "in it")
    for name in given.left:
        click.echo(f"left alone: {name} belongs to another application by now")


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
def rebuild(
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
    done = administration.rebuild(
        options.settings(), tables=tables,
        missing=missing, lineage=lineage, schemas=schemas,
        sessions=administration.SessionSettings(ansi, time_zone), dry_run=dry_run, on_note=note,
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
@click.option(
    "--own-views", metavar="SCHEMA",
    help="Move the tool's own views, and nothing else, to this schema at the next start.",
)
@click.option("--dry-run", is_flag=True, help="Look only; writes nothing.")
@options.timeout
@options.format_("text", "json")
def relocate(
    warehouse: str | None, new_lineage: bool, names_too: bool, tables: tuple[str, ...],
    own_views: str | None, dry_run: bool, format_: str,
) -> None:
    """Tell a catalog that it, or its warehouse, lies somewhere else now (docs/administration.md).

    Every table is looked for first; when one is missing nothing is changed. The next start
    registers the names again.

    \b
    Example:
      catalog-migrate relocate --catalog /new/catalog
      catalog-migrate relocate --catalog catalog --warehouse /new/warehouse
      catalog-migrate relocate --catalog /copy/catalog --new-lineage
      catalog-migrate relocate --own-views catalog_migrate_1f0c22ab
    """
    if own_views is not None:
        if warehouse or tables or new_lineage or names_too or dry_run:
            raise UsageError(
                "--own-views goes with no other option", remedy="move one thing after the other"
            )
        before = administration.move_own_views(options.settings(), own_views)
        if format_ == "json":
            emit(as_json({"own_views": own_views.lower(), "before": before}))
        else:
            emit(f"own views: {before or 'none yet'} -> {own_views.lower()}\n"
                 "next: catalog-migrate bootstrap\n")
        return
    done = administration.relocate(
        options.settings(), warehouse=warehouse, tables=tables, new_lineage=new_lineage,
        names_too=names_too, dry_run=dry_run,
    )
    if format_ == "json":
        changed = {"changed": done.changed and not dry_run}
        emit(as_json(changed | pick(
            done, "home", "warehouse", "lineage", "tables", "held", "notes"
        )))
    else:
        emit("\n".join(_relocation_lines(done, dry_run=dry_run)) + "\n")


def _relocation_lines(done: Relocation, *, dry_run: bool) -> Iterator[str]:
    yield from (f"note: {note}" for note in done.notes)
    if not done.changed:
        yield "nothing to do: everything is where the catalog says"
        return
    found = f"{counted(done.tables, 'table')} found below {done.warehouse}"
    yield f"{found}; nothing was written" if dry_run else found
    if done.new_lineage and not dry_run:
        yield f"new lineage {done.lineage}"
    yield from (f"on hold until you start it: {name}" for name in done.held)
    if not dry_run:
        yield "next: catalog-migrate bootstrap"


@click.command("unlock")
@click.option(
    "--if-holder", metavar="NAME",
    help="Free the lease, only if this is the holder, as `status` and the error print it.",
)
@click.option(
    "--session", "sessions", metavar="ID", multiple=True,
    help="Forget a session that has surely ended, as `status` lists it.",
)
@click.option(
    "--sessions-before", metavar="SERIAL", type=click.IntRange(min=0),
    help="Forget every session of an older serial.",
)
@options.catalog
def unlock(if_holder: str | None, sessions: tuple[str, ...], sessions_before: int | None) -> None:
    """Free the migration lease, if NAME holds it, without waiting for it to run out.

    Whatever NAME still tries to commit is refused from then on. Exit 5 when another holds it.

    While a session may live at an older serial, columns are copied rather than renamed or dropped
    in place. A process on this machine that has ended is known to be gone; of one elsewhere you
    have to say so. An unknown ID is an error.

    \b
    Example:
      catalog-migrate unlock --if-holder batch-3/4711
      catalog-migrate unlock --sessions-before 17
    """
    if if_holder is None and not sessions and sessions_before is None:
        raise UsageError(
            "nothing was named to be freed",
            remedy="catalog-migrate unlock --if-holder NAME | --session ID | "
            "--sessions-before SERIAL",
        )
    if if_holder is not None and not if_holder.strip():
        raise UsageError(
            "--if-holder is empty", remedy="name the holder, as catalog-migrate status prints it"
        )
    opened = open_catalog(options.settings(), write=True)
    if sessions or sessions_before is not None:
        removed = opened.forget_sessions(sessions, before=sessions_before)
        click.echo(f"forgot session {', '.join(removed)}" if removed else "no session is that old")
    if if_holder is None:
        return
    held = opened.unlock(if_holder)
    click.echo(f"freed the lease of {if_holder}" if held else "no process held the lease")
