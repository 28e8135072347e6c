"""``python -m catalog_migrate.testing.simulate N [--seed S] [--jobs J]``: N schedules of failures.

Prints schedules per second; on a violation the seed that replays it, and exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from catalog_migrate.testing.schedule import ScheduleFailed, compare_paths, run_schedule

EVERY = 16
"""Every so many schedules the paths through a chain are compared as well (I4)."""

PARTS = 8
"""Into how many parts the work of each process is cut."""


def simulate(schedules: int, *, seed: int = 0) -> tuple[int, int, int]:
    """Run schedules ``seed`` … ``seed + schedules - 1``; (starts, crashes, rows written).

    Raises ScheduleFailed at the first violation.
    """
    starts = crashes = rows = 0
    for number in range(seed, seed + schedules):
        report = run_schedule(number)
        starts += report.starts
        crashes += report.crashes
        rows += report.rows
        if number % EVERY == 0:
            compare_paths(number)
    return starts, crashes, rows


def spread(schedules: int, *, seed: int = 0, jobs: int = 1) -> tuple[int, int, int]:
    """:func:`simulate` on ``jobs`` processes; the same schedules however many there are."""
    if jobs <= 1:
        return simulate(schedules, seed=seed)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # several parts a process, so that none waits for one whose core is busy with something else
    count = min(schedules, jobs * PARTS)
    parts = [schedules * part // count for part in range(count + 1)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(simulate, parts[part + 1] - parts[part], seed=seed + parts[part])
            for part in range(count)
        ]
        counts = [future.result() for future in running]
    starts, crashes, rows = (sum(column) for column in zip(*counts, strict=True))
    return starts, crashes, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m catalog_migrate.testing.simulate",
        description="Run random schedules of releases, writers, crashes and restarts.",
    )
    parser.add_argument("schedules", type=int, help="how many schedules to run")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's seed (0)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes to spread them on (one a core)",
    )
    options = parser.parse_args(arguments)
    began, before = time.perf_counter(), sum(os.times()[:4])
    try:
        starts, crashes, rows = spread(options.schedules, seed=options.seed, jobs=options.jobs)
    except ScheduleFailed as failure:
        print(failure, file=sys.stderr)
        print(
            f"replay: python -m catalog_migrate.testing.simulate 1 --seed {failure.seed}",
            file=sys.stderr,
        )
        return 1
    seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - before
    print(
        f"{options.schedules} schedules, {starts} starts, {crashes} crashes, {rows} rows"
        f" in {seconds:.1f} s: {options.schedules / max(seconds, 1e-9):.0f} schedules/s,"
        f" {1000 * cpu / max(options.schedules, 1):.1f} ms of processor time each"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
