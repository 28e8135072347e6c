"""The rows of a POSTGRES source's tables, copied once; its changes follow from there.

The first start makes the slot and copies the rows that stand under the slot's snapshot into files
beside the checkpoint; a manifest is written behind them, and then that they count
(:class:`Attempt`). They go into the tables once, each under a transaction of its own, and only then
the stream begins. A start that is killed before drops its slot and begins anew; behind it, it goes
on from the files.

An unsafe operation asks for another snapshot by its number. One of all tables is as the first: the
slot is made anew and the stream begins there. One of some tables is read under a slot that lasts as
long as that takes, and the stream goes on where it was: a mirror passes over what is older than a
row, and among CHANGES each still stands once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from uuid import uuid4

import msgspec

from catalog_migrate.connectors.postgres.snapshot import (
    MANIFEST,
    Manifest,
    StagedTable,
    read_manifest,
)
from catalog_migrate.connectors.postgres.types import Column, DiscoveredTable, Expected, Position
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.errors import EngineFailure, SlotInUse, TableChanged
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_ATTEMPT,
    SNAPSHOT_LOADED,
    columns_gone,
    is_mirror,
)
from catalog_migrate.streams.upstreams.databases import Databases

_TELL = 10.0
"""Seconds between two words about a snapshot under way."""

Load = Callable[[OutputTable, StagedTable, list[str], Position], None]
"""Puts the rows of files, as a table upstream had them at a position, into ours, once."""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose turn it is to copy: into which folder, from which server, and, once all rows are there,
    that they are.

    It is written before the folder and the ``slot`` are made (a slot that goes with the copy is not
    named), and only over the attempt that was read: who was overtaken cannot say any more that its
    rows count. ``copied`` is behind which LSN the changes of each table (``schema.table``) follow
    its rows, where the stream goes on from an earlier one.
    """

    folder: str
    system: str
    slot: str = ""
    staged: bool = False
    copied: dict[str, int] = {}


def take(
    spec: QuerySpec, databases: Databases, load: Load, say: Callable[[str], None],
    alive: Callable[[], None], on_wait: Callable[[str], None] = lambda _: None,
) -> Position:
    """Where the changes begin, with every row of before in the tables.

    ``say`` hears of the snapshot, ``alive`` raises when it is to be given up, ``on_wait`` hears
    which open transaction a new slot waits for (an empty text: for none any more). Takes minutes
    for large tables at the first start; later ones read one small file. Raises ConnectionFailed,
    and the errors of :mod:`catalog_migrate.connectors.postgres.sessions`.
    """
    store = store_at(spec.snapshot)
    loaded = _loaded(store)
    if loaded is not None:
        _clear(store)
        return loaded
    # what goes on begins where it began: this counts for a source without a batch
    begun = stream_start(spec) if spec.snapshot_tables else None
    folder, manifest = _staged(spec, databases, store, say, alive, on_wait)
    by_name = {each.table: each for each in manifest.tables}
    for table in spec.tables:
        alive()
        staged = by_name.get(table.upstream.full_name)
        if staged is not None:
            places = [local_path(store.place(f"{folder}/{each}")) for each in staged.files]
            load(table, staged, places, manifest.position)
    begins = begun or manifest.position
    counted = sum(each.rows for each in manifest.tables)
    say(
        f"source {spec.name}: the {counted:,} rows of its snapshot are in, changes follow from"
        f" {begins}"
    )
    if not store.put_if_absent(SNAPSHOT_LOADED, begins.json().encode()):
        begins = _loaded(store) or begins
    _clear(store)
    return begins


def _loaded(store: Store) -> Position | None:
    try:
        return Position.of(store.read(SNAPSHOT_LOADED).decode())
    except FileNotFoundError:
        return None


def awaits_snapshot(spec: QuerySpec) -> bool:
    """Return whether a POSTGRES source has not taken its newest snapshot yet."""
    return not store_at(spec.snapshot).exists(SNAPSHOT_LOADED)


def has_begun(spec: QuerySpec) -> bool:
    """Whether a start of a POSTGRES source has begun with its newest snapshot: a process that was
    suspended in the copy may still say that its rows count."""
    return _newest(store_at(spec.snapshot)) is not None or not awaits_snapshot(spec)


def forget_uncopied(spec: QuerySpec) -> QuerySpec:
    """Leave the tables of a snapshot that was not begun out of what is on record: of them nothing
    can be missing."""
    if spec.survey is None or has_begun(spec):
        return spec
    tables = spec.snapshot_tables
    return dataclasses.replace(spec, survey=spec.survey.without(tables) if tables else None)


