"""Faults put in on purpose are found; schedules that ever failed pass without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.faulty import FAULTS
from tests.simulation.scenario import Scenario, decode, draw
from tests.simulation.shrink import failure_of

SEEDS = Path(__file__).with_name("seeds")
"""Every schedule that ever failed, made small: by a fault put in on purpose, or by a real one."""

SEARCHED = 2_000
"""Seeds that are searched for a fault whose kept schedule does not show it any more."""


def kept(name: str) -> Scenario:
    return decode((SEEDS / f"{name}.json").read_bytes())


def schedules(name: str) -> Iterator[Scenario]:
    """The kept schedule, which is enough until drafts are drawn in another way; then seeds."""
    yield kept(name)
    yield from map(draw, range(SEARCHED))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_faulty_port_is_found(name: str) -> None:
    """Some schedule breaks an invariant, or fails, as soon as a port breaks a promise."""
    assert any(failure_of(scenario, FAULTS[name]) for scenario in schedules(name))


@pytest.mark.parametrize("name", sorted(file.stem for file in SEEDS.glob("*.json")))
def test_a_schedule_that_ever_failed_passes(name: str) -> None:
    """Kept schedules hold now, and for good."""
    assert failure_of(kept(name)) is None
