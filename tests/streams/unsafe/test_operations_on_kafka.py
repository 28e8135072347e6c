"""Moves, conflicts, undo and crashes of unsafe operations, on a real broker without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.errors import (
    CommitConflict,
    InvalidOptions,
    StalePlan,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.sql.parser import parse, parse_one
from catalog_migrate.store import Store
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus, log_path
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.positions.audit import Acknowledge, list_unacknowledged
from catalog_migrate.streams.positions.plan import decode_plan, encode_plan
from catalog_migrate.streams.positions.planning import approve
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.positions.restore import undo_request
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import probe_queries
from tests.decisions import commit
from tests.services.checkpoints import taken

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services
At = Callable[..., str]


def request(stage: Stage, actions: str) -> Any:
    statement = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'test'")
    return request_of(stage.state, statement)  # type: ignore[arg-type]


def undo(stage: Stage, key: str) -> None:
    asked = undo_request(stage.state, key)
    stage.executor().unsafe.run(asked, "taken back", confirm=lambda _: True)


class TestMoves:
    def test_renamed_topic(self, stage: Stage, at: At) -> None:
        """SET TOPIC needs positions, then consent to the new topic; the definition is rewritten."""
        old = at([10, 5], {0: 8, 1: 4})
        new = stage.topic("n", [3, 0, 2])
        with pytest.raises(UnsafeBlocked, match="RESET SPLITS"):
            stage.unsafe(f"SET (TOPIC = '{new}')")
        with pytest.raises(UnsafeBlocked, match=f"topic {new} was not read before"):
            stage.unsafe(f"SET (TOPIC = '{new}'), RESET SPLITS")
        result = stage.unsafe(
            f"SET (TOPIC = '{new}'), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
        )
        assert stage.positions() == {0: 0, 1: 0, 2: 0}
        assert f"TOPIC = '{new}'" in stage.run("SHOW CREATE SOURCE s")[0].summary
        stream = stage.state.streams[stage.id]
        assert stream.topics == {new: stage.kafka.topic_id(new)}
        assert stream.generation == 1
        rows = stage.plans[-1].items[0].rows
        assert [(row.topic, row.current, row.target, row.note) for row in rows] == [
            (new, None, 0, ""), (new, None, 0, ""), (new, None, 0, ""),
            (old, 8, None, "no longer read"), (old, 4, None, "no longer read"),
        ]
        assert stage.operation.unsafe.keys == ("TOPIC",)  # type: ignore[union-attr]
        assert result.operation is not None

    def test_a_broker_of_its_own(
        self, stage: Stage, at: At, kafka_other: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What one source sets over its connection is asked about for this source alone."""
        topic = at([3], {0: 3})
        kafka_other.create_topic(topic, 1)
        kafka_other.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
        monkeypatch.setenv("OTHER_PW", kafka_other.users["app"])
        stage.run(
            "CREATE SECRET other AS 'env:OTHER_PW'; CREATE SOURCE r (id BIGINT) IN CLUSTER main"
            f" FROM KAFKA CONNECTION c (TOPIC '{stage.topic('r', [1])}') FORMAT JSON"
        )
        stage.unsafe(
            f"SET (BROKER = '{kafka_other.bootstrap}', SASL PASSWORD = SECRET other), RESET SPLITS"
            " WITH (ACCEPT NEW TOPIC = true)"
        )
        neighbour = dependencies.find(stage.state, "source", "r").item_id
        verdicts, found = probe_queries(
            stage.state, [stage.id, neighbour], ports=Ports()
        )
        assert [verdict.message for verdict in verdicts if not verdict.ok] == []
        assert found[stage.id].upstream == kafka_other.cluster_id
        assert found[neighbour].upstream == stage.kafka.cluster_id
        assert stage.run("VALIDATE CONNECTION c")
        stage.unsafe(
            "DROP (BROKER, SASL PASSWORD), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
        )
        assert stage.plans[-1].totals.doubled == 3  # read before, and again
        assert [row.note for row in stage.plans[-1].items[0].rows if row.doubled] == [
            "read before, up to 3"
        ]

    def test_there_and_back(self, stage: Stage, at: At) -> None:
        """Undo of a move puts definition, topic ids and the exact positions back."""
        old = at([10, 5], {0: 8, 1: 4})
        new = stage.topic("n", [3])
        before = stage.state
        key = stage.unsafe(
            f"SET (TOPIC = '{new}'), INJECT OFFSETS (TO latest) WITH (ACCEPT NEW TOPIC = true)"
        ).operation
        assert key is not None
        assert stage.positions() == {0: 3}
        undo(stage, key)
        assert stage.positions() == {0: 8, 1: 4}
        after, item = stage.state, stage.id
        assert after.items[item].definition == before.items[item].definition
        assert after.streams[item].topics == {old: stage.kafka.topic_id(old)}
        assert after.streams[item].generation == 2
        act = stage.operation.unsafe
        assert act is not None
        assert (act.undoes, act.doubled, act.skipped) == (key, 0, 0)

    def test_recreated_with_more_records(self, stage: Stage, at: At) -> None:
        """A topic gone and back with more records is named as another; nothing of it is skipped."""
        topic = at([10, 5], {0: 8, 1: 4})
        stage.kafka.delete_topic(topic)
        stage.kafka.create_topic(topic, 3)
        for partition in range(3):
            stage.produce(topic, partition, 20)
        with pytest.raises(UnsafeBlocked, match=f"topic {topic} was created again: its id was"):
            stage.unsafe("RESET SPLITS")
        stage.unsafe("RESET SPLITS WITH (ACCEPT NEW TOPIC = true)")
        assert stage.positions() == {0: 0, 1: 0, 2: 0}
        assert stage.plans[-1].totals == Totals()
        assert any("may have read records of the new" in n for n in stage.plans[-1].items[0].notes)
        key = max(stage.state.operations)
        with pytest.raises(UnsafeBlocked, match=f"{key} cannot be undone: its topic was created"):
            undo(stage, key)
        assert stage.positions() == {0: 0, 1: 0, 2: 0}

    def test_recreated_without_reset(self, stage: Stage, at: At) -> None:
        """Partitions of a new topic that have no target are not left at the old topic's numbers."""
        topic = at([10, 5], {0: 8, 1: 4})
        stage.kafka.delete_topic(topic)
        stage.kafka.create_topic(topic, 2)
        with pytest.raises(UnsafeBlocked, match=f"{topic}:1 of a topic that was not read before"):
            stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 0) WITH (ACCEPT NEW TOPIC = true)")
        assert stage.positions() == {0: 8, 1: 4}

    def test_another_cluster_with_the_same_topic(
        self, stage: Stage, at: At, kafka_other: Any
    ) -> None:
        """Its topic of the same name, with more records, is another one: named, then accepted."""
        topic = at([10], {0: 8})
        kafka_other.create_topic(topic, 1)
        kafka_other.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
        kafka_other.produce(topic, ["{}"] * 30, partition=0)
        move = f"SET (BROKER = '{kafka_other.bootstrap}'), RESET SPLITS"
        with pytest.raises(UnsafeBlocked, match=f"topic {topic} the cluster was"):
            stage.unsafe(move)
        stage.unsafe(f"{move} WITH (ACCEPT NEW TOPIC = true)")
        assert stage.positions() == {0: 0}
        stream = stage.state.streams[stage.id]
        assert stream.upstream == kafka_other.cluster_id
        assert stream.topics == {topic: kafka_other.topic_id(topic)}

    def test_topic_that_is_not_there(self, stage: Stage, at: At) -> None:
        """A topic that nobody created is refused by validation before anything is stopped."""
        at([10], {0: 8})
        with pytest.raises((UnsafeBlocked, ValidationFailed), match="not there"):
            stage.unsafe("SET (TOPIC = 'nowhere'), RESET SPLITS WITH (SKIP VALIDATE = true)")
        assert not stage.state.operations


