"""A source on PostgreSQL: its snapshot, taken once, and its changes from there on.

The first start makes the slot and copies the rows that stand under the slot's snapshot into files
beside the checkpoint; a manifest written behind them proves that they are whole. They go into the
tables once, each under a transaction of its own, and only then the stream begins. A start that is
killed before the manifest drops its slot and begins anew; behind it, it goes on from the files.

An unsafe operation asks for another snapshot by its number. One of all tables is as the first: the
slot is made anew and the stream begins there. One of some tables is read under a slot that lasts as
long as that takes, and the stream goes on where it was: a mirror passes over what is older than a
row, and among CHANGES each still stands once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.replication.errors import SlotInUse, TableChanged
from catalog_migrate.replication.position import Position
from catalog_migrate.replication.server import (
    create_slot,
    discover,
    drop_slot,
    identity,
    log_end,
)
from catalog_migrate.replication.sessions import session
from catalog_migrate.replication.snapshot import (
    MANIFEST,
    Manifest,
    StagedTable,
    read_manifest,
    stage,
)
from catalog_migrate.replication.types import Column, DiscoveredTable, Expected
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.queries import OutputTable, QuerySpec
from catalog_migrate.streams.spark.batches import append_once
from catalog_migrate.streams.spark.postgres_changes import changes, snapshot_files
from catalog_migrate.streams.spark.postgres_writer import (
    CHANGES,
    changes_rows,
    merge_once,
    snapshot_merge_statement,
    snapshot_rows,
)
from catalog_migrate.streams.spark.settings import query_session
from catalog_migrate.streams.upstream_tables import (
    SLOT_MADE,
    SNAPSHOT_LOADED,
    is_mirror,
    keeps_deleted,
    snapshot_app,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGED = "staged"
"""Name of the file that names the folder with every row of the snapshot."""
_TELL = 10.0
"""Seconds between two words about a snapshot under way."""
_BATCH = 256 << 20
"""Bytes of log that a batch covers: the server decodes all of them before it sends the first
change, which its patience bounds. A larger transaction comes whole."""
_PATIENCE = 1800.0
"""Seconds that the server may take for that: a batch that is begun is read again as it is."""
_HEARTBEAT = 300.0
"""Seconds after which an idle slot is moved on: a standby keeps only a slot that moves."""


def begin(
    spark: SparkSession, spec: QuerySpec, say: Callable[[str], None] = lambda _: None,
    alive: Callable[[], None] = lambda: None,
) -> Position:
    """Where the changes begin, with every row of before in the tables.

    ``say`` hears of the snapshot, ``alive`` raises when it is to be given up. Takes minutes for
    large tables at the first start; later ones read one small file. Raises ConnectionFailed, and
    the errors of :mod:`catalog_migrate.replication.errors`.
    """
    store = store_at(spec.snapshot)
    with suppress(FileNotFoundError):
        position = Position.of(store.read(SNAPSHOT_LOADED).decode())
        _clear(store)
        return position
    # what goes on begins where it began: this counts for a source without a batch
    begun = stream_start(spec) if spec.snapshot_tables else None
    folder, manifest = _staged(spec, store, say, alive)
    by_name = {each.table: each for each in manifest.tables}
    # the settings of a MERGE would count for whatever starts beside it
    spark = query_session(spark)
    for table in spec.tables:
        alive()
        staged = by_name.get(table.upstream.full_name)
        if staged is not None:
            places = [local_path(store.place(f"{folder}/{each}")) for each in staged.files]
            rows = placed(snapshot_files(spark, places), table, staged)
            load(rows, spec, table, manifest.position)
    begins = begun or manifest.position
    counted = sum(each.rows for each in manifest.tables)
    say(
        f"source {spec.name}: the {counted:,} rows of its snapshot are in, changes follow from"
        f" {begins}"
    )
    store.put_if_absent(SNAPSHOT_LOADED, begins.json().encode())
    _clear(store)
    return begins


def stream_start(spec: QuerySpec) -> Position | None:
    """Where the changes began after the newest snapshot that is in the tables; None before it."""
    for number in range(spec.snapshot_number, 0, -1):
        with suppress(FileNotFoundError):
            return Position.of(store_at(spec.snapshot_at(number)).read(SNAPSHOT_LOADED).decode())
    return None


def load(rows: DataFrame, spec: QuerySpec, table: OutputTable, at: Position) -> None:
    """The rows of a snapshot into a table of ours, once; a mirror becomes what they are."""
    path, app = local_path(table.shard), snapshot_app(spec.item_id)
    if not is_mirror(spec.external):
        append_once(changes_rows(rows, table), path, app, spec.snapshot_number)
    elif spec.snapshot_number == 1:
        _require_empty(rows.sparkSession, table, path, app)
        append_once(snapshot_rows(rows, table), path, app, 1)
    else:
        merge_once(
            snapshot_rows(rows, table),
            snapshot_merge_statement(
                table, f"delta.{quote_sql(path)}", CHANGES, at.lsn,
                soft=keeps_deleted(spec.external),
            ),
            app, spec.snapshot_number,
        )


def _require_empty(spark: SparkSession, table: OutputTable, path: str, app: str) -> None:
    """EngineFailure for a table with rows before the first ones of a mirror, whose keys would
    stand twice."""
    if load_table(path).transaction_version(app) is not None:
        return  # an earlier start has put them there
    if not spark.read.format("delta").load(path).isEmpty():
        raise EngineFailure(
            f"table {table.name} has rows already, and a mirror begins with those of its upstream",
            condition="TABLE_NOT_EMPTY",
            remedy="DELETE them, or drop the source and create it with another table: TABLES (t AS"
            " other)",
        )


def placed(rows: DataFrame, table: OutputTable, staged: StagedTable) -> DataFrame:
    """Rows of a snapshot with their values in the places that our columns of upstream have."""
    there = {name: place for place, name in enumerate(staged.columns)}
    values = ", ".join(
        f"get(after, {there[each.name]})" if each.name in there else "CAST(NULL AS STRING)"
        for each in table.upstream.columns
    )
    return rows.withColumn("after", F.expr(f"array({values})"))


def change_stream(spark: SparkSession, spec: QuerySpec, start: Position) -> DataFrame:
    """The changes of the source's tables; ``start`` counts until there is a checkpoint."""
    return changes(
        spark, spec.connection, slot=spec.slot, publication=_publication(spec),
        tables=expected(spec), start=start, max_bytes=_BATCH, heartbeat=_HEARTBEAT,
        timeout=_PATIENCE,
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
    spec: QuerySpec, store: Store, say: Callable[[str], None], alive: Callable[[], None]
) -> tuple[str, Manifest]:
    """The folder in which the rows stand, copied now unless an earlier start has done it."""
    try:
        folder = store.read(_STAGED).decode()
    except FileNotFoundError:
        folder = _stage(spec, store, say, alive)
    return folder, read_manifest(store.read(f"{folder}/{MANIFEST}"))


