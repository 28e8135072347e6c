"""What topics hold that a source goes away from: records behind its position stay unread."""

from __future__ import annotations

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec, Partition
from catalog_migrate.streams.specs import Resolve, spec_of
from catalog_migrate.streams.unsafe.broker import held_by_kafka
from catalog_migrate.streams.unsafe.forecast import Held
from catalog_migrate.streams.unsafe.positions import Survey
from catalog_migrate.streams.unsafe.requests import Part


def left_unread(
    state: State, part: Part, found: Survey, warehouse: str, *, resolve: Resolve
) -> tuple[int, tuple[str, ...]]:
    """How many records behind the position are no longer read, and notes on what they are.

    Asked of the definition of before; of a broker that is gone nobody can say, and that is a note.
    """
    item = state.items[part.item_id]
    stream = state.streams.get(part.item_id)
    kafka = item.definition.kind == "source" and dependencies.external_of(item).connector == "KAFKA"
    if not kafka or stream is None or not found.topics:
        return 0, ()
    gone: dict[Partition, int] = {
        partition: offset for partition, offset in (KafkaCodec().read(found.standing) or {}).items()
        if partition[0] in found.forecast.foreign or partition[0] not in found.topics
    }
    if not gone:
        return 0, ()
    topics = ", ".join(sorted({topic for topic, _ in gone}))
    try:
        spec = spec_of(state, part.item_id, warehouse, resolve=resolve)
        with held_by_kafka(spec, sample=False) as held:
            unread = _behind(gone, held, stream.upstream, dict(stream.topics))
    except CatalogMigrateError as error:
        return 0, (f"what the former {topics} held unread is not known: {error.message}",)
    if not unread:
        return 0, ()
    total = sum(unread.values())
    listed = ", ".join(f"{topic}:{number} {count}" for (topic, number), count in unread.items())
    return total, (
        f"{total} records of the former {topics} are unread, and nobody reads them afterwards "
        f"({listed}); where they count, let the source catch up there first",
    )


def _behind(
    gone: dict[Partition, int], held: Held, cluster: str, topics: dict[str, str]
) -> dict[Partition, int]:
    """Records behind each position, of the very topics that it is of."""
    if held.cluster != cluster:
        return {}
    found = {}
    for partition, offset in sorted(gone.items()):
        same = held.topic_ids.get(partition[0]) == topics.get(partition[0])
        low, high = held.bounds.get(partition, (0, 0))
        if same and high > max(low, offset):
            found[partition] = high - max(low, offset)
    return found