class TestProperties:
    def test_override(self, stage: Stage, at: At) -> None:
        """What the connection owns is set over it for this source alone, until it is dropped."""
        at([10], {0: 8})
        stage.unsafe("SET (kafka.client.id = 'mine')")
        external = dependencies.external_of(stage.state.items[stage.id])
        assert external.overrides == {"kafka.client.id": "mine"}
        assert external.connection == "c"
        assert stage.positions_untouched()
        connection = dependencies.find(stage.state, "connection", "c")
        assert "kafka.client.id" not in connection.external.options
        stage.unsafe("DROP (kafka.client.id)")
        assert dependencies.external_of(stage.state.items[stage.id]).overrides == {}

    def test_secret_over_the_connection(
        self, stage: Stage, at: At, kafka: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another login for this source alone: by the secret's name, its value is nowhere."""
        at([10], {0: 8})
        monkeypatch.setenv("STAGE_OTHER", "MARKER-of-nobody")
        stage.run("CREATE SECRET wrong AS 'env:STAGE_OTHER'")
        with pytest.raises(ValidationFailed):
            stage.unsafe("SET (SASL PASSWORD SECRET wrong)")
        stage.unsafe("SET (SASL PASSWORD SECRET wrong) WITH (SKIP VALIDATE = true)")
        shown = stage.run("SHOW CREATE SOURCE s")[0].summary
        assert "SET (SASL PASSWORD = SECRET default.wrong)" in shown
        assert len(parse(shown)) == 2
        assert "MARKER" not in str([dict(each) for each in stage.state.raw.values()]) + shown
        assert stage.operation.unsafe.keys == ("SASL PASSWORD",)  # type: ignore[union-attr]

    def test_refused(self, stage: Stage, at: At) -> None:
        """The connector's type, unknown names, a broker without positions: refused by name."""
        at([10], {0: 8})
        refusals: list[tuple[str, type[Exception]]] = [
            ("SET (CONNECTOR = 'FILES')", UnsafeBlocked), ("SET (NOPE = '1')", InvalidOptions),
            ("SET (BROKER = 'x.example.com:9092')", UnsafeBlocked),
            ("INJECT VERSION 3", UnsafeBlocked),
            ("RESET SPLITS WITH (POLICY = 'maybe')", UnsafeBlocked),
            ("RESET SPLITS WITH (SPEED = 'fast')", UnsafeBlocked),
        ]
        for actions, error in refusals:
            with pytest.raises(error):
                stage.unsafe(actions)
            assert not stage.state.operations
            assert stage.positions_untouched()


class TestTwo:
    def test_the_same_id_acts_once(self, stage: Stage, at: At) -> None:
        """An operation sent twice under one id is done once."""
        topic = at([10], {0: 8})
        asked = request(stage, f"INJECT OFFSETS ('{topic}:0' = 'shift -2')")
        client = stage.executor().unsafe
        for _ in range(2):
            outcome = client.run(asked, "test", confirm=lambda _: True, key="mine")
            assert outcome.row is not None
            assert outcome.row.state == "done"
        assert stage.positions() == {0: 6}
        assert stage.state.streams[stage.id].generation == 1

    def test_two_operators(self, stage: Stage, at: At) -> None:
        """Two that planned on the same positions: one wins, the other gets 40001."""
        topic = at([10], {0: 8})
        first = request(stage, f"INJECT OFFSETS ('{topic}:0' = 6)")
        second = request(stage, f"INJECT OFFSETS ('{topic}:0' = 4)")
        client = stage.executor().unsafe
        client.run(first, "test", confirm=lambda _: True)
        with pytest.raises(CommitConflict) as caught:
            client.run(second, "test", confirm=lambda _: True)
        assert caught.value.sqlstate == "40001"
        assert stage.positions() == {0: 6}

    def test_at_the_same_moment(self, stage: Stage, at: At) -> None:
        """Two that have seen their plans at the same moment: one moves, the other gets 40001."""
        topic = at([10], {0: 8})
        asked = [request(stage, f"INJECT OFFSETS ('{topic}:0' = {to})") for to in (6, 4)]
        both = threading.Barrier(2)

        def confirm(_plan: Any) -> bool:
            both.wait(30)
            return True

        def run(each: Any) -> CommitConflict | None:
            try:
                stage.executor(log=stage.log.attach()).unsafe.run(each, "t", confirm=confirm)
            except CommitConflict as error:
                return error
            return None

        with ThreadPoolExecutor(2) as pool:
            lost = [error for error in pool.map(run, asked) if error is not None]
        assert [error.sqlstate for error in lost] == ["40001"]
        assert stage.positions() in ({0: 6}, {0: 4})
        assert stage.state.streams[stage.id].generation == 1
        assert not stage.state.holds

    def test_plan_as_file(self, stage: Stage, at: At) -> None:
        """A plan applies while positions, definition and topic are as planned, within tolerance."""
        topic = at([10], {0: 6})
        client = stage.executor().unsafe
        plan = client.plan(request(stage, "INJECT OFFSETS (TO latest)"), "test")
        plan = decode_plan(encode_plan(plan), "plan.json")
        stage.produce(topic, 0, 5)
        with pytest.raises(StalePlan, match="more than was approved") as caught:
            client.run(approve(stage.state, plan, 4), "test", confirm=lambda _: True)
        assert caught.value.exit_code == 4
        assert caught.value.changes == ("skipped: 9 records, approved were 4 (tolerance 4)",)
        assert stage.positions() == {0: 6}
        assert not stage.state.holds
        client.run(approve(stage.state, plan, 5), "test", confirm=lambda _: True)
        assert stage.positions() == {0: 15}
        with pytest.raises(StalePlan, match="moved on"):
            approve(stage.state, plan, 5)


class TestUndo:
    def test_exact(self, stage: Stage, at: At) -> None:
        """Undo edits the last two entries back; batch ids go on, and it can be undone itself."""
        at([10, 5], {0: 8, 1: 4})
        key = stage.unsafe("INJECT OFFSETS (TO earliest)").operation
        assert key is not None
        undo(stage, key)
        assert stage.positions() == {0: 8, 1: 4}
        assert stage.checkpoint.latest_offsets == 2
        with pytest.raises(CommitConflict, match="changed again since"):
            undo_request(stage.state, key)
        newest = max(stage.state.operations)
        undo(stage, newest)
        assert stage.positions() == {0: 0, 1: 0}

    def test_batches_since(self, stage: Stage, at: At) -> None:
        """After batches the present entries are edited, and what comes again is counted."""
        topic = at([10], {0: 8})
        key = stage.unsafe("INJECT OFFSETS (TO earliest)").operation
        assert key is not None
        stage.write_offsets(3, KafkaCodec().write({(topic, 0): 9}))
        stage.write_commit(3)
        undo(stage, key)
        assert stage.positions() == {0: 8}
        assert stage.checkpoint.latest_offsets == 3
        assert stage.operation.unsafe.doubled == 1  # type: ignore[union-attr]

    def test_acknowledged(self, stage: Stage, at: At) -> None:
        """An operation is listed until somebody says that it was seen; the row stays."""
        at([10], {0: 8})
        key = stage.unsafe("INJECT OFFSETS (TO earliest)").operation
        assert key is not None
        assert [each for each, _ in list_unacknowledged(stage.state)] == [key]
        commit(stage.log, lambda _: (Acknowledge(key, "ann 2026-01-01"),), kind="acknowledge")
        assert list_unacknowledged(stage.state) == ()
        assert tuple(Acknowledge(key, "bob 2026-01-02").apply(stage.state)) == ()


class Died(BaseException):
    """The process is gone."""


class TestCrashes:
    def test_at_every_commit(self, stage: Stage, at: At, kafka: Any) -> None:
        """Whoever dies before or after any commit leaves all or nothing; the next one ends it."""
        topic = at([40], {0: 8})
        outcomes = set()
        for point in range(1, 40):
            key = f"crash-{point:03d}"
            target = 10 + point
            asked = request(stage, f"INJECT OFFSETS ('{topic}:0' = {min(target, 40)})")
            calls = 0

            def hook(call: str) -> None:
                nonlocal calls
                if call.startswith("append"):
                    calls += 1
                    if calls == point:  # noqa: B023 - called within the round
                        raise Died

            client = stage.executor(log=stage.log.attach(hook)).unsafe
            before = stage.positions()
            try:
                client.run(asked, "test", confirm=lambda _: True, key=key)
            except Died:
                free_the_lease(stage)
            else:
                assert stage.positions() == {0: target}
                break
            row = stage.state.operations.get(key)
            if row is None:
                assert stage.positions() == before
                outcomes.add("nothing")
                continue
            try:
                stage.executor().unsafe.run(asked, "test", confirm=lambda _: True, key=key)
            except UnsafeBlocked:
                assert stage.positions() == before
                outcomes.add("refused")
            else:
                assert stage.positions() == {0: target}
                outcomes.add("done")
            assert not stage.state.holds
            assert read_state(stage.log).operations[key].state in ("done", "refused")
        assert outcomes == {"nothing", "refused", "done"}
        assert taken(Snapshots(stage.checkpoint))

    def test_at_every_file(self, stage: Stage, at: At, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever dies between two files after the commit leaves an edit that is repeated."""
        from catalog_migrate.streams.checkpoint.files import Files

        topic = at([40], {0: 8})
        real = Files.put
        for point in range(1, 20):
            asked = request(stage, f"INJECT OFFSETS ('{topic}:0' = {10 + point})")
            calls = 0

            def put(self: Files, store: Store, *what: Any) -> None:
                nonlocal calls
                if store.address == stage.checkpoint.address:
                    calls += 1
                    if calls == point:  # noqa: B023 - called within the round
                        raise Died
                real(self, store, *what)

            key = f"crash-{point:03d}"
            with monkeypatch.context() as patch:
                patch.setattr(Files, "put", put)
                try:
                    stage.executor().unsafe.run(asked, "t", confirm=lambda _: True, key=key)
                except Died:
                    free_the_lease(stage)
                else:
                    break
            assert stage.state.operations[key].state == "committed"
            stage.executor().unsafe.run(asked, "t", confirm=lambda _: True, key=key)
            assert stage.positions() == {0: 10 + point}
            assert stage.checkpoint.mark.generation == point  # type: ignore[union-attr]
        assert point == 4


def test_after_the_commit_it_is_never_refused(stage: Stage, at: At) -> None:
    """An edit that cannot be applied is in force all the same, and the start says why it waits."""
    topic = at([20], {0: 8})
    calls = 0

    def hook(call: str) -> None:
        nonlocal calls
        calls += call == "append.done"
        if call == "append.done" and calls == 4:  # the one commit
            stage.write_offsets(2, KafkaCodec().write({(topic, 0): 7}))

    result = stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 3)", log=stage.log.attach(hook))
    assert stage.operation.state == "done"
    assert "the start repeats what failed now" in result.notices[-1]
    stream = stage.state.streams[stage.id]
    assert (stream.generation, bool(stream.edit)) == (1, True)
    assert stage.checkpoint.mark.generation == 0  # type: ignore[union-attr]
    assert not stage.state.holds


def test_an_error_of_before(stage: Stage, at: At) -> None:
    """Without a runtime SHOW SOURCES has what the last one failed of, until that is fixed."""
    at([10], {0: 8})
    cluster = dependencies.find(stage.state, "cluster", "main").item_id
    log = ClusterLog(log_path(stage.state, cluster), "gone")
    log.write([QueryStatus(stage.id, "default.s", "source", "backing_off", error="offsets lost")])

    def error() -> object:
        (result,) = stage.run("SHOW SOURCES")
        assert result.rows is not None
        return dict(zip(result.rows.columns, result.rows.values[0], strict=True))["error"]

    assert error() == "offsets lost"
    stage.unsafe("INJECT OFFSETS (TO earliest)")
    assert error() is None


def test_what_was_left_is_ended_first(stage: Stage, at: At) -> None:
    """An operation that its operator left half-way stands in nobody's way without a runtime."""
    topic = at([20], {0: 8})
    left = request(stage, f"INJECT OFFSETS ('{topic}:0' = 3)")
    calls = 0

    def hook(call: str) -> None:
        nonlocal calls
        calls += call == "append"
        if calls == 4:  # the row, the lease, the holds; not the one commit
            raise Died

    with pytest.raises(Died):
        stage.executor(log=stage.log.attach(hook)).unsafe.run(
            left, "left", confirm=lambda _: True, key="left"
        )
    assert stage.state.operations["left"].state == "stopping"
    assert stage.state.holds
    free_the_lease(stage)
    stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 5)")
    assert stage.state.operations["left"].state == "refused"
    assert stage.positions() == {0: 5}
    assert not stage.state.holds


def free_the_lease(stage: Stage) -> None:
    """As if the process that held the cluster's lease was proven dead."""
    import msgspec

    for key, lease in stage.state.leases.items():
        stage.put("lease", key, msgspec.structs.replace(lease, holder="", host=""))
