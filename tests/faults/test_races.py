"""Processes that start at one moment, of one release or of two, while a writer never pauses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WRITER = Path(__file__).with_name("writer.py")
pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("CRASH_FAULTS", "1"))


def race(site: Any, releases: list[str]) -> list[dict[str, Any]]:
    """Start a process of each release at once; what each said."""
    processes = [site.launch(name) for name in releases]
    return [site.end(process) for process in processes]


@pytest.mark.parametrize("many", [2, 4, 8] if ROUNDS > 1 else [4])
def test_of_one_release_one_migrates(site: Any, many: int) -> None:
    """Exactly one process migrates; the others follow, or find it done."""
    said = race(site, ["2"] * many)
    outcomes = sorted(one.get("outcome", str(one)) for one in said)
    assert outcomes.count("migrated") == 1, said
    assert set(outcomes) <= {"migrated", "followed", "unchanged"}, said
    assert sorted(one["rows"] for one in said) == [0] * (many - 1) + [100]
    site.verify("2")


@pytest.mark.parametrize("many", [2, 4, 8] if ROUNDS > 1 else [2])
def test_of_two_releases_the_later_ends_in_force(site: Any, many: int) -> None:
    """Whoever comes first, 3 is in force at the end, and no process of 2 undoes it."""
    said = race(site, ["2", "3"] * (many // 2))
    outcomes = [one.get("outcome", str(one)) for one in said]
    assert set(outcomes) <= {"migrated", "followed", "unchanged", "fenced_out", "resumed"}, said
    assert outcomes[1::2].count("migrated") == 1, said
    assert outcomes[0::2].count("migrated") <= 1, said
    site.verify("3")
    assert site.start("2")["outcome"] == "fenced_out"


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_writer_that_never_pauses_loses_no_row(site: Any, number: int) -> None:
    """Two writers append by path without a pause through an upgrade.

    Refused, they look where the table is now and go on. Every row that was acknowledged is there
    once, and each refusal was loud.
    """
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), str(site.catalog), str(writer)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for writer in (11, 12)
    ]  # fmt: skip
    site.processes.extend(writers)
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
    said = site.start("2")
    assert said["outcome"] == "migrated", said
    assert said["rows"] > 100
    refused = 0
    for number, writer in zip((11, 12), writers, strict=True):
        told = json.loads(writer.communicate("stop\n", timeout=240)[0])
        assert told["after"] > 0, "it did not come to write the new table"
        site.landed.update((number, n) for n in told["landed"])
        refused += len(told["refused"])
        assert all(message for message in told["refused"])
    assert refused >= 2
    site.verify("2")
