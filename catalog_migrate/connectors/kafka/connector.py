"""Kafka as a connector."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.connectors.base import (
    Access,
    BatchWriter,
    Connector,
    Contents,
    Frame,
    Identity,
    OpenTransaction,
    Session,
    Sink,
    Source,
)
from catalog_migrate.connectors.kafka import options
from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.connectors.positions import OffsetRange, Partition
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.values import addresses_of, topics_of
from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import Finding, findings_of
from catalog_migrate.model.objects import Column, External, OptionValue

if TYPE_CHECKING:
    from catalog_migrate.connectors.kafka.probe import KafkaProbe
    from catalog_migrate.connectors.query import QuerySpec


class Kafka(Connector):
    """Clusters, and clients that many queries share."""

    name = "KAFKA"
    help = "An Apache Kafka cluster (or another that speaks its protocol)."
    connection = options.CONNECTION
    upstream_word = "cluster"
    shares_client = True

    def __init__(self) -> None:
        self.source = KafkaSource()
        self.sink = KafkaSink()

    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Name the cluster, and the brokers that cannot be reached."""
        with self.client(resolved, subject=subject, timeout=timeout) as probe:
            cluster, nodes = probe.cluster()
            bad = probe.unreachable(nodes)
        reached = f"connected to cluster {cluster}, {len(nodes)} brokers"
        return (Finding(subject, None, "ok", reached), *bad)

    def client(
        self, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0
    ) -> KafkaProbe:
        """Return an admin client for questions, a context."""
        from catalog_migrate.connectors.kafka.probe import KafkaProbe

        return KafkaProbe(resolved, subject=subject, timeout=timeout)

    def identify(
        self, resolved: Resolved, names: Sequence[str] = (), *, subject: str, timeout: float,
        reads: bool = False,
    ) -> Identity:
        """Return the cluster's id and those of the topics."""
        from catalog_migrate.connectors.kafka.probe import kafka_identity

        with self.client(resolved, subject=subject, timeout=timeout) as probe:
            found = kafka_identity(probe, names)
            waiting = _open_records(probe, found.topic_ids if reads else ())
            return msgspec.structs.replace(found, open_records=waiting)

    def access(
        self, resolved: Resolved, wanted: Sequence[Access], *, timeout: float = 10.0
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        """Ask for all topics at once. One that may not be seen is a finding and has no id; what is
        open is looked for in the topics that are read."""
        try:
            with self.client(resolved, timeout=timeout) as probe:
                cluster, _ = probe.cluster()
                names = tuple(sorted({topic for each in wanted for topic in each.names}))
                described = probe.topics(names) if names else {}
                ids = {
                    topic: str(found.topic_id)
                    for topic, found in described.items() if hasattr(found, "topic_id")
                }
                findings = {
                    each.subject: tuple(
                        probe.topic_finding(topic, described[topic], each.operation, each.subject)
                        for topic in each.names
                    )
                    for each in wanted
                }
                read = {
                    topic for each in wanted if each.operation == "READ" for topic in each.names
                }
                waiting = _open_records(probe, sorted(read & ids.keys()))
                return Identity(self.name, cluster, ids, waiting), findings
        except ConnectionFailed as error:
            return None, {each.subject: findings_of(error, each.subject) for each in wanted}

    def names(self, external: External) -> tuple[str, ...]:
        """Return the topics."""
        return topics_of(str(external.options["TOPIC"]))

    def channels(
        self, connection: Mapping[str, OptionValue], external: External
    ) -> tuple[tuple[str, str], ...]:
        """Return each topic with the brokers to begin with."""
        brokers = str(connection.get("BROKER", ""))
        return tuple((brokers, topic) for topic in self.names(external))

    def find_listeners(self, connection: Mapping[str, OptionValue]) -> tuple[tuple[str, int], ...]:
        """Return the brokers: clients follow what they say of themselves."""
        return addresses_of(str(connection["BROKER"]))


class KafkaSource(Source):
    """Topics, read by Spark's own connector."""

    section = options.SOURCE
    codec = KafkaCodec()
    watched = True

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Ask whether the topics are there and readable."""
        del columns
        return _topic_findings(resolved, external, "READ", subject, timeout)

    def survey(
        self, spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
    ) -> AbstractContextManager[Contents]:
        """Ask the brokers for offsets, and for records at a time."""
        from catalog_migrate.connectors.kafka.contents import survey_topics

        return survey_topics(spec, timeout=timeout, sample=sample)

    def reader(self, spark: Session, spec: QuerySpec) -> Frame:
        """Return the records of the topics."""
        from catalog_migrate.connectors.kafka import reader

        reader.require_reachable(spark, spec)
        return reader.read_records(spark, spec)

    def open_transactions(
        self, spark: Session, spec: QuerySpec, places: Sequence[Partition]
    ) -> tuple[OpenTransaction, ...]:
        """Ask by the Java client, which alone can."""
        from catalog_migrate.connectors.kafka.open_transactions import find_open_transactions

        return find_open_transactions(spark, spec, places)

    def read_range(self, spark: Session, spec: QuerySpec, ranges: Sequence[OffsetRange]) -> Frame:
        """Return the records of exact ranges."""
        from catalog_migrate.connectors.kafka.reader import read_range

        return read_range(spark, spec, ranges)


class KafkaSink(Sink):
    """A topic; each record has what a repeat is recognised by."""

    section = options.SINK

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Ask whether the topic is there and writable."""
        del columns
        return _topic_findings(resolved, external, "WRITE", subject, timeout)

    def writer(self, spark: Session, spec: QuerySpec) -> BatchWriter:
        """Return what sends the rows of a batch."""
        from catalog_migrate.connectors.kafka.reader import require_reachable

        require_reachable(spark, spec)
        sink = resolve_name("catalog_migrate.streams.spark.kafka_sink:KafkaSink")
        writer: BatchWriter = sink(spec)
        return writer

    def destination(self, external: External) -> str:
        """Return the topic."""
        return f"topic {external.options.get('TOPIC')}"


CONNECTOR = Kafka()


def _open_records(probe: KafkaProbe, topics: Collection[str]) -> dict[str, int]:
    """What lies behind the last stable offsets; nothing where that cannot be found out now."""
    with suppress(ConnectionFailed):  # partitions whose leader is changing
        return probe.open_records(list(topics)) if topics else {}
    return {}


def _topic_findings(
    resolved: Resolved, external: External, operation: str, subject: str, timeout: float
) -> tuple[Finding, ...]:
    names = CONNECTOR.names(external)
    with CONNECTOR.client(resolved, subject=subject, timeout=timeout) as probe:
        described: Mapping[str, object] = probe.topics(names)
        return tuple(probe.topic_finding(name, described[name], operation) for name in names)
