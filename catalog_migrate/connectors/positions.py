"""Positions of sources as the offset log holds them: strict JSON on a line, or none yet."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from catalog_migrate.errors import CheckpointCorrupt, InvalidPosition

START = "-"
"""The line of a source that has no offset: it begins where its START option says."""


def parse_object(
    line: str, what: str, keys: Collection[str] = (), optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return the JSON object of a line; ``what`` names the source type in messages.

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


Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""

Positions = Mapping[Partition, int]
"""The next record to read, by partition."""

Bounds = Mapping[Partition, tuple[int, int]]
"""What upstream holds, by partition: the oldest record kept, and one past the newest."""


class PartitionCodec:
    """``{"topic":{"0":123}}``: no spaces, topics and partitions in the order they were read in.

    A connector whose reader writes its offsets otherwise overrides :meth:`write`: an edited
    position must be, letter by letter, what the reader itself would give for that place.
    """

    kind: ClassVar[str] = "partitioned"
    """What messages call a source of it."""

    def read(self, line: str) -> Positions | None:
        """Return the positions of a line in its own order, None for START.

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

    def write(self, positions: Positions | None) -> str:
        """Return the line of positions; what :meth:`read` gave is written back byte for byte."""
        if positions is None:
            return START
        topics: dict[str, dict[str, int]] = {}
        for (topic, number), offset in positions.items():
            whole_number(number, f"a partition of topic {topic!r}")
            where = f"the offset of {topic}-{number}"
            topics.setdefault(topic, {})[str(number)] = whole_number(offset, where)
        return write_object(topics)

    def check(self, positions: Positions, bounds: Bounds) -> tuple[str, ...]:
        """Return what is wrong with positions, one sentence each: all of it, in order.

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

    def read_initial(self, data: bytes, file: str) -> Positions:  # noqa: ARG002
        """Return the positions in ``sources/<i>/0``, where a source without an offset begins.

        Raises :class:`CheckpointCorrupt` naming ``file``. By default a reader keeps none there.
        """
        raise CheckpointCorrupt(f"{file} is no file of a {self.kind} source", file=file)

    def write_initial(self, positions: Positions) -> bytes:  # noqa: ARG002
        """Return the contents of ``sources/<i>/0``, where a reader without a checkpoint begins.

        b"" for a reader that does not look there: positions are refused before its first batch.
        """
        return b""


class OffsetRange(NamedTuple):
    """Offsets of one partition from ``first`` to before ``until``."""

    topic: str
    partition: int
    first: int
    until: int

    @property
    def topic_partition(self) -> tuple[str, int]:
        """The partition and its topic."""
        return self.topic, self.partition


class PositionCodec(Protocol):
    """How a source's positions are written in Spark's offset log, and what is wrong with one."""

    kind: ClassVar[str]

    def read(self, line: str) -> Any | None:
        """Return the position of a line, None for START. Raises :class:`InvalidPosition`."""

    def write(self, position: Any | None) -> str:
        """Return the line of a position, as the reader itself gives it."""

    def check(self, position: Any, bounds: Any) -> tuple[str, ...]:
        """Return what is wrong with a position, one sentence each."""
