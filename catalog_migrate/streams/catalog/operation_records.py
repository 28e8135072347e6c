"""What operations on running queries leave on record, for whoever goes by it (pure).

An unsafe operation keeps what stood before, item by item, and what it skipped, cut into chunks that
stay as they are while they are read. Both stand encoded in its durable row.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.positions import OffsetRange, Partition, PartitionCodec
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.operations.kinds import BACKFILLING, UNSAFE


def kind_of(row: OperationRecord) -> str:
    """What an operation is counted as: the widest thing that it does."""
    act = row.unsafe
    if act is None or act.undoes:
        return "undo"
    return "alter" if act.keys else "reset" if act.reset else "inject"


def findings_in(row: OperationRecord) -> tuple[Finding, ...]:
    """What refused an operation."""
    return row.findings or tuple(
        Finding("", None, "error", text) for text in _numbered(row, "finding")
    )


def sick_in(row: OperationRecord) -> list[str]:
    """What was sick before an operation and was not waited for, in words."""
    return _numbered(row, "sick") or [row.sick[item_id] for item_id in sorted(row.sick)]


def _numbered(row: OperationRecord, word: str) -> list[str]:
    """Texts that an earlier version kept in the details, in their order."""
    return [text for name, text in sorted(row.detail.items()) if name.startswith(f"{word} ")]


def with_act(row: OperationRecord, **fields: object) -> OperationRecord:
    """The row of an unsafe operation with more said of what it does."""
    assert row.unsafe is not None
    return msgspec.structs.replace(row, unsafe=msgspec.structs.replace(row.unsafe, **fields))


class Image(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stood before, of one item.

    ``lines`` are those of the last two entries, oldest first; ``line`` is the position after the
    newest committed batch ``batch``. ``generation`` is the one that this operation committed (that
    of before when positions stayed); ``target`` the line that it wrote. ``version`` is that of the
    table at ``shard`` after the stop, ``restored`` the one that its RESTORE made. ``past``: a sink
    that was only moved past a RESTORE of the table that it reads. ``expired`` counts by partition
    what was passed over and was not there to be read: no longer, or not yet.
    """

    item_id: str
    definition: ObjectDefinition
    links: dict[str, str]
    line: str
    lines: tuple[str, ...]
    batch: int | None
    generation: int
    target: str = ""
    upstream: str = ""
    topics: dict[str, str] = {}
    version: int | None = None
    shard: str = ""
    restored: int | None = None
    past: bool = False
    expired: dict[str, int] = {}

    @property
    def base(self) -> int | None:
        """The version of the table that what comes twice is counted from."""
        return self.version if self.restored is None else self.restored


def images_in(row: OperationRecord) -> tuple[Image, ...]:
    """What stood before an operation; empty until it was committed."""
    if row.unsafe is None or not row.unsafe.images:
        return ()
    return msgspec.json.decode(row.unsafe.images, type=tuple[Image, ...])


class Chunk(msgspec.Struct, frozen=True):
    """Exact ranges of one source that are read and appended as one; its number is its place."""

    item_id: str
    places: tuple[OffsetRange, ...]


def chunks_in(row: OperationRecord) -> tuple[Chunk, ...]:
    """The chunks of an operation."""
    if row.unsafe is None or not row.unsafe.backfill:
        return ()
    return msgspec.json.decode(row.unsafe.backfill, type=tuple[Chunk, ...])


def backfilling(state: State) -> dict[str, frozenset[str]]:
    """Operations that are reading what they skipped, and the sources that it is read for."""
    return {
        key: frozenset(chunk.item_id for chunk in chunks_in(row))
        for key, row in sorted(state.operations.items()) if row.state == BACKFILLING
    }


def dead_letter_tables(state: State) -> dict[str, str]:
    """Tables that a backfill may write dead letters into: item id and the operation."""
    return {
        state.items[item_id].links["dead_letters"]: key
        for key, items in backfilling(state).items() for item_id in items
        if item_id in state.items and "dead_letters" in state.items[item_id].links
    }


def earlier_rows(state: State, item_id: str) -> dict[str, int]:
    """Topics of which a source's table may hold rows of another one of the same name, and the
    newest version of the table that may have brought some (-1: none is known)."""
    stream = state.streams.get(item_id)
    known = stream.known_topics if stream is not None else {}
    found: dict[str, int] = {}
    for row in state.operations.values():
        for image in images_in(row):
            if image.item_id != item_id:
                continue
            version = -1 if image.version is None else image.version
            for topic, topic_id in image.topics.items():
                if known.get(topic, topic_id) != topic_id:
                    found[topic] = max(version, found.get(topic, -1))
    return found


def read_before(state: State, item_id: str) -> dict[str, dict[Partition, int]]:
    """Up to where a source has read each topic that an operation took it away from, by its id."""
    found: dict[str, dict[Partition, int]] = {}
    for row in state.operations.values():
        for image in images_in(row):
            if image.item_id != item_id or not image.topics:
                continue
            for partition, at in (PartitionCodec().read(image.line) or {}).items():
                if (topic_id := image.topics.get(partition[0])) is not None:
                    places = found.setdefault(topic_id, {})
                    places[partition] = max(at, places.get(partition, 0))
    return found


def earlier_topics(state: State, item_id: str) -> frozenset[str]:
    """Topics of which a source's table may hold records of another one of the same name."""
    return frozenset(earlier_rows(state, item_id))


def moved_ranges(image: Image, *, back: bool) -> tuple[OffsetRange, ...]:
    """What an operation put back (else: passed over), where it is the same partition."""
    codec = PartitionCodec()
    before, after = codec.read(image.line) or {}, codec.read(image.target or "-") or {}
    found = []
    for partition in sorted(before.keys() & after.keys()):
        old, new = before[partition], after[partition]
        if (new < old) is back and new != old:
            found.append(OffsetRange(*partition, min(old, new), max(old, new)))
    return tuple(found)


def operation_row(state: State, key: str) -> OperationRecord:
    """The row of an unsafe operation; :class:`UnsafeBlocked` with the newest keys."""
    row = state.operations.get(key)
    if row is None or row.kind != UNSAFE:
        known = sorted(each for each, row in state.operations.items() if row.kind == UNSAFE)
        raise UnsafeBlocked(
            f"there is no unsafe operation {key}",
            remedy=f"the newest: {', '.join(known[-3:]) or 'none'}",
        )
    return row
