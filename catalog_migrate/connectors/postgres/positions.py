"""Positions of a PostgreSQL source: one place in the server's log for all of its tables.

The line is letter by letter what our stream reader gives Spark,
``{"lsn": "0/16B3748", "timeline": 1, "system": "7…"}`` with a fourth key, ``catalog``, where the
reader has one: Spark compares offsets by their text.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from catalog_migrate.connectors.positions import START, parse_object, whole_number
from catalog_migrate.connectors.postgres.types import Position, lsn_number, lsn_text, parse_catalog
from catalog_migrate.errors import InvalidPosition

_POSTGRES_KEYS = frozenset({"lsn", "timeline", "system"})
_FORMS = "write a log sequence number as 0/16B3748, latest or committed"


class PostgresBounds(msgspec.Struct, frozen=True):
    """The server that answers, what its slot still has (None: nothing) and where its log ends."""

    system: str
    timeline: int
    earliest: int | None
    latest: int


class PostgresCodec:
    """Three or four keys in the reader's order, with blanks behind colons and commas."""

    kind: ClassVar[str] = "POSTGRES"

    def read(self, line: str) -> Position | None:
        """Return the position of a line, None for START. Raises :class:`InvalidPosition`."""
        if line == START:
            return None
        found = parse_object(line, self.kind, _POSTGRES_KEYS, ("catalog",))
        lsn, system = found["lsn"], found["system"]
        if not isinstance(lsn, str):
            raise InvalidPosition(f"the lsn of a POSTGRES offset is no text: {lsn!r}")
        if not isinstance(system, str) or not system:
            raise InvalidPosition(f"the system of a POSTGRES offset is no text: {system!r}")
        timeline = whole_number(found["timeline"], "the timeline of a POSTGRES offset", least=1)
        catalog = found.get("catalog", "")
        if not isinstance(catalog, str):
            raise InvalidPosition(f"the catalog of a POSTGRES offset is no text: {catalog!r}")
        return Position(read_lsn(lsn), timeline, system, *parse_catalog(catalog))

    def write(self, position: Position | None) -> str:
        """Return the line of a position."""
        return START if position is None else position.json()

    def check(self, position: Position, bounds: PostgresBounds) -> tuple[str, ...]:
        """Return what is wrong with a position, one sentence each."""
        wrong = []
        if position.system != bounds.system:
            wrong.append(
                f"the position is of server {position.system}, and {bounds.system} answers"
            )
        elif position.timeline != bounds.timeline:
            wrong.append(
                f"the position is on timeline {position.timeline}, the server on {bounds.timeline}"
            )
        elif bounds.earliest is None:
            wrong.append("the slot has no changes that can be read")
        elif position.lsn < bounds.earliest:
            wrong.append(
                f"{position} is gone, the slot has the changes from {lsn_text(bounds.earliest)} on"
            )
        elif position.lsn > bounds.latest:
            wrong.append(
                f"{position} is beyond the end of the server's log, {lsn_text(bounds.latest)}"
            )
        return tuple(wrong)


def read_lsn(text: str) -> int:
    """A log sequence number; :class:`InvalidPosition` with the forms that there are."""
    try:
        return lsn_number(text)
    except ValueError as error:
        raise InvalidPosition(str(error), remedy=_FORMS) from error
