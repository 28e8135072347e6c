"""Plans without Spark on durable catalogs of 1,000 and 10,000 generated objects."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.measure import Measure

REACHED = 445
"""Views that depend on the root, so that 446 objects migrate when it changes."""


def measures(directory: Path) -> Iterator[Measure]:
    """All of them; ``directory`` takes the catalogs."""
    small = catalog(directory, 1_000)
    yield processes.plan(
        "no-change `plan`, whole process, 1,000 objects", small, "same.json", seconds=0.10
    )
    yield processes.plan(
        "`plan` with one root changed, 446 of 1,000 migrated", small, "changed.json", seconds=0.5
    )
    large = catalog(directory, 10_000)
    yield processes.plan(
        "no-change `plan`, whole process, 10,000 objects", large, "same.json", seconds=0.12,
        mebibytes=64,
    )


def catalog(directory: Path, size: int) -> Path:
    """A catalog of so many generated objects with its two manifests, below ``directory``."""
    place = directory / f"objects{size}"
    subprocess.run(
        [sys.executable, "-m", "bench.corpus", str(place), str(size), str(REACHED)], check=True
    )
    return place
