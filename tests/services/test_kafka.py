"""The Kafka cluster of the tests does to its clients what a real one does."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.services.process import ServiceFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster

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


def test_a_live_login_ends_when_its_password_changes(kafka: KafkaCluster, user_name: str) -> None:
    """A connected client must log in again within the time set, and fails with the old password."""
    kafka.set_password(user_name, "one")
    refusals: list[KafkaError] = []
    seen = threading.Event()

    def on_error(error: KafkaError) -> None:
        refusals.append(error)
        if error.code() == KafkaError._AUTHENTICATION:
            seen.set()

    live = AdminClient({**kafka.client(user_name)} | {"error_cb": on_error})
    live.list_topics(timeout=60)
    kafka.set_password(user_name, "two")
    end = time.monotonic() + 15
    while not seen.is_set() and time.monotonic() < end:
        try:
            live.list_topics(timeout=0.5)
        except KafkaException:
            live.poll(0.1)
        time.sleep(0.1)
    assert seen.is_set(), refusals


def test_a_broker_that_is_killed_and_moved(kafka: KafkaCluster, topic_name: str) -> None:
    """Every row of a feed is in the topic exactly once, in order, whatever the broker went through.

    The killed one does not start while its port is taken, and the end of its log says so; it comes
    back at the same address, and then moves. After a move the old addresses refuse; cluster id,
    topic id and records are the same.
    """
    kafka.create_topic(topic_name)
    assert kafka.running
    before = (kafka.cluster_id, kafka.topic_id(topic_name))
    with kafka.feed(topic_name, rate=200) as feed:
        time.sleep(0.5)
        kafka.kill()
        host, port = kafka.plain_bootstrap.split(":")
        old = (kafka.bootstrap, kafka.plain_bootstrap)
        try:
            with socket.create_server((host, int(port))):
                with pytest.raises(ServiceFailed, match="Address already in use"):
                    kafka.start()
                assert not kafka.running
        finally:
            kafka.start()
        assert kafka.running
        assert (kafka.bootstrap, kafka.plain_bootstrap) == old
        kafka.move()
        time.sleep(0.5)
    assert all(_refused(address) for address in old)
    assert not {kafka.bootstrap, kafka.plain_bootstrap} & set(old)
    assert (kafka.cluster_id, kafka.topic_id(topic_name)) == before
    assert _cluster_id(kafka.client("app")) == before[0]
    kafka.produce(topic_name, [b"after"], user="app")
    *records, last = [record.value or b"" for record in kafka.consume_all(topic_name)]
    assert [json.loads(value) for value in records] == [
        {"id": number} for number in range(feed.sent)
    ]
    assert last == b"after"
    assert feed.sent > 100


def test_a_frozen_broker_answers_after_it_is_woken(kafka: KafkaCluster) -> None:
    """While suspended it takes connections and says nothing."""
    admin = AdminClient({**kafka.client(), "log_level": 0})
    kafka.suspend()
    try:
        assert not _refused(kafka.bootstrap)
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
    finally:
        kafka.wake()
    assert admin.list_topics(timeout=60).cluster_id == kafka.cluster_id


def test_a_dropped_user_cannot_log_in(kafka: KafkaCluster, user_name: str) -> None:
    """Without SCRAM credentials the login is refused."""
    kafka.set_password(user_name, "one")
    client = kafka.client(user_name)
    kafka.drop_user(user_name)
    with pytest.raises(KafkaException):
        _cluster_id(client)


def test_an_allowed_user_is_the_only_one(kafka: KafkaCluster, topic_name: str) -> None:
    """From its first ALLOW on, a topic is closed to everybody else but the owner."""
    kafka.create_topic(topic_name)
    kafka.allow("app", topic_name, "READ", "DESCRIBE")
    with pytest.raises(ServiceFailed, match="uthorization failed"):
        kafka.produce(topic_name, [b"1"], user="app")
    kafka.produce(topic_name, [b"2"])
    assert len(kafka.consume_all(topic_name, user="app")) == 1
    with pytest.raises(ServiceFailed, match="uthorization failed"):
        kafka.consume_all(topic_name, user="other")


def test_a_recreated_topic_has_another_id(kafka: KafkaCluster, topic_name: str) -> None:
    """The same name, empty again, under a new id."""
    kafka.create_topic(topic_name)
    first = kafka.topic_id(topic_name)
    kafka.produce(topic_name, [b"1"])
    kafka.delete_topic(topic_name)
    assert topic_name not in kafka.topics()
    kafka.create_topic(topic_name)
    assert kafka.topic_id(topic_name) != first
    assert len(first) == 22
    assert kafka.watermarks(topic_name) == {0: (0, 0)}


def test_deleted_records_raise_the_low_watermark(kafka: KafkaCluster, topic_name: str) -> None:
    """Below a bound, then all; new partitions begin at 0."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"1", b"2", b"3"])
    kafka.delete_records(topic_name, {0: 1})
    assert kafka.watermarks(topic_name) == {0: (1, 3)}
    assert [record.offset for record in kafka.consume_all(topic_name)] == [1, 2]
    kafka.delete_records(topic_name)
    kafka.add_partitions(topic_name, 2)
    assert kafka.watermarks(topic_name) == {0: (3, 3), 1: (0, 0)}


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_every_compression_is_taken(kafka: KafkaCluster, topic_name: str, codec: str) -> None:
    """A topic that stores by a codec takes rows and gives them back."""
    kafka.create_topic(topic_name, config={"compression.type": codec})
    kafka.produce(topic_name, [b"x" * 2000])
    assert [record.value for record in kafka.consume_all(topic_name)] == [b"x" * 2000]


