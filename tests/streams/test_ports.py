"""The contract of each port of streams, on its real and on its simulated implementation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.base import Access
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import ConnectionFailed, EngineFailure, InvalidPosition, UnsafeBlocked
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External
from catalog_migrate.streams.catalog.tables import DeltaTables, Tables
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.runtime.ports import Ports, SystemThreads, Threads
from catalog_migrate.streams.upstreams.upstream import ServerUpstreams, Upstreams
from catalog_migrate.testing.world import SimulatedClock
from tests.simulation.stream_ports import (
    SimulatedTables,
    SimulatedThreads,
    SimulatedUpstreams,
    simulated_ports,
)
from tests.simulation.streaming import Record, StreamWorld

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

OLD = "4390c917-4440-44d6-bf46-bb59b73796fe"
NEW = "11111111-2222-4333-8444-555555555555"


class Writer(ABC):
    """A port to tables, and what a source's query does with one."""

    tables: Tables

    @abstractmethod
    def create(self, path: str) -> None:
        """An empty table: version 0."""

    @abstractmethod
    def append(self, path: str, rows: Sequence[Record], *, batch: int, app: str = OLD) -> None:
        """One more version."""


class SimulatedWriter(Writer):
    def __init__(self) -> None:
        self.world = StreamWorld()
        self.tables = SimulatedTables(self.world)

    def create(self, path: str) -> None:
        self.world.table(path)

    def append(self, path: str, rows: Sequence[Record], *, batch: int, app: str = OLD) -> None:
        self.world.table(path).append(rows, {}, app=app, batch=batch)


class DeltaWriter(Writer):
    tables = DeltaTables()

    def create(self, path: str) -> None:
        self._write(path, [], None)

    def append(self, path: str, rows: Sequence[Record], *, batch: int, app: str = OLD) -> None:
        from deltalake import Transaction

        self._write(path, rows, [Transaction(app, batch)])

    def _write(self, path: str, rows: Sequence[Record], transactions: Any) -> None:
        from arro3.core import Array, DataType, Table
        from deltalake import CommitProperties, write_deltalake

        topics, partitions, offsets = ([row[part] for row in rows] for part in range(3))
        data: Any = Table.from_pydict({
            "_topic": Array(topics, type=DataType.utf8()),
            "_partition": Array(partitions, type=DataType.int32()),
            "_offset": Array(offsets, type=DataType.int64()),
        })
        write_deltalake(
            path, data, mode="append",
            commit_properties=CommitProperties(app_transactions=transactions),
        )


@pytest.fixture(params=[SimulatedWriter, DeltaWriter], ids=["simulated", "delta"])
def writer(request: pytest.FixtureRequest) -> Writer:
    made: Writer = request.param()
    return made


@pytest.fixture
def tables(writer: Writer) -> Tables:
    return writer.tables


@pytest.fixture
def path(writer: Writer, tmp_path: Path) -> str:
    """Version 1 has two rows of batch 0, version 2 three of batch 1, one of them a second time."""
    place = str(tmp_path / "t")
    writer.create(place)
    writer.append(place, [("t", 0, 0), ("t", 0, 1)], batch=0)
    writer.append(place, [("t", 0, 1), ("t", 0, 2), ("t", 1, 0)], batch=1)
    return place


