"""Tests of what a checkpoint holds and how it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.errors import CheckpointCorrupt, UnsettledCheckpoint, UnsupportedCheckpoint
from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from tests.services.checkpoints import root

Build = Any
A, B, C = '{"t":{"0":1}}', '{"t":{"0":2}}', '{"t":{"0":3}}'
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class TestState:
    def test_none(self, tmp_path: Path, build: Build) -> None:
        """A directory that is missing, or has no batch yet."""
        assert Checkpoint(tmp_path / "missing").state() == State("none")
        assert build([], None).state() == State("none")

    def test_first(self, build: Build) -> None:
        """Only batch 0, committed."""
        assert build([[A]], 0).state() == State("first", 0)

    def test_settled(self, build: Build) -> None:
        """The newest batch is committed, and its neighbour is there."""
        assert build([[A], [B]], 1).state() == State("settled", 1)

    def test_settled_after_spark_removed_old_entries(self, build: Build) -> None:
        """Spark keeps the newest hundred entries; the numbers are compared as numbers."""
        assert build([[A], [B], [C]], 11, first=9).state() == State("settled", 11)

    def test_uncommitted(self, build: Build) -> None:
        """One entry without a commit, batch 0 among them."""
        assert build([[A], [B], [C]], 1).state() == State("uncommitted", 2)
        assert build([[A]], None, name="young").state() == State("uncommitted", 0)

    def test_more_than_one_uncommitted_entry_is_broken(self, build: Build) -> None:
        """Spark would run only the newest one, and lose the range of the other."""
        state = build([[A], [B], [C]], 0).state()

        assert state.kind == "broken"
        assert state.reason == (
            "more than one entry is uncommitted: the newest is offsets/2, the newest commit"
            " commits/0"
        )

    @pytest.mark.parametrize(
        ("removed", "reason"),
        [
            ("offsets/1", "offsets/1 is missing"),
            ("offsets/2", "commits/2 has no offsets/2"),
            ("metadata", "there are batches, but no file metadata"),
        ],
    )
    def test_a_missing_file_is_broken(self, build: Build, removed: str, reason: str) -> None:
        """Without the neighbour, the entry of a commit or the query's id Spark cannot go on."""
        checkpoint = build([[A], [B], [C]], 2)
        (root(checkpoint) / removed).unlink()

        assert checkpoint.state() == State("broken", 1 if removed == "offsets/2" else 2, reason)

    def test_commits_without_offsets_are_broken(self, build: Build) -> None:
        """A commit belongs to an entry."""
        checkpoint = build([[A]], 0)
        (root(checkpoint) / "offsets/0").unlink()

        assert checkpoint.state() == State("broken", None, "commits/0 has no offsets/0")

    def test_neighbours_with_other_sources_are_broken(self, build: Build) -> None:
        """The two newest entries are of one query."""
        assert build([[A], [A, B]], 1).state().kind == "broken"

    def test_an_uncommitted_or_broken_one_is_not_settled(self, build: Build) -> None:
        """``settled_batch`` gives the newest batch, or says what to do first."""
        assert build([[A], [B]], 1).settled_batch() == 1
        assert build([], None, name="young").settled_batch() is None
        with pytest.raises(UnsettledCheckpoint, match=r"batch 1 of .* is not committed"):
            build([[A], [B]], 0, name="open").settled_batch()
        with pytest.raises(UnsettledCheckpoint, match="broken: more than one entry"):
            build([[A], [B], [C]], 0, name="two").settled_batch()

    def test_litter_is_passed_over(self, build: Build) -> None:
        """Checksums and temporary files are no batches."""
        checkpoint = build([[A], [B]], 1)
        (root(checkpoint) / "offsets" / ".7.0af.tmp").write_text("half")
        (root(checkpoint) / "offsets" / "x8").write_text("")

        assert checkpoint.state() == State("settled", 1)


