"""ALTERs carried out by a runtime on simulated queries: who stays, who goes back, what is said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from catalog_migrate.catalog.history import entries
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import COLLECTIONS, ClusterRecord, HoldRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import (
    AlterFailed,
    AlterRolledBack,
    AlterUnfinished,
    RefusedStatement,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.operations.operation import execute
from catalog_migrate.operations.steps import Step, interruptions, number_steps
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.execute import Executor, Result
from catalog_migrate.streams.ddl.explanation import explain
from catalog_migrate.streams.positions import restore
from catalog_migrate.streams.positions.operation import RestoreTable, UnsafeOperation
from catalog_migrate.streams.runtime.alter_operation import AlterOperation
from catalog_migrate.streams.runtime.operations import StartQuery, ValidateAccess
from catalog_migrate.streams.runtime.probes import Probing
from catalog_migrate.streams.runtime.runner import Runner
from catalog_migrate.streams.runtime.supervisor import Supervisor
from catalog_migrate.streams.runtime.watch import LOOK
from catalog_migrate.testing.world import SimulatedClock
from tests.decisions import Changes, commit
from tests.services.left_behind import leave
from tests.simulation import streaming
from tests.simulation.crashes import SimulatedCrash
from tests.simulation.stream_ports import SimulatedUpstreams, simulated_ports
from tests.simulation.stream_run import SETTING, SINK
from tests.simulation.streaming import (
    SimulatedPreparedQuery,
    SimulatedQueries,
    SimulatedQuery,
    StreamWorld,
)

LIMIT = 20.0
"""Seconds of a trial."""

LOOKS_A_SECOND = 10
"""How often a trial looks at its queries, each of which then goes on by a step."""


class Clock(SimulatedClock):
    """Every sleep lets others do something."""

    def __init__(self, meanwhile: Callable[[], None], *, stretch: float) -> None:
        super().__init__(stretch=stretch)
        self.meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


class Stage:
    """A catalog with two sources of broker ``a``, a runtime, and a client that waits for it."""

    def __init__(self, directory: Path, world: StreamWorld) -> None:
        self.world = world
        self.log = MemoryLog()
        self.said: list[str] = []
        upstreams = SimulatedUpstreams(world)
        self.engine = SimulatedQueries(world, self.step, upstreams.told)
        self.dies_at = ""
        create_catalog(self.log, warehouse=str(directory))
        self.client(lambda: None).run(SETTING)
        clock = Clock(self.engine.step, stretch=1 / LOOK / LOOKS_A_SECOND)
        ports = replace(simulated_ports(world, clock), upstreams=upstreams)
        cluster = dependencies.find(self.state, "cluster", "main").item_id
        lease = acquire(
            self.log, holder="runtime", clock=clock, key=f"cluster/{cluster}", ttl=1e9
        )
        self.supervisor = Supervisor(
            log=self.log, lease=lease, engine=self.engine, clock=clock, cluster=cluster,
            ensure_shards=lambda _state, _item: None, ports=ports,
            threads=1, say=self.said.append,
        )
        self.runner = Runner(
            self.supervisor, lambda: self.state, lambda: None, self.said.append
        )

    @property
    def state(self) -> State:
        return read_state(self.log)

    @property
    def broker(self) -> object:
        return dependencies.find(self.state, "connection", "c").external.options["BROKER"]

    @property
    def row(self) -> OperationRecord:
        (row,) = self.state.operations.values()
        return row

    def step(self, step: str) -> None:
        """A step of the engine, at which the runtime may be killed."""
        if step == self.dies_at:
            raise SimulatedCrash(step)

    def turn(self) -> None:
        """The runtime's, while it lives: operations, then its queries."""
        try:
            self._turn()
        except SimulatedCrash:
            self.dies_at = ""
            self.engine.running.clear()
            self.meanwhile = lambda: None
            self.lease(pid=2**22 + 1)

    def lease(self, **changes: Any) -> None:
        """The lease is another process's."""
        key = self.supervisor.lease.key
        self.put("lease", key, msgspec.structs.replace(self.state.leases[key], **changes))

    def put(self, collection: str, key: str, record: Any) -> None:
        changed = Changes()
        changed.put(collection, key, record)
        commit(self.log, lambda _: changed, kind="test")

    def _turn(self) -> None:
        for key, _ in self.runner.pending(self.state):
            self.runner.carry_out(key)
        self.supervisor.round(self.state)
        self.engine.step()

    def run_all(self) -> None:
        """Until every source has read what is there."""
        for _ in range(20):
            self.turn()
        assert [each.active for each in self.supervisor.managed.values()] == [True, True]

    def client(self, meanwhile: Callable[[], None]) -> Executor:
        clock = Clock(meanwhile, stretch=1.0)
        return Executor(
            self.log, lambda _state, _item: None, clock, simulated_ports(self.world, clock),
            limit=LIMIT, confirm=lambda _: True,
        )

    def alter(self, broker: str, more: str = "") -> Result:
        (result,) = self.run(f"ALTER CONNECTION c SET (BROKER '{broker}:9092') {more}")
        return result

    def run(self, text: str) -> list[Result]:
        """A client says it, while the runtime goes on."""
        self.meanwhile = self.turn
        return self.client(lambda: self.meanwhile()).run(text)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two sources that run."""
    stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
    stage.run_all()
    return stage


@pytest.fixture
def dies(stage: Stage) -> Callable[[str], None]:
    """Nothing answers at a broker's address any more."""
    return lambda broker: stage.world.addresses.update({f"{broker}:9092": ""})


