"""What the upstream of a Kafka source holds now, asked in a few questions whatever its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from catalog_migrate.connections.clients import option_of
from catalog_migrate.connections.kafka_probe import KafkaProbe
from catalog_migrate.connections.validation import kafka_identity
from catalog_migrate.connections.values import topics_of
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.streams.checkpoint.codec_kafka import Partition
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.unsafe.forecast import Held


@contextmanager
def held_by_kafka(spec: QuerySpec, *, timeout: float = 10.0) -> Iterator[Held]:
    """What the topics of a source hold; questions about times are asked while the block lasts.

    Raises :class:`ConnectionFailed`, :class:`UnsafeBlocked` for a topic that is not there.
    """
    subject = f"{spec.kind} {spec.name}"
    topics = topics_of(str(spec.external.options["TOPIC"]))
    with KafkaProbe(spec.connection, subject=subject, timeout=timeout) as probe:
        found = kafka_identity(probe, topics)
        missing = sorted(set(topics) - set(found.topic_ids))
        if missing:
            raise UnsafeBlocked(
                f"{subject} reads topics that are not there",
                problems=[f"there is no topic {topic}" for topic in missing],
                remedy="create them, or name others: UNSAFE SET (TOPIC = '…'), RESET SPLITS",
            )
        committed = option_of(spec.connection, "KAFKA", "kafka.isolation.level")

        def at(moment: int, places: Iterable[Partition]) -> Mapping[Partition, int | None]:
            return probe.since(moment, places)

        yield Held(
            cluster=found.cluster_id,
            topic_ids=dict(found.topic_ids),
            bounds=probe.bounds(topics),
            at=at,
            # markers of transactions take offsets and are no records
            exact=committed != "read_committed" and probe.keeps_every_record(topics),
        )
