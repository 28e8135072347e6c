"""One codec for each source type, behind one face."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from catalog_migrate.streams.checkpoint.codec_delta import DeltaCodec
from catalog_migrate.streams.checkpoint.codec_files import FilesCodec
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec

P = TypeVar("P")
B = TypeVar("B", contravariant=True)


class Codec(Protocol[P, B]):
    """What the line of a source means: ``P`` are its positions, ``B`` what the source holds."""

    @property
    def kind(self) -> str:
        """``KAFKA``, ``DELTA`` or ``FILES``."""
        ...

    def splits(self, line: str) -> tuple[str, ...]:
        """The parts of the source that have a position of their own, by name."""
        ...

    def read(self, line: str) -> P | None:
        """The positions, None for START; InvalidPosition when the line is not one."""
        ...

    def write(self, positions: P | None, /) -> str:
        """The line, byte for byte as Spark writes it; InvalidPosition on what is no number."""
        ...

    def check(self, positions: P, bounds: B, /) -> tuple[str, ...]:
        """What is wrong with positions, given what the source holds; empty when all is well."""
        ...


CODECS: Mapping[str, Codec[Any, Any]] = MappingProxyType(
    {codec.kind: codec for codec in (KafkaCodec(), DeltaCodec(), FilesCodec())}
)
"""The codecs by source type; sinks and logs read DELTA."""
