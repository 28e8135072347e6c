"""What goes to stderr: sentences for people, or one JSON object a line for programs.

``--log-format json`` (or ``output.log_format``) chooses. A line has ``time`` (UTC), ``level``,
``event``, ``message`` and the event's own fields. What is logged is what would be printed: never a
secret, nor an option of the store.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.wording import counted, describe_duration, describe_size, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from catalog_migrate.model.progress import Progress

FORMATS = ("text", "json")
VARIABLE = "CATALOG_MIGRATE__OUTPUT__LOG_FORMAT"
_NAME = "catalog_migrate.cli"
_FIELDS = "catalog_migrate_fields"


class Handler(logging.Handler):
    """Writes to whatever ``sys.stderr`` is at the moment; ``form`` is text or json.

    ``given`` says that the command line chose the form, which is above the configuration.
    Notes and progress in text begin with the time where stderr is no terminal: a log is read later.
    An error does not, so that a script finds it by its first words, and what is shown before a
    question does not either. ``timed`` puts the time before each line, wherever it goes.
    """

    def __init__(self, form: str = "text") -> None:
        super().__init__()
        self.form = form
        self.given = False
        self.timed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; a reader of stderr that left is nobody to tell."""
        if sys.stderr is None:
            return
        text = as_json_line(record) if self.form == "json" else record.getMessage()
        fields = getattr(record, _FIELDS, {})
        if not fields.get("painted"):
            text = visible(text)
        try:
            if self.form != "json" and (self.timed or _is_logged(fields)):
                text = f"{_moment(record, 'seconds')} {text}"
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            return


@contextmanager
def logging_to_stderr() -> Iterator[Handler]:
    """The handler of one run of the command line; taken away again in the end."""
    logger = logging.getLogger(_NAME)
    asked = os.environ.get(VARIABLE, "")
    handler = Handler(asked if asked in FORMATS else "text")
    before = (logger.level, logger.propagate)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def choose(form: str | None, *, given: bool) -> None:
    """Set the form; what the command line gave is not changed by the configuration."""
    for handler in _handlers():
        if form is not None and (given or not handler.given):
            handler.form, handler.given = form, handler.given or given


def show_times() -> None:
    """Put the time before each line from here on: a process that runs for weeks is read later."""
    for handler in _handlers():
        handler.timed = True


def is_json() -> bool:
    """Whether lines are JSON objects: then there are no bars and no colours either."""
    return any(handler.form == "json" for handler in _handlers())


