"""A source on PostgreSQL: its snapshot, taken once, and its changes from there on.

The first start makes the slot and copies the rows that stand under the slot's snapshot into files
beside the checkpoint; a manifest written behind them proves that they are whole. They go into the
tables once, each under a transaction of its own, and only then the stream begins. A start that is
killed before the manifest drops its slot and begins anew; behind it, it goes on from the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from catalog_migrate.errors import EngineFailure
from catalog_migrate.replication.errors import SlotInUse, TableChanged
from catalog_migrate.replication.position import Position
from catalog_migrate.replication.server import create_slot, discover, drop_slot
from catalog_migrate.replication.snapshot import MANIFEST, Manifest, read_manifest, stage
from catalog_migrate.replication.types import Column, Expected, UpstreamTable
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark.batches import append_once
from catalog_migrate.streams.spark.postgres_changes import changes
from catalog_migrate.streams.spark.postgres_writer import changes_rows, snapshot_rows
from catalog_migrate.streams.upstream_tables import SNAPSHOT_LOADED, is_mirror, snapshot_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGED = "staged"
"""Name of the file that names the folder with every row of the snapshot."""
_SLOT = "slot"
"""Name of the file that says, before the slot is made, that one of its name is ours."""
_TELL = 10.0
"""Seconds between two words about a snapshot under way."""
_HEARTBEAT = 300.0
"""Seconds after which an idle slot is moved on: a standby keeps only a slot that moves."""


def begin(
    spark: SparkSession, spec: QuerySpec, say: Callable[[str], None] = lambda _: None
) -> Position:
    """Where the changes begin, with every row of before in the tables.

    ``say`` hears of the snapshot. Takes minutes for large tables at the first start; later ones
    read one small file. Raises ConnectionFailed, and the errors of
    :mod:`catalog_migrate.replication.errors`.
    """
    store = store_at(spec.snapshot)
    with suppress(FileNotFoundError):
        position = Position.of(store.read(SNAPSHOT_LOADED).decode())
        _clear(store)
        return position
    folder, manifest = _staged(spec, store, say)
    mirror = is_mirror(spec.external)
    by_name = {each.table: each for each in manifest.tables}
    for table in spec.tables:
        files = by_name[table.upstream.full_name].files
        if not files:
            continue
        rows = spark.read.parquet(*(local_path(store.place(f"{folder}/{each}")) for each in files))
        append_once(
            snapshot_rows(rows, table) if mirror else changes_rows(rows, table),
            local_path(table.shard), snapshot_app(spec.item_id), 1,
        )
    counted = sum(each.rows for each in manifest.tables)
    say(
        f"source {spec.name}: the {counted:,} rows of its snapshot are in, changes follow from"
        f" {manifest.position}"
    )
    store.put_if_absent(SNAPSHOT_LOADED, manifest.position.json().encode())
    _clear(store)
    return manifest.position


def change_stream(spark: SparkSession, spec: QuerySpec, start: Position) -> DataFrame:
    """The changes of the source's tables; ``start`` counts until there is a checkpoint."""
    return changes(
        spark, spec.connection, slot=spec.slot, publication=_publication(spec),
        tables=expected(spec), start=start, heartbeat=_HEARTBEAT,
    )


def expected(spec: QuerySpec) -> dict[str, Expected]:
    """The columns that each table upstream had when they were last looked at."""
    keyed = is_mirror(spec.external)
    return {
        table.upstream.full_name: Expected(
            tuple(
                Column(each.name, each.type_oid, each.modifier,
                       keyed and each.name in table.upstream.key, each.since, each.until)
                for each in table.upstream.columns
            ),
            "ignore" if spec.ignores_new_columns else "refuse",
        )
        for table in spec.tables
    }


def _staged(
    spec: QuerySpec, store: Store, say: Callable[[str], None]
) -> tuple[str, Manifest]:
    """The folder in which the rows stand, copied now unless an earlier start has done it."""
    try:
        folder = store.read(_STAGED).decode()
    except FileNotFoundError:
        folder = _stage(spec, store, say)
    return folder, read_manifest(store.read(f"{folder}/{MANIFEST}"))


def _stage(spec: QuerySpec, store: Store, say: Callable[[str], None]) -> str:
    """Make the slot, and copy the rows under its snapshot into a new folder."""
    names = [table.upstream.postgres_name for table in spec.tables]
    there = discover(
        spec.connection, names, publication=_publication(spec), subject=f"source {spec.name}"
    )
    wanted = expected(spec)
    for table in there:
        require_expected(table, wanted[table.full_name])
    folder = uuid4().hex
    store.make_folder(folder, above=True)
    if not store.put_if_absent(_SLOT, spec.slot.encode()):
        # of a start that was killed: nothing was read from it; one that others have made stays
        drop_slot(spec.connection, spec.slot)
    say(
        f"source {spec.name}: copies the rows of {', '.join(each.full_name for each in there)}"
        f" under the snapshot of slot {spec.slot}"
    )
    told = time.monotonic()

    def progress(table: str, rows: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            say(f"source {spec.name}: {rows:,} rows of {table} so far")

    _clear(store, but=folder)
    try:
        with create_slot(spec.connection, spec.slot) as slot:
            stage(
                spec.connection, slot, there,
                lambda name, data: store.put_all({f"{folder}/{name}": data}),
                publication=_publication(spec), on_progress=progress,
            )
    except SlotInUse:
        store.delete(_SLOT)  # it is somebody else's
        raise
    if not store.put_if_absent(_STAGED, folder.encode()):
        raise EngineFailure(
            f"another runtime has taken the snapshot of source {spec.name} meanwhile",
            condition="SNAPSHOT_TAKEN", transient=True, remedy="it is used at the next try",
        )
    return folder


def _clear(store: Store, but: str = "") -> None:
    """Remove the rows of snapshots that are loaded, or that a killed start left behind.

    With ``but``, the folder of a start that goes on, the one that counts by now stays too: another
    runtime may have staged it while this one was stopped.
    """
    kept = {but}
    if but:
        with suppress(FileNotFoundError):
            kept.add(store.read(_STAGED).decode())
    for folder in store.folders():
        if folder not in kept:
            store_at(store.place(folder)).delete()


def require_expected(table: UpstreamTable, wanted: Expected) -> None:
    """TableChanged when a table upstream has not the columns that it had at CREATE SOURCE."""
    there = table.expected(keyed=False).columns
    known = tuple(
        msgspec.structs.replace(column, key=False, since=0, until=0) for column in wanted.columns
    )
    if there != known:
        raise TableChanged(
            f"{table.full_name} has other columns than when the source was created",
            table=table.full_name, old=known, new=there,
            remedy="drop the source and create it again: nothing was read yet",
        )


def _publication(spec: QuerySpec) -> str:
    return str(spec.external.options["PUBLICATION"])
