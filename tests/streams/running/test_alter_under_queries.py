"""ALTER CONNECTION under running queries: who restarts, and that no row is lost or doubled.

Also one that goes wrong half-way, for good, twice at once, or without any data.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import (
    AlterFailed,
    AlterRolledBack,
    CatalogMigrateError,
    CommitConflict,
    UnsafeRefused,
    ValidationFailed,
)
from catalog_migrate.operations.kinds import ROLLING_BACK, STARTED
from catalog_migrate.streams.runtime.runtime import POLL_UPSTREAM
from catalog_migrate.streams.runtime.supervisor import LONGEST_BACK_OFF, Supervisor

from .conftest import PATIENCE, once

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from catalog_migrate.catalog.commits import Commit
    from catalog_migrate.streams.ddl.execute import Result

    from .conftest import Pipeline, Standing

pytestmark = [pytest.mark.spark, pytest.mark.services]

DEAD = "SET (BROKER '127.0.0.1:1') WITH (VALIDATE = false)"


def two_branches(pipeline: Pipeline) -> dict[str, str]:
    """3 sources and 3 sinks on ``c``, which uses ``base``, 2 of each on ``d``; the topics by name.
    """
    pipeline.kafka_connection("base")
    pipeline.run(
        f"CREATE CONNECTION {pipeline.q('c')} TO KAFKA (USING CONNECTION {pipeline.q('base')})"
    )
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
    """A password rotated by ALTER SECRET, then by ALTER of the connection below the connection.

    The steps of its EXPLAIN are the executed ones, and what Spark's listener has seen. 10 queries
    on two connections, producers running. Each time exactly the 6 queries of the altered connection
    restart and the other 4 keep their run ids; every record arrives once.
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
    secret = f"(SASL PASSWORD SECRET {pipeline.q('third')})"
    alter = f"ALTER CONNECTION {pipeline.q('base')} SET {secret}"
    (explained,) = pipeline.run(f"EXPLAIN {alter}")
    with seen_by_spark(pipeline) as seen:
        (result,) = pipeline.run(alter)
        pipeline.until(lambda: len(seen) >= 2 * len(ours), "what the listener has to say")
    require_same_program(explained, result, seen)
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


@contextmanager
def seen_by_spark(pipeline: Pipeline) -> Iterator[list[tuple[str, str]]]:
    """What Spark's own listener hears: ``start`` or ``stop`` and the name of the query.

    The end of a query that a test before this one dropped may be heard late, and is left out.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    seen: list[tuple[str, str]] = []
    assert pipeline.runtime is not None
    assert pipeline.runtime.supervisor is not None
    runs = {run_id: name for name, run_id in pipeline.run_ids().items()}
    dropped = set(pipeline.runtime.supervisor.managed) - set(pipeline.catalog.state().items)

    class Recorder(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            seen.append(("start", event.name.rpartition(" ")[2]))

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            if (name := runs[str(event.runId)]) not in dropped:
                seen.append(("stop", name))

    streams, recorder = pipeline.runtime.engine._spark.streams, Recorder()  # type: ignore[attr-defined]
    streams.addListener(recorder)
    try:
        yield seen
    finally:
        streams.removeListener(recorder)


def require_same_program(
    explained: Result, result: Result, seen: Sequence[tuple[str, str]]
) -> None:
    """The steps that were explained are those that were executed, one to one and wave by wave; and
    of what runs, the stops and starts that Spark's listener has seen, in the same order."""
    waves = {(step.op, step.name): step.wave for step in explained.steps}
    done = [(each.op, each.name) for each in result.executed]
    assert sorted(done) == sorted(waves)
    for some in (("stop", "settle"), ("start",)):
        order = [waves[each] for each in done if each[0] in some]
        assert order == sorted(order)
    assert all(
        done.index(("start", name)) < done.index(("probe", name)) for op, name in done
        if op == "probe"
    )
    assert [each.outcome for each in result.executed if each.op in ("start", "probe")] == (
        ["done"] * 2 * sum(op == "start" for op, _ in waves)
    )
    for op in ("stop", "start"):
        names = [f"{'sink:' * (f'sink:{name}' in names_of(waves))}{name}"
                 for what, name in seen if what == op]
        order = [waves[op, name] for name in names]
        assert order == sorted(order), seen
        assert set(names) == {name for what, name in waves if what == "start"}, seen


