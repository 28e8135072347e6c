"""How much of a long series a run goes through: ``SOAK_MINUTES`` each, all of it without."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

MINUTES = float(os.environ.get("SOAK_MINUTES", "inf"))
"""Of one series."""

_Item = TypeVar("_Item")


def spread(items: Sequence[_Item]) -> Sequence[_Item]:
    """The items in an order of which every beginning is spread over all: ends, middle, quarters…

    Where all are gone through, as they are.
    """
    if math.isinf(MINUTES):
        return items
    bits = max(len(items) - 1, 0).bit_length()
    order = sorted(range(len(items)), key=lambda n: int(f"{n:0{bits or 1}b}"[::-1], 2))
    return [items[n] for n in order]


def within_minutes(items: Sequence[_Item]) -> Iterator[_Item]:
    """The items until the minutes of a series are over, the first in any case."""
    began = time.monotonic()
    for number, item in enumerate(items):
        if number and time.monotonic() - began >= MINUTES * 60:
            return
        yield item
