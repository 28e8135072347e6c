"""One real end of each kind: what the series of the other modules do at random, once each."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.cli import run as run_command
from catalog_migrate.cli.main import main
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.operations import STARTED

from .conftest import number_row, once
from .runtime_process import PATIENCE
from .test_alter_killed import definition_of, require_agreement, statement
from .test_unsafe_killed import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from pyspark.sql import SparkSession

    from catalog_migrate.testing.services.kafka import KafkaCluster

    from .conftest import Killable
    from .runtime_process import CommandProcess

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash]

TTL, MARGIN, LASTING = 20.0, 5.0, 120.0
"""Seconds of a lease: short, to be taken over soon; and of the successor's, to outlast pauses."""


def await_that(condition: Callable[[], bool], client: CommandProcess) -> None:
    """Wait for a moment of what a client has asked for."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, client.output
        time.sleep(0.01)


def begun(killable: Killable, known: set[str]) -> bool:
    return bool(set(killable.operations()) - known)


def test_killed_and_frozen(
    killable: Killable, kafka: KafkaCluster, spark: SparkSession
) -> None:
    """The client of an ALTER, its runtime in a trial, the runtime of an unsafe operation are
    killed, and a runtime is stopped and wakes up after it was replaced.

    Each time catalog, operation and queries agree afterwards, and each row is in Delta and
    PostgreSQL once, and in Kafka once when repeats are dropped by their headers.
    """
    killable.spark = spark
    victim = killable.run_cluster(enable_unsafe_ops="true")
    with kafka.feed(killable.topic_in, rate=10.0, row=number_row) as feed:
        killable.until(killable.all_run, "three running queries")
        client_killed(killable)
        killable.require_all_once(feed)
        runtime_killed(killable, victim)
        killable.require_all_once(feed)
        # the successor ran in this process: it may go, another victim comes
        killable.close_successor()

        frozen = killable.run_cluster(lease_ttl=TTL, lease_margin=MARGIN)
        killable.until(killable.all_run, "three running queries")
        frozen.signal(signal.SIGSTOP)
        at_the_freeze = feed.sent
        successor = killable.start(ttl=TTL, margin=MARGIN)
        assert successor.supervisor is not None
        successor.supervisor.lease.ttl = LASTING
        for place in range(3):
            killable.until(
                lambda place=place: len(killable.arrived()[place]) > at_the_freeze,
                "rows that came after the freeze",
            )
        frozen.signal(signal.SIGCONT)
        assert frozen.end() == 5, frozen.output[-3000:]
        assert "Traceback" not in frozen.output, frozen.output[-3000:]
        killable.require_all_once(feed)
    killable.close_successor()
    unsafe_killed(killable, once(feed.sent))


def client_killed(killable: Killable) -> None:
    """A client that is killed in the middle of its ALTER changes nothing about its end."""
    known = set(killable.operations())
    before = definition_of(killable, "connection", "c")
    text, kind, name, limit = statement(killable, "option", 0)
    client = killable.client(text, limit=limit)
    await_that(lambda: begun(killable, known), client)
    client.kill()
    killable.until(killable.is_settled, "the end of the operation")
    killable.until(killable.all_run, "three running queries")
    assert require_agreement(killable, known, kind, name, before) == "confirmed"


def runtime_killed(killable: Killable, victim: CommandProcess) -> None:
    """A trial that can only fail, whose runtime is killed in it: the next one sets it back."""
    known = set(killable.operations())
    before = definition_of(killable, "connection", "pg")
    text, kind, name, _ = statement(killable, "dead server", 1)
    client = killable.client(text, limit=PATIENCE)

    def trial() -> bool:
        rows = [row for key, row in killable.operations().items() if key not in known]
        return any(row.detail.get("phase") == STARTED for row in rows)

    await_that(trial, client)
    victim.kill()
    assert client.end() >= 0
    assert "Traceback" not in client.output, client.output
    assert [row.state for key, row in killable.operations().items() if key not in known] == [
        "trial"
    ]
    killable.succeed()
    killable.until(killable.is_settled, "the end of the operation")
    (row,) = (row for key, row in killable.operations().items() if key not in known)
    assert row.state == "set_back"
    assert definition_of(killable, kind, name).external == before.external
    killable.await_running(3)


def unsafe_killed(killable: Killable, wanted: Counter[int]) -> None:
    """Killed when it has committed one record back in each partition: whoever waits ends it.

    In the end a SIGTERM stops the runtime: batches end, no query is left in the middle, the
    cluster is free.
    """
    process = killable.run_cluster(enable_unsafe_ops="true")
    killable.until(killable.all_run, "three running queries")
    killable.until(lambda: killable.ids("s") == wanted, "all rows")
    client = killable._command(
        "unsafe.log", "sql", "--yes", "-c", f"ALTER SOURCE {killable.q('s')} UNSAFE "
        "INJECT OFFSETS (TO 'shift -1') REASON 'killed'",
    )
    await_that(
        lambda: any(row.state in ("committed", "done") for row in rows_of(killable).values()),
        client,
    )
    process.kill()
    assert client.end() == 0, client.output
    (row,) = rows_of(killable).values()
    assert row.state == "done"
    assert not killable.catalog.state().holds
    last = {record.partition: int(record.key or b"0")
            for record in killable.kafka.consume_all(killable.topic_in)}
    wanted = wanted + Counter(last.values())
    stopped_by_sigterm(killable, lambda: killable.ids("s").total() >= wanted.total())
    assert killable.ids("s") == wanted


def stopped_by_sigterm(killable: Killable, enough: Callable[[], bool]) -> None:
    """The command ``run`` in this process, until it has done enough and is told to stop."""
    log = killable.directory / "catalog"
    failures: list[BaseException] = []
    over = threading.Event()

    def stop() -> None:
        try:
            killable.until(
                lambda: over.is_set() or (enough() and killable.mine_run(os.getpid())), "all rows"
            )
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    killable.process = None
    waiting = threading.Thread(target=stop, daemon=True)
    waiting.start()
    code = main(["run", "--cluster", killable.q("main"), "--catalog", str(log)])
    over.set()
    waiting.join()
    assert not failures, failures
    assert code == 0
    assert {each for each, *_ in killable.statuses().values()} == {"stopped"}
    state = killable.catalog.state()
    assert [row.holder for key, row in state.leases.items() if key.startswith("cluster/")] == [""]
    warehouse = state.config["warehouse"].value
    assert len(state.streams) == 3
    assert all(Checkpoint(f"{warehouse}/{each.checkpoint}").state().is_settled
               for each in state.streams.values())


@pytest.fixture(autouse=True)
def _this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the session of the tests, and leaves it."""
    from contextlib import contextmanager

    @contextmanager
    def session(_: Any) -> Iterator[SparkSession]:
        yield spark

    shared: Callable[[Any], AbstractContextManager[SparkSession]] = session
    monkeypatch.setattr(run_command, "local_spark", shared)
