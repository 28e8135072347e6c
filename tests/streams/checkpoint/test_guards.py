"""Tests of what must hold before a checkpoint is touched or its query started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.errors import (
    BehindSink,
    CheckpointCorrupt,
    ForeignCheckpoint,
    SourcesChanged,
    UnsettledCheckpoint,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Mark, write_mark
from catalog_migrate.streams.checkpoint.guards import (
    check_start,
    claim,
    clear_torn_start,
    require_above_sinks,
    require_sources,
)
from tests.services.checkpoints import adopt, root

Build = Any
A, B, C = '{"t":{"0":1}}', '{"t":{"0":2}}', '{"t":{"0":3}}'
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class TestClaim:
    def test_a_new_directory(self, tmp_path: Path) -> None:
        """It is created and marked; the second time nothing is written."""
        checkpoint = Checkpoint(tmp_path / "a" / "b")

        assert claim(checkpoint, item="i7", sources=["x", "y"]) == Mark("i7", 0, ("x", "y"))
        written = (root(checkpoint) / "catalog_migrate.json").stat().st_mtime_ns
        assert claim(checkpoint, item="i7", sources=["x", "y"]) == Mark("i7", 0, ("x", "y"))
        assert (root(checkpoint) / "catalog_migrate.json").stat().st_mtime_ns == written

    def test_another_items(self, tmp_path: Path) -> None:
        """One directory serves one item."""
        claim(Checkpoint(tmp_path), item="i7", sources=["x"])
        with pytest.raises(ForeignCheckpoint, match="belongs to i7, not to i8"):
            claim(Checkpoint(tmp_path), item="i8", sources=["x"])

    def test_a_used_one_without_a_mark(self, build: Build) -> None:
        """A checkpoint that somebody ran is nobody's."""
        checkpoint = build([[A]], 0)
        with pytest.raises(ForeignCheckpoint, match="has been used, but not by i7"):
            claim(checkpoint, item="i7", sources=["x"])

    def test_the_sources_are_counted(self, build: Build) -> None:
        """As many as the entries have lines; they are not written down otherwise."""
        checkpoint = build([[A]], 0)
        write_mark(checkpoint.files, checkpoint.store, Mark("i7"))
        with pytest.raises(SourcesChanged, match="had 1 sources, now it has 2"):
            claim(checkpoint, item="i7", sources=["x", "y"])
        assert checkpoint.mark == Mark("i7")


class TestSources:
    def test_order_counts(self, build_on_disk: Build) -> None:
        """Spark tells sources apart by their order only."""
        checkpoint = build_on_disk([[A, B]], 0)
        adopt(checkpoint, item="i7", sources=["x", "y"])

        require_sources(checkpoint, ["x", "y"])
        with pytest.raises(SourcesChanged, match="were x, y; now they are y, x"):
            require_sources(checkpoint, ["y", "x"])

    def test_a_cut_off_entry_is_noticed_by_its_number_of_sources(
        self, build_on_disk: Build
    ) -> None:
        """A file that ends after a whole line looks like a query with fewer sources."""
        checkpoint = build_on_disk([[A, B]], 0)
        with pytest.raises(SourcesChanged, match="had 2 sources, now it has 1"):
            require_sources(checkpoint, ["x"])


class TestSinks:
    def test_a_sink_above_is_refused(self, build_on_disk: Build) -> None:
        """Its batches in between would be skipped."""
        checkpoint = build_on_disk([[A], [B]], 1)

        require_above_sinks(checkpoint, {"a": 1, "b": 0, "c": None})
        with pytest.raises(BehindSink, match=r"b has batch 2 of .* whose newest is 1"):
            require_above_sinks(checkpoint, {"a": 1, "b": 2})

    def test_a_lost_checkpoint(self, tmp_path: Path) -> None:
        """A directory without batches is below every batch."""
        require_above_sinks(Checkpoint(tmp_path), {"a": None})
        with pytest.raises(BehindSink, match="whose newest is none"):
            require_above_sinks(Checkpoint(tmp_path), {"a": 0})


class TestStart:
    def start(self, checkpoint: Checkpoint, **changed: Any) -> None:
        """Check a start that is right but for what is ``changed``."""
        wanted: dict[str, Any] = {
            "item": "i7",
            "sources": ["x"],
            "generation": 0,
            "sinks": {"a": 1},
        }
        check_start(checkpoint, **{**wanted, **changed})

    def test_all_is_well(self, build_on_disk: Build, tmp_path: Path) -> None:
        """Settled or with one uncommitted entry, which Spark runs again; or new."""
        for name, committed in (("settled", 1), ("uncommitted", 0)):
            checkpoint = build_on_disk([[A], [B]], committed, name=name)
            adopt(checkpoint, item="i7", sources=["x"])
            self.start(checkpoint)
        self.start(Checkpoint(tmp_path / "new"), sinks={"a": None})

    @pytest.mark.parametrize(
        ("changed", "error"),
        [
            ({"item": "i8"}, ForeignCheckpoint),
            ({"generation": 1}, UnsettledCheckpoint),
            ({"sources": ["y"]}, SourcesChanged),
            ({"sinks": {"a": 2}}, BehindSink),
        ],
    )
    def test_each_guard(self, build_on_disk: Build, changed: dict[str, Any], error: type) -> None:
        """Whatever does not hold refuses the start."""
        checkpoint = build_on_disk([[A], [B]], 1)
        adopt(checkpoint, item="i7", sources=["x"])
        with pytest.raises(error):
            self.start(checkpoint, **changed)

    def test_a_broken_one(self, build_on_disk: Build) -> None:
        """More than one uncommitted entry loses a range."""
        checkpoint = build_on_disk([[A], [B], [C]], 0)
        adopt(checkpoint, item="i7", sources=["x"])
        with pytest.raises(UnsettledCheckpoint, match="more than one entry is uncommitted"):
            self.start(checkpoint)


@pytest.mark.parametrize("torn", ["metadata", "offsets/0", "sources/0/0"])
@pytest.mark.parametrize("found", [b"", b'{"id":"6f'])
def test_killed_in_its_very_first_file(build: Build, torn: str, found: bytes) -> None:
    """What a first start left half-written goes, so that the query begins anew."""
    checkpoint = build([["-"]] if torn == "offsets/0" else [], None)
    file = root(checkpoint) / torn
    checkpoint.store.put_all({torn: found})
    whole = torn == "sources/0/0" and bool(found)  # what is in it only Spark can judge
    assert clear_torn_start(checkpoint) == (() if whole else (torn,))
    assert file.exists() is whole
    adopt(checkpoint, item="i1", sources=["source i1"])
    assert clear_torn_start(checkpoint) == ()


def test_torn_later_is_an_error(build: Build) -> None:
    """Once a batch was written down nothing is taken away."""
    checkpoint = build([["-"], ["-"]], 0)
    (root(checkpoint) / "metadata").write_bytes(b"")
    assert clear_torn_start(checkpoint) == ()
    with pytest.raises(CheckpointCorrupt):
        checkpoint.query_id  # noqa: B018 - it is read for what it raises
