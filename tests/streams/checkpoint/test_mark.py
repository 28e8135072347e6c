"""Tests of the mark in a checkpoint's root."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog_migrate.errors import CheckpointCorrupt, UnsupportedCheckpoint
from catalog_migrate.store import store_at
from catalog_migrate.streams.checkpoint.files import MARK_NAME, Files, Mark, read_mark, write_mark


class TestMark:
    def test_golden_bytes(self, tmp_path: Path) -> None:
        """The format of the file is frozen."""
        write_mark(Files(), store_at(str(tmp_path)), Mark("i7", 3, ("i4 kafka", "i5")))

        assert (tmp_path / MARK_NAME).read_text() == (
            '{"item":"i7","generation":3,"sources":["i4 kafka","i5"],"format":1}'
        )
        assert read_mark(store_at(str(tmp_path))) == Mark("i7", 3, ("i4 kafka", "i5"))

    def test_no_mark(self, tmp_path: Path) -> None:
        """A checkpoint that we never touched has none."""
        assert read_mark(store_at(str(tmp_path))) is None

    def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        """Whatever else it says."""
        (tmp_path / MARK_NAME).write_text('{"format":2,"owner":"i7"}')
        with pytest.raises(UnsupportedCheckpoint, match="is of format 2, known is 1"):
            read_mark(store_at(str(tmp_path)))

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"item":7,"format":1}', '{"item":"i7"}'])
    def test_what_is_no_mark_is_corrupt(self, tmp_path: Path, text: str) -> None:
        """The error names the file, and shows what stands in it."""
        (tmp_path / MARK_NAME).write_text(text)
        with pytest.raises(CheckpointCorrupt, match=MARK_NAME):
            read_mark(store_at(str(tmp_path)))
