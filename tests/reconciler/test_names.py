"""What a start says of names: how many there are, counted alike everywhere, and whose they are."""

from __future__ import annotations

from itertools import count

import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import MigrationBlocked, NotReconciled
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.reconcile import reconcile_names
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.progress import Progress
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

ONE = "CREATE TABLE t (id INT); CREATE TABLE u (id INT); CREATE VIEW v (id INT) AS SELECT 1 AS id;"
TWO = "CREATE TABLE t (id INT, x INT); CREATE VIEW v (id INT) AS SELECT id FROM s.t;"
OWN = ObjectDefinition(
    "catalog_migrate", "view", "own", (Column("id", "INT"),), sql="SELECT 1 AS id", text_hash="1",
    definition_hash="1",
)
SYSTEM = Release("own", (OWN,), "own", {OWN.identity: ()}, {})


@pytest.mark.parametrize("persistent", [False, True])
def test_names_are_counted_and_progress_is_the_plans(persistent: bool) -> None:
    """A metastore counts as a session does; ``register`` counts the objects of the release, of
    which its plan speaks, and not our own views beside them."""
    world, log, clock, tokens = World(), MemoryLog(), SimulatedClock(), count()
    engine = SimulatedEngine(world, persistent=persistent)
    heard: list[Progress] = []

    def start(name: str, sql: str) -> BootstrapReport:
        heard.clear()
        return migrate(
            engine, log, load_texts([("all.sql", sql)], name=name, default_schema="s"),
            warehouse="/w", clock=clock, holder="start", system=SYSTEM, on_progress=heard.append,
            token=lambda: f"{next(tokens)}",
        )

    def progress() -> dict[str, tuple[int, int]]:
        return {one.phase: (one.done, one.total) for one in heard}

    first = start("1", ONE)
    assert first.plan is not None
    assert first.plan.summary["create"] == 3
    assert first.names == 4
    assert progress()["register"] == (3, 3)
    second = start("2", TWO)  # u is dropped, v dropped and created, t changed in place
    assert second.plan is not None
    assert [(step.op, step.name) for step in second.plan.steps if step.name != "s.t"] == [
        ("seal", "s.u"), ("drop", "s.u"), ("drop", "s.v"), ("create", "s.v"),
    ]
    assert (progress()["drop"], progress()["register"]) == ((2, 2), (1, 1))
    assert second.names == 3


@pytest.mark.parametrize("kind", ["TABLE t (id INT)", "VIEW t (id INT) AS SELECT 1 AS id"])
def test_a_table_of_others_under_a_name_may_be_adopted(kind: str) -> None:
    """Who has rows there wants them taken over, where the release has a table; nobody's name is
    replaced in either case."""
    engine = SimulatedEngine(World(), persistent=True)
    path = "/theirs/t"
    engine.create_shard(ShardSpec(path, (Column("id", "INT"),)))
    engine.ensure_schema("s")
    engine.register_table(ItemName("s", "t"), path)
    with pytest.raises(MigrationBlocked) as caught:
        migrate(
            engine, MemoryLog(),
            load_texts([("all.sql", f"CREATE {kind};")], name="1", default_schema="s"),
            warehouse="/w", clock=SimulatedClock(), holder="start",
        )
    (entry,) = caught.value.plan.blocked
    assert entry.code == "CM0331"
    adopt = "take a Delta table over, with its rows: catalog-migrate init --adopt --table s.t; or "
    assert entry.remedy == (adopt if kind.startswith("TABLE") else "") + (
        "rename or drop what has the name s.t; it is never replaced"
    )


def test_a_start_leaves_bodies_to_the_engine() -> None:
    """What our grammar refuses is an error at plan and check; at a start Spark has the word."""
    text = "CREATE TABLE u (a INT); CREATE VIEW v (a INT) AS SELECT a FORM s.u;"
    with pytest.raises(MigrationBlocked) as caught:
        migrate(
            SimulatedEngine(World(), persistent=True), MemoryLog(),
            load_texts([("all.sql", text)], name="1", default_schema="s"),
            warehouse="/w", clock=SimulatedClock(), holder="start",
        )
    assert [entry.code for entry in caught.value.plan.blocked] == ["CM0330"]


def test_a_name_of_others_is_told_unless_it_is_to_be_kept() -> None:
    """One that came in the place of ours since: a failure of names, with who has it."""
    engine, log, clock = SimulatedEngine(World(), persistent=True), MemoryLog(), SimulatedClock()
    release = load_texts([("all.sql", "CREATE TABLE t (id INT);")], name="1", default_schema="s")
    migrate(engine, log, release, warehouse="/w", clock=clock, holder="start")
    engine.create_shard(ShardSpec("/theirs/t", (Column("id", "INT"),)))
    name = ItemName("s", "t")
    engine.drop(next(each for each in engine.observe("s") if each.name == name))
    engine.register_table(name, "/theirs/t")
    work = ExecutionContext(
        engine, log, clock, "/w", MigratedStreams(), workers=Workers(1)
    )
    state = log.read()
    with pytest.raises(NotReconciled) as caught:
        reconcile_names(work, state)
    assert [(each.step, each.name, each.held) for each in caught.value.failures] == [
        ("create", "s.t", True)
    ]
    assert reconcile_names(work, state, keep_foreign_names=True) == 0
