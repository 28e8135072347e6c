"""A pipeline on real Kafka, PostgreSQL, Spark and Delta, driven by statements and one runtime."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.operations.kinds import STARTED
from catalog_migrate.store.address import Storage
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.execute import Result
from tests.streams.running.skipping_clock import SkippingClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.streams.runtime.runtime import Runtime
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

_pipelines = itertools.count(1)
PATIENCE = 240.0
"""Seconds that anything may take on a loaded machine; nothing is asserted about times."""


class Producer:
    """Produces numbered records into topics until it is stopped.

    ``sent`` counts what was acknowledged and gives each topic's next number; it may be shared.
    """

    def __init__(
        self, kafka: KafkaCluster, topics: list[str], pause: float = 0.05,
        sent: Counter[str] | None = None,
    ) -> None:
        self.kafka, self.topics, self.pause = kafka, topics, pause
        self.sent: Counter[str] = Counter() if sent is None else sent
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
    """One catalog with its runtime in this process; ``name`` makes topics and tables unique.

    Catalog, rows and checkpoints lie in the directory, or at an ``address`` of an object store
    that these ``options`` reach.
    """

    def __init__(
        self, directory: Path, spark: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
        monkeypatch: pytest.MonkeyPatch, address: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"p{next(_pipelines)}"
        self.spark, self.kafka, self.postgres = spark, kafka, postgres
        self.directory = directory
        self.monkeypatch = monkeypatch
        home = str(directory) if address is None else address
        self.log = open_log(f"{home}/catalog", Storage(options))
        create_catalog(self.log, warehouse=f"{home}/warehouse")
        self.catalog = Catalog.open(f"{home}/catalog", mode="write", storage_options=options)
        self.runtime: Runtime | None = None
        self.clock = SkippingClock()
        self.events: list[str] = []
        self.producers: list[Producer] = []
        self.sent: Counter[str] = Counter()

    def begin(self) -> None:
        """The secrets of user app and the cluster main."""
        self.secret("pw", self.kafka.users["app"])
        self.secret("pg", self.postgres.parameters("app", "shop")["password"])
        self.run(f"CREATE CLUSTER {self.q('main')}")

    # -- statements ----------------------------------------------------------------------------

    def run(self, sql: str, **options: Any) -> list[Result]:
        return self.catalog.execute(sql, **{"limit": PATIENCE, **options})

    def fails(
        self, sql: str, when: Callable[[], bool], *, phases: Collection[str] = (STARTED,),
        **options: Any,
    ) -> CatalogMigrateError:
        """Run an ALTER whose trial fails; returns its error.

        The limit of its trial passes by the runtime's clock once ``when`` holds, in each of these
        phases; what is not in them has all the patience of a loaded machine.
        """
        def failed() -> bool:
            rows = self.catalog.state().operations.values()
            return any(row.detail.get("phase") in phases for row in rows) and when()

        with self.clock.skipping(PATIENCE, failed), pytest.raises(CatalogMigrateError) as caught:
            self.run(sql, **options)
        return caught.value

    def broken(self, *names: str) -> bool:
        """Whether each of these queries has an error."""
        assert self.runtime is not None
        assert self.runtime.supervisor is not None
        managed = self.runtime.supervisor.managed
        return all(managed[self.id(name)].error is not None for name in names)

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
        from catalog_migrate.streams.runtime.runtime import RuntimeOptions

        self.runtime = self.catalog.runtime(
            self.spark, self.q("main"), on_event=self.events.append,
            options=RuntimeOptions(drain=20.0, **options),
        ).start()
        runtime = self.runtime
        self.until(lambda: runtime.supervisor is not None or runtime.ready.is_set(), "the lease")
        if runtime.supervisor is not None:
            # not the lease's: that is judged by other processes too
            runtime.clock = runtime.supervisor.clock = self.clock
        assert runtime.ready.wait(PATIENCE)
        return runtime

    def stop(self) -> None:
        self.stop_producing()
        if self.runtime is not None:
            runtime, self.runtime = self.runtime, None
            runtime.close()

    def produce(self, *topics: str, pause: float = 0.05) -> Producer:
        producer = Producer(self.kafka, list(topics), pause, self.sent).start()
        self.producers.append(producer)
        return producer

    def stop_producing(self) -> None:
        for producer in self.producers:
            producer.stop()
        self.producers.clear()

    def send(self, topic: str, count: int) -> None:
        """So many more records into a topic."""
        first = self.sent[topic]
        self.sent[topic] += count
        self.kafka.produce(
            topic, [(str(n), json.dumps({"id": n})) for n in range(first, first + count)]
        )

    def run_ids(self) -> dict[str, str | None]:
        """Run id of each query by name: another one after each restart."""
        assert self.runtime is not None
        assert self.runtime.supervisor is not None
        state = self.catalog.state()
        return {
            dependencies.display(state, item_id): each.query.run_id
            if each.query is not None
            else None
            for item_id, each in dict(self.runtime.supervisor.managed).items()
        }

    def id(self, name: str) -> str:
        """The item id of a source or sink."""
        state = self.catalog.state()
        kind = next(m.kind for m in state.mappings.values() if m.kind in ("source", "sink")
                    and (m.schema, m.name) == (self.name, name))
        return dependencies.find(state, kind, self.q(name)).item_id

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
            time.sleep(0.2)

    # -- what arrived --------------------------------------------------------------------------

    def ids(self, source: str, kind: str = "source") -> Counter[int]:
        """How often each id is in a source's shard, or a table's, read by delta-rs."""
        from deltalake import QueryBuilder

        state = self.catalog.state()
        item = dependencies.find(state, kind, self.q(source)).item
        path = f"{state.config['warehouse'].value}/{item.shard}"
        table = QueryBuilder().register("t", load_table(path)).execute("SELECT id FROM t")
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


class Standing(Pipeline):
    """A pipeline that tests of one module share, each of which leaves it running as it was.

    Sources ``s`` and ``z`` on connection ``c``, ``k`` from ``z`` INTO KAFKA on ``c``, ``d`` from
    ``s`` INTO KAFKA on connection ``d``; ``w`` and ``x`` from ``w`` on connection ``w`` begin
    paused. Records are numbered on over all tests.
    """

    NAMES = ("s", "z", "k", "d")
    BELOW_C = ("s", "z", "k")

    def lay_out(self) -> None:
        for name in "cdw":
            self.kafka_connection(name)
        self.topics = {name: self.topic(name) for name in "szw"}
        self.outs = {name: self.topic(name, 1) for name in "kdx"}
        each = "WITH (TRIGGER '1 second')"
        for name, connection in (("s", "c"), ("z", "c"), ("w", "w")):
            self.source(name, connection, self.topics[name], each)
        for name, source, connection in (("k", "z", "c"), ("d", "s", "d"), ("x", "w", "w")):
            self.run(
                f"CREATE SINK {self.q(name)} IN CLUSTER {self.q('main')} FROM {self.q(source)} "
                f"INTO KAFKA CONNECTION {self.q(connection)} (TOPIC '{self.outs[name]}') KEY (id) "
                f"FORMAT JSON {each}"
            )
        self.run(f"PAUSE SOURCE {self.q('w')}")

    def options(self, connection: str) -> str:
        """A connection as it is now."""
        return self.run(f"SHOW CREATE CONNECTION {self.q(connection)}")[0].summary

    def run_ids_of(self, names: Collection[str]) -> dict[str, str | None]:
        """Run ids of some queries, by their own names."""
        found = self.run_ids()
        return {name: found.get(self.q(name)) for name in names}

    def holds(self) -> list[tuple[str, str]]:
        """Holder and reason of every hold but that of ``w``."""
        return [(hold.holder, hold.reason) for hold in self.catalog.state().holds.values()
                if hold.item_id != self.id("w")]

    def require_all_once(self) -> None:
        """Every record that was sent is in the tables once, and in the topics below them."""
        self.stop_producing()
        sent = {name: once(self.sent[topic]) for name, topic in self.topics.items()}
        for name in "sz":
            self.until(lambda name=name: self.ids(name) == sent[name], f"all rows of {name}")
        for name, source in (("k", "z"), ("d", "s")):
            self.until(
                lambda name=name, source=source: self.kafka_ids(self.outs[name]) == sent[source],
                f"all rows of {name}",
            )

    def reports(self, name: str) -> bool:
        """Whether a query runs and has made progress."""
        assert self.runtime is not None
        assert self.runtime.supervisor is not None
        each = self.runtime.supervisor.managed.get(self.id(name))
        query = None if each is None else each.query  # the runtime may take it away meanwhile
        return query is not None and query.progress() is not None

    def recover(self) -> None:
        """Wait until all run, whatever back-off there was."""
        self.stop_producing()
        self.clock.skip(PATIENCE)
        self.await_running_of(self.NAMES)

    def await_running_of(self, names: Collection[str]) -> None:
        """Wait until these queries have made progress."""
        self.until(lambda: all(map(self.reports, names)), f"{', '.join(names)} to run")


class Branch(Pipeline):
    """A schema of its own in another pipeline's catalog, on the cluster and runtime of that one."""

    def __init__(self, base: Pipeline) -> None:
        vars(self).update(vars(base))
        self.base = base
        self.name = f"p{next(_pipelines)}"
        self.producers, self.sent = [], Counter()
        self.secret("pw", self.kafka.users["app"])

    def q(self, name: str) -> str:
        return self.base.q(name) if name == "main" else super().q(name)

    def stop(self) -> None:
        """Drop its sources and sinks, and wait until the runtime has let go of them."""
        self.stop_producing()
        for kind in ("sink", "source"):
            mappings = list(self.catalog.state().mappings.values())
            for name in (m.name for m in mappings if (m.schema, m.kind) == (self.name, kind)):
                self.run(f"DROP {kind.upper()} {self.q(name)}")
        assert self.runtime is not None
        supervisor = self.runtime.supervisor
        assert supervisor is not None
        self.until(lambda: not supervisor.managed, "no query")


@pytest.fixture
def pipeline(
    tmp_path: Path, spark: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    """A pipeline of one test, with the cluster main; stopped in the end."""
    made = Pipeline(tmp_path, spark, kafka, postgres, monkeypatch)
    made.begin()
    yield made
    made.stop()


@pytest.fixture
def publisher(postgres: PostgresServer) -> PostgresServer:
    """The server with a role that may read changes, cdc, and one that may publish, app."""
    if not postgres.execute("SELECT 1 FROM pg_roles WHERE rolname = 'cdc'"):
        postgres.create_user("cdc", "cdc's secret word", replication=True)
    postgres.execute("GRANT CREATE ON DATABASE shop TO app", database="shop")
    return postgres


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, kafka: KafkaCluster,
    postgres: PostgresServer,
) -> Iterator[Standing]:
    """The pipeline of a module, with its runtime."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = Standing(tmp_path_factory.mktemp("standing"), spark, kafka, postgres, monkeypatch)
        made.begin()
        made.lay_out()
        made.start()
        yield made
        made.stop()


@pytest.fixture
def standing(started: Standing) -> Iterator[Standing]:
    """The pipeline of the module, all of it running."""
    started.recover()
    yield started
    started.stop_producing()
