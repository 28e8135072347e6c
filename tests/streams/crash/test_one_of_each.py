"""One real end of each kind: what the series of the other modules do at random, once each."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.api import streams as streams_api
from catalog_migrate.cli.main import main
from catalog_migrate.operations.kinds import STARTED
from catalog_migrate.streams.checkpoint.directory import Checkpoint

from .conftest import number_row, once
from .runtime_process import PATIENCE
from .test_alter_killed import definition_of, require_agreement, statement
from .test_unsafe_killed import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pyspark.sql import SparkSession

    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.streams.runtime.runtime import Runtime
    from tests.services.kafka import KafkaCluster

    from .conftest import Killable
    from .runtime_process import CommandProcess

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash]

TTL, MARGIN, LASTING = 15.0, 4.0, 120.0
"""Seconds of a lease: short, to be taken over soon; and of the successor's, to outlast pauses."""

MOMENT = 0.01
"""Seconds: less than a commit to the catalog takes."""

TRIAL = 12.0
"""Seconds of a trial that cannot succeed; the runtime that takes it over waits for as long."""


def await_that(condition: Callable[[], bool], client: CommandProcess) -> None:
    """Wait for a moment of what a client has asked for."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, client.output
        time.sleep(0.02)


def begun(killable: Killable, known: set[str]) -> bool:
    return bool(set(killable.operations()) - known)


def test_killed_and_frozen(
    killable: Killable, kafka: KafkaCluster, runtimes: list[Runtime]
) -> None:
    """Killed: the client of an ALTER, and a runtime in a trial. Stopped: a runtime that has
    committed an unsafe operation; it wakes up when its successor has ended that.

    Each time catalog, operation and queries agree afterwards, and each row is in Delta and
    PostgreSQL as often as it should be, and in Kafka once when repeats are dropped by their
    headers. In the end a SIGTERM stops the last runtime: batches end, no query is left in the
    middle, the cluster is free.
    """
    frozen = killable.run_cluster(enable_unsafe_ops="true", lease_ttl=TTL, lease_margin=MARGIN)
    with kafka.feed(killable.topic_in, rate=10.0, row=number_row) as feed:
        killable.until(killable.all_run, "three running queries")
        client_killed(killable)
        killable.require_all_once(feed)
        feed.hold()
        try:
            sent = once(feed.sent)
            killable.until(lambda: killable.arrived() == (sent,) * 3, "all rows")
            again = frozen_after_commit(killable, frozen)
        finally:
            feed.resume()
        try:
            killable.process = None
            victim = killable.run_cluster(lease_ttl=TTL, lease_margin=MARGIN)
            killable.until(killable.all_run, "three running queries")
            assert [row.state for row in rows_of(killable).values()] == ["done"]
            assert not killable.catalog.state().holds
            killable.require_all_once(feed, again)
            frozen.signal(signal.SIGCONT)
            assert frozen.end() == 5, frozen.output[-3000:]
        finally:
            frozen.close()
        assert "Traceback" not in frozen.output, frozen.output[-3000:]
        killable.require_all_once(feed, again)
        before, known = killed_in_a_trial(killable, victim)

        def checked() -> None:
            """All that is asked of the successor, which runs in the main thread."""
            killable.until(lambda: bool(runtimes) and killable.is_settled(), "the operation's end")
            rolled_back(killable, before, known)
            killable.until(lambda: killable.mine_run(os.getpid()), "three running queries")
            supervisor = runtimes[-1].supervisor
            assert supervisor is not None
            supervisor.lease.ttl = LASTING
            killable.require_all_once(feed, again)

        stopped_by_sigterm(killable, checked)


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


def killed_in_a_trial(
    killable: Killable, victim: CommandProcess
) -> tuple[ObjectDefinition, set[str]]:
    """A trial that can only fail, whose runtime is killed in it.

    Returns the connection before it, and the operations that were there.
    """
    known = set(killable.operations())
    before = definition_of(killable, "connection", "pg")
    text, _, _, _ = statement(killable, "dead server", 1)
    client = killable.client(text, limit=TRIAL)

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
    return before, known


def rolled_back(killable: Killable, before: ObjectDefinition, known: set[str]) -> None:
    """The next runtime has set the trial back."""
    (row,) = (row for key, row in killable.operations().items() if key not in known)
    assert row.state == "set_back"
    assert definition_of(killable, "connection", "pg").external == before.external


def frozen_after_commit(killable: Killable, runtime: CommandProcess) -> Counter[int]:
    """Stopped when it has committed one record back in each partition; returns those records.

    Its client is killed with it: whoever has the cluster next ends the operation.
    """
    client = stopped_when_committed(killable, runtime, "frozen")
    client.kill()
    return last_records(killable)


def stopped_when_committed(
    killable: Killable, runtime: CommandProcess, reason: str
) -> CommandProcess:
    """The client of an operation whose runtime is stopped (SIGSTOP), having committed it.

    That state may last for less than a look at it takes, so the runtime gets a moment at a time.
    """
    known = set(rows_of(killable))
    client = killable._command(
        f"{reason}.log", "sql", "--yes", "-c", f"ALTER SOURCE {killable.q('s')} UNSAFE "
        f"INJECT OFFSETS (TO 'shift -1') REASON '{reason}'",
    )
    await_that(lambda: bool(set(rows_of(killable)) - known), client)
    deadline = time.monotonic() + PATIENCE
    while True:
        runtime.signal(signal.SIGSTOP)
        (state,) = (row.state for key, row in rows_of(killable).items() if key not in known)
        if state == "committed":
            return client
        assert state in ("requested", "stopping"), client.output
        assert time.monotonic() < deadline, client.output
        runtime.signal(signal.SIGCONT)
        time.sleep(MOMENT)


def last_records(killable: Killable) -> Counter[int]:
    """The last record of each partition: what one step back reads again."""
    last = {record.partition: int(record.key or b"0")
            for record in killable.kafka.consume_all(killable.topic_in)}
    return Counter(last.values())


def stopped_by_sigterm(killable: Killable, checked: Callable[[], None]) -> None:
    """The command ``run`` in this process, until all is checked and it is told to stop."""
    failures: list[BaseException] = []
    over = threading.Event()

    def stop() -> None:
        try:
            checked()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    killed, killable.process = killable.process, None
    waiting = threading.Thread(target=stop, daemon=True)
    waiting.start()
    try:
        code = main([
            "run", "--cluster", killable.q("main"), "--catalog", str(killable.directory / "catalog")
        ])
    finally:
        over.set()
        killable.process = killed
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


@pytest.fixture
def runtimes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[Runtime]:
    """The runtimes of the command ``run`` in this process.

    The command takes the session of the tests, and leaves it.
    """
    made: list[Runtime] = []

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    make = Catalog.runtime

    def runtime(catalog: Catalog, *arguments: Any, **options: Any) -> Runtime:
        made.append(make(catalog, *arguments, **options))
        return made[-1]

    monkeypatch.setattr(streams_api, "local_spark", session)
    monkeypatch.setattr(Catalog, "runtime", runtime)
    monkeypatch.setenv("CATALOG_MIGRATE__STREAMS__LEASE_TTL", str(TTL))
    monkeypatch.setenv("CATALOG_MIGRATE__STREAMS__LEASE_MARGIN", str(MARGIN))
    return made
