"""Attempts: an act that may be repeated, tried again while what it raises may pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat, takewhile
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def retry(
    act: Callable[[], T], on: type[E] | tuple[type[E], ...], pauses: Iterable[float], *,
    when: Callable[[E], bool] = lambda _: True, sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what ``act`` returns; call it again after what it raises ``on``.

    ``when`` is asked once for each such error and may say that this one does not pass. ``pauses``
    are seconds, one is taken before each further attempt: ``repeat(0.2, 3)`` makes four attempts at
    most. Raises the last error as it is, and any other at once.
    """
    left = iter(pauses)
    while True:
        try:
            return act()
        except on as error:
            pause = next(left, None) if when(error) else None
            if pause is None:
                raise
        if pause:
            sleep(pause)


def until(
    seconds: float, pause: float, *, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[float]:
    """Equal pauses, until so many seconds from now have passed."""
    deadline = monotonic() + seconds
    return takewhile(lambda _: monotonic() <= deadline, repeat(pause))
