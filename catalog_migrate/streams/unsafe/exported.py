"""Positions as a file: what ``source positions --format json`` writes and INJECT accepts back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import InvalidPosition, UnsafeBlocked
from catalog_migrate.streams import wiring
from catalog_migrate.streams.checkpoint.codec_delta import DeltaCodec
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.lines import whole_number
from catalog_migrate.streams.specs import first_stream
from catalog_migrate.streams.unsafe.forecast import partition_of, split_of
from catalog_migrate.streams.unsafe.positions import committed_line, kafka_positions


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a source stands: by topic and partition the next record to read, null for START.

    ``topics`` are the ids that the positions are of. Of a sink: ``version`` of its table.
    """

    positions: dict[str, dict[str, Any]] = {}
    source: str = ""
    cluster: str = ""
    topics: dict[str, str] = {}
    generation: int = 0
    version: int | None = None


def export(state: State, kind: str, name: str) -> Exported:
    """Where a source or sink stands after its newest committed batch."""
    found = wiring.find(state, kind, name)
    stream = state.streams.get(found.item_id) or first_stream(found.item_id)
    checkpoint = Checkpoint(f"{state.config['warehouse'].value}/{stream.checkpoint}")
    positions: dict[str, dict[str, Any]] = {}
    version = None
    if kind == "sink":
        standing = DeltaCodec().read(committed_line(checkpoint))
        version = None if standing is None else standing.version
    elif found.external.connector == "KAFKA":
        for (topic, number), offset in sorted((kafka_positions(checkpoint) or {}).items()):
            positions.setdefault(topic, {})[str(number)] = offset
    else:
        raise UnsafeBlocked(
            f"{found.text} reads files and has no positions",
            remedy="its checkpoint lists the files that it has read",
        )
    return Exported(
        positions, str(found.item.definition.item_name), stream.upstream, dict(stream.topics),
        stream.generation, version,
    )


def read_exported(data: bytes, where: str) -> Exported:
    """Read a file of positions; :class:`InvalidPosition` names what is wrong in it."""
    try:
        return msgspec.json.decode(data, type=Exported)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidPosition(
            f"{where} is no file of positions: {error}",
            remedy='write {"positions": {"topic": {"0": 123}}}, or take what '
            "`source positions --format json` prints",
        ) from error


def targets_of(
    exported: Exported, where: str, known: Mapping[str, str], *, other_topics: bool
) -> dict[str, str | None]:
    """The targets in a file, by partition; ``known`` are the ids of the topics that are read.

    Raises :class:`InvalidPosition`, and :class:`UnsafeBlocked` when the file is of another topic
    of that name, unless ``other_topics`` are accepted.
    """
    for topic, written in sorted(exported.topics.items()):
        if known.get(topic, written) != written and not other_topics:
            raise UnsafeBlocked(
                f"{where} was written for another topic {topic} (id {written}, now "
                f"{known[topic]})", remedy="when that is meant: --accept-new-topic",
            )
    targets: dict[str, str | None] = {}
    for topic, partitions in exported.positions.items():
        for number, offset in partitions.items():
            partition = partition_of(f"{topic}:{number}")
            place = f"{where}: {split_of(partition)}"
            targets[split_of(partition)] = (
                None if offset is None else str(whole_number(offset, place))
            )
    if not targets:
        raise InvalidPosition(f"{where} names no partition", remedy="name at least one")
    return targets
