"""Unsafe operations under running queries: exactly the records that were said come again or not."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.records import ClusterRecord, HoldRecord, UnsafeAct
from catalog_migrate.cli.main import main
from catalog_migrate.delta.table import shard_version
from catalog_migrate.errors import CommitConflict, UnsafeBlocked
from catalog_migrate.hook import bootstrap
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.tables import rows_at
from catalog_migrate.streams.checkpoint.delta_tables import delta_batch
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.log_entries import log_entries
from catalog_migrate.streams.ddl.show import show, stalled_queries
from catalog_migrate.streams.positions.audit import history
from catalog_migrate.streams.positions.positions_file import export
from catalog_migrate.streams.positions.restore import undo_request
from catalog_migrate.streams.runtime.runtime import POLL_UPSTREAM
from tests.decisions import Changes, commit

from .conftest import Branch, Pipeline, once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.services]


@pytest.fixture(scope="module")
def base(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, kafka: KafkaCluster,
    postgres: PostgresServer,
) -> Iterator[Pipeline]:
    """A catalog and a runtime whose gate is open, of all tests of the module."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        directory = tmp_path_factory.mktemp("unsafe")
        made = Pipeline(directory, spark, kafka, postgres, monkeypatch)
        made.begin()
        made.start(unsafe=True)
        yield made
        made.stop()


@pytest.fixture
def branch(base: Pipeline) -> Iterator[Branch]:
    """A schema in it, whose sources and sinks go with the test."""
    made = Branch(base)
    yield made
    made.stop()


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


def test_back_and_forward(branch: Pipeline) -> None:
    """Four back and three forward, with a sink below: exact in Delta, absorbed by key in Kafka.

    Batch ids and transactions go on rising, the operator's pause stays, and only the source is
    restarted.
    """
    topic = lay_out(branch, sink=True)
    out = f"{branch.name}-o"
    send(branch, topic, 0, 10)
    await_ids(branch, once(10))
    branch.await_running(2)
    runs = branch.run_ids()
    before = newest_transaction(branch)

    back = unsafe(branch, f"INJECT OFFSETS ('{topic}:0' = 6)")
    again = once(10) + Counter(range(6, 10))
    await_ids(branch, again)
    assert "4 records doubled, 0 skipped; 0 already expired" in back.notices
    branch.until(lambda: len(branch.kafka.consume_all(out)) >= 14, "14 records sent")
    assert branch.kafka_ids(out) == once(10)
    assert newest_transaction(branch) == (before or 0) + 1
    branch.await_running(2)
    now = branch.run_ids()
    assert now[branch.q("s")] != runs[branch.q("s")]
    assert now[branch.q("k")] == runs[branch.q("k")]
    assert counted(branch, back.operation) == (4, 0)

    branch.run(f"PAUSE SOURCE {branch.q('s')} REASON 'mine'")
    branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
    send(branch, topic, 10, 16)
    forward = unsafe(branch, "INJECT OFFSETS (TO 'shift 3')")
    assert [hold.reason for hold in branch.catalog.state().holds.values()] == ["mine"]
    assert branch.ids("s") == again
    branch.run(f"RESUME SOURCE {branch.q('s')}")
    await_ids(branch, again + Counter(range(13, 16)))
    assert counted(branch, forward.operation) == (0, 3)

    same = branch.run_ids()
    assert unsafe(branch, "INJECT OFFSETS (TO committed)").operation is None
    assert branch.run_ids() == same


def test_under_a_producer(branch: Pipeline) -> None:
    """Five back while a producer runs: five records come twice, all others once, none is lost."""
    topic = lay_out(branch)
    producer = branch.produce(topic, pause=0.05)
    await_rows(branch, 20)
    # a first batch is in the table before its commit says so: until then there is no position
    branch.until(lambda: bool(next_record(branch, topic)), "the commit of a batch")
    key = unsafe(branch, "INJECT OFFSETS (TO 'shift -5')").operation
    producer.stop()
    branch.producers.clear()
    total = producer.sent[topic]
    await_rows(branch, total + 5)
    found = branch.ids("s")
    assert found.keys() == once(total).keys()
    assert Counter(found.values()) == Counter({2: 5, 1: total - 5})
    assert act(branch, key).doubled == 5
    assert counted(branch, key) == (5, 0)


