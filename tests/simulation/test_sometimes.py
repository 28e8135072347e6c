"""Tests of what schedules must reach, and of the tables that show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog_migrate.operations.kinds import MIGRATE
from tests.simulation import simulate as simulate_module
from tests.simulation.scenario import Fault, Scenario, Start
from tests.simulation.scenario_run import ScenarioRun
from tests.simulation.simulate import Counts, main
from tests.simulation.sometimes import (
    BEGIN,
    END,
    NEEDED,
    NEXT,
    POINTS,
    SAME,
    SCHEDULES,
    UNREACHED,
    Reached,
    event,
    follows,
    found,
    killed_at,
    merge,
    missed,
    page,
    stream_call,
    with_page,
)
from tests.simulation.stream_run import StreamRun
from tests.simulation.stream_scenario import Client, StreamScenario

DOCS = Path(__file__).parents[2] / "docs" / "simulation.md"
ENOUGH = {point: Reached(NEEDED, 3) for point in POINTS}


def test_a_fault_waits_for_a_state() -> None:
    """A process that is killed while its tables are sealed behind its commit: that, and the start
    that takes the seals off, are reached; nothing of states that it never was in."""
    state = "committed, sealed"
    play = ScenarioRun(Scenario(
        chain=5, groups=(("add filled table",),), starts=(Start(1), Start(1, 60.0)),
        faults=(Fault(0, 1, "crash", during=state),), persistent=True,
    ))
    play.run_to_end()
    assert play.sometimes.points >= {
        event("killed", MIGRATE, state), found(MIGRATE, state, SAME),
        follows(MIGRATE, state, "done"), "ends resumed",
    }
    assert event("killed", MIGRATE, "sealing") not in play.sometimes.points


def test_a_runtime_is_overtaken_in_a_state() -> None:
    """One that sleeps for longer than its lease lasts, in the middle of a trial, is overtaken; the
    next one ends that trial."""
    play = StreamRun(StreamScenario(
        seed=1, runtimes=(0.0, 20.0), clients=(Client(0, 10.0),),
        faults=(Fault(0, 1, "suspend", 200.0, during="trial"),),
    ))
    play.run_to_end()
    assert play.sometimes.points >= {
        event("overtaken", "alter", "trial"), found("alter", "trial", NEXT),
        follows("alter", "trial", "trial, started"),
    }


@pytest.mark.parametrize(("call", "what"), [
    ("offsets 12", "stream offsets"), ("chunk 0.done", "stream chunk.done"),
    ("file: rename 3.tar", "stream file: rename"),
    ("store: put.done metadata", "stream store: put.done"), ("append.done", "stream append.done"),
])
def test_calls_of_runtimes_are_told_apart_by_what_they_do(call: str, what: str) -> None:
    """Not by what they do it to."""
    assert stream_call(call) == what
    assert killed_at(what) in POINTS


def test_what_too_few_schedules_reach_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with the one command that runs the same schedules again; exit code 1."""
    short = {**ENOUGH, "ends migrated": Reached(NEEDED - 1, 3)}
    del short["ends resumed"]
    monkeypatch.setattr(simulate_module, "spread", lambda *_, **__: Counts(1, 1, 1, short))
    assert main([str(SCHEDULES)]) == 1
    assert capsys.readouterr().err == (
        "not reached: ends migrated: in 1 of 2 schedules\n"
        "not reached: ends resumed: in 0 of 2 schedules\n"
        "replay: python -m tests.simulation.simulate 20000\n"
    )
    assert main([str(SCHEDULES - 1)]) == 0  # too few schedules to say


def test_what_several_processes_reached_is_added() -> None:
    """The number of schedules, and the lowest seed."""
    runs = {"a": Reached(2, 7)}, {"a": Reached(1, 4), "b": Reached(1, 9)}
    assert merge(*runs) == {"a": Reached(3, 4), "b": Reached(1, 9)}


def test_what_cannot_be_reached_is_a_point_with_a_reason() -> None:
    """And nothing that is reached is on that list, by the tables in the docs."""
    assert set(UNREACHED) <= set(POINTS)
    assert all(reason.endswith(".") for reason in UNREACHED.values())
    assert missed(ENOUGH) == []


def test_the_tables_have_every_point_often_enough() -> None:
    """docs/simulation.md is what the command writes, for the points that there are now."""
    written = DOCS.read_text(encoding="utf-8")
    tables = written.split(BEGIN)[1].split(END)[0]

    def without_counts(text: str) -> str:
        return re.sub(r"(?<=[ |])\d[\d,]*(?=[ ,|\n])", "n", text)

    assert without_counts(tables).strip() == without_counts(page(ENOUGH)).strip()
    counts = re.findall(r"(?<=[ ])\d[\d,]*(?= \||, )", tables)
    assert min(int(each.replace(",", "")) for each in counts) >= NEEDED
    assert with_page(written, ENOUGH).count("\n") == written.count("\n")
