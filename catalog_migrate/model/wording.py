"""Words for people that several layers need alike."""

from __future__ import annotations

import re


def counted(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``, ``12,345 objects``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """``text`` with its control characters and overrides of direction as ``\\u001b``.

    Line feeds and tabs stay. In JSON the result means the same: it is JSON's own escape.
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """:func:`visible` on one line: a line feed of others is a blank, so that it forges no line."""
    return visible(text.replace("\r\n", " ").replace("\n", " "))