def test_plain_sasl_is_taken_too(kafka: KafkaCluster) -> None:
    """SASL PLAIN logs in with the passwords that the cluster was started with."""
    settings = {**kafka.client("app"), "sasl.mechanism": "PLAIN", "sasl.password": "first-of-app"}
    assert _cluster_id(settings) == kafka.cluster_id


def test_tls_is_verified_by_the_certificate(kafka_other: KafkaCluster) -> None:
    """With the certificate a client gets in, by SASL or without; with another trust it does not."""
    trust = {"ssl.ca.location": str(kafka_other.certificate)}
    plain = {
        **kafka_other.client(),
        "bootstrap.servers": kafka_other.ssl_bootstrap,
        "security.protocol": "SSL",
    }
    login = {**kafka_other.client("app"), "bootstrap.servers": kafka_other.sasl_ssl_bootstrap}
    login["security.protocol"] = "SASL_SSL"
    assert _cluster_id({**plain, **trust}) == kafka_other.cluster_id
    assert _cluster_id({**login, **trust}) == kafka_other.cluster_id
    with pytest.raises(KafkaException):
        _cluster_id(plain)


def test_a_client_certificate_is_a_login(kafka_other: KafkaCluster, topic_name: str) -> None:
    """The bearer of the client's keystore is the user ``app``, to whom ACLs apply."""
    kafka_other.create_topic(topic_name)
    kafka_other.deny("app", topic_name, "DESCRIBE")
    settings = {
        **kafka_other.client(),
        "bootstrap.servers": kafka_other.ssl_bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka_other.certificate),
    }
    keys = kafka_other.client_keystore
    bearer = {"ssl.keystore.location": str(keys.path), "ssl.keystore.password": keys.password}
    assert topic_name in AdminClient(settings).list_topics(timeout=60).topics
    assert topic_name not in AdminClient({**settings, **bearer}).list_topics(timeout=60).topics


def test_a_cluster_without_tls_has_no_certificate(kafka: KafkaCluster) -> None:
    """Asking for one is an error of the test that does."""
    with pytest.raises(ValueError, match="without tls"):
        _ = kafka.certificate


@pytest.mark.soak
@pytest.mark.spark
def test_spark_reads_through_a_login(
    spark: SparkSession, kafka: KafkaCluster, topic_name: str
) -> None:
    """The suite's session reads a topic as a batch by SCRAM, with the jars of the lock."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, [(str(n), f"v{n}") for n in range(20)])
    options = {**kafka.spark_options("app"), "subscribe": topic_name}
    rows = spark.read.format("kafka").options(**options).load()
    texts = rows.selectExpr("CAST(key AS STRING) AS k", "CAST(value AS STRING) AS v").collect()
    assert sorted((int(row.k), row.v) for row in texts) == [(n, f"v{n}") for n in range(20)]
