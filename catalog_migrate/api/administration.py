"""Adopt, export, relocate, rebuild: what an installation does besides following its releases."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.api.configured import (
    OnNote,
    catalog_uri,
    engine_on,
    find_rows_location,
    open_catalog,
    open_spark,
    read_release,
    unheard,
)
from catalog_migrate.catalog.opening import USUAL_SESSIONS, default_warehouse
from catalog_migrate.catalog.opening import SessionSettings as SessionSettings
from catalog_migrate.config import Settings
from catalog_migrate.errors import AdoptionRefused, Problem, UsageError
from catalog_migrate.model.names import ItemName, split_name
from catalog_migrate.model.wording import counted
from catalog_migrate.store.address import is_remote, local_path, rows_address

if TYPE_CHECKING:
    from catalog_migrate.administration.adoption import Adoption, AdoptionRequest, LeftAlone
    from catalog_migrate.administration.export import Exported
    from catalog_migrate.administration.rebuild import Rebuilt
    from catalog_migrate.administration.relocation import Relocation
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.engine.port import Engine, Registration


def adopt(
    settings: Settings, *, schemas: Sequence[str] = (), tables: Sequence[str] = (),
    forget: Sequence[str] = (), dry_run: bool = False, on_note: OnNote = unheard,
) -> Adoption:
    """Take existing Delta tables that the configured release describes over where they lie.

    ``schemas`` name every table in them, ``tables`` are ``schema.name`` or ``schema.name=PATH``;
    Spark starts only where a name has no path. ``forget`` are lineages whose catalogs are lost for
    good, so that their tables may be taken. ``dry_run`` says what would be adopted.

    Raises AdoptionRefused with every reason, AdoptedElsewhere, LeaseHeld; nothing is adopted then.
    """
    from catalog_migrate.administration import adoption
    from catalog_migrate.catalog.opening import open_log

    if not schemas and not tables:
        raise UsageError(
            "nothing to adopt is named", remedy="add --schema S, or --table NAME[=PATH]"
        )
    uri = catalog_uri(settings)
    if not is_remote(uri):
        uri = os.path.abspath(local_path(uri))
    log = open_log(uri, settings.storage)
    warehouse = _warehouse(settings, log)
    release = read_release(settings)
    wanted, left = _look_up(settings, schemas, tables, on_note)
    if dry_run:
        return adoption.propose(
            log, release, wanted, warehouse=warehouse, forgotten=forget, left_alone=left
        )
    return adoption.adopt(
        log, release, wanted, warehouse=warehouse, forgotten=forget, left_alone=left,
        wait=settings.number("bootstrap.timeout"),
    )


def registrations_sql(settings: Settings) -> str:
    """Every object in force as SQL of plain registrations; changes nothing and needs no Spark."""
    from catalog_migrate.administration.export import registrations_sql

    return registrations_sql(open_catalog(settings).state())


def export(
    settings: Settings, *, confirm: Callable[[], bool] | None = None, on_note: OnNote = unheard
) -> Exported | None:
    """Make every name in Spark's catalog plain and close the durable catalog for good.

    None when ``confirm`` says no. UsageError where names end with the session; raises also
    CatalogMoved, NotSettled, LeaseHeld.
    """
    from catalog_migrate.administration.export import export_catalog

    catalog = open_catalog(settings, write=True)
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        if not engine.persistent_names:
            raise UsageError(
                "names end with the session here, so an export would last a moment",
                remedy="set spark.metastore, or use --sql FILE",
            )
        if confirm is not None and not confirm():
            return None
        return export_catalog(engine, catalog.log, wait=settings.number("bootstrap.timeout"))


def relocate(
    settings: Settings, *, warehouse: str | None = None, tables: Iterable[str] = (),
    new_lineage: bool = False, names_too: bool = False, dry_run: bool = False,
) -> Relocation:
    """Tell a catalog that it, or its ``warehouse``, lies somewhere else now.

    ``tables`` are ``schema.name=PATH``: where adopted tables lie now. ``new_lineage`` makes a copy
    an installation of its own, ``names_too`` says that its metastore is a copy as well. Raises
    RelocationRefused with every reason; nothing was changed then.
    """
    from catalog_migrate.administration import relocation

    if names_too and not new_lineage:
        raise UsageError("--names-too belongs to --new-lineage", remedy="leave it out")
    places = _places(tables, settings.untried_stores)
    catalog = open_catalog(settings, write=not dry_run)
    return relocation.relocate(
        catalog.log, warehouse=None if warehouse is None
        else rows_address(warehouse, settings.untried_stores),
        new_lineage=new_lineage, names_copied=names_too, tables=places, dry_run=dry_run,
        wait=settings.number("bootstrap.timeout"),
    )


def move_own_views(settings: Settings, schema: str) -> str | None:
    """Have our own views in another schema from the next start on; returns where they are now.

    Two installations in one session, or on one metastore, that have the same one need it. Raises
    UsageError for a schema that is not reserved for them, and LeaseHeld.
    """
    from catalog_migrate.administration import relocation

    catalog = open_catalog(settings, write=True)
    return relocation.move_own_views(
        catalog.log, schema, wait=settings.number("bootstrap.timeout")
    )


def rebuild(
    settings: Settings, *, tables: Iterable[str] = (), missing: Collection[str] = (),
    lineage: str | None = None, schemas: Sequence[str] = (),
    sessions: SessionSettings = USUAL_SESSIONS, dry_run: bool = False, on_note: OnNote = unheard,
) -> Rebuilt:
    """Make a lost catalog again from its shards and the configured release, which was in force.

    ``tables`` are ``schema.name=PATH``, ``missing`` tables without rows, ``lineage`` chooses among
    several installations. Names that still stand in ``schemas`` are looked at, which starts Spark.
    ``sessions`` are taken for those of its sessions. Raises RebuildRefused with every question;
    nothing was written then.
    """
    from catalog_migrate.administration import rebuild as rebuilding
    from catalog_migrate.catalog.delta_log import DeltaLog

    given = catalog_uri(settings)
    if is_remote(given):
        raise UsageError(
            f"the catalog {given} is on an object store, where a lost log cannot be moved away",
            remedy="restore the objects below it from a backup or by the store's own versions",
        )
    places = _places(tables, settings.untried_stores)
    standing: list[Registration] = []
    if schemas:
        with open_spark(settings, on_note) as spark:
            engine = engine_on(spark, settings)
            for schema in schemas:
                standing += engine.observe(schema)
    log = DeltaLog(os.path.abspath(given))
    return rebuilding.rebuild(
        log, read_release(settings), warehouse=_warehouse(settings, log),
        answers=rebuilding.Answers(places, missing, lineage), registrations=standing,
        sessions=sessions, dry_run=dry_run,
    )


def _warehouse(settings: Settings, log: CatalogLog) -> str:
    return find_rows_location(settings) or rows_address(
        default_warehouse(log), settings.untried_stores
    )


def _look_up(
    settings: Settings, schemas: Sequence[str], tables: Sequence[str], on_note: OnNote
) -> tuple[list[AdoptionRequest], list[LeftAlone]]:
    """The tables that were asked for, with where they lie; Spark starts only for names."""
    from catalog_migrate.administration.adoption import AdoptionRequest, sort_registrations

    wanted: list[AdoptionRequest] = []
    left: list[LeftAlone] = []
    named: list[ItemName] = []
    for entry in tables:
        name, equals, path = entry.partition("=")
        item = _item(name)
        if equals:
            address = rows_address(path, settings.untried_stores)
            wanted.append(AdoptionRequest(item, address, "path"))
        else:
            named.append(item)
    if not schemas and not named:
        return wanted, left
    problems: list[Problem] = []
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        for schema in schemas:
            found, others = sort_registrations(engine.observe(schema), asked=False)
            wanted += found
            left += others
            if not found and not others:
                problems.append(Problem(
                    "CM0819", f"the schema {schema} has nothing in it",
                    remedy="is spark.metastore the right one?",
                ))
        for item in named:
            standing = _tables_of(engine, item)
            wanted += sort_registrations(standing, asked=True)[0]
            if not standing:
                problems.append(Problem(
                    "CM0819", f"Spark's catalog has no table {item}",
                    remedy=f"say where it lies: --table {item}=PATH",
                ))
    for each in wanted:
        rows_address(each.path, settings.untried_stores)
    if problems:
        raise AdoptionRefused(
            f"{counted(len(problems), 'name')} could not be found; nothing was adopted",
            problems=problems, remedy="do what is written below each",
        )
    return wanted, left


def _tables_of(engine: Engine, item: ItemName) -> list[Registration]:
    return [
        each for each in engine.observe(item.schema)
        if each.kind == "table" and each.name.folded == item.folded
    ]


def _item(text: str) -> ItemName:
    schema, name = split_name(text)
    if schema is None:
        raise UsageError(f"{text!r} has no schema", remedy="write schema.name")
    return ItemName(schema, name)


def _places(tables: Iterable[str], untried: Collection[str]) -> dict[str, str]:
    """Where tables lie, from ``NAME=PATH``; UsageError for one that is named twice."""
    places: dict[str, str] = {}
    for entry in tables:
        name, equals, path = entry.partition("=")
        if not equals:
            raise UsageError(f"{entry!r} has no path", remedy="write --table schema.name=PATH")
        if name in places:
            raise UsageError(f"--table {name} is given twice", remedy="leave one of them out")
        places[name] = rows_address(path, untried)
    return places
