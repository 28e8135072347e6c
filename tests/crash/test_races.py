"""Processes with a Spark of their own that start at one moment, of one release or of two."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.skipif(
        not os.environ.get("CRASH_ALL"), reason="two JVMs more (make crash); tests/faults has many"
    ),
]


def test_two_of_one_release(upgrade: Any, record_property: Any) -> None:
    """One migrates, the other follows it; no row is copied twice."""
    said = upgrade.series.victims.race([upgrade.undisturbed, upgrade.undisturbed])
    outcomes = sorted(line.split()[0] for line in said)
    assert outcomes in (["followed", "migrated"], ["migrated", "unchanged"]), said
    assert sum(int(line.split()[1]) > 0 for line in said) == 1, said
    assert upgrade.bootstrap("16").outcome == "unchanged"
    upgrade.verify()
    record_property("rounds", 1)


def test_two_of_two_releases(upgrades: Any, record_property: Any) -> None:
    """Whoever comes first, the later is in force with every row, and the other fenced out."""
    later = upgrades("15", "18")
    stepwise = upgrades("16", "18")
    older = upgrades("15", "16")
    said = later.series.victims.race([older.undisturbed, later.undisturbed])
    outcomes = [line.split()[0] for line in said]
    assert outcomes[0] in {"migrated", "fenced_out", "followed", "unchanged"}, said
    assert outcomes[1] in {"migrated", "resumed"}, said
    assert later.bootstrap("18").outcome == "unchanged"
    (later if outcomes[0] == "fenced_out" else stepwise).verify()
    assert later.bootstrap("16").outcome == "fenced_out"
    record_property("rounds", 1)
