"""Tests of crash points."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.model.objects import Column
from catalog_migrate.testing.engine import SimulatedEngine
from tests.simulation.crashes import CrashPoint, SimulatedCrash


@pytest.mark.parametrize(("at", "version"), [(1, None), (2, 0)])
def test_a_crash_comes_before_or_after_the_effect(at: int, version: int | None) -> None:
    """Point 1 is before the first call's effect, point 2 after it."""
    point = CrashPoint(at)
    engine = SimulatedEngine(on_call=point.on_call)
    with pytest.raises(SimulatedCrash):
        engine.create_shard(ShardSpec("/w/t", (Column("a", "INT"),)))
    assert SimulatedEngine(engine.world).shard_version("/w/t") == version


def test_a_dead_process_does_nothing_more() -> None:
    """After the crash every call crashes before its effect."""
    point = CrashPoint(1)
    engine = SimulatedEngine(persistent=True, on_call=point.on_call)
    for _ in range(2):
        with pytest.raises(SimulatedCrash):
            engine.ensure_schema("s")
    assert point.crashed
    assert engine.world.writes == 0


def test_without_a_point_calls_are_only_counted() -> None:
    """None never crashes, and every announcement is kept in order."""
    point = CrashPoint()
    SimulatedEngine(on_call=point.on_call).names("s")
    assert (point.count, point.calls, point.crashed) == (2, ["names", "names.done"], False)
