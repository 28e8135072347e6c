"""Unsafe operations under running queries: exactly the records that were said come again or not."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.records import ClusterRecord, UnsafeAct
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.cli.main import main
from catalog_migrate.errors import CommitConflict, UnsafeBlocked, UnsafeRefused
from catalog_migrate.hook import bootstrap
from catalog_migrate.streams import wiring
from catalog_migrate.streams.checkpoint.delta_tables import delta_batch
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.runtime import POLL_UPSTREAM
from catalog_migrate.streams.unsafe.exported import export
from catalog_migrate.streams.unsafe.history import history
from catalog_migrate.streams.unsafe.restorable import rows_at
from catalog_migrate.streams.unsafe.restore import newest_version
from catalog_migrate.streams.unsafe.undo import undo_request

from .conftest import once

if TYPE_CHECKING:
    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]


def lay_out(pipeline: Pipeline, *, sink: bool = False) -> str:
    """Source ``s`` on a topic of one partition; with ``sink`` into a topic ``o``."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 1)
    pipeline.kafka.allow("app", topic, "DESCRIBE_CONFIGS")
    pipeline.source("s", "c", topic, "WITH (TRIGGER '500 milliseconds')")
    if sink:
        pipeline.run(
            f"CREATE SINK {pipeline.q('k')} IN CLUSTER {pipeline.q('main')} FROM {pipeline.q('s')} "
            f"INTO KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{pipeline.topic('o', 1)}') KEY (id) "
            "FORMAT JSON WITH (TRIGGER '500 milliseconds')"
        )
    return topic


def send(pipeline: Pipeline, topic: str, first: int, last: int) -> None:
    pipeline.kafka.produce(
        topic, [(str(number), json.dumps({"id": number})) for number in range(first, last)],
        partition=0,
    )


def unsafe(pipeline: Pipeline, actions: str) -> Any:
    (result,) = pipeline.run(
        f"ALTER SOURCE {pipeline.q('s')} UNSAFE {actions} REASON 'test'", confirm=lambda _: True
    )
    return result


def act(pipeline: Pipeline, key: str) -> UnsafeAct:
    found = pipeline.catalog.state().operations[key].unsafe
    assert found is not None
    return found


def counted(pipeline: Pipeline, key: str) -> tuple[int | None, int | None]:
    """The actual numbers once the runtime has them."""

    def known() -> bool:
        pipeline.clock.skip(POLL_UPSTREAM)  # it counts as often as it looks at the topics
        return act(pipeline, key).actual_doubled is not None

    pipeline.until(known, "actual numbers")
    found = act(pipeline, key)
    return found.actual_doubled, found.actual_skipped


def await_rows(pipeline: Pipeline, count: int) -> None:
    """Wait until so many rows are in the table and the batch that brought them is committed.

    Spark writes a batch's rows first and its commit after that; what is planned in between counts
    from the batch before.
    """
    pipeline.until(lambda: pipeline.ids("s").total() >= count, f"{count} rows")
    newest = newest_transaction(pipeline)
    assert newest is not None
    pipeline.until(lambda: (checkpoint_of(pipeline).latest_commits or 0) >= newest, "their commit")


def await_ids(pipeline: Pipeline, wanted: Counter[int]) -> None:
    await_rows(pipeline, wanted.total())
    assert pipeline.ids("s") == wanted


def checkpoint_of(pipeline: Pipeline) -> Checkpoint:
    state = pipeline.catalog.state()
    warehouse = state.config["warehouse"].value
    return Checkpoint(f"{warehouse}/{state.streams[pipeline.id('s')].checkpoint}")


def newest_transaction(pipeline: Pipeline) -> int | None:
    """The newest batch of the source that its shard has."""
    state = pipeline.catalog.state()
    checkpoint = checkpoint_of(pipeline)
    assert checkpoint.query_id is not None
    shard = f"{state.config['warehouse'].value}/{state.items[pipeline.id('s')].shard}"
    return delta_batch(shard, checkpoint.query_id)


