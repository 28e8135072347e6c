"""Sources and sinks whose catalog, rows and checkpoints lie in a bucket."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.positions.restore import undo_request

from .conftest import Pipeline, once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster
    from tests.services.object_store import ObjectStore
    from tests.services.postgres import PostgresServer
    from tests.services.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.soak]


@pytest.fixture
def pipeline(
    tmp_path: Path, spark_on_s3: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch, bucket: str, object_store: ObjectStore,
) -> Iterator[Pipeline]:
    """A pipeline in a bucket, with the cluster main and its runtime; the gate is open."""
    made = Pipeline(
        tmp_path, spark_on_s3, kafka, postgres, monkeypatch, bucket, object_store.options
    )
    made.begin()
    made.start(unsafe=True)
    yield made
    made.stop()


def test_from_the_first_record_to_an_undo(pipeline: Pipeline, kafka: KafkaCluster) -> None:
    """Rows go through source and sinks, a password is rotated, records are read again and skipped.

    A dry run says what each operation will do and writes nothing; each row comes as often as was
    said, and once for who drops repeats; a skip is undone with its table.
    """
    pipeline.kafka_connection("c")
    pipeline.postgres_connection("g")
    topic, out, table = pipeline.topic("t", 1), pipeline.topic("o", 1), pipeline.table("p")
    kafka.allow("app", topic, "DESCRIBE_CONFIGS")
    each = "WITH (TRIGGER '500 milliseconds')"
    cluster = pipeline.q("main")
    pipeline.source("s", "c", topic, each)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {cluster} FROM {pipeline.q('s')} INTO KAFKA "
        f"CONNECTION {pipeline.q('c')} (TOPIC '{out}') KEY (id) FORMAT JSON {each};"
        f"CREATE SINK {pipeline.q('p')} IN CLUSTER {cluster} FROM {pipeline.q('s')} INTO POSTGRES "
        f"CONNECTION {pipeline.q('g')} (TABLE '{table}') {each}"
    )

    def arrive(rows: Counter[int]) -> None:
        pipeline.until(lambda: pipeline.ids("s").total() >= rows.total(), "all rows")
        assert pipeline.ids("s") == rows
        pipeline.until(lambda: pipeline.postgres_ids(table).total() >= rows.total(), "all rows")
        assert pipeline.postgres_ids(table) == rows
        pipeline.until(lambda: set(pipeline.kafka_ids(out)) == set(rows), "all records")
        assert set(pipeline.kafka_ids(out).values()) == {1}
        settle(pipeline, "s")

    pipeline.send(topic, 10)
    arrive(once(10))

    before = pipeline.run_ids()
    pipeline.secret("again", kafka.users["app"])
    (altered,) = pipeline.run(
        f"ALTER CONNECTION {pipeline.q('c')} SET (SASL PASSWORD SECRET {pipeline.q('again')})"
    )
    assert set(altered.restarted) == {pipeline.q("s"), pipeline.q("k")}
    assert pipeline.run_ids()[pipeline.q("p")] == before[pipeline.q("p")]
    assert [each.number for each in Snapshots(checkpoint_of(pipeline, "k")).list()] == [1]
    pipeline.send(topic, 4)
    arrive(once(14))

    back = f"ALTER SOURCE {pipeline.q('s')} UNSAFE INJECT OFFSETS ('{topic}:0' = 10) REASON 'test'"
    told = files_of(checkpoint_of(pipeline, "s"))
    (explained,) = pipeline.run(f"EXPLAIN {back}")
    assert "4 records doubled, 0 skipped" in str(explained)
    assert files_of(checkpoint_of(pipeline, "s")) == told
    pipeline.run(back, confirm=lambda _: True)
    arrive(once(14) + Counter(range(10, 14)))

    pipeline.run(f"PAUSE SOURCE {pipeline.q('s')}")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    pipeline.send(topic, 3)
    (skip,) = pipeline.run(
        f"ALTER SOURCE {pipeline.q('s')} UNSAFE INJECT OFFSETS (TO latest) REASON 'test'",
        confirm=lambda _: True,
    )
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    pipeline.send(topic, 2)
    arrive(once(14) + Counter(range(10, 14)) + Counter(range(17, 19)))
    asked = undo_request(pipeline.catalog.state(), skip.operation, restore_table=True)
    pipeline.catalog.unsafe().run(asked, "back", confirm=lambda _: True)
    rows = once(19) + Counter(range(10, 14))
    pipeline.until(lambda: pipeline.ids("s") == rows, "all rows of the source, once")
    pipeline.until(lambda: pipeline.kafka_ids(out) == once(19), "all records")


def test_a_worker_is_killed_in_a_batch(
    pipeline: Pipeline, kafka: KafkaCluster, workers: SparkCluster
) -> None:
    """Its tasks are done again by another one: each record is there once."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 2)
    pipeline.source("s", "c", topic, "WITH (TRIGGER '500 milliseconds')")
    pipeline.send(topic, 10)
    pipeline.until(lambda: pipeline.ids("s") == once(10), "the first rows")
    settle(pipeline, "s")
    pipeline.send(topic, 20_000)
    pipeline.until(lambda: not checkpoint_of(pipeline, "s").state().is_settled, "a batch")
    workers.kill_worker()
    pipeline.until(lambda: pipeline.ids("s").total() >= 20_010, "all rows")
    assert pipeline.ids("s") == once(20_010)
    pipeline.send(topic, 5)
    pipeline.until(lambda: pipeline.ids("s") == once(20_015), "later rows")


def checkpoint_of(pipeline: Pipeline, name: str) -> Checkpoint:
    state = pipeline.catalog.state()
    place = dependencies.location(state, state.streams[pipeline.id(name)].checkpoint)
    assert place.startswith("s3://")
    return Checkpoint(place)


def files_of(checkpoint: Checkpoint) -> dict[str, bytes]:
    return dict(checkpoint.store.read_all(checkpoint.store.tree()))


def settle(pipeline: Pipeline, name: str) -> None:
    """Wait for the commit of the batch that has brought rows."""
    checkpoint = checkpoint_of(pipeline, name)
    pipeline.until(lambda: checkpoint.state().is_settled, "the commit of a batch")
