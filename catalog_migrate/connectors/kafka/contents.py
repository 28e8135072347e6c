"""What the topics of a Kafka source hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.kafka.offset_ranges import has_gaps
from catalog_migrate.connectors.kafka.probe import KafkaProbe, kafka_identity
from catalog_migrate.connectors.positions import Partition
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.values import topics_of
from catalog_migrate.errors import ConnectionFailed, EngineFailure, UnsafeBlocked


@contextmanager
def survey_topics(
    spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
) -> Iterator[Contents]:
    """Return what the topics of a source hold; see :meth:`Source.survey`."""
    from confluent_kafka import KafkaException

    subject = f"{spec.kind} {spec.name}"
    topics = topics_of(str(spec.external.options["TOPIC"]))
    try:
        with KafkaProbe(spec.connection, subject=subject, timeout=timeout) as probe:
            yield _contents(probe, spec, subject, topics, sample=sample)
    except ConnectionFailed as error:
        raise EngineFailure(
            f"{error.message}; nothing was done", condition=error.code, remedy=error.remedy
        ) from error
    except KafkaException as error:
        reported = spec.redactor.scrub(str(error))
        raise EngineFailure(
            f"{subject}: the broker says {reported}; nothing was done", condition="KAFKA",
            remedy="check the broker and what this user may do there",
        ) from None


def _contents(
    probe: KafkaProbe, spec: QuerySpec, subject: str, topics: Sequence[str], *, sample: bool
) -> Contents:
    found = kafka_identity(probe, topics)
    missing = sorted(set(topics) - set(found.topic_ids))
    if missing:
        raise UnsafeBlocked(
            f"{subject} reads topics that are not there",
            problems=[f"there is no topic {topic}" for topic in missing],
            remedy="create them, or name others: UNSAFE SET (TOPIC = '…'), RESET SPLITS",
        )

    def at(moment: int, places: Iterable[Partition]) -> Mapping[Partition, int | None]:
        return probe.since(moment, places)

    return Contents(
        cluster=found.cluster_id,
        topic_ids=dict(found.topic_ids),
        bounds=probe.bounds(topics),
        at=at,
        exact=probe.keeps_every_record(topics),
        gaps=lambda ranges: sample and has_gaps(spec.connection, ranges),
    )
