"""Kafka records sent and read back by the tests' own producer and consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.services.process import Deadline, ServiceFailed

_PATIENCE = 30.0
Text = bytes | str | None
Headers = list[tuple[str, str | bytes | None]]
Row = bytes | str | tuple[Text, Text] | tuple[Text, Text, Headers]


class Record(msgspec.Struct, frozen=True):
    """One record of a topic; ``timestamp`` in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """The last value of a header, None when it is not there."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def send(
    client: Mapping[str, Any], topic: str, rows: Iterable[Row], *, partition: int | None = None
) -> int:
    """Send ``rows`` in order, each exactly once, and return their number.

    Raises :class:`ServiceFailed` when the broker refuses one or does not take them in 30 s.
    """
    from confluent_kafka import KafkaError, Producer

    refusals: list[str] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refusals.append(str(error))

    producer = Producer(
        {
            **client,
            # no retry, so nothing is written twice; idempotence would cost each producer a second
            "message.send.max.retries": 0,
            "linger.ms": 2,
            "message.timeout.ms": round(_PATIENCE * 1000),
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    place = -1 if partition is None else partition  # librdkafka's "by key"
    sent = 0
    for row in rows:
        key, value, headers = row_parts(row)
        producer.produce(topic, value, key, place, headers=headers, on_delivery=delivered)
        producer.poll(0)
        sent += 1
    left = producer.flush(_PATIENCE + 5)
    if left or refusals:
        reason = refusals[0] if refusals else "no answer"
        raise ServiceFailed(
            f"{left + len(refusals)} of {sent} records for {topic} were not taken: {reason}"
        )
    return sent


def consume(client: Mapping[str, Any], topic: str, *, committed: bool = True) -> list[Record]:
    """All records of ``topic`` up to where it ends now, by partition and offset.

    Raises :class:`ServiceFailed` when the topic is unknown, unreadable, or not read in 30 s.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            **client,
            "group.id": "catalog-migrate-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 20,
        }
    )
    found: list[Record] = []
    deadline = Deadline(_PATIENCE)
    try:
        known = consumer.list_topics(topic, timeout=deadline.left).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        places = []
        for number in known.partitions:
            at = TopicPartition(topic, number)
            low, _high = consumer.get_watermark_offsets(at, timeout=deadline.left)
            places.append(TopicPartition(topic, number, low))
        consumer.assign(places)
        open_ends = set(known.partitions)
        while open_ends:
            if deadline.passed:
                raise ServiceFailed(f"{topic} was not read to its end within {_PATIENCE:.0f} s")
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(message.partition())
            else:
                raise KafkaException(error)
    except KafkaException as error:
        raise ServiceFailed(f"{topic} could not be read: {error}") from error
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def row_parts(row: Row) -> tuple[Text, Text, Headers]:
    """Key, value and headers of a row in any of its forms."""
    if isinstance(row, (bytes, str)):
        return None, row, []
    if len(row) == 2:
        return row[0], row[1], []
    return row


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
