"""One batch INTO KAFKA: at least once, every record with what a repeat is recognised by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)
from pyspark.sql.window import Window

from catalog_migrate.connectors.kafka.client import spark_kafka_sink_options
from catalog_migrate.connectors.query import (
    OFFSET,
    PARTITION,
    TOPIC,
    QuerySpec,
    has_record_positions,
    written_columns,
)
from catalog_migrate.connectors.refused_rows import key_text
from catalog_migrate.connectors.spark_rows import json_of
from catalog_migrate.engine.spark.session import silence_py4j
from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.streams.spark.registry_formats import ensure_avro, registered

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from catalog_migrate.connectors.base import Batch


ITEM_HEADER = "catalog_migrate.item"
ROW_HEADER = "catalog_migrate.row"


class KafkaSink:
    """Writes batches of a sink into its topic."""

    def __init__(self, spec: QuerySpec) -> None:
        self._spec = spec
        self._options = spark_kafka_sink_options(
            spec.connection, spec.external.options
        )
        self._schema: tuple[int, str] | None = None

    def write(self, batch: Batch) -> None:
        """Send every row; run again, a batch sends the same records with the same headers."""
        writer = self.records(batch.frame, batch.number).write.format("kafka")
        with silence_py4j():
            writer.options(**self._options).save()

    def cancel(self) -> None:
        """Nothing of its own to break off: the batch is one Spark job."""

    def records(self, frame: DataFrame, batch: int) -> DataFrame:
        """Key, value and headers of each row."""
        spec = self._spec
        if has_record_positions(spec):
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
        if spec.registry is not None:
            value = self._registered(frame, value)
        return keyed.select(
            key_text(spec).alias("key"), value.alias("value"), headers.alias("headers")
        )

    def _registered(self, frame: DataFrame, json: Expression) -> Expression:
        """The value behind the number of its schema, which the first batch registers."""
        if self._schema is None:
            self._schema = registered(self._spec)
        number, text = self._schema
        head = F.expr(f"X'00{number:08x}'")
        if self._spec.external.format != "AVRO":
            return F.concat(head, json.cast("binary"))
        ensure_avro(frame.sparkSession)
        fields = ", ".join(
            f"{string_literal(column.name)}, {quote_sql(column.name)}"
            for column in written_columns(self._spec)
        )
        return F.concat(head, F.expr(f"to_avro(named_struct({fields}), {string_literal(text)})"))


ROW_KEY = "__catalog_migrate_row_key"
_HASH = "__catalog_migrate_hash"


def with_position_keys(frame: DataFrame, topic_ids: Mapping[str, str]) -> DataFrame:
    """Rows of a Kafka source: ``<topic id>/<partition>/<offset>``, unique for ever.

    A topic without a known id goes by its name.
    """
    topic: Expression = F.col(TOPIC)
    if topic_ids:
        known = F.create_map(*(F.lit(text) for pair in topic_ids.items() for text in pair))
        topic = F.coalesce(F.try_element_at(known, topic), topic)
    return frame.withColumn(
        ROW_KEY,
        F.concat_ws(
            "/", topic, F.col(PARTITION).cast("string"), F.col(OFFSET).cast("string")
        ),
    )


def with_content_keys(frame: DataFrame, columns: Sequence[str], batch: int) -> DataFrame:
    """Other rows: ``<hash>/<batch>/<occurrence>``, the same when the batch is run again.

    The hash is over all columns (as JSON, since maps cannot be hashed); equal rows of a batch are
    numbered from 1, and which of them gets which number makes no difference.
    """
    # Without nulls: a column that was added between the two runs of a batch must change no key.
    hashed = frame.withColumn(_HASH, F.xxhash64(json_of(columns, nulls=False)))
    occurrence = F.row_number().over(Window.partitionBy(_HASH).orderBy(_HASH))
    key = F.concat_ws(
        "/", F.lower(F.hex(F.col(_HASH))), F.lit(str(batch)), occurrence.cast("string")
    )
    return hashed.withColumn(ROW_KEY, key).drop(_HASH)