def _stage(
    spec: QuerySpec, store: Store, say: Callable[[str], None], alive: Callable[[], None]
) -> str:
    """Make the slot, and copy the rows under its snapshot into a new folder."""
    tables = [
        table.upstream for table in spec.tables
        if not spec.snapshot_tables or table.upstream.full_name in spec.snapshot_tables
    ]
    there = discover(
        spec.connection, [table.postgres_name for table in tables],
        publication=_publication(spec), subject=f"source {spec.name}",
    )
    wanted = expected(spec)
    for table in there:
        require_taken_over(spec, table, wanted[table.full_name])
    slot_name, temporary = spec.slot, bool(spec.snapshot_tables)
    folder = uuid4().hex
    store.make_folder(folder, above=True)
    if temporary:
        slot_name = f"{spec.slot[:54]}_snapshot"
    elif not store.put_if_absent(SLOT_MADE, spec.slot.encode()) or _was_ours(spec):
        # of a start that was killed: nothing was read from it; of the stream of before: the
        # operation that asked for this snapshot has committed. One that others have made stays
        drop_slot(spec.connection, spec.slot)
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
        with create_slot(spec.connection, slot_name, temporary=temporary) as slot:
            stage(
                spec.connection, slot, there, put,
                publication=_publication(spec), on_progress=progress,
            )
    except SlotInUse:
        if not temporary:
            store.delete(SLOT_MADE)  # it is somebody else's
        raise
    if not store.put_if_absent(_STAGED, folder.encode()):
        raise EngineFailure(
            f"another runtime has taken the snapshot of source {spec.name} meanwhile",
            condition="SNAPSHOT_TAKEN", transient=True, remedy="it is used at the next try",
        )
    return folder


def _was_ours(spec: QuerySpec) -> bool:
    """Whether a slot of this name on this very server was made for an earlier snapshot."""
    for number in range(spec.snapshot_number - 1, 0, -1):
        earlier = store_at(spec.snapshot_at(number))
        with suppress(FileNotFoundError):
            made = earlier.read(SLOT_MADE).decode() == spec.slot
            loaded = Position.of(earlier.read(SNAPSHOT_LOADED).decode())
            return made and loaded.system == identity(spec.connection)[0]
    return False


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


def require_taken_over(spec: QuerySpec, table: DiscoveredTable, wanted: Expected) -> None:
    """TableChanged when a table upstream has columns that its source has not taken over yet.

    What has gone since may be missing, what ``UPSTREAM COLUMNS = ignore`` leaves out may be there.
    """
    there = table.expected(keyed=False).columns
    forms = {column.name: (column.type_oid, column.modifier) for column in there}
    known = [column for column in wanted.columns if not column.until or column.name in forms]
    missing = [
        each for each in known if forms.pop(each.name, None) != (each.type_oid, each.modifier)
    ]
    if missing or (forms and wanted.new_columns == "refuse"):
        with session(spec.connection, timeout=5.0) as opened:
            lsn = log_end(opened)
        raise TableChanged(
            f"{table.full_name} has other columns than its changes had",
            table=table.full_name, old=tuple(wanted.columns), new=there, lsn=lsn,
        )


def _publication(spec: QuerySpec) -> str:
    return str(spec.external.options["PUBLICATION"])
