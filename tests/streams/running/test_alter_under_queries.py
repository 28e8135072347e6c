"""ALTER CONNECTION under running queries: who restarts, and that no row is lost or doubled."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import AlterSetBack, CatalogMigrateError, ValidationFailed
from catalog_migrate.streams.runtime import POLL_UPSTREAM
from catalog_migrate.streams.supervisor import Supervisor

from .conftest import once

if TYPE_CHECKING:
    from .conftest import Pipeline, Standing

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


@pytest.mark.soak
def test_rotation_of_ten(pipeline: Pipeline, kafka: Any) -> None:
    """A password rotated by ALTER SECRET, then by ALTER CONNECTION.

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


def test_rotation(standing: Standing, kafka: Any) -> None:
    """A password rotated by ALTER SECRET, then by ALTER CONNECTION, producers running.

    Each time exactly the queries of what was altered restart and the others keep their run ids;
    every record arrives once.
    """
    standing.produce(standing.topics["s"], standing.topics["z"], pause=0.2)

    def restarted(before: dict[str, str | None]) -> set[str]:
        after = standing.run_ids_of(standing.NAMES)
        return {name for name in after if after[name] != before[name]}

    before = standing.run_ids_of(standing.NAMES)
    variable = f"{standing.name}_second".upper()
    standing.monkeypatch.setenv(variable, kafka.users["app"])
    (result,) = standing.run(f"ALTER SECRET {standing.q('pw')} AS 'env:{variable}'")
    # all connections use the secret: all restart, and what waits for a paused source is named too
    assert restarted(before) == set(before)
    assert set(result.restarted) == {standing.q(name) for name in (*standing.NAMES, "x")}

    standing.secret("third", kafka.users["app"])
    before = standing.run_ids_of(standing.NAMES)
    (result,) = standing.run(
        f"ALTER CONNECTION {standing.q('c')} SET (SASL PASSWORD SECRET {standing.q('third')})"
    )
    assert set(result.restarted) == {standing.q(name) for name in standing.BELOW_C}
    assert restarted(before) == set(standing.BELOW_C)
    standing.require_all_once()


def test_what_is_refused_stops_nothing(standing: Standing, kafka: Any, kafka_other: Any) -> None:
    """Validation by the runtime refuses, before anything is committed or stopped: a closed port, a
    wrong password, a topic that one dependent may not read, and a second cluster with a topic of
    the same name."""
    topic = standing.topics["s"]
    standing.produce(topic, pause=0.2)
    before, definition = standing.run_ids_of(standing.NAMES), standing.options("c")
    standing.secret("wrong", "not-the-password")
    standing.secret("theirs", kafka.users["other"])
    for each in (topic, standing.topics["z"]):
        kafka_other.create_topic(each, 2)
        kafka_other.produce(each, [(str(n), "{}") for n in range(500)])
    c = standing.q("c")
    refused = {
        f"ALTER CONNECTION {c} SET (BROKER '127.0.0.1:1')": "BROKER",
        f"ALTER CONNECTION {c} SET (SASL PASSWORD SECRET {standing.q('wrong')})": "SASL",
        f"ALTER CONNECTION {c} SET (SASL USERNAME 'other', "
        f"SASL PASSWORD SECRET {standing.q('theirs')})": topic,
        f"ALTER CONNECTION {c} SET (BROKER '{kafka_other.bootstrap}')": "cluster",
    }
    for statement, says in refused.items():
        with pytest.raises(ValidationFailed) as caught:
            standing.run(statement)
        assert says in str(caught.value)
        assert "not-the-password" not in str(caught.value)
    assert standing.run_ids_of(standing.NAMES) == before
    assert standing.options("c") == definition


def test_set_back(standing: Standing) -> None:
    """VALIDATE = false with a dead broker: after the limit all is as before, and nothing lost.

    An operator's pause from before is still there afterwards, and misses nothing.
    """
    standing.produce(standing.topics["s"], standing.topics["z"], pause=0.2)
    standing.run(f"PAUSE SINK {standing.q('k')} REASON 'mine'")
    before = standing.options("c")
    error = standing.fails(
        f"ALTER CONNECTION {standing.q('c')} SET (BROKER '127.0.0.1:1') WITH (VALIDATE = false)",
        lambda: standing.broken("s", "z"),
    )
    assert isinstance(error, AlterSetBack)
    assert standing.options("c") == before
    assert standing.holds() == [("operator", "mine")]
    standing.stop_producing()
    for name in "sz":
        sent = once(standing.sent[standing.topics[name]])
        standing.until(lambda name=name, sent=sent: standing.ids(name) == sent, "the source")
    standing.run(f"RESUME SINK {standing.q('k')}")
    standing.require_all_once()


