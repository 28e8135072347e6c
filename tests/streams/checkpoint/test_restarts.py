"""Tests against real Spark restarts: what a query writes after its checkpoint was changed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catalog_migrate.errors import BehindSink
from catalog_migrate.store.address import Storage, remember
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import (
    delta_batch,
    delta_fence,
    delta_target,
    new_query_id,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from catalog_migrate.streams.checkpoint.edit import (
    Complete,
    Edit,
    Finish,
    Remove,
    apply,
    move,
    perform,
    reset,
    settlement,
    write_commit,
)
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.checkpoint.guards import check_start, claim
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from tests.services.checkpoints import root
from tests.simulation.crashes import CrashPoint, SimulatedCrash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.services.object_store import ObjectStore

pytestmark = pytest.mark.spark

LIMIT = 120


def append(path: str | Path, rows: Iterable[int]) -> int:
    """Append numbers to a Delta table as one commit; its version."""
    data = Table.from_pydict({"id": Array(list(rows), DataType.int64())})
    write_deltalake(str(path), data, mode="append")
    return DeltaTable(str(path)).version()


def numbers(path: str | Path, select: str = "id") -> list[int]:
    """The numbers that a Delta table holds, sorted."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    batches = QueryBuilder().register("t", DeltaTable(str(path)))
    found = batches.execute(f"select {select} as n from t order by 1").read_all()
    return list(found["n"].to_pylist())


class Failing(Exception):
    """What a batch raises when a test tells it to."""


