"""An upgrade of real tables is killed with SIGKILL, and the next start makes it whole.

Four kills by default. With ``CRASH_ALL=1`` (``make crash``) before every call that changes
something, in the middle of the long ones, and after the last; ``make soak`` takes as many of them,
spread over the upgrade, as its minutes are enough for. A process that is killed in the
middle of a call takes its JVM along; between two calls its JVM does nothing for it, so there it
works in the JVM of the checks: a start of Spark is most of what a round takes.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import Any

import pytest

from catalog_migrate.errors import CatalogMigrateError
from tests.series import spread, within_minutes

pytestmark = [pytest.mark.spark, pytest.mark.crash]

UPGRADES = (("15", "16", 1), ("16", "18", 1), ("15", "18", 3))
"""Old release, new one, and how many points a series goes on: what 15 to 18 does in one go is what
the others do in two, so every third is enough."""

FIRST = int(os.environ.get("CRASH_FIRST", "1"))
"""The point that each whole series begins with: later than 1 to go on with one broken off."""

LAST = int(os.environ.get("CRASH_LAST", str(sys.maxsize)))
"""The point that each whole series ends with."""

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
    "replace_text",
)
"""Calls with an effect; a kill between two of them is the same whatever was read in between."""

LONG = ("append", "create_shard", "copy_rows", "seal")
"""Calls that write several files: they are killed in the middle too."""

Point = tuple[str, int, str]


def points(calls: list[tuple[str, int]]) -> list[Point]:
    """Every place where a kill makes a difference, in the order of the calls.

    After a call is before the next one. Of the renewals only the first: how many there are depends
    on the time that all takes.
    """
    changing = [
        (label, number, label.split(" ")[0]) for label, number in calls
        if label.split(" ")[0] in CHANGING and (label.split(" ")[0] != "renew" or number == 1)
    ]
    found: list[Point] = []
    for label, number, name in changing:
        found.append((label, number, "before"))
        if name in LONG:
            found.append((label, number, "during"))
    return [*found, (*changing[-1][:2], "after")]


def test_killed_four_times_in_a_row(upgrade: Any, record_property: Any) -> None:
    """Rows and log on a disk."""
    killed_four_times(upgrade, record_property)


@pytest.mark.soak
@pytest.mark.services
def test_killed_four_times_in_a_row_on_s3(upgrades_on_s3: Any, record_property: Any) -> None:
    """Rows and log in a bucket."""
    killed_four_times(upgrades_on_s3("15", "16"), record_property)


def killed_four_times(upgrade: Any, record_property: Any) -> None:
    """While rows are copied, with its JVM; after a seal; while the next start takes that seal off;
    and after the commit, which the last start carries out. Same rows, same ids, same state, and
    only known shards on disk.

    What that is compared with is itself right: release 15's rows, each as decided.
    """
    upgrade.kill_at("copy_rows", 1, "during", whole=True)
    upgrade.kill_at("seal", 2, "after")
    upgrade.kill_at("unseal", 1, "after")
    upgrade.kill_at("append migrate", 1, "after")
    assert upgrade.finish_and_verify().outcome == "resumed"
    shows_the_rows_of_release_15(upgrade)
    record_property("rounds", 1)
    record_property("kills", 4)


@pytest.mark.soak
def test_an_upgrade_to_18_shows_release_15s_rows_exactly(upgrades: Any) -> None:
    """As that to 16 does."""
    upgrade = upgrades("15", "18")
    upgrade.bootstrap("18")
    shows_the_rows_of_release_15(upgrade)


def shows_the_rows_of_release_15(upgrade: Any) -> None:
    """Each table has release 15's rows, as the decisions say."""
    for name, wanted in upgrade.expected_rows().items():
        shown = upgrade.series.spark.table(name)
        assert shown.columns == wanted.columns, name
        assert Counter(map(str, shown.collect())) == Counter(map(str, wanted.collect())), name


@pytest.mark.skipif(not os.environ.get("CRASH_ALL"), reason="more than an hour: make crash")
@pytest.mark.parametrize(("old", "new", "every"), UPGRADES)
def test_every_call_of_an_upgrade_may_be_its_last(
    upgrades: Any, old: str, new: str, every: int, record_property: Any
) -> None:
    """Killed at every call that changes something: each time the next start ends the same."""
    killed_at_every_call(upgrades(old, new), record_property, every)


@pytest.mark.skipif(not os.environ.get("CRASH_ALL"), reason="more than an hour: make crash")
@pytest.mark.services
def test_every_call_of_an_upgrade_on_s3_may_be_its_last(
    upgrades_on_s3: Any, record_property: Any
) -> None:
    """The same in a bucket."""
    killed_at_every_call(upgrades_on_s3("15", "16"), record_property)


def killed_at_every_call(upgrade: Any, record_property: Any, every: int = 1) -> None:
    """Each time the next start ends the same."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException


    failed: dict[Point, str] = {}
    kills = 0
    old, new = upgrade.old, upgrade.new
    chosen = points(upgrade.calls)[::every]
    numbered = list(enumerate(chosen, start=1))[FIRST - 1 : LAST]
    rounds = 0
    for number, point in within_minutes(spread(numbered)):
        rounds += 1
        began, killed = time.monotonic(), 0.0
        try:
            upgrade.restore()
            upgrade.kill_at(*point, whole=point[2] == "during")
            kills += 1
            killed = time.monotonic() - began
            outcome = upgrade.finish_and_verify().outcome
        except (AssertionError, CatalogMigrateError, PySparkException, Py4JError) as error:
            upgrade.series.jvm.require()
            failed[point] = f"{type(error).__name__}: {error}"
            outcome = f"FAILED {failed[point]}"
        print(
            f"{old} to {new} {number}/{len(chosen)} {' '.join(map(str, point))}: {outcome}; "
            f"{killed:.0f} s and {time.monotonic() - began - killed:.0f} s, "
            f"{upgrade.series.jvm.heap} MiB", flush=True,
        )
    where = ", on S3" if upgrade.series.name == "s3" else ""
    record_property("series", f"killed at every call, {old} to {new}{where}")
    record_property("rounds", rounds)
    record_property("kills", kills)
    record_property("failures", len(failed))
    assert not failed
