"""The suite that ships for connectors, run on ours and on one of another package."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connectors.base import Sink
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.objects import External
from catalog_migrate.streams.catalog.failures import is_passing
from catalog_migrate.testing.connectors import ConnectorSuite, SinkSuite, SourceSuite, Upstream
from tests.services.process import free_ports

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

_numbers = itertools.count(1)


@contextmanager
def _deaf_port() -> Iterator[int]:
    """Yield a port that takes calls and does not answer them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


class QueueUpstream(Upstream):
    """Queues in a directory."""

    name = "QUEUE"

    def __init__(self, place: Path) -> None:
        from catalog_migrate_queue.directory import Directory

        self.directory = Directory(str(place / "q"))
        self.directory.create()
        self.directory.create_queue("orders", 2)
        self.directory.create_queue("sent")
        other = Directory(str(place / "other"))
        other.create()
        self.place = place
        self.connection = {"PATH": str(self.directory.path)}
        self.elsewhere = {"PATH": str(other.path)}
        self.silent = {"PATH": str(place / "nowhere")}
        for name, source, sink in (("", "orders", "sent"), ("missing_", "nope", "none")):
            setattr(self, f"{name}source", External(
                connector="QUEUE", options={"QUEUE": source}, format="JSON"
            ))
            setattr(self, f"{name}sink", External(
                connector="QUEUE", options={"QUEUE": sink}, format="JSON"
            ))
        self.loop = External(connector="QUEUE", options={"QUEUE": "orders"}, format="JSON")
        self.keyed_sink = External(
            connector="QUEUE", options={"QUEUE": "sent"}, format="JSON", key=("id",)
        )
        (place / "link").symlink_to(self.directory.path)
        self.moved = {"PATH": str(place / "link")}
        (place / "another kind/id").mkdir(parents=True)
        self.another_kind = {"PATH": str(place / "another kind")}

    def send(self, ids: Iterable[int]) -> None:
        for number in ids:
            self.directory.append("orders", number % 2, [(None, json.dumps({"id": number}))])

    def fetch(self) -> list[int]:
        records = self.directory.read("sent", 0, *self.directory.bounds("sent", 0))
        return [json.loads(record.value)["id"] for record in records]

    def recreate(self) -> None:
        shutil.rmtree(self.directory.path / "orders")
        self.directory.create_queue("orders", 2)

    def purge(self) -> None:
        for number in (0, 1):
            self.directory.expire("orders", number)

    @contextmanager
    def hang(self) -> Iterator[Resolved]:
        (self.place / "hanging").mkdir()
        os.mkfifo(self.place / "hanging/id")  # a reader waits for a writer
        yield {"PATH": str(self.place / "hanging")}

    def list_everything(self) -> object:
        return [(each, each.stat().st_mtime_ns) for each in sorted(self.place.rglob("*"))]

    def send_keyed(self, number: int, key: str) -> None:
        self.directory.append("orders", number % 2, [(key, json.dumps({"id": number}))])

    def fetch_keys(self) -> list[tuple[object, int]]:
        records = self.directory.read("sent", 0, *self.directory.bounds("sent", 0))
        return [(record.key, json.loads(record.value)["id"]) for record in records]


class FilesUpstream(Upstream):
    """A directory of files of JSON."""

    name = "FILES"

    def __init__(self, place: Path) -> None:
        self.place = place / "landing"
        (self.place / "orders").mkdir(parents=True)
        (place / "other").mkdir()
        self.connection = {"PATH": str(self.place), "FORMAT": "json"}
        self.elsewhere = {"PATH": str(place / "other"), "FORMAT": "json"}
        self.silent = {"PATH": str(place / "nowhere"), "FORMAT": "json"}
        (place / "link").symlink_to(self.place)
        (place / "another kind").write_text("a file")
        self.moved = {"PATH": str(place / "link"), "FORMAT": "json"}
        self.another_kind = {"PATH": str(place / "another kind"), "FORMAT": "json"}
        self.source = External(
            connector="FILES", options={"PATH": "orders", "DECODING": "exact"}, format="JSON"
        )
        self.missing_source = External(
            connector="FILES", options={"PATH": "nope", "DECODING": "exact"}, format="JSON"
        )

    def send(self, ids: Iterable[int]) -> None:
        lines = "\n".join(json.dumps({"id": number}) for number in ids)
        name = f"{next(_numbers):06d}.json"
        (self.place / name).write_text(lines)
        os.replace(self.place / name, self.place / "orders" / name)

    def list_everything(self) -> object:
        place = self.place.parent
        return [(each, each.stat().st_mtime_ns) for each in sorted(place.rglob("*"))]


