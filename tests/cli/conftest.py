"""Verbs beside catalogs whose rows are simulated: they are looked for where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog_migrate.planner import missing_data
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World

LookIn = Callable[[World], None]


@pytest.fixture
def look_in(monkeypatch: pytest.MonkeyPatch) -> LookIn:
    """Has plans and status look for rows in a simulated world instead of on the disk."""
    look = missing_data.missing_data

    def in_this(world: World) -> None:
        monkeypatch.setattr(
            missing_data, "missing_data",
            lambda state, _: look(state, SimulatedEngine(world).why_no_shard),
        )

    return in_this
