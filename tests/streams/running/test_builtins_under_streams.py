"""Sinks on built-in tables through releases: each row once, and no migration waits for a sink."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.state import State
from catalog_migrate.migrations.cleanup import find_expired
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.reconcile import finish_shared
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.streams.runtime.shard_handover import still_read
from catalog_migrate.streams.runtime.supervisor import LONGEST_BACK_OFF

from .conftest import once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.hook import BootstrapReport

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]

V1 = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING);"
V2 = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING);"
V3 = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, amount INT RENAMED FROM qty) DROPPED (note);"
V4 = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, amount INT RENAMED FROM qty, paid BOOLEAN);"
TAGS = "CREATE TABLE {s}.tags (id BIGINT, tag STRING);"
BAD1 = (
    "CREATE TABLE {s}.bad (_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, "
    "key BINARY, value BINARY, error STRING);"
)
BAD2 = BAD1.replace(";", " PARTITIONED BY (_topic);")
LONG = 300.0
"""Seconds for what takes several steps on a loaded machine."""


class Software:
    """The software whose releases are put in force, and that appends to its tables by name."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self.pipeline, self.spark = pipeline, spark.newSession()
        self.numbers = itertools.count()
        self.total = 0

    def start(self, name: str, *tables: str, **options: Any) -> BootstrapReport:
        from catalog_migrate.hook import bootstrap

        directory = self.pipeline.directory / f"release-{name}"
        directory.mkdir()
        text = "\n".join(tables).replace("{s}", self.pipeline.name)
        (directory / "tables.sql").write_text(text, encoding="utf-8")
        (directory / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
        return bootstrap(
            self.spark, release=directory, catalog=self.pipeline.directory / "catalog", **options
        )

    def append(self, values: str, columns: str = "id") -> None:
        """One row by name; ``{n}`` is its number. Tried again while its table is replaced."""
        number = next(self.numbers)
        name = self.pipeline.q("orders")
        deadline = time.monotonic() + LONG
        while True:
            try:
                self.spark.sql(
                    f"INSERT INTO {name} ({columns}) VALUES ({values.format(n=number)})"
                )
                break
            except (PySparkException, Py4JJavaError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.total = number + 1

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Append all the time from a thread of its own."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                while not stop.wait(0.7):
                    self.append("{n}")
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def refused(self, statement: str) -> bool:
        """Whether Spark refuses a change of rows because the table only grows."""
        try:
            self.spark.sql(statement)
        except (PySparkException, Py4JJavaError) as error:
            return "DELTA_CANNOT_MODIFY_APPEND_ONLY" in str(error)
        return False


@pytest.fixture
def software(pipeline: Pipeline, spark: SparkSession) -> Iterator[Software]:
    """The software on the pipeline's catalog, connections made and nothing shipped yet."""
    pipeline.kafka_connection("c")
    pipeline.postgres_connection("pg")
    # the built-in views of another catalog may stand in this session
    spark.sql("DROP DATABASE IF EXISTS catalog_migrate CASCADE")
    yield Software(pipeline, spark)
    pipeline.stop()
    spark.sql("DROP DATABASE IF EXISTS catalog_migrate CASCADE")


EACH = "TRIGGER = '2 seconds'"
"""How often a query has a batch, each of which costs CPU time."""


def kafka_sink(pipeline: Pipeline, name: str, table: str, more: str = "") -> str:
    topic = pipeline.topic(name, 1)
    pipeline.run(
        f"CREATE SINK {pipeline.q(name)} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q(table)} "
        f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{topic}') FORMAT JSON "
        f"WITH ({EACH}{more})"
    )
    return topic


class DeadLetters:
    """Source ``s``, whose bad records go INTO the built-in table ``bad``; every second one is."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.topic = pipeline.topic("letters", 1)
        pipeline.source("s", "c", self.topic, f"ON ERROR INTO {pipeline.q('bad')} WITH ({EACH})")
        self.numbers = itertools.count()

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Good and bad records all the time, some of them before the block and some after it."""
        stop = threading.Event()

        def produce() -> None:
            while not stop.wait(0.2):
                number = next(self.numbers)
                self.pipeline.kafka.produce(
                    self.topic, [("k", f'{{"id": {number}}}'), ("k", "bad")]
                )

        feed = threading.Thread(target=produce, daemon=True)
        feed.start()
        try:
            self.await_more()
            yield
            self.await_more()
        finally:
            stop.set()
            feed.join()

    def await_more(self) -> None:
        before = self.pipeline.ids("s").total()
        self.pipeline.until(lambda: self.pipeline.ids("s").total() >= before + 5, "more records")

    def require_all_once(self, spark: SparkSession) -> None:
        count = next(self.numbers)
        self.pipeline.until(
            lambda: self.pipeline.ids("s") == once(count), "all good records", LONG
        )
        offsets = spark.table(self.pipeline.q("bad")).select("_offset").collect()
        assert Counter(row[0] for row in offsets) == Counter(range(1, 2 * count, 2))


def shard_of(state: State, pipeline: Pipeline, table: str = "orders") -> str:
    shard = dependencies.find(state, "table", pipeline.q(table)).item.shard
    assert shard is not None
    return shard


def reads(pipeline: Pipeline, name: str) -> str:
    state = pipeline.catalog.state()
    return state.streams[dependencies.find(state, "sink", pipeline.q(name)).item_id].reads


class NextMonth(SystemClock):
    """When the retention of all that is replaced now is over."""

    def wall(self) -> float:
        return super().wall() + 30 * 86_400.0


def remove_expired(pipeline: Pipeline, spark: SparkSession) -> None:
    """What a start does long after: every retired shard that may go, goes."""
    from catalog_migrate.engine.spark.engine import SparkEngine

    log = pipeline.log
    state = pipeline.catalog.state()
    lease = acquire(log, holder="test", clock=SystemClock(), wait=60.0)
    try:
        finish_shared(
            ExecutionContext(
                SparkEngine(spark),
                log,
                NextMonth(),
                state.config["warehouse"].value,
                MigratedStreams(),
                lease=lease,
            ),
            state,
        )
    finally:
        lease.release()


def test_three_releases(
    pipeline: Pipeline, software: Software, spark: SparkSession, postgres: Any
) -> None:
    """Rows appended by name between and during releases that copy, rename, drop and add columns.

    ``k`` runs all the time, ``held`` is paused and ``p`` has its destination down while two
    copies are made: no migration waits, the retired shards stay as long as somebody has to pass
    through them, and each consumer has each row once.

    The first of them also copies the table that takes dead letters: each record is in it once. The
    second drops the table below ``t``, which stops, is kept, and says why; what SHOW says is what
    the views in ``catalog_migrate`` say.
    """
    software.start("1", V1, TAGS, BAD1)
    orders = pipeline.q("orders")
    software.append("{n}, '10', 'a'", "id, qty, note")
    software.append("{n}, '20', NULL", "id, qty, note")
    assert not software.refused(f"UPDATE {orders} SET note = 'b' WHERE note = 'a'")

    topic, topic_held = kafka_sink(pipeline, "k", "orders"), kafka_sink(pipeline, "held", "orders")
    # every shape that the table has had: what a shard has not is NULL
    table = pipeline.table("sold", "id bigint, qty text, note text, amount int, paid boolean")
    pipeline.run(
        f"CREATE SINK {pipeline.q('p')} IN CLUSTER {pipeline.q('main')} FROM {orders} "
        f"INTO POSTGRES CONNECTION {pipeline.q('pg')} (TABLE '{table}') WITH ({EACH})"
    )
    assert software.refused(f"UPDATE {orders} SET note = 'c' WHERE note = 'b'")
    kafka_sink(pipeline, "t", "tags", ", ON CHANGE = 'skip'")
    spark.sql(f"INSERT INTO {pipeline.q('tags')} VALUES (1, 'a')")
    assert not software.refused(f"UPDATE {pipeline.q('tags')} SET tag = 'b'")
    dead_letters = DeadLetters(pipeline)
    pipeline.start()
    pipeline.await_running(5)
    software.append("{n}, '30', 'd'", "id, qty, note")
    for each in (topic, topic_held):
        pipeline.until(lambda each=each: pipeline.kafka_ids(each) == once(3), f"3 rows in {each}")
    pipeline.until(lambda: pipeline.postgres_ids(table) == once(3), "3 rows in the table")
    first = shard_of(pipeline.catalog.state(), pipeline)
    first_bad = shard_of(pipeline.catalog.state(), pipeline, "bad")

    pipeline.run(f"PAUSE SINK {pipeline.q('held')} REASON 'mine'")
    postgres.stop()
    try:
        with software.appending(), dead_letters.arriving():
            report = software.start("2", V2, TAGS, BAD2)
        assert report.outcome == "migrated"
        second = shard_of(pipeline.catalog.state(), pipeline)
        assert second != first
        assert shard_of(pipeline.catalog.state(), pipeline, "bad") != first_bad
        dead_letters.require_all_once(software.spark)
        # before any sink came here, and also while they are in the old shard
        assert software.refused(f"DELETE FROM {orders} WHERE id = 1")
        pipeline.until(lambda: reads(pipeline, "k") == second, "k in the second shard", LONG)
        pipeline.until(lambda: pipeline.kafka_ids(topic) == once(software.total), "all in k", LONG)

        with software.appending():
            report = software.start("3", V3, BAD2, approve=[pipeline.q("tags")])
        assert report.outcome == "migrated"
        supervisor = pipeline.runtime.supervisor  # type: ignore[union-attr]
        assert supervisor is not None
        dropped = supervisor.managed[pipeline.id("t")]
        pipeline.until(lambda: not dropped.active, "the sink of the dropped table to stop")
        software.append("{n}, 7", "id, amount")
        third = shard_of(pipeline.catalog.state(), pipeline)
        assert len({first, second, third}) == 3
        pipeline.until(lambda: reads(pipeline, "k") == third, "k in the third shard", LONG)
        assert reads(pipeline, "held") == reads(pipeline, "p") == first
        assert software.refused(f"DELETE FROM {orders} WHERE id = 1")

        state = pipeline.catalog.state()
        assert {first, second} <= still_read(state)
        remove_expired(pipeline, spark)
        state = pipeline.catalog.state()
        assert [state.shards[each].state for each in (first, second)] == ["retired", "retired"]
    finally:
        postgres.start()
    pipeline.clock.skip(LONGEST_BACK_OFF)
    pipeline.run(f"RESUME SINK {pipeline.q('held')}")
    pipeline.until(lambda: reads(pipeline, "held") == reads(pipeline, "p") == third,
                   "both in the third shard", LONG)

    before = pipeline.run_ids()[pipeline.q("k")]
    with software.appending():
        report = software.start("4", V4, BAD2)
    assert shard_of(pipeline.catalog.state(), pipeline) == third
    software.append("{n}, 8, true", "id, amount, paid")
    sent = once(software.total)
    assert Counter(row[0] for row in spark.table(orders).select("id").collect()) == sent
    for each in (topic, topic_held):
        pipeline.until(lambda each=each: pipeline.kafka_ids(each) == sent, f"all in {each}", LONG)
    pipeline.until(lambda: pipeline.postgres_ids(table) == sent, "all in the table", LONG)
    assert pipeline.run_ids()[pipeline.q("k")] != before

    shapes = postgres.execute(
        f"SELECT qty, note, amount, paid FROM {table} WHERE num_nonnulls(qty, note, amount, paid) "
        "> 0 ORDER BY id", user="app", database="shop",
    )
    assert [tuple(row) for row in shapes] == [
        ("10", "b", None, None), ("20", None, None, None), ("30", "d", None, None),
        (None, None, 7, None), (None, None, 8, True),
    ]
    state = pipeline.catalog.state()
    assert still_read(state) == frozenset()
    assert set(find_expired(state, time.time() + 1, 0.0, MigratedStreams())) == {first, second}
    remove_expired(pipeline, spark)
    state = pipeline.catalog.state()
    assert [state.shards[each].state for each in (first, second)] == ["gone", "gone"]

    pipeline.run(f"PAUSE SINK {pipeline.q('k')}")
    states = {"k": "held", "held": "running", "p": "running", "t": "quarantined"}
    agree(pipeline, spark, states)
    pipeline.stop()
    agree(pipeline, spark, {**states, "held": "no runtime", "p": "no runtime"})
    names = {row["reason"] for row in spark.table("catalog_migrate.holds").collect()}
    assert names == {"paused"}
    assert spark.table("catalog_migrate.connections").count() == 2


def agree(pipeline: Pipeline, spark: SparkSession, states: dict[str, str]) -> None:
    """SHOW SINKS has these states, and the view the same rows as SHOW."""

    def shown() -> dict[str, tuple[Any, ...]]:
        rows = pipeline.run("SHOW SINKS")[0].rows
        assert rows is not None
        named = [dict(zip(rows.columns, values, strict=True)) for values in rows.values]
        return {row["name"]: (row["state"], row["batch"], row["rows"], row["error"])
                for row in named}

    def viewed() -> dict[str, tuple[Any, ...]]:
        found = spark.sql(
            "SELECT concat(`schema`, '.', name) AS name, state, batch, rows, error "
            "FROM catalog_migrate.sinks"
        ).collect()
        return {row["name"]: (row["state"], row["batch"], row["rows"], row["error"])
                for row in found}

    def same() -> bool:
        told = shown()
        said = {name: row[0] for name, row in told.items()}
        wanted = {pipeline.q(name): each for name, each in states.items()}
        return said == wanted and told == viewed()

    pipeline.until(same, f"SHOW and the view to agree on {states}")
    (cluster,) = spark.table("catalog_migrate.clusters").collect()
    assert (cluster["runtime"] is None) == (pipeline.runtime is None)
