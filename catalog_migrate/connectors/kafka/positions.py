"""Positions of a Kafka source: for each partition the next record to read."""

from __future__ import annotations

from typing import ClassVar

from catalog_migrate.connectors.positions import PartitionCodec, Positions
from catalog_migrate.errors import CheckpointCorrupt, InvalidPosition

# One zero byte, for readers of Spark 2.1 (SPARK-19517), then the version of the format.
_INITIAL_HEADER = b"\x00v1\n"


class KafkaCodec(PartitionCodec):
    """As Spark's Kafka source writes them, also where it has no offset yet."""

    kind: ClassVar[str] = "KAFKA"

    def read_initial(self, data: bytes, file: str) -> Positions:
        """Return the positions in ``sources/<i>/0``, where a source without an offset begins.

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

    def write_initial(self, positions: Positions) -> bytes:
        """Return the contents of ``sources/<i>/0``, as Spark writes them."""
        return _INITIAL_HEADER + self.write(positions).encode()
