"""An ALTER CONNECTION that goes wrong half-way, for good, twice at once, or without any data."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import AlterFailed, AlterSetBack, CatalogMigrateError, CommitConflict

from .conftest import once

if TYPE_CHECKING:
    from catalog_migrate.streams.execute import Result

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]

DEAD = "SET (BROKER '127.0.0.1:1') WITH (VALIDATE = false)"


def options(pipeline: Pipeline, connection: str) -> str:
    """A connection as it is now."""
    return pipeline.run(f"SHOW CREATE CONNECTION {pipeline.q(connection)}")[0].summary


def test_one_has_committed_when_another_fails(pipeline: Pipeline, kafka: Any) -> None:
    """The new user may read one topic and not the other: both end on the old one, nothing lost.

    The first source has committed batches as the new user by then, so its checkpoint stays; the
    other one gets its snapshot back.
    """
    pipeline.kafka_connection("c")
    pipeline.secret("theirs", kafka.users["other"])
    good, bad = pipeline.topic("good"), pipeline.topic("bad")
    out = pipeline.topic("out", 1)
    kafka.allow("other", good, "READ", "DESCRIBE")
    pipeline.source("s", "c", good)
    pipeline.source("z", "c", bad)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('z')} "
        f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{out}') FORMAT JSON"
    )
    pipeline.start()
    producer = pipeline.produce(good, bad, pause=0.2)
    pipeline.await_running(3)
    before = options(pipeline, "c")
    runs = pipeline.run_ids()
    arrived: dict[str, int] = {}

    def watch(line: str) -> None:
        arrived[line.rpartition(": ")[2]] = sum(pipeline.ids("s").values())

    with pytest.raises(AlterSetBack) as caught:
        pipeline.run(
            f"ALTER CONNECTION {pipeline.q('c')} SET (SASL USERNAME 'other', "
            f"SASL PASSWORD SECRET {pipeline.q('theirs')}) WITH (VALIDATE = false)",
            limit=25.0, on_progress=watch,
        )
    assert pipeline.q("z") in str(caught.value)
    assert pipeline.q("s") not in str(caught.value)
    assert options(pipeline, "c") == before
    assert not pipeline.catalog.state().holds
    after = pipeline.run_ids()
    assert all(after[name] != runs[name] for name in runs)
    producer.stop()
    pipeline.producers.clear()
    assert arrived["started"] < arrived["setting back"]
    for source, topic in (("s", good), ("z", bad)):
        sent = once(producer.sent[topic])
        pipeline.until(lambda source=source, sent=sent: pipeline.ids(source) == sent, source)
    pipeline.until(lambda: pipeline.kafka_ids(out) == once(producer.sent[bad]), "the sink")


def test_the_old_broker_is_dead_too(pipeline: Pipeline, kafka: Any) -> None:
    """Nowhere to go back to: the operation failed (exit 6), the old definition is in force, and
    the queries are tried again until their broker is back."""
    pipeline.kafka_connection("c")
    topic, out = pipeline.topic("t"), pipeline.topic("o", 1)
    pipeline.source("s", "c", topic)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
        f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{out}') FORMAT JSON"
    )
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(20)])
    pipeline.start()
    pipeline.await_running(2)
    pipeline.until(lambda: pipeline.ids("s") == once(20), "the first rows")
    before = options(pipeline, "c")
    kafka.stop()
    try:
        with pytest.raises(AlterFailed) as caught:
            pipeline.run(f"ALTER CONNECTION {pipeline.q('c')} {DEAD}", limit=8.0)
        assert caught.value.exit_code == 6
        assert options(pipeline, "c") == before
        (row,) = (row for row in pipeline.catalog.state().operations.values()
                  if row.kind == "alter")
        assert row.state == "failed"
        assert not pipeline.catalog.state().holds
        supervisor = pipeline.runtime.supervisor  # type: ignore[union-attr]
        assert supervisor is not None
        source = supervisor.managed[pipeline.id("s")]
        failures = source.restarts
        pipeline.until(lambda: source.restarts > failures, "another try")
        assert source.error is not None
    finally:
        kafka.start()
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(20, 40)])
    pipeline.until(lambda: pipeline.ids("s") == once(40), "the source")
    pipeline.until(lambda: pipeline.kafka_ids(out) == once(40), "the sink")


def test_two_at_once(pipeline: Pipeline, kafka: Any) -> None:
    """Of two ALTERs at one time one is carried out, the other gets SQLSTATE 40001 and is not."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t")
    pipeline.source("s", "c", topic)
    pipeline.start()
    pipeline.await_running(1)
    both = threading.Barrier(2)
    done: dict[str, list[Result] | CatalogMigrateError] = {}

    def alter(client_id: str) -> None:
        both.wait()
        try:
            done[client_id] = pipeline.run(
                f"ALTER CONNECTION {pipeline.q('c')} SET (kafka.client.id '{client_id}')"
            )
        except CatalogMigrateError as error:
            done[client_id] = error

    threads = [threading.Thread(target=alter, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (name for name, result in done.items() if isinstance(result, list))
    (loser,) = (error for error in done.values() if isinstance(error, CatalogMigrateError))
    assert isinstance(loser, CommitConflict)
    assert loser.sqlstate == "40001"
    assert loser.remedy
    now = options(pipeline, "c")
    assert f"'{winner}'" in now
    assert ("'one'" in now) != ("'two'" in now)


def test_idle_queries_on_a_dead_broker(pipeline: Pipeline, kafka: Any) -> None:
    """Progress alone proves nothing: an idle sink is set back, though its query reports progress.

    Its source is on another connection and does not restart.
    """
    pipeline.kafka_connection("c")
    pipeline.kafka_connection("d")
    topic, out = pipeline.topic("t"), pipeline.topic("o", 1)
    pipeline.source("s", "c", topic)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
        f"INTO KAFKA CONNECTION {pipeline.q('d')} (TOPIC '{out}') FORMAT JSON"
    )
    pipeline.start()
    pipeline.await_running(2)
    before, runs = options(pipeline, "d"), pipeline.run_ids()
    with pytest.raises(AlterSetBack) as caught:
        pipeline.run(f"ALTER CONNECTION {pipeline.q('d')} {DEAD}", limit=15.0)
    assert pipeline.q("k") in str(caught.value)
    assert options(pipeline, "d") == before
    after = pipeline.run_ids()
    assert after[pipeline.q("s")] == runs[pipeline.q("s")]
    assert after[pipeline.q("k")] != runs[pipeline.q("k")]
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(7)])
    pipeline.until(lambda: pipeline.kafka_ids(out) == once(7), "rows of the idle sink")


