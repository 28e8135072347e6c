"""An upgrade of real tables is killed with SIGKILL, and the next start makes it whole.

A seeded sample by default; with ``CRASH_ALL=1`` (``make crash``) every call that changes something,
before and after its effect, and the long ones also in the middle.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.crash]

SEED = 16
SAMPLE = (
    "append intent",
    "create_shard",
    "copy_rows",
    "seal",
    "append migrate",
    "create_view",
)
"""The calls of which the sample takes one each."""

CHANGING = (
    "append",
    "compact",
    "renew",
    "ensure_schema",
    "drop_schema_if_empty",
    "register_table",
    "create_view",
    "create_function",
    "drop",
    "create_shard",
    "copy_rows",
    "copy_tail",
    "truncate_shard",
    "seal",
    "unseal",
    "fence",
    "evolve",
    "delete_shard",
    "delete_shard_data",
)
"""Calls with an effect; a kill between two of them is the same whatever was read in between."""

LONG = ("append", "create_shard", "copy_rows", "seal")
"""Calls that write several files: they are killed in the middle too."""

Point = tuple[str, int, str]


def points(calls: list[tuple[str, int]]) -> list[Point]:
    """Every place where a kill makes a difference, in the order of the calls.

    Of the renewals only the first: how many there are depends on the time that all takes.
    """
    found: list[Point] = []
    for label, number in calls:
        name = label.split(" ")[0]
        if name not in CHANGING or (name == "renew" and number > 1):
            continue
        moments = ("before", "during", "after") if name in LONG else ("before", "after")
        found.extend((label, number, moment) for moment in moments)
    return found


@pytest.mark.parametrize("label", SAMPLE)
def test_the_next_start_finishes_a_killed_upgrade(upgrade: Any, label: str) -> None:
    """Killed at a sampled call: same rows, same ids, same state, and only known shards on disk."""
    chosen = random.Random(f"{SEED} {label}").choice(
        [point for point in points(upgrade.calls) if point[0] == label]
    )
    upgrade.kill_child_at(*chosen)
    upgrade.finish_and_verify()


def test_an_upgrade_shows_release_15s_rows_exactly(upgrade: Any) -> None:
    """What the rounds are compared with is itself right: release 15's rows through each USING."""
    from collections import Counter

    upgrade.bootstrap("16")
    for name, wanted in upgrade.expected_rows().items():
        shown = upgrade.spark.table(name)
        assert shown.columns == wanted.columns, name
        assert Counter(map(str, shown.collect())) == Counter(map(str, wanted.collect())), name


def test_a_new_attempt_that_is_killed_too_does_no_harm(upgrade: Any) -> None:
    """Killed after a seal, and again while the next start takes that seal off."""
    upgrade.kill_child_at("seal", 2, "after")
    upgrade.kill_child_at("unseal", 1, "after")
    assert upgrade.finish_and_verify().outcome == "migrated"


@pytest.mark.skipif(not os.environ.get("CRASH_ALL"), reason="half an hour: make crash")
def test_every_call_of_an_upgrade_may_be_its_last(upgrade: Any) -> None:
    """Killed at every call that changes something: each time the next start ends the same."""
    from pyspark.errors import PySparkException

    from catalog_migrate.errors import CatalogMigrateError

    failed: dict[Point, str] = {}
    chosen = points(upgrade.calls)
    for number, point in enumerate(chosen, start=1):
        upgrade.restore()
        try:
            upgrade.kill_child_at(*point)
            outcome = upgrade.finish_and_verify().outcome
        except (AssertionError, CatalogMigrateError, PySparkException) as error:
            failed[point] = f"{type(error).__name__}: {error}"
            outcome = "FAILED"
        print(f"{number}/{len(chosen)} {' '.join(map(str, point))}: {outcome}", flush=True)
    assert not failed
