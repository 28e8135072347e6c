"""Tests of scenarios: several processes that take turns, with everything that befalls them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.errors import CatalogMigrateError
from tests.simulation.faulty import ForgetsToDrop
from tests.simulation.installation import PortFault
from tests.simulation.invariants import InvariantBroken
from tests.simulation.scenario import Fault, Scenario, Start, decode, draw, encode
from tests.simulation.scenario_run import ScenarioRun, run_scenario
from tests.simulation.shrink import explain, shrink

COPIED = (("add NOT NULL column", "partition"),)
"""Mutations whose migration copies tables, so that it seals the old ones."""


def test_a_scenario_survives_being_kept() -> None:
    """JSON and back is the same scenario."""
    for seed in range(50):
        assert decode(encode(draw(seed))) == draw(seed)


def test_a_scenario_is_told_alike_in_every_process() -> None:
    """Neither threads nor the order of sets decide anything: the story is the same."""
    script = (
        "from tests.simulation.scenario import draw;"
        "from tests.simulation.shrink import explain;"
        "print(*(explain(draw(seed)) for seed in range(40, 70)))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1
    assert "ends: migrated" in told.pop()


@pytest.mark.parametrize("kind", ["pause", "suspend"])
def test_a_holder_stopped_while_it_takes_a_seal_off_spares_its_successors(kind: str) -> None:
    """Killed after a seal; the next one stops before it takes that off; the third migrates. The
    second, awake again, leaves the seals of the third alone."""
    for chain in range(12):
        for aim in ("fence", "fence.done", "unseal"):
            run_scenario(
                Scenario(
                    chain=chain, groups=COPIED, starts=(Start(1), Start(1, 50.0), Start(1, 60.0)),
                    faults=(
                        Fault(0, 1, "crash", of="seal.done"),
                        Fault(1, 1, kind, 300.0, aim),  # type: ignore[arg-type]
                    ),
                )
            )


def test_a_commit_that_lands_after_it_was_given_up_harms_nobody() -> None:
    """Its holder undoes the attempt only once the commit can no longer land, or has landed."""
    for chain in range(12):
        for steps in (1.0, 3.0, 5.0, 8.0, 12.0):
            run_scenario(
                Scenario(
                    chain=chain, groups=COPIED, starts=(Start(1),),
                    faults=(Fault(0, 30, "in flight", steps, "append"),),
                )
            )


def test_a_look_from_before_a_suspension_drops_nothing() -> None:
    """A holder that is suspended between its look and its drops finds its lease gone, though its
    own clock stood still: names that are a user's by now are left alone."""
    file = Path(__file__).with_name("seeds") / "a_look_from_before_a_suspension.json"
    story = explain(decode(file.read_bytes()))
    _, awake = story.split("p3 wakes")
    assert "p3 ends: LeaseLost" in awake
    assert "p3: after drop" not in awake


def test_a_fault_is_made_small_and_told() -> None:
    """An engine that forgets to drop shrinks to one process, no fault and few objects."""
    fault = PortFault(ForgetsToDrop)
    failing = next(scenario for scenario in map(draw, range(8, 208, 5)) if _breaks(scenario))
    small = shrink(failing, fault)
    assert _breaks(small)
    assert len(small.starts) <= 1
    assert (small.faults, small.turns) == ((), ())
    assert "==> " in explain(small, fault)
    assert "release 2: " in explain(small, fault)


def _breaks(scenario: Scenario) -> bool:
    try:
        ScenarioRun(scenario, fault=PortFault(ForgetsToDrop)).run_to_end()
    except (InvariantBroken, CatalogMigrateError) as error:
        return isinstance(error, InvariantBroken)
    return False
