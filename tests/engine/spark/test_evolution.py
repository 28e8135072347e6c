"""A change in place: one commit, that is written over no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.delta import log
from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.log import put_commit
from catalog_migrate.delta.table import shard_size, shard_version
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark import evolution
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.evolution import OPERATION
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import PlacedColumn, Shape
from catalog_migrate.model.objects import Check, Column
from tests.engine import direct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "catalog_migrate/test"
WRITER = Path(__file__).parents[2] / "delta" / "appending.py"
COLUMNS = (Column("writer", "BIGINT"), Column("n", "BIGINT"))
MORE = (*COLUMNS, Column("more", "STRING", comment="new"))
SECONDS = 120.0


@pytest.fixture
def path(warehouse: str) -> str:
    """An empty shard of two columns."""
    path = f"{warehouse}/t"
    Shards(None).create_shard(ShardSpec(path, COLUMNS))
    return path


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets something happen in the last moment, before the system call that takes the version."""
    link = os.link

    def arrange(act: Callable[[], object]) -> None:
        def late(partial: str, target: str) -> None:
            if "_catalog_migrate-" not in target:  # a shadow table's own log is nobody else's
                monkeypatch.setattr(os, "link", link)
                act()
            link(partial, target)

        monkeypatch.setattr(os, "link", late)

    return arrange


def evolve(path: str, comment: str = "", columns: tuple[Column, ...] = MORE, **held: Any) -> None:
    """By delta-rs alone: without Spark."""
    Shards(None).evolve(path, columns, ShardSpec(path, columns, comment=comment or None), **held)


def append(path: str, number: int | None) -> None:
    """One row, by delta-rs."""
    value = Array([number], type=DataType.int64())
    write_deltalake(path, Table.from_pydict({"writer": value, "n": value}), mode="append")


def operations(path: str) -> list[str]:
    """What the table's history says, oldest first."""
    return [str(each["operation"]) for each in DeltaTable(path).history()][::-1]


def litter(path: str) -> list[str]:
    """Hidden files and directories of ours that are left in a shard."""
    place = Path(path)
    return [
        str(each.relative_to(place)) for each in place.rglob("*")
        if each.name.startswith("_catalog_migrate") or each.name.endswith(".tmp")
    ]


