"""Connections under running queries: planning a fan-out, altering, an idle runtime."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Cost, Measure, paired
from bench.registry import avro_source
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.store.address import Storage
from catalog_migrate.streams.catalog.statement_changes import Draft
from catalog_migrate.streams.ddl.plans import plan_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster

DEPENDENTS = 1_000
QUERIES = 10
ROUNDS = 10
RESTARTS = 21
"""Pairs of restarts: one takes 0.3 to 0.5 s whatever it does, so the median of ten is no figure."""
WARM = 6
"""Pairs of restarts that are not counted: the JVM compiles meanwhile what both sides run."""
IDLE = 20.0
"""Seconds that an idle runtime is watched for."""


def measures(directory: Path) -> Iterator[Measure]:
    """All seven, the ones that need no broker first."""
    yield fan_out()
    from catalog_migrate.engine.spark.session import local_session
    from tests.services.kafka import KafkaCluster
    from tests.services.object_store import ObjectStore

    with KafkaCluster(directory / "kafka", users={"app": "bench"}) as kafka, ObjectStore(
        directory
    ) as store:
        bucket = store.bucket("bench-streams")
        spark = local_session(
            warehouse_dir=str(directory / "streams-spark"), addresses=[bucket],
            storage=Storage(store.options),
        )
        try:
            yield idle(spark, directory / "idle")
            bench = Streams(spark, kafka, directory / "streams")
            yield bench.nothing_to_restart()
            yield bench.restart()
            yield Streams(spark, kafka, directory / "on-s3", bucket, store.options).restart()
            for dead_letters in (False, True):
                yield avro_source(spark, kafka, directory / "avro", dead_letters=dead_letters)
        finally:
            spark.stop()


# -- planning --------------------------------------------------------------------------------------


def fan_out() -> Measure:
    """ALTER CONNECTION over 1,000 sources: planned, against decoding the same state."""
    rows = _wide()
    statement = parse_one("ALTER CONNECTION c SET (BROKER 'b.example.com:9092')")

    def ours() -> Cost:
        state = State.from_rows(1, rows)
        list(state.items), list(state.mappings)
        began, cpu = time.perf_counter(), time.process_time()
        effect = plan_statement(state, statement)
        cost = Cost(time.perf_counter() - began, time.process_time() - cpu)
        assert len(effect.affected) == DEPENDENTS
        return cost

    def bare() -> Cost:
        began, cpu = time.perf_counter(), time.process_time()
        state = State.from_rows(1, rows)
        list(state.items), list(state.mappings)
        return Cost(time.perf_counter() - began, time.process_time() - cpu)

    found, baseline = paired(ours, bare, rounds=ROUNDS)
    return Measure(
        f"plan an ALTER CONNECTION with {DEPENDENTS:,} dependents", found,
        "decoding the catalog's state", baseline, "≤ 0.5 s", found.wall <= 0.5,
    )


def _wide() -> list[tuple[str, str, str]]:
    log = MemoryLog()
    create_catalog(log, warehouse="/warehouse")
    state = read_state(log)
    texts = [
        "CREATE CLUSTER main",
        "CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092')",
        *(f"CREATE SOURCE s{n} (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't{n}') FORMAT JSON"
          for n in range(DEPENDENTS)),
    ]
    for text in texts:
        updates = plan_statement(state, parse_one(text)).updates
        assert updates
        state = preview(state, updates)
    assert Draft(state)
    return state.rows


# -- a runtime with nothing to do ------------------------------------------------------------------


def idle(spark: SparkSession, directory: Path) -> Measure:
    """CPU of this process and Spark's JVM while a runtime follows a catalog without queries."""
    create_catalog(open_log(str(directory / "catalog")), warehouse=str(directory / "warehouse"))
    catalog = Catalog.open(directory / "catalog", mode="write")
    catalog.execute("CREATE CLUSTER main")
    bare = _watched(spark, IDLE)
    runtime = catalog.runtime(spark, "main").start()
    runtime.ready.wait(600)
    time.sleep(2)
    ours = _watched(spark, IDLE)
    runtime.close()
    share = (ours.cpu - bare.cpu) / IDLE
    return Measure(
        f"a runtime that follows an idle catalog for {IDLE:.0f} s", ours,
        "the same session without it", bare, "≤ 2 % of a core", share <= 0.02,
        f"{share:.1%} of a core above the session's own",
    )


def _watched(spark: SparkSession, seconds: float) -> Cost:
    began = _cpu(spark)
    time.sleep(seconds)
    return Cost(seconds, _cpu(spark) - began)