class TestAloneToAnotherCluster:
    """A source goes over to a topic of the same name elsewhere, while records keep coming."""

    MOVE = (
        "ALTER SOURCE s UNSAFE SET (BROKER = 'far:9092'), RESET SPLITS"
        " WITH (ACCEPT NEW TOPIC = true) REASON 'it has moved'"
    )

    @pytest.fixture(autouse=True)
    def gate(self, stage: Stage) -> None:
        """The gate is open, and a sink of the source rests after each batch."""
        cluster = stage.supervisor.cluster
        stage.put("cluster", cluster, ClusterRecord(unsafe=True))
        stage.run(SINK.format("k1"))
        stage.world.lag["k1"] = 3
        for _ in range(200):
            stage.turn()

    def load(self, stage: Stage) -> None:
        """A record with every turn, so that the sink is never at the end of the table."""
        turn = stage.turn

        def loaded() -> None:
            stage.world.topics["t"][0] += 1
            turn()

        stage.turn = loaded  # type: ignore[method-assign]
        for _ in range(5):
            loaded()

    def test_the_sinks_below_are_waited_for(self, stage: Stage) -> None:
        """The plan says so; the operation stops the source and goes over once all is sent."""
        self.load(stage)
        (plan,) = stage.run(f"EXPLAIN {self.MOVE}")
        assert "still to be sent by default.k1: the source is stopped first" in plan.summary
        (done,) = stage.run(self.MOVE)
        assert stage.row.state == "done"
        assert done.restarted == ("default.s",)
        assert not stage.world.wrong

    def test_also_with_the_batch_that_is_ended_first(self, stage: Stage) -> None:
        """A sink that had sent all is late again when the source ends a batch to stop."""
        stage.world.topics["t"][0] += 5
        (source,) = (each for each in stage.engine.running if each.spec.name.name == "s")
        while source.between:
            source.step()
        (plan,) = stage.run(f"EXPLAIN {self.MOVE}")
        assert "still to be sent" not in plan.summary
        stage.run(self.MOVE)
        assert stage.row.state == "done"

    def test_one_that_does_not_send_is_not(self, stage: Stage) -> None:
        """It is refused at once, in the dry run too, with what helps."""
        stage.run("PAUSE SINK k1")
        self.load(stage)
        for text in (f"EXPLAIN {self.MOVE}", self.MOVE):
            with pytest.raises(UnsafeBlocked, match="too early") as caught:
                stage.run(text)
            assert "PAUSE SOURCE default.s" in (caught.value.remedy or "")
        assert not stage.state.operations

    def test_one_that_is_too_slow(self, stage: Stage) -> None:
        """After the limit it is refused, nothing is changed and the source goes on."""
        self.load(stage)
        stage.world.lag["k1"] = seconds(100 * LIMIT)
        for _ in range(60):
            stage.turn()
        with pytest.raises(UnsafeBlocked, match="too early"):
            stage.run(self.MOVE)
        assert stage.row.state == "refused"
        assert not stage.state.holds

    def test_what_stays_behind_is_counted(self, stage: Stage, dies: Any) -> None:
        """Unread records of the old topic are in the plan; of a dead broker nobody knows."""
        stage.run("PAUSE SOURCE s")
        stage.turn()
        stage.world.topics["t"][0] += 40
        stage.world.topics["t"][1] += 2
        (plan,) = stage.run(f"EXPLAIN {self.MOVE}")
        assert "42 records of the former t are unread" in plan.summary
        assert "(t:0 40, t:1 2)" in plan.summary
        assert plan.summary.splitlines()[-1].endswith(
            "; 42 unread records of former topics stay behind"
        )
        dies("a")
        (plan,) = stage.run(f"EXPLAIN {self.MOVE}")
        assert "what the former t held unread is not known" in plan.summary