@pytest.mark.soak
def test_every_way_to_say_where(branch: Pipeline) -> None:
    """By time, by START, by a reset with a partition more, and in a move: exactly the records that
    were said come again, in the table and at the sink below, where they are repeats to a consumer,
    also those that the sink had yet to send when its source went over to another topic.
    """
    topic = lay_out(branch, sink=True)
    out = f"{branch.name}-o"
    send(branch, topic, 0, 6)
    times = [each.timestamp for each in branch.kafka.consume_all(topic)]
    branch.until(lambda: time.time() * 1000 > times[-1] + 1, "a later moment")
    send(branch, topic, 6, 10)
    late = min(each.timestamp for each in branch.kafka.consume_all(topic)[6:])
    moment = datetime.fromtimestamp(late / 1000, timezone.utc).isoformat(timespec="milliseconds")
    wanted = once(10)
    await_ids(branch, wanted)
    for target, again in (
        (f"TO 'timestamp {moment}'", range(6, 10)), ("TO 'duration PT2H'", range(10)),
        (f"'{topic}:0' = NULL", range(10)),
    ):
        branch.until(lambda: next_record(branch, topic) == 10, "the commit of the batch")
        key = unsafe(branch, f"INJECT OFFSETS ({target})").operation
        wanted += Counter(again)
        await_ids(branch, wanted)
        found = act(branch, key)
        assert (found.doubled, found.skipped, found.exact) == (len(again), 0, True), target

    branch.until(
        lambda: len(branch.kafka.consume_all(out)) == wanted.total(), "all rows of before sent"
    )
    branch.run(f"PAUSE SINK {branch.q('k')}")
    branch.until(lambda: branch.run_ids()[branch.q("k")] is None, "a stopped sink")
    branch.kafka.add_partitions(topic, 2)
    branch.kafka.produce(topic, [("20", '{"id": 20}')], partition=1)
    unsafe(branch, "RESET SPLITS")
    wanted += once(10)
    branch.until(lambda: branch.ids("s")[20] > 0, "the new partition")
    new = branch.topic("n", 1)
    branch.kafka.allow("app", new, "DESCRIBE_CONFIGS")
    send(branch, new, 30, 33)
    await_ids_of(branch, wanted, {20})
    unsafe(branch, f"SET (TOPIC = '{new}'), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)")
    wanted += Counter(range(30, 33))
    await_ids_of(branch, wanted, {20})
    assert len(branch.kafka.consume_all(out)) < wanted.total()
    branch.run(f"RESUME SINK {branch.q('k')}")
    rows = branch.ids("s").total()
    branch.until(lambda: len(branch.kafka.consume_all(out)) >= rows, "all rows sent")
    assert len(branch.kafka.consume_all(out)) == rows
    assert branch.kafka_ids(out) == Counter([*range(10), 20, *range(30, 33)])


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


def test_undone_with_its_table(branch: Pipeline) -> None:
    """A skip is undone with the table: every record is there once, also for the sink below.

    What the sink had sent of the rows that were taken back it sends again, as many as was said.
    """
    topic = lay_out(branch, sink=True)
    out = f"{branch.name}-o"
    send(branch, topic, 0, 10)
    await_ids(branch, once(10))
    branch.run(f"PAUSE SOURCE {branch.q('s')}")
    branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
    send(branch, topic, 10, 14)
    skip = unsafe(branch, "INJECT OFFSETS (TO latest)").operation
    branch.run(f"RESUME SOURCE {branch.q('s')}")
    send(branch, topic, 14, 17)
    await_ids(branch, once(10) + Counter(range(14, 17)))
    branch.until(lambda: len(branch.kafka.consume_all(out)) == 13, "13 records sent")
    before = newest_transaction(branch)

    asked = undo_request(branch.catalog.state(), skip, restore_table=True)
    outcome = branch.catalog.unsafe().run(asked, "back", confirm=lambda _: True)
    assert outcome.row.unsafe.doubled == 3
    await_ids(branch, once(17))
    branch.until(lambda: len(branch.kafka.consume_all(out)) == 20, "20 records sent")
    assert branch.kafka_ids(out) == once(17)
    assert newest_transaction(branch) == (before or 0) + 1
    assert counted(branch, outcome.key) == (0, 0)


