"""Whether offsets are records one by one, seen on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connections.offset_ranges import WINDOW, OffsetRange, has_gaps, windows

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster


def test_windows() -> None:
    """A short range is read whole, of a long one both ends and three parts between."""
    assert windows(5, 900) == [(5, 900)]
    assert windows(0, 5000) == [(at, at + WINDOW) for at in (0, 1200, 2400, 3600, 4800)]


@pytest.mark.services
def test_on_a_broker(kafka: KafkaCluster, topic_name: str) -> None:
    """Plain records have none; the marker of a transaction, and the end of a topic, are some."""
    from confluent_kafka import Producer

    kafka.create_topic(topic_name, 2)
    kafka.allow("app", topic_name, "READ", "DESCRIBE")
    kafka.produce(topic_name, ["x"] * 1500, partition=0)
    producer = Producer({**kafka.client(None), "transactional.id": topic_name})
    producer.init_transactions(30)
    for _ in range(2):  # offsets 0 to 2 and 4 to 6 are records, 3 and 7 are markers
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic_name, b"x", partition=1)
        producer.commit_transaction(30)
    options = {
        "BROKER": kafka.bootstrap, "SECURITY PROTOCOL": "SASL_PLAINTEXT",
        "SASL MECHANISMS": "SCRAM-SHA-512", "SASL USERNAME": "app",
        "SASL PASSWORD": kafka.users["app"],
    }

    def gaps(*parts: tuple[int, int, int]) -> bool:
        return has_gaps(options, [OffsetRange(topic_name, *part) for part in parts], timeout=30)

    assert not gaps()
    assert not gaps((0, 0, 1500), (1, 0, 3))
    assert gaps((1, 0, 4))
    assert gaps((1, 2, 6))
    refused = {**options, "SASL PASSWORD": "wrong"}
    assert has_gaps(refused, [OffsetRange(topic_name, 0, 0, 5)], timeout=1)