class Query:
    """A streaming query into Delta tables, stopped and started anew by each :meth:`run`.

    ``outputs`` are written in order in ``foreachBatch``, each with the batch's transaction;
    ``fail_before`` is the number of the output before which a batch fails.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        read: Callable[[], DataFrame],
        *,
        sources: int = 1,
        mode: str = "append",
        outputs: int = 1,
        checkpoint: str | None = None,
    ) -> None:
        self.spark, self.read, self.mode = spark, read, mode
        self.checkpoint = Checkpoint(checkpoint or root / "ckpt")
        self.outputs = [str(root / f"out{number}") for number in range(outputs)]
        self.fail_before: int | None = None
        self.generation = 0
        claim(self.checkpoint, item="i7", sources=[f"s{n}" for n in range(sources)])
        self.sources = [f"s{n}" for n in range(sources)]

    @property
    def sinks(self) -> dict[str, int | None]:
        """The newest batch that each output has."""
        query_id = self.checkpoint.query_id
        return {
            Path(path).name: None if query_id is None else delta_batch(path, query_id)
            for path in self.outputs
        }

    def run(self, *, once: bool = False) -> None:
        """Start from the checkpoint, process what is there, end."""
        check_start(
            self.checkpoint,
            item="i7",
            sources=self.sources,
            generation=self.generation,
            sinks=self.sinks,
        )
        writer = self.read().writeStream.option("checkpointLocation", self.checkpoint.address)
        writer = writer.outputMode(self.mode)
        writer = writer.trigger(once=True) if once else writer.trigger(availableNow=True)
        if len(self.outputs) == 1 and self.fail_before is None and self.mode == "append":
            query = writer.format("delta").start(self.outputs[0])
        else:
            query = writer.foreachBatch(self._write).start()
        assert query.awaitTermination(LIMIT)

    def fail(self, before: int = 0) -> None:
        """A run whose batch fails before the output with this number is written."""
        from pyspark.errors import StreamingQueryException

        self.fail_before = before
        with pytest.raises(StreamingQueryException):
            self.run()
        self.fail_before = None

    def apply(self, edit: Edit, crash: int | None = None) -> None:
        """Apply an edit as the next generation, cut off once at a file operation if told so."""
        self.generation += 1
        given = {"item": "i7", "generation": self.generation}
        point = CrashPoint(crash)
        try:
            apply(Checkpoint(self.checkpoint.address, files=Files(point.on_call)), edit, **given)  # type: ignore[arg-type]
        except SimulatedCrash:
            apply(self.checkpoint, edit, **given)  # type: ignore[arg-type]

    def lose_commit(self) -> None:
        """What a crash between the sink's commit and Spark's leaves."""
        latest = self.checkpoint.latest_commits
        assert latest is not None
        self.checkpoint.files.remove(self.checkpoint.store, self.checkpoint.commits_file(latest))

    def settle(self, *, by_hand: bool = False) -> Any:
        """Decide and settle; the decision. ``by_hand``: what all sinks have is not run again."""
        decision = settlement(self.checkpoint, sinks=self.sinks)
        if by_hand and isinstance(decision, Finish):
            write_commit(self.checkpoint, decision.batch)
        elif not perform(self.checkpoint, decision):
            self.run(once=True)
        assert self.checkpoint.state().is_settled
        return decision

    def _write(self, frame: DataFrame, batch: int) -> None:
        for number, path in enumerate(self.outputs):
            if self.fail_before == number:
                raise Failing
            how = "overwrite" if self.mode == "complete" else "append"
            (
                frame.write.format("delta")
                .option("txnAppId", str(self.checkpoint.query_id))
                .option("txnVersion", batch)
                .mode(how)
                .save(path)
            )


class TestFollowing:
    def test_into_a_new_shard_and_from_a_runtime_that_wakes_up(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """After a copy the reader goes on in the new table: nothing is lost, nothing sent again.

        The commit of its last batch is lost and the old table gone: what every sink has is
        committed by hand. Later its runtime wakes up after another one has taken over: its batches
        vanish, and the successor writes neither twice nor too little.
        """
        place = {"now": tmp_path / "old"}
        query = Query(
            spark, tmp_path, lambda: spark.readStream.format("delta").load(str(place["now"]))
        )
        append(place["now"], range(5))
        query.run()
        append(place["now"], range(5, 9))
        query.run()
        assert query.checkpoint.state() == State("settled", 1)
        query.lose_commit()
        shutil.rmtree(place["now"])
        assert query.settle(by_hand=True) == Finish(1)
        assert query.checkpoint.state() == State("settled", 1)

        new = tmp_path / "new"
        append(new, [])
        copied = append(new, range(9))
        append(new, range(9, 12))
        target = DeltaCodec().write(delta_target(str(new), copied))
        query.apply(move(query.checkpoint, 0, target), crash=4)
        place["now"] = new
        query.run()
        assert numbers(query.outputs[0]) == list(range(12))
        assert query.sinks == {"out0": 2}

        query.lose_commit()
        late = tmp_path / "late"
        shutil.copytree(root(query.checkpoint), late)
        out = query.outputs[0]
        assert new_query_id(query.checkpoint, {"out0": delta_fence(out)}) == {"out0": 2}
        assert isinstance(query.settle(), Finish)
        assert numbers(out) == list(range(12))
        append(new, [12])
        stream = query.read().writeStream.option("checkpointLocation", str(late))
        assert stream.trigger(availableNow=True).format("delta").start(out).awaitTermination(LIMIT)
        assert numbers(out) == list(range(12))
        query.run()
        assert numbers(out) == list(range(13))
        assert query.sinks == {"out0": 3}

    @pytest.mark.soak
    def test_consumed_and_pending_rows_as_two_commits(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A reader that cannot be drained points at the second commit; only batch 0 is there."""
        place = {"now": tmp_path / "old"}
        query = Query(
            spark, tmp_path, lambda: spark.readStream.format("delta").load(str(place["now"]))
        )
        append(place["now"], range(5))
        query.run()
        append(place["now"], range(5, 9))
        assert query.checkpoint.state() == State("first", 0)
        position = DeltaCodec().read(query.checkpoint.entry(0).sources[0])
        assert position is not None
        assert position.consumed == 0

        new = tmp_path / "new"
        consumed = append(new, range(5))
        append(new, range(5, 9))
        target = DeltaCodec().write(delta_target(str(new), consumed))
        query.apply(move(query.checkpoint, 0, target))
        place["now"] = new
        query.run()

        assert numbers(query.outputs[0]) == list(range(9))

    @pytest.mark.soak
    def test_a_stateful_query_keeps_its_state(self, spark: SparkSession, tmp_path: Path) -> None:
        """Counts go on from where they were."""
        place = {"now": tmp_path / "old"}
        query = Query(
            spark,
            tmp_path,
            lambda: spark.readStream.format("delta").load(str(place["now"])).groupBy("id").count(),
            mode="complete",
        )
        append(place["now"], [1, 1, 2])
        query.run()
        append(place["now"], [2])
        query.run()
        assert query.checkpoint.is_stateful

        new = tmp_path / "new"
        copied = append(new, [1, 1, 2, 2])
        append(new, [2, 3])
        target = DeltaCodec().write(delta_target(str(new), copied))
        query.apply(move(query.checkpoint, 0, target))
        place["now"] = new
        query.run()

        assert numbers(query.outputs[0], "id * 100 + count") == [102, 203, 301]

    @pytest.mark.soak
    def test_one_of_two_inputs(self, spark: SparkSession, tmp_path: Path) -> None:
        """Only the input that moved gets another position; the other one goes on as it was."""
        place = {"left": tmp_path / "left", "right": tmp_path / "right"}

        def read() -> DataFrame:
            load = spark.readStream.format("delta").load
            return load(str(place["left"])).unionAll(load(str(place["right"])))

        query = Query(spark, tmp_path, read, sources=2)
        append(place["left"], [1])
        append(place["right"], [101])
        query.run()
        append(place["left"], [2])
        append(place["right"], [102])
        query.run()
        append(place["left"], [3])

        new = tmp_path / "new"
        copied = append(new, [101, 102])
        append(new, [103])
        target = DeltaCodec().write(delta_target(str(new), copied))
        query.apply(move(query.checkpoint, 1, target), crash=6)
        place["right"] = new
        query.run()

        assert numbers(query.outputs[0]) == [1, 2, 3, 101, 102, 103]


