"""Ranges of a topic's offsets, and whether they are records one by one.

Markers of transactions take offsets and are no records, and so are offsets that compaction left
empty; a reader of committed transactions gets no record of an aborted one either. Nothing in a
topic's description tells of transactions, so a few records are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.kafka.client import librdkafka_config
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.resolved import Resolved

if TYPE_CHECKING:
    from confluent_kafka import Message


PARTITIONS = 16
"""Partitions looked at, those with the longest ranges."""

WINDOW = 200
"""Offsets read at once."""

WINDOWS = 5
"""Parts looked at of a range that is too long to be read whole: both ends, and between."""


def windows(first: int, until: int) -> list[tuple[int, int]]:
    """The parts of a range that are read: all of a short one, both ends and more of a long one.

    Examples: ``windows(0, 500)`` is ``[(0, 500)]``.
    """
    if until - first <= WINDOW * WINDOWS:
        return [(first, until)]
    step = (until - first - WINDOW) / (WINDOWS - 1)
    starts = [first + round(number * step) for number in range(WINDOWS)]
    return [(start, start + WINDOW) for start in starts]


def has_gaps(resolved: Resolved, ranges: Iterable[OffsetRange], *, timeout: float = 5.0) -> bool:
    """Whether an offset without a record was seen; True too when the records could not be read.

    All of short ranges is read and samples of long ones, of at most :data:`PARTITIONS`
    partitions, within ``timeout`` seconds.
    """
    longest = sorted(ranges, key=lambda each: each.first - each.until)[:PARTITIONS]
    rounds: list[list[OffsetRange]] = []
    for topic, number, first, until in longest:
        for at, (start, end) in enumerate(windows(first, until)):
            if at == len(rounds):
                rounds.append([])
            rounds[at].append(OffsetRange(topic, number, start, end))
    if not rounds:
        return False
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            **librdkafka_config(resolved),
            "group.id": "catalog_migrate",  # librdkafka wants one; nothing is joined or stored
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": option_of(resolved, "KAFKA", "kafka.isolation.level")
            or "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "error_cb": lambda _error: None,
        },
        logger=logging.Logger("librdkafka", logging.CRITICAL),
    )
    deadline = time.monotonic() + timeout
    try:
        return not all(_whole(consumer, ranges, deadline) for ranges in rounds)
    except KafkaException:
        return True
    finally:
        consumer.close()


def _whole(consumer: Any, ranges: Sequence[OffsetRange], deadline: float) -> bool:
    """Whether each offset of these ranges, one a partition, has a record."""
    from confluent_kafka import TopicPartition

    wanted = {each.topic_partition: each.first for each in ranges}
    ends = {each.topic_partition: each.until for each in ranges}
    consumer.assign([TopicPartition(*place, at) for place, at in wanted.items()])
    for message in _messages(consumer, deadline):
        place = (message.topic(), message.partition())
        if place not in wanted:
            continue
        if message.error() is not None or message.offset() != wanted[place]:
            return False  # the end of the partition, or a record further on
        wanted[place] += 1
        if wanted[place] == ends[place]:
            del wanted[place]
        if not wanted:
            return True
    return False


def _messages(consumer: Any, deadline: float) -> Iterator[Message]:
    """Messages and ends of partitions until the deadline; other errors are passed over."""
    from confluent_kafka import KafkaError

    while time.monotonic() < deadline:
        for message in consumer.consume(WINDOW, 0.1):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                yield message
