"""Time as a port: leases are judged by a monotonic clock, wall time is for people only."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What leases and retries know of time; all figures are seconds."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back, comparable in one process only."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 UTC; never compared between processes."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """See :class:`Clock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See :class:`Clock`."""
        time.sleep(seconds)

    def wall(self) -> float:
        """See :class:`Clock`."""
        return time.time()
