"""Transactions of a Kafka topic under running sources: aborted, and never ended."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import AlterRolledBack
from catalog_migrate.streams.positions.forecast import UPPER_BOUNDS

from .conftest import Pipeline

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.spark, pytest.mark.services]


def producer(pipeline: Pipeline, name: str) -> Producer:
    """One that sends in transactions."""
    from confluent_kafka import Producer

    made = Producer({
        **pipeline.kafka.client(), "transactional.id": f"{pipeline.name}-{name}",
        "transaction.timeout.ms": 600_000,
    })
    made.init_transactions()
    return made


def send(sender: Producer, topic: str, number: int) -> None:
    """One record of an open transaction, there for whoever does not ask for its end."""
    sender.produce(topic, json.dumps({"id": number}), partition=0)
    sender.flush()


def shown(pipeline: Pipeline, name: str) -> dict[str, Any]:
    """What SHOW SOURCES says of one."""
    (result,) = pipeline.run("SHOW SOURCES")
    assert result.rows is not None
    rows = [dict(zip(result.rows.columns, row, strict=True)) for row in result.rows.values]
    return next(row for row in rows if row["name"] == pipeline.q(name))


def test_aborted_and_hanging(pipeline: Pipeline) -> None:
    """Aborted records arrive only where the source says so; an open transaction shows as lag."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 1)
    sender = producer(pipeline, "one")
    for number, keep in ((1, True), (666, False), (2, True)):
        sender.begin_transaction()
        send(sender, topic, number)
        if keep:
            sender.commit_transaction()
        else:
            sender.abort_transaction()
    quick = "WITH (TRIGGER '300 milliseconds')"
    pipeline.source("s", "c", topic, quick)
    pipeline.run(
        f"CREATE SOURCE {pipeline.q('all')} (id BIGINT) IN CLUSTER {pipeline.q('main')} FROM KAFKA "
        f"CONNECTION {pipeline.q('c')} (TOPIC '{topic}', ISOLATION LEVEL 'read_uncommitted') "
        f"FORMAT JSON {quick}"
    )
    pipeline.start(unsafe=True)
    pipeline.until(lambda: pipeline.ids("s") == Counter([1, 2]), "the committed records")
    pipeline.until(lambda: pipeline.ids("all") == Counter([1, 666, 2]), "all records")
    pipeline.until(lambda: shown(pipeline, "s")["lag"] == 0, "no lag")

    hanging = producer(pipeline, "two")
    hanging.begin_transaction()
    send(hanging, topic, 7)
    pipeline.kafka.produce(topic, ['{"id": 8}'], partition=0)
    pipeline.until(lambda: shown(pipeline, "s")["lag"] == 2, "records behind the transaction")
    assert shown(pipeline, "s")["open_records"] == 2
    pipeline.until(lambda: pipeline.ids("all") == Counter([1, 666, 2, 7, 8]), "all records")
    assert pipeline.ids("s") == Counter([1, 2])
    assert shown(pipeline, "all")["open_records"] is None

    (moved,) = pipeline.run(
        f"EXPLAIN ALTER SOURCE {pipeline.q('s')} UNSAFE INJECT OFFSETS (TO earliest) REASON 'x'"
    )
    said = " ".join([moved.summary, *moved.notices])
    assert "at most 6 records doubled" in said
    assert UPPER_BOUNDS in said
    # with records of an open transaction read, no query can start on the level that leaves them out
    committed = f"ALTER SOURCE {pipeline.q('all')} SET (ISOLATION LEVEL = 'read_committed')"
    refused = pipeline.fails(committed, lambda: pipeline.broken("all"))
    assert isinstance(refused, AlterRolledBack)
    open_from = (
        rf"source {pipeline.q('all')} has read records of a transaction that is not ended"
        rf" \(OPEN_TRANSACTION\): it is open from topic {topic}, partition 0, offset \d+, by"
        rf" producer \d+ \(transactional.id {pipeline.name}-two\)"
    )
    assert re.search(open_from, refused.message)
    assert "made no progress" not in refused.message
    assert f"kafka-transactions.sh abort --topic {topic} --partition 0" in refused.message
    pipeline.until(lambda: shown(pipeline, "all")["state"] == "running", "the old level")

    # an ALTER that no trial can roll back: the source waits, for it has read too far
    pipeline.stop()
    pipeline.run(committed)
    pipeline.start(unsafe=True)
    pipeline.until(
        lambda: re.search(open_from, shown(pipeline, "all")["error"] or "") is not None,
        "what it waits for",
    )
    # another ALTER starts it again: it was sick before, of the same cause
    pipeline.run(
        f"ALTER CONNECTION {pipeline.q('c')} SET (kafka.client.id = 'renamed')"
    )
    assert re.search(open_from, shown(pipeline, "all")["error"] or "")

    hanging.commit_transaction()
    pipeline.until(lambda: pipeline.ids("s") == Counter([1, 2, 7, 8]), "what was committed")
    pipeline.until(lambda: shown(pipeline, "s")["lag"] == 0, "no lag")
    assert shown(pipeline, "s")["open_records"] == 0
    sender.begin_transaction()
    send(sender, topic, 667)
    sender.abort_transaction()
    pipeline.kafka.produce(topic, ['{"id": 9}'], partition=0)
    pipeline.clock.skip(60)  # its back-off
    pipeline.until(lambda: pipeline.ids("all")[9] == 1, "what came after the ALTER")
    assert pipeline.ids("all") == Counter([1, 666, 2, 7, 8, 9])
