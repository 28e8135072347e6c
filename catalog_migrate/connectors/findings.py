"""The error of findings, and calls to the outside that end in time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import TypeVar

from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding

Result = TypeVar("Result")

_CODES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(words, re.IGNORECASE)) for code, words in (
        (MISSING, r"there is no|not there|is gone|missing|does not exist|not present in metadata"
         r"|does not host this topic|unknown.?topic"),
        (FORBIDDEN, r"may not|not authorized|permission denied|authorization"),
    )
)
"""What is wrong with an object upstream, in the words of a server or its client."""


class TookTooLong(Exception):
    """A call that did not end within its time; its thread is left behind."""


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of ``call`` on a thread of its own, or :class:`TookTooLong`.

    For what has no time limit itself: name resolution, a directory on a server that is away.
    """
    outcome: Queue[tuple[bool, Result | BaseException]] = Queue()

    def run() -> None:
        try:
            outcome.put((True, call()))
        except BaseException as error:
            outcome.put((False, error))
            if not isinstance(error, Exception):
                raise

    threading.Thread(target=run, daemon=True, name="catalog_migrate probe").start()
    try:
        went_well, result = outcome.get(timeout=max(seconds, 0.001))
    except Empty as error:
        raise TookTooLong(f"no end after {seconds:.1f} s") from error
    if went_well:
        return result  # type: ignore[return-value]
    assert isinstance(result, BaseException)
    raise result


def code_of(text: str) -> str:
    """Return the code of what a server or client says, empty where that is another thing."""
    return next((code for code, words in _CODES if words.search(text)), "")


def failed(*findings: Finding) -> ConnectionFailed:
    """The error for who cannot go on without an answer."""
    bad = [finding for finding in findings if not finding.ok]
    return ConnectionFailed(
        "; ".join(f"{finding.subject}: {finding.message}" for finding in bad), findings=findings,
        remedy=next((finding.remedy for finding in bad if finding.remedy), None),
    )
