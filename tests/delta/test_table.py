"""How a shard grew, from its own log: real Delta tables, no Spark."""

from __future__ import annotations

from pathlib import Path

from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.delta.table import grown


def rows(*values: int) -> Table:
    return Table.from_pydict({"id": Array(list(values), DataType.int64())})


def test_appended_rows_are_counted(tmp_path: Path) -> None:
    """What came after a version, up to another or the newest; nothing for a metadata commit."""
    path = str(tmp_path / "shard")
    write_deltalake(path, rows(1))
    write_deltalake(path, rows(2, 3), mode="append")
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    write_deltalake(path, rows(4), mode="append")
    assert [grown(path, after) for after in (0, 1, 2, 3)] == [3, 1, 1, 0]
    assert (grown(path, 0, 1), grown(path, 1, 2)) == (2, 0)


def test_changed_rows_are_no_growth(tmp_path: Path) -> None:
    """Once rows of before were changed or removed there is no number; before that there is."""
    path = str(tmp_path / "shard")
    write_deltalake(path, rows(1, 2))
    write_deltalake(path, rows(3), mode="append")
    DeltaTable(path).delete("id = 1")
    assert grown(path, 0) is None
    assert grown(path, 0, 1) == 1
    assert grown(path, 2) == 0