class KafkaUpstream(Upstream):
    """Topics of the run's broker, with passwords."""

    name = "KAFKA"

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka, number = kafka, next(_numbers)
        self.topics = {name: f"suite{number}-{name}" for name in ("orders", "sent", "nope")}
        kafka.allow("app", f"suite{number}-nope", "READ", "WRITE", "DESCRIBE")
        self.create("orders", 2)
        self.create("sent", 1)
        common = {
            "SECURITY PROTOCOL": "SASL_PLAINTEXT", "SASL MECHANISMS": "SCRAM-SHA-512",
            "SASL USERNAME": "app", "SASL PASSWORD": Secret(kafka.users["app"]),
        }
        self.connection = {"BROKER": kafka.bootstrap, **common}
        self.silent = {"BROKER": f"127.0.0.1:{free_ports(1)[0]}", **common}
        self.moved = {"BROKER": kafka.bootstrap.replace("127.0.0.1", "localhost"), **common}
        for name, source, sink in (("", "orders", "sent"), ("missing_", "nope", "nope")):
            setattr(self, f"{name}source", External(
                connector="KAFKA", format="JSON",
                options={"TOPIC": self.topics[source], "ISOLATION LEVEL": "read_committed"},
            ))
            setattr(self, f"{name}sink", External(
                connector="KAFKA", options={"TOPIC": self.topics[sink]}, format="JSON"
            ))
        self.loop, self.keyed_sink = (
            External(
                connector="KAFKA", options={"TOPIC": self.topics[topic]}, format="JSON", key=("id",)
            )
            for topic in ("orders", "sent")
        )

    def create(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        self.kafka.create_topic(topic, partitions)
        self.kafka.allow("app", topic, "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")

    def send(self, ids: Iterable[int]) -> None:
        for number in ids:
            record = (str(number), json.dumps({"id": number}))
            self.kafka.produce(self.topics["orders"], [record], partition=number % 2)

    def fetch(self) -> list[int]:
        found = self.kafka.consume_all(self.topics["sent"])
        return [json.loads(message.value)["id"] for message in found]

    def purge(self) -> None:
        ends = self.kafka.watermarks(self.topics["orders"])
        self.kafka.delete_records(
            self.topics["orders"], {number: newest - 2 for number, (_, newest) in ends.items()}
        )

    @contextmanager
    def hang(self) -> Iterator[Resolved]:
        with _deaf_port() as port:
            yield {**self.silent, "BROKER": f"127.0.0.1:{port}"}

    def list_everything(self) -> object:
        names = [self.topics[name] for name in ("orders", "sent")]
        return self.kafka.topics(), [self.kafka.watermarks(name) for name in names]

    def send_keyed(self, number: int, key: str) -> None:
        record = (key, json.dumps({"id": number}))
        self.kafka.produce(self.topics["orders"], [record], partition=number % 2)

    def fetch_keys(self) -> list[tuple[object, int]]:
        found = self.kafka.consume_all(self.topics["sent"])
        return [(message.key, json.loads(message.value)["id"]) for message in found]

    def recreate(self) -> None:
        self.kafka.delete_topic(self.topics["orders"])
        deadline = time.monotonic() + 30
        while True:
            try:
                self.create("orders", 2)
            except Exception:  # noqa: BLE001 - until it is deleted
                assert time.monotonic() < deadline
                time.sleep(0.2)
            else:
                return


class PostgresUpstream(Upstream):
    """A table of the run's server."""

    name = "POSTGRES"

    def __init__(self, postgres: PostgresServer) -> None:
        self.postgres = postgres
        self.table = f"suite_{next(_numbers)}"
        postgres.execute(f"CREATE TABLE {self.table} (id bigint)", user="app", database="shop")
        p = postgres.parameters("app", "shop")
        common = {
            "DATABASE": "shop", "USER": "app", "PASSWORD": Secret(p["password"]),
            "SSL MODE": "disable", "HOST": p["host"],
        }
        self.connection = {**common, "PORT": str(p["port"])}
        self.silent = {**common, "PORT": str(free_ports(1)[0])}
        self.moved = {**self.connection, "HOST": "localhost"}
        self.sink = External(connector="POSTGRES", options={"TABLE": self.table})
        self.missing_sink = External(connector="POSTGRES", options={"TABLE": "suite_none"})

    def fetch(self) -> list[int]:
        rows = self.postgres.execute(f"SELECT id FROM {self.table}", user="app", database="shop")
        return [row[0] for row in rows]

    @contextmanager
    def hang(self) -> Iterator[Resolved]:
        with _deaf_port() as port:
            yield {**self.silent, "PORT": str(port)}

    def list_everything(self) -> object:
        return self.postgres.execute(
            "SELECT relname, relkind, relfilenode FROM pg_class ORDER BY relname",
            user="app", database="shop",
        )


class _OfQueue:
    @pytest.fixture
    def upstream(self, installed: Path, tmp_path: Path) -> QueueUpstream:
        return QueueUpstream(tmp_path)


class _OfFiles:
    @pytest.fixture
    def upstream(self, tmp_path: Path) -> FilesUpstream:
        return FilesUpstream(tmp_path)


class _OfKafka:
    @pytest.fixture
    def upstream(self, kafka: KafkaCluster) -> KafkaUpstream:
        return KafkaUpstream(kafka)


class _OfPostgres:
    @pytest.fixture
    def upstream(self, postgres: PostgresServer) -> PostgresUpstream:
        return PostgresUpstream(postgres)


class TestQueue(_OfQueue, ConnectorSuite):
    """The queue, without Spark."""


class TestFiles(_OfFiles, ConnectorSuite):
    """Files, without Spark."""


@pytest.mark.services
class TestKafka(_OfKafka, ConnectorSuite):
    """Kafka, without Spark."""


@pytest.mark.services
class TestPostgres(_OfPostgres, ConnectorSuite):
    """PostgreSQL, without Spark."""

    def test_a_ledger_that_cannot_be_read(self, sink: Sink, upstream: PostgresUpstream) -> None:
        """Expect a failure that may end by itself, which the runtime tries again for ever."""
        assert upstream.sink is not None
        spec = upstream.spec(upstream.sink, upstream.silent)
        with pytest.raises(EngineFailure, match="cannot read the ledger of sink") as caught:
            sink.require_ledger(spec, "q", 1)
        assert is_passing(caught.value)


@pytest.mark.spark
class TestQueueOnSpark(_OfQueue, SourceSuite, SinkSuite):
    """Rows of the queue."""

    @pytest.fixture(autouse=True)
    def _on_executors(self, on_executors: None) -> None:
        pass


@pytest.mark.spark
class TestFilesOnSpark(_OfFiles, SourceSuite):
    """Rows of files."""


@pytest.mark.spark
@pytest.mark.services
class TestKafkaOnSpark(_OfKafka, SourceSuite, SinkSuite):
    """Records of Kafka."""


@pytest.mark.spark
@pytest.mark.services
class TestPostgresOnSpark(_OfPostgres, SinkSuite):
    """Rows of PostgreSQL; its sources read several tables, in their own way."""
