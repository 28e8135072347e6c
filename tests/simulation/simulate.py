"""``python -m tests.simulation.simulate N [--seed S] [--jobs J]``: N schedules of failures.

With ``--users`` users have views and functions of their own in each of them. Prints schedules per
second. A violation is made small, told as a story and kept in a file; the exit code is then 1.
``--replay FILE`` plays a kept schedule again.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.model.collector import collector_paused
from catalog_migrate.model.wording import counted
from tests.simulation.scenario import Scenario, decode, draw, draw_users
from tests.simulation.schedule import ScheduleFailed, compare_paths, run_schedule
from tests.simulation.shrink import explain, failure_of, keep, shrink
from tests.simulation.sometimes import (
    POINTS,
    SCHEDULES,
    Points,
    Reached,
    killed_at,
    merge,
    missed,
    page,
    with_page,
)

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

    from tests.simulation.scenario_run import Firsts
    from tests.simulation.stream_scenario import StreamScenario

ALONE = 8
"""Every so many schedules are of one process at a time, checked after each."""

STREAMS, STREAMS_AT = 25, (5, 18, 24)
"""Of so many schedules these are of runtimes, clients and producers."""

MOVES = (3, 5)
"""Which of eight schedules of streams move sources from topic to topic."""

DATABASES = (1,)
"""Which of them have a source on PostgreSQL."""

AIMED = (0, 2, 4, 6)
"""Which of them have runtimes that are struck in states that are seldom come to."""

CATALOGS = (7,)
"""Which of them have a mirror of tables that are altered upstream."""

STORES = 3
"""Every so many schedules of streams have their checkpoints on an object store."""

EVERY = 32
"""Every so many schedules the paths through a chain are compared as well (I4)."""

COLLECTED = 200
"""After so many schedules the circles that they leave behind (some 20 MiB) are collected. While one
runs there is nothing to find, and looking took a tenth of its time."""

LONG = 2_000
"""From so many schedules on a run says how far it is."""

PARTS = 8
"""Into how many parts the work of each process is cut."""


class Counts(NamedTuple):
    """What schedules had: starts, crashes, rows written, and the points that they reached."""

    starts: int
    crashes: int
    rows: int
    reached: Points


def simulate(schedules: int, *, seed: int = 0, users: bool = False) -> Counts:
    """Run schedules ``seed`` … ``seed + schedules - 1``.

    ``users``: all of them with users' objects (:func:`~tests.simulation.scenario.draw_users`).
    Raises ScheduleFailed at the first violation.
    """
    from tests.simulation.scenario_run import Firsts

    starts = crashes = rows = 0
    reached: dict[str, Reached] = {}
    firsts = Firsts()
    with collector_paused():
        for number in range(seed, seed + schedules):
            counts = _played(number, draw_users(number), firsts) if users else _one(number, firsts)
            starts += counts.starts
            crashes += counts.crashes
            rows += counts.rows
            for point in counts.reached:
                held = reached.get(point)
                reached[point] = (
                    Reached(1, number) if held is None else Reached(held.times + 1, held.seed)
                )
            if number % EVERY == 0 and not users:
                compare_paths(number)
            if number % COLLECTED == COLLECTED - 1:
                gc.collect()
    return Counts(starts, crashes, rows, reached)


class _Played(NamedTuple):
    starts: int
    crashes: int
    rows: int
    reached: Collection[str] = ()


def _one(number: int, firsts: Firsts | None = None) -> _Played:
    if number % ALONE == 0:
        report = run_schedule(number)
        reached = POINTS & set(map(killed_at, report.killed_at))
        return _Played(report.starts, report.crashes, report.rows, reached)
    if number % STREAMS in STREAMS_AT:
        return _streams(number)
    return _played(number, draw(number), firsts)


def _played(number: int, scenario: Scenario, firsts: Firsts | None) -> _Played:
    from tests.simulation.scenario_run import ScenarioRun

    play = ScenarioRun(scenario, firsts=firsts)
    try:
        run = play.run_to_end()
    except Exception as error:
        raise ScheduleFailed(number, [], f"{type(error).__name__} {error}") from error
    reached = play.sometimes.points
    play.let_go()
    return _Played(run.starts, run.crashes, run.rows, reached)


def _streams_of(number: int) -> StreamScenario:
    """Two of eight are of sinks that lag and topics that come again: those take three times as
    long as the others."""
    from tests.simulation.stream_scenario import (
        draw_aimed,
        draw_catalog,
        draw_database,
        draw_moves,
        draw_streams,
        on_object_store,
        strike,
    )

    kind = number // STREAMS % 8
    if kind in AIMED:
        name, drawn = "", draw_aimed(number)
    elif kind in DATABASES:
        name, drawn = "database", draw_database(number)
    elif kind in CATALOGS:
        name, drawn = "catalog", draw_catalog(number)
    elif kind in MOVES:
        name, drawn = "moves", draw_moves(number)
    else:
        name, drawn = "", draw_streams(number)
    if number // STREAMS % STORES == 0:
        drawn = on_object_store(drawn)
    return strike(drawn, name) if name and number // STREAMS // 8 % 2 else drawn


def _streams(number: int) -> _Played:
    from tests.simulation.stream_run import StreamRun

    play = StreamRun(_streams_of(number))
    try:
        play.run_to_end()
    except Exception as error:
        raise ScheduleFailed(number, [], f"{type(error).__name__} {error}") from error
    crashes = sum(fault.kind == "crash" for fault in play.scenario.faults)
    rows = sum(len(table.rows) for table in play.world.tables.values())
    starts = len(play.scenario.runtimes) + 1
    reached = play.sometimes.points
    play.let_go()
    return _Played(starts, crashes, rows, reached)


def spread(
    schedules: int, *, seed: int = 0, jobs: int = 1, users: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Counts:
    """:func:`simulate` on ``jobs`` processes; the same schedules however many there are.

    The work is cut into parts, and each ends at its first violation: ``on_progress`` hears how many
    schedules the parts that ended had, and how many of the parts found one. Raises
    :class:`ScheduleFailed` for the lowest seed, which names those of the other parts.
    """
    if jobs <= 1:
        return simulate(schedules, seed=seed, users=users)
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    # several parts a process, so that none waits for one whose core is busy with something else
    count = min(schedules, jobs * PARTS)
    parts = [schedules * part // count for part in range(count + 1)]
    context = get_context("spawn")
    cores: SimpleQueue[int] = context.SimpleQueue()
    for core in islice(cycle(_cores()), jobs):
        cores.put(core)
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_settle_down, initargs=(cores,)
    ) as pool:
        running = {
            pool.submit(simulate, size, seed=seed + parts[part], users=users): size
            for part in range(count)
            for size in (parts[part + 1] - parts[part],)
        }
        failures: list[ScheduleFailed] = []
        counts: list[Counts] = []
        ended = 0
        for future in as_completed(running):
            try:
                counts.append(future.result())
            except ScheduleFailed as failure:
                failures.append(failure)
            ended += running[future]
            on_progress(ended, len(failures))
    if failures:
        first, *others = sorted(failures, key=lambda failure: failure.seed)
        first.others = tuple(str(other).partition("\n")[0] for other in others)
        raise first
    return Counts(
        sum(each.starts for each in counts), sum(each.crashes for each in counts),
        sum(each.rows for each in counts), merge(*(each.reached for each in counts)),
    )


def _cores() -> Sequence[int]:
    """The cores that this process may have; none where a process can't be bound to one."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()


