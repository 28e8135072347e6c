"""Clocks of tests: one that only moves when somebody sleeps, and one that can be moved on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from catalog_migrate.catalog.clock import SystemClock


class SkippingClock(SystemClock):
    """The machine's clock, and whatever was skipped besides.

    A limit passes as soon as what a test waits for is there: none is waited out, and none is too
    short for a loaded machine.
    """

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        """Let so much more time have passed."""
        self._skipped += seconds

    @contextmanager
    def skipping(self, seconds: float, when: Callable[[], bool]) -> Iterator[None]:
        """Within the block skip so much again and again, as long as ``when`` holds."""
        over = threading.Event()
        failures: list[Exception] = []

        def skip() -> None:
            try:
                while not over.wait(0.05):
                    if when():
                        self.skip(seconds)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

        thread = threading.Thread(target=skip, name="skipping", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]

    def monotonic(self) -> float:
        """Seconds of the machine's clock, and those that were skipped."""
        return super().monotonic() + self._skipped


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
