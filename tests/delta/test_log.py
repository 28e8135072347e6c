"""A commit that a power failure left empty is no commit: nothing is copied from such a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.delta.log import refuse_damaged_log
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure


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
