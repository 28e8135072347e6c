"""Identifiers that are handed out by durable counters and never come back (DESIGN section 3)."""

from __future__ import annotations

from typing import NewType

ItemId = NewType("ItemId", str)
"""``i<n>``: an object for life, through migration, rename and change of kind."""

GlobalId = NewType("GlobalId", str)
"""``s<n>`` (built-in) or ``u<n>`` (user): one shape of an object; its columns never change."""


class Allocator:
    """Hands out ids from a counter's next value; pure, the new value is committed by the caller.

    ``prefix`` is ``i``, ``s`` or ``u``; ``next_value`` is the first number to be handed out.
    """

    __slots__ = ("next_value", "prefix")

    def __init__(self, prefix: str, next_value: int = 1) -> None:
        self.prefix = prefix
        self.next_value = next_value

    def allocate(self) -> str:
        """The next id, e.g. ``s12``."""
        value = f"{self.prefix}{self.next_value}"
        self.next_value += 1
        return value


def number_of(identifier: str) -> int:
    """The counter value inside an id: ``number_of("s12") == 12``."""
    return int(identifier[1:])