class TestMoves:
    @pytest.fixture
    def short_lists(self, spark: SparkSession) -> Iterator[None]:
        """Lists of files are compacted at every third number instead of every tenth."""
        key = "spark.sql.streaming.fileSource.log.compactInterval"
        spark.conf.set(key, "3")
        yield
        spark.conf.unset(key)

    def test_files_back_across_a_compacted_list(
        self, spark: SparkSession, tmp_path: Path, short_lists: None
    ) -> None:
        """Going back reads exactly the later files again, START all of them; counts are exact."""
        directory = tmp_path / "files"
        directory.mkdir()

        def put(*contents: int) -> None:
            for number in contents:
                hidden = directory / f".{number}"
                hidden.write_text(json.dumps({"id": number}))
                hidden.rename(directory / f"{number:03}.json")

        query = Query(
            spark,
            tmp_path,
            lambda: (
                spark.readStream.schema("id long")
                .option("maxFilesPerTrigger", "1")
                .json(str(directory))
            ),
        )
        put(*range(5))
        query.run()
        listed = root(query.checkpoint) / "sources/0"
        assert (listed / "2.compact").exists()
        # files of one millisecond are listed in any order, so the list says which come again
        entries = [(listed / name).read_text().splitlines()[1:] for name in ("3", "4")]
        entries.append([each for each in (listed / "2.compact").read_text().splitlines()[1:]
                        if json.loads(each)["batchId"] > 1])
        again = [int(Path(json.loads(line)["path"]).stem) for lines in entries for line in lines]
        assert len(again) == 3
        query.apply(move(query.checkpoint, 0, '{"logOffset":1}'))
        put(5)
        query.run()
        assert Counter(numbers(query.outputs[0])) == Counter([*range(6), *again])

        query.apply(reset(query.checkpoint, 0), crash=7)
        for file in range(3, 6):
            (directory / f"{file:03}.json").unlink()
        query.run()
        assert Counter(numbers(query.outputs[0])) == Counter([*range(6), *again, 0, 1, 2])

    @pytest.mark.soak
    def test_a_young_query(self, spark: SparkSession, tmp_path: Path) -> None:
        """With batch 0 alone: forth to a version, and back to START, which is every row."""
        source = tmp_path / "source"
        query = Query(spark, tmp_path, lambda: spark.readStream.format("delta").load(str(source)))
        append(source, [0])
        query.run()
        append(source, [1])
        append(source, [2])
        table_id = str(DeltaTable(str(source)).metadata().id)
        query.apply(move(query.checkpoint, 0, DeltaCodec().write(DeltaPosition(table_id, 2))))
        query.run()
        assert numbers(query.outputs[0]) == [0, 2]

        shutil.rmtree(root(query.checkpoint))
        shutil.rmtree(query.outputs[0])
        query.generation = 0
        claim(query.checkpoint, item="i7", sources=["s0"])
        query.run()
        query.apply(reset(query.checkpoint, 0))
        query.run()
        assert numbers(query.outputs[0]) == [0, 0, 1, 1, 2, 2]

    def test_moves_and_failures_give_exactly_the_rows_asked_for(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Back and forth, with a batch that failed and one that lost its commit."""
        require_rows_asked_for(
            spark,
            tmp_path,
            [
                ("move", 1),
                ("fail", 0),
                ("append", 2),
                ("move", 3),
                ("lose commit", 0),
            ],
        )

    @pytest.mark.soak
    @settings(
        max_examples=10,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        actions=st.lists(
            st.one_of(
                st.tuples(st.just("append"), st.integers(1, 3)),
                st.tuples(st.just("move"), st.integers(0, 30)),
                st.tuples(st.just("lose commit"), st.just(0)),
                st.tuples(st.just("fail"), st.just(0)),
                st.tuples(st.just("restore"), st.just(0)),
            ),
            min_size=3,
            max_size=6,
        )
    )
    def test_any_moves_and_failures_give_exactly_the_rows_asked_for(
        self, spark: SparkSession, actions: list[tuple[str, int]]
    ) -> None:
        """Whatever happens to the checkpoint, each run writes the versions from its position on."""
        with tempfile.TemporaryDirectory() as directory:
            require_rows_asked_for(spark, Path(directory), actions)


def require_rows_asked_for(
    spark: SparkSession, root: Path, actions: list[tuple[str, int]]
) -> None:
    """Carry out the actions, looking after each at what the query wrote."""
    source = root / "source"
    versions = [[0], [1]]
    for rows in versions:
        append(source, rows)
    table_id = str(DeltaTable(str(source)).metadata().id)
    query = Query(spark, root, lambda: spark.readStream.format("delta").load(str(source)))
    query.run()
    expected = Counter([0, 1])
    position = 2
    for act, number in actions:
        if act == "append":
            versions.append(list(range(len(versions) * 10, len(versions) * 10 + number)))
            append(source, versions[-1])
            query.run()
            expected.update(row for rows in versions[position:] for row in rows)
            position = len(versions)
        elif act == "move":
            position = number % (len(versions) + 1)
            line = DeltaCodec().write(DeltaPosition(table_id, position))
            query.apply(move(query.checkpoint, 0, line), crash=number)
        elif act == "lose commit":
            query.lose_commit()
            assert isinstance(query.settle(), Finish)
        elif position < len(versions):
            snapshots = Snapshots(query.checkpoint)
            before = query.checkpoint.state()
            snapshot = snapshots.take(act)
            query.fail()
            assert query.checkpoint.state().kind == "uncommitted"
            if act == "restore":
                snapshots.restore(snapshot.number, sinks_latest=query.sinks)
            else:
                assert isinstance(query.settle(), Remove)
            assert query.checkpoint.state() == before
        assert Counter(numbers(query.outputs[0])) == expected
    query.run()
    expected.update(row for rows in versions[position:] for row in rows)
    assert Counter(numbers(query.outputs[0])) == expected


class TestSnapshots:
    @pytest.mark.soak
    def test_never_below_the_sink(self, spark: SparkSession, tmp_path: Path) -> None:
        """Once a newer batch is in the sink its snapshot is refused; so is a lost checkpoint."""
        source = tmp_path / "source"
        query = Query(spark, tmp_path, lambda: spark.readStream.format("delta").load(str(source)))
        append(source, [1])
        query.run()
        snapshots = Snapshots(query.checkpoint)
        snapshots.take("before")
        append(source, [2])
        query.run()
        query.lose_commit()

        with pytest.raises(BehindSink, match="ends with batch 0, out0 has 1"):
            snapshots.restore(1, sinks_latest=query.sinks)
        for log in ("offsets", "commits"):
            shutil.rmtree(root(query.checkpoint) / log)
        with pytest.raises(BehindSink, match="whose newest is none"):
            query.run()

    def test_a_stateful_attempt_that_failed(
        self, spark: SparkSession, one_store: None, tmp_path: Path
    ) -> None:
        """The state of the failed batch is gone, another range under its id counts right."""
        source = tmp_path / "source"
        other = tmp_path / "other"
        place = {"now": source}
        query = Query(
            spark,
            tmp_path,
            lambda: spark.readStream.format("delta").load(str(place["now"])).groupBy("id").count(),
            mode="complete",
        )
        append(source, [1, 1])
        query.run()
        snapshots = Snapshots(query.checkpoint)
        snapshot = snapshots.take("before")
        append(source, [1, 1, 1])
        query.fail()
        snapshots.restore(snapshot.number, sinks_latest=query.sinks)
        copied = append(other, [1, 1])
        append(other, [1, 2])
        target = DeltaCodec().write(delta_target(str(other), copied))
        query.apply(move(query.checkpoint, 0, target))
        place["now"] = other
        query.run()

        assert numbers(query.outputs[0], "id * 100 + count") == [103, 201]


class TestOnS3:
    def test_moved_settled_and_taken_over(
        self, spark_on_s3: SparkSession, tmp_path: Path, bucket: str, object_store: ObjectStore
    ) -> None:
        """Spark goes on exactly from a checkpoint that was edited there, cut off and repeated, and
        from a copy after its commit was lost; whoever wakes up on the original writes no row."""
        remember(bucket, Storage(object_store.options))
        source = tmp_path / "source"
        read = spark_on_s3.readStream.format("delta").option("maxFilesPerTrigger", 1)
        query = Query(
            spark_on_s3, tmp_path, lambda: read.load(str(source)), checkpoint=f"{bucket}/ckpt"
        )
        append(source, range(3))
        append(source, range(3, 5))
        query.run()
        assert query.checkpoint.state() == State("settled", 1)
        target = DeltaCodec().write(delta_target(str(source), 0))
        query.apply(move(query.checkpoint, 0, target), crash=2)
        query.run()
        out = query.outputs[0]
        assert numbers(out) == [0, 1, 2, 3, 3, 4, 4]

        query.lose_commit()
        original, query.checkpoint = query.checkpoint, Checkpoint(f"{bucket}/copy")
        query.checkpoint.files.copy_tree(original.store, query.checkpoint.store)
        assert new_query_id(query.checkpoint, {"out0": delta_fence(out)}) == {"out0": 2}
        append(source, [5])
        stream = query.read().writeStream.option("checkpointLocation", original.address)
        assert stream.trigger(availableNow=True).format("delta").start(out).awaitTermination(LIMIT)
        assert numbers(out) == [0, 1, 2, 3, 3, 4, 4]
        assert query.settle(by_hand=True) == Finish(2)
        query.run()
        assert numbers(out) == [0, 1, 2, 3, 3, 4, 4, 5]


class TestSettling:
    def test_one_of_two_sinks_has_it(self, spark: SparkSession, tmp_path: Path) -> None:
        """The batch is completed: the sink that has it skips it."""
        source = tmp_path / "source"
        query = Query(
            spark,
            tmp_path,
            lambda: spark.readStream.format("delta").load(str(source)),
            outputs=2,
        )
        append(source, [1])
        query.run()
        append(source, [2])
        query.fail(before=1)
        append(source, [3])

        assert query.settle() == Complete(1, ("out1",))
        assert [numbers(path) for path in query.outputs] == [[1, 2], [1, 2]]
        query.run()
        assert [numbers(path) for path in query.outputs] == [[1, 2, 3], [1, 2, 3]]
