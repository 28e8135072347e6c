"""A place in the log of one PostgreSQL server: LSN, timeline, system identifier."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


def lsn_number(text: str) -> int:
    """The log sequence number of ``0/16B3748``; raises ValueError for another text."""
    match = _LSN.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no log sequence number, as 0/16B3748 is")
    return (int(match[1], 16) << 32) + int(match[2], 16)


def lsn_text(number: int) -> str:
    """The same number as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


class Position(msgspec.Struct, frozen=True):
    """Everything that was committed before ``lsn`` on ``timeline`` of server ``system``.

    A transaction whose commit record begins at ``lsn`` or later is still to come.
    """

    lsn: int
    timeline: int
    system: str

    def __str__(self) -> str:
        return lsn_text(self.lsn)

    def offset(self) -> dict[str, Any]:
        """As the stream reader hands it to Spark, which compares offsets by their text."""
        return {"lsn": lsn_text(self.lsn), "timeline": self.timeline, "system": self.system}

    def json(self) -> str:
        """The line of a checkpoint's entry, letter by letter as the stream reader writes it."""
        return json.dumps(self.offset())

    @classmethod
    def of(cls, offset: Mapping[str, Any] | str) -> Position:
        """From an offset or its JSON; raises ValueError when it is none."""
        try:
            found = json.loads(offset) if isinstance(offset, str) else offset
            return cls(lsn_number(found["lsn"]), int(found["timeline"]), str(found["system"]))
        except (KeyError, TypeError) as error:
            raise ValueError("no position of a PostgreSQL server") from error
