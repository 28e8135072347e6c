"""A source on PostgreSQL: its snapshot, taken once, and its changes from there on.

The first start makes the slot and copies the rows that stand under the slot's snapshot into files
beside the checkpoint; a manifest written behind them proves that they are whole. They go into the
tables once, each under a transaction of its own, and only then the stream begins. A start that is
killed before the manifest drops its slot and begins anew; behind it, it goes on from the files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from catalog_migrate.errors import EngineFailure
from catalog_migrate.replication.position import Position
from catalog_migrate.replication.server import drop_slot
from catalog_migrate.replication.snapshot import Manifest, read_manifest, stage
from catalog_migrate.replication.types import Column, Expected
from catalog_migrate.store import Store
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark.batches import append_once
from catalog_migrate.streams.spark.postgres_changes import changes
from catalog_migrate.streams.spark.postgres_writer import snapshot_rows
from catalog_migrate.streams.upstream import SNAPSHOT_LOADED, snapshot_store
from catalog_migrate.streams.upstream_tables import is_mirror, snapshot_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFEST = "manifest.json"
_HEARTBEAT = 300.0
"""Seconds after which an idle slot is moved on: a standby keeps only a slot that moves."""


def begin(spark: SparkSession, spec: QuerySpec) -> Position:
    """Where the changes begin, with every row of before in the tables.

    Takes minutes for large tables at the first start; later ones read one small file. Raises
    ConnectionFailed, and the errors of :mod:`catalog_migrate.replication.errors`.
    """
    store = snapshot_store(spec)
    with suppress(FileNotFoundError):
        return Position.of(store.read(SNAPSHOT_LOADED).decode())
    manifest = _staged(spec, store)
    for table in spec.tables:
        files = manifest.files(table.upstream.full_name)
        if not files:
            continue
        rows = spark.read.parquet(*(local_path(store.place(name)) for name in files))
        append_once(
            snapshot_rows(
                rows, table, manifest.position.lsn, mirror=is_mirror(spec.external)
            ),
            local_path(table.shard), snapshot_app(spec.item_id), 1,
        )
    store.put_if_absent(SNAPSHOT_LOADED, manifest.position.json().encode())
    for table in manifest.tables:
        for name in table.files:
            store.delete(name)
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
                       keyed and each.name in table.upstream.key)
                for each in table.upstream.columns
            )
        )
        for table in spec.tables
    }


def _staged(spec: QuerySpec, store: Store) -> Manifest:
    """The rows that stand in files, copied now unless an earlier start has done it."""
    with suppress(FileNotFoundError):
        return read_manifest(store.read(_MANIFEST))
    drop_slot(spec.connection, spec.slot)  # of a start that was killed: nothing was read from it
    store.make_folder(above=True)
    attempt = uuid4().hex
    manifest = stage(
        spec.connection, spec.slot, expected(spec),
        lambda name, data: store.put_all({f"{attempt}/{name}": data}),
        prefix=f"{attempt}/",
    )
    if not store.put_if_absent(_MANIFEST, manifest.json().encode()):
        raise EngineFailure(
            f"another runtime has taken the snapshot of source {spec.name} meanwhile",
            condition="SNAPSHOT_TAKEN", transient=True, remedy="it is used at the next try",
        )
    return manifest


def _publication(spec: QuerySpec) -> str:
    return str(spec.external.options["PUBLICATION"])
