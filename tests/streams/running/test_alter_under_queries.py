"""ALTER CONNECTION under running queries: who restarts, and that no row is lost or doubled."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import AlterSetBack, CatalogMigrateError, ValidationFailed
from catalog_migrate.streams import wiring
from catalog_migrate.streams.supervisor import Supervisor

from .conftest import once

if TYPE_CHECKING:
    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]


def two_branches(pipeline: Pipeline) -> dict[str, str]:
    """3 sources and 3 sinks on ``c``, 2 of each on ``d``; returns the topics by name."""
    pipeline.kafka_connection("c")
    pipeline.kafka_connection("d")
    topics = {name: pipeline.topic(name) for name in ("t1", "t2", "t3", "u1", "u2")}
    outs = {name: pipeline.topic(name, 1) for name in ("o1", "o2", "o3", "p1", "p2")}
    for connection, names in (("c", ("1", "2", "3")), ("d", ("1", "2"))):
        letter, out = ("t", "o") if connection == "c" else ("u", "p")
        for number in names:
            pipeline.source(f"s{letter}{number}", connection, topics[f"{letter}{number}"],
                            "WITH (TRIGGER '2 seconds')")
            pipeline.run(
                f"CREATE SINK {pipeline.q(f'k{letter}{number}')} IN CLUSTER {pipeline.q('main')} "
                f"FROM {pipeline.q(f's{letter}{number}')} INTO KAFKA CONNECTION "
                f"{pipeline.q(connection)} (TOPIC '{outs[f'{out}{number}']}') KEY (id) FORMAT JSON "
                "WITH (TRIGGER '2 seconds')"
            )
    return {**topics, **outs}


def test_rotation_and_move(pipeline: Pipeline, kafka: Any) -> None:
    """A password rotated by ALTER SECRET, then by ALTER CONNECTION, and a broker that moved.

    10 queries on two connections, producers running. Each time exactly the 6 queries of the altered
    connection restart and the other 4 keep their run ids; every record arrives once.
    """
    topics = two_branches(pipeline)
    feeding = [topics[name] for name in ("t1", "t2", "t3", "u1", "u2")]
    pipeline.start()
    producer = pipeline.produce(*feeding, pause=0.2)
    pipeline.await_running(10)
    ours = {pipeline.q(f"{kind}t{number}") for kind in "sk" for number in "123"}

    def restarted(before: dict[str, str | None]) -> set[str]:
        after = pipeline.run_ids()
        return {name for name in after if after[name] != before[name]}

    before = pipeline.run_ids()
    variable = f"{pipeline.name}_second".upper()
    pipeline.monkeypatch.setenv(variable, kafka.users["app"])
    (result,) = pipeline.run(f"ALTER SECRET {pipeline.q('pw')} AS 'env:{variable}'")
    # both connections use the secret: all ten restart
    assert restarted(before) == set(before)
    assert len(result.restarted) == 10

    pipeline.secret("third", kafka.users["app"])
    before = pipeline.run_ids()
    (result,) = pipeline.run(
        f"ALTER CONNECTION {pipeline.q('c')} SET (SASL PASSWORD SECRET {pipeline.q('third')})"
    )
    assert set(result.restarted) == ours
    assert restarted(before) == ours

    producer.stop()
    pipeline.producers.remove(producer)
    counts = producer.sent
    for name in ("t1", "t2", "t3"):
        pipeline.until(lambda name=name: pipeline.ids(f"s{name}") == once(counts[topics[name]]),
                       f"all rows of {name}")
        out = topics[name.replace("t", "o")]
        pipeline.until(lambda out=out, name=name: pipeline.kafka_ids(out)
                       == once(counts[topics[name]]), f"all rows of {out}")
    for name in ("u1", "u2"):
        pipeline.until(lambda name=name: pipeline.ids(f"s{name}") == once(counts[topics[name]]),
                       f"all rows of {name}")


def test_what_is_refused_stops_nothing(pipeline: Pipeline, kafka: Any, kafka_other: Any) -> None:
    """Validation by the runtime refuses, before anything is committed or stopped: a closed port, a
    wrong password, a topic that one dependent may not read, and a second cluster with a topic of
    the same name."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t")
    pipeline.source("s", "c", topic)
    pipeline.start()
    pipeline.produce(topic)
    pipeline.await_running(1)
    before, definition = pipeline.run_ids(), pipeline.run(
        f"SHOW CREATE CONNECTION {pipeline.q('c')}"
    )[0].summary
    pipeline.secret("wrong", "not-the-password")
    pipeline.secret("theirs", kafka.users["other"])
    kafka_other.create_topic(topic, 2)
    kafka_other.produce(topic, [(str(n), "{}") for n in range(500)])
    c = pipeline.q("c")
    refused = {
        f"ALTER CONNECTION {c} SET (BROKER '127.0.0.1:1')": "BROKER",
        f"ALTER CONNECTION {c} SET (SASL PASSWORD SECRET {pipeline.q('wrong')})": "SASL",
        f"ALTER CONNECTION {c} SET (SASL USERNAME 'other', "
        f"SASL PASSWORD SECRET {pipeline.q('theirs')})": topic,
        f"ALTER CONNECTION {c} SET (BROKER '{kafka_other.bootstrap}')": "cluster",
    }
    for statement, says in refused.items():
        with pytest.raises(ValidationFailed) as caught:
            pipeline.run(statement)
        assert says in str(caught.value)
        assert "not-the-password" not in str(caught.value)
    assert pipeline.run_ids() == before
    assert pipeline.run(f"SHOW CREATE CONNECTION {c}")[0].summary == definition


