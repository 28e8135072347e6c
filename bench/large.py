"""Catalogs of 10,000 and 100,000 objects, and how each part of a start grows between them.

Every size runs in a process of its own (``python -m bench.large SIZE``), on the simulated engine
and a real Delta log: what is measured is ours, not Spark's. The growth exponent is that of
``cost ~ size ** exponent`` in CPU time; n·log n has 1.10 between these two sizes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import generated, processes
from bench.measure import Cost, Measure
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import World

SIZES = (10_000, 100_000)
GROWTH = 1.25
"""What an exponent may be: n·log n (1.10), and what two single runs may differ by."""


def measures(directory: Path) -> Iterator[Measure]:
    """The no-change plan of 100,000 objects, then the growth of each phase."""
    from bench.planning import catalog

    yield processes.plan(
        "no-change `plan`, whole process, 100,000 objects", catalog(directory, SIZES[-1]),
        "same.json", seconds=0.3, mebibytes=128,
    )
    small, large = (_phases(size) for size in SIZES)
    for phase, cost in large.items():
        base = small[phase]
        exponent = math.log(cost.cpu / base.cpu, SIZES[1] / SIZES[0])
        yield Measure(
            f"{phase}, {SIZES[1]:,} objects", cost, f"{SIZES[0]:,} objects", base,
            "grows no faster than n·log n", exponent <= GROWTH,
            f"growth exponent {exponent:.2f} in CPU time",
        )


def _phases(size: int) -> dict[str, Cost]:
    found = subprocess.run(
        [sys.executable, "-m", "bench.large", str(size)], check=True, stdout=subprocess.PIPE
    )
    return {phase: Cost(*figures) for phase, figures in json.loads(found.stdout).items()}


def _run(size: int, directory: Path) -> dict[str, tuple[float, float, int]]:
    """Each phase once: plan everything, commit it, start unchanged, give all names again."""
    tables = size // 2
    data = generated.manifest("1.0", generated.objects(tables, size - tables, reached=445))
    log = open_log(str(directory / "catalog"))
    world = World()
    costs: dict[str, tuple[float, float, int]] = {}
    release: list[Release] = []

    def start(persistent: bool) -> BootstrapReport:
        return _start(SimulatedEngine(world, persistent=persistent), log, release[0], directory)

    _timed(
        costs, "read a manifest with hashes", lambda: release.append(load_manifest(data)), times=3
    )
    _timed(
        costs, "plan a first release", lambda: plan_migration(Baseline.empty(), load_manifest(data))
    )
    _timed(costs, "first start: plan, shards, one commit, all names", lambda: start(True))
    _timed(costs, "start with nothing changed, names kept", lambda: start(True), times=3)
    _timed(
        costs, "start with nothing changed, all names to be made", lambda: start(False), times=3
    )
    return costs


def _start(
    engine: SimulatedEngine, log: CatalogLog, release: Release, directory: Path
) -> BootstrapReport:
    return migrate(
        engine, log, release, warehouse=str(directory / "warehouse"), clock=SystemClock(),
        holder="bench",
    )


def _timed(
    costs: dict[str, tuple[float, float, int]], phase: str, act: Callable[[], object], *,
    times: int = 1,
) -> None:
    """Note a phase's cost: that of the quickest of ``times`` runs, where one is short."""
    import resource

    runs: list[tuple[float, float]] = []
    for _ in range(times):
        before, began = time.process_time(), time.perf_counter()
        act()
        runs.append((time.process_time() - before, time.perf_counter() - began))
    cpu, wall = min(runs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    costs[phase] = (wall, cpu, peak)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="catalog-migrate-large-") as place:
        print(json.dumps(_run(int(sys.argv[1]), Path(place))))
