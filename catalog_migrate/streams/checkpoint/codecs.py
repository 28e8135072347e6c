"""Positions of a sink, which reads a Delta table, as the offset log holds them.

A table, a version of it, and how much of that is read. Delta's offset format 1
("reservoir" is Delta's old name for a table) says with ``index`` -1 that the version named is the
next one to read, untouched. An index from 0 counts the files of that version already read. While
the rows that stood in the table at the first start are read, ``isStartingVersion`` is true. Format
3 differs in the numbers below 0 only.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from catalog_migrate.connectors.positions import START, parse_object, whole_number, write_object
from catalog_migrate.errors import InvalidPosition

_DELTA_KEYS = ("sourceVersion", "reservoirId", "reservoirVersion", "index", "isStartingVersion")
_FORMATS = (1, 3)
UNREAD = -1
"""The index of a version of which nothing is read."""


class DeltaPosition(msgspec.Struct, frozen=True):
    """``version`` of the table with ``table_id`` is read next, after ``index`` of its files."""

    table_id: str
    version: int
    index: int = UNREAD
    starting: bool = False
    format: int = 1

    @property
    def consumed(self) -> int | None:
        """The newest version of which everything is read; None in the midst of one."""
        if self.starting or self.index != UNREAD:
            return None
        return self.version - 1


class DeltaBounds(msgspec.Struct, frozen=True):
    """The table that stands there, the oldest version that can be read, and the newest."""

    table_id: str
    earliest: int
    latest: int


class DeltaCodec:
    """The five keys in Delta's order, without spaces."""

    kind: ClassVar[str] = "DELTA"

    def read(self, line: str) -> DeltaPosition | None:
        """The position of a line, None for START; :class:`InvalidPosition` when malformed."""
        if line == START:
            return None
        found = parse_object(line, self.kind, _DELTA_KEYS)
        source_format, table_id, version, index, starting = (found[key] for key in _DELTA_KEYS)
        if source_format not in _FORMATS or isinstance(source_format, bool):
            raise InvalidPosition(f"a DELTA offset of format {source_format!r} is unknown")
        if not isinstance(table_id, str) or not table_id:
            raise InvalidPosition(f"the table id of a DELTA offset is no text: {table_id!r}")
        if not isinstance(starting, bool):
            raise InvalidPosition(f"isStartingVersion of a DELTA offset is {starting!r}")
        return DeltaPosition(
            table_id=table_id,
            version=whole_number(version, "the version of a DELTA offset"),
            index=whole_number(index, "the index of a DELTA offset", least=-100),
            starting=starting,
            format=source_format,
        )

    def write(self, position: DeltaPosition | None) -> str:
        """Return the line of a position.

        Version 0 untouched is START: Delta dies on it with ``invalid reservoirVersion``.
        """
        if position is None or position.consumed == -1:
            return START
        values = (
            position.format,
            position.table_id,
            whole_number(position.version, "the version of a DELTA offset"),
            position.index,
            position.starting,
        )
        return write_object(dict(zip(_DELTA_KEYS, values, strict=True)))

    def check(self, position: DeltaPosition, bounds: DeltaBounds) -> tuple[str, ...]:
        """Return what is wrong with a position, one sentence each."""
        wrong = []
        if position.table_id != bounds.table_id:
            wrong.append(
                f"the position is one of table {position.table_id}, the table there is"
                f" {bounds.table_id}"
            )
        if position.version < bounds.earliest:
            wrong.append(
                f"version {position.version} is expired, the oldest kept is {bounds.earliest}"
            )
        # one past the newest is where a reader that has everything stands, but not in its midst
        last = bounds.latest if position.consumed is None else bounds.latest + 1
        if position.version > last:
            wrong.append(f"version {position.version} is beyond the newest, {bounds.latest}")
        return tuple(wrong)
