"""One batch INTO KAFKA: at least once, every record with what a repeat is recognised by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.connections import clients
from catalog_migrate.model.names import quote_sql
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark.columns import (
    find_columns,
    reads_kafka_source,
    written_columns,
)
from catalog_migrate.streams.spark.json_text import json_of
from catalog_migrate.streams.spark.quiet import unlogged
from catalog_migrate.streams.spark.row_keys import ROW_KEY, with_content_keys, with_position_keys

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from catalog_migrate.streams.spark.batches import Batch

ITEM_HEADER = "catalog_migrate.item"
ROW_HEADER = "catalog_migrate.row"


class KafkaSink:
    """Writes batches of a sink into its topic."""

    def __init__(self, spec: QuerySpec) -> None:
        self._spec = spec
        self._options = clients.spark_kafka_sink_options(
            spec.connection, spec.external.options
        )

    def write(self, batch: Batch) -> None:
        """Send every row; run again, a batch sends the same records with the same headers."""
        writer = self.records(batch.frame, batch.number).write.format("kafka")
        with unlogged():
            writer.options(**self._options).save()

    def cancel(self) -> None:
        """Nothing of its own to break off: the batch is one Spark job."""

    def records(self, frame: DataFrame, batch: int) -> DataFrame:
        """Key, value and headers of each row."""
        spec = self._spec
        if reads_kafka_source(spec):
            keyed = with_position_keys(frame, spec.topic_ids)
        else:
            keyed = with_content_keys(frame, [column.name for column in spec.columns], batch)
        headers = F.array(
            F.struct(
                F.lit(ITEM_HEADER).alias("key"),
                F.lit(spec.item_id).cast("binary").alias("value"),
            ),
            F.struct(
                F.lit(ROW_HEADER).alias("key"), F.col(ROW_KEY).cast("binary").alias("value")
            ),
        )
        value = json_of([column.name for column in written_columns(spec)])
        return keyed.select(
            self._key().alias("key"), value.alias("value"), headers.alias("headers")
        )

    def _key(self) -> Expression:
        """A single KEY column as text (BINARY as it is), several as a JSON object, none as null."""
        spec = self._spec
        columns = find_columns(spec.columns, spec.external.key, where=f"what {spec.name} reads")
        if not columns:
            return F.lit(None).cast("string")
        if len(columns) > 1:
            return json_of([column.name for column in columns])
        only = columns[0]
        if only.type.startswith(("ARRAY<", "MAP<", "STRUCT<")):
            return json_of([only.name])
        value = F.col(quote_sql(only.name))
        return value if only.type == "BINARY" else value.cast("string")
