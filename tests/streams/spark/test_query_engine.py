"""The contract of the port that runs queries, on Spark and on its simulated implementation."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External
from catalog_migrate.streams.catalog.queries import QueryEngine, RunningQuery
from tests.simulation.stream_ports import SimulatedUpstreams
from tests.simulation.streaming import SimulatedQueries, StreamWorld

from .conftest import await_that


class Stand(ABC):
    """A source on a topic of two partitions, and an engine that runs it."""

    engine: QueryEngine
    spec: QuerySpec
    topic: str

    @abstractmethod
    def produce(self, count: int) -> None:
        """So many records more in the first partition."""

    @abstractmethod
    def offsets(self) -> list[int]:
        """The offsets in the source's table, in order."""

    @abstractmethod
    def go_on(self) -> None:
        """Let queries take a step."""

    def read(self, query: RunningQuery, rows: int) -> None:
        """Wait until a query has read so many rows since its start, and stop it."""

        def enough() -> bool:
            self.go_on()
            assert query.failure() is None
            progress = query.progress()
            return progress is not None and progress.total_rows >= rows

        await_that(enough)
        assert query.stop(120.0)


class SimulatedStand(Stand):
    def __init__(self, directory: Path) -> None:
        self.world = StreamWorld({"t": [0, 0]})
        self.topic = "t"
        upstreams = SimulatedUpstreams(self.world)
        self.simulated = SimulatedQueries(self.world, lambda _: None, upstreams.told)
        self.engine = self.simulated
        self.spec = QuerySpec(
            "i1", ItemName("d", "s"), "source",
            External(connector="KAFKA", options={"TOPIC": "t"}), (), {"BROKER": "a:9092"},
            str(directory / "s"), str(directory / "checkpoint"),
        )
        upstreams.identify(self.spec)
        with upstreams.contents(self.spec):
            pass

    def produce(self, count: int) -> None:
        self.world.topics["t"][0] += count

    def offsets(self) -> list[int]:
        return sorted(offset for _, _, offset in self.world.table(self.spec.shard).rows)

    def go_on(self) -> None:
        self.simulated.step()


class SparkStand(Stand):
    def __init__(self, workshop: Any, kafka: Any, connection: dict[str, Any], topic: str) -> None:
        self.workshop, self.kafka, self.topic = workshop, kafka, topic
        self.engine = workshop.queries
        self.spec = workshop.source(
            "KAFKA", connection, "id BIGINT", {"TOPIC": topic}, format="JSON"
        )

    def produce(self, count: int) -> None:
        self.kafka.produce(self.topic, [json.dumps({"id": 1})] * count, partition=0)

    def offsets(self) -> list[int]:
        return [row[0] for row in self.workshop.rows(self.spec.shard, "_offset")]

    def go_on(self) -> None:
        """Spark does."""


@pytest.fixture(params=[
    "simulated", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.services]),
])  # fmt: skip
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    if request.param == "simulated":
        return SimulatedStand(tmp_path)
    return SparkStand(*map(
        request.getfixturevalue, ("workshop", "kafka", "kafka_connection", "topic")
    ))


def test_a_query(stand: Stand) -> None:
    """It reads what is there, says so, and has a batch in its table; stopped, it has not failed."""
    stand.produce(3)
    query = stand.engine.prepare(stand.spec).start()
    stand.read(query, 3)
    assert stand.offsets() == [0, 1, 2]
    assert not query.active
    assert query.failure() is None
    progress = query.progress()
    assert progress is not None
    assert stand.engine.last_batch(stand.spec, query.query_id) == {"shard": progress.batch}


def test_a_query_that_goes_on(stand: Stand) -> None:
    """From where its checkpoint stands, under the same id in another run; prepared or not."""
    stand.produce(2)
    first = stand.engine.prepare(stand.spec).start()
    stand.read(first, 2)
    stand.produce(1)
    second = stand.engine.prepare(stand.spec).start()
    stand.read(second, 1)
    assert stand.offsets() == [0, 1, 2]
    assert second.query_id == first.query_id
    assert second.run_id != first.run_id


def test_a_batch_under_way(stand: Stand) -> None:
    """It is run once more, and no other; a table that has it skips it."""
    stand.produce(2)
    query = stand.engine.prepare(stand.spec).start()
    stand.read(query, 2)
    commits = Path(stand.spec.checkpoint, "commits")
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for name in (f"{newest}", f".{newest}.crc"):
        (commits / name).unlink(missing_ok=True)
    stand.produce(2)
    stand.engine.finish_batch(stand.spec, timeout=120)
    assert (commits / f"{newest}").is_file()
    assert stand.offsets() == [0, 1]


def test_ranges_that_are_read_again(stand: Stand) -> None:
    """Each chunk of an operation comes once."""
    stand.produce(4)
    query = stand.engine.prepare(stand.spec).start()
    stand.read(query, 4)
    for version in (0, 0, 1):
        left_out = stand.engine.append_range(
            stand.spec, [OffsetRange(stand.topic, 0, 1 + version, 2 + version)],
            app="operation", version=version,
        )
        assert left_out == ()
    assert stand.offsets() == [0, 1, 1, 2, 2, 3]
