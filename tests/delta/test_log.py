"""What a table's log says: commits that a power failure left empty, and what whole ones did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import CommitProperties, DeltaTable, write_deltalake

from catalog_migrate.delta import log
from catalog_migrate.delta.files import rows_added
from catalog_migrate.delta.log import (
    commit_log,
    is_same_commit,
    put_commit,
    read_change,
    refuse_damaged_log,
)
from catalog_migrate.delta.table import commit_transactions
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store.address import Storage
from catalog_migrate.store.local import LocalStore


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A table of four commits of a row each."""
    for number in range(4):
        rows = Table.from_pydict({"id": Array([number], DataType.int64())})
        write_deltalake(tmp_path / "shard", rows, mode="append")
    return tmp_path / "shard"


def commit(shard: Path, version: int) -> Path:
    """The file of a commit."""
    return shard / "_delta_log" / f"{version:020d}.json"


@pytest.mark.parametrize("version", [2, 3])
def test_an_empty_commit_is_refused(shard: Path, version: int) -> None:
    """Readers take it for one without a change, and lose its rows in silence; we name the file."""
    refuse_damaged_log(str(shard))
    file = commit(shard, version)
    content = file.read_bytes()
    file.write_bytes(b"")
    assert len(DeltaTable(shard).file_uris()) == 3
    with pytest.raises(EngineFailure, match=file.name):
        Shards(None).seal(str(shard), follows=3, app_id="a", epoch=1)
    file.write_bytes(content)
    assert Shards(None).seal(str(shard), follows=3, app_id="a", epoch=1) == 4


def test_behind_a_checkpoint_it_is_not_read(shard: Path) -> None:
    """What a checkpoint has is whole."""
    DeltaTable(shard).create_checkpoint()
    commit(shard, 2).write_bytes(b"")
    refuse_damaged_log(str(shard))


# -- what a commit did -----------------------------------------------------------------------------

@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two appends, a property, a compaction, a delete: versions 0 to 4."""
    path = str(tmp_path / "t")
    for number in range(2):
        rows = Table.from_pydict({"id": Array([number], DataType.int64())})
        write_deltalake(path, rows, mode="append")
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 0")
    return path


@pytest.mark.parametrize(
    ("version", "did"),
    [
        (0, ("adds", "redefines", "changes_protocol")), (1, ("adds",)), (2, ("redefines",)),
        (3, ()), (4, ("adds", "removes")),
    ],
)
def test_what_a_commit_did(table: str, version: int, did: tuple[str, ...]) -> None:
    """A compaction changes no row; a delete writes again what stays."""
    change = read_change(table, version)
    names = ("adds", "removes", "redefines", "changes_protocol")
    assert tuple(name for name in names if getattr(change, name)) == did
    assert change.transactions == {}


def test_rows_are_counted_by_the_commits_that_append_them(table: str) -> None:
    """The statistics of added files; what a compaction writes is not counted."""
    assert rows_added(table, 0, 4) == 2
    assert rows_added(table, 2, 4) == 0


def test_an_empty_commit_carries_transactions(table: str) -> None:
    """Nothing else is in it."""
    commit_transactions(DeltaTable(table), {"a": 7, "b": 1})
    change = read_change(table, 5)
    assert change.transactions == {"a": 7, "b": 1}
    assert (change.adds, change.removes, change.redefines) == (False, False, False)


def test_a_commit_says_whose_it_is(tmp_path: Path) -> None:
    """Its id is told apart from the rest of what we wrote into it; others' words are left out."""
    rows = Table.from_pydict({"id": Array([1], DataType.int64())})
    write_deltalake(tmp_path, rows, commit_properties=CommitProperties(custom_metadata={
        "catalog_migrate.commit": "c1", "catalog_migrate.kind": "seal", "other": "x",
    }))
    commits = commit_log(str(tmp_path), Storage(), lambda *said: AssertionError(said))
    found = commits.commit(0)
    assert (found.commit_id, dict(found.metadata)) == ("c1", {"kind": "seal"})


def test_a_commit_that_is_not_there(table: str) -> None:
    """EngineFailure names version and table."""
    with pytest.raises(EngineFailure, match=f"version 9 of {table}"):
        read_change(table, 9)


