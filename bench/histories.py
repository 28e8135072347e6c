"""Reading and writing a catalog that has been committed to thousands of times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench import generated
from bench.measure import Cost, Measure
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.updates import Put
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate

COMMITS = int(os.environ.get("COMMITS", "10000"))
EARLY = 100
OBJECTS = 200
ROUNDS = 15


def measures(directory: Path) -> Iterator[Measure]:
    """Reading the state after ``COMMITS`` commits by that after 100, and one commit likewise."""
    log = open_log(str(directory / "history"))
    migrate(
        SimulatedEngine(persistent=True), log,
        generated.loaded("1.0", generated.objects(OBJECTS // 2, OBJECTS // 2)),
        warehouse=str(directory / "history-warehouse"), clock=SystemClock(), holder="bench",
    )
    _commits(log, EARLY)
    early_read, early_commit = _read(log.uri), _commit(log)
    _commits(log, COMMITS - EARLY)
    yield Measure(
        f"reading the state after {COMMITS:,} commits", late := _read(log.uri),
        f"after {EARLY}", early_read, "≤ 2× that after 100", late.cpu <= 2 * early_read.cpu,
        "in CPU time, a new process' first read each",
    )
    yield Measure(
        f"one commit after {COMMITS:,} others", _commit(log), f"after {EARLY}", early_commit,
        "none, for information", met=True,
    )


def _commits(log: CatalogLog, count: int) -> None:
    for number in range(count):
        record = OperationRecord("bench", "done", {"number": str(number)})
        commit(log, Commit("bench", (Put("operation", "bench", record),)))


def _read(uri: str) -> Cost:
    return _median(lambda: read_state(open_log(uri)))


def _commit(log: CatalogLog) -> Cost:
    return _median(lambda: _commits(log, 1))


def _median(act: Callable[[], object]) -> Cost:
    act()
    costs = []
    for _ in range(ROUNDS):
        before, began = os.times(), time.perf_counter()
        act()
        wall, after = time.perf_counter() - began, os.times()
        costs.append((wall, after.user + after.system - before.user - before.system))
    # counted in ticks of 10 ms: what is below one is nothing, not a rest of their subtraction
    return Cost(
        median(wall for wall, _ in costs), round(sum(cpu for _, cpu in costs) / ROUNDS, 6),
        best=min(wall for wall, _ in costs),
    )
