"""Words for people that several layers need alike."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence


def counted(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``, ``12,345 objects``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_first(entries: Sequence[str], most: int, rest: str = "… and {:,} more") -> list[str]:
    """Return at most so many entries, and behind them how many more there are."""
    left = len(entries) - most
    return [*entries[:most], *([rest.format(left)] if left > 0 else ())]


def join_some(names: Sequence[str], most: int) -> str:
    """Write ``a, b and 3 more``."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def align(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """Return rows of text as lines in aligned columns; those of ``right`` are flush right."""
    columns = [
        [cell.rjust(width) if number in right else cell.ljust(width) for cell in column]
        for number, column in enumerate(zip(*rows, strict=True))
        for width in (max(map(len, column)),)
    ]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def describe_size(count: int) -> str:
    """Write bytes in the largest binary unit that keeps the number at one or more."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def describe_duration(seconds: float) -> str:
    """Write ``about 40 s``, ``about 12 min``, ``about 3.5 h``: an estimate, not a promise."""
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """``text`` with its control characters and overrides of direction as ``\\u001b``.

    Line feeds and tabs stay. In JSON the result means the same: it is JSON's own escape.
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """:func:`visible` on one line: a line feed of others is a blank, so that it forges no line."""
    return visible(text.replace("\r\n", " ").replace("\n", " "))
