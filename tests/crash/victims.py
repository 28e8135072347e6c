"""Processes that upgrade a catalog and are killed, and what is left of them: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .killed_upgrade import Task

PROGRAM = Path(__file__).with_name("killed_upgrade.py")
SECONDS = 600.0
GROUP_SECONDS = 240.0


class Victims:
    """Starts processes of ``killed_upgrade.py``, each in a process group of its own."""

    def __init__(self, spark_warehouse: Path, settings: Mapping[str, str] | None = None) -> None:
        self._spark_warehouse = spark_warehouse
        self._settings = {} if settings is None else {"CRASH_SETTINGS": json.dumps(dict(settings))}

    def _start(self, place: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *(place or [str(self._spark_warehouse)])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env={**os.environ, **self._settings},
        )  # fmt: skip

    def run(self, task: Task, within: Jvm | None = None) -> tuple[int, str, str]:
        """Give a process its task and wait until all of it is gone: exit code, output, errors.

        It works ``within`` a JVM that outlives it, else starts one of its own. What that JVM was
        doing for the process has ended too.
        """
        served = within.serving() if within else set()
        process = self._start(place=within.address if within else ())
        try:
            said, wrong = process.communicate(json.dumps(task) + "\n", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        wait_for_group(process.pid)
        if within:
            within.wait_for_end(served)
        return process.returncode, said, wrong

    def race(self, tasks: list[Task]) -> list[str]:
        """Give processes their tasks at one moment; the last line of what each said."""
        processes = [self._start() for _ in tasks]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process, task in zip(processes, tasks, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        said = []
        for process in processes:
            out, wrong = process.communicate(timeout=SECONDS)
            wait_for_group(process.pid)
            assert process.returncode == 0, wrong
            said.append(out.splitlines()[-1])
        return said


def wait_for_group(group: int) -> None:
    """Return when no process of a group that ended is left: the JVM may take a moment to go."""
    deadline = time.monotonic() + GROUP_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process group {group} outlives its end")


class Jvm(ABC):
    """A JVM that outlives the processes which work in it."""

    address: list[str]
    """What a process is told that shall work in it."""

    @abstractmethod
    def serving(self) -> set[int]:
        """Its threads that work for a Python process."""

    def wait_for_end(self, served: set[int]) -> None:
        """Return when it works for nobody but those whom it ``served`` before."""
        deadline = time.monotonic() + GROUP_SECONDS
        while self.serving() - served:
            assert time.monotonic() < deadline, "the JVM goes on for a process that is dead"
            time.sleep(0.05)


class OwnJvm(Jvm):
    """The JVM of this process' session: what it said, how it ended, how much it holds."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._process = spark.sparkContext._gateway.proc
        # an unnamed file, which can be read after its writer is dead
        self._said: IO[bytes] = open(f"/proc/{self._process.pid}/fd/1", "rb")  # noqa: SIM115

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self._process.poll() is None)

    def require(self) -> None:
        """AssertionError with its exit code and its last words when it is gone."""
        code = self._process.poll()
        if code is not None:
            words = self._said.read().decode(errors="replace")[-3000:]
            raise AssertionError(f"the JVM of the checks ended with {code}; it said: {words}")

    @property
    def address(self) -> list[str]:  # type: ignore[override]
        java = self._spark.sparkContext._gateway.java_parameters
        return ["--jvm", str(java.port), java.auth_token]

    def serving(self) -> set[int]:
        return self.threads_for_python(self._spark)

    @staticmethod
    def threads_for_python(spark: Any) -> set[int]:
        """The threads of a session's JVM that work for a Python process."""
        threads = spark._jvm.java.lang.Thread.getAllStackTraces().entrySet()
        stacks = {entry.getKey().getId(): list(entry.getValue())[-2:] for entry in threads}
        return {
            number
            for number, outermost in stacks.items()
            if any(frame.getClassName().startswith("py4j.") for frame in outermost)
        }

    @property
    def heap(self) -> int:
        """MiB in use."""
        runtime = self._spark._jvm.java.lang.Runtime.getRuntime()
        return int((runtime.totalMemory() - runtime.freeMemory()) >> 20)

    def close(self) -> None:
        """Stop looking."""
        self._said.close()
