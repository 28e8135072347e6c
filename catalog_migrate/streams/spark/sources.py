"""What a source reads: a Kafka topic or a directory of files, as a streaming DataFrame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.connections import clients
from catalog_migrate.engine.spark.session import unlogged
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.streams.queries import QuerySpec, ddl
from catalog_migrate.streams.spark.settings import setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STRICT_FORMATS = frozenset({"json", "csv"})


def kafka_records(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """The records of the source's topics, as Spark's connector gives them.

    A position that Kafka no longer has stops the query (``failOnDataLoss``): nothing is passed over
    in silence. START counts for the first batch only; from then on the checkpoint does.
    """
    options = clients.spark_kafka_source_options(
        spec.connection, spec.external.options, spec.external.settings
    )
    with unlogged():
        return spark.readStream.format("kafka").options(**options).load()


def kafka_range(
    spark: SparkSession, spec: QuerySpec, places: Sequence[tuple[str, int, int, int]]
) -> DataFrame:
    """Exact ranges (topic, partition, first, after the last) of the source's topics, as a batch.

    A range that Kafka no longer has whole fails, as in the stream.
    """
    options = clients.spark_kafka_source_options(
        spec.connection, spec.external.options, spec.external.settings
    )
    for name in ("subscribe", "startingTimestamp", "startingOffsetsByTimestampStrategy",
                 "maxOffsetsPerTrigger"):
        options.pop(name, None)
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, number, first, last in places:
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = first
        ends.setdefault(topic, {})[str(number)] = last
    options |= {
        "assign": json.dumps(assigned), "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    with unlogged():
        return spark.read.format("kafka").options(**options).load()


def no_records(spark: SparkSession) -> DataFrame:
    """Records as Spark's connector gives them, none."""
    return spark.createDataFrame(
        [], "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, timestampType INT",
    )


def file_rows(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """The rows of the files below the connection's and the source's PATH, each file once.

    JSON and CSV are read strictly: a line that does not fit the declared columns stops the query.
    """
    written = (clients.option_of(spec.connection, "FILES", "FORMAT") or "json").lower()
    path = spec.external.options.get("PATH")
    place = clients.files_directory(spec.connection, None if path is None else str(path))
    reader = (
        spark.readStream.format(written)
        .schema(", ".join(ddl(column) for column in spec.columns))
        .options(
            **clients.spark_files_options(
                spec.connection, spec.external.options, spec.external.settings
            )
        )
    )
    if written in _STRICT_FORMATS:
        reader = reader.option("mode", "FAILFAST")
    return reader.load(str(place)).select(*(F.col(quote_sql(c.name)) for c in spec.columns))


def shard_rows(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """What a sink reads: the rows of a shard, each appended row once."""
    reader = spark.readStream.format("delta")
    if setting(spec, "ON CHANGE") == "skip":
        reader = reader.option("skipChangeCommits", "true")
    return reader.load(spec.shard).select(*(F.col(quote_sql(c.name)) for c in spec.columns))


def plain_option(spec: QuerySpec, name: str) -> str:
    """An option of the source or sink that must be there and is no secret."""
    value = spec.external.options.get(name)
    if not isinstance(value, str):
        raise EngineFailure(
            f"{spec.kind} {spec.name} has no {name}", remedy=f"SET ({name} = '…')"
        )
    return value
