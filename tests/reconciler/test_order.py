"""The program is what runs: it is planned, executed and reported in one order.

At no moment does a view of ours read what is absent. What was executed is told by the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.history import entries
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import ViewSpec
from catalog_migrate.errors import EngineFailure, LeaseHeld, MetastoreFailure, NotReconciled
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.operations.steps import NAMES, SESSION, Executed, Step
from catalog_migrate.release.loader import load_texts
from catalog_migrate.sql.references import references
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World
from tests.simulation.installation import Installation, release_of
from tests.simulation.releases import draft_chain

CHANGES = ("drop", "create_view", "create_function", "register_table")
OPERATIONS = {
    "fill_rows": "fill", "unseal": "unseal",
    "copy_rows": "copy", "seal": "seal", "evolve": "evolve", "drop": "drop",
    "create_view": "create", "create_function": "create", "register_table": "create",
}
"""What the engine does, as an operation; a replaced view is one that it creates."""


class Recorder:
    """Hears every change of a name, and which absent names are read right after it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.engine = SimulatedEngine(world, persistent=True, on_call=self)
        self.taken: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.refuses = ""
        self.away = ""
        self.asked = 0
        """How often the metastore that is away was asked."""
        self.broken: list[tuple[str, str]] = []

    def __call__(self, call: str) -> None:
        method, _, done = call.partition(".")
        if not done and self.refuses == f"{method} {self.engine.about}":
            raise EngineFailure("not today")
        if not done and self.away and method == self.away:
            self.asked += 1
            raise MetastoreFailure("no answer", metastore="thrift://m:1", remedy="start it")
        if done and method in OPERATIONS:
            self.calls.append((OPERATIONS[method], str(self.engine.about)))
        if done and method == "delete_shard":  # a table on which a change in place was tried
            self.calls = [call for call in self.calls if call[1] != str(self.engine.about)]
        if not done or method not in CHANGES:
            return
        self.taken.append(f"{method} {self.engine.about}")
        relations, functions = self.world.names.relations, self.world.names.functions
        for view in relations.values():
            if isinstance(view, ViewSpec):
                read = references(view.sql)
                absent = {name for name in read.relations if name not in relations}
                absent |= {name for name in read.functions if name[0] and name not in functions}
                self.broken += [
                    (f"{schema}.{name}", f"{view.name} reads it after {self.taken[-1]}")
                    for schema, name in sorted(absent, key=str)
                ]


    def executed(self, state: State) -> list[tuple[str, str]]:
        """The operations that the engine saw, on names and on the items whose directories are."""
        warehouse = state.setting("warehouse") + "/"
        return [
            (op, state.shards[about.removeprefix(warehouse)].item_id)
            if about.startswith(warehouse) else (op, about.lower())
            for op, about in self.calls
        ]


class Place:
    """A catalog and a metastore; starts say what changed and what their plan was."""

    def __init__(self) -> None:
        self.log, self.tokens, self.recorder = MemoryLog(), count(), Recorder(World())

    def start(
        self, text: str, name: str, approve: Sequence[str] = ("s.old",)
    ) -> BootstrapReport:
        """Bring a release in; what it changes is recorded anew."""
        self.recorder.taken.clear()
        release = load_texts([("all.sql", text)], name=name, default_schema="s")
        return migrate(
            self.recorder.engine, self.log, release, warehouse="/w", clock=SimulatedClock(),
            holder="start", token=lambda: f"{next(self.tokens)}", approve=approve,
        )


def upgraded(*texts: str) -> tuple[Recorder, list[tuple[str, str]]]:
    """The changes of names of the last of several releases, and the steps of its plan."""
    place = Place()
    for number, text in enumerate(texts, 1):
        report = place.start(text, str(number))
        assert report.plan is not None
    return place.recorder, [(step.op, step.name) for step in report.plan.steps]


def test_a_view_lets_go_of_a_table_before_the_table_goes() -> None:
    """Release 2 lets a view read another table, a new one, and drops the one that it read."""
    recorder, steps = upgraded(
        "CREATE TABLE old (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.old;",
        "CREATE TABLE new (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.new;",
    )
    assert steps == [
        ("build", "s.new"), ("seal", "s.old"),
        ("create", "s.new"), ("redefine", "s.v"), ("drop", "s.old"),
    ]
    assert recorder.taken == ["register_table s.new", "create_view s.v", "drop s.old"]
    assert recorder.broken == []


def test_a_chain_of_views_lets_go_from_the_bottom() -> None:
    """What is replaced after what it reads now, and what is dropped after all that read it."""
    recorder, steps = upgraded(
        "CREATE TABLE old (a INT); CREATE VIEW u (a INT) AS SELECT a FROM s.old;"
        "CREATE VIEW v (a INT) AS SELECT a FROM s.u;",
        "CREATE TABLE t (a INT); CREATE VIEW w (a INT) AS SELECT a FROM s.t;"
        "CREATE VIEW v (a INT) AS SELECT a FROM s.w;",
    )
    assert recorder.taken == [
        "register_table s.t", "create_view s.w", "create_view s.v", "drop s.u", "drop s.old",
    ]
    assert [name for _, name in steps[-5:]] == [taken.split()[1] for taken in recorder.taken]


