"""Opens, creates and reads a catalog; whether it may be worked on."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple
from uuid import uuid4

from catalog_migrate.catalog.log import CatalogLog, LogRow
from catalog_migrate.catalog.records import FIRST_FORMAT, AllocatorRecord, ConfigRecord
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.delta.log import has_log
from catalog_migrate.errors import CatalogExported, CatalogMoved, CommitConflict, UsageError
from catalog_migrate.store import store_at
from catalog_migrate.store.address import (
    Storage,
    catalog_address,
    is_remote,
    is_same_bucket,
    is_same_place,
    remember,
    storage_of,
)
from catalog_migrate.store.object_store import require_fit

HOME = "home"
"""Setting: the directory that this catalog is at home in; a copy is opened somewhere else."""
EXPORTED = "given_back"
"""Setting: ``pending`` from the moment that an export begins, ``done`` when it has ended."""


def open_log(uri: str | PathLike[str], storage: Storage | None = None) -> CatalogLog:
    """Return the log of the catalog at ``uri``; nothing is read or written yet.

    ``uri`` is a directory or an address on an object store, whose options are ``storage``. The log
    itself is the Delta table ``<uri>/log``, heartbeats are in ``<uri>/renewals``. UsageError for an
    address or options that cannot keep a catalog.
    """
    from catalog_migrate.catalog.delta_log import DeltaLog

    address = catalog_address(uri)
    if storage is not None:
        remember(address, storage)
    return DeltaLog(address, storage)


class SessionSettings(NamedTuple):
    """What a view keeps of the session that creates it: all sessions of a catalog have the same."""

    ansi: bool = True
    time_zone: str = "UTC"


USUAL_SESSIONS = SessionSettings()
"""Those of a session that is not set up otherwise."""


def first_settings(
    log: CatalogLog, warehouse: str, sessions: SessionSettings, *, lineage: str, serial: int = 0
) -> dict[str, str]:
    """Return the settings that a catalog begins with, by their names on record."""
    settings = {
        "format_version": str(FIRST_FORMAT), "lineage": lineage, "serial": str(serial),
        "warehouse": warehouse, "ansi": "true" if sessions.ansi else "false",
        "time_zone": sessions.time_zone,
    }
    return settings if log.home is None else {**settings, HOME: log.home}


def first_rows(state: State) -> list[LogRow]:
    """Return what a log begins with."""
    return [LogRow(*row, 1) for row in state.rows]


def create_catalog(
    log: CatalogLog, *, warehouse: str, sessions: SessionSettings = USUAL_SESSIONS
) -> State:
    """Create an empty catalog and return its state.

    ``warehouse`` is the absolute directory or URI that shards lie under; ``sessions`` are set on
    every session, so that no hash depends on one. Raises
    :class:`CommitConflict` when there is a catalog already,
    :class:`NotACatalog` when something else is there, StoreFailure when the store of the rows does
    not answer or has no such bucket, and when one cannot keep commits.
    """
    from catalog_migrate.catalog.check import check

    require_rows_address(log, warehouse)
    if log.exists():
        raise CommitConflict(
            f"there is a catalog at {log.uri} already", remedy="use it, or choose another place"
        )
    if is_remote(warehouse) and not is_same_bucket(warehouse, log.uri):
        require_fit(warehouse, storage_of(warehouse))
    settings = first_settings(log, warehouse, sessions, lineage=uuid4().hex)
    raw = {
        "config": {
            key: encode_record(ConfigRecord(value=value)) for key, value in settings.items()
        },
        "allocator": {key: encode_record(AllocatorRecord(next=1)) for key in ("i", "s", "u")},
    }
    state = State(0, raw)
    check(state)
    return state.at(log.create(first_rows(state), commit_id=uuid4().hex))


def default_warehouse(log: CatalogLog) -> str:
    """Where rows are when nobody says it: beside a catalog on files, else where the catalog says.

    UsageError for a catalog that is to be made on an object store: that every Spark session reaches
    the rows there is for people to say.
    """
    if not is_remote(log.uri):
        return f"{log.uri.rstrip('/')}/warehouse"
    if log.exists():
        return read_state(log).setting("warehouse")
    raise UsageError(
        f"the catalog {log.uri} is on an object store, so where are the rows kept?",
        remedy="give --warehouse an s3:// or s3a:// address that every Spark session reads, or a"
        " directory that every Spark process sees",
    )


def require_rows_address(log: CatalogLog, warehouse: str) -> None:
    """StoreFailure or UsageError for rows that are to lie where no store takes or keeps them.

    Asked once, before the catalog is made: a bucket that is missing, a store that does not answer,
    a prefix that is a table itself.
    """
    if not is_remote(warehouse):
        return
    remember(warehouse, log.storage)
    log.storage.refuse_unsafe(warehouse)
    any(store_at(warehouse).names())  # asks, and raises
    if has_log(warehouse):
        raise UsageError(
            f"rows cannot be kept below {warehouse}: it is a Delta table itself",
            remedy="name another prefix, or adopt the table (catalog-migrate init --adopt)",
        )


def require_warehouse(state: State, warehouse: str | None) -> None:
    """UsageError where the rows are below another directory than the one that was asked for."""
    stored = state.setting("warehouse")
    if warehouse is None or warehouse.rstrip("/") == stored.rstrip("/"):
        return
    if not (is_remote(stored) and is_same_place(warehouse, stored)):
        raise UsageError(
            f"this catalog's shards are below {stored}, not {warehouse}",
            remedy="leave --warehouse (or catalog.warehouse) out, or name the same directory",
        )


def read_state(log: CatalogLog) -> State:
    """Return the newest committed state; not one byte is written.

    Raises CatalogNotFound, NotACatalog, CatalogCorrupt, and UnsupportedFormat for a catalog that
    a newer tool wrote.
    """
    return log.read()


def require_in_use(state: State, log: CatalogLog) -> None:
    """Raise :class:`CatalogMoved` when the catalog was made elsewhere: a copy, or moved.

    A copy with the same lineage would work on the rows of the installation that it was copied
    from. Raises :class:`CatalogExported` after an export. Reading is free.
    """
    refuse_exported(state, log)
    require_at_home(state, log)


def refuse_exported(state: State, log: CatalogLog) -> None:
    """Raise :class:`CatalogExported` after an export, or when one has begun."""
    if EXPORTED in state.config:
        raise CatalogExported(
            f"the tables of the catalog at {log.uri} were exported as plain registrations",
            remedy="adopt them into a new catalog: catalog-migrate init --adopt; "
            "an export that was cut off is finished by catalog-migrate export",
        )


def is_at_home(state: State, log: CatalogLog) -> bool:
    """Return whether the catalog lies where it was made or moved to, as far as it has a place."""
    home = state.home
    return home is None or log.home is None or is_same_place(home, log.home)


def require_at_home(state: State, log: CatalogLog) -> None:
    """Raise :class:`CatalogMoved` when the catalog was made elsewhere: a copy, or moved."""
    if is_at_home(state, log):
        return
    there, here = state.home, log.home
    raise CatalogMoved(
        f"the catalog at {here} is at home in {there}: it was moved or copied",
        remedy=f"moved: catalog-migrate relocate --catalog {here}; "
        "a copy beside the original: add --new-lineage",
        home=there, here=here, lineage=state.lineage,
    )
