"""The page docs/benchmarks.md: the machine, how it was measured, and a row for every measure."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench.measure import Cost, Measure

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "msgspec", "networkx", "xxhash")

_HOW = """\
Each figure is the median of runs that take turns with the baseline, after one pair that is not
counted, or several where the JVM still compiles what both sides run; *best* is the quickest of
these runs, and *ratio* ours by the baseline of the same pairs, on the clock and in CPU time. *CPU*
is user and system time of all threads, of this process and Spark's JVM together where there is one:
it is what to look at when the machine is not idle. A dash stands where it cannot be told. *Peak* is
the largest resident set as the kernel reports it for the process.

Whole processes are compared with an interpreter that does nothing (`python -c pass`), both with
compiled modules in place, as after an installation. The releases are generated: half tables, half
views of eight columns, in a compiled manifest; the catalog is a real Delta log on disk. In-session
figures run in one local session with names in memory, and the baseline is the SQL of the same
objects, in the same order, issued with `spark.sql` on the same number of threads.
"""


def render(measures: Sequence[Measure]) -> str:
    """The page in Markdown."""
    rows = "\n".join(map(_row, measures))
    return (
        "# Speed and memory\n\n"
        "How fast each operation is, and how much memory it takes, by a baseline and a target.\n"
        "Written by `make bench OUT=docs/benchmarks.md`; nothing is typed in by hand.\n\n"
        f"Machine: {machine()}.\n\n{_HOW}\n"
        "| measure | ours | best | CPU | peak | baseline | its time | its best | its CPU | ratio |"
        " in CPU | target | met | note |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        f"{rows}\n"
    )


def renewed(page: str, measures: Sequence[Measure]) -> str:
    """The page with the rows of these measures, behind the others where they are new, and with
    what they were measured on."""
    rows = {_name(row): row for row in map(_row, measures)}
    kept, _, since = page.partition(_SINCE)
    lines = [rows.pop(_name(each), each) for each in kept.rstrip().splitlines()]
    told = f"- {machine()}: {'; '.join(measure.name for measure in measures)}"
    before = [each for each in since.strip().splitlines() if each.startswith("- ")]
    for measure in measures:  # a later line replaces what an earlier one says of a row
        before = [each.replace(f"; {measure.name}", "") for each in before]
        before = [each.replace(f": {measure.name}; ", ": ") for each in before]
    before = [each for each in before if not each.endswith(tuple(f": {m.name}" for m in measures))]
    return "\n".join([*lines, *rows.values(), "", _SINCE, "", *before, told, ""])


_SINCE = "Rows that were measured alone since:"


def _name(row: str) -> str:
    return row.split(" | ")[0]


def _row(m: Measure) -> str:
    return (
        f"| {m.name} | {_seconds(m.ours)} | {_best(m.ours)} | {_cpu(m.ours)} | {_peak(m.ours)} |"
        f" {m.baseline_name} | {_seconds(m.baseline)} | {_best(m.baseline)} | {_cpu(m.baseline)} |"
        f" {m.ratio:.2f}× | {_cpu_ratio(m)} | {m.target} | {'yes' if m.met else '**no**'} |"
        f" {m.note} |"
    )


def line(measure: Measure) -> str:
    """One measure for the terminal."""
    met = "met" if measure.met else "MISSED"
    extra = f"; {measure.note}" if measure.note else ""
    return (
        f"{measure.name}: {_seconds(measure.ours)} (best {_best(measure.ours)}, CPU "
        f"{_cpu(measure.ours)}, peak {_peak(measure.ours)}), {measure.ratio:.2f}x "
        f"{measure.baseline_name} ({_seconds(measure.baseline)}, best {_best(measure.baseline)}, "
        f"CPU {_cpu(measure.baseline)}; {_cpu_ratio(measure)} in CPU); target {measure.target}: "
        f"{met}{extra}"
    )


def machine() -> str:
    """What it ran on: processor, cores, memory, system, load, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, load of "
        f"the last minute {load:.1f} (the benchmark itself included); Python "
        f"{platform.python_version()}, {packages}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for entry in information.read_text(encoding="utf-8").splitlines():
            if entry.startswith("model name"):
                return entry.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _seconds(cost: Cost) -> str:
    return f"{cost.wall:.3f} s"


def _best(cost: Cost) -> str:
    return f"{cost.best:.3f} s" if cost.best else "–"


def _cpu_ratio(measure: Measure) -> str:
    return f"{measure.cpu_ratio:.2f}×" if measure.cpu_ratio else "–"


def _cpu(cost: Cost) -> str:
    return f"{cost.cpu:.3f} s" if cost.cpu else "–"


def _peak(cost: Cost) -> str:
    return f"{cost.peak / 2**20:.0f} MiB" if cost.peak else "–"