def test_back_and_forward(pipeline: Pipeline) -> None:
    """Four back and three forward, with a sink below: exact in Delta, absorbed by key in Kafka.

    The gate is closed at first. Batch ids and transactions go on rising, the operator's pause
    stays, and only the source is restarted.
    """
    topic = lay_out(pipeline, sink=True)
    out = f"{pipeline.name}-o"
    send(pipeline, topic, 0, 10)
    pipeline.start()
    await_ids(pipeline, once(10))
    with pytest.raises(UnsafeRefused, match="enable_unsafe_ops"):
        unsafe(pipeline, f"INJECT OFFSETS ('{topic}:0' = 6)")
    pipeline.stop()
    pipeline.start(unsafe=True)
    pipeline.await_running(2)
    runs = pipeline.run_ids()
    before = newest_transaction(pipeline)

    back = unsafe(pipeline, f"INJECT OFFSETS ('{topic}:0' = 6)")
    again = once(10) + Counter(range(6, 10))
    await_ids(pipeline, again)
    assert "4 records doubled, 0 skipped; 0 already expired" in back.notices
    pipeline.until(lambda: len(pipeline.kafka.consume_all(out)) >= 14, "14 records sent")
    assert pipeline.kafka_ids(out) == once(10)
    assert newest_transaction(pipeline) == (before or 0) + 1
    pipeline.await_running(2)
    now = pipeline.run_ids()
    assert now[pipeline.q("s")] != runs[pipeline.q("s")]
    assert now[pipeline.q("k")] == runs[pipeline.q("k")]
    assert counted(pipeline, back.operation) == (4, 0)

    pipeline.run(f"PAUSE SOURCE {pipeline.q('s')} REASON 'mine'")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    send(pipeline, topic, 10, 16)
    forward = unsafe(pipeline, "INJECT OFFSETS (TO 'shift 3')")
    assert [hold.reason for hold in pipeline.catalog.state().holds.values()] == ["mine"]
    assert pipeline.ids("s") == again
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    await_ids(pipeline, again + Counter(range(13, 16)))
    assert counted(pipeline, forward.operation) == (0, 3)

    same = pipeline.run_ids()
    assert unsafe(pipeline, "INJECT OFFSETS (TO committed)").operation is None
    assert pipeline.run_ids() == same


def test_under_a_producer(pipeline: Pipeline) -> None:
    """Five back while a producer runs: five records come twice, all others once, none is lost."""
    topic = lay_out(pipeline)
    pipeline.start(unsafe=True)
    producer = pipeline.produce(topic, pause=0.05)
    await_rows(pipeline, 20)
    key = unsafe(pipeline, "INJECT OFFSETS (TO 'shift -5')").operation
    producer.stop()
    pipeline.producers.clear()
    total = producer.sent[topic]
    await_rows(pipeline, total + 5)
    found = pipeline.ids("s")
    assert found.keys() == once(total).keys()
    assert Counter(found.values()) == Counter({2: 5, 1: total - 5})
    assert act(pipeline, key).doubled == 5
    assert counted(pipeline, key) == (5, 0)