def test_nothing_starts_before_it_is_written_down(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The starts are made ready while it is written down that all stand still, and wait for it."""
    reached, go = threading.Event(), threading.Event()
    commit = Supervisor.commit

    def held(supervisor: Supervisor, put: Any, kind: str, reason: str | None = None) -> Any:
        if kind == "snapshot":
            reached.set()
            assert go.wait(60)
        return commit(supervisor, put, kind, reason)

    monkeypatch.setattr(Supervisor, "commit", held)
    with ThreadPoolExecutor(1) as pool:
        altering = pool.submit(
            standing.run, f"ALTER CONNECTION {standing.q('c')} SET (kafka.client.id 'x')"
        )
        try:
            assert reached.wait(60)
            managed = standing.runtime.supervisor.managed[standing.id("s")]  # type: ignore[union-attr]
            standing.until(lambda: managed.starting is not None, "a start that is made ready")
            time.sleep(2)
            assert managed.starting is not None
            assert not managed.starting.done()
            assert standing.run_ids_of("szk") == {"s": None, "z": None, "k": None}
        finally:
            go.set()
        altering.result(120)
    assert all(standing.run_ids_of("szk").values())


def test_postgres_exactly_once(standing: Standing, postgres: Any) -> None:
    """A POSTGRES sink through a server that moves to another port under it: each row once."""
    table = standing.table("orders")
    standing.postgres_connection("pg")
    standing.run(
        f"CREATE SINK {standing.q('p')} IN CLUSTER {standing.q('main')} FROM {standing.q('s')} "
        f"INTO POSTGRES CONNECTION {standing.q('pg')} (TABLE '{table}')"
    )
    standing.await_running_of("p")
    standing.produce(standing.topics["s"], pause=0.2)
    before = standing.run_ids_of(standing.NAMES)
    postgres.move()
    port = postgres.parameters("app", "shop")["port"]
    (result,) = standing.run(f"ALTER CONNECTION {standing.q('pg')} SET (PORT {port})")
    assert set(result.restarted) <= {standing.q("p")}
    assert standing.run_ids_of(standing.NAMES) == before
    standing.stop_producing()
    sent = once(standing.sent[standing.topics["s"]])
    standing.until(lambda: standing.postgres_ids(table) == sent, "the table")
    standing.run(f"DROP SINK {standing.q('p')}")


def test_a_recreated_topic_is_a_hold(standing: Standing, kafka: Any) -> None:
    """A topic that is recreated under a running source, with more records, holds the source."""
    topic = standing.topic("r", 1)
    standing.source("r", "c", topic)
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(5)])
    standing.until(lambda: standing.ids("r") == once(5), "five rows")
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(100, 120)])
    standing.clock.skip(POLL_UPSTREAM)
    standing.until(lambda: [holder for holder, _ in standing.holds()] == ["upstream"], "the hold")
    ((_, reason),) = standing.holds()
    assert f"topic {topic}" in reason or "recreated" in reason
    item_id = standing.id("r")
    supervisor = standing.runtime.supervisor  # type: ignore[union-attr]
    assert supervisor is not None
    standing.until(lambda: not supervisor.managed[item_id].active, "the query to stop")
    standing.run(f"DROP SOURCE {standing.q('r')}")


def test_errors_are_typed(standing: Standing) -> None:
    """Nothing that is refused here is anything but an error of ours with a remedy."""
    for statement in (
        f"ALTER CONNECTION {standing.q('c')} SET (SASL PASSWORD SECRET nope)",
        f"DROP SECRET {standing.q('pw')}",
        f"CREATE SOURCE {standing.q('y')} FROM KAFKA CONNECTION {standing.q('c')} (TOPIC 'a,a') "
        "FORMAT TEXT",
    ):
        with pytest.raises(CatalogMigrateError) as caught:
            standing.run(statement)
        assert caught.value.code != "CM0000"
