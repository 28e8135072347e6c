"""``init``: a commented configuration and a sample release to start from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit, emit_value, note, pick, save
from catalog_migrate.config import FILE_NAME, KEYS, Key, Settings
from catalog_migrate.errors import UsageError

if TYPE_CHECKING:
    from catalog_migrate.administration.adoption import Adoption

SAMPLE = {
    "release/release.toml": 'name = "1.0"\ndefault_schema = "shop"\n',
    "release/customers.sql": """\
-- A table of the software. Rows are kept from release to release.
CREATE TABLE customers (
  id BIGINT NOT NULL COMMENT 'key',
  name STRING
) COMMENT 'who buys';
""",
    "release/orders.sql": """\
-- To rename a column later, write the earlier name: note STRING RENAMED FROM remark
-- To convert one, say how:                          qty BIGINT USING CAST(qty AS BIGINT)
-- To give one up, say so after the list:            DROPPED (legacy_flag)
--   (the plan says whether that is in place: then no rollback brings its values back)
CREATE TABLE orders (
  id BIGINT NOT NULL,
  customer_id BIGINT NOT NULL,
  total DECIMAL(18,2),
  CHECK (total >= 0)
) COMMENT 'what they bought';
""",
    "release/big_orders.sql": """\
-- The typed column list is the view's contract: nothing below it may change it unnoticed.
CREATE VIEW big_orders (id BIGINT, customer STRING, total DECIMAL(18,2)) AS
SELECT o.id, c.name AS customer, o.total
FROM orders o JOIN customers c ON c.id = o.customer_id
WHERE o.total > 1000;
""",
}
"""The sample release: two tables and a view."""

POLICY_SAMPLE = """\
Which risks may be taken, by kind and name; the first rule that fits decides.
[[policy]]
risk = "drop_table"
name = "staging.*"
action = "allow"
"""
"""A rule to start from, as a comment of the sample configuration."""

_SET = {"catalog.uri": '"catalog"', "catalog.warehouse": '"warehouse"', "release.path": '"release"'}


@click.command("init")
@click.argument("directory", default=".", type=click.Path(file_okay=False))
@click.option(
    "--empty", is_flag=True,
    help="Make an empty catalog, for connections, sources and sinks alone; needs no Spark.",
)
@click.option("--adopt", is_flag=True, help="Take existing Delta tables over where they lie.")
@click.option(
    "--schema", "schemas", multiple=True, metavar="S",
    help="Adopt every table of a schema that the release describes.",
)
@click.option(
    "--table", "tables", multiple=True, metavar="NAME[=PATH]",
    help="Adopt one table, by its name or where it lies.",
)
@click.option(
    "--forget", multiple=True, metavar="LINEAGE",
    help="Take tables of this installation too: its catalog is lost for good.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be adopted; writes nothing.")
@options.catalog
@options.warehouse
@options.release
@options.timeout
@options.format_("text", "json")
def command(
    directory: str, empty: bool, adopt: bool, schemas: tuple[str, ...], tables: tuple[str, ...],
    forget: tuple[str, ...], dry_run: bool, format_: str,
) -> None:
    """Write catalog_migrate.toml and a sample release of three objects into DIRECTORY.

    Nothing that exists is overwritten. With --adopt: take existing Delta tables over instead, with
    every row where it lies (docs/administration.md). With --empty: make a catalog without a
    release at --catalog. DIRECTORY plays no part then.

    \b
    Example:
      catalog-migrate init
      catalog-migrate plan
      catalog-migrate apply --yes
      catalog-migrate init --empty --catalog catalog
      catalog-migrate init --adopt --schema shop --release release --catalog catalog --dry-run
    """
    if empty:
        if adopt or schemas or tables or forget or dry_run or options.given("release.path"):
            raise UsageError(
                "--empty takes --catalog and --warehouse alone", remedy="leave the others out"
            )
        _make_empty(options.settings(), format_)
        return
    if adopt:
        from catalog_migrate.api import administration

        settings = options.settings()
        found = administration.adopt(
            settings, schemas=schemas, tables=tables, forget=forget, dry_run=dry_run, on_note=note
        )
        emit_value(found, format_, _adoption_record, _adoption_text)
        return
    if schemas or tables or forget or dry_run:
        raise UsageError(
            "--schema, --table, --forget and --dry-run belong to --adopt",
            remedy="add --adopt, or leave them out",
        )
    _write_sample(directory)


def _write_sample(directory: str) -> None:
    """Write the configuration and a release of three objects; nothing where one exists already."""
    home = Path(directory)
    files = {FILE_NAME: configuration(), **SAMPLE}
    # a link that leads nowhere is there too: what is written to it lands elsewhere
    taken = [name for name in files if os.path.lexists(home / name)]
    if taken:
        raise UsageError(
            f"{', '.join(str(home / name) for name in taken)}"
            f" {'exists' if len(taken) == 1 else 'exist'} already; nothing was written",
            remedy="name another directory, or move the files away",
        )
    for name, text in files.items():
        path = home / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path.parent} cannot be created: {error.strerror}",
                remedy="name a directory that may be written",
            ) from error
        save(str(path), text, remedy="make room on its disk, or name another directory")
        click.echo(f"wrote {path}")
    there = "" if home.resolve() == Path.cwd() else f"cd {shlex.quote(directory)} && "
    click.echo(f"next: {there}catalog-migrate plan, then catalog-migrate apply")


def _make_empty(settings: Settings, format_: str) -> None:
    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.api.configured import catalog_uri

    made = Catalog.create(
        catalog_uri(settings), settings.text("catalog.warehouse"), settings.storage.options()
    )
    status = made.status()
    if format_ == "json":
        made_at = pick(status, "warehouse", "lineage", "serial")
        emit(as_json({"catalog": made.log.uri, **made_at}))
        return
    emit(f"made an empty catalog at {made.log.uri}, its rows go below {status.warehouse}\n"
         "next: catalog-migrate sql -f FILE (CREATE CONNECTION, SOURCE, SINK), then "
         "catalog-migrate run\n")


def _adoption_record(found: Adoption) -> dict[str, object]:
    """An adoption for programs."""
    return {
        "adopted": found.serial is not None,
        "serial": found.serial,
        "tables": [
            {**pick(each, "name", "path", "registration"),
             "rows": each.rows if each.rows >= 0 else None, "bytes": each.size,
             "first_migration": each.first}
            for each in found.prospects
        ],
        "left_alone": [
            {"name": str(each.name), "reason": each.reason} for each in found.left_alone
        ],
    }


def _adoption_text(found: Adoption) -> str:
    """An adoption for people."""
    lines = []
    if found.prospects:
        rows = [("table", "stands as", "rows", "first migration", "lies at")]
        rows += [
            (each.name, each.registration, str(each.rows) if each.rows >= 0 else "unknown",
             each.first, each.path)
            for each in found.prospects
        ]
        lines.append(as_columns(rows))
    if found.left_alone:
        lines.append("left alone\n")
        rest = [(f"  {each.name}", each.reason) for each in found.left_alone]
        lines.append(as_columns(rest))
    count = len(found.prospects)
    tables = f"{count} table{'' if count == 1 else 's'}"
    if found.serial is None:
        lines.append(f"{tables} would be adopted; nothing was written\n")
    else:
        lines.append(
            f"{tables} adopted at serial {found.serial}; next: catalog-migrate plan, then apply\n"
        )
    return "".join(lines)


def configuration() -> str:
    """A catalog_migrate.toml with every key explained, those of the sample set."""
    lines = ["# Configuration of catalog-migrate. Relative paths start at this file's directory."]
    section = ""
    for key in KEYS:
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"]
        lines += _document(key)
    lines += ["", *(f"# {line}".rstrip() for line in POLICY_SAMPLE.splitlines())]
    return "\n".join(lines) + "\n"


def _document(key: Key) -> list[str]:
    about = [f"# {key.about.replace('`', '')}"]
    if key.path in _SET:
        return [*about, f"{key.name} = {_SET[key.path]}"]
    if key.default is None:
        return [*about, f'# {key.name} = "..."']
    value = f'"{key.default}"' if isinstance(key.default, str) else key.default
    return [*about, f"# {key.name} = {value}"]
