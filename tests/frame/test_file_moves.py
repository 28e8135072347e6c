"""How often a migrating start goes from one file of the package into another one."""

from __future__ import annotations

import sys
import threading
from itertools import count
from types import FrameType
from typing import Any

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

PACKAGE = "/catalog_migrate/"
ENGINE = "/catalog_migrate/testing/"
MOST = 713
"""A reader follows each of them; a change that needs more looks first for a shorter way."""

ONE = "CREATE TABLE s.t (a INT); CREATE VIEW s.v (a INT) AS SELECT a FROM s.t;"
TWO = (
    "CREATE TABLE s.t (a INT, b STRING);"
    "CREATE VIEW s.v (a INT, b STRING) AS SELECT a, b FROM s.t;"
)


def place(file: str) -> str:
    """A file of the package; what stands in for Spark counts as one."""
    return ENGINE if ENGINE in file else file


class Tracer:
    """Counts calls from one file of the package into another, in all threads."""

    def __init__(self) -> None:
        self.moves = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or PACKAGE not in file:
            return
        caller = frame.f_back
        while caller is not None and PACKAGE not in caller.f_code.co_filename:
            caller = caller.f_back
        self.moves += caller is not None and place(caller.f_code.co_filename) != place(file)

    def __enter__(self) -> Tracer:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def test_a_start_that_migrates_two_objects_keeps_to_few_files() -> None:
    """A column comes to a table, and to the view that reads it."""
    world, log, clock, tokens = World(), MemoryLog(), SimulatedClock(stretch=10.0), count()

    def start(release: Release) -> None:
        migrate(
            SimulatedEngine(world, persistent=True), log.attach(None), release, warehouse="/w",
            clock=clock, holder="p", wait=600.0, token=lambda: f"{next(tokens):06d}",
        )

    start(load_texts([("a.sql", ONE)], name="1"))
    second = load_texts([("a.sql", TWO)], name="2")
    with Tracer() as tracer:
        start(second)
    assert 0 < tracer.moves <= MOST
