"""The pipeline of tests/streams/running with its runtime in a process that can be killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.operation_states import is_open
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.operations.kinds import STARTED
from catalog_migrate.streams.catalog.cluster_log import latest

from ..running.conftest import Pipeline, once  # noqa: TID252 - tests are no package
from .runtime_process import PATIENCE, CommandProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.feed import Feed
    from tests.services.kafka import KafkaCluster
    from tests.services.object_store import ObjectStore
    from tests.services.postgres import PostgresServer


NONE: Counter[int] = Counter()


class Killable(Pipeline):
    """Source ``s`` on connection ``c``, its rows INTO KAFKA on ``c`` and INTO POSTGRES on ``pg``.

    Statements are sent from this process or by :meth:`client`; :meth:`run_cluster` starts the
    runtime. No Spark is needed in this process.
    """

    topic_in: str
    topic_out: str
    orders: str
    process: CommandProcess | None = None

    def lay_out(self) -> None:
        self.secret("pw", self.kafka.users["app"])
        self.secret("pg", self.postgres.parameters("app", "shop")["password"])
        main = self.q("main")
        self.run(f"CREATE CLUSTER {main}")
        self.kafka_connection("c")
        self.postgres_connection("pg")
        self.topic_in, self.topic_out = self.topic("t"), self.topic("o", 1)
        self.orders = self.table("orders")
        # most of the CPU time of a series goes into batches
        every = "WITH (TRIGGER '2 seconds')"
        self.source("s", "c", self.topic_in, every)
        self.run(
            f"CREATE SINK {self.q('k')} IN CLUSTER {main} FROM {self.q('s')} INTO KAFKA CONNECTION "
            f"{self.q('c')} (TOPIC '{self.topic_out}') KEY (id) FORMAT JSON {every}"
        )
        self.run(
            f"CREATE SINK {self.q('p')} IN CLUSTER {main} FROM {self.q('s')} INTO POSTGRES "
            f"CONNECTION {self.q('pg')} (TABLE '{self.orders}') {every}"
        )

    def _command(self, log: str, *arguments: str, **settings: object) -> CommandProcess:
        return CommandProcess(
            self.directory / log, *arguments, "--catalog", self.log.uri,
            settings={f"streams.{name}": value for name, value in settings.items()},
        )

    def run_cluster(self, **settings: object) -> CommandProcess:
        """Start the runtime; ``settings`` are keys of the section ``streams``."""
        assert self.process is None or not self.process.running
        log = f"run-{len(list(self.directory.glob('run-*.log')))}.log"
        self.process = self._command(log, "run", "--cluster", self.q("main"), **settings)
        return self.process

    def client(self, statement: str, *, limit: float) -> CommandProcess:
        """Send one statement from a process of its own."""
        return self._command("sql.log", "sql", "-c", statement, limit=limit)

    def succeed(self) -> None:
        """A runtime in this process that takes a trial over, whose limit passes at once."""
        with self.clock.skipping(
            PATIENCE,
            lambda: any(row.detail.get("phase") == STARTED for row in self.operations().values()),
        ):
            self.start()

    def close_successor(self) -> None:
        """End the runtime in this process."""
        runtime, self.runtime = self.runtime, None
        assert runtime is not None
        runtime.close()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            if self.process is not None:
                self.process.close()

    # -- looking -------------------------------------------------------------------------------

    def until(
        self, condition: Callable[[], bool], what: str, patience: float = PATIENCE
    ) -> None:
        if self.process is None or self.runtime is not None:
            super().until(condition, what, patience)
            return
        deadline = time.monotonic() + patience
        while not condition():
            if not self.process.running or time.monotonic() > deadline:
                raise AssertionError(
                    f"waited in vain for {what}; the runtime is "
                    f"{'there' if self.process.running else 'gone'}; {self.statuses()}; "
                    f"{self.process.output[-3000:]}"
                )
            time.sleep(0.2)

    def statuses(self) -> dict[str, tuple[str, str, str | None]]:
        """State, runtime and error of each query as its runtime reported it last."""
        state = self.catalog.state()
        found = latest(state)
        return {each.name: (each.state, each.runtime, each.error) for each in found.values()}

    def all_run(self) -> bool:
        """Whether the runtime that is there now reports its three queries running."""
        assert self.process is not None
        return self.mine_run(self.process.process.pid)

    def mine_run(self, pid: int) -> bool:
        """Whether the runtime in a process reports its three queries running."""
        mine = [state for state, runtime, _ in self.statuses().values()
                if runtime.endswith(f"/{pid}")]
        return mine == ["running"] * 3

    def operations(self) -> dict[str, OperationRecord]:
        return {key: row for key, row in self.catalog.state().operations.items()
                if row.kind == "alter"}

    def is_settled(self) -> bool:
        """Whether no operation is at work and none left a hold."""
        state: State = self.catalog.state()
        return not any(is_open(row) for row in self.operations().values()) and not any(
            hold.holder.startswith("operation:") for hold in state.holds.values()
        )

    # -- rows ----------------------------------------------------------------------------------

    def arrived(self) -> tuple[Counter[int], Counter[int], Counter[int]]:
        """How often each number is in the source's shard, in PostgreSQL, in Kafka."""
        return self.ids("s"), self.postgres_ids(self.orders), self.kafka_ids(self.topic_out)

    def require_all_once(self, feed: Feed, again: Counter[int] = NONE) -> int:
        """Hold the feed until every row is everywhere, once; returns how many there are.

        Those in ``again`` came again, which Kafka's consumer drops by their headers.
        """
        feed.hold()
        try:
            sent = once(feed.sent)
            places = (sent + again, sent + again, sent)
            self.until(
                lambda: all(
                    found.total() >= wanted.total()
                    for found, wanted in zip(self.arrived(), places, strict=True)
                ),
                f"{feed.sent} rows in Delta, PostgreSQL and Kafka",
            )
            for place, found, wanted in zip(
                ("Delta", "PostgreSQL", "Kafka"), self.arrived(), places, strict=True
            ):
                assert found == wanted, (
                    f"{place}: lost {sorted(wanted - found)[:9]}, "
                    f"too many {sorted((found - wanted).items())[:9]}"
                )
            return feed.sent
        finally:
            feed.resume()


def number_row(number: int) -> tuple[str, str]:
    return str(number), json.dumps({"id": number})


@pytest.fixture
def killable(
    tmp_path: Path, kafka: KafkaCluster, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Killable]:
    """A pipeline that is laid out; its runtime is not started yet, and ended with the test."""
    made = Killable(tmp_path, None, kafka, postgres, monkeypatch)  # type: ignore[arg-type]
    made.lay_out()
    yield made
    made.stop()


@pytest.fixture
def killable_on_s3(
    tmp_path: Path, spark_on_s3: SparkSession, kafka: KafkaCluster, postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch, bucket: str, object_store: ObjectStore,
) -> Iterator[Killable]:
    """The same in a bucket; processes find its options in their variables."""
    for name, value in object_store.options.items():
        monkeypatch.setenv(name.upper(), value)
    made = Killable(
        tmp_path, spark_on_s3, kafka, postgres, monkeypatch, bucket, object_store.options
    )
    made.lay_out()
    yield made
    made.stop()
