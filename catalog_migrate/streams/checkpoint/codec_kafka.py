"""Positions of a Kafka source: for each partition the next record to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from catalog_migrate.streams.checkpoint.errors import CheckpointCorrupt, InvalidPosition
from catalog_migrate.streams.checkpoint.lines import (
    START,
    parse_object,
    whole_number,
    write_object,
)

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

    def splits(self, line: str) -> tuple[str, ...]:
        """The partitions of a line as ``topic-0``."""
        return tuple(f"{topic}-{number}" for topic, number in self.read(line) or {})

    def read(self, line: str) -> KafkaPositions | None:
        """The positions of a line in its own order, None for START.

        Raises :class:`InvalidPosition` when it is malformed, or an offset is no number.
        """
        if line == START:
            return None
        found: dict[Partition, int] = {}
        for topic, partitions in parse_object(line, "KAFKA").items():
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