def test_a_table_stays_while_a_view_still_reads_it() -> None:
    """A view that could not be replaced keeps its table; the next start goes on from there."""
    place = Place()
    place.start("CREATE TABLE old (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.old;", "1")
    place.recorder.refuses = "create_view s.v"
    second = "CREATE TABLE new (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.new;"
    with pytest.raises(NotReconciled, match=r"create s\.v"):
        place.start(second, "2")
    assert place.recorder.taken == ["register_table s.new"]
    place.recorder.refuses = ""
    place.start(second, "2")
    assert place.recorder.taken == ["create_view s.v", "drop s.old"]
    assert place.recorder.broken == []


def test_a_table_stays_while_a_view_that_goes_still_stands() -> None:
    """A view that could not be dropped keeps its table; the next start takes both."""
    place = Place()
    place.start("CREATE TABLE old (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.old;", "1")
    place.recorder.refuses = "drop s.v"
    with pytest.raises(NotReconciled, match=r"drop s\.v"):
        place.start("CREATE TABLE t (a INT);", "2")
    assert place.recorder.taken == ["register_table s.t"]
    place.recorder.refuses = ""
    place.start("CREATE TABLE t (a INT);", "2")
    assert place.recorder.taken == ["drop s.v", "drop s.old"]
    assert place.recorder.broken == []


@pytest.mark.parametrize("call", ["observe", "ensure_schema", "register_table", "drop"])
def test_a_metastore_that_is_away_is_asked_once(call: str) -> None:
    """Each step would wait as long for the same answer; said again, the start finishes."""
    place = Place()
    place.start("CREATE TABLE x (a INT); CREATE TABLE y (a INT); CREATE TABLE old (a INT);", "1")
    second = "CREATE TABLE t (a INT); CREATE TABLE u (a INT);"
    approve = ["s.x", "s.y", "s.old"]
    place.recorder.away = call
    with pytest.raises((NotReconciled, MetastoreFailure)) as caught:
        place.start(second, "2", approve)
    assert (place.recorder.asked, caught.value.remedy) == (
        1, "start it" if isinstance(caught.value, MetastoreFailure)
        else "start it; nothing is lost",
    )
    with pytest.raises((NotReconciled, MetastoreFailure)):
        place.start(second, "2", approve)
    place.recorder.away = ""
    place.start(second, "2", approve)
    assert set(place.recorder.world.names.relations) == {("s", "t"), ("s", "u")}
    assert place.recorder.broken == []


@pytest.mark.parametrize("error", [
    KeyboardInterrupt(), EngineFailure("refused"), MetastoreFailure("away", metastore="m"),
], ids=lambda error: type(error).__name__)
def test_a_schema_goes_with_its_last_object(error: BaseException) -> None:
    """What a kill leaves the next start drops; a refusal fails no start, and none asks in vain."""
    world, log, clock, calls = World(), MemoryLog(), SimulatedClock(), list[str]()

    def start(name: str, sql: str, refused: str = "") -> str:
        calls.clear()

        def hear(call: str) -> None:
            calls.append(call)
            if call == refused:
                raise error

        return migrate(
            SimulatedEngine(world, persistent=True, on_call=hear), log,
            load_texts([("all.sql", sql)], name=name), warehouse="/w", clock=clock,
            holder="start",
        ).outcome

    kept = "CREATE TABLE s.t (a INT);"
    start("1", kept + "CREATE TABLE x.t (a INT); CREATE VIEW x.v (a INT) AS SELECT a FROM x.t;")
    assert {"s", "x"} <= world.names.schemas
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            start("2", kept, "drop_schema_if_empty")
        assert {"s", "x"} <= world.names.schemas
        assert start("2", kept) == "resumed"
        assert "x" not in world.names.schemas
    else:
        assert start("2", kept, "drop_schema_if_empty") == "migrated"
        assert "x" in world.names.schemas
    assert "s" in world.names.schemas
    assert (start("2", kept), "drop_schema_if_empty" in calls) == ("unchanged", False)


def test_a_name_that_takes_longer_than_a_lease_does_not_cost_it() -> None:
    """On a slow metastore nobody else takes over while a statement is under way."""
    log, refused = MemoryLog(), []

    def slow(call: str) -> None:
        if call == "register_table":
            with pytest.raises(LeaseHeld) as caught:
                acquire(log, holder="another", wait=2.5, clock=SystemClock(), ttl=1.0, margin=0.3)
            refused.append(caught.value)

    report = migrate(
        SimulatedEngine(World(), persistent=True, on_call=slow), log,
        load_texts([("all.sql", "CREATE TABLE s.t (a INT);")], name="1"), warehouse="/w",
        clock=SystemClock(), holder="start", ttl=1.0, margin=0.3,
    )
    assert (report.outcome, len(refused)) == ("initialized", 1)


