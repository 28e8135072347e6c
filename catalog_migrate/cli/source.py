"""``source``: looks at a source."""

from __future__ import annotations

import click

from catalog_migrate.api.streams import positions as positions_of
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit


@click.group("source")
def command() -> None:
    """Look at a source, or at a sink.

    \b
    Example:
      catalog-migrate source positions shop.orders --format json > offsets.json
    """


@command.command("positions")
@click.argument("name", metavar="SOURCE")
@click.option("--sink", is_flag=True, help="It is a sink: print the version of its table.")
@options.catalog
@options.format_("text", "json")
def positions(name: str, sink: bool, format_: str) -> None:
    """Print where SOURCE stands: per partition the next record to read.

    123 means that the record 122 was read, and 123 comes next. Of a sink it is the version of its
    table that it reads next.

    What `--format json` prints is accepted by `unsafe inject-offsets --file`.

    \b
    Example:
      catalog-migrate source positions shop.orders --format json > offsets.json
    """
    import msgspec

    found = positions_of(options.settings(), name, sink=sink)
    if format_ == "json":
        emit(as_json(msgspec.to_builtins(found)))
        return
    if found.version is not None:
        emit(f"{found.source} reads version {found.version} next\n")
        return
    rows = [
        (f"{topic}:{number}", str(offset))
        for topic, partitions in found.positions.items() for number, offset in partitions.items()
    ]
    emit(as_columns([("partition", "next"), *rows]))
