"""Tests of the scheduler: one turn at a time, time that jumps, and ends."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial

import pytest

from tests.simulation.crashes import SimulatedCrash
from tests.simulation.scheduler import Endless, ProcessClock, Scheduler, Task


def test_a_sleeper_lets_others_go_on_and_time_jumps_to_the_first_that_wakes() -> None:
    """Two sleepers wake in the order of their times, without one second passing in between."""
    scheduler = Scheduler(tick=0.0)
    told: list[tuple[int, str | float]] = []
    tasks: list[Task] = []

    def sleeper(number: int, seconds: float) -> None:
        told.append((number, "sleeps"))
        scheduler.pause(tasks[number], seconds)
        told.append((number, scheduler.now))

    for number, seconds in enumerate((30.0, 10.0)):
        tasks.append(scheduler.add(f"t{number}", partial(sleeper, number, seconds)))
    scheduler.run()
    assert told == [(0, "sleeps"), (1, "sleeps"), (1, 10.0), (0, 30.0)]


def test_a_turn_goes_to_another_and_comes_back_at_its_end() -> None:
    """The one that gave the turn away goes on when the other has ended."""
    scheduler, told = Scheduler(), []


    def gives_way() -> None:
        told.append("a")
        scheduler.turn(first, 0)
        told.append("A")

    first = scheduler.add("a", gives_way)
    scheduler.add("b", lambda: told.append("b"))
    scheduler.run()
    assert told == ["a", "b", "A"]


def test_a_thread_is_used_again_by_the_next_run() -> None:
    """Runs one after another need no more threads than one has tasks under way at a time, and a
    run that failed leaves its threads free as well."""
    used: set[int] = set()

    def task(scheduler: Scheduler, *, fails: bool) -> None:
        used.add(threading.get_native_id())  # which is never given twice, as an ident is
        assert scheduler.current is not None
        scheduler.pause(scheduler.current, 1.0)
        if fails:
            scheduler.fail(ValueError("broken"))

    for number in range(30):
        scheduler = Scheduler()
        for _ in range(3):
            scheduler.add("t", partial(task, scheduler, fails=number % 3 == 0))
        with pytest.raises(ValueError, match="broken") if number % 3 == 0 else nullcontext():
            scheduler.run()
    assert len(used) <= 6


def test_a_failure_ends_every_task_and_is_raised() -> None:
    """Nobody goes on after the run has failed, and the failure reaches the caller."""
    scheduler, told = Scheduler(), []

    def other() -> None:
        try:
            scheduler.advance()
        except SimulatedCrash:
            told.append("dead")
            raise

    scheduler.add("fails", lambda: scheduler.fail(ValueError("broken")))
    scheduler.add("other", other)
    with pytest.raises(ValueError, match="broken"):
        scheduler.run()
    assert told == []


def test_a_run_that_does_not_end_is_ended() -> None:
    """A task that calls for ever is a failure of its own."""
    scheduler = Scheduler()

    def forever() -> None:
        while True:
            scheduler.advance()

    scheduler.add("forever", forever)
    with pytest.raises(Endless):
        scheduler.run()


def test_a_suspended_machine_does_not_see_time_pass() -> None:
    """Its monotonic clock stands still, its wall clock does not."""
    scheduler = Scheduler()
    clock = ProcessClock(scheduler, began=5.0, skew=60.0)
    clock.sleep(10.0)
    clock.lost += 4.0
    assert clock.monotonic() == 11.0
    assert clock.wall() == 1_700_000_070.0