def names_of(steps: Collection[tuple[str, str]]) -> set[str]:
    """The names of steps."""
    return {name for _, name in steps}


def test_rotation(
    standing: Standing, kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password rotated by ALTER SECRET, then by ALTER CONNECTION, producers running.

    Each time exactly the queries of what was altered restart and the others keep their run ids;
    every record arrives once. The steps of EXPLAIN are those that were executed, and that Spark's
    listener has seen. The starts are made ready while it is written down that all stand still, and
    wait for it.
    """
    standing.produce(standing.topics["s"], standing.topics["z"], pause=0.2)

    def restarted(before: dict[str, str | None]) -> set[str]:
        after = standing.run_ids_of(standing.NAMES)
        return {name for name in after if after[name] != before[name]}

    before = standing.run_ids_of(standing.NAMES)
    variable = f"{standing.name}_second".upper()
    standing.monkeypatch.setenv(variable, kafka.users["app"])
    rotate = f"ALTER SECRET {standing.q('pw')} AS 'env:{variable}'"
    (explained,) = standing.run(f"EXPLAIN {rotate}")
    with seen_by_spark(standing) as seen:
        (result,) = standing.run(rotate)
        standing.until(lambda: len(seen) >= 2 * len(standing.NAMES), "what the listener has to say")
    require_same_program(explained, result, seen)
    # all connections use the secret: all restart, and what waits for a paused source is named too
    assert restarted(before) == set(before)
    assert set(result.restarted) == {standing.q(name) for name in (*standing.NAMES, "x")}

    standing.secret("third", kafka.users["app"])
    before = standing.run_ids_of(standing.NAMES)
    reached, go = threading.Event(), threading.Event()
    commit = Supervisor.commit

    def held(supervisor: Supervisor, wanted: Commit) -> Any:
        if wanted.kind == "snapshot":
            reached.set()
            assert go.wait(PATIENCE)
        return commit(supervisor, wanted)

    monkeypatch.setattr(Supervisor, "commit", held)
    with ThreadPoolExecutor(1) as pool:
        altering = pool.submit(
            standing.run,
            f"ALTER CONNECTION {standing.q('c')} SET (SASL PASSWORD SECRET {standing.q('third')})",
        )
        try:
            assert reached.wait(PATIENCE)
            managed = standing.runtime.supervisor.managed[standing.id("s")]  # type: ignore[union-attr]
            standing.until(lambda: managed.starting is not None, "a start that is made ready")
            time.sleep(0.5)
            assert managed.starting is not None
            assert not managed.starting.done()
            assert standing.run_ids_of(standing.BELOW_C) == {"s": None, "z": None, "k": None}
        finally:
            go.set()
        (result,) = altering.result(PATIENCE)
    monkeypatch.undo()
    assert set(result.restarted) == {standing.q(name) for name in standing.BELOW_C}
    assert restarted(before) == set(standing.BELOW_C)
    standing.require_all_once()


def test_what_is_refused_stops_nothing(standing: Standing, kafka: Any) -> None:
    """Validation by the runtime refuses, before anything is committed or stopped: a closed port, a
    wrong password, a topic that one dependent may not read. Nor is an unsafe operation done here.
    """
    topic = standing.topics["s"]
    standing.produce(topic, pause=0.2)
    before, definition = standing.run_ids_of(standing.NAMES), standing.options("c")
    standing.secret("wrong", "not-the-password")
    standing.secret("theirs", kafka.users["other"])
    c = standing.q("c")
    refused = {
        f"ALTER CONNECTION {c} SET (BROKER '127.0.0.1:1')": "BROKER",
        f"ALTER CONNECTION {c} SET (SASL PASSWORD SECRET {standing.q('wrong')})": "SASL",
        f"ALTER CONNECTION {c} SET (SASL USERNAME 'other', "
        f"SASL PASSWORD SECRET {standing.q('theirs')})": standing.topics["z"],
    }
    for statement, says in refused.items():
        with pytest.raises(ValidationFailed) as caught:
            standing.run(statement)
        assert says in str(caught.value)
        assert "not-the-password" not in str(caught.value)
    for statement in (
        f"ALTER CONNECTION {standing.q('c')} SET (SASL PASSWORD SECRET nope)",
        f"DROP SECRET {standing.q('pw')}",
        f"CREATE SOURCE {standing.q('y')} FROM KAFKA CONNECTION {standing.q('c')} (TOPIC 'a,a') "
        "FORMAT TEXT",
    ):
        with pytest.raises(CatalogMigrateError) as caught:
            standing.run(statement)
        assert caught.value.code != "CM0000"
    with pytest.raises(UnsafeRefused, match="enable_unsafe_ops"):
        standing.run(
            f"ALTER SOURCE {standing.q('s')} UNSAFE INJECT OFFSETS ('{topic}:0' = 6) REASON 'test'",
            confirm=lambda _: True,
        )
    assert standing.run_ids_of(standing.NAMES) == before
    assert standing.options("c") == definition


def test_a_sick_source_does_not_keep_the_others(standing: Standing, kafka: Any) -> None:
    """A source whose topic is missing, and one that fails of a record, are named and not waited
    for, while the healthy query follows; one that only the new user may not read refuses, with
    the statement that goes on without it."""
    d, good, gone = standing.q("d"), standing.topic("good", 1), f"{standing.name}-never-made"
    poisoned = standing.topic("poisoned", 1)
    for user in ("app", "other"):
        kafka.allow(user, gone, "READ", "DESCRIBE")
        for topic in (poisoned, standing.outs["d"]):
            kafka.allow(user, topic, "READ", "WRITE", "DESCRIBE")
    standing.source("good", "d", good)
    standing.source("gone", "d", gone)
    standing.source("poisoned", "d", poisoned, "ON ERROR FAIL")
    kafka.produce(poisoned, [("a", "no json")])
    standing.await_running_of(["good"])
    standing.until(lambda: standing.broken("gone", "poisoned"), "two that fail")
    runs = standing.run_ids_of(["d", "good"])
    standing.secret("others", kafka.users["other"])
    other = f"SET (SASL USERNAME 'other', SASL PASSWORD SECRET {standing.q('others')})"
    with pytest.raises(ValidationFailed) as caught:
        standing.run(f"ALTER CONNECTION {d} {other}")
    (said,) = map(str, caught.value.findings)
    assert said.startswith(f"source {standing.q('good')}, option TOPIC: this user may not see")
    pause = f"PAUSE SOURCE {standing.q('good')}"
    assert f"{pause}; then the statement again" in (caught.value.remedy or "")
    assert standing.run_ids_of(["d", "good"]) == runs
    kafka.allow("other", good, "READ", "DESCRIBE")
    (result,) = standing.run(f"ALTER CONNECTION {d} {other}")
    sick = [each for each in result.notices if each.startswith("sick before, and not waited for: ")]
    assert len(sick) == 2
    assert f"source {standing.q('gone')}, option TOPIC: there is no topic {gone}" in " ".join(sick)
    assert f"source {standing.q('poisoned')}: " in " ".join(sick)
    after = standing.run_ids_of(["d", "good"])
    assert all(after[name] != run_id for name, run_id in runs.items())
    kafka.produce(good, [("1", '{"id": 0}')])
    standing.until(lambda: standing.ids("good") == once(1), "a record as the new user")
    standing.run(f"ALTER CONNECTION {d} SET (SASL USERNAME 'app', SASL PASSWORD SECRET"
                 f" {standing.q('pw')})")
    for name in ("good", "gone", "poisoned"):
        standing.run(f"DROP SOURCE {standing.q(name)}")


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


@pytest.mark.soak
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


def test_one_has_committed_when_another_fails(standing: Standing, kafka: Any) -> None:
    """The new user may read one topic and not the other: both end on the old one, nothing lost.

    The first source has committed batches as the new user by then, so its checkpoint stays; the
    other one gets its snapshot back. An operator's pause of a sink from before is still there
    afterwards, and misses nothing.
    """
    standing.secret("theirs", kafka.users["other"])
    kafka.allow("other", standing.topics["s"], "READ", "DESCRIBE")
    standing.produce(standing.topics["s"], standing.topics["z"], pause=0.2)
    standing.run(f"PAUSE SINK {standing.q('k')} REASON 'mine'")
    standing.until(lambda: standing.run_ids_of("k") == {"k": None}, "a stopped sink")
    before = standing.options("c")
    runs = standing.run_ids_of(standing.NAMES)
    arrived: dict[str, int] = {}

    def rows() -> int:
        return standing.ids("s").total()

    def one_of_two() -> bool:
        """The first one has rows of its own start, and said so; the other one has failed."""
        return (
            rows() > arrived.get("started", 10**9) and standing.reports("s")
            and standing.broken("z")
        )

    error = standing.fails(
        f"ALTER CONNECTION {standing.q('c')} SET (SASL USERNAME 'other', "
        f"SASL PASSWORD SECRET {standing.q('theirs')}) WITH (VALIDATE = false)", one_of_two,
        on_progress=lambda line: arrived.__setitem__(line.rpartition(": ")[2], rows()),
    )
    assert isinstance(error, AlterRolledBack)
    assert standing.q("z") in str(error)
    assert standing.q("s") not in str(error)
    assert standing.options("c") == before
    assert standing.holds() == [("operator", "mine")]
    after = standing.run_ids_of(standing.NAMES)
    assert {name for name in runs if after[name] != runs[name]} == set("sz")
    assert arrived["started"] < arrived["setting back"]
    standing.stop_producing()
    for name in "sz":
        sent = once(standing.sent[standing.topics[name]])
        standing.until(lambda name=name, sent=sent: standing.ids(name) == sent, "the source")
    standing.run(f"RESUME SINK {standing.q('k')}")
    standing.require_all_once()


def test_the_old_broker_is_dead_too(standing: Standing, kafka: Any) -> None:
    """Nowhere to go back to: the operation failed (exit 6), the old definition is in force, and
    the queries are tried again until their broker is back."""
    standing.send(standing.topics["s"], 20)
    standing.require_all_once()  # else a batch under way is waited for in vain
    before = standing.options("c")
    known = set(standing.catalog.state().operations)
    kafka.stop()
    try:
        error = standing.fails(
            f"ALTER CONNECTION {standing.q('c')} {DEAD}", lambda: standing.broken("s", "z"),
            phases=(STARTED, ROLLING_BACK),
        )
        assert isinstance(error, AlterFailed)
        assert error.exit_code == 6
        assert standing.options("c") == before
        (row,) = (row for key, row in standing.catalog.state().operations.items()
                  if key not in known)
        assert row.state == "failed"
        assert not standing.holds()
        assert standing.runtime is not None
        supervisor = standing.runtime.supervisor
        assert supervisor is not None
        source = supervisor.managed[standing.id("s")]
        failures = source.restarts
        standing.until(lambda: source.restarts > failures, "another try")
        assert source.error is not None
    finally:
        kafka.start()
    for topic in standing.topics.values():
        standing.send(topic, 20)
    standing.clock.skip(LONGEST_BACK_OFF)
    standing.require_all_once()


def test_two_at_once(standing: Standing) -> None:
    """Of two ALTERs at one time one is carried out, the other gets SQLSTATE 40001 and is not."""
    both = threading.Barrier(2)
    done: dict[str, list[Result] | CatalogMigrateError] = {}

    def alter(client_id: str) -> None:
        both.wait()
        try:
            done[client_id] = standing.run(
                f"ALTER CONNECTION {standing.q('d')} SET (kafka.client.id '{client_id}')"
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
    now = standing.options("d")
    assert f"'{winner}'" in now
    assert ("'one'" in now) != ("'two'" in now)


def test_idle_queries_on_a_dead_broker(standing: Standing) -> None:
    """Progress alone proves nothing: an idle sink is set back, though its query reports progress.

    Its source is on another connection and does not restart.
    """
    before, runs = standing.options("d"), standing.run_ids_of(standing.NAMES)
    error = standing.fails(
        f"ALTER CONNECTION {standing.q('d')} {DEAD}",
        lambda: standing.reports("d") or standing.broken("d"),
    )
    assert isinstance(error, AlterRolledBack)
    assert standing.q("d") in str(error)
    assert standing.options("d") == before
    after = standing.run_ids_of(standing.NAMES)
    assert {name for name in runs if after[name] != runs[name]} == {"d"}
    standing.send(standing.topics["s"], 7)
    standing.require_all_once()


def test_a_sink_waits_for_its_sources_topics(standing: Standing, kafka: Any) -> None:
    """An ALTER does not start a sink whose source was paused before its first start.

    The sink would not know the ids of the topics yet: its row keys would name them, and the same
    rows would have other keys after its next start.
    """
    topic, out = standing.topics["w"], standing.outs["x"]
    standing.send(topic, 5)
    standing.run(f"ALTER CONNECTION {standing.q('w')} SET (kafka.client.id 'x')")
    assert standing.run_ids_of("wx") == {"w": None, "x": None}
    standing.run(f"RESUME SOURCE {standing.q('w')}")
    sent = once(standing.sent[topic])
    standing.until(lambda: standing.kafka_ids(out) == sent, "the rows")
    keys = {dict(record.headers)["catalog_migrate.row"] for record in kafka.consume_all(out)}
    topic_id = kafka.topic_id(topic).encode()
    assert {key.rpartition(b"/")[0].rpartition(b"/")[0] for key in keys} == {topic_id}
    standing.run(f"PAUSE SOURCE {standing.q('w')}")
    standing.until(lambda: standing.run_ids_of("w") == {"w": None}, "a stopped source")


@pytest.mark.soak
def test_another_cluster_that_nobody_validated(standing: Standing, kafka_other: Any) -> None:
    """A cluster with a topic of the same name: set back by the ids, and no hold is left behind."""
    for topic in (standing.topics["s"], standing.topics["z"]):
        kafka_other.create_topic(topic, 2)
        kafka_other.allow("app", topic, "READ", "DESCRIBE")
        kafka_other.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(500, 600)])
    before = standing.options("c")
    error = standing.fails(
        f"ALTER CONNECTION {standing.q('c')} SET (BROKER '{kafka_other.bootstrap}') "
        "WITH (VALIDATE = false)", lambda: standing.broken("s", "z"),
    )
    assert isinstance(error, AlterRolledBack)
    assert "belongs to cluster" in str(error)
    assert standing.options("c") == before
    assert not standing.holds()
    for topic in (standing.topics["s"], standing.topics["z"]):
        standing.send(topic, 30)
    standing.require_all_once()


def rows_of(pipeline: Pipeline, name: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table or source, read by Spark from where the catalog says they are."""
    location = pipeline.catalog.show(pipeline.q(name))["location"]
    frame = pipeline.spark.read.format("delta").load(location)
    return sorted(tuple(row) for row in frame.selectExpr(*columns.split(", ")).collect())


def test_dead_letters_and_files(standing: Standing, kafka: Any, tmp_path: Path) -> None:
    """Records that do not fit go to their table with the reason; files are read once each.

    Both also over an ALTER of their connections.
    """
    topic = standing.topic("e", 1)
    inbox = tmp_path / "inbox" / "orders"
    inbox.mkdir(parents=True)
    standing.kafka_connection("e")
    files = standing.q("files")
    standing.run(f"CREATE CONNECTION {files} TO FILES (PATH '{inbox.parent}', FORMAT 'json')")
    standing.source("e", "e", topic, f"ON ERROR INTO {standing.q('bad')}")
    standing.run(
        f"CREATE SOURCE {standing.q('f')} (id BIGINT) IN CLUSTER {standing.q('main')} FROM FILES "
        f"CONNECTION {files} (PATH 'orders')"
    )
    (inbox / "1.json").write_text('{"id": 0}\n{"id": 1}\n')
    kafka.produce(topic, [("a", '{"id": 0}'), ("b", "no json"), ("c", '{"id": "x"}'),
                          ("d", '{"id": 1}')])
    standing.until(lambda: standing.ids("e") == once(2), "the good records")
    standing.until(lambda: standing.ids("f") == once(2), "the first file")
    building = inbox.parent / "2.json"
    building.write_text(json.dumps({"id": 2}) + "\n")
    building.rename(inbox / "2.json")  # a file that is there is whole
    standing.until(lambda: standing.ids("f") == once(3), "the second file")
    bad = rows_of(standing, "bad", "_offset, CAST(value AS STRING), error IS NOT NULL")
    assert bad == [(1, "no json", True), (2, '{"id": "x"}', True)]
    before = standing.run_ids_of("ef")
    standing.run(f"ALTER CONNECTION {standing.q('e')} SET (kafka.client.id 'e')")
    standing.run(f"ALTER CONNECTION {files} SET (files.multiLine 'false')")
    (inbox / "3.json").write_text('{"id": 3}\n')
    standing.until(lambda: standing.ids("f") == once(4), "the third file after a restart")
    after = standing.run_ids_of("ef")
    assert {name for name in "ef" if after[name] != before[name]} == set("ef")
    assert standing.ids("e") == once(2)
    assert len(rows_of(standing, "bad", "_offset")) == 2
    for name in "ef":
        standing.run(f"DROP SOURCE {standing.q(name)}")
