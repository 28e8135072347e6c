"""Positions of sources as the offset log holds them: strict JSON on a line, or none yet.

Of a Kafka source: for each partition the next record to read.

Of a Delta source: a table, a version of it, and how much of that is read. Delta's offset format 1
("reservoir" is Delta's old name for a table) says with ``index`` -1 that the version named is the
next one to read, untouched. An index from 0 counts the files of that version already read. While
the rows that stood in the table at the first start are read, ``isStartingVersion`` is true. Format
3 differs in the numbers below 0 only.

Of a PostgreSQL source: one place in the server's log for all of its tables. The line is letter by
letter what our stream reader gives Spark, ``{"lsn": "0/16B3748", "timeline": 1, "system": "7…"}``
with a fourth key, ``catalog``, where the reader has one: Spark compares offsets by their text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import msgspec

from catalog_migrate.connectors.postgres.types import Position, lsn_number, lsn_text, parse_catalog
from catalog_migrate.errors import CheckpointCorrupt, InvalidPosition

START = "-"
"""The line of a source that has no offset: it begins where its START option says."""


def parse_object(
    line: str, what: str, keys: Collection[str] = (), optional: Collection[str] = ()
) -> dict[str, Any]:
    """The JSON object of a line; ``what`` names the source type in messages.

    ``keys`` are all that it has, where they are known, beside ``optional`` ones. Raises
    :class:`InvalidPosition` on anything else, on a key given twice and on NaN.
    """
    try:
        value = json.loads(line, object_pairs_hook=once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise InvalidPosition(
            f"not an offset of a {what} source: {_short(line)} ({error.msg} at {error.pos})"
        ) from error
    if not isinstance(value, dict):
        raise InvalidPosition(f"not an offset of a {what} source: {_short(line)}")
    if keys and value.keys() - set(optional) != set(keys):
        raise InvalidPosition(
            f"not an offset of a {what} source: keys {sorted(value)}, wanted {sorted(keys)}"
        )
    return value


def whole_number(value: object, where: str, *, least: int = 0) -> int:
    """``value`` as a whole number that fits Spark's LONG.

    Raises :class:`InvalidPosition` for texts, fractions, truth values and what is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidPosition(
            f"{where} is no number: {_short(json.dumps(value))}",
            remedy="write a whole number: the next record to read",
        )
    if not least <= value < 2**63:
        raise InvalidPosition(f"{where} is out of range: {value} (from {least} to 2^63-1)")
    return value


def write_object(value: dict[str, Any]) -> str:
    """JSON as Spark writes it: no spaces, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different; :class:`InvalidPosition`, where the last would
    win in silence."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidPosition(
                f"{key!r} is given twice in one object", remedy="leave one of them out"
            )
        found[key] = value
    return found


def _refuse(constant: str) -> Any:
    raise InvalidPosition(f"{constant} in an offset is no number")


def _short(text: str) -> str:
    """A text for a message, never longer than a line."""
    return repr(text if len(text) <= 80 else f"{text[:77]}…")


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
        """The line of a position.

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
        """What is wrong with a position, one sentence each."""
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


Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""

KafkaPositions = Mapping[Partition, int]
"""The next record to read, by partition."""

KafkaBounds = Mapping[Partition, tuple[int, int]]
"""What the broker holds, by partition: the oldest record kept, and one past the newest."""

# One zero byte, for readers of Spark 2.1 (SPARK-19517), then the version of the format.
_INITIAL_HEADER = b"\x00v1\n"


class KafkaCodec:
    """``{"topic":{"0":123}}``: no spaces; Spark writes topics and partitions in no fixed order."""

    kind: ClassVar[str] = "KAFKA"

    def read(self, line: str) -> KafkaPositions | None:
        """The positions of a line in its own order, None for START.

        Raises :class:`InvalidPosition` when it is malformed, or an offset is no number.
        """
        if line == START:
            return None
        found: dict[Partition, int] = {}
        for topic, partitions in parse_object(line, self.kind).items():
            if not isinstance(partitions, dict):
                raise InvalidPosition(f"the offsets of topic {topic!r} are no object")
            for number, offset in partitions.items():
                if not (number.isascii() and number.isdecimal() and str(int(number)) == number):
                    raise InvalidPosition(
                        f"{number!r} of topic {topic!r} is no partition number",
                        remedy="write the partition as a whole number from 0 in quotes",
                    )
                where = f"the offset of {topic}-{number}"
                found[(topic, int(number))] = whole_number(offset, where)
        return found

    def write(self, positions: KafkaPositions | None) -> str:
        """The line of positions; what :meth:`read` gave is written back byte for byte."""
        if positions is None:
            return START
        topics: dict[str, dict[str, int]] = {}
        for (topic, number), offset in positions.items():
            whole_number(number, f"a partition of topic {topic!r}")
            where = f"the offset of {topic}-{number}"
            topics.setdefault(topic, {})[str(number)] = whole_number(offset, where)
        return write_object(topics)

    def check(self, positions: KafkaPositions, bounds: KafkaBounds) -> tuple[str, ...]:
        """What is wrong with positions, one sentence each: all of it, in order.

        A partition that is left out would be read from its beginning, so it counts as wrong.
        """
        wrong = []
        for topic, number in sorted(positions.keys() | bounds.keys()):
            name = f"{topic}-{number}"
            held = bounds.get((topic, number))
            offset = positions.get((topic, number))
            if held is None:
                wrong.append(f"{name} does not exist")
            elif offset is None:
                wrong.append(f"{name} has no position (records {held[0]} to {held[1]} are there)")
            elif offset < held[0]:
                wrong.append(f"{name}: {offset} is expired, the oldest record kept is {held[0]}")
            elif offset > held[1]:
                wrong.append(f"{name}: {offset} is beyond the end, {held[1]}")
        return tuple(wrong)

    def read_initial(self, data: bytes, file: str) -> KafkaPositions:
        """The positions in ``sources/<i>/0``, where a source without an offset begins.

        Raises :class:`CheckpointCorrupt` naming ``file``.
        """
        if not data.startswith(_INITIAL_HEADER):
            raise CheckpointCorrupt(
                f"{file} is not a file of initial offsets: it starts with {data[:8]!r}",
                file=file,
                found=repr(data[:8]),
            )
        try:
            positions = self.read(data[len(_INITIAL_HEADER) :].decode())
        except (InvalidPosition, UnicodeDecodeError) as error:
            raise CheckpointCorrupt(f"{file}: {error}", file=file, found=repr(data[:80])) from error
        return positions or {}

    def write_initial(self, positions: KafkaPositions) -> bytes:
        """The contents of ``sources/<i>/0``, as Spark writes them."""
        return _INITIAL_HEADER + self.write(positions).encode()


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
        """The position of a line, None for START; :class:`InvalidPosition` when malformed."""
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
        """The line of a position."""
        return START if position is None else position.json()

    def check(self, position: Position, bounds: PostgresBounds) -> tuple[str, ...]:
        """What is wrong with a position, one sentence each."""
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