def test_every_way_to_say_where(pipeline: Pipeline) -> None:
    """By time, by START, by a reset with a partition more, and in a move: exactly the records that
    were said come again, in the table and at the sink below, where they are repeats to a consumer,
    also those that the sink had yet to send when its source went over to another topic.
    """
    topic = lay_out(pipeline, sink=True)
    out = f"{pipeline.name}-o"
    send(pipeline, topic, 0, 6)
    times = [each.timestamp for each in pipeline.kafka.consume_all(topic)]
    pipeline.until(lambda: time.time() * 1000 > times[-1] + 1, "a later moment")
    send(pipeline, topic, 6, 10)
    late = min(each.timestamp for each in pipeline.kafka.consume_all(topic)[6:])
    moment = datetime.fromtimestamp(late / 1000, timezone.utc).isoformat(timespec="milliseconds")
    pipeline.start(unsafe=True)
    wanted = once(10)
    await_ids(pipeline, wanted)
    for target, again in (
        (f"TO 'timestamp {moment}'", range(6, 10)), ("TO 'duration PT2H'", range(10)),
        (f"'{topic}:0' = NULL", range(10)),
    ):
        pipeline.until(lambda: next_record(pipeline, topic) == 10, "the commit of the batch")
        key = unsafe(pipeline, f"INJECT OFFSETS ({target})").operation
        wanted += Counter(again)
        await_ids(pipeline, wanted)
        found = act(pipeline, key)
        assert (found.doubled, found.skipped, found.exact) == (len(again), 0, True), target

    pipeline.until(
        lambda: len(pipeline.kafka.consume_all(out)) == wanted.total(), "all rows of before sent"
    )
    pipeline.run(f"PAUSE SINK {pipeline.q('k')}")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("k")] is None, "a stopped sink")
    pipeline.kafka.add_partitions(topic, 2)
    pipeline.kafka.produce(topic, [("20", '{"id": 20}')], partition=1)
    unsafe(pipeline, "RESET SPLITS")
    wanted += once(10)
    pipeline.until(lambda: pipeline.ids("s")[20] > 0, "the new partition")
    new = pipeline.topic("n", 1)
    pipeline.kafka.allow("app", new, "DESCRIBE_CONFIGS")
    send(pipeline, new, 30, 33)
    await_ids_of(pipeline, wanted, {20})
    unsafe(pipeline, f"SET (TOPIC = '{new}'), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)")
    wanted += Counter(range(30, 33))
    await_ids_of(pipeline, wanted, {20})
    assert len(pipeline.kafka.consume_all(out)) < wanted.total()
    pipeline.run(f"RESUME SINK {pipeline.q('k')}")
    rows = pipeline.ids("s").total()
    pipeline.until(lambda: len(pipeline.kafka.consume_all(out)) >= rows, "all rows sent")
    assert len(pipeline.kafka.consume_all(out)) == rows
    assert pipeline.kafka_ids(out) == Counter([*range(10), 20, *range(30, 33)])


def next_record(pipeline: Pipeline, topic: str) -> object:
    """The next record to read of partition 0, as the checkpoint says."""
    found = export(pipeline.catalog.state(), "source", pipeline.q("s"))
    return found.positions.get(topic, {}).get("0")


def await_ids_of(pipeline: Pipeline, wanted: Counter[int], beside: set[int]) -> None:
    """As :func:`await_ids`, whatever came of the ids ``beside``.

    A running query may have found a new partition by itself before a reset reads it anew.
    """

    def found() -> Counter[int]:
        return Counter({each: n for each, n in pipeline.ids("s").items() if each not in beside})

    pipeline.until(lambda: found().total() >= wanted.total(), f"{wanted.total()} rows")
    assert found() == wanted
    assert all(0 < pipeline.ids("s")[each] <= 2 for each in beside)


def test_undone_with_its_table(pipeline: Pipeline) -> None:
    """A skip is undone with the table: every record is there once, also for the sink below.

    What the sink had sent of the rows that were taken back it sends again, as many as was said.
    """
    topic = lay_out(pipeline, sink=True)
    out = f"{pipeline.name}-o"
    send(pipeline, topic, 0, 10)
    pipeline.start(unsafe=True)
    await_ids(pipeline, once(10))
    pipeline.run(f"PAUSE SOURCE {pipeline.q('s')}")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    send(pipeline, topic, 10, 14)
    skip = unsafe(pipeline, "INJECT OFFSETS (TO latest)").operation
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    send(pipeline, topic, 14, 17)
    await_ids(pipeline, once(10) + Counter(range(14, 17)))
    pipeline.until(lambda: len(pipeline.kafka.consume_all(out)) == 13, "13 records sent")
    before = newest_transaction(pipeline)

    asked = undo_request(pipeline.catalog.state(), skip, restore_table=True)
    outcome = pipeline.catalog.unsafe().run(asked, "back", confirm=lambda _: True)
    assert outcome.row.unsafe.doubled == 3
    await_ids(pipeline, once(17))
    pipeline.until(lambda: len(pipeline.kafka.consume_all(out)) == 20, "20 records sent")
    assert pipeline.kafka_ids(out) == once(17)
    assert newest_transaction(pipeline) == (before or 0) + 1
    assert counted(pipeline, outcome.key) == (0, 0)


