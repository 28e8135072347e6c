"""A catalog whose views an earlier version compiled, upgraded, changed and rolled back."""

from __future__ import annotations

import dataclasses
from itertools import count
from typing import Any

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.migrations.start import BootstrapReport
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import SimulatedClock, World
from tests.planner.test_hash_schemes import EARLIER, STARS, compiled


def release(name: str, text: str, sql: str | None = None) -> Release:
    """A release from its manifest; ``sql`` is what an earlier version wrote for the view s.v."""
    return dataclasses.replace(load_manifest(compiled(text, sql)), name=name)


class Installation:
    """Starts of one installation on a simulated engine."""

    def __init__(self) -> None:
        self.world, self.log, self.clock = World(), MemoryLog(), SimulatedClock(stretch=10.0)
        self.tokens = count()

    def start(self, *releases: Release, **said: Any) -> BootstrapReport:
        """A start on a release, or a rollback where there is none."""
        run: Any = migrate if releases else roll_back
        found: BootstrapReport = run(
            SimulatedEngine(self.world, persistent=True), self.log.attach(None), *releases,
            clock=self.clock, holder="p", timeout=600.0, token=lambda: f"{next(self.tokens):06d}",
            **said,
        )
        return found

    def text(self) -> str | None:
        """The text that the view s.v is registered with."""
        spec = self.world.names.relations["s", "v"]
        return getattr(spec, "sql", None)


def changes(report: BootstrapReport) -> dict[str, str]:
    """What the plan of a start changes."""
    assert report.plan is not None
    return {change.name: change.action for change in report.plan.changes}


def test_no_view_is_defined_anew_by_the_new_version() -> None:
    """The view stays as it was registered, through an upgrade, a restart, a rollback to what the
    earlier version compiled and the way there again; a change of its own replaces its text."""
    here = Installation()
    here.start(release("1", STARS, EARLIER), warehouse="/w")
    assert here.text() == EARLIER
    second = release("2", STARS + "CREATE TABLE s.n (i INT);")
    assert changes(here.start(second, warehouse="/w")) == {"s.n": "create"}
    again = here.start(second, warehouse="/w")
    assert (again.outcome, again.repaired) == ("unchanged", ())
    assert here.text() == EARLIER
    assert changes(here.start(to=1, approve={"s.n"})) == {"s.n": "drop"}
    assert here.text() == EARLIER
    after = release("2.1", STARS + "CREATE TABLE s.n (i INT);")
    assert changes(here.start(after, warehouse="/w")) == {"s.n": "create"}
    assert here.text() == EARLIER
    third = STARS.replace("(id INT, a STRING) AS", "(id INT, a STRING) COMMENT 'all' AS")
    changed = here.start(release("3", third), warehouse="/w", approve={"s.n"})
    assert changes(changed)["s.v"] == "update"
    assert here.text() == EARLIER
    fourth = release("4", third + "CREATE TABLE s.m (i INT);")
    assert changes(here.start(fourth, warehouse="/w")) == {"s.m": "create"}
    assert here.start(fourth, warehouse="/w").repaired == ()
    fifth = release("5", third.replace("'y'", "'z'") + "CREATE TABLE s.m (i INT);")
    assert changes(here.start(fifth, warehouse="/w"))["s.v"] == "redefine"
    assert "'z'" in str(here.text())
