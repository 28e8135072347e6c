"""Processes of one release that start at once: one migrates, the others wait and follow."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import LeaseHeld
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import World

FIRST = """CREATE TABLE s.t (id BIGINT NOT NULL, qty INT);
CREATE VIEW s.v (id BIGINT) AS SELECT id FROM s.t;"""
SECOND = """CREATE TABLE s.t (id BIGINT NOT NULL, qty BIGINT);
CREATE VIEW s.v (id BIGINT) AS SELECT id FROM s.t;"""


def release(name: str, text: str) -> Release:
    """A release of one file."""
    return load_texts([("a.sql", text)], name=name)


class Fleet:
    """Processes over one world and one log; each has an engine and a session of its own."""

    def __init__(self, *, persistent: bool) -> None:
        self.world = World()
        self.log = MemoryLog("fleet")
        self.persistent = persistent
        self.engines: dict[str, SimulatedEngine] = {}

    def start(self, holder: str, which: Release, **options: Any) -> BootstrapReport:
        """One start of one process."""
        engine = self.engines.setdefault(
            holder, SimulatedEngine(self.world, persistent=self.persistent)
        )
        return migrate(
            engine,
            options.pop("log", self.log),
            which,
            warehouse="/warehouse",
            clock=SystemClock(),
            holder=holder,
            **{"timeout": 30.0, **options},
        )

    def hold_at(self, holder: str, call: str) -> tuple[threading.Event, threading.Event]:
        """Make a process pause at an engine call: (it has come there, let it go on)."""
        came, go_on = threading.Event(), threading.Event()

        def on_call(name: str) -> None:
            if name == call and not came.is_set():
                came.set()
                assert go_on.wait(30)

        self.engines[holder] = SimulatedEngine(
            self.world, persistent=self.persistent, on_call=on_call
        )
        return came, go_on


@pytest.fixture(params=[False, True], ids=["session", "metastore"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Three rows at release 1, in a catalog whose names are per session or shared."""
    fleet = Fleet(persistent=request.param)
    assert fleet.start("one", release("1", FIRST)).outcome == "initialized"
    state = read_state(fleet.log)
    (path,) = state.shards
    fleet.world.append(f"/warehouse/{path}", [{"id": n, "qty": n} for n in range(3)])
    return fleet


def test_one_migrates_and_the_others_follow(fleet: Fleet) -> None:
    """Who comes while rows are copied waits, then reports ``followed``; nothing is done twice."""
    came, go_on = fleet.hold_at("one", "copy_rows")
    reports: dict[str, BootstrapReport] = {}

    def run(holder: str) -> None:
        reports[holder] = fleet.start(holder, release("2", SECOND), on_progress=note(holder))

    waiting = {"two": threading.Event(), "three": threading.Event()}

    def note(holder: str) -> Any:
        def on_progress(progress: Any) -> None:
            if progress.phase == "wait for the lease" and holder in waiting:
                waiting[holder].set()

        return on_progress

    threads = [threading.Thread(target=run, args=("one",), daemon=True)]
    threads[0].start()
    assert came.wait(30)
    for holder in waiting:
        threads.append(threading.Thread(target=run, args=(holder,), daemon=True))
        threads[-1].start()
    assert all(event.wait(30) for event in waiting.values())
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert {holder: report.outcome for holder, report in reports.items()} == {
        "one": "migrated",
        "two": "followed",
        "three": "followed",
    }
    assert (reports["one"].rows_copied, reports["two"].rows_copied) == (3, 0)
    assert len({report.serial for report in reports.values()}) == 1
    state = read_state(fleet.log)
    assert sorted(record.state for record in state.shards.values()) == ["live", "retired"]
    assert fleet.start("four", release("2", SECOND)).outcome == "unchanged"


def test_a_process_that_may_not_wait_says_who_holds_the_lease(fleet: Fleet) -> None:
    """With no time to wait, LeaseHeld names the holder; the holder is not disturbed."""
    came, go_on = fleet.hold_at("one", "copy_rows")
    reports: list[BootstrapReport] = []
    thread = threading.Thread(
        target=lambda: reports.append(fleet.start("one", release("2", SECOND))), daemon=True
    )
    thread.start()
    assert came.wait(30)
    with pytest.raises(LeaseHeld) as caught:
        fleet.start("two", release("2", SECOND), timeout=0.0)
    assert "one" in str(caught.value)
    go_on.set()
    thread.join(60)
    assert [report.outcome for report in reports] == ["migrated"]


def test_an_older_process_waiting_meanwhile_is_fenced_out(fleet: Fleet) -> None:
    """A process of release 1 after the migration to 2 does nothing."""
    fleet.start("one", release("2", SECOND))
    report = fleet.start("two", release("1", FIRST))
    assert report.outcome == "fenced_out"
    assert read_state(fleet.log).release_in_force().name == "2"  # type: ignore[union-attr]


def test_a_start_is_begun_again_when_the_catalog_moves_under_it(fleet: Fleet) -> None:
    """A commit between its look and the word that it lives with these names: it looks again."""
    moved: list[BootstrapReport] = []

    def on_call(name: str) -> None:
        if name == "append" and not moved:
            moved.append(fleet.start("other", release("2", SECOND)))

    log = fleet.log.attach(on_call)
    report = fleet.start("late", release("1", FIRST), log=log, session=True)
    assert [each.outcome for each in moved] == ["migrated"]
    assert report.outcome == "fenced_out"
    assert dict(read_state(fleet.log).sessions) == {}