def test_set_back(pipeline: Pipeline, kafka: Any) -> None:
    """VALIDATE = false with a dead broker: within the limit all is as before, and nothing lost.

    An operator's pause from before is still there afterwards, and misses nothing.
    """
    pipeline.kafka_connection("c")
    topic, out = pipeline.topic("t"), pipeline.topic("o", 1)
    pipeline.source("s", "c", topic)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
        f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{out}') FORMAT JSON"
    )
    pipeline.start()
    producer = pipeline.produce(topic)
    pipeline.await_running(2)
    pipeline.run(f"PAUSE SINK {pipeline.q('k')} REASON 'mine'")
    before = pipeline.run(f"SHOW CREATE CONNECTION {pipeline.q('c')}")[0].summary
    with pytest.raises(AlterSetBack):
        pipeline.run(
            f"ALTER CONNECTION {pipeline.q('c')} SET (BROKER '127.0.0.1:1') "
            "WITH (VALIDATE = false)", limit=20.0,
        )
    assert pipeline.run(f"SHOW CREATE CONNECTION {pipeline.q('c')}")[0].summary == before
    holds = [(hold.holder, hold.reason) for hold in pipeline.catalog.state().holds.values()]
    assert holds == [("operator", "mine")]
    producer.stop()
    pipeline.producers.clear()
    sent = once(producer.sent[topic])
    pipeline.until(lambda: pipeline.ids("s") == sent, "the source")
    pipeline.run(f"RESUME SINK {pipeline.q('k')}")
    pipeline.until(lambda: pipeline.kafka_ids(out) == sent, "the sink")


def test_nothing_starts_before_it_is_written_down(pipeline: Pipeline) -> None:
    """The starts are made ready while it is written down that all stand still, and wait for it."""
    pipeline.kafka_connection("c")
    pipeline.source("s", "c", pipeline.topic("t"))
    pipeline.start()
    pipeline.await_running(1)
    reached, go = threading.Event(), threading.Event()
    commit = Supervisor.commit

    def held(supervisor: Supervisor, put: Any, kind: str) -> Any:
        if kind == "snapshot":
            reached.set()
            assert go.wait(60)
        return commit(supervisor, put, kind)

    pipeline.monkeypatch.setattr(Supervisor, "commit", held)
    with ThreadPoolExecutor(1) as pool:
        altering = pool.submit(
            pipeline.run, f"ALTER CONNECTION {pipeline.q('c')} SET (kafka.client.id 'x')"
        )
        try:
            assert reached.wait(60)
            managed = pipeline.runtime.supervisor.managed[pipeline.id("s")]  # type: ignore[union-attr]
            pipeline.until(lambda: managed.starting is not None, "a start that is made ready")
            time.sleep(2)
            assert managed.starting is not None
            assert not managed.starting.done()
            assert pipeline.run_ids() == {pipeline.q("s"): None}
        finally:
            go.set()
        altering.result(120)
    assert pipeline.run_ids()[pipeline.q("s")] is not None


def test_postgres_exactly_once(pipeline: Pipeline, postgres: Any) -> None:
    """A POSTGRES sink through a server that moves to another port under it: each row once."""
    pipeline.kafka_connection("c")
    pipeline.postgres_connection("pg")
    topic, table = pipeline.topic("t"), pipeline.table("orders")
    pipeline.source("s", "c", topic)
    pipeline.run(
        f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
        f"INTO POSTGRES CONNECTION {pipeline.q('pg')} (TABLE '{table}')"
    )
    pipeline.start()
    producer = pipeline.produce(topic)
    pipeline.await_running(2)
    source_before = pipeline.run_ids()[pipeline.q("s")]
    postgres.move()
    port = postgres.parameters("app", "shop")["port"]
    (result,) = pipeline.run(f"ALTER CONNECTION {pipeline.q('pg')} SET (PORT {port})")
    assert set(result.restarted) <= {pipeline.q("k")}
    assert pipeline.run_ids()[pipeline.q("s")] == source_before
    producer.stop()
    pipeline.producers.clear()
    sent = once(producer.sent[topic])
    pipeline.until(lambda: pipeline.postgres_ids(table) == sent, "the table")


def test_a_recreated_topic_is_a_hold(pipeline: Pipeline, kafka: Any) -> None:
    """A topic that is recreated under a running source, with more records, holds the source."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 1)
    pipeline.source("s", "c", topic)
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(5)])
    pipeline.start()
    pipeline.until(lambda: pipeline.ids("s") == once(5), "five rows")
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(100, 120)])

    def held() -> bool:
        return any(hold.holder == "upstream" for hold in pipeline.catalog.state().holds.values())

    pipeline.until(held, "the hold")
    (hold,) = pipeline.catalog.state().holds.values()
    assert f"topic {topic}" in hold.reason or "recreated" in hold.reason
    item = wiring.find(pipeline.catalog.state(), "source", pipeline.q("s"))
    supervisor = pipeline.runtime.supervisor  # type: ignore[union-attr]
    assert supervisor is not None
    pipeline.until(lambda: not supervisor.managed[item.item_id].active, "the query to stop")


def test_errors_are_typed(pipeline: Pipeline) -> None:
    """Nothing that is refused here is anything but an error of ours with a remedy."""
    pipeline.kafka_connection("c")
    for statement in (
        f"ALTER CONNECTION {pipeline.q('c')} SET (SASL PASSWORD SECRET nope)",
        f"DROP SECRET {pipeline.q('pw')}",
        f"CREATE SOURCE {pipeline.q('x')} FROM KAFKA CONNECTION {pipeline.q('c')} (TOPIC 'a,a') "
        "FORMAT TEXT",
    ):
        with pytest.raises(CatalogMigrateError) as caught:
            pipeline.run(statement)
        assert caught.value.code != "CM0000"
