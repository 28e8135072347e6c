"""Starts are admitted by a limit, in order; a machine that is loaded is waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import ClusterRecord
from catalog_migrate.errors import CatalogWriteRefused, LeaseExpired, LeaseLost, StoreFailure
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.queries import QueryFailure, is_late_worker
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.runtime.runtime import Runtime, RuntimeOptions
from catalog_migrate.streams.runtime.starts import TURN, Starts, starts_by_cores
from catalog_migrate.testing.world import SimulatedClock
from tests.decisions import Changes, commit
from tests.simulation.stream_ports import (
    NoLog,
    SimulatedThreads,
    SimulatedUpstreams,
    _InPlace,
    simulated_ports,
)
from tests.simulation.stream_run import SETTING
from tests.simulation.streaming import (
    SimulatedQueries,
    SimulatedQuery,
    StreamWorld,
)
from tests.streams.test_operations import LIMIT, Stage

LATE = (
    "[STREAM_FAILED] terminated\nCaused by: Timed out while waiting for the Python worker to"
    " connect back after 10000 ms"
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two sources, of which one starts at a time."""
    stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
    stage.supervisor._starts.limit = stage.supervisor._starts._allowed = 1
    return stage


def managed(stage: Stage, name: str) -> Any:
    """What the supervisor knows of a source."""
    return stage.supervisor.managed[dependencies.find(stage.state, "source", name).item_id]


class TestTurns:
    """Which start goes off when."""

    @pytest.fixture(autouse=True)
    def starts(self) -> None:
        self.clock, self.begun, self.over = SimulatedClock(), [], set[str]()
        self.ended: set[str] = set()
        self.starts = Starts(2, self.clock, _InPlace, self.outcome)

    def outcome(self, name: str) -> bool | None:
        if name in self.ended:
            return False
        return True if name in self.over else None

    def submit(self, name: str) -> Any:
        def start(waited: bool) -> Any:
            self.begun.append((name, waited))
            return name

        return self.starts.submit(name, start)

    def test_in_their_order(self) -> None:
        """As many as the limit go off at once, each later one when an earlier is over."""
        futures = [self.submit(name) for name in "abcd"]
        assert self.begun == [("a", False), ("b", False)]
        self.starts.admit()
        assert len(self.begun) == 2
        self.over.add("b")
        assert self.submit("e").done() is False  # nothing overtakes what waits
        self.starts.admit()
        assert self.begun[2:] == [("c", True)]
        self.over.update("acd")
        self.starts.admit()
        assert [name for name, _ in self.begun] == list("abcde")
        assert [each.result() for each in futures] == list("abcd")

    def test_a_turn_ends(self) -> None:
        """A start that takes long, as that of a large snapshot, does not keep the others."""
        for name in "abc":
            self.submit(name)
        self.clock.sleep(TURN - 1)
        self.starts.admit()
        assert len(self.begun) == 2
        self.clock.sleep(1)
        self.starts.admit()
        assert self.begun[2:] == [("c", True)]

    def test_fewer_where_the_machine_is_too_loaded(self) -> None:
        """One at a time after one that was late, and more again with each that came up; one that
        ends does not count for that."""
        for name in "abcdefg":
            self.submit(name)
        self.starts.slow_down()
        self.starts.slow_down()
        self.ended.add("a")
        self.starts.admit()
        assert len(self.begun) == 2
        self.ended.add("b")
        self.starts.admit()
        assert [name for name, _ in self.begun] == list("abc")
        self.over.add("c")
        self.starts.admit()
        assert [name for name, _ in self.begun] == list("abcde")

    def test_one_that_is_called_back(self) -> None:
        """It does not go off, and takes no turn from another."""
        self.submit("a"), self.submit("b")
        c, d = self.submit("c"), self.submit("d")
        assert c.cancel()
        self.over.add("a")
        self.starts.admit()
        assert self.begun[2:] == [("d", True)]
        assert not d.cancel()

    def test_a_start_that_fails(self) -> None:
        """The error is the future's."""

        def fail(_: bool) -> Any:
            raise ValueError("no")

        assert isinstance(self.starts.submit("a", fail).exception(), ValueError)


