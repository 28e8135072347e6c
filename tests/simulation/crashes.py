"""Crash points: end a simulated process at one exact call, before or after its effect."""

from __future__ import annotations


class SimulatedCrash(BaseException):
    """The process is gone. No ``except Exception`` may keep it alive, as none survives SIGKILL."""


class CrashPoint:
    """Counts the calls that engine and log announce, and ends the process at one of them.

    Give :meth:`on_call` to both as their ``on_call``. Each announcement (``<method>`` before the
    effect, ``<method>.done`` after it) is one point; ``at`` is the number of the point, from 1,
    None never crashes. Once crashed, every further call crashes too: a dead process does nothing.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.count = 0
        self.calls: list[str] = []

    @property
    def crashed(self) -> bool:
        """Whether the point was reached."""
        return self.at is not None and self.count >= self.at

    def on_call(self, call: str) -> None:
        """Hear of one point; SimulatedCrash when it is the one, or comes after it."""
        self.count += 1
        self.calls.append(call)
        if self.at is not None and self.count >= self.at:
            raise SimulatedCrash(f"crash at point {self.count}: {call}")
