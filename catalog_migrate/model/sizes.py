"""How much a table has, and how long a copy of so much takes by the copies that were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TableSize(NamedTuple):
    """What a table has by its log: rows (-1 where unknown), bytes and data files.

    ``seconds`` are an estimate of a copy; None where there is nothing to estimate by.
    """

    rows: int
    bytes: int
    files: int | None = None
    seconds: float | None = None


class Copied(NamedTuple):
    """A copy that was made: bytes that were read, and seconds that it took."""

    bytes: int
    seconds: float


FURTHEST = 10
"""How many times the largest copy on record a table may have for an estimate."""


def estimate_seconds(size: int, copies: Sequence[Copied]) -> float | None:
    """Return how long copying ``size`` bytes takes: the least-squares line through ``copies``.

    A copy of few bytes takes as long as starting one, so a rate alone would be wrong by orders of
    magnitude for a table much larger: there, and without copies, it is None.
    """
    if not copies or size > FURTHEST * max(copy.bytes for copy in copies):
        return None
    count = len(copies)
    mean_bytes = sum(copy.bytes for copy in copies) / count
    mean_seconds = sum(copy.seconds for copy in copies) / count
    spread = sum((copy.bytes - mean_bytes) ** 2 for copy in copies)
    slope = 0.0 if spread == 0 else sum(
        (copy.bytes - mean_bytes) * (copy.seconds - mean_seconds) for copy in copies
    ) / spread
    start = mean_seconds - slope * mean_bytes
    if spread == 0 or start < 0:  # nothing to tell the two apart by, or no start to be seen
        start, slope = (0.0, mean_seconds / mean_bytes) if mean_bytes else (mean_seconds, 0.0)
    elif slope < 0:
        start, slope = mean_seconds, 0.0
    return round(start + slope * size, 1)
