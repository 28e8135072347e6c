"""What is remembered of a table on a store: only the commits that came since are read."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.delta import replay
from catalog_migrate.delta.log import LOG, commit_name
from catalog_migrate.store.local import LocalStore


class Read(LocalStore):
    """A directory in place of a store; what was read of it."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.read_of: list[str] = []

    def read(self, name: str) -> bytes:
        self.read_of.append(name)
        return super().read(name)


def test_each_commit_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a later version nothing is asked of those that are known."""
    store = Read(str(tmp_path))
    monkeypatch.setattr(replay, "_objects", lambda _: (
        store, {name: str(size) for name, size in store.sizes(LOG).items()}
    ))

    def append(number: int) -> None:
        rows = Table.from_pydict({"id": Array([number], DataType.int64())})
        write_deltalake(tmp_path, rows, mode="append")

    def look(version: int | None = None) -> tuple[int, int, list[str]]:
        store.read_of.clear()
        found = replay.replay(str(tmp_path), version, lambda _: pytest.fail("left to delta-rs"))
        assert isinstance(found, replay.ReplayedTable)
        assert {each.path for each in found.files} == {
            str(Path(each).relative_to(tmp_path)) for each in
            DeltaTable(tmp_path, version=found.number).file_uris()
        }
        return found.number, len(found.files), [*store.read_of]

    for number in range(3):
        append(number)
    assert look(0) == (0, 1, [commit_name(0)])
    assert look(2) == (2, 3, [commit_name(1), commit_name(2)])
    append(3)
    assert look() == (3, 4, [commit_name(3)])
    assert look() == (3, 4, [])
    replay.forget(str(tmp_path))
    assert look(1) == (1, 2, [commit_name(0), commit_name(1)])


def test_a_log_that_says_no_schema_is_left_to_delta_rs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table can be told from its commits alone."""
    (tmp_path / LOG).mkdir()
    (tmp_path / commit_name(0)).write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    )
    store = Read(str(tmp_path))
    monkeypatch.setattr(replay, "_objects", lambda _: (
        store, {name: str(size) for name, size in store.sizes(LOG).items()}
    ))
    left, asked = cast(DeltaTable, object()), list[int]()

    def load(version: int) -> DeltaTable:
        asked.append(version)
        return left

    assert replay.replay(str(tmp_path), None, load) is left
    assert asked == [0]
    replay.forget(str(tmp_path))