def test_a_commit_that_lands_in_the_last_moment_is_kept(
    path: str, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    """Between the look at the log and the commit another process' rows come: both are there."""
    meanwhile(lambda: (append(path, 1), append(path, 2)))
    evolve(path, "later")
    assert operations(path) == ["CREATE TABLE", "WRITE", "WRITE", OPERATION]
    assert shard_size(path)[0] == 2
    assert [column.name for column in Shards(None).shard_columns(path)] == ["writer", "n", "more"]
    assert DeltaTable(path).metadata().description == "later"
    assert litter(path) == []


@pytest.mark.parametrize("changes", [20, pytest.param(80, marks=pytest.mark.soak)])
def test_no_row_is_lost_among_changes_and_writers_that_never_pause(
    path: str, changes: int
) -> None:
    """Two processes append as fast as they can, many changes in place: what was acknowledged is
    there, and so is each change, a commit of its own among the others."""
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), path, str(number), "sealed"], stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        deadline = time.monotonic() + SECONDS
        while version_of(path) < 10:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for number in range(changes):
            evolve(path, f"change {number}", COLUMNS)
        seals.seal(path, follows=version_of(path), app_id=APP, epoch=1)
        said = [json.loads(writer.communicate(timeout=SECONDS)[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    done = operations(path)
    landed = sum(each["landed"] for each in said)
    assert done.count(OPERATION) == changes
    assert all(each["landed"] and each["times"] > 1 for each in said)  # they did meet
    assert done.count("WRITE") == landed == shard_size(path)[0]


def version_of(path: str) -> int:
    version = shard_version(path)
    assert version is not None
    return version


def test_metadata_that_changed_meanwhile_is_not_written_over(
    path: str, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    """Then the change was worked out for another table: it is refused, to be tried again."""
    meanwhile(lambda: DeltaTable(path).alter.set_table_description("a user's"))
    with pytest.raises(EngineFailure) as caught:
        evolve(path, "ours")
    assert (caught.value.condition, caught.value.transient) == ("DELTA_METADATA_CHANGED", True)
    assert DeltaTable(path).metadata().description == "a user's"
    assert version_of(path) == 1
    assert litter(path) == []
    evolve(path, "ours")
    assert DeltaTable(path).metadata().description == "ours"


@pytest.mark.parametrize("late", [True, False])
def test_a_late_holder_leaves_its_successors_change_alone(
    path: str, late: bool, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    """One that wakes under an older epoch, in the last moment or before, is refused."""
    def successor() -> None:
        if late:
            seals.fence(path, APP, 5)
        else:
            evolve(path, "successor", app_id=APP, epoch=5)

    if late:
        meanwhile(successor)
    else:
        successor()
    version = version_of(path)
    with pytest.raises(EngineFailure) as caught:
        evolve(path, "late", COLUMNS if late else MORE, app_id=APP, epoch=4)
    assert (caught.value.condition, caught.value.transient) == ("FENCED", True)
    assert version_of(path) == version + late
    evolve(path, "own", app_id=APP, epoch=5)
    assert DeltaTable(path).transaction_version(APP) == 5


def test_what_a_crash_left_goes_with_the_next_change(path: str) -> None:
    """A shadow table that nobody took away is no table of the warehouse, and is not there for
    ever; what somebody else called much the same stays."""
    left = Path(path) / f"_catalog_migrate-{'0' * 32}"
    Shards(None).create_shadow_table(path, str(left))
    notes = Path(path) / "_catalog_migrate-notes" / "mine.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    assert list(Shards(None).list_shards(str(Path(path).parent))) == [path]
    evolve(path)
    assert notes.exists()
    assert litter(path) == [notes.parent.name]
    left.mkdir()
    (Path(path) / "_delta_log").rename(left / "_delta_log")  # as if the shard were half removed
    assert list(Shards(None).list_shards(str(Path(path).parent))) == []


@pytest.mark.parametrize("gone", ["shadow table", "shard"])
def test_a_shadow_table_that_is_taken_away_is_made_again(
    path: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another holder's start removes it: to be tried again. A shard that is gone stays gone."""
    alter = evolution._alter

    def taken(session: Any, shadow: str, wanted: Any) -> None:
        alter(session, shadow, wanted)
        shutil.rmtree(shadow if gone == "shadow table" else path)

    monkeypatch.setattr(evolution, "_alter", taken)
    with pytest.raises(EngineFailure) as caught:
        evolve(path)
    assert caught.value.transient == (gone == "shadow table")
    assert Path(path).exists() == (gone == "shadow table")


def test_rows_that_come_while_a_change_is_worked_out_are_not_raced_for(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements take seconds and a writer makes fifty commits in one: only what lands in the last
    moment counts as a lost race."""
    alter, races = evolution._alter, 10

    def slow(session: Any, shadow: str, wanted: Any) -> None:
        alter(session, shadow, wanted)
        for number in range(races + 5):
            append(path, number)

    monkeypatch.setattr(log, "_RACES", races)
    monkeypatch.setattr(evolution, "_alter", slow)
    evolve(path, "later")
    assert operations(path)[-1] == OPERATION
    assert shard_size(path)[0] == races + 5


def test_no_commit_is_put_below_a_checkpoint(path: str) -> None:
    """Where the log was cleaned up meanwhile a version is free that nobody would ever read."""
    for number in range(4):
        append(path, number)
    DeltaTable(path).create_checkpoint()
    for number in range(4):
        (Path(path) / "_delta_log" / f"{number:020d}.json").unlink()
    with pytest.raises(EngineFailure) as caught:
        put_commit(path, [], follows=1, operation="TEST")
    assert (caught.value.condition, caught.value.transient) == ("DELTA_CONCURRENT_WRITE", True)
    (Path(path) / "_delta_log" / f"{4:020d}.json").unlink()
    assert put_commit(path, [], follows=4, operation="TEST") == 5


def test_a_spark_that_writes_over_a_change_or_a_seal_is_seen(path: str, tmp_path: Path) -> None:
    """No checksum answers for a commit that is not there any more."""
    assert (Path(path) / "_delta_log" / f"{0:020d}.crc").exists()
    before = tmp_path / "before"
    shutil.copytree(path, before)
    append(str(before), 1)
    theirs = before / "_delta_log" / f"{1:020d}.json"
    for ours in (
        lambda: evolve(path),
        lambda: seals.seal(path, follows=0, app_id=APP, epoch=1),
    ):
        ours()
        shutil.copy(theirs, Path(path) / "_delta_log" / theirs.name)
        assert tuple(Shards(None).shard_columns(path)) == COLUMNS
        assert not seals.is_sealed(path)
        (Path(path) / "_delta_log" / theirs.name).unlink()


def test_what_delta_rs_does_not_write_needs_a_session(path: str) -> None:
    """The shadow table has the features of the shard, and is changed by Spark then; where nothing
    is to be done nothing is asked for."""
    put_commit(
        path,
        [{"protocol": {
            "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"],
        }}],
        follows=0, operation="TEST",
    )
    evolve(path, "", COLUMNS)
    with pytest.raises(EngineFailure, match="needs a Spark session") as caught:
        evolve(path, "later")
    assert (caught.value.condition, caught.value.transient) == (None, False)
    assert version_of(path) == 1


@pytest.mark.spark
class TestOnSpark:
    """What needs Spark's statements is one commit too."""

    def test_many_statements_are_one_commit_that_spark_reads(
        self, spark: SparkSession, path: str
    ) -> None:
        """Two columns swapped, one dropped, one added in front: one version, its rows, its
        history; what Spark refuses is refused with the shard's own place."""
        engine = SparkEngine(spark)
        direct.append(path, [{"writer": 1, "n": 2}])
        wanted = (Column("first", "DATE"), Column("n", "BIGINT"), Column("writer", "BIGINT"))
        shape = Shape((
            PlacedColumn("", "first", "DATE"), PlacedColumn("writer", "n", "BIGINT"),
            PlacedColumn("n", "writer", "BIGINT"),
        ))
        engine.evolve(path, wanted, ShardSpec(path, wanted, comment="swapped"), shape)
        assert version_of(path) == 2
        assert [tuple(row) for row in spark.read.format("delta").load(path).collect()] == [
            (None, 1, 2)
        ]
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (NULL, 3, 4)")
        history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
        assert [row.operation for row in history] == ["WRITE", OPERATION, "WRITE", "CREATE TABLE"]
        with pytest.raises(EngineFailure) as caught:
            engine.evolve(
                path, wanted, ShardSpec(path, wanted, checks=[Check("wrong", "nothing > 0")])
            )
        assert "_catalog_migrate" not in caught.value.message
        assert version_of(path) == 3
        assert litter(path) == []

    def test_a_check_is_proven_on_the_rows(self, spark: SparkSession, path: str) -> None:
        """The shadow table has none that could violate it; NULL violates one, as in Spark's own."""
        engine = SparkEngine(spark)
        checked = ShardSpec(path, COLUMNS, checks=[Check("positive", "n > 0")])
        append(path, 1)
        for wrong in (-1, None):
            append(path, wrong)
            version = version_of(path)
            with pytest.raises(EngineFailure) as caught:
                engine.evolve(path, COLUMNS, checked)
            assert caught.value.condition == "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"
            assert version_of(path) == version
            with pytest.raises(Exception, match="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"):
                spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (n > 0)")
            DeltaTable(path).delete("n < 0 OR n IS NULL")
        engine.evolve(path, COLUMNS, checked)
        with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
            spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, -1)")

    def test_rows_that_come_while_a_check_is_proven_are_proven_too(
        self, spark: SparkSession, path: str,
        meanwhile: Callable[[Callable[[], object]], None],
    ) -> None:
        """It is not put behind rows that nobody looked at, but tried again."""
        engine = SparkEngine(spark)
        checked = ShardSpec(path, COLUMNS, checks=[Check("positive", "n > 0")])
        meanwhile(lambda: append(path, -1))
        with pytest.raises(EngineFailure) as caught:
            engine.evolve(path, COLUMNS, checked)
        assert (caught.value.condition, caught.value.transient) == ("DELTA_CONCURRENT_APPEND", True)
        with pytest.raises(EngineFailure, match="violate the check positive"):
            engine.evolve(path, COLUMNS, checked)

    def test_a_clustered_table_is_changed_in_place(
        self, spark: SparkSession, warehouse: str
    ) -> None:
        """Its clustering is in the log beside its form, and stays; delta-rs could not write it."""
        engine, path = SparkEngine(spark), f"{warehouse}/c"
        engine.create_shard(ShardSpec(path, COLUMNS, clustered_by=["n"]))
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
        engine.evolve(path, MORE, ShardSpec(path, MORE, comment="later", clustered_by=["n"]))
        assert tuple(engine.shard_columns(path)) == MORE
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 4, 'x')")
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
        assert (detail.clusteringColumns, detail.description) == (["n"], "later")
        assert spark.read.format("delta").load(path).count() == 2
