"""What tests and benchmarks ask of a replication slot: how it stands, a range of its changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from catalog_migrate.connectors.postgres.server import Slot, read_slot
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.types import Expected, Position
from catalog_migrate.connectors.resolved import Resolved

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    from catalog_migrate.connectors.postgres.changes import Range


def slot_state(connection: Resolved, name: str) -> Slot | None:
    """The slot of that name; None when there is none."""
    with session(connection, timeout=5.0) as opened:
        return read_slot(opened, name)


def changes_range(
    spark: SparkSession, connection: Resolved, *, slot: str, publication: str,
    tables: Mapping[str, Expected], start: Position, end: Position,
) -> DataFrame:
    """The changes of the transactions with ``start`` <= commit < ``end``, as a batch.

    The slot must not have been advanced past ``start``, and is not by this. The classes stand
    inside: Spark's workers get them by value, for they cannot import the tests.
    """
    from pyspark.sql import datasource

    from catalog_migrate.connectors.postgres import changes as postgres_changes
    from catalog_migrate.engine.spark.session import silence_py4j

    settings = postgres_changes.Settings(connection, slot, publication, tables, start)
    label = f"changes_range_{uuid4().hex[:12]}"

    class RangeReader(datasource.DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [postgres_changes.Range(start, end)]

        def read(self, partition: Range) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
            return postgres_changes.read_batches(settings, partition)

    class ChangesRange(datasource.DataSource):
        @classmethod
        def name(cls) -> str:
            return label

        def schema(self) -> str:
            return postgres_changes.SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:
            return RangeReader()

    with silence_py4j():
        spark.dataSource.register(ChangesRange)
        return spark.read.format(label).load().where("operation NOT IN ('commit', 'table')")
