"""Tests of numbered copies of a checkpoint."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.errors import (
    BehindSink,
    CheckpointCorrupt,
    SnapshotNotFound,
    UnsupportedCheckpoint,
    UsageError,
)
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from catalog_migrate.streams.checkpoint.edit import apply, move
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.checkpoint.snapshots import Snapshot, Snapshots, pack, unpack
from tests.services.checkpoints import adopt, path_in, root, taken
from tests.simulation.crashes import CrashPoint, SimulatedCrash

Build = Any
A, B, C = '{"t":{"0":1}}', '{"t":{"0":2}}', '{"t":{"0":3}}'
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


def visible(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Every file of a checkpoint but hidden ones, by relative path."""
    found = checkpoint.store.read_all(checkpoint.store.tree())
    return {
        name: data for name, data in sorted(found.items())
        if not any(part.startswith(".") for part in name.split("/"))
    }


def run_on(checkpoint: Checkpoint, batch: int, line: str, *, commit: bool) -> None:
    """What a run of the query adds."""
    text = (root(checkpoint) / "offsets/0").read_text().split("\n")
    (root(checkpoint) / f"offsets/{batch}").write_text("\n".join([*text[:2], line]))
    if commit:
        (root(checkpoint) / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')


def place_of(checkpoint: Checkpoint, number: int) -> Any:
    """The file of a snapshot."""
    return path_in(Snapshots(checkpoint).store) / f"{number}.tar"


def held(checkpoint: Checkpoint, number: int) -> dict[str, bytes | None]:
    """What a snapshot holds."""
    return unpack(place_of(checkpoint, number).read_bytes())


class TestTake:
    def test_what_is_in_it(self, build: Build) -> None:
        """Metadata, offsets, commits, sources and mark, with checksums; never state or litter."""
        checkpoint = build([[A], [B]], 0)
        adopt(checkpoint, item="i7", sources=["x"])
        (root(checkpoint) / "state" / "0").mkdir(parents=True)
        (root(checkpoint) / "state" / "0" / "1.delta").write_text("state")
        (root(checkpoint) / "offsets" / ".1.77.tmp").write_text("litter")
        (root(checkpoint) / "sources/0").mkdir(parents=True)
        (root(checkpoint) / "sources/0/0").write_bytes(b"\x00v1\n{}")
        snapshots = Snapshots(checkpoint)

        snapshot = snapshots.take("before ALTER")

        assert snapshot == Snapshot(1, "before ALTER", 1, 0, QUERY)
        assert taken(snapshots) == [snapshot]
        packed = held(checkpoint, 1)
        copied = {
            name: data for name, data in packed.items()
            if data is not None and not name.endswith((".crc", "snapshot.json"))
        }
        original = visible(checkpoint)
        assert original.pop("state/0/1.delta") == b"state"
        assert copied == original
        offsets = {name for name in packed if name.startswith("offsets/")}
        kept = ("0", "1") if is_remote(checkpoint.address) else ("0", "1", ".0.crc", ".1.crc")
        assert offsets == {f"offsets/{name}" for name in kept}

    def test_golden_description(self, build: Build) -> None:
        """The format of the file is frozen."""
        checkpoint = build([], None)
        Snapshots(checkpoint).take("r")

        assert next(iter(held(checkpoint, 1).items())) == ("snapshot.json", (
            '{"number":1,"reason":"r","latest_offsets":null,"latest_commits":null,'
            f'"query_id":"{QUERY}","format":2}}'
        ).encode())

    def test_retention(self, build: Build) -> None:
        """The newest ``keep`` stay; numbers go on rising."""
        snapshots = Snapshots(build([[A]], 0))
        for _ in range(4):
            snapshots.take("r", keep=3)
        assert [each.number for each in taken(snapshots)] == [2, 3, 4]
        snapshots.take("r", keep=1)
        assert [each.number for each in taken(snapshots)] == [5]
        with pytest.raises(UsageError, match="at least one"):
            snapshots.take("r", keep=0)

    def test_files_of_other_names(self, build: Build) -> None:
        """What somebody put beside them is no snapshot."""
        snapshots = Snapshots(build([[A]], 0))
        snapshots.take("r")
        (name,) = snapshots.store.names()
        snapshots.store.put_if_absent(name.replace("1", "copy"), b"")
        snapshots.store.put_if_absent(name.replace("1", "²"), b"")
        assert [each.number for each in taken(snapshots)] == [1]
        assert snapshots.take("r").number == 2

    def test_a_checkpoint_that_does_not_exist(self, tmp_path: Path) -> None:
        """It is copied as nothing, and restored as nothing."""
        snapshots = Snapshots(Checkpoint(tmp_path / "new"))

        assert snapshots.take("r") == Snapshot(1, "r", None, None, None)

    def test_cut_off_anywhere(self, build: Build) -> None:
        """A snapshot is there whole or not at all, and what was cut off is cleared next time."""
        checkpoint = build([[A]], 0)
        Snapshots(checkpoint).take("first")
        for at in itertools.count(1):
            point = CrashPoint(at)
            files = Files(point.on_call)
            try:
                Snapshots(Checkpoint(checkpoint.address, files=files)).take("r", keep=2)
            except SimulatedCrash:
                for snapshot in taken(Snapshots(checkpoint)):
                    assert snapshot.latest_offsets == 0
                    assert "offsets/0" in held(checkpoint, snapshot.number)
            else:
                break
        assert at > (1 if is_remote(checkpoint.address) else 4)
        place = path_in(Snapshots(checkpoint).store)
        assert len(taken(Snapshots(checkpoint))) == 2
        assert not [path for path in place.iterdir() if path.name.startswith(".")]


class TestRestore:
    def test_the_uncommitted_entry_of_a_failed_attempt_goes(self, build: Build) -> None:
        """Everything is as it was, the mark included; the state of the attempt is removed."""
        checkpoint = build([[A], [B]], 1)
        adopt(checkpoint, item="i7", sources=["x"])
        snapshots = Snapshots(checkpoint)
        snapshots.take("r")
        before = visible(checkpoint)
        apply(checkpoint, move(checkpoint, 0, C), item="i7", generation=1)
        run_on(checkpoint, 2, C, commit=False)
        state = root(checkpoint) / "state" / "0" / "0"
        state.mkdir(parents=True)
        for version in (2, 3):
            (state / f"{version}.delta").write_text("state")

        restored = snapshots.restore(1, sinks_latest={"a": 1})

        assert restored.latest_offsets == 1
        (state / "2.delta").unlink()
        assert visible(checkpoint) == before
        assert checkpoint.state() == State("settled", 1)

    def test_an_uncommitted_entry_of_the_snapshot_may_be_in_a_sink(self, build: Build) -> None:
        """Its range is the same after the restore, so the sink may skip it."""
        checkpoint = build([[A], [B]], 0)
        snapshots = Snapshots(checkpoint)
        snapshots.take("r")

        snapshots.restore(1, sinks_latest={"a": 1})
        assert checkpoint.state() == State("uncommitted", 1)

    @pytest.mark.parametrize(
        ("sinks", "commit", "message"),
        [
            ({"a": 2}, False, "ends with batch 1, a has 2"),
            ({"a": 1, "b": 2}, False, "ends with batch 1, b has 2"),
            ({"a": 1}, True, "ends with batch 1, its own commits has 2"),
        ],
    )
    def test_below_a_committed_batch_is_refused(
        self, build: Build, sinks: dict[str, int | None], commit: bool, message: str
    ) -> None:
        """A batch in any sink or in commits would be skipped, or come twice. Nothing is written."""
        checkpoint = build([[A], [B]], 1)
        snapshots = Snapshots(checkpoint)
        snapshots.take("r")
        run_on(checkpoint, 2, C, commit=commit)
        before = visible(checkpoint)

        with pytest.raises(BehindSink, match=message):
            snapshots.restore(1, sinks_latest=sinks)
        assert visible(checkpoint) == before

    def test_of_a_checkpoint_that_did_not_exist(self, tmp_path: Path) -> None:
        """What an attempt that failed left is gone."""
        checkpoint = Checkpoint(tmp_path / "new")
        snapshots = Snapshots(checkpoint)
        snapshots.take("r")
        (root(checkpoint) / "offsets").mkdir(parents=True)
        (root(checkpoint) / "metadata").write_text(f'{{"id":"{QUERY}"}}')

        with pytest.raises(BehindSink, match="ends with no batch, a has 0"):
            snapshots.restore(1, sinks_latest={"a": 0})
        snapshots.restore(1, sinks_latest={"a": None})
        assert list(root(checkpoint).iterdir()) == []

    def test_an_unknown_number(self, build: Build) -> None:
        """The error says which there are."""
        snapshots = Snapshots(build([[A]], 0))
        with pytest.raises(SnapshotNotFound, match="no snapshot 1; there are: none"):
            snapshots.restore(1, sinks_latest={})
        snapshots.take("r")
        with pytest.raises(SnapshotNotFound, match="no snapshot 2; there are: 1"):
            snapshots.restore(2, sinks_latest={})

    def test_cut_off_anywhere(self, build: Build) -> None:
        """Until it is through the checkpoint counts as broken, and only a repetition mends it."""
        for at in itertools.count(1):
            checkpoint = build([[A], [B]], 1, name=f"c{at}")
            adopt(checkpoint, item="i7", sources=["x"])
            snapshots = Snapshots(checkpoint)
            snapshots.take("r")
            snapshots.take("r")
            before = visible(checkpoint)
            apply(checkpoint, move(checkpoint, 0, C), item="i7", generation=1)
            run_on(checkpoint, 2, C, commit=False)
            point = CrashPoint(at)
            files = Files(point.on_call)
            try:
                Snapshots(Checkpoint(checkpoint.address, files=files)).restore(
                    2, sinks_latest={"a": 1}
                )
            except SimulatedCrash:
                if checkpoint.restoring is not None:
                    assert checkpoint.state().kind == "broken"
                    with pytest.raises(UsageError, match="repeat it"):
                        snapshots.restore(1, sinks_latest={"a": 1})
                    with pytest.raises(UsageError, match="repeat it"):
                        snapshots.take("r")
                    snapshots.restore(2, sinks_latest={"a": 1})
                    assert visible(checkpoint) == before
                else:
                    assert checkpoint.state().kind in ("uncommitted", "settled")
            else:
                assert visible(checkpoint) == before
                break
        assert at > (6 if is_remote(checkpoint.address) else 12)


class TestGet:
    def test_corrupt_and_newer(self, build: Build) -> None:
        """A description that is none, or of a newer tool."""
        checkpoint = build([[A]], 0)
        snapshots = Snapshots(checkpoint)
        snapshots.take("r")
        file, whole = place_of(checkpoint, 1), held(checkpoint, 1)
        about = whole["snapshot.json"] or b""
        newer = about.replace(b'"format":2', b'"format":3')
        file.write_bytes(pack({**whole, "snapshot.json": newer}))
        with pytest.raises(UnsupportedCheckpoint):
            snapshots.restore(1, sinks_latest={})
        for broken in (b"{", b"", pack({**whole, "snapshot.json": b"{"}), pack({"metadata": b"x"})):
            file.write_bytes(broken)
            with pytest.raises(CheckpointCorrupt, match="is no snapshot"):
                snapshots.restore(1, sinks_latest={})

    def test_cut_off_at_any_byte(self, build_on_disk: Build) -> None:
        """A file that lost its end is told, wherever it ends, and nothing of it is put back."""
        checkpoint = build_on_disk([[A], [B]], 0)
        Snapshots(checkpoint).take("r")
        file = place_of(checkpoint, 1)
        data = file.read_bytes()
        end = len(data.rstrip(b"\0"))
        before = visible(checkpoint)
        for length in range(0, end + 1, 37):
            file.write_bytes(data[:length])
            with pytest.raises(CheckpointCorrupt):
                Snapshots(checkpoint).restore(1, sinks_latest={})
        assert visible(checkpoint) == before

    @pytest.mark.parametrize("name", ["../out", "/out", "offsets/../../out"])
    def test_a_name_that_leads_out(self, build: Build, name: str) -> None:
        """Nothing is written outside of the checkpoint, whatever a file says."""
        checkpoint = build([[A]], 0)
        Snapshots(checkpoint).take("r")
        place_of(checkpoint, 1).write_bytes(pack({**held(checkpoint, 1), name: b"x"}))
        with pytest.raises(CheckpointCorrupt, match="it holds"):
            Snapshots(checkpoint).restore(1, sinks_latest={})
