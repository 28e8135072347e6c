"""Derived tables on the simulated engine: refilled, dropped, and their fillers killed."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from catalog_migrate.errors import PrepareFailed
from catalog_migrate.migrations.build_tables import Populate
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.progress import Progress
from catalog_migrate.planner.plan import OptionChange
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from tests.simulation.draft import ColumnShape, DraftedRelease, TableShape
from tests.simulation.installation import WAREHOUSE, Installation, release_of
from tests.simulation.ledger import derived_rows
from tests.simulation.run import Run

KEPT = ObjectDefinition("s", "table", "t1", (Column("k1", "BIGINT", False),), depends_on=())
DERIVED = ObjectDefinition(
    "s", "table", "t2", (Column("k2", "BIGINT", False), Column("c3", "STRING")),
    contents="derived", depends_on=(),
)  # fmt: skip
SHAPES = {
    1: TableShape(1, "t1", (ColumnShape(11, "k1", "BIGINT", False, None),)),
    2: TableShape(
        2, "t2",
        (ColumnShape(21, "k2", "BIGINT", False, None), ColumnShape(3, "c3", "STRING", True, None)),
        derived=True,
    ),
}  # fmt: skip
WITH = DraftedRelease("1", (KEPT, DERIVED), SHAPES, (), ())
WITHOUT = DraftedRelease("2", (KEPT,), {1: SHAPES[1]}, (), ())


def test_a_derived_table_with_rows_is_dropped_without_a_word() -> None:
    """Its rows can be made again, so a drop needs no approval, however many there are."""
    place = Installation(persistent=True)
    place.start(WITH, release_of(WITH), populate=place.populate())
    engine, report = place.start(WITHOUT, release_of(WITHOUT), populate=place.populate())
    assert report.outcome == "migrated"
    assert [entry.name.name for entry in engine.observe("s")] == ["t1"]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_refill_that_is_killed_anywhere_is_taken_up(persistent: bool) -> None:
    """Wherever a start dies that fills a table, the next leaves its name on the filled shard."""
    for crash_at in range(1, 80):
        run = Run((WITH,), persistent=persistent, random=Random(0))
        run.attempt(0, crash_at=None, populating="absent")
        run.attempt(0, crash_at=crash_at, populating="fills")
        engine = run.attempt(0, crash_at=None, populating="fills")
        assert engine is not None
        run.check_settled(engine, 0, again=True)
        rows = engine.read(DERIVED.item_name)
        assert list(rows) == derived_rows(DERIVED.columns)


def test_who_makes_the_rows_is_a_change_of_its_own() -> None:
    """A table that becomes derived is updated in place, keeps its rows and is on record as such."""
    first = DraftedRelease("1", (KEPT,), {}, (), ())
    become = msgspec.structs.replace(KEPT, contents="derived")
    second = DraftedRelease("2", (become,), {}, (), ())
    place = Installation(persistent=True)
    engine, _ = place.start(first, release_of(first))
    shard = engine.observe("s")[0].location
    assert shard is not None
    place.world.append(shard, [{"k1": 7}])
    engine, report = place.start(second, release_of(second), populate=place.populate())
    assert report.plan is not None
    assert [(c.action, c.options) for c in report.plan.changes] == [
        ("update", (OptionChange("contents", "set", old="retained", new="derived"),))
    ]
    state = place.state()
    assert state is not None
    assert [item.definition.contents for item in state.items.values()] == ["derived"]
    assert list(engine.read(KEPT.item_name)) == [{"k1": 7}]


def test_progress_of_a_refill_and_of_its_cleaning_up() -> None:
    """Each table that was filled, counted from one; what a failed attempt left, before and after
    it is removed."""
    place = Installation(persistent=True)
    heard: list[Progress] = []

    def start(populate: Populate | None) -> None:
        heard.clear()
        migrate(
            SimulatedEngine(place.world, persistent=True), place.log.attach(), release_of(WITH),
            warehouse=WAREHOUSE, clock=place.clock, holder="one", populate=populate,
            token=place.token, on_progress=heard.append,
        )

    start(None)
    with pytest.raises(PrepareFailed):
        start(place.populate(fails=True))
    assert [(each.done, each.total) for each in heard if each.phase == "clean up"] == [
        (0, 1), (1, 1)
    ]
    start(place.populate())
    assert [(each.done, each.total) for each in heard if each.phase == "populate"] == [(1, 1)]
    place = Installation(persistent=True)
    start(place.populate())
    assert [(each.done, each.total) for each in heard if each.phase == "populate"] == [(1, 1)]