def _settle_down(cores: SimpleQueue[int]) -> None:
    """Take a core of its own, and keep what is loaded for good out of the collector's way.

    A worker ends with the process that it works for, which cannot see to that when it is killed.
    One task of a schedule runs at a time: bound to one core, a turn is handed over without waking
    another one, which took a fifth of the time.
    """
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if not cores.empty():
        os.sched_setaffinity(0, {cores.get()})
    import_module("tests.simulation.scenario_run")
    import_module("tests.simulation.stream_run")
    gc.collect()
    gc.freeze()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def replay(scenario: Scenario) -> int:
    """Run a kept schedule and explain it; the exit code."""
    print(explain(scenario))
    return 1 if failure_of(scenario) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.simulate",
        description="Run random schedules of releases, processes, writers, faults and restarts.",
    )
    parser.add_argument(
        "schedules", type=int, nargs="?", default=1, help="how many schedules to run"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's seed (0)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes to spread them on (one a core)",
    )
    parser.add_argument("--replay", type=Path, help="a kept schedule to play and tell instead")
    parser.add_argument("--tell", action="store_true", help="tell the one schedule of --seed")
    parser.add_argument(
        "--keep", default=".", help="the directory that a failing schedule is kept in (.)"
    )
    parser.add_argument(
        "--users", action="store_true", help="users have views and functions in every schedule"
    )
    parser.add_argument(
        "--table", type=Path, help="the page in which the tables of what was reached are written"
    )
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return replay(decode(options.replay.read_bytes()))
    if options.tell:
        return replay((draw_users if options.users else draw)(options.seed))
    began, before = time.perf_counter(), sum(os.times()[:4])
    try:
        counts = spread(
            options.schedules, seed=options.seed, jobs=options.jobs, users=options.users,
            on_progress=partial(_told, options.schedules),
        )
    except ScheduleFailed as failure:
        _report(failure, options.keep, users=options.users)
        return 1
    seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - before
    print(
        f"{options.schedules} schedules, {counts.starts} starts, {counts.crashes} crashes,"
        f" {counts.rows} rows"
        f" in {seconds:.1f} s: {options.schedules / max(seconds, 1e-9):.0f} schedules/s,"
        f" {1000 * cpu / max(options.schedules, 1):.1f} ms of processor time each"
    )
    if options.users:
        return 0
    print(f"{len(counts.reached)} of {len(POINTS)} points reached")
    if options.table is not None:
        text = options.table.read_text(encoding="utf-8")
        options.table.write_text(with_page(text, counts.reached), encoding="utf-8")
    if options.seed or options.schedules < SCHEDULES:
        return 0
    print(page(counts.reached))
    return _report_missed(missed(counts.reached))


