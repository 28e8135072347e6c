"""What the upstream of a Kafka source holds now, asked in a few questions whatever its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from catalog_migrate.connections.clients import option_of
from catalog_migrate.connections.kafka_gaps import has_gaps
from catalog_migrate.connections.kafka_probe import KafkaProbe
from catalog_migrate.connections.secrets import Redactor
from catalog_migrate.connections.validation import kafka_identity
from catalog_migrate.connections.values import topics_of
from catalog_migrate.errors import ConnectionFailed, EngineFailure, UnsafeBlocked
from catalog_migrate.streams.checkpoint.codec_kafka import Partition
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.unsafe.forecast import Held


@contextmanager
def held_by_kafka(
    spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
) -> Iterator[Held]:
    """What the topics of a source hold; questions about times are asked while the block lasts.

    ``sample``: records may be read to see whether counts are exact. Raises
    :class:`EngineFailure` for a broker that does not answer or says no, :class:`UnsafeBlocked` for
    a topic that is not there.
    """
    from confluent_kafka import KafkaException

    subject = f"{spec.kind} {spec.name}"
    topics = topics_of(str(spec.external.options["TOPIC"]))
    try:
        with KafkaProbe(spec.connection, subject=subject, timeout=timeout) as probe:
            yield _held(probe, spec, subject, topics, sample=sample)
    except ConnectionFailed as error:
        raise EngineFailure(
            f"{error.message}; nothing was done", condition=error.code, remedy=error.remedy
        ) from error
    except KafkaException as error:
        said = Redactor.of(spec.connection).scrub(str(error))
        raise EngineFailure(
            f"{subject}: the broker says {said}; nothing was done", condition="KAFKA",
            remedy="see to the broker and to what this user may do there",
        ) from None


def _held(
    probe: KafkaProbe, spec: QuerySpec, subject: str, topics: Sequence[str], *, sample: bool
) -> Held:
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

    return Held(
        cluster=found.cluster_id,
        topic_ids=dict(found.topic_ids),
        bounds=probe.bounds(topics),
        at=at,
        exact=committed != "read_committed" and probe.keeps_every_record(topics),
        gaps=lambda stretches: sample and has_gaps(spec.connection, stretches),
    )
