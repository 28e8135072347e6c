"""What a probe found, and calls to the outside that end in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import TypeVar

import msgspec

from catalog_migrate.errors import ConnectionFailed

Result = TypeVar("Result")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was tried: on what, by which option, whether it went well, and if not, why.

    No text of a finding holds the value of a secret.
    """

    subject: str
    option: str | None
    ok: bool
    message: str
    remedy: str | None = None

    def __str__(self) -> str:
        option = f" option {self.option}:" if self.option and not self.ok else ""
        text = f"{self.subject}:{option} {self.message}"
        return f"{text}; {self.remedy}" if self.remedy else text


class TookTooLong(Exception):
    """A call that did not end within its time; its thread is left behind."""


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of ``call`` on a thread of its own, or :class:`TookTooLong`.

    For what has no time limit itself: name resolution, a directory on a server that is gone.
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


def failed(*findings: Finding) -> ConnectionFailed:
    """The error for who cannot go on without an answer."""
    bad = [finding for finding in findings if not finding.ok]
    return ConnectionFailed(
        "; ".join(f"{finding.subject}: {finding.message}" for finding in bad), findings=findings,
        remedy=next((finding.remedy for finding in bad if finding.remedy), None),
    )