def test_the_same_commit_of_a_copy(table: str, tmp_path: Path) -> None:
    """Byte for byte; one that is not there is another."""
    other = str(tmp_path / "other")
    commit = Path(other, "_delta_log", f"{1:020d}.json")
    commit.parent.mkdir(parents=True)
    assert not is_same_commit(table, other, 1)
    commit.write_bytes(Path(table, "_delta_log", commit.name).read_bytes())
    assert is_same_commit(table, other, 1)
    commit.write_bytes(b"{}")
    assert not is_same_commit(table, other, 1)


# -- a commit of our own ---------------------------------------------------------------------------

def test_a_commit_that_goes_behind_nothing(table: str) -> None:
    """Where others' rows may not come before it, any commit since the look refuses it."""
    with pytest.raises(EngineFailure, match="others wrote to it") as refused:
        put_commit(table, [], follows=3, operation="TEST", behind_data=False)
    assert (refused.value.condition, refused.value.transient) == ("DELTA_CONCURRENT_APPEND", True)
    assert put_commit(table, [], follows=4, operation="TEST", behind_data=False) == 5


def test_a_commit_says_that_it_is_no_append(table: str) -> None:
    """Spark lets writers of rows pass a blind append."""
    version = put_commit(table, [], follows=4, operation="TEST")
    lines = commit(Path(table), version).read_text().splitlines()
    assert json.loads(lines[0])["commitInfo"]["isBlindAppend"] is False


@pytest.mark.parametrize(("versions", "lands"), [(3, False), (4, True)])
def test_a_commit_is_given_up(
    shard: Path, monkeypatch: pytest.MonkeyPatch, versions: int, lands: bool
) -> None:
    """So many versions may be taken by others after the one that was looked at."""
    monkeypatch.setattr(log, "_RACES", versions)
    for number in (4, 5, 6):
        rows = Table.from_pydict({"id": Array([number], DataType.int64())})
        write_deltalake(shard, rows, mode="append")
    if lands:
        assert put_commit(str(shard), [], follows=3, operation="TEST") == 7
    else:
        with pytest.raises(EngineFailure, match="others took every version"):
            put_commit(str(shard), [], follows=3, operation="TEST")


def test_why_no_log_is_seen(tmp_path: Path) -> None:
    """In the system's words, where it has any."""
    (tmp_path / "_delta_log").write_text("")
    assert log.find_log_problem(str(tmp_path)) == "Not a directory"
    assert log.find_log_problem(str(tmp_path / "other")) == "No such file or directory"
    (tmp_path / "empty/_delta_log").mkdir(parents=True)
    assert log.find_log_problem(str(tmp_path / "empty")) == "its log is empty"


def test_the_commit_of_a_checkpoint_is_wanted(shard: Path) -> None:
    """Its file has the id of the commit; those before it are history, which only some ask for."""
    commits = log.CommitLog(LocalStore(str(shard)), lambda *said: AssertionError(said))
    DeltaTable(shard).create_checkpoint()
    commit(shard, 2).unlink()
    assert commits.newest() == 3
    with pytest.raises(AssertionError, match=f"{commit(shard, 2).name}.*is missing"):
        commits.whole()
    commit(shard, 3).unlink()
    with pytest.raises(AssertionError, match=f"{commit(shard, 3).name}.*is missing"):
        commits.newest()


def test_a_store_is_listed_from_the_newest_commit_on(shard: Path) -> None:
    """All of it once, and then what came since, with the commit that is known."""
    asked = []

    class Listed(LocalStore):
        def names(self, folder: str = "", after: str = "") -> list[str]:
            asked.append(after)
            return super().names(folder, after)

    commits = log.RemoteCommitLog(Listed(str(shard)), lambda *said: AssertionError(said))
    assert commits.newest() == 3
    rows = Table.from_pydict({"id": Array([4], DataType.int64())})
    write_deltalake(shard, rows, mode="append")
    assert [commits.newest(), commits.newest()] == [4, 4]
    assert asked == ["", commit(shard, 2).name, commit(shard, 3).name]


def test_a_look_makes_nothing_of_what_a_commit_says() -> None:
    """Only the metrics of a commit are kept of it, and what is no object is refused as ever."""
    said = b'{"commitInfo":{"operationMetrics":{"num_added_files":1},"other":"x"}}'
    assert log.decode_briefly(said + b'\n\n{"add":{"path":"a"}}\n') == [
        {"commitInfo": {"operationMetrics": {"num_added_files": 1}}},
        {"add": {"operationMetrics": None}},
    ]
    for bad in (b'{"add":1}', b"[]", said[:-3], said + said):
        with pytest.raises(ValueError, match=r"JSON|Expected|truncated"):
            log.decode_briefly(bad)
