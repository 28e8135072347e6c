"""Whose transactions are open in a Kafka topic: only the Java client can ask that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from catalog_migrate.connectors.base import OpenTransaction
from catalog_migrate.connectors.kafka.client import spark_kafka_options
from catalog_migrate.connectors.query import QuerySpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 5
"""How long each question may take."""
_PREFIX = "kafka."


def find_open_transactions(
    spark: SparkSession, spec: QuerySpec, places: Sequence[tuple[str, int]]
) -> tuple[OpenTransaction, ...]:
    """Return what is open in partitions, by the brokers that lead them.

    Nothing where they do not answer, or this user may not see it.
    """
    jvm: Any = spark._jvm
    options = jvm.java.util.HashMap()
    for name, value in spark_kafka_options(spec.connection).items():
        if name.startswith(_PREFIX):
            options.put(name.removeprefix(_PREFIX), value)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
    except (Py4JError, TypeError):  # no such class on the driver
        return ()
    try:
        return tuple(_describe(jvm, client, places))
    except Py4JError:
        return ()
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(_SECONDS))


def _describe(
    jvm: Any, client: Any, places: Sequence[tuple[str, int]]
) -> Iterator[OpenTransaction]:
    asked = jvm.java.util.ArrayList()
    for topic, number in places:
        asked.add(jvm.org.apache.kafka.common.TopicPartition(topic, number))
    described = _await(jvm, client.describeProducers(asked).all())
    names = _names(jvm, client)
    for place in described.keySet():
        for producer in described.get(place).activeProducers():
            first = producer.currentTransactionStartOffset()
            if first.isPresent():
                number = int(producer.producerId())
                yield OpenTransaction(
                    str(place.topic()), int(place.partition()), int(first.getAsLong()), number,
                    names.get(number, ""),
                )


def _names(jvm: Any, client: Any) -> dict[int, str]:
    """The ``transactional.id`` of each producer that this user may see."""
    try:
        listed = _await(jvm, client.listTransactions().all())
    except Py4JError:
        return {}
    return {int(each.producerId()): str(each.transactionalId()) for each in listed}


def _await(jvm: Any, future: Any) -> Any:
    return future.get(_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