def still_to_copy(spec: QuerySpec, tables: Collection[str]) -> tuple[str, ...]:
    """``tables`` and those of a snapshot that was asked for and is not taken; none: all."""
    if not spec.snapshot_tables or not tables:
        return ()
    return tuple(sorted({*tables, *spec.snapshot_tables}))


def tables_to_copy(
    spec: QuerySpec, error: TableChanged, there: DiscoveredTable
) -> tuple[str, ...] | None:
    """The tables of the snapshot that a mirror needs with a change of columns; None for none.

    Rows from before a column was added have its default, or what it was generated from, and no
    change says so; nor does one say so of a column that has another name now.
    """
    table = next(each.upstream for each in spec.tables if each.upstream.full_name == error.table)
    known = {column.name for column in table.columns}
    new = {column.name for column in error.new} - known
    renamed = bool(columns_gone(error) and new)
    if not is_mirror(spec.external) or not (renamed or any(
        column.filled and column.name in new for column in there.published
    )):
        return None
    tables = (table.full_name,)
    return still_to_copy(spec, tables) if awaits_snapshot(spec) else tables


def stream_start(spec: QuerySpec) -> Position | None:
    """Where the changes began after the newest snapshot that is in the tables; None before it."""
    for number in range(spec.snapshot_number, 0, -1):
        loaded = _loaded(store_at(spec.snapshot_at(number)))
        if loaded is not None:
            return loaded
    return None


def expected(spec: QuerySpec) -> dict[str, Expected]:
    """Return the columns, and the oid, that each table upstream had when they were last looked at.

    A mirror passes over the changes from before its rows were copied: one of them may have been
    undone by what no change says, a partition that was truncated. CHANGES want every one.
    """
    keyed = is_mirror(spec.external)
    attempt = _newest(store_at(spec.snapshot)) if keyed and spec.snapshot_tables else None
    copied = attempt.copied if attempt is not None and attempt.staged else {}
    surveyed = spec.survey.tables if spec.survey is not None else ()
    oids = {table.name: table.oid for table in surveyed}
    return {
        table.upstream.full_name: Expected(
            tuple(
                Column(each.name, each.type_oid, each.modifier,
                       keyed and each.name in table.upstream.key, each.since, each.until)
                for each in table.upstream.columns
            ),
            "ignore" if spec.ignores_new_columns else "refuse",
            oids.get(table.upstream.full_name, 0), copied.get(table.upstream.full_name, 0),
        )
        for table in spec.tables
    }


def _staged(
    spec: QuerySpec, databases: Databases, store: Store, say: Callable[[str], None],
    alive: Callable[[], None], on_wait: Callable[[str], None],
) -> tuple[str, Manifest]:
    """The folder in which the rows stand, copied now unless an earlier start has done it."""
    attempt = _newest(store)
    if attempt is not None and attempt.staged:
        folder = attempt.folder
    else:
        folder = _stage(spec, databases, store, attempt, say, alive, on_wait)
    return folder, read_manifest(store.read(f"{folder}/{MANIFEST}"))


def _newest(store: Store) -> Attempt | None:
    try:
        return msgspec.json.decode(store.read(SNAPSHOT_ATTEMPT), type=Attempt)
    except FileNotFoundError:
        return None


def _put(store: Store, attempt: Attempt, over: Attempt | None) -> bool:
    """Write an attempt in the place of another; whether that was the newest."""
    data = msgspec.json.encode(attempt)
    if over is None:
        return store.put_if_absent(SNAPSHOT_ATTEMPT, data)
    try:
        found, tag = store.read_tagged(SNAPSHOT_ATTEMPT)
    except FileNotFoundError:
        return False
    return found == msgspec.json.encode(over) and store.put_if_match(SNAPSHOT_ATTEMPT, data, tag)