def test_backfill(branch: Pipeline) -> None:
    """The source goes on at the end at once, what it skipped comes beside it, each record once.

    A bad record is a dead letter, what has expired is listed, and undo waits.
    """
    branch.kafka_connection("c")
    topic = branch.topic("t", 1)
    branch.source("s", "c", topic, f"ON ERROR INTO {branch.q('bad')}")
    send(branch, topic, 0, 20)
    branch.kafka.produce(topic, ["no json"], partition=0)
    send(branch, topic, 21, 40)
    await_rows(branch, 39)
    state = branch.catalog.state()
    (bad,) = (m.item_id for m in state.mappings.values() if m.name == "bad")

    def dead() -> int:
        path = f"{state.config['warehouse'].value}/{state.items[bad].shard}"
        return rows_at(path, shard_version(path) or 0)

    assert dead() == 1
    branch.run(f"PAUSE SOURCE {branch.q('s')}")
    branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
    branch.kafka.delete_records(topic, {0: 4})
    unsafe(branch, "INJECT OFFSETS (TO earliest)")
    key = unsafe(
        branch, "INJECT OFFSETS (TO latest) WITH (BACKFILL = true, CHUNK = 20)"
    ).operation
    branch.kafka.delete_records(topic, {0: 6})
    row = branch.catalog.state().operations[key]
    assert row.state == "backfilling"
    with pytest.raises(UnsafeBlocked, match="is reading what it skipped"):
        undo_request(branch.catalog.state(), key)
    with pytest.raises(CommitConflict, match="is at work on the same query"):
        unsafe(branch, "INJECT OFFSETS (TO earliest)")
    assert branch.ids("s") == Counter([*range(20), *range(21, 40)])  # it waits for the hold
    branch.run(f"RESUME SOURCE {branch.q('s')}")
    send(branch, topic, 40, 45)
    branch.until(lambda: branch.catalog.state().operations[key].state == "done", "the end")
    wanted = Counter([*range(20), *range(21, 45), *range(6, 20), *range(21, 40)])
    await_ids(branch, wanted)
    assert dead() == 2
    row = branch.catalog.state().operations[key]
    assert row.detail["backfill"] == "36 records in 2 chunks"
    left_out = [text for name, text in row.detail.items() if name.startswith("left out")]
    assert left_out == [f"{topic}:0: 4 to 5 have expired"]


def test_upstream_moved(branch: Pipeline) -> None:
    """Retention passes the position; then the topic is gone and back with more records.

    The runtime holds the source for the second; both are repaired without losing a record that is
    still there, and the hold goes.
    """
    topic = lay_out(branch)
    send(branch, topic, 0, 4)
    await_ids(branch, once(4))
    branch.run(f"PAUSE SOURCE {branch.q('s')}")
    branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
    send(branch, topic, 4, 10)
    branch.kafka.delete_records(topic, {0: 8})
    expired = unsafe(branch, "INJECT OFFSETS (TO earliest)")
    assert "0 records doubled, 0 skipped; 4 already expired" in expired.notices
    branch.run(f"RESUME SOURCE {branch.q('s')}")
    had = once(4) + Counter((8, 9))
    await_ids(branch, had)
    assert counted(branch, expired.operation) == (0, 0)  # what had expired nobody skipped

    branch.kafka.delete_topic(topic)
    branch.kafka.create_topic(topic, 2)

    def recreated() -> bool:
        branch.clock.skip(POLL_UPSTREAM)
        return any(
            hold.holder == "upstream" and "was recreated" in hold.reason
            for hold in branch.catalog.state().holds.values()
        )

    branch.until(recreated, "the hold of a changed upstream, also where it was gone first")
    branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
    # only now: until it stands still the query reads on in the new topic
    send(branch, topic, 100, 120)
    unsafe(branch, "RESET SPLITS WITH (ACCEPT NEW TOPIC = true)")
    await_ids(branch, had + Counter(range(100, 120)))
    assert not branch.catalog.state().holds
    assert branch.catalog.state().streams[branch.id("s")].topics == {
        topic: branch.kafka.topic_id(topic)
    }
    assert dependencies.lookup(branch.catalog.state(), "source", branch.q("s")) is not None

    def shown() -> tuple[object, object]:
        rows = branch.run("SHOW SOURCES")[0].rows
        assert rows is not None
        row = dict(zip(rows.columns, rows.values[0], strict=True))
        return row["state"], row["error"]

    branch.until(lambda: shown() == ("running", None), "no error of before the repair")