def test_backfill(pipeline: Pipeline) -> None:
    """The source goes on at the end at once, what it skipped comes beside it, each record once.

    A bad record is a dead letter, what has expired is listed, and undo waits.
    """
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 1)
    pipeline.source("s", "c", topic, f"ON ERROR INTO {pipeline.q('bad')}")
    send(pipeline, topic, 0, 20)
    pipeline.kafka.produce(topic, ["no json"], partition=0)
    send(pipeline, topic, 21, 40)
    pipeline.start(unsafe=True)
    await_rows(pipeline, 39)
    state = pipeline.catalog.state()
    (bad,) = (m.item_id for m in state.mappings.values() if m.name == "bad")

    def dead() -> int:
        path = f"{state.config['warehouse'].value}/{state.items[bad].shard}"
        return rows_at(path, newest_version(path) or 0)

    assert dead() == 1
    pipeline.run(f"PAUSE SOURCE {pipeline.q('s')}")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    pipeline.kafka.delete_records(topic, {0: 4})
    unsafe(pipeline, "INJECT OFFSETS (TO earliest)")
    key = unsafe(
        pipeline, "INJECT OFFSETS (TO latest) WITH (BACKFILL = true, CHUNK = 10)"
    ).operation
    pipeline.kafka.delete_records(topic, {0: 6})
    row = pipeline.catalog.state().operations[key]
    assert row.state == "backfilling"
    with pytest.raises(UnsafeBlocked, match="is reading what it skipped"):
        undo_request(pipeline.catalog.state(), key)
    with pytest.raises(CommitConflict, match="is at work on the same query"):
        unsafe(pipeline, "INJECT OFFSETS (TO earliest)")
    assert pipeline.ids("s") == Counter([*range(20), *range(21, 40)])  # it waits for the hold
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    send(pipeline, topic, 40, 45)
    pipeline.until(lambda: pipeline.catalog.state().operations[key].state == "done", "the end")
    wanted = Counter([*range(20), *range(21, 45), *range(6, 20), *range(21, 40)])
    await_ids(pipeline, wanted)
    assert dead() == 2
    row = pipeline.catalog.state().operations[key]
    assert row.detail["backfill"] == "36 records in 4 chunks"
    left_out = [text for name, text in row.detail.items() if name.startswith("left out")]
    assert left_out == [f"{topic}:0: 4 to 5 have expired"]


