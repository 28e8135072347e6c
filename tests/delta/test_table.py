"""Tables, how they grew by their own log, and their directories: no Spark."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.delta.table import (
    count_appended,
    delete_data,
    delete_table,
    publish,
    require_plain,
    shadow_name,
    sweep_shadow_tables,
    table_around,
    tables_below,
)
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.objects import Column
from catalog_migrate.store.local import LocalStore


def rows(*values: int) -> Table:
    return Table.from_pydict({"id": Array(list(values), DataType.int64())})


def test_appended_rows_are_counted(tmp_path: Path) -> None:
    """What came after a version, up to another or the newest; nothing for a metadata commit."""
    path = str(tmp_path / "shard")
    write_deltalake(path, rows(1))
    write_deltalake(path, rows(2, 3), mode="append")
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    write_deltalake(path, rows(4), mode="append")
    assert [count_appended(path, after) for after in (0, 1, 2, 3)] == [3, 1, 1, 0]
    assert (count_appended(path, 0, 1), count_appended(path, 1, 2)) == (2, 0)


def test_changed_rows_are_no_growth(tmp_path: Path) -> None:
    """Once rows of before were changed or removed there is no number; before that there is."""
    path = str(tmp_path / "shard")
    write_deltalake(path, rows(1, 2))
    write_deltalake(path, rows(3), mode="append")
    DeltaTable(path).delete("id = 1")
    assert count_appended(path, 0) is None
    assert count_appended(path, 0, 1) == 1
    assert count_appended(path, 2) == 0


# -- directories -----------------------------------------------------------------------------------

def table(path: Path) -> Path:
    """A directory that looks like a table's."""
    (path / "_delta_log").mkdir(parents=True)
    (path / "part-0.parquet").touch()
    return path


def test_tables_are_found(tmp_path: Path) -> None:
    """None inside another, no shadow table, none behind a link, none where nothing is."""
    outer = table(tmp_path / "w/s/t/1")
    inner = table(outer / "inner")
    table(tmp_path / "w/s/t" / shadow_name())
    table(tmp_path / "elsewhere")
    (tmp_path / "w/link").symlink_to(tmp_path / "elsewhere")
    assert tables_below(str(tmp_path / "w")) == [str(outer)]
    assert tables_below(f"file://{tmp_path}/w/") == [str(outer)]
    assert tables_below(str(tmp_path / "nothing")) == []
    assert table_around(str(inner)) == str(outer)
    assert table_around(str(outer)) is None


def test_data_goes_and_all_else_stays(tmp_path: Path) -> None:
    """Log, hidden names, other tables and what a link leads to stay; emptied folders go."""
    outer = table(tmp_path / "t")
    table(outer / "inner")
    for name in ("a=1/part", "_checkpoints/0", "_change_data/cdc", ".part-0.parquet.crc", "x/y/z"):
        (outer / name).parent.mkdir(parents=True, exist_ok=True)
        (outer / name).touch()
    table(tmp_path / "elsewhere")
    (outer / "link").symlink_to(tmp_path / "elsewhere")
    delete_data(str(outer))
    assert {entry.name for entry in outer.iterdir()} == {"_delta_log", "inner", "_checkpoints"}
    assert (outer / "inner/part-0.parquet").exists()
    assert (tmp_path / "elsewhere/part-0.parquet").exists()
    delete_data(str(tmp_path / "nothing"))


def test_a_table_is_removed_whole(tmp_path: Path) -> None:
    """Again is no error."""
    one = table(tmp_path / "t")
    delete_table(str(one))
    assert not one.exists()
    delete_table(str(one))


def test_shadow_tables_are_swept(tmp_path: Path) -> None:
    """Only what is called as they are and has a log."""
    one = table(tmp_path / "t")
    table(one / shadow_name())
    table(one / "inner")
    (one / shadow_name()).mkdir()
    sweep_shadow_tables(str(one))
    left = sorted(entry.name for entry in one.iterdir() if entry.is_dir())
    assert left[1:] == ["_delta_log", "inner"]
    assert left[0].startswith("_catalog_migrate-")


def test_a_table_that_comes_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process puts a table into the directory while its data are being removed."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "part-0.parquet").write_text("x")
    theirs = tmp_path / "archive" / "_delta_log" / f"{0:020d}.json"
    listed = LocalStore.folders

    def folders(self: LocalStore, folder: str = "") -> list[str]:
        found = listed(self, folder)
        if not folder:
            theirs.parent.mkdir(parents=True)
            theirs.write_text("{}")
        return found

    monkeypatch.setattr(LocalStore, "folders", folders)
    delete_data(str(tmp_path))
    assert theirs.exists()
    assert not (tmp_path / "part-0.parquet").exists()


# -- whose rows are written by whom ----------------------------------------------------------------

@pytest.mark.parametrize(("check", "plain"), [(None, True), ("id > 0", False)])
def test_rows_of_a_table_with_constraints_are_sparks(
    tmp_path: Path, check: str | None, plain: bool
) -> None:
    """delta-rs writes what has an old protocol without constraints; it keeps no CHECK."""
    write_deltalake(tmp_path, rows(1))
    if check is not None:
        DeltaTable(tmp_path).alter.add_constraint({"positive": check})
    with nullcontext() if plain else pytest.raises(EngineFailure, match="written by Spark"):
        require_plain(DeltaTable(tmp_path))


def test_a_table_is_published_with_its_checksums(tmp_path: Path) -> None:
    """Commit by commit, each with what spares a reader the replay; never over another table."""
    made, there = str(tmp_path / "made"), str(tmp_path / "there")
    Shards(None).create_shard(ShardSpec(made, (Column("id", "BIGINT"),)))
    (tmp_path / "there/_delta_log").mkdir(parents=True)
    assert publish(made, there)
    log = sorted(each.name for each in (tmp_path / "there/_delta_log").iterdir())
    assert log == [f"{0:020d}.crc", f"{0:020d}.json"]
    assert not publish(made, there)
