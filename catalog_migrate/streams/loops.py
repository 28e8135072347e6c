"""Sinks that would read what they write: their topics come back through sources and other sinks."""

from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.catalog.state import State
from catalog_migrate.connections.values import topics_of
from catalog_migrate.errors import RefusedStatement
from catalog_migrate.model.external import External
from catalog_migrate.streams import dependencies

Topic = tuple[str, str]
"""(brokers, name)."""


def refuse_new_loops(before: State, after: State) -> None:
    """RefusedStatement where a sink of ``after`` reads what it writes and did not ``before``.

    Whatever closes the circle: a sink, another topic or connection of one, or of a source, or
    other brokers of a connection.
    """
    found = _loops(after)
    if not found:
        return
    known = _loops(before)
    for sink in sorted(found, key=lambda sink: (sink in before.items, sink)):  # the new one first
        if sink not in known:
            topic, source = found[sink]
            raise RefusedStatement(
                f"sink {dependencies.display(after, sink)} would read what it writes: its topic "
                f"{topic[1]} comes back through source {dependencies.display(after, source)}",
                remedy="write to another topic",
            )


def _loops(state: State) -> Mapping[str, tuple[Topic, str]]:
    """By sink: a topic that it writes, and the source by which that comes back to it."""
    writes: dict[str, tuple[str, set[Topic]]] = {}
    sources: dict[str, set[Topic]] = {}
    for found in dependencies.queries(state):
        if found.external.connector != "KAFKA":
            continue
        topics = _topics(state, found.item.links["connection"], found.external)
        if found.mapping.kind == "sink":
            writes[found.item_id] = found.item.links["reads"], topics
        else:
            sources[found.item_id] = topics
    readers: dict[Topic, list[str]] = {}
    for source, topics in sources.items():
        for topic in topics:
            readers.setdefault(topic, []).append(source)
    feeds: dict[str, set[Topic]] = {}
    for reads, topics in writes.values():
        feeds.setdefault(reads, set()).update(topics)
    loops: dict[str, tuple[Topic, str]] = {}
    for sink, (reads, topics) in writes.items():
        if reads not in sources:
            continue
        reached, pending = set(topics), list(topics)
        while pending:
            topic = pending.pop()
            for source in readers.get(topic, ()):
                if source == reads:
                    loops[sink] = topic, source
                onward = feeds.get(source, set()) - reached
                reached |= onward
                pending += onward
    return loops


def _topics(state: State, connection: str, external: External) -> set[Topic]:
    """(brokers, topic) of each topic that a source reads or a sink writes."""
    brokers = str(dependencies.effective(state, connection).options.get("BROKER", ""))
    return {(brokers, topic) for topic in topics_of(str(external.options["TOPIC"]))}