def seconds(number: float) -> int:
    """Steps of a query in so many seconds of a trial."""
    return int(number * LOOKS_A_SECOND)


class TestABacklog:
    """The first batch on the new definition takes longer than the limit."""

    def test_is_progress_while_its_tasks_get_on(self, stage: Stage) -> None:
        """However long it takes: the limit begins anew with what its tasks have done."""
        stage.world.slow["b:9092"] = seconds(5 * LIMIT)
        stage.world.topics["t"][0] += 10
        stage.world.topics["u"][0] += 10
        result = stage.alter("b")
        assert stage.row.state == "confirmed"
        assert stage.broker == "b:9092"
        assert result.notices == ("2 queries restarted: default.s, default.r",)

    def test_of_one_that_has_all_the_cores(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A query whose tasks wait for those of another one is no reason to go back."""
        stage.world.slow["b:9092"] = seconds(5 * LIMIT)
        stage.world.topics["t"][0] += 10
        stage.world.topics["u"][0] += 10
        monkeypatch.setattr(
            SimulatedQuery, "worked", lambda query: query.work * (query.spec.name.name == "s")
        )
        stage.alter("b")
        assert stage.row.state == "confirmed"

    def test_that_stands_still_is_none(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where no task does anything the limit holds: the old definition works, and is back."""
        stage.world.slow["b:9092"] = seconds(5 * LIMIT)
        stage.world.topics["t"][0] += 10
        monkeypatch.setattr(SimulatedQuery, "worked", lambda _: 7)
        with pytest.raises(AlterRolledBack, match=r"default\.s: made no progress in 20 s"):
            stage.alter("b")
        assert stage.broker == "a:9092"

    def test_that_fails_is_none(self, stage: Stage) -> None:
        """Queries that die over and over do not wait for ever."""
        with pytest.raises(AlterRolledBack, match="drops every fetch"):
            stage.alter("lame")
        assert stage.broker == "a:9092"


class TestMeanwhile:
    """What becomes of a query while an ALTER waits for it."""

    def test_one_that_is_dropped(self, stage: Stage) -> None:
        """It is not started again; the ALTER goes its way with the others."""
        stage.world.addresses["b:9092"] = ""  # nothing answers there: its query has ended
        clock: Any = stage.supervisor.clock
        go_on, looks = clock.meanwhile, count()

        def drop() -> None:
            go_on()
            if stage.row.detail.get("phase") == "started" and next(looks) == 5:
                stage.client(lambda: None).run("DROP SOURCE s CASCADE")

        clock.meanwhile = drop
        with pytest.raises(AlterRolledBack):
            stage.alter("b", "WITH (VALIDATE = false)")
        assert stage.row.state == "set_back"
        assert dependencies.lookup(stage.state, "source", "default.s") is None
        assert [
            (each.op, each.outcome) for each in stage.row.executed
            if each.name == "default.s" and each.op in ("start", "probe")
        ] == [
            ("start", "failed: CM0721"), ("start", "failed: CM0721"),
            ("probe", "skipped: its query does not run"),
        ]
        assert not stage.state.holds

    def test_one_that_ends_just_after_the_look(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its last progress outlives it: it is started again before the ALTER is confirmed."""
        verdicts, ended = Probing.verdicts, list[str]()

        def end(probing: Probing) -> Mapping[str, Any]:
            found = verdicts(probing)
            for each in stage.supervisor.managed.values():
                query = each.query
                if not ended and found.get(each.item_id) and query is not None and (
                    query.progress() is not None and query.active
                ):
                    ended.append(each.item_id)
                    query.active = False  # type: ignore[misc]
            return found

        monkeypatch.setattr(Probing, "verdicts", end)
        stage.alter("b")
        (item_id,) = ended
        assert stage.row.state == "confirmed"
        assert [each.op for each in stage.row.executed if each.id == item_id][-3:] == [
            "start", "start", "probe"
        ]
        assert all(each.active for each in stage.engine.running[-2:])


class TestNothingToGoBackTo:
    """The broker has moved, so that nothing answers at its old address."""

    @pytest.fixture(autouse=True)
    def moved(self, stage: Stage, dies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """And the machine is so loaded that no task begins."""
        dies("a")
        monkeypatch.setattr(SimulatedQuery, "worked", lambda _: 0)
        stage.world.topics["t"][0] += 10

    def test_the_new_one_gets_as_long_again(self, stage: Stage) -> None:
        """It answers, so it does not give way to the dead one: it comes in late, and says so."""
        stage.world.slow["b:9092"] = seconds(1.5 * LIMIT)
        result = stage.alter("b")
        assert stage.row.state == "confirmed"
        assert stage.broker == "b:9092"
        assert "the new definition answers and stays" in " ".join(result.notices)

    def test_the_new_one_stays_though_it_is_not_healthy(self, stage: Stage) -> None:
        """Not confirmed, exit 6: it is in force, no hold is left, the queries are tried on it."""
        stage.world.slow["b:9092"] = seconds(10 * LIMIT)
        with pytest.raises(AlterUnfinished, match=r"default\.s: made no progress") as caught:
            stage.alter("b")
        assert caught.value.exit_code == 6
        assert "SHOW SOURCES" in (caught.value.remedy or "")
        assert stage.row.state == "unconfirmed"
        assert stage.broker == "b:9092"
        assert not stage.state.holds
        for _ in range(seconds(10 * LIMIT)):
            stage.turn()
        assert stage.world.table(stage.engine.running[0].spec.shard).rows

    def test_one_that_dies_between_two_waits(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was healthy at first: it is started and waited for once more with the others."""
        stays, killed = AlterOperation._nothing_to_go_back_to, list[str]()

        def kill(trial: AlterOperation, row: OperationRecord) -> str:
            why = stays(trial, row)
            for query in stage.engine.running:
                if why and query.spec.name.name == "r":
                    query.active = False
                    killed.append(query.spec.name.name)
            return why

        monkeypatch.setattr(AlterOperation, "_nothing_to_go_back_to", kill)
        progress = SimulatedQuery.progress
        begun = stage.supervisor.clock.monotonic()
        monkeypatch.setattr(SimulatedQuery, "progress", lambda query: (
            None if query.spec.name.name == "s"
            and stage.supervisor.clock.monotonic() < begun + 1.5 * LIMIT else progress(query)
        ))
        stage.alter("b")
        assert killed
        assert stage.row.state == "confirmed"
        assert all(query.active for query in stage.engine.running[-2:])

    def test_two_that_do_not_answer(self, stage: Stage, dies: Any) -> None:
        """A new one that has died as well gives way as ever."""
        stage.world.slow["b:9092"] = seconds(10 * LIMIT)
        stage.supervisor.clock.meanwhile = lambda: (  # type: ignore[attr-defined]
            dies("b"), stage.engine.step()
        )
        with pytest.raises(Exception, match="does not work either"):
            stage.alter("b")
        assert stage.row.state == "failed"
        assert stage.broker == "a:9092"


@pytest.mark.parametrize("has_topics", [True, False])
def test_another_cluster_is_final_at_once(
    stage: Stage, has_topics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unvalidated, it is found out by its id, whatever topics it has: nobody waits for the limit
    to go back."""
    known = stage.world.topic_ids
    if not has_topics:
        monkeypatch.setattr(
            StreamWorld, "topic_ids",
            lambda _, cluster, topics: known(cluster, topics) if cluster == "one" else {},
        )
    began = stage.supervisor.clock.monotonic()
    with pytest.raises(AlterRolledBack, match="belongs to cluster one") as caught:
        stage.alter("far", "WITH (VALIDATE = false)")
    assert "made no progress" not in caught.value.message
    assert stage.supervisor.clock.monotonic() - began < LIMIT / 4
    assert stage.broker == "a:9092"


class TestTold:
    """What the runtime's log and the history say of it all."""

    def log_of(self, stage: Stage) -> list[str]:
        """What was said since the start, without the operation's key."""
        (key,) = stage.state.operations
        return [line.replace(f"operation {key}", "operation") for line in stage.said]

    def history(self, stage: Stage) -> list[tuple[str, str | None]]:
        """Verbs and reasons since the operation was asked for, oldest first."""
        lines = [(each.verb, each.reason) for each in entries(stage.log) if not each.is_routine]
        lines.reverse()
        return lines[[verb for verb, _ in lines].index("operation"):]

    def test_an_alter(self, stage: Stage) -> None:
        """Begun, committed, confirmed; each commit of it names the connection."""
        stage.alter("b")
        assert self.log_of(stage) == [
            "operation: ALTER of connection default.c, validating",
            "operation: committed, these restart: default.s, default.r",
            "operation: confirmed, connection default.c",
        ]
        assert self.history(stage) == [
            ("operation", "connection default.c altered"),
            ("alter", "connection default.c"),
            ("confirmed", "connection default.c"),
        ]

    def test_a_roll_back(self, stage: Stage) -> None:
        """What failed, that the old definition is committed again, and what came of it."""
        with pytest.raises(AlterRolledBack):
            stage.alter("lame")
        failed = "failed and is tried again: the broker drops every fetch"
        why = "; ".join(f"default.{each}: the broker drops every fetch" for each in "sr")
        assert self.log_of(stage)[2:] == [
            f"source default.s {failed}", f"source default.r {failed}",
            f"operation: the old definition is committed again: {why}",
            "source default.s runs again", "source default.r runs again",
            f"operation: set_back, connection default.c: {why}",
        ]
        assert self.history(stage)[-2:] == [
            ("set back", f"connection default.c: {why}"),
            ("set_back", f"connection default.c: {why}"),
        ]

    def test_a_refusal(self, stage: Stage) -> None:
        """``failed`` names the object and all that validation found."""
        with pytest.raises(ValidationFailed):
            stage.alter("far")
        (*_, (verb, reason)) = self.history(stage)
        assert verb == "failed"
        assert reason is not None
        found = "connection default.c: refused by validation; source default.s belongs to cluster "
        assert reason.startswith(found)
        assert self.log_of(stage)[-1] == f"operation: failed, {reason}"

    def test_a_failure_is_said_once(
        self, stage: Stage, dies: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However often a query is tried, and that it runs again."""
        dies("a")
        for _ in range(400):
            stage.turn()
            stage.supervisor.clock.sleep(0.1)
        source = dependencies.find(stage.state, "source", "s").item_id
        assert stage.supervisor.managed[source].restarts > 5
        failed = "source default.s failed and is tried again: "
        assert [line for line in stage.said if line.startswith(failed)] == [
            f"{failed}default.s: nothing answers (sasl.password=***)",  # the query that ran
            f"{failed}source default.s: nothing answers (sasl.password=***)",  # and each start
        ]
        stage.world.addresses.update(streaming.ADDRESSES)
        for _ in range(400):
            stage.turn()
            stage.supervisor.clock.sleep(0.1)
        assert sorted(stage.said[-2:]) == [
            "source default.r runs again", "source default.s runs again"
        ]


class TestKilled:
    """The runtime dies while a client waits for its ALTER."""

    NEXT = "catalog-migrate run --cluster default.main: it takes the operation to its end"

    @pytest.mark.parametrize("at", ["stop", "start"])
    def test_after_the_commit(self, stage: Stage, at: str) -> None:
        """Exit 6: it is committed, and no query runs until the next runtime is started."""
        stage.dies_at = at
        with pytest.raises(AlterUnfinished, match="its runtime ended in the middle") as caught:
            stage.alter("b")
        assert caught.value.exit_code == 6
        assert "connection default.c altered and committed" in caught.value.message
        assert caught.value.message.endswith("default.s, default.r")
        assert caught.value.remedy == self.NEXT
        assert stage.broker == "b:9092"
        assert stage.row.state == "trial"

    def test_while_it_goes_back(self, stage: Stage) -> None:
        """Then it is the old definition that is in force."""

        def put_back(trial: AlterOperation, problems: Any) -> None:
            original(trial, problems)
            raise SimulatedCrash("after the commit")

        original = AlterOperation._go_back
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AlterOperation, "_go_back", put_back)
            with pytest.raises(AlterUnfinished, match="the old definition is in force again"):
                stage.alter("lame")
        assert stage.broker == "a:9092"

    def test_before_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing was changed, and it is over."""

        def prepare(*_: object) -> dict[str, Any]:
            raise SimulatedCrash("while it validates")

        monkeypatch.setattr(Supervisor, "prepare", prepare)
        with pytest.raises(AlterFailed, match="ended while it validated; nothing was changed"):
            stage.alter("b")
        assert stage.row.state == "failed"
        assert stage.broker == "a:9092"

    def test_or_not_heard_of(self, stage: Stage) -> None:
        """One that is frozen, or on another host, is not proven dead: said as it is, exit 6."""

        def freeze() -> None:
            stage.lease(host="elsewhere")
            stage.meanwhile = lambda: None

        stage.turn = freeze  # type: ignore[method-assign]
        with pytest.raises(AlterUnfinished, match="nothing was heard of its runtime for 30 s"):
            stage.alter("b")


FROZEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden" / "operations.json").read_bytes()
)
"""What killed operations left on record, by the tree before there was one runner: records by
collection and key."""


@pytest.mark.parametrize(
    ("case", "final", "broker", "twice"),
    [
        ("alter-validating", "failed", "a", 0),
        ("alter-trial", "confirmed", "b", 0),
        ("alter-trial-started", "confirmed", "b", 0),
        ("alter-setting-back", "set_back", "a", 0),
        ("unsafe-stopping", "refused", "a", 0),
        ("unsafe-committed", "done", "a", 2),
    ],
)
def test_a_frozen_operation_is_ended(
    stage: Stage, case: str, final: str, broker: str, twice: int
) -> None:
    """Whatever state an earlier version left it in: its end is the one of then, no hold is left,
    and each record has arrived, twice where that was committed."""
    stage.engine.running.clear()
    stage.supervisor.managed.clear()
    left = Changes()
    for name, value in FROZEN[case].items():
        collection, _, key = name.partition(" ")
        left.put(collection, key, msgspec.convert(value, COLLECTIONS[collection]))
    leave(stage.log, left)
    stage.put("cluster", stage.supervisor.cluster, ClusterRecord(unsafe=True))
    ((key, _),) = stage.runner.pending(stage.state)
    stage.runner.carry_out(key, inherited=True)
    assert stage.row.state == final
    assert stage.broker == f"{broker}:9092"
    assert not stage.state.holds
    stage.run_all()
    rows = Counter(
        record for table in stage.world.tables.values() for record in table.rows
    )
    assert sorted(rows.values()) == [1] * (9 - twice) + [2] * twice
    # what the earlier version did is not on record, so nothing is said to have been skipped
    assert not any("does not run" in each.outcome for each in stage.row.executed)


class TestTheProgramIsWhatRuns:
    """What EXPLAIN prints, what the row carries and what the engine is asked to do are the same."""

    @pytest.fixture
    def calls(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Each query that the engine stops or starts, in order."""
        stage.world.topics["o"] = [0]
        stage.run(SINK.format("k1"))
        for _ in range(20):
            stage.turn()
        stage.put("cluster", stage.supervisor.cluster, ClusterRecord(unsafe=True))
        calls: list[str] = []
        stop, start = SimulatedQuery.stop, SimulatedPreparedQuery.start

        def stopped(query: SimulatedQuery, *args: Any) -> None:
            calls.append(f"stop default.{query.spec.name.name}")
            stop(query, *args)

        def started(query: SimulatedPreparedQuery) -> SimulatedQuery:
            calls.append(f"start default.{query.spec.name.name}")
            return start(query)

        monkeypatch.setattr(SimulatedQuery, "stop", stopped)
        monkeypatch.setattr(SimulatedPreparedQuery, "start", started)
        return calls

    def explained(self, stage: Stage, text: str) -> list[str]:
        """The steps that EXPLAIN gives, which its text has too."""
        (result,) = stage.run(f"EXPLAIN {text}")
        lines = [line for line in result.summary.splitlines() if line.startswith("  ")]
        places = [
            lines.index(f"  {symbol} {text}") for symbol, text in number_steps(result.steps)
        ]
        assert places == sorted(places)
        standing = [line for line in lines if ": from step " in line]
        assert standing == [
            f"  {name}: from step {at} to step {back}"
            for name, at, back in interruptions(result.steps)
        ]
        assert len(standing) == sum(step.op == "stop" for step in result.steps)
        return [f"{step.op} {step.name.rpartition(':')[2]}" for step in result.steps]

    def executed(self, result: Result) -> list[str]:
        """What the statement says was done, all of it well."""
        assert {each.outcome for each in result.executed} == {"done"}
        return [f"{each.op} {each.name.rpartition(':')[2]}" for each in result.executed]

    ALTER = (
        "validate default.c", "validate default.s", "validate default.r", "validate default.k1",
        "stop default.r", "stop default.k1", "stop default.s", "settle default.r",
        "settle default.k1", "settle default.s", "start default.s", "start default.r",
        "start default.k1", "probe default.s", "probe default.r", "probe default.k1",
    )

    def test_an_alter(self, stage: Stage, calls: list[str]) -> None:
        """All is validated; the sink stops before its source and starts after it."""
        statement = "ALTER CONNECTION c SET (BROKER 'b:9092')"
        steps = self.explained(stage, statement)
        assert steps == list(self.ALTER)
        (result,) = stage.run(statement)
        assert self.executed(result) == steps
        assert calls == [step for step in steps if step.startswith(("stop", "start"))]
        assert len(stage.row.program) == len(steps)
        logged = [one for each in reversed(list(entries(stage.log))) for one in each.executed]
        assert tuple(logged) == result.executed

    @pytest.mark.parametrize(
        ("statement", "made"),
        [
            ("ALTER CONNECTION c SET (BROKER 'b:9092')", 2),  # planned, then looked at
            ("ALTER SOURCE s UNSAFE INJECT OFFSETS (TO earliest) REASON 'again'", 1),
            ("ALTER SOURCE s UNSAFE SET (TOPIC = 'u'), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
             " REASON 'moved'", 2),  # the second has no ids on record, which validation would miss
        ],
    )
    def test_how_often_the_state_afterwards_is_made(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, statement: str, made: int
    ) -> None:
        """EXPLAIN makes it once for the program and everything that is looked at."""
        states: list[State] = []
        apply = State.apply_edits

        def count(state: State, *args: Any) -> State:
            states.append(apply(state, *args))
            return states[-1]

        (parsed,) = parse(statement)
        state = stage.state
        monkeypatch.setattr(State, "apply_edits", count)
        found = explain(state, parsed.statement, ports=stage.supervisor.ports)
        assert found.program
        assert len(states) == made

    @pytest.mark.parametrize("explain", ["", "EXPLAIN "])
    def test_over_two_clusters(self, stage: Stage, explain: str) -> None:
        """EXPLAIN refuses what the statement refuses."""
        stage.run("CREATE CLUSTER d")
        stage.run(
            "CREATE SOURCE far (id BIGINT) IN CLUSTER d FROM KAFKA CONNECTION c (TOPIC 't')"
            " FORMAT JSON"
        )
        with pytest.raises(RefusedStatement, match=r"in several clusters \(.*\.d, .*\.main\)"):
            stage.run(f"{explain}ALTER CONNECTION c SET (BROKER 'b:9092')")

    def test_one_that_is_taken_back(self, stage: Stage, calls: list[str]) -> None:
        """The way back is a program too: stops, the snapshots, starts, probes."""
        with pytest.raises(AlterRolledBack):
            stage.alter("lame")
        back = [step["op"] for step in stage.row.program]
        assert back == ["stop"] * 3 + ["edit"] * 3 + ["start"] * 3 + ["probe"] * 3
        told = [each.op for each in stage.row.executed]
        assert told[-len(back):].count("edit") == 3
        failed = [each for each in stage.row.executed if each.outcome.startswith("failed")]
        assert {each.op for each in failed} == {"probe"}

    def test_a_query_that_is_held_meanwhile(self, stage: Stage, calls: list[str]) -> None:
        """It is stopped and not started again, which is on record in its place of the program."""
        source, turn = dependencies.find(stage.state, "source", "r").item_id, stage.turn

        def paused() -> None:
            if not stage.state.holds:
                hold = HoldRecord(item_id=source, holder="operator", reason="paused")
                stage.put("hold", f"{source}/operator/1", hold)
            turn()

        stage.turn = paused  # type: ignore[method-assign]
        stage.alter("b")
        assert stage.row.state == "confirmed"
        skipped = [
            (each.op, each.wave, each.outcome) for each in stage.row.executed
            if each.id == source and each.outcome != "done"
        ]
        planned = {step["op"]: step["wave"] for step in stage.row.program if step["id"] == source}
        assert skipped == [
            (op, planned[op], "skipped: its query does not run") for op in ("start", "probe")
        ]
        assert "start default.r" not in calls

    def test_an_unsafe_operation(self, stage: Stage, calls: list[str]) -> None:
        """The source alone is stopped, settled, edited and started."""
        statement = "ALTER SOURCE s UNSAFE INJECT OFFSETS ('t:0' = 1) REASON 'twice'"
        steps = self.explained(stage, statement)
        assert steps == ["stop default.s", "settle default.s", "edit default.s", "start default.s"]
        (result,) = stage.run(statement)
        assert self.executed(result) == steps
        assert calls == ["stop default.s", "start default.s"]


class TestATableThatGoesBack:
    """The RESTORE of an operation is committed once, whoever comes to it."""

    @pytest.mark.parametrize(("inherited", "log", "calls", "outcome"), [
        (False, [], ["restore_table"], "done"),
        (True, [True], ["is_restored"], "skipped: it was restored before"),
        (True, [False, True], ["is_restored", "block_restore", "is_restored"], "done"),
        (True, [False, False], ["is_restored", "block_restore", "is_restored"], "failed: CM0761"),
    ])
    def test_is_asked_for_its_log(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, inherited: bool, log: list[bool],
        calls: list[str], outcome: str,
    ) -> None:
        """One that another process had begun is barred unless the table's log has it."""
        heard: list[str] = []

        def hear(name: str, *_: object) -> bool:
            heard.append(name)
            return name == "is_restored" and log.pop(0)

        for name in ("restore_table", "is_restored", "block_restore"):
            monkeypatch.setattr(restore, name, partial(hear, name))
        runner = stage.runner
        run = UnsafeOperation(
            stage.supervisor, runner.follow, runner.alive, runner.say, "key", inherited
        )
        step = Step("restore", "source", "source:default.s", "i1", 3)
        with suppress(UnsafeBlocked):
            execute([RestoreTable(step, restore.Restore("path", 1, 2))], run)
        assert heard == calls
        assert [each.outcome for each in run.execution.executed] == [outcome]


class TestOneOperation:
    """What an operation asks of its run, and what it puts on record."""

    @pytest.mark.parametrize(("error", "outcome"), [
        (ValidationFailed("topic t is not there"), "failed: topic t is not there"),
        (AlterFailed("x"), f"failed: {AlterFailed.code}"),
    ])
    def test_what_validation_finds_is_on_record(self, error: Exception, outcome: str) -> None:
        """The finding itself; what else went wrong by its code."""
        judged = Future[tuple[Finding, ...]]()
        step = Step("validate", "source", "s", "i1")
        assert ValidateAccess(step, judged).outcome_of(error) == outcome

    def test_a_start_waits_for_the_wave_before(self) -> None:
        """Not for those that start beside it, nor for earlier waves: these were waited for."""
        first, second, beside, begun = (Future[Any]() for _ in range(4))
        waited: list[tuple[Future[Any], ...]] = []

        def start(*_: object, after: tuple[Future[Any], ...], **__: object) -> Future[Any]:
            waited.append(after)
            return begun

        run = SimpleNamespace(
            starts={1: [first], 2: [second], 4: [beside]},
            supervisor=SimpleNamespace(start=start),
        )
        StartQuery(Step("start", "source", "s", "i1", 4), cast(State, None)).run(cast(Any, run))
        assert waited == [(second,)]
        assert run.starts[4] == [beside, begun]