def test_what_status_says_next(branch: Pipeline) -> None:
    """Records that have expired, and one that cannot be read, hold the source; each hold says
    where, and the statement that ``status`` gives goes on. No value is anywhere."""
    supervisor = branch.runtime.supervisor  # type: ignore[union-attr]
    assert supervisor is not None
    tries, supervisor.hold_after = supervisor.hold_after, 3

    def hold() -> HoldRecord:
        found: list[HoldRecord] = []

        def there() -> bool:
            found[:] = [each for each in branch.catalog.state().holds.values()
                        if each.holder in ("upstream", "failure")]
            return bool(found)

        branch.until(there, "a hold")
        branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
        return found[0]

    def go_on() -> None:
        name = branch.q("s")
        (still,) = (each for each in stalled_queries(branch.catalog.state()) if each.name == name)
        words = shlex.split(still.next)
        assert words[:3] == ["catalog-migrate", "sql", "-c"]
        branch.run(words[3], confirm=lambda _: True)
        assert not branch.catalog.state().holds

    topic = lay_out(branch)
    try:
        send(branch, topic, 0, 4)
        await_ids(branch, once(4))
        branch.run(f"PAUSE SOURCE {branch.q('s')}")
        branch.until(lambda: branch.run_ids()[branch.q("s")] is None, "a stopped source")
        send(branch, topic, 4, 10)
        branch.kafka.delete_records(topic, {0: 8})
        branch.run(f"RESUME SOURCE {branch.q('s')}")
        expired = hold()
        assert (expired.holder, expired.place) == (
            "upstream", {"topic": topic, "partition": "0", "offset": "4"}
        )
        assert "the position is 4, the broker's oldest record is 8" in expired.reason
        go_on()
        await_ids(branch, once(4) + Counter((8, 9)))

        branch.kafka.produce(topic, [("Marker-4711", '{"id": "Marker-4711"}')], partition=0)
        send(branch, topic, 10, 12)
        bad = hold()
        key = hashlib.sha256(b"Marker-4711").hexdigest()[:16]
        assert (bad.holder, bad.tries, bad.place) == (
            "failure", 3, {"topic": topic, "partition": "0", "offset": "10", "key": key}
        )
        rows = show(branch.catalog.state(), "sources")
        (row,) = (each for each in (
            dict(zip(rows.columns, values, strict=True)) for values in rows.values
        ) if each["name"] == branch.q("s"))
        assert (row["state"], row["next"]) == ("held", bad.statements[0])
        assert "3 tries" in str(row["holds"])
        branch.until(
            lambda: f'"key":"{key}"' in str(
                log_entries(branch.catalog.state(), branch.id("s")).values
            ), "the log of the hold",
        )
        log = log_entries(branch.catalog.state(), branch.id("s"))
        told = f"{branch.catalog.state().holds}{row}{log.values}{branch.events}"
        assert "Marker-4711" not in told
        go_on()
        await_ids(branch, once(4) + Counter((8, 9, 10, 11)))
    finally:
        supervisor.hold_after = tries


def test_on_record(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """The view of unsafe operations has who, why, what was predicted, and how it ended.

    It is there for whoever asks, also where no release was applied, and stays when one is.
    """
    topic = lay_out(pipeline)
    send(pipeline, topic, 0, 5)
    cluster = dependencies.find(pipeline.catalog.state(), "cluster", pipeline.q("main")).item_id
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
