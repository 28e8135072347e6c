"""Positions as a file: what ``source positions --format json`` writes and INJECT accepts back.

Also what ``kafka-consumer-groups --reset-offsets --export`` prints: lines of CSV without a head,
topic, partition and next record to read, before them the group where several were asked for.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import has_records, has_tables
from catalog_migrate.connectors.positions import once, whole_number
from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.errors import InvalidPosition, UnsafeBlocked
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.requests import partition_of, split_of
from catalog_migrate.streams.upstreams.upstream import next_records


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a source stands: by topic and partition the next record to read, null for START.

    ``topics`` are the ids that the positions are of. Of a sink: ``version`` of its table. Of a
    POSTGRES source: ``lsn`` and ``timeline``, left out while there is no batch; ``cluster`` is the
    server's system identifier.
    """

    positions: dict[str, dict[str, Any]] = {}
    source: str = ""
    cluster: str = ""
    topics: dict[str, str] = {}
    generation: int = 0
    version: int | None = None
    lsn: str | msgspec.UnsetType = msgspec.UNSET
    timeline: int | msgspec.UnsetType = msgspec.UNSET


def export(state: State, kind: str, name: str) -> Exported:
    """Where a source or sink stands after its newest committed batch."""
    found = dependencies.find(state, kind, name)
    stream = state.streams.get(found.item_id) or first_stream(found.item_id)
    checkpoint = Checkpoint(dependencies.location(state, stream.checkpoint))
    positions: dict[str, dict[str, Any]] = {}
    version = None
    if kind == "sink":
        standing = DeltaCodec().read(checkpoint.committed_line)
        version = None if standing is None else standing.version
    elif has_records(found.item.definition):
        standing_at = next_records(found.external, checkpoint) or {}
        for (topic, number), offset in sorted(standing_at.items()):
            positions.setdefault(topic, {})[str(number)] = offset
    elif has_tables(found.item.definition):
        # of a source that has read nothing yet: where its snapshot lies is in the warehouse
        position = PostgresCodec().read(checkpoint.committed_line)
        if position is not None:
            return Exported(
                {}, str(found.item.definition.item_name), position.system, {}, stream.generation,
                lsn=str(position), timeline=position.timeline,
            )
        return Exported(
            {}, str(found.item.definition.item_name), stream.upstream, {}, stream.generation
        )
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
    if not data.lstrip().startswith((b"{", b"[", codecs.BOM_UTF8)):
        return _read_csv(data, where)
    try:
        return msgspec.convert(json.loads(data, object_pairs_hook=once), type=Exported)
    except InvalidPosition as error:
        raise InvalidPosition(f"{where}: {error.message}", remedy=error.remedy) from error
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidPosition(
            f"{where} is no file of positions: {error}",
            remedy=_FORMS,
        ) from error


_FORMS = (
    'write {"positions": {"topic": {"0": 123}}}, or take what `source positions --format json` or '
    "`kafka-consumer-groups --reset-offsets --export` prints"
)


def _read_csv(data: bytes, where: str) -> Exported:
    """The lines of Kafka's own tool; of one group only, two could say two things."""
    try:
        lines = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidPosition(
            f"{where} is no file of positions: {error}", remedy=_FORMS
        ) from error
    positions: dict[str, dict[str, Any]] = {}
    first: str | None = None
    for number, fields in enumerate(lines, start=1):
        if not fields:
            continue
        place = f"{where}, line {number}"
        *group, topic, partition, offset = fields if len(fields) in (3, 4) else ("", "", "")
        if not (topic and _is_number(partition) and _is_number(offset)):
            raise InvalidPosition(
                f"{where} is no file of positions: line {number}: topic, partition and offset are "
                "expected", remedy=_FORMS,
            )
        first = "".join(group) if first is None else first
        if "".join(group) != first:
            raise InvalidPosition(
                f"{place}: it is of another consumer group, {''.join(group)}",
                remedy=f"leave the lines of one group, as {first}",
            )
        known = positions.setdefault(topic, {})
        if str(int(partition)) in known:
            raise InvalidPosition(
                f"{place}: {topic}:{int(partition)} is given twice",
                remedy="leave one of them out",
            )
        known[str(int(partition))] = int(offset)
    return Exported(positions)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


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
            split = split_of(partition)
            place = f"{where}: {split}"
            if split in targets:
                raise InvalidPosition(f"{place} is given twice", remedy="leave one of them out")
            targets[split] = None if offset is None else str(whole_number(offset, place))
    if exported.lsn is not msgspec.UNSET:
        raise InvalidPosition(
            f"{where} is of a POSTGRES source, which has one position for all of its tables",
            remedy=f"write --to {exported.lsn}",
        )
    if not targets:
        raise InvalidPosition(f"{where} names no partition", remedy="name at least one")
    return targets
