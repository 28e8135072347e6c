"""A clock that only moves when somebody sleeps."""

from __future__ import annotations


class SimulatedClock:
    """Implements :class:`catalog_migrate.catalog.clock.Clock`; seconds, from ``start``.

    Leases expire in no time, and always alike.

    ``stretch`` lets every sleep last so many times longer than asked for, as on a busy machine:
    a challenger then needs few looks to see a lease expire.
    """

    simulated = True
    """Time does not pass while an act is under way, so no thread has to renew a lease."""

    def __init__(self, start: float = 1_700_000_000.0, *, stretch: float = 1.0) -> None:
        self._wall = start
        self._stretch = stretch
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Seconds that were slept so far."""
        return self._elapsed

    def wall(self) -> float:
        """Wall-clock seconds: ``start`` plus what was slept."""
        return self._wall + self._elapsed

    def sleep(self, seconds: float) -> None:
        """Return at once, ``seconds`` (stretched) later."""
        self._elapsed += seconds * self._stretch