def test_what_was_dropped_by_hand_meanwhile_is_told() -> None:
    """A view that the program replaces fails; what it drops then is dropped by hand meanwhile."""
    place = Place()
    place.start("CREATE TABLE old (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.old;", "1")
    place.recorder.refuses = "create_view s.v"
    second = "CREATE TABLE new (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.new;"
    with pytest.raises(NotReconciled):
        place.start(second, "2")
    place.recorder.refuses = ""
    del place.recorder.world.names.relations["s", "old"]
    report = place.start(second, "2")
    skipped = "skipped: it was as it should be already"
    assert [(one.op, one.name, one.outcome) for one in report.executed] == [
        ("create", "s.new", skipped), ("redefine", "s.v", "done"), ("drop", "s.old", skipped),
    ]
    assert place.recorder.broken == []
    told = [one for entry in entries(place.log) for one in entry.executed]
    assert [one.outcome for one in told if "failed" in one.outcome] == ["failed: CM0400"]


@pytest.mark.parametrize("seed", range(40))
def test_the_program_is_what_runs(seed: int) -> None:
    """Random chains of releases on a metastore: the plan's steps are those that the engine saw.

    One to one, and no view reads an absent name but where the plan says so.

    A table whose rows are copied under the same id (a CHECK, a partition) has its name taken away
    for a moment, because Spark registers a table only where no name is.
    """
    place = Installation(persistent=True)
    for draft in draft_chain(seed, 4):
        recorder = Recorder(place.world)
        _, report = place.start(draft, release_of(draft), engine=recorder.engine)
        assert report.plan is not None
        assert report.steps == report.plan.steps
        assert {one.outcome for one in report.executed if one.op != "populate"} <= {"done"}
        assert {one.outcome for one in report.executed if one.op == "populate"} <= {
            "skipped: no populate callback was given"
        }
        assert steps_of(report.executed) == list(report.plan.steps)
        assert recorder.executed(place.state()) == [
            ("create" if one.op in ("redefine", "update") else one.op,
             one.id if one.phase != "names" else one.name.rpartition(":")[2].lower())
            for one in report.executed if one.op not in ("build", "populate")
        ]
        absent = {step.name for step in report.plan.steps if step.words.absent}
        assert [each for each in recorder.broken if each[0] not in absent] == [], recorder.taken


def steps_of(executed: Sequence[Executed]) -> list[Step]:
    """What was executed, as the steps that it was executed for."""
    return [Step(one.op, one.kind, one.name, one.id, one.wave, one.phase) for one in executed]


EVERY = (
    "CREATE TABLE copied (a INT, b STRING); CREATE TABLE evolved (a INT); CREATE TABLE old (a INT);"
    "CREATE TABLE read (a INT); CREATE VIEW gone (a INT) AS SELECT a FROM s.old;"
    "CREATE VIEW other (a INT) AS SELECT a FROM s.old;"
    "CREATE VIEW said (a INT) COMMENT 'one' AS SELECT 1 AS a;",
    "CREATE TABLE copied (a INT, b DOUBLE USING CAST(b AS DOUBLE));"
    "CREATE TABLE evolved (a INT, b INT) WITH ('delta.enableChangeDataFeed' = 'true');"
    "CREATE TABLE read (a INT); CREATE TABLE built (a INT);"
    "CREATE TABLE derived (a INT) WITH (contents = 'derived');"
    "CREATE TABLE filled (a INT) FILLED FROM (SELECT a FROM read);"
    "CREATE VIEW other (a INT) AS SELECT a FROM s.built;"
    "CREATE VIEW said (a INT) COMMENT 'two' AS SELECT 1 AS a;",
)
"""Two releases between which every kind of step of a migration is taken."""


def test_what_is_executed_is_what_was_planned() -> None:
    """Every kind of step, with its wave and number; in a session the names under their phase."""
    for persistent in (True, False):
        place = Place()
        place.recorder.engine = SimulatedEngine(
            place.recorder.world, persistent=persistent, on_call=place.recorder
        )
        place.start(EVERY[0], "1")
        report = place.start(EVERY[1], "2")
        assert report.plan is not None
        planned = [
            step if persistent or step.phase != NAMES else replace(step, phase=SESSION)
            for step in report.plan.steps
        ]
        assert {step.op for step in planned} == {
            "build", "copy", "populate", "fill", "seal", "evolve", "unseal", "properties",
            "create", "drop", "redefine", "update",
        }
        assert steps_of(report.executed) == planned == list(report.steps)