def log(level: int, event: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
    """One line. Without a running command line it is a plain line on stderr."""
    if not _handlers():
        print(message, file=sys.stderr, flush=True)
        return
    logging.getLogger(_NAME).log(
        level, "%s", message, extra={_FIELDS: {"event": event, **(fields or {})}}
    )


def log_error(error: CatalogMigrateError, *, exit_code: int | None = None) -> None:
    """An error in full: as a sentence with its remedy, or with code and problems as fields."""
    problems = getattr(error, "problems", ())
    fields: dict[str, Any] = {
        "code": error.code, "exit_code": exit_code or error.exit_code, "remedy": error.remedy,
    }
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        fields["sqlstate"] = sqlstate
    if problems:
        fields["problems"] = [_problem(each) for each in problems]
    message = error.message if is_json() else f"error {error}"
    log(logging.ERROR, "error", message, fields)


def _problem(problem: Any) -> dict[str, Any]:
    """One of the problems of an error: a sentence, or a place in a release."""
    if isinstance(problem, str):
        return {"message": problem}
    names = ("code", "message", "file", "line", "column", "remedy")
    return {name: getattr(problem, name) for name in names}


def as_json_line(record: logging.LogRecord) -> str:
    """A record as one line of JSON; values that JSON has no word for are written as text."""
    return json.dumps(
        {
            "time": _moment(record, "milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "pid": record.process,
            **getattr(record, _FIELDS, {"event": "note"}),
        },
        ensure_ascii=False, default=str,
    )


def _is_logged(fields: Mapping[str, Any]) -> bool:
    """Whether a line of text is one of a log: a note or progress that no terminal shows."""
    is_said = fields.get("event") in ("note", "progress") and not fields.get("painted")
    return is_said and not sys.stderr.isatty()


def _moment(record: logging.LogRecord, precision: str) -> str:
    """When a record was made, in UTC (ISO 8601)."""
    moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _handlers() -> list[Handler]:
    return [each for each in logging.getLogger(_NAME).handlers if isinstance(each, Handler)]


# -- progress of long work -------------------------------------------------------------------------


LINE_EVERY = 2.0
"""Seconds between two lines of one phase where there is no terminal."""
SAME_STEP = 10.0
"""Seconds between two lines of one step, whose figures alone move on."""


class Lines:
    """Writes a line when a phase starts or ends and at most one every two seconds between; of one
    step at most one every ten."""

    def __init__(
        self, write: Callable[[str, Progress], None], now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._now = now
        self._step = ("", -1)
        self._last = float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Take note of one step."""
        moment = self._now()
        step = (progress.phase, progress.done)
        ends = 0 < progress.total <= progress.done
        pause = SAME_STEP if step == self._step else LINE_EVERY
        if progress.phase == self._step[0] and not ends and moment - self._last < pause:
            return
        self._step, self._last = step, moment
        count = f" {progress.done}/{progress.total}" if progress.total else ""
        name = f" {progress.name}" if progress.name else ""
        figures = describe_figures(progress)
        self._write(f"{progress.phase}{count}{name}{': ' + figures if figures else ''}", progress)


def describe_figures(progress: Progress) -> str:
    """Rows and bytes of copies, and how long the rest may take, as far as that is known."""
    if progress.rows is None or progress.total_rows == 0:
        return ""
    if progress.total_rows is None or progress.bytes is None or progress.total_bytes is None:
        return counted(progress.rows, "row")
    left = f", {describe_duration(progress.seconds_left)} left" if progress.seconds_left else ""
    return (
        f"{describe_size(progress.bytes)} of {describe_size(progress.total_bytes)}{left},"
        f" {progress.rows:,} of {counted(progress.total_rows, 'row')}"
    )


@contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """A progress callback that suits where stderr goes: a bar on a terminal, lines elsewhere.

    The bar is drawn from the first step on, and removed in the end.
    """
    if is_json() or not sys.stderr.isatty():
        yield Lines(_say)
        return
    with ExitStack() as stack:
        yield _bars(stack)


def _bars(stack: ExitStack) -> Callable[[Progress], None]:
    bars: Bars | None = None
    tasks: dict[str, TaskID] = {}

    def step(progress: Progress) -> None:
        nonlocal bars
        if bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bars
            from rich.table import Column

            columns = (
                TextColumn("{task.description}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=20),
                TextColumn(
                    "{task.fields[said]}", markup=False,
                    table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
                ),
            )
            bars = stack.enter_context(
                Bars(*columns, console=Console(stderr=True), transient=True, expand=True)
            )
        if progress.phase not in tasks:
            tasks[progress.phase] = bars.add_task(progress.phase, said="")
        # the bytes of copies move within a table
        copies = bool(progress.total_bytes)
        count = f"{progress.done}/{progress.total}" if progress.total else ""
        bars.update(
            tasks[progress.phase], completed=(progress.bytes or 0) if copies else progress.done,
            total=(progress.total_bytes if copies else progress.total) or None,
            said="  ".join(filter(None, (count, describe_figures(progress), progress.name))),
        )

    return step


def _say(line: str, progress: Progress) -> None:
    figures = {
        name: value for name in ("rows", "total_rows", "bytes", "total_bytes", "seconds_left")
        if (value := getattr(progress, name)) is not None
    }
    log(logging.INFO, "progress", line, {
        "phase": progress.phase, "done": progress.done, "total": progress.total,
        "name": progress.name, **figures,
    })
