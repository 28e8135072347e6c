"""``export``: every table, view and function as a plain registration."""

from __future__ import annotations

import click

from catalog_migrate.api.administration import export, registrations_sql
from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.cli.output import confirm, emit, note, require_answer, save
from catalog_migrate.model.wording import counted


@click.command("export")
@options.catalog
@click.option(
    "--sql", "sql", metavar="FILE", help="Write SQL to FILE (- for stdout); changes nothing."
)
@options.timeout
@options.yes
@options.no_input
def command(sql: str | None, yes: bool, no_input: bool) -> None:
    """Give every table back as a plain registration; the rows stay where they lie.

    With --sql as text. Without, in Spark's catalog (spark.metastore): names lose our marks, and
    the durable catalog is closed for good (docs/administration.md).

    \b
    Example:
      catalog-migrate export --sql names.sql
      catalog-migrate export --yes
    """
    settings = options.settings()
    if sql is not None:
        text = registrations_sql(settings)
        if sql == "-":
            emit(text)
        else:  # one of before may be replaced: it is SQL of ours
            save(sql, text)
            note(f"saved to {sql}")
        return
    open_catalog(settings, write=True)  # where there is none, nobody is asked
    require_answer(yes=yes, no_input=no_input)
    given = export(
        settings, on_note=note,
        confirm=lambda: confirm(
            "Give all tables back and close the catalog?", yes=yes, no_input=no_input
        ),
    )
    if given is None:
        return
    click.echo(
        f"given back: {counted(given.tables, 'table')}, {counted(given.views, 'view')}, "
        f"{counted(given.functions, 'function')}; the catalog is closed"
    )
    if given.below:
        click.echo(f"keep {given.below}, also when the catalog's directory is removed: rows are "
                   "in it")
    for name in given.left:
        click.echo(f"left alone: {name} is somebody else's by now")
