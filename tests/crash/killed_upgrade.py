"""A process that upgrades a catalog and kills its own process group at a chosen call.

Run as ``killed_upgrade.py SPARK_WAREHOUSE`` (with an address on S3 in ``CRASH_ADDRESS`` where the
catalog is there, and settings of Spark as JSON in ``CRASH_SETTINGS``), or
``killed_upgrade.py --jvm PORT TOKEN`` to work in the JVM of another process, which lives on. It
starts its session, says ``ready``, then reads one line of JSON from stdin, a :class:`Task`; when
there is none it ends. Engine and log are wrapped so that every call of them is seen. A task without
``fatal`` goes through, and ``calls`` becomes a JSON list of ``[label, number, seconds]``: the n-th
call of that label (from 1) and how long it took. With one, SIGKILL comes ``before`` or ``after``
that call's effect, or ``during`` it: after half the seconds that ``calls`` says the call took in
the run that went through. SIGKILL goes to the whole process group, so that a JVM of its own gets no
chance to say goodbye either.
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
from typing import TYPE_CHECKING, Any, TypedDict

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.release.builtin import system_release
from catalog_migrate.release.loader import load_release
from catalog_migrate.store.address import is_remote
from catalog_migrate.testing.starts import migrate
from catalog_migrate.users.settings import UserSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Task(TypedDict):
    """An upgrade of ``catalog`` to ``release`` (paths) and the call that it dies of, if any.

    ``repair``: users' objects are repaired on the way.
    """

    catalog: str
    release: str
    calls: str
    fatal: tuple[str, int, str] | None
    repair: bool


def kill_the_group() -> None:
    """End this process, and its JVM if it has one, now."""
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


def upgrade(
    engine: Any, catalog: str, release: str, calls: Calls, *, repair: bool = False
) -> BootstrapReport:
    """Start ``release`` on ``engine`` and the catalog's log, every call of both seen."""
    return migrate(
        Seen(engine, calls),
        Seen(open_log(catalog), calls),
        load_release(release),
        warehouse=None,
        clock=SystemClock(),
        holder=f"killed/{os.getpid()}",
        timeout=600.0,
        threads=4,
        system=None if is_remote(catalog) else system_release(catalog),  # as the hook does
        users=UserSettings(repair=repair),
    )


def attached(port: str, token: str) -> SparkSession:
    """A new session in the JVM that serves ``port``; its default session stays what it is."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_GATEWAY_PORT=port, PYSPARK_GATEWAY_SECRET=token)
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    java = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    theirs = jvm.SparkSession.getDefaultSession().get()
    session = SparkSession(context, theirs.newSession())
    jvm.SparkSession.setDefaultSession(theirs)
    return session


def main(arguments: list[str]) -> None:
    """Upgrade, and die or write down the calls."""
    own = len(arguments) == 1
    if own:
        place = os.environ.get("CRASH_ADDRESS")
        settings = json.loads(os.environ.get("CRASH_SETTINGS", "{}"))
        spark = local_session(warehouse_dir=arguments[0], addresses=[place], conf=settings)
    else:
        spark = attached(*arguments[1:])
    end = spark.stop if own else sys.stdout.flush
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        end()
        return
    task: Task = json.loads(line)
    file = Path(task["calls"])
    if task["fatal"] is None:
        calls = Calls([], None, "")
    else:
        label, number, moment = task["fatal"]
        calls = Calls(json.loads(file.read_text()), (label, number), moment)
    report = upgrade(
        SparkEngine(spark, threads=4), task["catalog"], task["release"], calls,
        repair=task["repair"],
    )
    if task["fatal"] is None:
        file.write_text(json.dumps(calls.made))
    print(f"{report.outcome} {report.rows_copied}")
    end()


if __name__ == "__main__":
    main(sys.argv[1:])
