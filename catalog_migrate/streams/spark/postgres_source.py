"""A source on PostgreSQL in Spark: the rows of its snapshot into its tables, then its changes.

When they are copied is in :mod:`catalog_migrate.streams.table_snapshots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.replication.snapshot import StagedTable
from catalog_migrate.replication.types import Position
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.queries import OutputTable, QuerySpec
from catalog_migrate.streams.spark.postgres_changes import changes, snapshot_files
from catalog_migrate.streams.spark.postgres_writer import (
    CHANGES,
    changes_rows,
    merge_once,
    snapshot_merge_statement,
    snapshot_rows,
)
from catalog_migrate.streams.spark.running import append_once
from catalog_migrate.streams.table_snapshots import expected
from catalog_migrate.streams.upstream_tables import is_mirror, keeps_deleted, snapshot_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH = 256 << 20
"""Bytes of log that a batch covers: the server decodes all of them before it sends the first
change, which its patience bounds. A larger transaction comes whole."""
_PATIENCE = 1800.0
"""Seconds that the server may take for that: a batch that is begun is read again as it is."""
_HEARTBEAT = 300.0
"""Seconds after which an idle slot is moved on: a standby keeps only a slot that moves."""


def load_files(
    spark: SparkSession, spec: QuerySpec, table: OutputTable, staged: StagedTable,
    files: Sequence[str], at: Position,
) -> None:
    """The rows in files of a staged snapshot into a table of ours; see :func:`load`.

    Nothing else may write in the session meanwhile.
    """
    load(placed(snapshot_files(spark, files), table, staged), spec, table, at)


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
        spark, spec.connection, slot=spec.slot, publication=spec.publication,
        tables=expected(spec), start=start, max_bytes=_BATCH, heartbeat=_HEARTBEAT,
        timeout=_PATIENCE,
    )
