"""Progress of long work, as callers hear of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """One step of long work: ``phase`` (a word), how far of how many, and the object at hand.

    Of copies it says how many rows and bytes were copied, of how many, and in how many seconds the
    rest may be by the rate so far; None where that is unknown. Rows count with their whole table.
    """

    phase: str
    done: int
    total: int
    name: str = ""
    rows: int | None = None
    total_rows: int | None = None
    bytes: int | None = None
    total_bytes: int | None = None
    seconds_left: float | None = None


OnProgress = Callable[[Progress], None]
"""Hears of progress, from one thread at a time; while tables are copied it may be another one."""


def silent(_: Progress) -> None:
    """The progress callback of a caller that does not want one."""
