"""A clock that can be moved on, so that no test waits a limit out."""

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