def test_by_cores() -> None:
    """Without a setting it is a number of this machine's."""
    assert starts_by_cores() >= 2
    assert starts_by_cores() % 2 == 0


def test_one_after_another(stage: Stage) -> None:
    """The second source starts when the first has made progress, and both say that they start."""
    stage.supervisor.round(stage.state)
    stage.supervisor.collect()
    assert managed(stage, "s").active
    assert managed(stage, "r").waits_for_its_turn
    assert [each.state for each in stage.supervisor.statuses(stage.state)] == ["starting"] * 2
    stage.supervisor.round(stage.state)
    assert managed(stage, "r").waits_for_its_turn
    stage.run_all()


def test_a_source_that_is_paused_in_its_turn_is_not_started(stage: Stage) -> None:
    """Nor one that is dropped; one that was altered starts as it is then."""
    stage.supervisor.round(stage.state)
    stage.client(lambda: None).run("PAUSE SOURCE r REASON 'not now'")
    for _ in range(10):
        stage.turn()
    assert managed(stage, "r").starting is None
    assert [query.spec.name.name for query in stage.engine.running] == ["s"]
    assert [each.state for each in stage.supervisor.statuses(stage.state)] == ["running", "held"]
    stage.run("RESUME SOURCE r")
    stage.run_all()


def test_what_was_altered_in_its_turn_starts_as_it_is_then(stage: Stage) -> None:
    """No query runs on a definition that was replaced while it waited."""
    stage.supervisor.round(stage.state)
    stage.lease(holder="")
    stage.client(lambda: None).run("ALTER SOURCE r SET (TRIGGER = '7 seconds')")
    stage.lease(holder="runtime")
    stage.run_all()
    assert [
        (query.spec.name.name, query.spec.external.settings.get("TRIGGER"))
        for query in stage.engine.running
    ] == [("s", None), ("r", "7 seconds")]


def test_an_alter_waits_for_every_turn(stage: Stage) -> None:
    """Its limit does not count while queries wait to be started for the first time."""
    stage.run_all()
    stage.world.slow["b:9092"] = int(0.8 * LIMIT * 10)
    for topic in "tu":
        stage.world.topics[topic][0] += 10
    began = stage.supervisor.clock.monotonic()
    result = stage.alter("b")
    assert stage.row.state == "confirmed"
    assert stage.supervisor.clock.monotonic() - began > 1.2 * LIMIT
    assert result.notices == ("2 queries restarted: default.s, default.r",)


def test_an_unsafe_operation_waits_for_every_turn(stage: Stage) -> None:
    """A start that waits for another query's is not called back: its query runs in the end."""
    stage.put("cluster", stage.supervisor.cluster, ClusterRecord(unsafe=True))
    stage.run_all()
    stage.supervisor._starts._turns["another"] = stage.supervisor.clock.monotonic() + 5
    stage.supervisor._starts.outcome = lambda item_id: (
        None if item_id == "another" else stage.supervisor._outcome(item_id)
    )
    stage.run("ALTER SOURCE s UNSAFE RESET SPLITS REASON 'again'")
    assert stage.row.state == "done"
    assert {each.outcome for each in stage.row.executed} == {"done"}


@pytest.mark.parametrize(
    ("text", "late"),
    [
        (LATE, True), ("Python worker failed to connect back.", True),
        ("Python worker exited unexpectedly (crashed)", False), ("no answer from a:9092", False),
    ],
)
def test_what_is_a_late_worker(text: str, late: bool) -> None:
    """Spark says it in two ways."""
    assert is_late_worker(text) is late


