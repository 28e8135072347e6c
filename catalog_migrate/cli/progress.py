"""Progress of long work on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catalog_migrate.cli import logs

if TYPE_CHECKING:
    from catalog_migrate.reconciler.execution_context import Progress

LINE_EVERY = 2.0
"""Seconds between two lines of one phase where there is no terminal."""


class Lines:
    """Writes a line when a phase starts or ends and at most one every two seconds between."""

    def __init__(
        self,
        write: Callable[[str, Progress], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._now = now
        self._phase = ""
        self._last = float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Take note of one step."""
        moment = self._now()
        ends = 0 < progress.total <= progress.done
        if progress.phase == self._phase and not ends and moment - self._last < LINE_EVERY:
            return
        self._phase, self._last = progress.phase, moment
        count = f" {progress.done}/{progress.total}" if progress.total else ""
        name = f" {progress.name}" if progress.name else ""
        self._write(f"{progress.phase}{count}{name}", progress)


@contextmanager
def shown() -> Iterator[Callable[[Progress], None]]:
    """A progress callback that suits where stderr goes; the bar is removed in the end."""
    if logs.is_json() or not sys.stderr.isatty():
        yield Lines(_say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[item]}"),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def step(progress: Progress) -> None:
            if progress.phase not in tasks:
                tasks[progress.phase] = bars.add_task(progress.phase, item="")
            bars.update(
                tasks[progress.phase], completed=progress.done,
                total=progress.total or None, item=progress.name,
            )

        yield step


def _say(line: str, progress: Progress) -> None:
    logs.log(logging.INFO, "progress", line, {
        "phase": progress.phase, "done": progress.done, "total": progress.total,
        "name": progress.name,
    })
