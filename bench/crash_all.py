"""Runs every crash part and prints one table: ``make crash-all``.

A part is a set of tests. What a test records (``record_property`` of ``rounds``, ``kills``,
``rows``, ``lost``, ``doubled``) is summed; a part of which no test recorded a column shows ``-``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

PARTS = {
    "crash": ({"CRASH_ALL": "1"}, ("tests/crash",)),
    "crash-streams": ({"CRASH_STREAMS": "25"}, ("tests/streams/crash",)),
    "crash-unsafe": (
        {"CRASH_UNSAFE": "50"},
        ("tests/streams/unsafe/test_killed.py", "tests/streams/crash/test_unsafe_killed.py"),
    ),
    "crash-faults": ({"CRASH_FAULTS": "20"}, ("tests/faults",)),
}
COLUMNS = ("rounds", "kills", "rows", "lost", "doubled")


def run(part: str) -> tuple[list[str], bool]:
    """Run one part; its line of the table, and whether it went well."""
    settings, tests = PARTS[part]
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-s", "-o", "junit_family=xunit1",
             f"--junitxml={report}", *tests],
            env={**os.environ, **settings}, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - began
        sums = read(report) if report.exists() else {}
    cells = [str(sums.get(column, "-")) for column in COLUMNS]
    return [part, *cells, f"{seconds:.0f}", "ok" if done.returncode == 0 else "FAILED"], (
        done.returncode == 0
    )


def read(report: Path) -> dict[str, int]:
    """Sums of what the tests of a report recorded."""
    sums: dict[str, int] = {}
    for entry in ET.parse(report).iter("property"):
        name, value = entry.get("name", ""), entry.get("value", "")
        if name in COLUMNS and value.isdigit():
            sums[name] = sums.get(name, 0) + int(value)
    return sums


def main(parts: list[str]) -> int:
    """Run the parts (all of them by default); 1 when one fails."""
    results = [run(part) for part in parts or PARTS]
    lines = [["part", *COLUMNS, "seconds", "verdict"], *(line for line, _ in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    return 0 if all(well for _, well in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
