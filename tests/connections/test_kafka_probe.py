"""Whether offsets are records one by one, seen on a real broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.kafka.offset_ranges import WINDOW, OffsetRange, has_gaps, windows
from catalog_migrate.connectors.kafka.probe import KafkaProbe
from catalog_migrate.errors import ConnectionFailed

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster


def test_windows() -> None:
    """A short range is read whole, of a long one both ends and three parts between."""
    assert windows(5, 900) == [(5, 900)]
    assert windows(0, 5000) == [(at, at + WINDOW) for at in (0, 1200, 2400, 3600, 4800)]


class _Moving:
    """Brokers of which one partition has no leader for its first questions."""

    def __init__(self, without_leader: int) -> None:
        self.left = without_leader
        self.asked: list[list[int]] = []

    def list_offsets(self, places: Any, **_: Any) -> dict[Any, Future[Any]]:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ListOffsetsResultInfo

        self.asked.append([place.partition for place in places])
        answers: dict[Any, Future[Any]] = {place: Future() for place in places}
        for place, answer in answers.items():
            if place.partition == 1 and self.left:
                self.left -= 1
                answer.set_exception(KafkaException(KafkaError(6, "not the leader")))
            else:
                answer.set_result(ListOffsetsResultInfo(10 + place.partition, 0, -1))
        return answers

    def poll(self, _: float) -> None: ...


def _probe(brokers: _Moving, timeout: float) -> KafkaProbe:
    probe = KafkaProbe({"BROKER": "localhost:1"}, timeout=timeout)
    probe._admin = brokers  # type: ignore[assignment]
    return probe


def test_a_partition_whose_leader_changes_is_asked_again() -> None:
    """It alone, until it answers; without a partition nothing is asked."""
    brokers = _Moving(2)
    probe = _probe(brokers, 5)
    assert probe.since(0, []) == {}
    assert probe.since(0, [("t", 0), ("t", 1)]) == {("t", 0): 10, ("t", 1): 11}
    assert brokers.asked == [[0, 1], [1], [1]]


def test_a_leader_that_does_not_come_is_a_finding() -> None:
    """After the time of a question what the broker says is raised as our error."""
    with pytest.raises(ConnectionFailed, match="not the leader"):
        _probe(_Moving(1_000), 0.3).since(0, [("t", 1)])


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
