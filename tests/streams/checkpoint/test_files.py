"""Tests of file operations: whole or not at all, and no outdated checksum left."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from catalog_migrate.store import store_at
from catalog_migrate.streams.checkpoint.files import Files, checksum_of
from tests.simulation.crashes import CrashPoint, SimulatedCrash


class TestReplace:
    def test_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """After a crash at any step the file is the old one or the new one, never between."""
        file = tmp_path / "0"
        seen = set()
        for at in itertools.count(1):
            file.write_bytes(b"old")
            checksum = tmp_path / checksum_of("0")
            checksum.write_bytes(b"sum of old")
            files = Files(CrashPoint(at).on_call)
            try:
                files.replace(files.store(str(tmp_path)), "0", b"new")
            except SimulatedCrash:
                seen.add(file.read_bytes())
                assert file.read_bytes() == b"old" or not checksum.exists()
            else:
                break
        assert seen == {b"old", b"new"}
        assert file.read_bytes() == b"new"

    def test_steps(self, tmp_path: Path) -> None:
        """The checksum goes before the contents change, the directory is synced at the end."""
        name = "log/0"
        Files().replace(store_at(str(tmp_path)), name, b"old")
        (tmp_path / checksum_of(name)).write_bytes(b"")
        point = CrashPoint()
        files = Files(point.on_call)
        files.replace(files.store(str(tmp_path)), name, b"new")

        assert point.calls == ["remove .0.crc", "write 0", "rename 0", "sync log"]

    def test_a_write_that_fails_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk: the error comes through, the old file stays, no litter is left."""
        file = tmp_path / "0"
        file.write_bytes(b"old")

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            Files().replace(store_at(str(tmp_path)), "0", b"new")
        assert [path.name for path in tmp_path.iterdir()] == ["0"]
        assert file.read_bytes() == b"old"


class TestTrees:
    def test_removing(self, tmp_path: Path) -> None:
        """A directory vanishes at once; what is not there is fine."""
        tree = tmp_path / "a"
        (tree / "b").mkdir(parents=True)
        Files().remove_tree(store_at(str(tmp_path)), "a")
        Files().remove_tree(store_at(str(tmp_path)), "a")

        assert list(tmp_path.iterdir()) == []

    def test_clearing_litter(self, tmp_path: Path) -> None:
        """Temporary files and directories go, ours and Spark's; everything else stays."""
        (tmp_path / ".a.1.tmp").mkdir()
        for name in (".0.77.tmp", "..0.77.tmp.crc", "0", ".0.crc", "x.tmp"):
            (tmp_path / name).write_text("")
        Files().clear_litter(store_at(str(tmp_path)))
        Files().clear_litter(store_at(str(tmp_path / "none")))

        assert sorted(path.name for path in tmp_path.iterdir()) == [".0.crc", "0", "x.tmp"]
