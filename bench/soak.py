"""Runs every long series and prints one table, a line a series: ``make soak``.

A part is a set of tests, those that are marked ``soak`` among them; a series is what a test calls
so (``record_property("series", …)``), else the tests of one function. What its tests record is
summed: ``rounds`` (the points of a series that kills at each), ``kills``, ``rows``, ``refused``
appends, ``lost``, ``doubled`` rows; what none of them recorded is shown as ``-``. ``failures`` are
points that failed, else tests.

Three parts run at a time (``JOBS``), on two cores: tests of servers wait for most of their time.
What a part prints is in ``build/soak/PART.log``. Arguments name the parts to run (default: all).

A series that kills at many points, or in many rounds, goes on for ``SOAK_MINUTES`` (default 10): so
that all of them come to their end in one go, and a faster machine goes through more. A number that
is set in the environment stays: ``CRASH_STREAMS=25 SOAK_MINUTES=inf`` makes a long one of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

CLUSTER = ("tests/bootstrap/test_on_s3.py", "tests/streams/running/test_on_s3.py")
PARTS: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "simulation": ({}, ("-m", "soak", "tests/simulation")),
    "others": ({}, ("-m", "soak", *(f"--ignore={path}" for path in (
        "tests/simulation", "tests/crash", "tests/streams/crash", "tests/faults",
        "tests/streams/unsafe/test_killed.py", *CLUSTER,
    )))),
    "crash": ({"CRASH_ALL": "1"}, ("tests/crash", "-k", "not s3")),
    "crash-streams": ({"CRASH_STREAMS": "10"}, ("tests/streams/crash",)),
    "crash-unsafe": (
        {"CRASH_UNSAFE": "20"},
        ("tests/streams/unsafe/test_killed.py", "tests/streams/crash/test_unsafe_killed.py"),
    ),
    "crash-faults": ({"CRASH_FAULTS": "3"}, ("tests/faults",)),
    "crash-s3": ({"CRASH_ALL": "1"}, ("tests/crash", "-k", "s3")),
    "cluster": ({"SPARK_WORKERS": "4"}, CLUSTER),
}  # fmt: skip
"""The longest first."""

JOBS = int(os.environ.get("JOBS", "3"))
LOGS = Path("build/soak")
COLUMNS = ("rounds", "kills", "rows", "refused", "lost", "doubled")
HEAD = ("part", "series", "tests", *COLUMNS, "failures", "seconds")


@dataclass
class Series:
    """What the tests of one series recorded, summed."""

    part: str
    name: str
    tests: int = 0
    failures: int = 0
    seconds: float = 0.0
    recorded: dict[str, int] = field(default_factory=dict)

    def line(self) -> list[str]:
        """Its line of the table."""
        return [
            self.part, self.name, str(self.tests),
            *(str(self.recorded.get(column, "-")) for column in COLUMNS),
            str(self.failures), f"{self.seconds:.0f}",
        ]  # fmt: skip


def run(part: str, settings: Mapping[str, str], tests: Iterable[str], logs: Path) -> list[Series]:
    """Run one part; a part that ends badly without a failing test is a failure of its own."""
    report, log = logs / f"{part}.xml", logs / f"{part}.log"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    with log.open("w") as said:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-s", "-o", "junit_family=xunit1",
             f"--junitxml={report}", *tests],
            env={"SOAK_MINUTES": "10", **settings, **os.environ}, check=False, stdout=said,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    seconds = time.monotonic() - began
    found = read(part, report) if report.exists() else []
    if done.returncode and not any(series.failures for series in found):
        found.append(Series(part, f"ended with {done.returncode}", failures=1, seconds=seconds))
    failures = sum(series.failures for series in found)
    print(f"{part}: {seconds:.0f} s, {failures} failures; {log}", flush=True)
    return found


def read(part: str, report: Path) -> list[Series]:
    """The series of a report, in the order in which they first ran."""
    found: dict[str, Series] = {}
    for case in ET.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        told = [(e.get("name", ""), e.get("value", "")) for e in case.iter("property")]
        function = case.get("name", "").partition("[")[0].removeprefix("test_").replace("_", " ")
        name = dict(told).get("series", function)
        series = found.setdefault(name, Series(part, name))
        series.tests += 1
        series.seconds += float(case.get("time", "0"))
        points = sum(int(value) for name, value in told if name == "failures")
        failed = any(case.find(kind) is not None for kind in ("failure", "error"))
        series.failures += max(points, int(failed))
        for column, value in told:
            if column in COLUMNS and value.isdigit():
                series.recorded[column] = series.recorded.get(column, 0) + int(value)
    return list(found.values())


def table(found: Iterable[Series]) -> str:
    """All series below each other."""
    lines = [list(HEAD), *(series.line() for series in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main(parts: list[str]) -> int:
    """Run the parts (all of them by default); 1 when anything failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(JOBS) as pool:
        runs = [
            pool.submit(run, part, PARTS[part][0], ("--soak", *PARTS[part][1]), LOGS)
            for part in parts or PARTS
        ]
        found = [series for one in runs for series in one.result()]
    print(table(found))
    return int(any(series.failures for series in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
