"""Topics that were created again under their name, and rows of the earlier ones in a table.

A row says the name of its topic and not the id; the keys that a KAFKA sink gives to its rows have
the id. Once a source has gone over to another topic of the same name, rows of the earlier one must
not be sent any more: they would look like rows of the new one, and a consumer would drop one of
the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.catalog.state import State
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.unsafe.forecast import Row
from catalog_migrate.streams.unsafe.images import images_in


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


def earlier_topics(state: State, item_id: str) -> frozenset[str]:
    """Topics of which a source's table may hold records of another one of the same name."""
    return frozenset(earlier_rows(state, item_id))


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