class TestEntry:
    def test_what_it_says(self, build_on_disk: Build) -> None:
        """Version, metadata, and a line for each source in order."""
        entry = build_on_disk([[A, "-", B]], 0).entry(0)

        assert (entry.version, entry.sources) == ("v1", (A, "-", B))
        assert entry.metadata["batchWatermarkMs"] == 0
        assert entry.metadata["batchTimestampMs"] == 1795277816210
        assert entry.conf == {"spark.sql.shuffle.partitions": "2"}

    @pytest.mark.parametrize(
        ("data", "found"),
        [
            (b"", "it is empty"),
            (b"v1", "ends after its first line"),
            (b"x\n{}", "the first line is 'x', not v1"),
            (b"v1\n{}\n-", "line 2 is no batch metadata: '{}'"),
            (b"v1\nnull\n-", "line 2 is no batch metadata: 'null'"),
            (b"\xff\xfe", "bytes that are no text"),
            (b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', "names no source"),
            (
                b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n-\n{"t":{"0":',
                'line 4 is no offset: \'{"t":{"0":\'',
            ),
        ],
    )
    def test_a_corrupt_file_is_named_with_what_was_found(
        self, build_on_disk: Build, data: bytes, found: str
    ) -> None:
        """The error names the file and what stands in it; so does the state."""
        checkpoint = build_on_disk([[A]], 0)
        (root(checkpoint) / "offsets/0").write_bytes(data)

        with pytest.raises(CheckpointCorrupt) as caught:
            checkpoint.state()
        assert caught.value.file == str(root(checkpoint) / "offsets/0")
        assert caught.value.found == found
        assert caught.value.remedy == "restore a snapshot of the checkpoint"

    def test_cut_off_anywhere_it_is_never_taken_for_whole(self, build_on_disk: Build) -> None:
        """Every proper prefix of an entry is corrupt."""
        checkpoint = build_on_disk([[A, B]], 0)
        whole = (root(checkpoint) / "offsets/0").read_bytes()
        accepted = []
        for length in range(len(whole)):
            (root(checkpoint) / "offsets/0").write_bytes(whole[:length])
            try:
                accepted.append(checkpoint.entry(0).sources)
            except CheckpointCorrupt:
                continue
        # at the end of a line the rest cannot be missed: the number of sources tells (guards)
        assert accepted == [(A,), (A,)]

    @pytest.mark.parametrize("log", ["offsets", "commits"])
    def test_an_unknown_log_version_is_refused(self, build_on_disk: Build, log: str) -> None:
        """Only version 1 is known, as Spark writes it unless sources are named."""
        checkpoint = build_on_disk([[A]], 0)
        (root(checkpoint) / log / "0").write_text('v2\n{"nextBatchWatermarkMs":0}')

        with pytest.raises(UnsupportedCheckpoint, match=f"{log}/0 is of log version v2"):
            checkpoint.state()

    @pytest.mark.parametrize(
        "data", [b"v1", b"v1\n{}", b"v1\nx", b'v1\n{"nextBatchWatermarkMs":"0"}']
    )
    def test_a_corrupt_commit_is_named(self, build_on_disk: Build, data: bytes) -> None:
        """A commit without a watermark is no commit."""
        checkpoint = build_on_disk([[A]], 0)
        (root(checkpoint) / "commits/0").write_bytes(data)

        with pytest.raises(CheckpointCorrupt, match="commits/0 is corrupt: no commit"):
            checkpoint.state()


class TestQueryId:
    def test_it_is_read_from_metadata(self, build_on_disk: Build) -> None:
        """The id is Spark's."""
        assert build_on_disk([[A]], 0).query_id == QUERY

    @pytest.mark.parametrize("text", ["", "{}", '{"id":"x"}', '{"id":7}', "[]", "null"])
    def test_no_id_is_corrupt(self, build_on_disk: Build, text: str) -> None:
        """What is no query id is named."""
        checkpoint = build_on_disk([[A]], 0)
        (root(checkpoint) / "metadata").write_text(text)

        with pytest.raises(CheckpointCorrupt, match="metadata holds no query id"):
            _ = checkpoint.query_id


class TestPlaces:
    def test_a_file_uri_is_a_local_path(self, tmp_path: Path) -> None:
        """``file:`` is understood in each of its forms, with escapes."""
        assert Checkpoint("file:///a/b%20c").address == "/a/b c"
        assert Checkpoint("file:/a/b").address == "/a/b"
        assert Checkpoint(tmp_path).address == str(tmp_path)

    def test_an_address_stays_as_it_is(self) -> None:
        """Spark and delta-rs read the same."""
        assert Checkpoint("s3a://bucket/ckpt").address == "s3a://bucket/ckpt"

    def test_a_line_is_replaced_and_nothing_else(self, build: Build) -> None:
        """Every other byte of the entry stays, and the outdated checksum goes."""
        checkpoint = build([[A, B, C]], 0)
        before = (root(checkpoint) / "offsets/0").read_bytes()

        checkpoint.write_offset(0, 1, '{"t":{"0":77}}')

        assert (root(checkpoint) / "offsets/0").read_bytes() == before.replace(
            B.encode(), b'{"t":{"0":77}}'
        )
        assert sorted(path.name for path in (root(checkpoint) / "offsets").iterdir()) == ["0"]

    def test_state_of_later_batches_is_forgotten(self, build: Build) -> None:
        """State version n+1 is what batch n left; earlier ones and the operator's schema stay."""
        checkpoint = build([[A], [B]], 1)
        partition = root(checkpoint) / "state" / "0" / "1"
        (root(checkpoint) / "state" / "0" / "_metadata").mkdir(parents=True)
        (root(checkpoint) / "state" / "0" / "_metadata" / "9.schema").write_text("schema")
        partition.mkdir()
        for name in ("1.delta", "2.delta", "3.delta", ".3.delta.crc", "3.snapshot", "4_ab-c.zip"):
            (partition / name).write_text("state")

        checkpoint.forget_state_after(1)

        assert sorted(path.name for path in partition.iterdir()) == ["1.delta", "2.delta"]
        assert checkpoint.is_stateful
        checkpoint.forget_state_after(None)
        assert list(partition.iterdir()) == []
        assert (root(checkpoint) / "state" / "0" / "_metadata" / "9.schema").exists()
