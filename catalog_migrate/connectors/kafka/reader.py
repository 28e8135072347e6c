"""What a Kafka source reads by Spark's own connector, and what that needs of a session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog_migrate.connectors.kafka.client import spark_kafka_source_options
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.ssh.tunnels import OPTION
from catalog_migrate.engine.spark.session import silence_py4j
from catalog_migrate.errors import EngineFailure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALLOWED_ENDPOINTS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The property of a JVM with the URLs that Kafka's clients may ask for tokens there."""


def require_reachable(spark: SparkSession, spec: QuerySpec) -> None:
    """Raise EngineFailure where the session's clients cannot reach the brokers as they should."""
    require_executors_here(spark, spec)
    require_allowed_endpoint(spark, spec)


def require_allowed_endpoint(spark: SparkSession, spec: QuerySpec) -> None:
    """Raise EngineFailure where the JVM lets Kafka's clients ask no such token endpoint.

    The list belongs to the JVM; without one Kafka 3.9, which we start a session with, asks any.
    """
    url = option_of(spec.connection, "KAFKA", "OAUTH TOKEN ENDPOINT")
    if url is None:
        return
    listed = spark._jvm.java.lang.System.getProperty(ALLOWED_ENDPOINTS)  # type: ignore[union-attr]
    if listed is not None and url not in [each.strip() for each in listed.split(",")]:
        raise EngineFailure(
            f"{spec.kind} {spec.name}: option OAUTH TOKEN ENDPOINT: the JVM of this Spark session "
            f"allows Kafka's clients other token endpoints only ({listed})",
            condition="TOKEN_ENDPOINT_NOT_ALLOWED",
            remedy=f"start the session with -D{ALLOWED_ENDPOINTS}={url},… in both "
            "spark.driver.extraJavaOptions and spark.executor.extraJavaOptions",
        )


def require_executors_here(spark: SparkSession, spec: QuerySpec) -> None:
    """EngineFailure where executors would connect to a tunnel's local end on another machine."""
    master = spark.sparkContext.master or ""
    if OPTION in spec.connection and not master.startswith("local"):
        raise EngineFailure(
            f"{spec.kind} {spec.name} reaches Kafka by a tunnel of the driver's machine, and its "
            f"executors are elsewhere ({master})",
            condition="TUNNEL_OUT_OF_REACH",
            remedy="run the cluster with --conf spark.master=local[*], or let the executors reach "
            "the brokers without a tunnel: ALTER CONNECTION … DROP (SSH TUNNEL)",
        )


def read_records(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """Return the records of the source's topics, as Spark's connector gives them.

    A position that Kafka no longer has stops the query (``failOnDataLoss``): nothing is passed over
    in silence. START counts for the first batch only; from then on the checkpoint does.
    """
    options = spark_kafka_source_options(
        spec.connection, spec.external.options, spec.external.settings
    )
    with silence_py4j():
        return spark.readStream.format("kafka").options(**options).load()


def read_range(
    spark: SparkSession, spec: QuerySpec, ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return exact ranges of the source's topics, as a batch.

    A range that Kafka no longer has whole fails, as in the stream.
    """
    options = spark_kafka_source_options(
        spec.connection, spec.external.options, spec.external.settings
    )
    for name in ("subscribe", "startingTimestamp", "startingOffsetsByTimestampStrategy",
                 "maxOffsetsPerTrigger"):
        options.pop(name, None)
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in ranges:
        assigned.setdefault(each.topic, []).append(each.partition)
        starts.setdefault(each.topic, {})[str(each.partition)] = each.first
        ends.setdefault(each.topic, {})[str(each.partition)] = each.until
    options |= {
        "assign": json.dumps(assigned), "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    with silence_py4j():
        return spark.read.format("kafka").options(**options).load()
