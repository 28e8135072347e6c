"""KAFKA sinks against a real broker: every row, and repeats that a consumer can drop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.model.objects import Column

pytestmark = [pytest.mark.spark, pytest.mark.services]

POSITION = (
    Column("_topic", "STRING"), Column("_partition", "INT"), Column("_offset", "BIGINT"),
    Column("_timestamp", "TIMESTAMP"),
)  # fmt: skip
PAIR = (Column("id", "BIGINT"), Column("v", "STRING"))


def row_keys(records: list[Any]) -> list[bytes]:
    """The row header of each record."""
    return [record.header("catalog_migrate.row") for record in records]


def test_rows_of_a_kafka_source(
    workshop: Any,
    kafka: Any,
    kafka_connection: dict[str, Any],
    topic: str,
    forget_commit: Callable[..., int],
    database: dict[str, Any],
    sql: Callable[..., list[tuple[Any, ...]]],
) -> None:
    """Rows carry topic id, partition and offset: after a lost commit repeats can be told apart.

    In PostgreSQL the last offset of rows with one key stands, and positions stay out.
    """
    columns = PAIR + POSITION
    shard = workshop.shard("orders", columns)
    at = "TIMESTAMP'2026-01-02 03:04:05Z'"
    workshop.insert(
        shard, f"(1, 'new', 'in', 0, 9, {at}), (1, 'old', 'in', 0, 8, {at}), "
        f"(2, NULL, 'in', 1, 7, {at})",
    )  # fmt: skip
    spec = workshop.sink(
        "KAFKA", kafka_connection, (shard, columns), {"TOPIC": topic}, key=("id",),
        topic_ids={"in": "ID-OF-IN"},
    )  # fmt: skip
    sql("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    upsert = workshop.sink(
        "POSTGRES", database, (shard, columns), {"TABLE": "t"}, key=("id",),
        topic_ids={"in": "ID-OF-IN"},
    )  # fmt: skip
    into_postgres = workshop.start(upsert)
    workshop.run(spec, rows=3)
    sent = kafka.consume_all(topic)
    assert sorted((r.key, json.loads(r.value)["v"] or "") for r in sent) == [
        (b"1", "new"), (b"1", "old"), (b"2", ""),
    ]  # fmt: skip
    assert {json.loads(r.value)["id"] for r in sent if r.key == b"1"} == {1}
    assert [json.loads(r.value) for r in sent if r.key == b"2"] == [{"id": 2, "v": None}]
    assert sorted(row_keys(sent)) == [b"ID-OF-IN/0/8", b"ID-OF-IN/0/9", b"ID-OF-IN/1/7"]
    assert {r.header("catalog_migrate.item") for r in sent} == {spec.item_id.encode()}
    workshop.await_rows(into_postgres, 3)
    assert into_postgres.stop(drain=120)
    assert sql("SELECT * FROM t ORDER BY id") == [(1, "new"), (2, None)]

    assert workshop.queries.last_batch(spec, "any") == {}
    forget_commit(spec)
    workshop.insert(shard, f"(3, 'c', 'in', 0, 6, {at})")
    workshop.run(spec, rows=4)
    sent = kafka.consume_all(topic)
    assert len(sent) == 7
    kept = {record.header("catalog_migrate.row"): record for record in sent}
    assert sorted(json.loads(record.value)["id"] for record in kept.values()) == [1, 1, 2, 3]


def test_rows_of_a_table(
    workshop: Any,
    kafka: Any,
    kafka_connection: dict[str, Any],
    topic: str,
    forget_commit: Callable[..., int],
) -> None:
    """Equal rows are different rows: they are numbered, and the same when the batch is repeated.

    An UPDATE of what a sink reads stops it; ``on_change = 'skip'`` passes over it.
    """
    columns = (*PAIR, Column("bag", "MAP<STRING, INT>"), Column("raw", "BINARY"))
    shard = workshop.shard("table", columns)
    workshop.insert(
        shard, "(1, 'a', map('k', 1), X'00'), (1, 'a', map('k', 1), X'00'), (2, 'b', NULL, NULL)"
    )
    kafka.create_topic(f"{topic}-skips")
    spec = workshop.sink(
        "KAFKA", kafka_connection, (shard, columns), {"TOPIC": topic}, key=("id", "v")
    )
    skips = workshop.sink(
        "KAFKA", kafka_connection, (shard, columns), {"TOPIC": f"{topic}-skips"},
        settings={"ON_CHANGE": "skip"},
    )  # fmt: skip
    skipping = workshop.start(skips)
    workshop.run(spec, rows=3)
    first = kafka.consume_all(topic)
    assert sorted(r.key for r in first) == [
        b'{"id":1,"v":"a"}', b'{"id":1,"v":"a"}', b'{"id":2,"v":"b"}',
    ]  # fmt: skip
    keys = row_keys(first)
    assert len(set(keys)) == 3
    assert sorted(key.split(b"/")[1:] for key in keys) == [
        [b"0", b"1"], [b"0", b"1"], [b"0", b"2"],
    ]  # fmt: skip
    forget_commit(spec)
    workshop.queries.finish_batch(spec, timeout=120)
    repeated = kafka.consume_all(topic)
    assert len(repeated) == 6
    assert sorted(set(row_keys(repeated))) == sorted(keys)

    workshop.await_rows(skipping, 3)
    assert skipping.stop(drain=120)
    workshop.spark.sql(f"UPDATE delta.`{shard}` SET v = 'b'")
    workshop.insert(shard, "(3, 'c', NULL, NULL)")
    stopped = workshop.start(spec)
    workshop.run(skips, rows=1)
    values = [json.loads(record.value) for record in kafka.consume_all(f"{topic}-skips")]
    assert sorted(value["id"] for value in values) == [1, 1, 2, 3]
    failure = workshop.await_failure(stopped)
    assert failure.condition == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    assert len(kafka.consume_all(topic)) == 6


def test_stop_while_the_broker_is_dead(
    workshop: Any, kafka: Any, kafka_connection: dict[str, Any], topic: str
) -> None:
    """A batch that waits for a dead broker is broken off, and sent when the broker is right."""
    shard = workshop.shard("table", PAIR)
    workshop.insert(shard, "(1, 'a'), (2, 'b')")
    dead = {**kafka_connection, "BROKER": "127.0.0.1:1"}
    spec = workshop.sink("KAFKA", dead, (shard, PAIR), {"TOPIC": topic})
    query = workshop.start(spec)
    deadline = time.monotonic() + 120
    while not (Path(spec.checkpoint) / "offsets" / "0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not query.stop(drain=0.3)
    assert (query.active, query.failure()) == (False, None)
    workshop.run(replace(spec, connection=kafka_connection), rows=2)
    assert sorted(json.loads(record.value)["id"] for record in kafka.consume_all(topic)) == [1, 2]
