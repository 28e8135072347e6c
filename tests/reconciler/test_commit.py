"""What the commit of a release writes beside its objects, and what a failure behind it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import RECONCILE, ItemRecord, ReleaseRecord, ShardRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put, edits_of
from catalog_migrate.engine.port import Engine
from catalog_migrate.errors import NotReconciled
from catalog_migrate.migrations.commit import PutRelease
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.failures import StepFailure, record_session_failure
from catalog_migrate.migrations.in_place import _steps, _unset
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.table_properties import APPEND_ONLY
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_texts
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

TWO_SCHEMAS = """
CREATE TABLE a.t (x INT);
CREATE TABLE b.u (x INT);
CREATE VIEW b.v (x INT) AS SELECT x FROM b.u;
"""


def upgraded(*texts: str) -> list[State]:
    """The state behind the commit of each release."""
    engine, log = SimulatedEngine(World(), persistent=True), MemoryLog()
    found: list[State] = []
    for number, text in enumerate(texts, start=1):
        migrate(
            engine, log, load_texts([("all.sql", text)], name=str(number)), warehouse="/w",
            clock=SimulatedClock(), holder="start", approve=("b.u",),
        )
        newest = read_state(log)
        states = [log.read_at(version) for version in range(newest.version + 1)]
        found.append(next(state for state in states if state.serial == number))
    return found


def test_the_schemas_that_a_release_leaves_are_kept() -> None:
    """Not one in which it still has objects."""
    first, second = upgraded(TWO_SCHEMAS, "CREATE TABLE a.t (x INT, y INT);")
    assert first.former_schemas == ()
    assert second.former_schemas == ("b",)


def test_a_tombstone_says_what_was_dropped() -> None:
    """The definition of what has no rows by its hash; a table by where its rows are."""
    first, second = upgraded(TWO_SCHEMAS, "CREATE TABLE a.t (x INT);")
    view = first.mappings["relation:b.v"]
    table = first.items[first.mappings["relation:b.u"].item_id]
    assert {
        row.name: (row.kind, row.location, row.definition_hash)
        for row in second.tombstones
    } == {
        "u": ("table", table.shard, None), "v": ("view", None, view.definition_hash),
    }


@pytest.mark.parametrize(("back_to", "serial"), [(None, 1), (1, 2)])
def test_a_release_without_a_difference(back_to: int | None, serial: int) -> None:
    """It is in force as of the serial that stands; a rollback has one of its own."""
    (state,) = upgraded(TWO_SCHEMAS)
    migration = plan_migration(
        Baseline.from_state(state), load_texts([("all.sql", TWO_SCHEMAS)], name="2")
    )
    if back_to is not None:
        plan = migration.plan
        migration = replace(
            migration, plan=replace(plan, target=replace(plan.target, serial=back_to))
        )
    edits = edits_of(state, [PutRelease(migration, "release")])
    assert [
        edit.record.serial for edit in edits
        if isinstance(edit, Put) and isinstance(edit.record, ReleaseRecord)
        and edit.record.in_force
    ] == [serial]


def work(log: MemoryLog, streams: object = None) -> ExecutionContext:
    return ExecutionContext(
        cast(Engine, None), log, SimulatedClock(), "/w",
        cast(MigratedStreams, streams or MigratedStreams()),
    )


def failed(*failures: StepFailure) -> NotReconciled:
    error = NotReconciled("not reconciled", remedy="run again")
    error.failures = failures
    return error


def test_names_that_a_session_could_not_make_are_on_record_once() -> None:
    """A failure that names no step leaves no word, nor does one that is on record already."""
    log = MemoryLog()
    created = create_catalog(log, warehouse="/w")
    record_session_failure(work(log), created, failed())
    assert read_state(log).version == created.version
    error = failed(StepFailure("create view", "s.v", "no such table"))
    record_session_failure(work(log), created, error)
    noted = read_state(log)
    assert noted.operations[RECONCILE].detail["step"] == "create view s.v"
    record_session_failure(work(log), noted, error)
    assert read_state(log).version == noted.version


@pytest.mark.parametrize(("relied", "lost"), [((), (APPEND_ONLY, "x")), (("i1",), ("x",))])
def test_a_property_that_a_stream_needs_is_not_unset(
    relied: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    """Only while a started query reads the table."""
    state = SimpleNamespace(shards={
        "s/t/1": ShardRecord("i1", "s1", "live", unset=(APPEND_ONLY, "x")),
    })
    streams = SimpleNamespace(append_only=lambda _: frozenset(relied))
    assert _unset(work(MemoryLog(), streams), cast(State, state), "s/t/1") == lost


def test_the_steps_of_a_commit_that_stored_none() -> None:
    """Tables are changed in the first wave, and unsealed in the second."""
    table = ObjectDefinition("s", "table", "t", (Column("a", "INT"),))
    state = SimpleNamespace(items={"i1": ItemRecord("release", "s1", table, shard="s/t/1")})
    steps = _steps(cast(State, state), (), {"i1": "s/t/1"}, {"i1": None})
    assert [(step.op, step.id, step.wave) for step in steps] == [
        ("evolve", "i1", 1), ("unseal", "i1", 2),
    ]
