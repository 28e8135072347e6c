"""Batches that were under way, several sources at once, and the position of a sink."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.errors import (
    EngineFailure,
    StalePlan,
    UnsafeBlocked,
    UnsettledCheckpoint,
    UnsupportedCheckpoint,
)
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.requests import joint
from tests.services.checkpoints import adopt, root

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services
At = Callable[..., str]


def table(path: Path, rows: list[int], *, query: str = "", batch: int = -1) -> str:
    """Append rows to a Delta table, as a batch of a query; returns the table's id."""
    from arro3.core import Array, DataType, Table
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    done = [Transaction(query, batch)] if query else []
    data: Any = Table.from_pydict({"id": Array(rows, type=DataType.int64())})
    write_deltalake(
        str(path), data, mode="append",
        commit_properties=CommitProperties(app_transactions=done) if done else None,
    )
    return str(DeltaTable(str(path)).metadata().id)


class TestUnderWay:
    @pytest.mark.parametrize("arrived", [True, False])
    def test_settled(self, stage: Stage, at: At, arrived: bool) -> None:
        """A batch that the table has is committed, one that it lacks is taken away; then moved."""
        topic = at([20], {0: 9})
        query = stage.checkpoint.query_id
        assert query is not None
        shard = stage.warehouse / str(stage.state.items[stage.id].shard)
        table(shard, [1], query=query, batch=3 if arrived else 2)
        stage.write_offsets(3, KafkaCodec().write({(topic, 0): 12}))
        stage.unsafe("INJECT OFFSETS (TO 'shift -1')")
        assert stage.checkpoint.latest_offsets == (3 if arrived else 2)
        assert stage.positions() == {0: 11 if arrived else 8}

    def test_half_arrived(self, stage: Stage, at: At) -> None:
        """A batch that only Spark can tell the end of is left as it is, and so are positions."""
        topic = stage.topic("t", [20])
        stage.source(topic)
        stage.run("DROP SOURCE s")
        stage.run(
            f"CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC '{topic}')"
            " FORMAT JSON ON ERROR INTO bad"
        )
        stage.started(topic, {0: 9})
        stage.open_gate()
        query = stage.checkpoint.query_id
        item = stage.state.items[stage.id]
        table(stage.warehouse / str(item.shard), [1], query=str(query), batch=3)
        dead = stage.state.items[item.links["dead_letters"]]
        table(stage.warehouse / str(dead.shard), [1], query=str(query), batch=2)
        stage.write_offsets(3, KafkaCodec().write({(topic, 0): 12}))
        with pytest.raises((UnsafeBlocked, EngineFailure), match="needs Spark"):
            stage.unsafe("INJECT OFFSETS (TO earliest)")
        assert stage.operation.state == "refused"
        assert stage.checkpoint.latest_offsets == 3
        assert stage.positions_untouched()
        assert not stage.state.holds

    def test_broken(self, stage: Stage, at: At) -> None:
        """More than one uncommitted entry, or a newer log, is refused before anything stops."""
        topic = at([20], {0: 9})
        for batch in (3, 4):
            stage.write_offsets(batch, KafkaCodec().write({(topic, 0): 12}))
        with pytest.raises(UnsettledCheckpoint, match="more than one entry is uncommitted"):
            stage.unsafe("INJECT OFFSETS (TO earliest)")
        (root(stage.checkpoint) / "offsets/4").unlink()
        file = root(stage.checkpoint) / "offsets/3"
        file.write_text(file.read_text().replace("v1", "v2", 1))
        with pytest.raises(UnsupportedCheckpoint, match="version v2"):
            stage.unsafe("INJECT OFFSETS (TO earliest)")
        assert not stage.state.operations


