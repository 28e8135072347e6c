"""``catalog-migrate run`` and ``sql`` as processes that are killed, frozen and woken."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from signal import Signals

PATIENCE = 240.0
"""Seconds that anything may take on a loaded machine; nothing is asserted about times."""

_ADMIN = re.compile(r'"kafka-admin-client-thread \| ([^"]+)"')


class CommandProcess:
    """One command in a process group of its own, its JVM included; output goes to ``log``.

    ``python`` is the interpreter, and with it the PySpark (default: our own).
    """

    def __init__(
        self, log: Path, *arguments: str, settings: Mapping[str, object] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.log = log
        environment = {
            f"CATALOG_MIGRATE__{name.upper().replace('.', '__')}": str(value)
            for name, value in (settings or {}).items()
        }
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [python, "-m", "catalog_migrate.cli.main", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PYSPARK_PYTHON": python, **environment}, cwd=log.parent,
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: Signals) -> None:
        """Send a signal to the whole group."""
        os.killpg(self.group, number)

    def signal_driver(self, number: Signals) -> None:
        """Send a signal to the Python process alone; its JVM goes on."""
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL the whole group; returns when nothing of it is left."""
        try:
            self.signal(signal.SIGKILL)
        except ProcessLookupError:
            self.process.wait()
            return
        self.process.wait()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                os.killpg(self.group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        raise AssertionError(f"process group {self.group} outlives SIGKILL")

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Ask it to stop, let it, and leave nothing of it."""
        if self.running:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60.0)
        self.kill()

    def kafka_client_ids(self) -> set[str]:
        """``kafka.client.id`` of the sources that run in the JVM: SIGQUIT prints its threads."""
        (java,) = (pid for pid in _members(self.group) if _command(pid) == "java")
        printed = Path(f"/proc/{java}/fd/1")  # a file that is deleted already
        before = len(printed.read_bytes())
        os.kill(java, signal.SIGQUIT)
        deadline = time.monotonic() + PATIENCE
        while b"JNI global refs" not in printed.read_bytes()[before:]:
            assert time.monotonic() < deadline, "the JVM prints no threads"
            time.sleep(0.1)
        return set(_ADMIN.findall(printed.read_bytes()[before:].decode(errors="replace")))


def _command(pid: int) -> str:
    """What a process runs; nothing for one that has just ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _members(group: int) -> list[int]:
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                text = (place / "stat").read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[2]) == group:
                found.append(int(place.name))
    return found
