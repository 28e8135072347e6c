"""A pipeline on real Kafka, PostgreSQL, Spark and Delta, driven by statements and one runtime."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.store import create_catalog, open_log
from catalog_migrate.streams import wiring
from catalog_migrate.streams.execute import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.streams.runtime import Runtime
    from catalog_migrate.testing.services.kafka import KafkaCluster
    from catalog_migrate.testing.services.postgres import PostgresServer

_pipelines = itertools.count(1)
PATIENCE = 120.0
"""Seconds that anything may take on a loaded machine; nothing is asserted about times."""


class Producer:
    """Produces numbered records into topics until it is stopped; counts what was acknowledged."""

    def __init__(self, kafka: KafkaCluster, topics: list[str], pause: float = 0.05) -> None:
        self.kafka, self.topics, self.pause = kafka, topics, pause
        self.sent: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: Exception | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for topic in self.topics:
                    number = self.sent[topic]
                    self.kafka.produce(topic, [(str(number), json.dumps({"id": number}))])
                    self.sent[topic] += 1
                self._stop.wait(self.pause)
        except Exception as error:  # noqa: BLE001 - raised by stop()
            self.failure = error

    def start(self) -> Producer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


class Pipeline:
    """One catalog with its runtime in this process; ``name`` makes topics and tables unique."""

    def __init__(
        self, directory: Path, spark: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.name = f"p{next(_pipelines)}"
        self.spark, self.kafka, self.postgres = spark, kafka, postgres
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.log = open_log(str(directory / "catalog"))
        create_catalog(self.log, warehouse=str(directory / "warehouse"))
        self.catalog = Catalog.open(directory / "catalog", mode="write")
        self.runtime: Runtime | None = None
        self.events: list[str] = []
        self.producers: list[Producer] = []

    # -- statements ----------------------------------------------------------------------------

    def run(self, sql: str, **options: Any) -> list[Result]:
        return self.catalog.execute(sql, **{"limit": PATIENCE, **options})

    def secret(self, name: str, value: str) -> None:
        """A secret in an environment variable of this process."""
        variable = f"{self.name}_{name}".upper()
        self.monkeypatch.setenv(variable, value)
        self.run(f"CREATE SECRET IF NOT EXISTS {self.q(name)} AS 'env:{variable}'")

    def q(self, name: str) -> str:
        """A name in the schema of this pipeline."""
        return f"{self.name}.{name}"

    def kafka_connection(self, name: str, *, user: str = "app", secret: str = "pw") -> None:
        self.run(
            f"CREATE CONNECTION {self.q(name)} TO KAFKA (BROKER '{self.kafka.bootstrap}', "
            f"SECURITY PROTOCOL 'SASL_PLAINTEXT', SASL MECHANISMS 'SCRAM-SHA-512', "
            f"SASL USERNAME '{user}', SASL PASSWORD SECRET {self.q(secret)})"
        )

    def postgres_connection(self, name: str, *, secret: str = "pg") -> None:
        p = self.postgres.parameters("app", "shop")
        self.run(
            f"CREATE CONNECTION {self.q(name)} TO POSTGRES (HOST '{p['host']}', PORT {p['port']}, "
            f"DATABASE 'shop', USER 'app', PASSWORD SECRET {self.q(secret)}, SSL MODE 'disable')"
        )

    def topic(self, name: str, partitions: int = 2, *, user: str = "app") -> str:
        full = f"{self.name}-{name}"
        self.kafka.create_topic(full, partitions)
        self.kafka.allow(user, full, "READ", "WRITE", "DESCRIBE")
        return full

    def source(self, name: str, connection: str, topic: str, more: str = "") -> None:
        self.run(
            f"CREATE SOURCE {self.q(name)} (id BIGINT) IN CLUSTER {self.q('main')} FROM KAFKA "
            f"CONNECTION {self.q(connection)} (TOPIC '{topic}') FORMAT JSON {more}"
        )

    def table(self, name: str, columns: str = "id bigint") -> str:
        full = f"{self.name}_{name}"
        self.postgres.execute(
            f"CREATE TABLE {full} ({columns})", user="app", database="shop"
        )
        return full

    # -- runtime -------------------------------------------------------------------------------

    def start(self, **options: Any) -> Runtime:
        from catalog_migrate.streams.runtime import RuntimeOptions

        self.runtime = self.catalog.runtime(
            self.spark, self.q("main"), on_event=self.events.append,
            options=RuntimeOptions(drain=20.0, **options),
        ).start()
        assert self.runtime.ready.wait(PATIENCE)
        return self.runtime

    def stop(self) -> None:
        for producer in self.producers:
            producer.stop()
        self.producers.clear()
        if self.runtime is not None:
            runtime, self.runtime = self.runtime, None
            runtime.close()

    def produce(self, *topics: str, pause: float = 0.05) -> Producer:
        producer = Producer(self.kafka, list(topics), pause).start()
        self.producers.append(producer)
        return producer

    def run_ids(self) -> dict[str, str | None]:
        """Run id of each query by name: another one after each restart."""
        assert self.runtime is not None
        assert self.runtime.supervisor is not None
        state = self.catalog.state()
        return {
            wiring.display(state, item_id): each.query.run_id if each.query is not None else None
            for item_id, each in dict(self.runtime.supervisor.managed).items()
        }

    def id(self, name: str) -> str:
        """The item id of a source or sink."""
        state = self.catalog.state()
        kind = next(m.kind for m in state.mappings.values()
                    if m.name == name and m.kind in ("source", "sink"))
        return wiring.find(state, kind, self.q(name)).item_id

    def await_running(self, count: int) -> None:
        """Wait until so many queries have made progress."""
        assert self.runtime is not None

        def running() -> bool:
            supervisor = self.runtime.supervisor  # type: ignore[union-attr]
            assert supervisor is not None
            return sum(
                each.query is not None and each.query.progress() is not None
                for each in dict(supervisor.managed).values()
            ) >= count

        self.until(running, f"{count} running queries")

    def until(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait for something that must come."""
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                supervisor = self.runtime.supervisor if self.runtime is not None else None
                errors = {
                    each.item_id: each.error for each in supervisor.managed.values()
                } if supervisor is not None else {}
                raise AssertionError(f"waited in vain for {what}; {errors}; {self.events[-5:]}")
            time.sleep(0.1)

    # -- what arrived --------------------------------------------------------------------------

    def ids(self, source: str) -> Counter[int]:
        """How often each id is in a source's shard, read by delta-rs."""
        from deltalake import DeltaTable, QueryBuilder

        state = self.catalog.state()
        item = wiring.find(state, "source", self.q(source)).item
        path = f"{state.config['warehouse'].value}/{item.shard}"
        table = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t")
        return Counter(table.read_all().column("id").to_pylist())

    def postgres_ids(self, table: str) -> Counter[int]:
        rows = self.postgres.execute(f"SELECT id FROM {table}", user="app", database="shop")
        return Counter(row[0] for row in rows)

    def kafka_ids(self, topic: str) -> Counter[int]:
        """Ids in a topic, repeats dropped by their headers as a consumer would."""
        seen: dict[str, int] = {}
        for message in self.kafka.consume_all(topic):
            headers = {
                key: value.decode() if isinstance(value, bytes) else str(value)
                for key, value in dict(message.headers).items()
            }
            key = headers["catalog_migrate.item"] + "/" + headers["catalog_migrate.row"]
            seen[key] = json.loads(message.value)["id"]
        return Counter(seen.values())


def once(count: int) -> Counter[int]:
    """Every number below ``count``, once."""
    return Counter(range(count))


@pytest.fixture
def pipeline(
    tmp_path: Path, spark: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    """A pipeline with the secrets of user app and the cluster main; stopped in the end."""
    made = Pipeline(tmp_path, spark, kafka, postgres, monkeypatch)
    made.secret("pw", kafka.users["app"])
    made.secret("pg", postgres.parameters("app", "shop")["password"])
    made.run(f"CREATE CLUSTER {made.q('main')}")
    yield made
    made.stop()