def test_upstream_moved(pipeline: Pipeline) -> None:
    """Retention passes the position; then the topic is gone and back with more records.

    The runtime holds the source for the second; both are repaired without losing a record that is
    still there, and the hold goes.
    """
    topic = lay_out(pipeline)
    send(pipeline, topic, 0, 4)
    pipeline.start(unsafe=True)
    await_ids(pipeline, once(4))
    pipeline.run(f"PAUSE SOURCE {pipeline.q('s')}")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    send(pipeline, topic, 4, 10)
    pipeline.kafka.delete_records(topic, {0: 8})
    expired = unsafe(pipeline, "INJECT OFFSETS (TO earliest)")
    assert "0 records doubled, 0 skipped; 4 already expired" in expired.notices
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    had = once(4) + Counter((8, 9))
    await_ids(pipeline, had)
    assert counted(pipeline, expired.operation) == (0, 0)  # what had expired nobody skipped

    pipeline.kafka.delete_topic(topic)
    pipeline.kafka.create_topic(topic, 2)

    def recreated() -> bool:
        pipeline.clock.skip(POLL_UPSTREAM)
        return any(
            hold.holder == "upstream" and "was recreated" in hold.reason
            for hold in pipeline.catalog.state().holds.values()
        )

    pipeline.until(recreated, "the hold of a changed upstream, also where it was gone first")
    pipeline.until(lambda: pipeline.run_ids()[pipeline.q("s")] is None, "a stopped source")
    # only now: until it stands still the query reads on in the new topic
    send(pipeline, topic, 100, 120)
    unsafe(pipeline, "RESET SPLITS WITH (ACCEPT NEW TOPIC = true)")
    await_ids(pipeline, had + Counter(range(100, 120)))
    assert not pipeline.catalog.state().holds
    assert pipeline.catalog.state().streams[pipeline.id("s")].topics == {
        topic: pipeline.kafka.topic_id(topic)
    }
    assert wiring.lookup(pipeline.catalog.state(), "source", pipeline.q("s")) is not None

    def shown() -> tuple[object, object]:
        rows = pipeline.run("SHOW SOURCES")[0].rows
        assert rows is not None
        row = dict(zip(rows.columns, rows.values[0], strict=True))
        return row["state"], row["error"]

    pipeline.until(lambda: shown() == ("running", None), "no error of before the repair")


def test_on_record(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """The view of unsafe operations has who, why, what was predicted, and how it ended.

    It is there for whoever asks, also where no release was applied, and stays when one is.
    """
    topic = lay_out(pipeline)
    send(pipeline, topic, 0, 5)
    cluster = wiring.find(pipeline.catalog.state(), "cluster", pipeline.q("main")).item_id
    changes = Changes()
    changes.put("cluster", cluster, ClusterRecord(unsafe=True))
    commit(pipeline.log, lambda _: changes, kind="test")
    key = unsafe(pipeline, f"INJECT OFFSETS ('{topic}:0' = 2)").operation

    pipeline.monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", f"{pipeline.directory}/catalog")
    asked = "SELECT * FROM catalog_migrate.unsafe_operations"
    capsys.readouterr()
    assert main(["sql", "-c", asked, "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    (kept,) = history(pipeline.catalog.state())
    assert {**shown, "detail": None, "sources": None, "partitions": None} == {
        **kept, "detail": None, "sources": None, "partitions": None
    }
    assert main([
        "sql", "-c", "SELECT name, unsafe_ops FROM catalog_migrate.clusters", "--format", "json"
    ]) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "main", "unsafe_ops": True}]
    version = pipeline.log.version()
    assert not pipeline.catalog.make_own_views(pipeline.spark)
    assert pipeline.log.version() == version

    release = pipeline.directory / "release"
    release.mkdir()
    (release / "tables.sql").write_text(f"CREATE TABLE {pipeline.name}.x (id BIGINT);")
    (release / "release.toml").write_text('name = "1"\n')
    session = pipeline.spark.newSession()
    bootstrap(session, release=release, catalog=pipeline.directory / "catalog")
    (row,) = session.sql("SELECT * FROM catalog_migrate.unsafe_operations").collect()
    assert row["operation"] == key
    assert row.asDict() == kept
    assert (row["reason"], row["state"], row["sources"]) == ("test", "done", [pipeline.q("s")])
    assert (row["injected"], row["doubled"], row["skipped"], row["exact"]) == (1, 0, 2, True)
    assert row["partitions"] == [f"{topic}:0 from - to 2"]
    assert [row[name] for name in ("reset", "keys", "jobs", "acknowledged")] == [False, *[None] * 3]
    assert row["seconds"] > 0