def test_a_late_worker_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it takes, and without a pause: its machine is loaded, its query is not at fault.

    The query says that it starts, and why that takes so long.
    """
    lives = iter(range(12))

    def step(query: SimulatedQuery) -> None:
        if query.spec.name.name == "s" and next(lives, None) is not None:
            query.active, query._failure = False, QueryFailure("STREAM_FAILED", (LATE,))
        elif query.active:
            next(query._life)

    monkeypatch.setattr(SimulatedQuery, "step", step)
    waited = []
    for _ in range(15):
        stage.turn()
        stage.supervisor.round(stage.state)
        source = managed(stage, "s")
        waited.append((source.failures, source.next_try))
        (status,) = (
            each for each in stage.supervisor.statuses(stage.state) if each.kind == "source"
            and each.name == "default.s"
        )
        assert status.state in ("starting", "running")
        if status.state == "starting" and len(waited) > 2:
            assert "Python worker to connect back" in (status.error or "")
    stage.run_all()
    assert set(waited) == {(0, 0.0)}
    assert managed(stage, "s").error is None
    assert len([line for line in stage.said if "connect back" in line]) == 1


class TestLease:
    """A runtime whose lease has expired, because nothing of it ran for longer than the TTL."""

    @pytest.fixture(autouse=True)
    def runtime(self, tmp_path: Path) -> None:
        """One with two sources; ``away`` happens at a look at the catalog."""
        world, log = StreamWorld({"t": [3, 2], "u": [4]}), MemoryLog()
        self.world, self.log, self.said = world, log, list[str]()
        create_catalog(log, warehouse=str(tmp_path))
        outer = self
        self.sleeps, self.away, self.beats = 0, {}, True

        class Clock(SimulatedClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                outer.sleeps += 1
                outer.away.pop(outer.sleeps, lambda: None)()
                outer.engine.step()
                if outer.beats:
                    outer.ports.threads.go_on()  # type: ignore[attr-defined]

        self.clock = Clock()
        upstreams = SimulatedUpstreams(world)
        self.engine = SimulatedQueries(world, lambda _: None, upstreams.told)
        self.ports = replace(simulated_ports(world, self.clock), upstreams=upstreams)
        Executor(log, lambda _s, _i: None, SimulatedClock(), self.ports).run(SETTING)
        self.runtime = Runtime(
            log, "main", self.engine, ensure_shards=lambda _s, _i: None,
            reconcile=lambda _: None, clock=self.clock, ports=self.ports,
            on_event=self.said.append, options=RuntimeOptions(starts_at_once=1, wait=0),
        )

    @pytest.mark.parametrize(
        "error", [StoreFailure("no answer"), CatalogWriteRefused("no space left on device")]
    )
    def test_a_survey_that_cannot_be_refreshed(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a source depends on is recorded a minute later; the other sources are asked."""
        asked = []

        def refresh(_: object, item_id: str) -> None:
            asked.append(item_id)
            raise error

        monkeypatch.setattr(dependencies, "external_of", lambda _: SimpleNamespace(tables=("t",)))
        items = dict.fromkeys(("i1", "i2"), SimpleNamespace(active=True))
        supervisor: Any = SimpleNamespace(managed=items, pinned=set(), refresh_survey=refresh)
        state: Any = SimpleNamespace(items=items)
        self.runtime._refresh_surveys(supervisor, state)
        assert asked == ["i1", "i2"]
        error = LeaseLost("taken over")
        with pytest.raises(LeaseLost):
            self.runtime._refresh_surveys(supervisor, state)

    def test_its_log_is_put_together_beside_its_work(self) -> None:
        """By one thread at a time: the rounds of the runtime do not wait for it."""
        begun = []

        class Threads(SimulatedThreads):
            def run(self, act: Any, name: str) -> Any:
                begun.append((act, name))
                return SimpleNamespace(is_alive=lambda: len(begun) < 2)

        class Log(NoLog):
            untidy = True

        log = Log("", "")
        self.runtime._ports = replace(self.ports, threads=Threads(self.clock))
        supervisor: Any = SimpleNamespace(statuses=lambda _: ())
        for _ in range(2):
            self.runtime._report(supervisor, read_state(self.log), log)
        assert begun == [(log.tidy, "tidy log")]
        log.untidy = False
        begun.append(begun[0])
        self.runtime._report(supervisor, read_state(self.log), log)
        assert len(begun) == 2
        log.untidy = True
        self.runtime._report(supervisor, read_state(self.log), log)
        assert len(begun) == 3

    def suspend(self) -> None:
        """The process stands still."""
        SimulatedClock.sleep(self.clock, 100.0)

    @property
    def row(self) -> Any:
        (row,) = read_state(self.log).leases.values()
        return row

    @pytest.mark.parametrize("beats", [True, False])
    def test_no_other_process_took_it(self, beats: bool) -> None:
        """It is taken again under the same epoch, by its heartbeat or by the runtime's next act;
        the queries go on, and the end is a clean one."""
        self.beats, confirmed = beats, []
        self.away = {
            20: self.suspend, 60: self.suspend, 99: lambda: confirmed.append(self.row.confirmed),
            100: self.runtime.request_stop,
        }
        self.runtime.run()
        assert confirmed == [2]
        assert len([line for line in self.said if "is taken again" in line]) == (0 if beats else 2)
        assert (self.row.epoch, self.row.holder) == (1, "")
        read = {record for table in self.world.tables.values() for record in table.rows}
        assert len(read) == 9
        runs = [query.run_id for query in self.engine.running]
        assert len(set(runs)) == len(runs) == 2

    def test_also_when_taking_it_again_is_slow(self) -> None:
        """A store that answers too late is asked again; the lease is not given up."""
        slow = iter((25.0, 25.0))

        def call(name: str) -> None:
            if name == "renew" and self.sleeps > 20:
                SimulatedClock.sleep(self.clock, next(slow, 0.0))

        self.log.on_call = call
        self.away = {20: self.suspend, 100: self.runtime.request_stop}
        self.runtime.run()
        assert next(slow, None) is None
        assert self.row.epoch == 1

    def test_taking_it_again_is_refused(self) -> None:
        """On a full disk nothing is drained and nothing released under a lease that has expired."""
        self.beats, refused = False, []

        def call(name: str) -> None:
            if name == "append" and self.sleeps >= 20:
                refused.append(self.runtime.supervisor)
                raise CatalogWriteRefused("no space left on device")

        self.log.on_call = call
        self.away = {20: self.suspend, 100: self.runtime.request_stop}
        with pytest.raises(LeaseExpired) as caught:
            self.runtime.run()
        assert caught.value.exit_code == 5
        assert isinstance(caught.value.__cause__, CatalogWriteRefused)
        assert len(refused) == 1  # the lease is not released
        assert refused[0].drain == 0.0
        assert not any(query.active for query in self.engine.running)

    def test_in_the_middle_of_an_alter(self) -> None:
        """The operation goes on to its end."""
        self.away = {
            20: lambda: self.operate("ALTER CONNECTION c SET (BROKER 'b:9092')"), 21: self.suspend,
            22: self.suspend, 200: self.runtime.request_stop,
        }
        self.beats = False
        self.runtime.run()
        assert [row.state for row in read_state(self.log).operations.values()] == ["confirmed"]
        assert dependencies.find(
            read_state(self.log), "connection", "c"
        ).external.options["BROKER"] == "b:9092"

    def operate(self, text: str) -> None:
        """A client asks for an ALTER and does not wait for it."""

        class Asked(Exception):
            pass

        def leave(_: str) -> None:
            raise Asked

        client = Executor(
            self.log, lambda _s, _i: None, SimulatedClock(), self.ports, on_progress=leave,
            limit=1_000.0,
        )
        with pytest.raises(Asked):
            client.run(text)

    def test_another_process_took_it(self) -> None:
        """The runtime stops at once and writes nothing more."""

        def taken() -> None:
            self.suspend()
            (key,) = read_state(self.log).leases
            changes = Changes()
            changes.put("lease", key, msgspec.structs.replace(self.row, epoch=2, holder="other"))
            commit(self.log, lambda _: changes, kind="test")
            self.version = self.log.version()

        self.away = {20: taken, 100: self.runtime.request_stop}
        with pytest.raises(LeaseLost, match="taken over") as caught:
            self.runtime.run()
        assert caught.value.exit_code == 5
        assert self.log.version() == self.version
        assert not any(query.active for query in self.engine.running)