def _report_missed(points: Sequence[str]) -> int:
    """Tell what too few schedules reached, and the command that shows it; the exit code."""
    for point in points:
        print(f"not reached: {point}", file=sys.stderr)
    if points:
        print(f"replay: python -m tests.simulation.simulate {SCHEDULES}", file=sys.stderr)
    return int(bool(points))


def _told(schedules: int, ended: int, failed: int) -> None:
    """One line of progress; a short run needs none."""
    if schedules >= LONG:
        print(f"{ended} of {schedules} schedules, {counted(failed, 'violation')}", file=sys.stderr)


def _report(failure: ScheduleFailed, directory: str, *, users: bool) -> None:
    """Tell a failure: as it is, and as small as it can be made."""
    print(failure, file=sys.stderr)
    for other in failure.others:
        print(f"also {other}", file=sys.stderr)
    print(
        f"replay: python -m tests.simulation.simulate 1 --seed {failure.seed}{' --users' * users}",
        file=sys.stderr,
    )
    if users:
        _report_small(draw_users(failure.seed), failure.seed, directory)
        return
    if failure.seed % STREAMS in STREAMS_AT and failure.seed % ALONE:
        _report_streams(failure.seed)
        return
    scenario = draw(failure.seed)
    if failure.seed % ALONE != 0 and failure_of(scenario) is not None:
        _report_small(scenario, failure.seed, directory)


def _report_small(scenario: Scenario, seed: int, directory: str) -> None:
    small = shrink(scenario)
    file = os.path.join(directory, f"schedule-{seed}.json")
    keep(small, file)
    print(f"\nmade small:\n{explain(small)}\n\nkept: {file}", file=sys.stderr)


def _report_streams(seed: int) -> None:
    from tests.simulation import stream_run, stream_scenario
    from tests.simulation.shrink import make_small

    scenario = _streams_of(seed)
    small = make_small(scenario, stream_scenario.smaller, stream_run.failure_of, attempts=200)
    text = stream_scenario.encode_streams(small).decode()
    print(f"\nmade small:\n{text}\n{stream_run.explain(small)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