class TestTables:
    """What a table says of its writers, versions and rows."""

    def test_one_that_is_not_there(self, tables: Tables, tmp_path: Path) -> None:
        """It has no batch and no version; its bounds cannot be read."""
        nowhere = str(tmp_path / "nowhere")
        assert tables.batch(nowhere, OLD) is None
        assert tables.newest(nowhere) is None
        with pytest.raises(EngineFailure):
            tables.bounds(nowhere)

    def test_batches(self, tables: Tables, path: str) -> None:
        """The newest of each query."""
        assert tables.batch(path, OLD) == 1
        assert tables.batch(path, NEW) is None

    def test_a_fence(self, tables: Tables, path: str) -> None:
        """It tells the newest batch, hands it on, and may be put again for another successor."""
        fence = tables.fence(path)
        assert fence(OLD, NEW) == 1
        assert tables.batch(path, NEW) == 1
        assert tables.batch(path, OLD) == 1
        assert fence(OLD, "22222222-2222-4333-8444-555555555555") == 1

    def test_a_fence_of_who_never_wrote(self, tables: Tables, path: str) -> None:
        """Nothing is handed on."""
        assert tables.fence(path)(NEW, OLD) is None
        assert tables.batch(path, OLD) == 1

    def test_versions(self, tables: Tables, path: str) -> None:
        """From the first to the newest; a reader goes on behind one of them."""
        bounds = tables.bounds(path)
        assert (bounds.earliest, bounds.latest, tables.newest(path)) == (0, 2, 2)
        target = tables.target(path, 1)
        assert (target.table_id, target.version) == (bounds.table_id, 2)
        with pytest.raises(InvalidPosition):
            tables.target(path, 3)

    def test_what_makes_a_batch(self, tables: Tables, path: str) -> None:
        """Versions with rows, not a fence."""
        assert tables.has_rows(path, -1, 2)
        assert tables.has_rows(path, 1, 2)
        assert not tables.has_rows(path, 2, 2)
        tables.fence(path)(OLD, NEW)
        assert not tables.has_rows(path, 2, tables.newest(path) or 0)

    def test_rows(self, tables: Tables, path: str) -> None:
        """Of a version, between two, and of ranges of offsets."""
        assert [tables.rows_at(path, version) for version in range(3)] == [0, 2, 5]
        assert tables.rows_added(path, 0, 3) == 5
        assert tables.rows_added(path, 2, 3) == 3
        assert tables.rows_added(path, 2, 2) == 0
        first = OffsetRange("t", 0, 1, 3)
        assert tables.rows_at(path, 2, [first]) == 3
        assert tables.rows_at(path, 1, [first]) == 1

    def test_rows_that_came_twice(self, tables: Tables, path: str) -> None:
        """Counted as rows and as offsets, also as they were; a partition without any is left out.
        """
        wanted = [OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 5, 9)]
        assert tables.rows_in(path, wanted) == {("t", 0): (4, 3)}
        assert tables.rows_in(path, wanted, 1) == {("t", 0): (2, 2)}

    def test_who_wrote(self, tables: Tables, path: str) -> None:
        """The query itself is no stranger, nor is a fence."""
        tables.fence(path)(OLD, NEW)
        assert tables.foreign_commits(path, 0, tables.newest(path) or 0, NEW) == []

    def test_what_a_restore_takes_away(self, tables: Tables, path: str) -> None:
        """What was appended since."""
        assert tables.count_exchanged(path, 1, 2) == (3, 0)


class Broker(ABC):
    """A port to upstreams, and one that answers with the topic ``t`` of 3 and 2 records."""

    upstreams: Upstreams
    topic: str
    cluster: str
    there: Resolved
    nowhere: Resolved

    def spec(self, *, topic: str | None = None, dead: bool = False) -> QuerySpec:
        """A source of it."""
        return QuerySpec(
            "i1", ItemName("d", "s"), "source",
            External(connector="KAFKA", options={"TOPIC": topic or self.topic}), (),
            self.nowhere if dead else self.there, "/nowhere", "/nowhere",
        )


class SimulatedBroker(Broker):
    def __init__(self) -> None:
        self.upstreams = SimulatedUpstreams(StreamWorld({"t": [3, 2]}))
        self.topic, self.cluster = "t", "one"
        self.there, self.nowhere = {"BROKER": "a:9092"}, {"BROKER": "dead:9092"}


class KafkaBroker(Broker):
    def __init__(self, kafka: KafkaCluster) -> None:
        self.upstreams = ServerUpstreams()
        self.topic = "ports"
        kafka.create_topic(self.topic, partitions=2)
        kafka.produce(self.topic, [b"{}"] * 3, partition=0)
        kafka.produce(self.topic, [b"{}"] * 2, partition=1)
        login: Mapping[str, str | Secret] = {
            "SECURITY PROTOCOL": "SASL_PLAINTEXT", "SASL MECHANISMS": "SCRAM-SHA-512",
            "SASL USERNAME": "app", "SASL PASSWORD": Secret(kafka.users["app"]),
        }
        self.there = {"BROKER": kafka.bootstrap, **login}
        self.nowhere = {"BROKER": "127.0.0.1:1", **login}
        self.cluster = self.upstreams.identify(self.spec()).upstream


@pytest.fixture(
    params=["simulated", pytest.param("kafka", marks=pytest.mark.services)], scope="module"
)
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "simulated":
        return SimulatedBroker()
    return KafkaBroker(request.getfixturevalue("kafka"))


