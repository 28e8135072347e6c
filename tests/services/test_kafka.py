"""The Kafka cluster of the tests does to its clients what a real one does."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from catalog_migrate.testing.services.process import ServiceFailed

if TYPE_CHECKING:
    from catalog_migrate.testing.services.kafka import KafkaCluster

pytestmark = pytest.mark.services


def _refused(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def _cluster_id(settings: dict[str, Any]) -> str:
    admin = AdminClient(settings)
    return str(admin.describe_cluster(request_timeout=3.0).result(4.0).cluster_id)


def test_what_is_produced_is_read_back(kafka: KafkaCluster, topic_name: str) -> None:
    """Keys, values and headers come back in each partition's order, for owner and user alike."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, [("a", "1"), ("b", "2", [("src", b"x")])], partition=0)
    kafka.produce(topic_name, [b"3"], partition=1, user="app")
    records = kafka.consume_all(topic_name, user="app")
    assert [(r.partition, r.offset, r.key, r.value, r.headers) for r in records] == [
        (0, 0, b"a", b"1", ()),
        (0, 1, b"b", b"2", (("src", b"x"),)),
        (1, 0, None, b"3", ()),
    ]
    assert records[1].header("src") == b"x"
    assert kafka.watermarks(topic_name) == {0: (0, 2), 1: (0, 1)}


def test_a_moved_cluster_is_the_same_at_another_address(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """After a move the old addresses refuse; cluster id, topic id and records are the same."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"before"])
    before = (kafka.cluster_id, kafka.topic_id(topic_name))
    old = (kafka.bootstrap, kafka.plain_bootstrap)
    kafka.move()
    assert all(_refused(address) for address in old)
    assert not {kafka.bootstrap, kafka.plain_bootstrap} & set(old)
    assert (kafka.cluster_id, kafka.topic_id(topic_name)) == before
    assert _cluster_id(kafka.client("app")) == before[0]
    kafka.produce(topic_name, [b"after"], user="app")
    assert [record.value for record in kafka.consume_all(topic_name)] == [b"before", b"after"]


def test_a_denied_user_cannot_read_and_others_can(kafka: KafkaCluster, topic_name: str) -> None:
    """DENY takes an operation from one user; without ACLs the topic is open again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"1"])
    kafka.deny("app", topic_name, "READ")
    with pytest.raises(ServiceFailed, match="Topic authorization failed"):
        kafka.consume_all(topic_name, user="app")
    assert len(kafka.consume_all(topic_name, user="other")) == 1
    kafka.revoke(topic_name)
    assert len(kafka.consume_all(topic_name, user="app")) == 1


def test_two_clusters_have_two_identities(
    kafka: KafkaCluster, kafka_other: KafkaCluster, topic_name: str
) -> None:
    """A topic of the same name on another cluster has another id, and so has the cluster."""
    kafka.create_topic(topic_name)
    kafka_other.create_topic(topic_name)
    assert kafka.cluster_id != kafka_other.cluster_id
    assert kafka.topic_id(topic_name) != kafka_other.topic_id(topic_name)


def test_an_old_password_is_refused(kafka: KafkaCluster, user_name: str) -> None:
    """After a rotation a new client with the old password cannot log in."""
    kafka.set_password(user_name, "one")
    old = kafka.client(user_name)
    assert _cluster_id(old) == kafka.cluster_id
    kafka.set_password(user_name, "two")
    assert _cluster_id(kafka.client(user_name)) == kafka.cluster_id
    with pytest.raises(KafkaException):
        _cluster_id(old)
