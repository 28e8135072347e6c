"""Tests of what a Delta table knows about a query, of fences, and of new query ids (delta-rs)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from catalog_migrate.errors import EngineFailure, InvalidPosition, LeaseLost
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.checkpoint import delta_tables
from catalog_migrate.streams.checkpoint.codecs import DeltaBounds, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import (
    FENCE,
    carry_batch,
    commit_batch,
    delta_batch,
    delta_bounds,
    delta_fence,
    delta_target,
    fence_delta,
    new_query_id,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files
from tests.services.checkpoints import root
from tests.simulation.crashes import CrashPoint, SimulatedCrash

Build = Any
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"
NEW = "11111111-2222-4333-8444-555555555555"
A = '{"t":{"0":1}}'


def append(path: str, batch: int | None = None, query: str = QUERY) -> None:
    """One row, as the batch of a query would write it."""
    transactions = None if batch is None else [Transaction(query, batch)]
    write_deltalake(
        path,
        Table.from_pydict({"id": Array([1], DataType.int64())}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=transactions),
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with batches 0 and 1 of the query."""
    place = str(tmp_path / "sink")
    append(place, 0)
    append(place, 1)
    return place


class TestBatch:
    def test_the_newest_batch(self, path: str) -> None:
        """By query id; None for one that never wrote, or a table that is not there."""
        assert delta_batch(path, QUERY) == 1
        assert delta_batch(path, NEW) is None
        assert delta_batch(f"{path}-none", QUERY) is None

    def test_a_table_that_cannot_be_read(self, path: str) -> None:
        """The engine's error keeps its cause."""
        log = Path(path) / "_delta_log" / f"{1:020}.json"
        log.write_text("{")
        with pytest.raises(EngineFailure, match="cannot open") as caught:
            delta_batch(path, QUERY)
        assert caught.value.__cause__ is not None


