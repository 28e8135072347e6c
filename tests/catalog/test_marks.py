"""Tests of marks: whose a table is, and that only its own mark is taken off."""

from __future__ import annotations

from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from catalog_migrate.catalog import marks
from catalog_migrate.catalog.marks import LINEAGE, Mark, Marked, clear_mark, put_mark, read_mark
from catalog_migrate.delta import table
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import EngineFailure


def test_a_mark_that_is_put_there_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is looked at again in the commit that takes it off: another installation may have
    been faster than that."""
    path = str(tmp_path / "t")
    write_deltalake(path, Table.from_pydict({"id": Array([1], DataType.int64())}))
    put_mark(path, {LINEAGE: "theirs"}, lambda mark: mark is None)
    ours = Mark(lineage="ours", home="", item_id="", key=None, contents="", source="")
    monkeypatch.setattr(marks, "mark_at", lambda _: ours)
    with pytest.raises(Marked):
        clear_mark(path, "ours")
    held = read_mark(load_table(path).metadata().configuration)
    assert held is not None
    assert held.lineage == "theirs"
    assert str(Marked(path, ours)) == path


def test_a_table_that_never_rests_is_marked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the table: the failure passes when its writer pauses."""
    path = str(tmp_path / "t")
    write_deltalake(path, Table.from_pydict({"id": Array([1], DataType.int64())}))
    monkeypatch.setattr(table, "set_properties_after", lambda *_, **__: None)
    with pytest.raises(EngineFailure, match="could not be marked") as failed:
        put_mark(path, {LINEAGE: "ours"}, lambda _: True)
    assert failed.value.transient