class TestUpstreams:
    """What a server says of itself and of what a query needs."""

    def test_who_answers(self, broker: Broker) -> None:
        """A cluster and the ids of those topics that are there."""
        found = broker.upstreams.identify(broker.spec())
        assert found.upstream == broker.cluster
        assert list(found.topics) == [broker.topic]
        with pytest.raises(ConnectionFailed):
            broker.upstreams.identify(broker.spec(dead=True))

    def test_many_at_once(self, broker: Broker) -> None:
        """Whether each may read its topics; the ids are those that it is told alone."""
        identity, findings = broker.upstreams.access(
            "KAFKA", broker.there, [Access("i1", (broker.topic,), "READ")]
        )
        assert identity is not None
        assert identity.cluster_id == broker.cluster
        assert identity.topic_ids == broker.upstreams.identify(broker.spec()).topics
        assert all(finding.ok for finding in findings["i1"])

    def test_many_at_once_of_nobody(self, broker: Broker) -> None:
        """What is wrong is said of each."""
        wanted = [Access(subject, (broker.topic,), "READ") for subject in ("i1", "i2")]
        identity, findings = broker.upstreams.access("KAFKA", broker.nowhere, wanted, timeout=2.0)
        assert identity is None
        assert [all(each.ok for each in findings[subject]) for subject in ("i1", "i2")] == [
            False, False
        ]

    def test_a_connection(self, broker: Broker) -> None:
        """Whether something answers."""
        check = broker.upstreams.check_connection
        assert all(each.ok for each in check("KAFKA", broker.there))
        assert not all(each.ok for each in check("KAFKA", broker.nowhere, timeout=2.0))

    def test_a_query(self, broker: Broker) -> None:
        """Whether its own access works."""
        check = broker.upstreams.check_query
        assert all(each.ok for each in check(broker.spec()))
        assert not all(each.ok for each in check(broker.spec(dead=True), timeout=2.0))

    def test_what_topics_hold(self, broker: Broker) -> None:
        """Their ids, and the oldest and one past the newest record of each partition."""
        with broker.upstreams.contents(broker.spec(), sample=False) as contents:
            assert contents.cluster == broker.cluster
            assert contents.topic_ids == broker.upstreams.identify(broker.spec()).topics
            assert contents.bounds == {(broker.topic, 0): (0, 3), (broker.topic, 1): (0, 2)}

    def test_what_topics_hold_that_are_not_there(self, broker: Broker) -> None:
        """They block; a broker that does not answer is a failure of another kind."""
        missing = "nobody-made-this"
        with (
            pytest.raises(UnsafeBlocked, match="not there"),
            broker.upstreams.contents(broker.spec(topic=missing), sample=False),
        ):
            pass
        with (
            pytest.raises(EngineFailure),
            broker.upstreams.contents(broker.spec(dead=True), timeout=2.0, sample=False),
        ):
            pass


@pytest.fixture(params=["simulated", "system"])
def threads(request: pytest.FixtureRequest) -> Iterator[tuple[Threads, Callable[[], None]]]:
    """The port, and what lets time pass where nothing does so by itself."""
    if request.param == "system":
        yield SystemThreads(), lambda: None
        return
    simulated = SimulatedThreads(SimulatedClock())
    yield simulated, simulated.go_on


class TestThreads:
    """Work beside the caller's."""

    def test_a_pool(self, threads: tuple[Threads, Callable[[], None]]) -> None:
        """Results come in order; what fails does so where its result is asked for."""
        with threads[0].pool(2, "test") as pool:
            assert list(pool.map(abs, (-1, -2, -3))) == [1, 2, 3]
            failed = pool.submit(int, "x")
            with pytest.raises(ValueError, match="invalid literal"):
                failed.result()

    def test_an_act(self, threads: tuple[Threads, Callable[[], None]]) -> None:
        """It is done once it was waited for."""
        done: list[int] = []
        act = threads[0].run(lambda: done.append(1), "test")
        act.join(10)
        assert done == [1]
        assert not act.is_alive()

    def test_an_event(self, threads: tuple[Threads, Callable[[], None]]) -> None:
        """It has come once it was set."""
        event = threads[0].event()
        assert not event.is_set()
        assert not event.wait(0.001)
        event.set()
        assert event.wait(10)

    def test_what_is_repeated(self, threads: tuple[Threads, Callable[[], None]]) -> None:
        """Again and again, until the event comes."""
        port, pass_time = threads
        until, done = port.event(), port.event()
        times: list[int] = []

        def act() -> None:
            times.append(1)
            if len(times) == 3:
                until.set()
                done.set()

        port.repeat(act, 0.001, until, "test")
        for _ in range(10):
            pass_time()
        assert done.wait(10)
        assert len(times) == 3


@pytest.mark.parametrize("durable", [True, False])
def test_files(durable: bool, tmp_path: Path) -> None:
    """Both write the same, and tell of the same steps before them."""
    steps: list[str] = []
    port = Files(steps.append, durable=durable)
    store = port.store(str(tmp_path))
    port.replace(store, "offsets/0", b"v1\n")
    assert (tmp_path / "offsets" / "0").read_bytes() == b"v1\n"
    port.remove(store, "offsets/0")
    assert steps == ["make offsets", "write 0", "rename 0", "sync offsets", "remove 0"]


def test_a_checkpoint_is_changed_by_the_port(tmp_path: Path) -> None:
    """Each checkpoint that the ports make goes through their files."""
    ports = simulated_ports(StreamWorld(), SimulatedClock())
    assert ports.checkpoint(tmp_path).files is ports.files
    assert isinstance(Ports().checkpoint(tmp_path).files, Files)
