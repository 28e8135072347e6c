"""Verbs beside catalogs whose rows are simulated: they are looked for where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog_migrate.delta.shard_logs import ShardLogs
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World

LookIn = Callable[[World], None]


@pytest.fixture
def look_in(monkeypatch: pytest.MonkeyPatch) -> LookIn:
    """Has plans and status look for rows in a simulated world instead of on the disk."""
    def in_this(world: World) -> None:
        engine = SimulatedEngine(world)
        monkeypatch.setattr(
            ShardLogs, "find_shard_problem", lambda _, path: engine.find_shard_problem(path)
        )

    return in_this
