"""Schedules of failures on the simulated engine: how many a second, on every core."""

from __future__ import annotations

import os
import time

from bench.measure import Cost, Measure
from tests.simulation.simulate import spread

SCHEDULES = 4_000


def measures() -> list[Measure]:
    """What a schedule costs on all cores, and on one."""
    jobs = os.cpu_count() or 1
    cores = _timed(SCHEDULES, jobs)
    one = _timed(SCHEDULES // 2, 1)
    rate = 1 / cores.wall
    return [
        Measure(
            f"one simulated schedule of {SCHEDULES:,} on {jobs} processes", cores,
            f"of {SCHEDULES // 2:,} on 1 process", one, "≥ 200 a second", rate >= 200,
            f"{rate:.0f} a second on {jobs} processes, {1 / one.wall:.0f} on one",
        )
    ]


def _timed(schedules: int, jobs: int) -> Cost:
    began, cpu = time.perf_counter(), os.times()
    spread(schedules, jobs=jobs)
    wall, ended = time.perf_counter() - began, os.times()
    return Cost(wall / schedules, (sum(ended[:4]) - sum(cpu[:4])) / schedules)
