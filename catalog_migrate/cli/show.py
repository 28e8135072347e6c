"""``show``: one object."""

from __future__ import annotations

from typing import Any

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit


@click.command("show")
@click.argument("name")
@options.catalog
@options.serial
@options.format_("text", "json")
def command(name: str, serial: int | None, format_: str) -> None:
    """Show the object NAME (schema.name, or kind:schema.name for a function or type).

    `item` names the object for life, through renames and migrations; `id` its present columns:
    another id means other columns, of it or of what it reads. Two ids with one `fingerprint` have
    the same columns: names, types and NOT NULL, in order.

    \b
    Example:
      catalog-migrate show shop.orders --catalog catalog --format json
      catalog-migrate show shop.orders --catalog catalog --serial 3
    """
    found = open_catalog(options.settings()).show(name, serial)
    emit(as_json(found) if format_ == "json" else text(found))


def text(found: dict[str, Any]) -> str:
    """One object for people: its facts, columns, neighbours and text."""
    facts = [
        (label, str(found[key]))
        for label, key in (
            ("kind", "kind"), ("item", "item_id"), ("id", "id"), ("fingerprint", "fingerprint"),
            ("contents", "contents"), ("location", "location"), ("comment", "comment"),
        )
        if found.get(key) is not None
    ]
    lines = [str(found["name"]), *("  " + line for line in as_columns(facts).splitlines())]
    columns = [
        (column["name"], column["type"], "" if column["nullable"] else "NOT NULL",
         column.get("comment") or "")
        for column in found["columns"]
    ]
    if columns:
        lines += ["columns", *("  " + line for line in as_columns(columns).splitlines())]
    checks = [(check["name"], check["expression"]) for check in found.get("checks", ())]
    if checks:
        lines += ["checks", *("  " + line for line in as_columns(checks).splitlines())]
    for title, key in (("depends on", "depends_on"), ("used by", "used_by")):
        if found.get(key):
            lines += [title, *(f"  {name}" for name in found[key])]
    if found.get("sql"):
        lines += ["sql", *(f"  {line}" for line in found["sql"].splitlines())]
    return "\n".join(lines) + "\n"
