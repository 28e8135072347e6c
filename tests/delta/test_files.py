"""Rows by the log alone, deletion vectors taken off; and what is a change of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from catalog_migrate.delta.files import newest_checkpoint, rows_added
from catalog_migrate.delta.log import read_change
from catalog_migrate.delta.table import (
    clustering_columns,
    count_appended,
    data_files,
    data_size,
    form_of,
    protocol_at,
    remove_files,
    shard_size,
    table_size,
    view_table,
)
from catalog_migrate.streams.catalog.tables import DeltaTables
from tests.delta.logs import add, metadata, protocol, remove, write_commit

WHOLE, SHRUNK, SMALLER = add("a", 5), add("a", 5, 2, at=1), add("a", 5, 3, at=40)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Five rows; two, then a third of them deleted by vectors; four appended; the file rewritten.

    The order of actions within a commit means nothing.
    """
    path = str(tmp_path / "t")
    held = protocol(readers=["deletionVectors"])
    write_commit(path, 0, held, metadata(**{"delta.enableDeletionVectors": "true"}))
    write_commit(path, 1, WHOLE)
    write_commit(path, 2, SHRUNK, remove(WHOLE))
    write_commit(path, 3, remove(SHRUNK), SMALLER)
    write_commit(path, 4, add("b", 4))
    write_commit(path, 5, remove(SMALLER), add("c", 2))
    return path


ROWS = [0, 5, 3, 2, 6, 6]


def rows_at(path: str, version: int) -> int:
    return table_size(view_table(path, version=version))[0]


@pytest.mark.parametrize("checkpoint", [None, 2, 3, 5])
def test_rows_are_those_that_are_not_deleted(path: str, checkpoint: int | None) -> None:
    """At every version, by commits alone or a checkpoint and the commits behind it."""
    if checkpoint is not None:
        DeltaTable(path, version=checkpoint).create_checkpoint()
    assert [rows_at(path, version) for version in range(6)] == ROWS
    assert shard_size(path) == (6, 20, 2, None)


@pytest.mark.parametrize(
    ("to", "newest", "exchange"), [(1, 3, (0, 3)), (2, 5, (6, 3)), (4, 5, (2, 2))]
)
def test_a_restore_counts_deleted_rows(
    path: str, to: int, newest: int, exchange: tuple[int, int]
) -> None:
    """Rows that only a vector took come back, and none go; a rewritten file goes and comes back."""
    assert DeltaTables().count_exchanged(path, to, newest) == exchange
    assert DeltaTables().rows_at(path, to) == ROWS[to]


def test_a_log_that_was_cleaned_up_is_counted_by_its_checkpoint(path: str) -> None:
    """The commits below it are not there any more."""
    DeltaTable(path, version=4).create_checkpoint()
    for version in range(4):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    assert [rows_at(path, version) for version in (4, 5)] == [6, 6]


def test_what_a_table_has_is_in_its_checkpoint_once_its_commits_are_missing(path: str) -> None:
    """Its protocol, and what it is clustered by."""
    domain = {"domain": "delta.clustering", "removed": False,
              "configuration": '{"clusteringColumns":[["id"]]}'}
    held = protocol("clustering", "domainMetadata", readers=["deletionVectors"])
    write_commit(path, 6, held, {"domainMetadata": domain})
    assert clustering_columns(path) == ("id",)
    DeltaTable(path).create_checkpoint()
    for version in range(7):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    assert protocol_at(path)["readerFeatures"] == ["deletionVectors"]
    assert clustering_columns(path) == ("id",)


def test_a_checkpoint_counts_when_all_its_parts_are_there() -> None:
    """Else the one before it does; parts of two checkpoints of one version are not put together."""
    one = f"{3:020d}.checkpoint.parquet"
    parts = [f"{7:020d}.checkpoint.{number:010d}.{2:010d}.parquet" for number in (1, 2)]
    other = f"{7:020d}.checkpoint.{1:010d}.{3:010d}.parquet"
    assert newest_checkpoint([one, *parts, other], 9) == (7, tuple(parts))
    assert newest_checkpoint([one, parts[0], other], 9) == (3, (one,))
    assert newest_checkpoint([parts[0], other], 9) == (-1, ())
    assert newest_checkpoint([one, *parts], 6) == (3, (one,))


def test_a_file_without_statistics_makes_the_number_unknown(path: str) -> None:
    """As it does without deletion vectors; what a checkpoint says of it is the same."""
    write_commit(path, 6, add("d", None))
    assert shard_size(path)[0] == -1
    DeltaTable(path).create_checkpoint()
    assert shard_size(path)[0] == -1
    assert count_appended(path, 5) == -1
    assert count_appended(path, 3, 4) == 4


def test_rows_that_are_deleted_in_a_file_are_no_growth(path: str) -> None:
    """A file with another vector is another file: no tail can be copied behind it."""
    assert [count_appended(path, after) for after in range(6)] == [6, None, None, None, None, 0]
    counts = [count_appended(path, after, after + 1) for after in range(5)]
    assert counts == [5, None, None, 4, None]
    assert len(data_files(path, 1) - data_files(path, 2)) == 1


def test_a_deletion_brings_no_rows(path: str) -> None:
    """It removes some; a file that is written again brings those that it has."""
    assert [rows_added(path, version, version + 1) for version in range(6)] == [0, 5, 0, 0, 4, 2]
    changes = [read_change(path, version) for version in range(1, 6)]
    assert [(change.adds, change.removes) for change in changes] == [
        (True, False), (False, True), (False, True), (True, False), (True, True),
    ]


def test_all_rows_are_removed_by_one_commit(path: str) -> None:
    """With the vectors of its files; a table without rows is left as it is; metadata stays."""
    write_commit(path, 6, add("a", 5, 1, at=7))
    before = form_of(view_table(path))
    remove_files(path)
    assert (shard_size(path), view_table(path).version()) == ((0, 0, 0, None), 7)
    remove_files(path)
    assert view_table(path).version() == 7
    assert form_of(view_table(path)) == before


def test_what_is_written_is_seen_before_it_is_committed(tmp_path: Path) -> None:
    """Data files in partitions too; neither the log nor hidden files; no directory is no byte."""
    for name, size in (("a", 5), ("p=1/b", 10), ("_delta_log/0.json", 7), (".hidden/c", 3)):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * size)
    assert data_size(str(tmp_path)) == 15
    assert data_size(str(tmp_path / "nothing")) == 0
