"""Topics that a source goes away from, and those that were created again under their name.

Records behind the position in the former stay unread. Of the latter a table may have rows of both
topics: a row says the name of its topic and not the id, and the keys that a KAFKA sink gives to
its rows have the id. So rows of the earlier one must not be sent any more: they would look like
rows of the new one, and a consumer would drop one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec, Partition
from catalog_migrate.streams.operation_records import earlier_rows
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.specs import spec_of
from catalog_migrate.streams.unsafe.forecast import Row
from catalog_migrate.streams.unsafe.positions import Survey
from catalog_migrate.streams.unsafe.requests import Part
from catalog_migrate.streams.upstream import TopicContents


def left_unread(
    state: State, part: Part, found: Survey, warehouse: str, *, ports: Ports
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
        spec = spec_of(state, part.item_id, warehouse, resolve=ports.resolve)
        with ports.upstreams.contents(spec, sample=False) as contents:
            unread = _behind(gone, contents, stream.upstream, dict(stream.topics))
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
    gone: dict[Partition, int], contents: TopicContents, cluster: str, topics: dict[str, str]
) -> dict[Partition, int]:
    """Records behind each position, of the very topics that it is of."""
    if contents.cluster != cluster:
        return {}
    found = {}
    for partition, offset in sorted(gone.items()):
        same = contents.topic_ids.get(partition[0]) == topics.get(partition[0])
        low, high = contents.bounds.get(partition, (0, 0))
        if same and high > max(low, offset):
            found[partition] = high - max(low, offset)
    return found


def sent_before(state: State, item_id: str, rows: Iterable[Row]) -> list[str]:
    """What a KAFKA sink that goes back would send under keys of other rows, in sentences.

    ``rows`` are those of its forecast: versions of the table that it reads.
    """
    item = state.items[item_id]
    source = state.items.get(item.links.get("reads", ""))
    if item.definition.kind != "sink" or dependencies.external_of(item).connector != "KAFKA":
        return []
    if source is None or source.definition.kind != "source":
        return []
    targets = [row.target for row in rows if row.moves and row.target is not None]
    return [
        f"topic {topic} was created again since: the table has rows of the earlier one up to"
        f" version {version}"
        for topic, version in sorted(earlier_rows(state, item.links["reads"]).items())
        if any(target <= version for target in targets)
    ]
