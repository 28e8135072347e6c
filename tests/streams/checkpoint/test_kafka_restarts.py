"""Tests against a real broker: what a Kafka source reads after its position was changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, QueryBuilder

from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Edit, apply, begin, move, reset
from catalog_migrate.streams.checkpoint.guards import claim
from tests.services.checkpoints import root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.spark

LIMIT = 120


class KafkaQuery:
    """A query from one topic into a Delta table, started anew by each :meth:`run`."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, root: Path) -> None:
        self.spark, self.kafka, self.topic = spark, kafka, topic
        self.checkpoint = Checkpoint(root / "ckpt")
        self.out = str(root / "out")
        self.generation = 0
        claim(self.checkpoint, item="i7", sources=[topic])

    def run(self) -> Counter[int]:
        """Read what is there; all values written so far."""
        options = {
            **self.kafka.spark_options(),
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        values = self.spark.readStream.format("kafka").options(**options).load()
        query = (
            values.selectExpr("cast(cast(value as string) as int) as n")
            .writeStream.format("delta")
            .option("checkpointLocation", str(root(self.checkpoint)))
            .trigger(availableNow=True)
            .start(self.out)
        )
        assert query.awaitTermination(LIMIT)
        found = QueryBuilder().register("t", DeltaTable(self.out)).execute("select n from t")
        return Counter(found.read_all()["n"].to_pylist())

    def apply(self, edit: Edit) -> None:
        """Apply an edit as the next generation."""
        self.generation += 1
        apply(self.checkpoint, edit, item="i7", generation=self.generation)


def test_back_forth_and_to_the_start(
    spark: SparkSession, kafka: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """Backwards sends exactly those records again, forwards skips exactly those, START all."""
    codec = KafkaCodec()
    kafka.create_topic(topic_name, partitions=2)
    for partition in (0, 1):
        start = 100 * partition
        kafka.produce(topic_name, [str(start + n) for n in range(10)], partition=partition)
    query = KafkaQuery(spark, kafka, topic_name, tmp_path)
    expected = Counter([*range(10), *range(100, 110)])
    assert query.run() == expected

    kafka.produce(topic_name, ["10"], partition=0)
    expected[10] += 1
    assert query.run() == expected
    line = query.checkpoint.entry(1).sources[0]
    positions = codec.read(line)
    assert positions == {(topic_name, 0): 11, (topic_name, 1): 10}
    assert codec.write(positions) == line
    held = {(topic_name, n): bounds for n, bounds in kafka.watermarks(topic_name).items()}
    assert codec.check(positions, held) == ()

    kafka.produce(topic_name, [str(110 + n) for n in range(5)], partition=1)
    target = {(topic_name, 0): 7, (topic_name, 1): 13}
    query.apply(move(query.checkpoint, 0, codec.write(target)))
    expected.update([*range(7, 11), 113, 114])
    assert query.run() == expected

    query.apply(reset(query.checkpoint, 0))
    expected.update([*range(11), *range(100, 115)])
    assert query.run() == expected
    initial = (root(query.checkpoint) / "sources/0/0").read_bytes()
    assert codec.read_initial(initial, "sources/0/0") == {(topic_name, 0): 0, (topic_name, 1): 0}
    assert sorted(codec.write_initial(codec.read_initial(initial, ""))) == sorted(initial)


def test_the_beginning_of_a_young_query(
    spark: SparkSession, kafka: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """Initial offsets written before the first batch count for it, not the START option."""
    kafka.create_topic(topic_name, partitions=1)
    kafka.produce(topic_name, [str(n) for n in range(5)], partition=0)
    query = KafkaQuery(spark, kafka, topic_name, tmp_path)
    initial = KafkaCodec().write_initial({(topic_name, 0): 3})
    query.apply(begin(query.checkpoint, 0, initial))

    assert query.run() == Counter([3, 4])


def test_a_rewind_keeps_watermark_and_state(
    spark: SparkSession, one_store: None, kafka: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """What a stateful query reads again is late for windows that are closed, and counts twice in
    the one that is open: of three records that come again one is doubled."""
    from pyspark.sql.functions import window

    kafka.create_topic(topic_name, partitions=1)
    checkpoint, out = Checkpoint(tmp_path / "ckpt"), str(tmp_path / "out")
    claim(checkpoint, item="i7", sources=[topic_name])

    def send(*records: tuple[int, int]) -> None:
        kafka.produce(topic_name, [f"{number},{at}" for number, at in records], partition=0)

    def run() -> list[tuple[int, int]]:
        """Read what is there; (number, count) of all windows that were closed so far."""
        options = {
            **kafka.spark_options(), "subscribe": topic_name, "startingOffsets": "earliest"
        }
        frame = spark.readStream.format("kafka").options(**options).load()
        query = (
            frame.selectExpr("split(cast(value AS STRING), ',') AS parts")
            .selectExpr("int(parts[0]) AS n", "timestamp_seconds(bigint(parts[1])) AS at")
            .withWatermark("at", "0 seconds")
            .groupBy("n", window("at", "10 seconds")).count().select("n", "count")
            .writeStream.format("delta").outputMode("append")
            .option("checkpointLocation", str(root(checkpoint)))
            .trigger(availableNow=True).start(out)
        )
        assert query.awaitTermination(LIMIT)
        table = QueryBuilder().register("t", DeltaTable(out)).execute("select n, count from t")
        found = table.read_all()
        return sorted(zip(found["n"].to_pylist(), found["count"].to_pylist(), strict=True))

    send((1, 5), (1, 6))
    run()
    send((2, 100))
    assert run() == [(1, 2)]
    assert checkpoint.is_stateful
    line = KafkaCodec().write({(topic_name, 0): 0})
    apply(checkpoint, move(checkpoint, 0, line), item="i7", generation=1)
    assert run() == [(1, 2)]
    send((3, 500))
    assert run() == [(1, 2), (2, 2)]
