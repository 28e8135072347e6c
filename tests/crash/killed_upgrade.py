"""A process that upgrades a catalog and kills its own process group at a chosen call.

Run as ``killed_upgrade.py SPARK_WAREHOUSE``. It starts its session, says ``ready``, then reads one
line of JSON from stdin, a :class:`Task`; when there is none it ends. Engine and log are wrapped so
that every call of them is seen. A task without ``fatal`` goes through, and ``calls`` becomes a JSON
list of ``[label, number, seconds]``: the n-th call of that label (from 1) and how long it took.
With one, SIGKILL comes ``before`` or ``after`` that call's effect, or ``during`` it: after half the
seconds that ``calls`` says the call took in the run that went through. SIGKILL goes to the whole
process group, so that the JVM gets no chance to say goodbye either.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from catalog_migrate.bootstrap import BootstrapReport, migrate
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.store import open_log
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.release.builtin import system_release
from catalog_migrate.release.loader import load_release


class Task(TypedDict):
    """An upgrade of ``catalog`` to ``release`` (paths) and the call that it dies of, if any."""

    catalog: str
    release: str
    calls: str
    fatal: tuple[str, int, str] | None


def kill_the_group() -> None:
    """End this process and its JVM now."""
    os.killpg(0, signal.SIGKILL)


class Calls:
    """Sees every call of engine and log, in the order in which they began; kills at one of them."""

    def __init__(self, earlier: list[list[Any]], fatal: tuple[str, int] | None, moment: str):
        self.fatal = fatal
        self.moment = moment
        self.seconds = {(label, number): seconds for label, number, seconds in earlier}
        self.made: list[list[Any]] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def through(self, label: str, act: Callable[[], Any]) -> Any:
        """Make one call, unless the process dies of it."""
        with self._lock:
            self._counts[label] += 1
            call = (label, self._counts[label])
            entry: list[Any] = [*call, 0.0]
            self.made.append(entry)
        if call == self.fatal and self.moment == "before":
            kill_the_group()
        if call == self.fatal and self.moment == "during":
            timer = threading.Timer(self.seconds[call] / 2, kill_the_group)
            timer.daemon = True
            timer.start()
        began = time.monotonic()
        result = act()
        entry[2] = time.monotonic() - began
        if call == self.fatal:  # also when `during` came too late
            kill_the_group()
        return result


class Seen:
    """An engine or a log whose calls go through :class:`Calls`; it changes nothing else."""

    def __init__(self, wrapped: Any, calls: Calls):
        self._wrapped = wrapped
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            kind = kwargs.get("metadata", {}).get("kind")  # what an append to the log is for
            label = f"{name} {kind}" if kind else name
            return self._calls.through(label, lambda: value(*args, **kwargs))

        return call


def upgrade(engine: Any, catalog: str, release: str, calls: Calls) -> BootstrapReport:
    """Start ``release`` on ``engine`` and the catalog's log, every call of both seen."""
    return migrate(
        Seen(engine, calls),
        Seen(open_log(catalog), calls),
        load_release(release),
        warehouse=None,
        clock=SystemClock(),
        holder=f"killed/{os.getpid()}",
        wait=600.0,
        threads=4,
        system=system_release(catalog),
    )


def main(arguments: list[str]) -> None:
    """Upgrade, and die or write down the calls."""
    (spark_warehouse,) = arguments
    spark = local_session(warehouse_dir=spark_warehouse)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        spark.stop()
        return
    task: Task = json.loads(line)
    file = Path(task["calls"])
    if task["fatal"] is None:
        calls = Calls([], None, "")
    else:
        label, number, moment = task["fatal"]
        calls = Calls(json.loads(file.read_text()), (label, number), moment)
    report = upgrade(SparkEngine(spark, threads=4), task["catalog"], task["release"], calls)
    if task["fatal"] is None:
        file.write_text(json.dumps(calls.made))
    print(f"{report.outcome} {report.rows_copied}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
