"""Tests of whole schedules: the invariants under crashes, restarts and foreign writers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import Version
from tests.simulation import invariants, sometimes
from tests.simulation import simulate as simulate_module
from tests.simulation.schedule import ScheduleFailed, compare_paths, run_schedule
from tests.simulation.simulate import main, simulate, spread
from tests.simulation.sometimes import missed

SCHEDULES = int(os.environ.get("SOAK_SCHEDULES", "100000"))


def test_invariants_hold_in_100_schedules() -> None:
    """No crash, pause or lost reply at any call, no process of any release, no rollback, no writer
    and no user breaks an invariant."""
    starts, crashes, rows, _ = simulate(100)
    assert starts > 175
    assert crashes > 10
    assert rows > 250


def test_invariants_hold_where_users_have_views_and_functions() -> None:
    """Made, altered, dropped and made again at any call of any process, and touched by none."""
    starts, crashes, *_ = simulate(60, users=True)
    assert starts > 150
    assert crashes > 10


@pytest.mark.soak
def test_invariants_hold_in_20000_schedules_with_users_objects(record_property: Any) -> None:
    """The same for a fifth of ``SOAK_SCHEDULES``."""
    jobs = len(os.sched_getaffinity(0))
    starts, crashes, rows, _ = spread(SCHEDULES // 5, jobs=jobs, users=True)
    record_property("rounds", starts)
    record_property("kills", crashes)
    record_property("rows", rows)


@pytest.mark.soak
def test_invariants_hold_in_100000_schedules(record_property: Any) -> None:
    """The same for as many as ``SOAK_SCHEDULES`` says, which come to each state, crash, race and
    way out that docs/states.md lists."""
    starts, crashes, rows, reached = spread(SCHEDULES, jobs=len(os.sched_getaffinity(0)))
    assert missed(reached) == [] or sometimes.SCHEDULES > SCHEDULES
    record_property("rounds", starts)
    record_property("kills", crashes)
    record_property("rows", rows)


def test_invariants_hold_with_one_process_at_a_time() -> None:
    """After every single start the world is checked whole, row by row."""
    reports = [run_schedule(seed) for seed in range(50)]
    assert sum(report.crashes for report in reports) > 40


def test_a_schedule_is_a_function_of_its_seed() -> None:
    """The same seed runs the same starts, crashes and rows, so that a failure can be replayed."""
    assert run_schedule(42) == run_schedule(42)


def test_each_way_through_a_chain_ends_alike() -> None:
    """I4: through all releases and straight to the last, definitions and rows are equal."""
    for seed in range(40):
        compare_paths(seed)


def test_a_seal_that_holds_nobody_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If appends went on in a sealed shard, the schedules would find the lost rows."""
    monkeypatch.setattr(Version, "is_sealed", property(lambda _: False))
    monkeypatch.setattr(SimulatedEngine, "is_sealed", lambda *_: True)  # else the upgrade notices
    monkeypatch.setattr(invariants, "_check_shards", lambda *_, **__: None)
    with pytest.raises(ScheduleFailed, match=r"I6|I7"):
        simulate(100)


def test_a_failure_prints_its_seed_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seed that replays a violation is printed, with what each start did."""
    monkeypatch.setattr(invariants, "_check_shards", _always_broken)
    assert main(["3", "--seed", "16", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "seed 16: I6: broken on purpose\n  release 1: " in captured.err
    assert "simulate 1 --seed 16" in captured.err


def test_parts_that_failed_too_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lowest seed is told, and a line says what each other part found."""
    failure = ScheduleFailed(16, [], "I6: first")
    failure.others = ("seed 48: I6: another",)

    def found(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(simulate_module, "spread", found)
    assert main(["64"]) == 1
    assert "seed 16: I6: first\nalso seed 48: I6: another\n" in capsys.readouterr().err


def test_a_success_prints_the_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and schedules per second."""
    assert main(["2"]) == 0
    assert capsys.readouterr().out.startswith("2 schedules, ")


def test_processes_share_the_same_schedules() -> None:
    """However many processes run them, the schedules are the same; failures travel whole."""
    assert spread(6, seed=3, jobs=2) == simulate(6, seed=3)
    failure = ScheduleFailed(7, ["release 1: initialized"], "I6: x")
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)


def test_workers_end_with_the_process_that_they_work_for() -> None:
    """Also when that is killed: the pipe that they share with it is closed by all."""
    whole = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.simulate", "2000", "--jobs", "2"],
        stderr=subprocess.PIPE, text=True,
    )
    assert whole.stderr is not None
    try:
        assert "of 2000 schedules" in whole.stderr.readline()  # a worker has ended its first part
    finally:
        whole.kill()
    whole.communicate(timeout=120)


def _always_broken(*_: object, **__: object) -> None:
    raise invariants.InvariantBroken("I6", "broken on purpose")