def _cpu(spark: SparkSession) -> float:
    """CPU seconds of this process and Spark's JVM, all threads."""
    context: Any = spark.sparkContext
    jvm = int(context._gateway.jvm.java.lang.ProcessHandle.current().pid())
    fields = Path(f"/proc/{jvm}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = os.times()
    return own.user + own.system + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- ALTER under queries ---------------------------------------------------------------------------


class Streams:
    """Ten sources on one connection, each with a topic of its own, and the same ten bare.

    Rows and checkpoints of both lie in the directory, or in a ``bucket``.
    """

    def __init__(
        self, spark: SparkSession, kafka: KafkaCluster, directory: Path, bucket: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.spark, self.kafka, self.is_remote = spark, kafka, bucket is not None
        self.place = bucket or str(directory)
        self.topic = "on-s3-" if self.is_remote else "t"
        self.catalog = Catalog.create(
            directory / "catalog", f"{self.place}/warehouse", storage_options=options
        )
        self.catalog.execute(
            f"CREATE CONNECTION c TO KAFKA (BROKER '{kafka.plain_bootstrap}');"
            f"CREATE CONNECTION unused TO KAFKA (BROKER '{kafka.plain_bootstrap}');"
        )
        for number in range(QUERIES):
            kafka.create_topic(f"{self.topic}{number}")
            kafka.produce(f"{self.topic}{number}", [json.dumps({"id": n}) for n in range(10)])
            self.catalog.execute(
                f"CREATE SOURCE s{number} (id BIGINT) FROM KAFKA CONNECTION c "
                f"(TOPIC '{self.topic}{number}') FORMAT JSON"
            )
        self.round = 0

    def nothing_to_restart(self) -> Measure:
        """An ALTER of a connection that nothing uses, validated on the broker."""
        from catalog_migrate.connectors.validation import validate_connection

        def ours() -> Cost:
            self.round += 1
            return _timed(lambda: self.catalog.execute(
                f"ALTER CONNECTION unused SET (kafka.client.id 'r{self.round}')"
            ))

        def bare() -> Cost:
            return _timed(lambda: validate_connection(
                "KAFKA", {"BROKER": self.kafka.plain_bootstrap}
            ))

        found, baseline = paired(ours, bare, rounds=ROUNDS)
        return Measure(
            "ALTER CONNECTION with nothing to restart", found, "asking the broker, without it",
            baseline, "≤ 0.5 s", found.wall <= 0.5,
        )

    def restart(self) -> Measure:
        """From the commit of an ALTER to ten healthy queries, against ten bare restarts."""
        with self._bare_queries() as restart_bare, self._runtime():
            rounds, warm = (ROUNDS, 2) if self.is_remote else (RESTARTS, WARM)
            found, baseline = paired(self._alter, restart_bare, rounds=rounds, warm=warm)
        ratio, target = found.wall / baseline.wall, 1.25 if self.is_remote else 1.15
        where = ", checkpoints on S3" if self.is_remote else ""
        return Measure(
            f"ALTER CONNECTION with {QUERIES} dependents{where}, from commit to all caught up",
            found, f"{QUERIES} bare queries stopped and started in parallel", baseline,
            f"≤ {target}× bare", ratio <= target,
        )

    @contextmanager
    def _runtime(self) -> Iterator[None]:
        runtime = self.catalog.runtime(self.spark, "main").start()
        runtime.ready.wait(600)
        supervisor = runtime.supervisor
        assert supervisor is not None
        while sum(each.query is not None and each.query.progress() is not None
                  for each in dict(supervisor.managed).values()) < QUERIES:
            time.sleep(0.1)
        try:
            yield
        finally:
            runtime.close()

    def _alter(self) -> Cost:
        """One ALTER; the clock runs from the commit of its definition to its result.

        The audit table, which is written after the result, is not waited for.
        """
        self.round += 1
        heard: list[float] = []

        def committed(line: str) -> None:
            if line.endswith("trial"):
                heard.append(time.perf_counter())

        cpu = _cpu(self.spark)
        self.catalog.execute(
            f"ALTER CONNECTION c SET (kafka.client.id 'r{self.round}')", on_progress=committed,
            on_result=lambda _: heard.append(time.perf_counter()),
        )
        return Cost(heard[-1] - heard[0], _cpu(self.spark) - cpu)

    @contextmanager
    def _bare_queries(self) -> Iterator[Callable[[], Cost]]:
        """Ten queries as a user would write them, and their restart."""
        running: dict[int, Any] = {}

        def start(number: int) -> None:
            frame = (
                self.spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", self.kafka.plain_bootstrap)
                .option("subscribe", f"{self.topic}{number}")
                .option("startingOffsets", "earliest").load()
                .selectExpr("from_json(CAST(value AS STRING), 'id BIGINT').id AS id",
                            "topic", "partition", "offset", "timestamp")
            )
            running[number] = (
                frame.writeStream.format("delta")
                .option("checkpointLocation", f"{self.place}/bare-checkpoint/{number}")
                .trigger(processingTime="1 second")
                .start(f"{self.place}/bare/{number}")
            )
            while running[number].lastProgress is None:
                time.sleep(0.02)

        def restart() -> Cost:
            began, cpu = time.perf_counter(), _cpu(self.spark)
            with ThreadPoolExecutor(QUERIES) as pool:
                list(pool.map(lambda number: running[number].stop(), range(QUERIES)))
                list(pool.map(start, range(QUERIES)))
            return Cost(time.perf_counter() - began, _cpu(self.spark) - cpu)

        with ThreadPoolExecutor(QUERIES) as pool:
            list(pool.map(start, range(QUERIES)))
        try:
            yield restart
        finally:
            for query in running.values():
                query.stop()


def _timed(act: Callable[[], object]) -> Cost:
    began, cpu = time.perf_counter(), time.process_time()
    act()
    return Cost(time.perf_counter() - began, time.process_time() - cpu)