def test_all_or_nothing(stage: Stage, at: At) -> None:
    """Two sources in one operation: one bad target leaves both, good ones move both at once."""
    topic = at([20], {0: 9})
    other = stage.topic("o", [5])
    stage.run(
        f"CREATE SOURCE s2 (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC '{other}') "
        "FORMAT JSON"
    )
    client = stage.executor().unsafe

    def both(first: str, second: str) -> Any:
        statements = [
            parse_one(f"ALTER SOURCE {name} UNSAFE INJECT OFFSETS ({target}) REASON 'r'")
            for name, target in (
                ("s", f"'{topic}:0' = {first}"), ("s2", f"'{other}:0' = {second}")
            )
        ]
        return joint(statements, stage.state)  # type: ignore[arg-type]

    with pytest.raises(UnsafeBlocked, match=r"source default\.s2 cannot be put there"):
        client.run(both("3", "99"), "r", confirm=lambda _: True)
    assert stage.positions() == {0: 9}
    client.run(both("3", "2"), "r", confirm=lambda _: True)
    assert stage.positions() == {0: 3}
    second = dependencies.find(stage.state, "source", "s2").item_id
    assert stage.state.streams[second].generation == 1
    assert stage.operation.unsafe.sources == ("default.s", "default.s2")  # type: ignore[union-attr]


def test_tolerance_of_a_statement(stage: Stage, at: At) -> None:
    """With TOLERANCE, records that come between the plan and the stop end it unchanged."""
    topic = at([10], {0: 6})
    executor = stage.executor()

    def confirm(_plan: Any) -> bool:
        stage.produce(topic, 0, 3)
        return True

    executor.confirm = confirm
    with pytest.raises(StalePlan):
        executor.run(
            "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest) WITH (TOLERANCE = 2) REASON 'r'"
        )
    assert stage.operation.state == "stale"
    assert stage.positions() == {0: 6}


def test_explained(stage: Stage, at: At) -> None:
    """EXPLAIN shows each partition and the gate that is missing; nothing is written."""
    topic = at([10, 4], {0: 6, 1: 4})
    stage.open_gate(False)
    version = stage.log.version()
    (result,) = stage.run(
        f"EXPLAIN ALTER SOURCE s UNSAFE INJECT OFFSETS ('{topic}:0' = 2) REASON 'r'"
    )
    lines = result.summary.splitlines()
    assert [line.split() for line in lines if line.strip().startswith(topic)] == [
        [f"{topic}:0", "6", "2", "0", "10", "4", "0", "0"],
        [f"{topic}:1", "4", "4", "0", "4", "0", "0", "0"],
    ]
    assert lines[-2] == "4 records doubled, 0 skipped; 0 already expired"
    assert lines[-1].startswith("missing: the gate of cluster default.main is closed")
    assert stage.log.version() == version


