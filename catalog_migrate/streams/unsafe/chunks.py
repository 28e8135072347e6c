"""What an operation skips, cut into chunks that are read later (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from catalog_migrate.connections.kafka_gaps import Place
from catalog_migrate.streams.operation_records import Chunk
from catalog_migrate.streams.unsafe.forecast import Row, split_of
from catalog_migrate.streams.upstream import TopicContents

CHUNK = 50_000
"""Records of one chunk, at most."""


def skipped_places(rows: Iterable[Row]) -> list[Place]:
    """What lies between the positions of rows and is still there."""
    return [
        (row.topic, row.partition, max(row.current, row.low or 0), min(row.target, row.high or 0))
        for row in rows
        if row.skipped and row.current is not None and row.target is not None
    ]


def expired_places(rows: Iterable[Row]) -> list[str]:
    """What lies between them and is no longer there, in words."""
    return [
        f"{split_of((row.topic, row.partition))}: {row.current} to {min(row.low, row.target) - 1}"
        for row in rows
        if row.current is not None and row.target is not None and row.low is not None
        and row.current < min(row.low, row.target)
    ]


def chunks_of(item_id: str, places: Iterable[Place], size: int = CHUNK) -> tuple[Chunk, ...]:
    """Cut places into chunks of at most ``size`` records; nothing is left out or twice."""
    chunks: list[Chunk] = []
    current: list[Place] = []
    room = size
    for topic, number, first, last in places:
        at = first
        while at < last:
            end = min(last, at + room)
            current.append((topic, number, at, end))
            room -= end - at
            at = end
            if not room:
                chunks.append(Chunk(item_id, tuple(current)))
                current, room = [], size
    if current:
        chunks.append(Chunk(item_id, tuple(current)))
    return tuple(chunks)


def records_in(chunks: Iterable[Chunk]) -> int:
    """Records of all chunks."""
    return sum(last - first for each in chunks for _, _, first, last in each.places)


def clipped(
    chunk: Chunk, contents: TopicContents, topics: Mapping[str, str]
) -> tuple[tuple[Place, ...], list[str]]:
    """What of a chunk can be read, and what cannot any more, in words."""
    kept, lost = [], []
    for topic, number, first, last in chunk.places:
        name = split_of((topic, number))
        bounds = contents.bounds.get((topic, number))
        if bounds is None or contents.topic_ids.get(topic) != topics.get(topic):
            lost.append(f"{name}: {first} to {last - 1}: the topic is another one")
            continue
        start = min(max(first, bounds[0]), last)
        if start > first:
            lost.append(f"{name}: {first} to {start - 1} have expired")
        if start < last:
            kept.append((topic, number, start, last))
    return tuple(kept), lost


def skipped_note(chunks: Sequence[Chunk], expired: Sequence[str]) -> str:
    """What a backfill comes to, in words."""
    text = (
        f"BACKFILL: {records_in(chunks)} skipped records are read into the table, in {len(chunks)}"
        " chunks"
    )
    return text + (f"; expired already: {', '.join(expired)}" if expired else "")