class TestEnter:
    """A batch of few rows, or of none, is committed without Spark."""

    ROWS = Table.from_pydict({"id": Array([7, 8], DataType.int64())})

    @pytest.mark.parametrize("rows", [None, ROWS])
    def test_once(self, path: str, rows: Any) -> None:
        """A batch that the table knows leaves it as it is."""
        before = DeltaTable(path).version()
        for batch in (1, 2, 2):
            commit_batch(path, QUERY, batch, rows)
        table = DeltaTable(path)
        assert (table.version(), table.transaction_version(QUERY)) == (before + 1, 2)
        assert table.count() == 2 + (0 if rows is None else 2)

    def test_a_barred_query(self, path: str) -> None:
        """A late process learns it, so that it commits nothing in its checkpoint either."""
        fence_delta(path, QUERY, NEW)
        before = DeltaTable(path).version()
        with pytest.raises(LeaseLost, match="is barred"):
            commit_batch(path, QUERY, 2, self.ROWS)
        assert DeltaTable(path).version() == before

    def test_a_fence_between_look_and_commit(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is seen: the commit is of the very next version, or none."""
        look = DeltaTable.transaction_version

        def looked(table: DeltaTable, query: str) -> int | None:
            found = look(table, query)
            if found == 1 and query == QUERY:
                monkeypatch.setattr(DeltaTable, "transaction_version", look)
                fence_delta(path, QUERY, NEW)
            return found

        monkeypatch.setattr(DeltaTable, "transaction_version", looked)
        with pytest.raises(LeaseLost, match="is barred"):
            commit_batch(path, QUERY, 2, self.ROWS)
        assert DeltaTable(path).count() == 2

    def test_a_table_that_delta_rs_does_not_write(self, path: str) -> None:
        """Rows: said at once, and no race, so that they are appended by Spark. No rows are a
        commit of ours, under any feature that is known."""
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7,
                    "writerFeatures": ["clustering", "domainMetadata"]}
        log = Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
        log.write_text(json.dumps({"protocol": protocol}) + "\n")
        with pytest.raises(EngineFailure, match="commit batch 2"):
            commit_batch(path, QUERY, 2, self.ROWS)
        assert DeltaTable(path).transaction_version(QUERY) == 1
        commit_batch(path, QUERY, 2)
        assert DeltaTable(path).transaction_version(QUERY) == 2

    def test_no_table(self, tmp_path: Path) -> None:
        with pytest.raises(EngineFailure, match="there is no Delta table"):
            commit_batch(str(tmp_path / "none"), QUERY, 0)


class TestTarget:
    def test_after_exactly_that_version(self, path: str) -> None:
        """The next version of the table that stands there, by its id."""
        table_id = DeltaTable(path).metadata().id

        assert delta_bounds(path) == DeltaBounds(table_id, 0, 1)
        assert delta_target(path, 0) == DeltaPosition(table_id, 1)
        assert delta_target(path, 1) == DeltaPosition(table_id, 2)

    @pytest.mark.parametrize("version", [-1, 2])
    def test_a_version_that_is_not_there(self, path: str, version: int) -> None:
        """A version is never guessed."""
        with pytest.raises(InvalidPosition, match="has versions up to 1"):
            delta_target(path, version)

    def test_no_table(self, tmp_path: Path) -> None:
        """There is nothing to follow."""
        with pytest.raises(EngineFailure, match="there is no Delta table"):
            delta_target(str(tmp_path), 0)


class TestFence:
    def test_the_old_id_is_barred_and_what_it_had_is_kept(self, path: str) -> None:
        """One commit without rows: the fence, what was before it, and the successor's batch."""
        rows = DeltaTable(path).count()

        assert fence_delta(path, QUERY, NEW) == 1
        table = DeltaTable(path)
        assert (table.version(), table.count()) == (2, rows)
        assert table.transaction_version(QUERY) == FENCE
        assert (delta_batch(path, QUERY), delta_batch(path, NEW)) == (1, 1)
        actions = (Path(path) / "_delta_log" / f"{2:020}.json").read_text().splitlines()
        assert sorted(key for line in actions for key in json.loads(line)) == [
            "commitInfo", "txn", "txn", "txn",
        ]  # fmt: skip

    def test_again(self, path: str) -> None:
        """It stays as it is, also for another successor; the same one needs no commit."""
        assert [fence_delta(path, QUERY, NEW) for _ in range(2)] == [1, 1]
        assert DeltaTable(path).version() == 2
        other = NEW.replace("1", "9")
        assert fence_delta(path, QUERY, other) == 1
        assert delta_batch(path, other) == 1

    def test_a_successor_that_went_on(self, path: str) -> None:
        """A fence repeated late does not put its successor back."""
        fence_delta(path, QUERY, NEW)
        append(path, 2, NEW)

        assert fence_delta(path, QUERY, NEW) == 1
        assert delta_batch(path, NEW) == 2

    def test_a_query_that_never_wrote(self, path: str) -> None:
        """It is barred all the same, with nothing to carry."""
        assert fence_delta(path, NEW, QUERY) is None
        assert DeltaTable(path).transaction_version(NEW) == FENCE
        assert (delta_batch(path, NEW), delta_batch(path, QUERY)) == (None, 1)

    def test_no_table(self, tmp_path: Path) -> None:
        """There is nothing to fence, and nothing is created."""
        assert fence_delta(str(tmp_path / "none"), QUERY, NEW) is None
        assert not (tmp_path / "none").exists()

    def test_a_writer_that_comes_between(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The fence is made on what it wrote, and is there when it has returned."""
        commit, others = delta_tables.commit_transactions, iter([2])

        def race(*args: Any, **named: Any) -> bool:
            for batch in others:
                append(path, batch)
            return commit(*args, **named)

        monkeypatch.setattr(delta_tables, "commit_transactions", race)
        assert fence_delta(path, QUERY) == 2
        assert DeltaTable(path).transaction_version(QUERY) == FENCE
        assert delta_batch(path, QUERY) == 2

    def test_a_partitioned_table(self, tmp_path: Path) -> None:
        """The empty commit keeps the partitioning."""
        place = str(tmp_path / "sink")
        rows = Table.from_pydict(
            {"id": Array([1], DataType.int64()), "day": Array(["d"], DataType.string())}
        )
        write_deltalake(place, rows, partition_by=["day"])
        fence_delta(place, QUERY, NEW)

        assert DeltaTable(place).metadata().partition_columns == ["day"]


class TestNewQueryId:
    def test_the_id_changes_and_nothing_else(self, build: Build, path: str) -> None:
        """Batch ids go on, the uncommitted entry stays, each sink tells what it had."""
        checkpoint = build([[A], [A]], 0)
        fences = {"a": delta_fence(path), "b": delta_fence(f"{path}-none")}

        batches = new_query_id(checkpoint, fences)

        new = checkpoint.query_id
        assert new not in (None, QUERY)
        assert batches == {"a": 1, "b": None}
        assert (root(checkpoint) / "metadata").read_text() == f'{{"id":"{new}"}}'
        assert checkpoint.state().kind == "uncommitted"
        assert delta_batch(path, str(new)) == 1

    def test_it_is_random(self, build: Build) -> None:
        """Two takeovers never meet under one id."""
        checkpoint = build([[A]], 0)
        seen = {checkpoint.query_id}
        for _ in range(2):
            new_query_id(checkpoint, {})
            seen.add(checkpoint.query_id)
        assert len(seen) == 3

    def test_one_that_was_never_started(self, tmp_path: Path) -> None:
        """There is no id to change, and nothing to fence."""
        assert new_query_id(Checkpoint(tmp_path / "n"), {"a": delta_fence("x")}) == {
            "a": None
        }

    def test_cut_off_anywhere(self, build: Build, tmp_path: Path) -> None:
        """The id is old or new, never half; a repetition fences once more and ends."""
        for at in itertools.count(1):
            place = str(tmp_path / f"t{at}")
            append(place, 0)
            checkpoint = build([[A]], 0, name=f"c{at}")
            fences = {"a": delta_fence(place)}
            point = CrashPoint(at)
            cut = Checkpoint(checkpoint.address, files=Files(point.on_call))
            try:
                new_query_id(cut, fences)
            except SimulatedCrash:
                assert checkpoint.query_id is not None
                assert delta_batch(place, checkpoint.query_id) == 0
            else:
                break
            assert new_query_id(checkpoint, fences) == {"a": 0}
            assert delta_batch(place, str(checkpoint.query_id)) == 0
        assert at > (1 if is_remote(checkpoint.address) else 2)


class TestCarry:
    def test_writers_do_not_keep_it_from_coming(
        self, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The batch is entered behind whatever rows come meanwhile, at the first attempt."""
        new, commit = str(tmp_path / "new"), delta_tables.commit_transactions
        append(new)

        def race(*args: Any, **named: Any) -> bool:
            append(new)
            return commit(*args, **named)

        monkeypatch.setattr(delta_tables, "commit_transactions", race)
        assert carry_batch(path, new, QUERY) == 1
        assert delta_batch(new, QUERY) == 1
        assert DeltaTable(new).version() == 2