def test_a_sink_waits_for_its_sources_topics(pipeline: Pipeline, kafka: Any) -> None:
    """An ALTER does not start a sink whose source was paused before its first start.

    The sink would not know the ids of the topics yet: its row keys would name them, and the same
    rows would have other keys after its next start.
    """
    pipeline.kafka_connection("c")
    topic, out = pipeline.topic("t"), pipeline.topic("o", 1)
    pipeline.source("s", "c", topic)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
        f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{out}') FORMAT JSON; "
        f"PAUSE SOURCE {pipeline.q('s')}"
    )
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(5)])
    pipeline.start()
    pipeline.run(f"ALTER CONNECTION {pipeline.q('c')} SET (kafka.client.id 'x')")
    assert not any(pipeline.run_ids().values())
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    pipeline.until(lambda: pipeline.kafka_ids(out) == once(5), "the rows")
    keys = {dict(record.headers)["catalog_migrate.row"] for record in kafka.consume_all(out)}
    topic_id = kafka.topic_id(topic).encode()
    assert {key.rpartition(b"/")[0].rpartition(b"/")[0] for key in keys} == {topic_id}


def test_another_cluster_that_nobody_validated(
    pipeline: Pipeline, kafka: Any, kafka_other: Any
) -> None:
    """A cluster with a topic of the same name: set back by the ids, and no hold is left behind."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t")
    pipeline.source("s", "c", topic)
    kafka_other.create_topic(topic, 2)
    kafka_other.allow("app", topic, "READ", "DESCRIBE")
    kafka_other.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(500, 600)])
    pipeline.start()
    pipeline.await_running(1)
    before = options(pipeline, "c")
    with pytest.raises(AlterSetBack) as caught:
        pipeline.run(
            f"ALTER CONNECTION {pipeline.q('c')} SET (BROKER '{kafka_other.bootstrap}') "
            "WITH (VALIDATE = false)", limit=15.0,
        )
    assert "belongs to cluster" in str(caught.value)
    assert options(pipeline, "c") == before
    assert not pipeline.catalog.state().holds
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(30)])
    pipeline.until(lambda: pipeline.ids("s") == once(30), "the rows of its own cluster")
