"""KAFKA sources against a real broker: exact counts, bad records, starts, failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from catalog_migrate.connectors.secrets import Secret

pytestmark = [pytest.mark.spark, pytest.mark.services]

COLUMNS = "id BIGINT, name STRING"


def rows_of(*numbers: int) -> list[tuple[str, str]]:
    """Records of that shape, keyed by number."""
    return [(str(n), json.dumps({"id": n, "name": f"n{n}"})) for n in numbers]


def test_exactly_once_over_crashes(
    workshop: Any,
    kafka: Any,
    kafka_connection: dict[str, Any],
    topic: str,
    forget_commit: Callable[..., int],
) -> None:
    """Every record is one row, with its position, also when a commit was lost in a crash."""
    kafka.produce(topic, rows_of(*range(20)))
    spec = workshop.source(
        "KAFKA", kafka_connection, COLUMNS, {"TOPIC": topic}, format="JSON",
        include={"KEY": "k", "OFFSET": "o"}, included="k STRING, o BIGINT",
        settings={"MAX OFFSETS PER TRIGGER": "8"},
    )  # fmt: skip
    query = workshop.start(spec)
    workshop.await_rows(query, 20)
    assert query.stop(drain=120)
    progress = query.progress()
    assert (progress.total_rows, progress.lag) == (20, 0)
    assert progress.batch == forget_commit(spec)
    assert query.failure() is None
    assert workshop.queries.last_batch(spec, query.query_id) == {"shard": progress.batch}

    workshop.queries.finish_batch(spec, timeout=120)
    kafka.produce(topic, rows_of(20, 21))
    again = workshop.run(spec, rows=2)
    assert again.query_id == query.query_id
    expected = [(n, f"n{n}", str(n)) for n in range(22)]
    assert workshop.rows(spec.shard, "id, name, k") == expected
    assert workshop.rows(
        spec.shard, "count(DISTINCT _partition, _offset), count_if(o = _offset), max(_topic)"
    ) == [(22, 22, topic)]


def test_bad_records(
    workshop: Any,
    kafka: Any,
    kafka_connection: dict[str, Any],
    topic: str,
    forget_commit: Callable[..., int],
) -> None:
    """ON ERROR INTO: good rows go on, bad records are kept whole; each once, over crashes too.

    ON ERROR FAIL: the query stops and says which record; its batch leaves no row.
    """
    bad = [("b0", '{"id": "private"}'), ("b1", "{"), ("b2", None), ("b3", b"\xff")]
    kafka.produce(topic, [*rows_of(1, 2), *bad, *rows_of(3)], partition=1)
    fails = workshop.source("KAFKA", kafka_connection, COLUMNS, {"TOPIC": topic}, format="JSON")
    failing = workshop.start(fails)
    spec = workshop.source(
        "KAFKA", kafka_connection, COLUMNS, {"TOPIC": topic}, format="JSON", dead_letters=True
    )
    query = workshop.run(spec, rows=7)
    last = {"shard": 0, "dead_letters": 0}
    assert workshop.queries.last_batch(spec, query.query_id) == last
    forget_commit(spec)
    workshop.queries.finish_batch(spec, timeout=120)
    assert workshop.rows(spec.shard, "id, _offset") == [(1, 0), (2, 1), (3, 6)]
    no_fit, not_one = (
        "its value does not fit id BIGINT", "it is not one JSON object of the declared columns",
    )  # fmt: skip
    assert workshop.rows(spec.dead_letters, "_offset, _topic, key, value, error") == [
        (2, topic, b"b0", b'{"id": "private"}', no_fit),
        (3, topic, b"b1", b"{", not_one),
        (4, topic, b"b2", None, "it has no value"),
        (5, topic, b"b3", b"\xff", "it is not UTF-8"),
    ]
    failure = workshop.await_failure(failing)
    assert failure.condition == "BAD_RECORD"
    assert f"topic {topic}, partition 1, offset 2: {no_fit}" in failure.causes[-1]
    assert "private" not in repr(failure)
    assert workshop.rows(fails.shard) == []


def test_start(workshop: Any, kafka: Any, kafka_connection: dict[str, Any], topic: str) -> None:
    """START at a time reads what is younger; ``latest`` what comes after; idle ones are healthy.

    TEXT and BYTES take the value as it is; two topics are read by one source.
    """
    kafka.create_topic(f"{topic}-b")
    kafka.produce(topic, ["line one"], partition=0)
    time.sleep(0.05)
    moment = datetime.now(timezone.utc)
    time.sleep(0.05)
    kafka.produce(topic, ["line two"], partition=0)
    since = workshop.source(
        "KAFKA", kafka_connection, "line STRING",
        {"TOPIC": topic, "START": moment.isoformat(timespec="milliseconds")}, format="TEXT",
    )  # fmt: skip
    latest = workshop.source(
        "KAFKA", kafka_connection, "value BINARY",
        {"TOPIC": f"{topic},{topic}-b", "START": "latest"}, format="BYTES",
    )  # fmt: skip
    idle = workshop.start(latest)
    workshop.run(since, rows=1)
    assert workshop.rows(since.shard, "line, _offset") == [("line two", 1)]
    deadline = time.monotonic() + 120
    while (progress := idle.progress()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (progress.total_rows, progress.batch, progress.lag) == (0, 0, 0)
    kafka.produce(topic, ["line three"], partition=0)
    kafka.produce(f"{topic}-b", [("k", b"\x00\xff")])
    workshop.await_rows(idle, 2)
    assert idle.stop(drain=120)
    assert workshop.rows(latest.shard, "_topic, value") == [
        (topic, b"line three"), (f"{topic}-b", b"\x00\xff"),
    ]  # fmt: skip


FAILURES = (
    ({"SASL PASSWORD": Secret("wrong-marker-2")}, "SaslAuthenticationException"),
    ({"TOPIC": "not-there"}, "UnknownTopicOrPartitionException"),
    ({"BROKER": "127.0.0.1:1"}, "TimeoutException"),
)


def test_failures(workshop: Any, kafka_connection: dict[str, Any], topic: str) -> None:
    """A wrong password, topic or address ends the query within seconds and tells no secret."""
    running = []
    for changed, condition in FAILURES:
        connection = {**kafka_connection, **changed}
        wanted = connection.pop("TOPIC", topic)
        spec = workshop.source("KAFKA", connection, COLUMNS, {"TOPIC": wanted}, format="JSON")
        running.append((spec, workshop.start(spec), condition))
    for spec, query, condition in running:
        failure = workshop.await_failure(query)
        assert failure.condition == condition, failure
        secret = spec.connection["SASL PASSWORD"].reveal()
        assert secret not in repr(failure)
        assert secret not in repr(spec)
        explained = query._query._jsq.explainInternal(True)
        assert secret not in explained
