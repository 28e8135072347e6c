"""``history``: who changed what, when and from where."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit

if TYPE_CHECKING:
    from catalog_migrate.catalog.history import Entry, ObjectEntry


@click.command("history")
@click.argument("name", required=False)
@options.catalog
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N entries only.")
@click.option(
    "--all", "everything", is_flag=True,
    help="Also commits that only prepare, tidy or book (leases, intents, compaction).",
)
@options.format_("text", "json")
def command(name: str | None, limit: int | None, everything: bool, format_: str) -> None:
    """List what was changed, newest first: by whom, from which host, serial before and after.

    With NAME (schema.name, or kind:schema.name) only what changed that object, through renames.
    Needs no Spark and writes nothing.

    \b
    Example:
      catalog-migrate history --limit 10 --catalog catalog
      catalog-migrate history shop.orders --catalog catalog --format json
    """
    opened = open_catalog(options.settings())
    limit = None if limit is None else min(limit, sys.maxsize)  # more than islice takes is all
    if name is not None:
        rows = [
            {**document(one.entry), **about(one)} for one in islice(
                opened.object_history(name), limit
            )
        ]
    else:
        rows = [
            document(entry) for entry in islice(opened.history(everything=everything), limit)
        ]
    emit(as_json(rows) if format_ == "json" else text(rows))


_OWN_VIEWS = "own views"
"""What people read for a commit of the catalog's own schema and views."""


def document(entry: Entry) -> dict[str, Any]:
    """One entry for programs."""
    return {
        "serial": entry.serial_after,
        "serial_before": entry.serial_before,
        "at": entry.at,
        "verb": entry.verb,
        "who": entry.who,
        "host": entry.host,
        "release": entry.release,
        "reason": entry.reason,
        "epoch": entry.epoch,
        "version": entry.version,
        "commit_id": entry.commit_id,
    }


def about(one: ObjectEntry) -> dict[str, Any]:
    """What an entry did to the object that was asked for."""
    return {"happening": one.happening, "name": one.name, "id": one.global_id}


def text(rows: list[dict[str, Any]]) -> str:
    """Entries for people, one a line."""
    if not rows:
        return "nothing\n"
    about_object = "happening" in rows[0]
    head = ["serial", "when (UTC)", "what", "release", "who"]
    if about_object:
        head += ["object", "id"]
    lines = [[*head, "reason"]]
    for row in rows:
        before, after = row["serial_before"], row["serial"]
        line = [
            str(after) if before in (None, after) else f"{before} -> {after}",
            (row["at"] or "").replace("T", " ")[:19],
            _OWN_VIEWS if row["verb"] == "migrate system" else row["verb"], row["release"] or "",
            "@".join(part for part in (row["who"], row["host"]) if part),
        ]
        if about_object:
            line += [f"{row['happening']} {row['name']}", row["id"]]
        lines.append([*line, row["reason"] or ""])
    return as_columns(lines)
