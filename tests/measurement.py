"""Where the time of a run goes: ``pytest --times=FILE`` writes it there as Markdown.

Seconds per folder and the slowest tests are those of pytest's own reports. Processes are looked at
from outside, twice a second: whatever a test starts is counted, processes of processes included,
with the CPU time that it had when it was seen last. One that lived for less than half a second may
be missed. Their resident memory is that of all together, looked at every 15 seconds, because that
costs most: a page that several of them map, such as the JVMs' archive of classes, counts once.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import psutil
import pytest

INTERVAL = 0.5
MEMORY_INTERVAL = 15.0
SLOWEST = 40
GIB = 1 << 30


def kind_of(command: Sequence[str], parent: Sequence[str]) -> str | None:
    """What a process is, by its command line; None for a part of the process that started it."""
    program = PurePosixPath(command[0].partition(":")[0]).name if command else ""
    words = " ".join(command)
    if program == "java":
        if "kafka.Kafka" in command:
            return "Kafka broker"
        if "org.apache.spark" in words:
            return "JVM of Spark"
        return "other JVM"
    if program == "postgres":
        # a server's own processes are told by their titles: "postgres: checkpointer"
        return None if parent and "postgres" in parent[0] else "PostgreSQL server"
    if program.startswith("python") or program == "catalog-migrate":
        if "sys.stdin.readline" in words:  # as execnet starts them
            return "test worker"
        if "pyspark.daemon" in words or "pyspark/daemon" in words:
            return "Python worker of Spark"
        if "catalog-migrate" in words or "catalog_migrate." in words:
            return "command line"
        return "other Python"
    return "other"


def resident_bytes(process: psutil.Process) -> int:
    """Its resident memory, of a shared page its part; all of it where the system does not tell."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


@dataclass
class Seen:
    """One process: its kind, and its CPU and wall seconds up to when it was seen last."""

    kind: str | None
    cpu: float = 0.0
    lived: float = 0.0


@dataclass
class Processes:
    """All processes below one, looked at from a thread until :meth:`stop`."""

    root: int = field(default_factory=os.getpid)
    seen: dict[tuple[int, float], Seen] = field(default_factory=dict)
    peak: int = 0
    _memory_at: float = 0.0  # when to look at it again
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Processes:
        self._thread = threading.Thread(target=self._watch, name="processes", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Look once."""
        try:
            root = psutil.Process(self.root)
            processes = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        memory = time.monotonic() >= self._memory_at
        if memory:
            self._memory_at = time.monotonic() + MEMORY_INTERVAL
        resident = 0
        for process in processes:
            try:
                with process.oneshot():
                    if memory:
                        resident += resident_bytes(process)
                    key = (process.pid, process.create_time())
                    one = self.seen.setdefault(key, Seen("other"))
                    if one.kind == "other":  # a script that is replaced by what it starts
                        one.kind = self._kind(process)
                    times = process.cpu_times()
                    one.cpu = times.user + times.system
                    one.lived = time.time() - key[1]
            except psutil.Error:
                continue
        self.peak = max(self.peak, resident)

    def _kind(self, process: psutil.Process) -> str | None:
        if process.pid == self.root:
            return "pytest"
        parent = process.parent()
        return kind_of(process.cmdline(), parent.cmdline() if parent is not None else ())

    def rows(self) -> list[tuple[str, int, float, float]]:
        """(kind, how many, CPU seconds, seconds lived), the most CPU time first."""
        count: Counter[str] = Counter()
        cpu: defaultdict[str, float] = defaultdict(float)
        lived: defaultdict[str, float] = defaultdict(float)
        for one in self.seen.values():
            kind = one.kind or "PostgreSQL server"
            cpu[kind] += one.cpu
            if one.kind is not None:
                count[kind] += 1
                lived[kind] += one.lived
        return sorted(
            ((kind, count[kind], cpu[kind], lived[kind]) for kind in cpu), key=lambda row: -row[2]
        )


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


class Times:
    """The plugin of the process that gathers the results."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.began = time.monotonic()
        self.processes = Processes().start()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.outcomes: Counter[str] = Counter()
        self.workers: defaultdict[tuple[str, str], float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, _, group = report.nodeid.rpartition("@")
        if not name or not group.isidentifier():  # in the midst of a parameter
            name, group = report.nodeid, "any"
        self.seconds[name] += report.duration
        node = getattr(report, "node", None)  # there with pytest-xdist
        self.workers["-" if node is None else node.gateway.id, group] += report.duration
        if report.when == "call" or report.outcome == "skipped":
            self.outcomes[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        self.processes.look()
        self.processes.stop()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text("\n".join(self.lines()) + "\n", encoding="utf-8")
        terminalreporter.write_line(
            f"seconds and processes: {self.file}; at most {self.processes.peak / GIB:.1f} GiB"
        )

    def lines(self) -> list[str]:
        """The whole report."""
        folders: defaultdict[str, list[float]] = defaultdict(list)
        for name, seconds in self.seconds.items():
            folders[str(PurePosixPath(name.partition("::")[0]).parent)].append(seconds)
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()))
        return [
            f"{time.monotonic() - self.began:.0f} s; {outcomes}; "
            f"resident memory of all processes at most {self.processes.peak / GIB:.2f} GiB",
            "",
            *table(
                ("folder", "tests", "seconds"),
                (
                    (folder, len(all_), f"{sum(all_):.1f}")
                    for folder, all_ in sorted(folders.items(), key=lambda row: -sum(row[1]))
                ),
            ),
            "",
            *table(
                ("worker", "tests for", "seconds"),
                (
                    (worker, group, f"{seconds:.1f}")
                    for (worker, group), seconds in sorted(self.workers.items())
                ),
            ),
            "",
            *table(
                ("process", "started", "CPU seconds", "seconds lived"),
                (
                    (kind, count, f"{cpu:.1f}", f"{lived:.1f}")
                    for kind, count, cpu, lived in self.processes.rows()
                ),
            ),
            "",
            *table(
                ("test", "seconds"),
                (
                    (f"`{name}`", f"{seconds:.1f}")
                    for name, seconds in sorted(self.seconds.items(), key=lambda row: -row[1])[
                        :SLOWEST
                    ]
                ),
            ),
        ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", help="write seconds and processes there")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--times")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(Path(file)), "times")
