"""Whole processes: from fork to exit, with their CPU time and peak memory."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from bench.measure import Cost, Measure, paired

ROUNDS = 9
_MIB = 1 << 20


def command(*arguments: str) -> list[str]:
    """The installed command line with these arguments."""
    return [str(Path(sys.executable).with_name("catalog-migrate")), *arguments]


def bare() -> list[str]:
    """An interpreter that does nothing: what no Python program can be faster than."""
    return [sys.executable, "-c", "pass"]


@cache
def _bytecode() -> str:
    """A directory for compiled modules, filled by the runs that are not counted.

    An installed package has them; a checkout that somebody edits may not, and compiling would be
    measured instead.
    """
    directory = tempfile.TemporaryDirectory(prefix="catalog-migrate-bytecode-")
    atexit.register(directory.cleanup)
    return directory.name


def run(arguments: list[str]) -> Cost:
    """Run a process to its end; RuntimeError with what it said when it fails.

    The peak is the child's own as the kernel counts it; that starts with this process' memory,
    so this process must stay small (catalogs are built by another one).
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": _bytecode()}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    said = process.stderr.read() if process.stderr is not None else b""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stderr is not None:
        process.stderr.close()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {said.decode(errors='replace')}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def version() -> Measure:
    """``catalog-migrate --version``."""
    ours, base = paired(lambda: run(command("--version")), lambda: run(bare()), rounds=15)
    return Measure(
        "`catalog-migrate --version`, whole process", ours, "bare interpreter", base,
        "≤ 0.10 s, or ≤ 6× a bare interpreter", ours.wall <= 0.10 or ours.wall <= 6 * base.wall,
    )


def plan(
    name: str, catalog: Path, release: str, *, seconds: float, mebibytes: int | None = None
) -> Measure:
    """``plan`` of one release on the catalog below ``catalog``."""
    arguments = command(
        "plan", "--catalog", str(catalog / "catalog"), "--release", str(catalog / release)
    )
    ours, base = paired(lambda: run(arguments), lambda: run(bare()), rounds=ROUNDS)
    target = f"≤ {seconds:.2f} s"
    met = ours.wall <= seconds
    if mebibytes is not None:
        target += f" and < {mebibytes} MiB"
        met = met and ours.peak < mebibytes * _MIB
    return Measure(name, ours, "bare interpreter", base, target, met)
