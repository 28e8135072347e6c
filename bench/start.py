"""What one start with one changed table takes: ``python -m bench.start``.

A column comes to a table and to the view that reads it. Counted are, on the simulated engine and a
catalog in memory: how often the log is read, the order of names computed and a plan made, how many
kinds of our own values carry the change from one file to another, and how often a call goes from
one file of the package into another: a reader follows each of them.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from dataclasses import is_dataclass
from itertools import count
from types import FrameType
from typing import Any

import msgspec

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

PACKAGE = "/catalog_migrate/"
ENGINE = "/catalog_migrate/testing/"
ROOMS = ("release", "planner", "operations", "migrations", "engine")
"""Rooms that the change passes through, from the release to Spark."""

ONE = "CREATE TABLE s.t (a INT); CREATE VIEW s.v (a INT) AS SELECT a FROM s.t;"
TWO = (
    "CREATE TABLE s.t (a INT, b STRING);"
    "CREATE VIEW s.v (a INT, b STRING) AS SELECT a, b FROM s.t;"
)


class Trace:
    """Counts the calls of all threads from one file of the package into another, by function, and
    the kinds of values that are returned from one file to another."""

    def __init__(self) -> None:
        self.moves = 0
        self.calls: Counter[str] = Counter()
        self.types: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        file = frame.f_code.co_filename
        if event not in {"call", "return"} or PACKAGE not in file:
            return
        caller = frame.f_back
        while caller is not None and PACKAGE not in caller.f_code.co_filename:
            caller = caller.f_back
        if caller is None or _place(caller.f_code.co_filename) == _place(file):
            if event == "call":
                self.calls[_name_of(frame)] += 1
            return
        if event == "call":
            self.calls[_name_of(frame)] += 1
            self.moves += 1
        elif _place(file) != ENGINE:
            for each in _values_in(value):
                self.types[each] += 1

    def __enter__(self) -> Trace:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _name_of(frame: FrameType) -> str:
    code, own = frame.f_code, frame.f_locals.get("self")
    return code.co_name if own is None else f"{type(own).__name__}.{code.co_name}"


def _place(file: str) -> str:
    """A file of the package; what stands in for Spark counts as one."""
    return ENGINE if ENGINE in file else file


def _values_in(value: Any) -> set[str]:
    """The names of our own values in what a function returns, itself or in a collection."""
    found = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    return {
        kind.__name__ for kind in map(type, found)
        if (issubclass(kind, msgspec.Struct) or is_dataclass(kind))
        and kind.__module__.split(".")[1:2] and kind.__module__.split(".")[1] in ROOMS
    }


def trace_start() -> Trace:
    """Start on one release, then trace the start on the next."""
    world, log, clock, tokens = World(), MemoryLog(), SimulatedClock(stretch=10.0), count()

    def start(release: Release) -> None:
        migrate(
            SimulatedEngine(world, persistent=True), log.attach(None), release, warehouse="/w",
            clock=clock, holder="p", timeout=600.0, token=lambda: f"{next(tokens):06d}",
        )

    start(load_texts([("a.sql", ONE)], name="1"))
    second = load_texts([("a.sql", TWO)], name="2")
    with Trace() as trace:
        start(second)
    return trace


def describe(trace: Trace) -> str:
    """The figures as a table in Markdown."""
    rows = {
        "reads of the log, beside those of commits": trace.calls["read_state"],
        "commits": trace.calls["MemoryLog.append"],
        "orders of names computed": trace.calls["order_waves"],
        "plans made": trace.calls["plan_migration"],
        "kinds of values on the way": len(trace.types),
        "moves between files": trace.moves,
    }
    return "\n".join([
        "| a start with one changed table | |", "|---|---|",
        *(f"| {name} | {number} |" for name, number in rows.items()),
    ])


if __name__ == "__main__":
    found = trace_start()
    print(describe(found))
    print("Values:", ", ".join(sorted(found.types)))