def _stage(
    spec: QuerySpec, databases: Databases, store: Store, before: Attempt | None,
    say: Callable[[str], None], alive: Callable[[], None], on_wait: Callable[[str], None],
) -> str:
    """Make the slot, and copy the rows under its snapshot into a new folder, in the place of an
    attempt that did not end."""
    tables = [
        table.upstream for table in spec.tables
        if not spec.snapshot_tables or table.upstream.full_name in spec.snapshot_tables
    ]
    there = databases.tables(
        spec.connection, [table.postgres_name for table in tables],
        publication=spec.publication, subject=f"source {spec.name}",
    )
    wanted = expected(spec)
    for table in there:
        require_taken_over(spec, databases, table, wanted[table.full_name])
    slot_name, temporary = spec.slot, bool(spec.snapshot_tables)
    folder = uuid4().hex
    store.make_folder(above=True)
    if temporary:
        slot_name = f"{spec.slot[:54]}_snapshot"
    here = databases.here(spec.connection)
    attempt = Attempt(folder, here.system, "" if temporary else spec.slot)
    if not _put(store, attempt, before):
        raise _overtaken(spec)
    if not temporary and (_made(before, attempt) or _made(_earlier(spec), attempt)):
        # of a start that was killed: nothing was read from it; of the stream of before: the
        # operation that asked for this snapshot has committed. One that others have made stays,
        # and so does that of who has overtaken this one: it is newer
        databases.drop_slot(spec.connection, spec.slot, confirmed_upto=here.lsn)
    say(
        f"source {spec.name}: copies the rows of {', '.join(each.full_name for each in there)}"
        f" under the snapshot of slot {slot_name}"
    )
    told = time.monotonic()

    def progress(table: str, rows: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            say(f"source {spec.name}: {rows:,} rows of {table} so far")

    def put(name: str, data: bytes) -> None:
        alive()
        store.put_all({f"{folder}/{name}": data})

    _clear(store, but=folder)
    try:
        databases.copy(
            spec.connection, there, put, slot=slot_name, temporary=temporary,
            publication=spec.publication, on_progress=progress, on_wait=on_wait,
        )
    except SlotInUse:
        if not temporary and _newest(store) == attempt:
            # it is somebody else's, and not of who has overtaken this one
            store.delete(SNAPSHOT_ATTEMPT)
        raise
    staged = msgspec.structs.replace(
        attempt, staged=True, copied=_copied(spec, store, folder) if temporary else {}
    )
    if not _put(store, staged, attempt):
        raise _overtaken(spec)
    return folder


def _copied(spec: QuerySpec, store: Store, folder: str) -> dict[str, int]:
    """Where the rows of tables were copied, by the newest snapshot that each is in."""
    manifest = read_manifest(store.read(f"{folder}/{MANIFEST}"))
    earlier: dict[str, int] = {}
    for number in range(spec.snapshot_number - 1, 0, -1):
        attempt = _newest(store_at(spec.snapshot_at(number)))
        if attempt is not None and attempt.staged:
            earlier = attempt.copied
            break
    return {**earlier, **{each.table: manifest.position.lsn for each in manifest.tables}}


def _overtaken(spec: QuerySpec) -> EngineFailure:
    return EngineFailure(
        f"another runtime takes the snapshot of source {spec.name}",
        condition="SNAPSHOT_OVERTAKEN", transient=True, remedy="it is used at the next try",
    )


def _made(other: Attempt | None, attempt: Attempt) -> bool:
    """Whether another attempt may have made the slot that this one is to make."""
    return other is not None and (other.system, other.slot) == (attempt.system, attempt.slot)


def _earlier(spec: QuerySpec) -> Attempt | None:
    """The newest attempt of an earlier snapshot that made a slot to stay."""
    for number in range(spec.snapshot_number - 1, 0, -1):
        attempt = _newest(store_at(spec.snapshot_at(number)))
        if attempt is not None and attempt.slot:
            return attempt
    return None


def _clear(store: Store, but: str = "") -> None:
    """Remove the rows of snapshots that are loaded, or that a killed start left behind.

    With ``but``, the folder of a start that goes on, that of the newest attempt stays too. Folders
    are listed first: an attempt is written before its folder is made.
    """
    folders = list(store.folders())
    newest = _newest(store) if but else None
    kept = {but, but if newest is None else newest.folder}
    for folder in folders:
        if folder not in kept:
            with suppress(FileNotFoundError):  # another runtime clears as well
                store_at(store.place(folder)).delete()


def require_taken_over(
    spec: QuerySpec, databases: Databases, table: DiscoveredTable, wanted: Expected
) -> None:
    """TableChanged when a table upstream has columns that its source has not taken over yet.

    What has gone since may be missing, what ``UPSTREAM COLUMNS = ignore`` leaves out may be there.
    """
    there = table.expected().columns
    forms = {column.name: (column.type_oid, column.modifier) for column in there}
    known = [column for column in wanted.columns if not column.until or column.name in forms]
    missing = [
        each for each in known if forms.pop(each.name, None) != (each.type_oid, each.modifier)
    ]
    if missing or (forms and wanted.new_columns == "refuse"):
        raise TableChanged(
            f"{table.full_name} has other columns than its changes had",
            table=table.full_name, old=tuple(wanted.columns), new=there,
            lsn=databases.here(spec.connection).lsn,
        )
