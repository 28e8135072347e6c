"""Words for people that several layers need alike."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``, ``12,345 objects``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