class TestSink:
    def test_version(self, stage: Stage, at: At) -> None:
        """A sink's position is a version of its table; what is sent again is counted in rows."""
        at([10], {0: 6})
        out = stage.topic("out", [0])
        stage.run(
            f"CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC '{out}') KEY (id)"
            " FORMAT JSON"
        )
        shard = stage.warehouse / str(stage.state.items[stage.id].shard)
        for rows in ([1], [2, 3], [4, 5, 6]):
            table_id = table(shard, rows)
        checkpoint = self.started(stage, table_id, 3)

        stage.run("ALTER SINK k UNSAFE INJECT VERSION 1 REASON 'r'")
        wanted = DeltaCodec().write(DeltaPosition(table_id, 1))
        assert [checkpoint.entry(batch).sources[0] for batch in (1, 2)] == [wanted, wanted]
        act = stage.operation.unsafe
        assert act is not None
        assert (act.doubled, act.skipped, act.exact) == (5, 0, True)
        with pytest.raises(UnsafeBlocked, match="version 9 is not one of 0 to 3"):
            stage.run("ALTER SINK k UNSAFE INJECT VERSION 9 REASON 'r'")
        with pytest.raises(UnsafeBlocked, match="has no offsets"):
            stage.run("ALTER SINK k UNSAFE INJECT OFFSETS (TO latest) REASON 'r'")

    def test_not_caught_up(self, stage: Stage, at: At) -> None:
        """A topic of the same name is accepted when the sinks have sent all rows of the old one."""
        topic = at([10], {0: 6})
        out = stage.topic("out", [0])
        stage.run(
            f"CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC '{out}') KEY (id)"
            " FORMAT JSON"
        )
        shard = stage.warehouse / str(stage.state.items[stage.id].shard)
        for rows in ([1], [2, 3]):
            table_id = table(shard, rows)
        stage.kafka.delete_topic(topic)
        stage.kafka.create_topic(topic, 1)
        accept = "RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
        with pytest.raises(UnsafeBlocked, match=r"sink default\.k has rows of the old topic"):
            stage.unsafe(accept)
        checkpoint = self.started(stage, table_id, 1)
        with pytest.raises(UnsafeBlocked, match=r"sink default\.k has rows of the old topic"):
            stage.unsafe(accept)
        for batch in (1, 2):
            checkpoint.write_offset(batch, 0, DeltaCodec().write(DeltaPosition(table_id, 2)))
        stage.unsafe(accept)
        assert stage.positions() == {0: 0}

    def test_back_to_a_topic_that_is_another_now(self, stage: Stage, at: At) -> None:
        """Moved away, a source keeps the id of what it read: rows of it are still to be sent.

        When it comes back to a topic of that name which was created again, they stand in the way;
        before, the sinks go on with both ids.
        """
        topic = at([10], {0: 6})
        new, out = stage.topic("new", [3]), stage.topic("out", [0])
        stage.run(
            f"CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC '{out}') KEY (id)"
            " FORMAT JSON"
        )
        shard = stage.warehouse / str(stage.state.items[stage.id].shard)
        table_id = table(shard, [1])
        old = stage.state.streams[stage.id].topics[topic]
        move = "SET (TOPIC = '{}'), RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
        stage.unsafe(move.format(new))
        sink = dependencies.find(stage.state, "sink", "k").item_id
        ids = spec_of(stage.state, sink).topic_ids
        assert ids.keys() == {topic, new}
        assert ids[topic] == old
        assert stage.state.streams[stage.id].topics.keys() == {new}

        stage.kafka.delete_topic(topic)
        stage.kafka.create_topic(topic, 1)
        with pytest.raises(UnsafeBlocked, match=r"sink default\.k has rows of the old topic"):
            stage.unsafe(move.format(topic))
        self.started(stage, table_id, 1)
        stage.unsafe(move.format(topic))
        stream = stage.state.streams[stage.id]
        assert stream.topics.keys() == {topic}
        assert stream.topics[topic] != old
        assert stream.former.keys() == {new}

    def started(self, stage: Stage, table_id: str, version: int) -> Checkpoint:
        item = dependencies.find(stage.state, "sink", "k").item_id
        stream = msgspec.structs.replace(
            first_stream(item), upstream=stage.cluster_id,
            reads=stage.state.items[stage.id].shard or "",
        )
        stage.put("stream", item, stream)
        checkpoint = Checkpoint(f"{stage.warehouse}/{stream.checkpoint}")
        for name in ("offsets", "commits"):
            (root(checkpoint) / name).mkdir(parents=True)
        (root(checkpoint) / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":1795277816210,"conf":{}}'
        for batch in range(3):
            line = DeltaCodec().write(DeltaPosition(table_id, max(1, version - 2 + batch)))
            (root(checkpoint) / f"offsets/{batch}").write_text(f"v1\n{meta}\n{line}")
            (root(checkpoint) / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        adopt(checkpoint, item=item, sources=[stage.id])
        return checkpoint


def test_files_have_no_positions(stage: Stage, at: At, tmp_path: Path) -> None:
    """A files source says plainly what to do instead; a reset reads all files again."""
    at([1], {0: 1})
    stage.run(f"CREATE CONNECTION f TO FILES (PATH '{tmp_path}')")
    stage.run("CREATE SOURCE files (id BIGINT) IN CLUSTER main FROM FILES CONNECTION f (PATH 'in')")
    with pytest.raises(UnsafeBlocked, match="reads files and has no positions to inject"):
        stage.run("ALTER SOURCE files UNSAFE INJECT OFFSETS (TO latest) REASON 'r'")
