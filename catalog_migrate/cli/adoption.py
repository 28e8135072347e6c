"""``init --adopt``: existing Delta tables, taken over where they lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog_migrate.cli.options import need
from catalog_migrate.cli.output import as_columns, as_json, emit
from catalog_migrate.cli.sources import engine_on, local_spark, read_release
from catalog_migrate.config import Settings
from catalog_migrate.errors import AdoptionRefused, Problem, UsageError
from catalog_migrate.model.names import ItemName, split_name
from catalog_migrate.model.paths import local_path
from catalog_migrate.model.wording import counted
from catalog_migrate.storage import is_remote, rows_directory

if TYPE_CHECKING:
    from catalog_migrate.administration.adoption import Adoption
    from catalog_migrate.administration.survey import LeftAlone, Wanted


def run(
    settings: Settings, schemas: Sequence[str], tables: Sequence[str], forget: Sequence[str], *,
    dry_run: bool, format_: str,
) -> None:
    """Adopt what is asked for (or say what would be) and print it as a table."""
    from catalog_migrate.administration.adoption import adopt, propose
    from catalog_migrate.catalog.store import default_warehouse, open_log

    if not schemas and not tables:
        raise UsageError(
            "nothing to adopt is named", remedy="add --schema S, or --table NAME[=PATH]"
        )
    uri = need(settings, "catalog.uri", "--catalog URI")
    if not is_remote(uri):
        uri = os.path.abspath(local_path(uri))
    log = open_log(uri, settings.storage)
    warehouse = rows_directory(settings.text("catalog.warehouse") or default_warehouse(log))
    release = read_release(settings)
    wanted, left = looked_up(settings, schemas, tables)
    if dry_run:
        found = propose(
            log, release, wanted, warehouse=warehouse, forgotten=forget, left_alone=left
        )
    else:
        found = adopt(
            log, release, wanted, warehouse=warehouse, forgotten=forget, left_alone=left,
            wait=settings.number("bootstrap.timeout"),
        )
    emit(as_json(summary(found)) if format_ == "json" else text(found))


def looked_up(
    settings: Settings, schemas: Sequence[str], tables: Sequence[str]
) -> tuple[list[Wanted], list[LeftAlone]]:
    """The tables that were asked for, with where they lie; Spark starts only for names."""
    from catalog_migrate.administration.survey import Wanted, registered

    wanted: list[Wanted] = []
    left: list[LeftAlone] = []
    named: list[ItemName] = []
    for entry in tables:
        name, equals, path = entry.partition("=")
        item = _item(name)
        if equals:
            wanted.append(Wanted(item, path if "://" in path else rows_directory(path), "path"))
        else:
            named.append(item)
    if not schemas and not named:
        return wanted, left
    problems: list[Problem] = []
    with local_spark(settings) as spark:
        engine = engine_on(spark, settings)
        for schema in schemas:
            tables_there, others = registered(engine.observe(schema), asked=False)
            wanted += tables_there
            left += others
            if not tables_there and not others:
                problems.append(Problem(
                    "CM0819", f"the schema {schema} has nothing in it",
                    remedy="is spark.metastore the right one?",
                ))
        for item in named:
            standing = [each for each in engine.observe(item.schema)
                        if each.kind == "table" and each.name.folded == item.folded]
            if not standing:
                problems.append(Problem(
                    "CM0819", f"Spark's catalog has no table {item}",
                    remedy=f"say where it lies: --table {item}=PATH",
                ))
            wanted += registered(standing, asked=True)[0]
    if problems:
        raise AdoptionRefused(
            f"{counted(len(problems), 'name')} could not be found; nothing was adopted",
            problems=problems, remedy="do what is written below each",
        )
    return wanted, left


def _item(text: str) -> ItemName:
    schema, name = split_name(text)
    if schema is None:
        raise UsageError(f"{text!r} has no schema", remedy="write schema.name")
    return ItemName(schema, name)


def summary(found: Adoption) -> dict[str, object]:
    """An adoption for programs."""
    return {
        "adopted": found.serial is not None,
        "serial": found.serial,
        "tables": [
            {"name": each.name, "path": each.path, "registration": each.registration,
             "rows": each.rows if each.rows >= 0 else None, "bytes": each.size,
             "first_migration": each.first}
            for each in found.prospects
        ],
        "left_alone": [
            {"name": str(each.name), "reason": each.reason} for each in found.left_alone
        ],
    }


def text(found: Adoption) -> str:
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
