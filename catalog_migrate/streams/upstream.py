"""What positions belong to: a Kafka cluster and its topics, a Postgres server and its ledger.

A topic that was recreated under a running query, or a cluster of another name with a topic of the
same one, gives no error by itself (STACK section 6), so ids are written down and compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connections.values import topics_of
from catalog_migrate.errors import EngineFailure, UpstreamChanged
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.queries import QuerySpec


class Upstream(msgspec.Struct, frozen=True):
    """``upstream`` is the cluster's id or the server's system identifier, "" for files."""

    upstream: str = ""
    topics: Mapping[str, str] = msgspec.field(default_factory=dict)


def identify(spec: QuerySpec) -> Upstream:
    """Ask the upstream (or the destination) who it is; ConnectionFailed when nothing answers."""
    from catalog_migrate.connections.validation import identity

    connector = spec.external.connector or ""
    if connector == "FILES":
        return Upstream()
    found = identity(
        connector, spec.connection, topics_of_query(spec), subject=f"{spec.kind} {spec.name}"
    )
    return Upstream(found.cluster_id, dict(found.topic_ids))


def topics_of_query(spec: QuerySpec) -> tuple[str, ...]:
    """The topics that a Kafka query reads or writes, none for other connectors."""
    if spec.external.connector != "KAFKA":
        return ()
    return topics_of(str(spec.external.options["TOPIC"]))


def require_same(spec: QuerySpec, stream: StreamRecord, found: Upstream) -> None:
    """:class:`UpstreamChanged` when the ids are not those that were written down."""
    what = "cluster" if spec.external.connector == "KAFKA" else "server"
    if stream.upstream != found.upstream:
        raise UpstreamChanged(
            f"{spec.kind} {spec.name} belongs to {what} {stream.upstream}, the connection now "
            f"leads to {found.upstream}: its positions mean nothing there",
            remedy=f"point the connection back to the old {what}, or create another {spec.kind}; "
            "positions of your choice are an unsafe operation",
        )
    if spec.kind == "sink":
        return  # a sink has no positions in its topic
    for topic, known in stream.topics.items():
        topic_id = found.topics.get(topic)
        if topic_id is None:
            raise UpstreamChanged(
                f"topic {topic} of source {spec.name} is gone (its id was {known})",
                remedy="a topic created again under its name is another one: inject positions by "
                "an unsafe operation, or create another source",
            )
        if known != topic_id:
            raise UpstreamChanged(
                f"topic {topic} of source {spec.name} was recreated (its id was {known} and is "
                f"{topic_id}): the positions are of the old one",
                remedy="if its records are new ones, inject positions by an unsafe operation, "
                "or create another source",
            )


def require_there(spec: QuerySpec, found: Upstream) -> None:
    """:class:`EngineFailure` for a source whose topics are not all there: it starts later.

    Started now, it would read of a topic that comes meanwhile before its id is written down: the
    keys of those rows would have the topic's name, and one that came again would go unnoticed.
    """
    missing = [topic for topic in topics_of_query(spec) if topic not in found.topics]
    if spec.kind == "source" and missing:
        raise EngineFailure(
            f"source {spec.name} reads topics that are not there: {', '.join(missing)}",
            condition="UNKNOWN_TOPIC", transient=True,
            remedy="create them; the source is started again by itself",
        )


def require_ledger(spec: QuerySpec, checkpoint: Checkpoint) -> None:
    """Compare the checkpoint's newest committed batch with the ledger of a POSTGRES sink.

    Raises LedgerMismatch for a server that lacks it: a lagging replica or another one.
    """
    query_id = checkpoint.query_id
    if spec.external.connector != "POSTGRES" or query_id is None:
        return
    from catalog_migrate.streams.spark.ledger import Ledger

    table = str(spec.external.options["TABLE"])
    Ledger(spec.connection, table).check(query_id, checkpoint.latest_commits)
