"""Tests of the case table for an uncommitted entry, and of its parts on files."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from catalog_migrate.streams.checkpoint.edit import (
    Complete,
    Decision,
    Finish,
    Refuse,
    Remove,
    Settled,
    WriteCommit,
    perform,
    remove_entry,
    settlement,
    write_commit,
)
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.errors import UnsettledCheckpoint
from tests.services.checkpoints import root
from tests.simulation.crashes import CrashPoint, SimulatedCrash

Build = Any
A, B, C = '{"t":{"0":1}}', '{"t":{"0":2}}', '{"t":{"0":3}}'
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class TestDecide:
    @pytest.mark.parametrize(
        ("sinks", "unknown", "alive", "stateful", "expected"),
        [
            ({"a": 1, "b": 1}, (), True, False, Finish(1)),
            ({"a": 1, "b": 1}, (), True, True, Finish(1)),
            ({"a": 1}, (), False, False, WriteCommit(1)),
            (
                {"a": 1},
                (),
                False,
                True,
                Refuse(
                    1,
                    "every sink has batch 1, but its source is gone, so that the state after it"
                    " cannot be computed",
                ),
            ),
            ({"a": 0, "b": None}, (), True, False, Remove(1)),
            ({"a": 0}, (), False, True, Remove(1)),
            ({"b": 1, "a": 0}, (), True, False, Complete(1, ("a",))),
            (
                {"b": 1, "a": 0},
                (),
                False,
                False,
                Refuse(1, "a lacks batch 1, and its source is gone"),
            ),
            ({"a": 1}, ("k",), True, False, Complete(1, ("k",))),
            ({"a": 0}, ("k",), True, False, Complete(1, ("a", "k"))),
            (
                {"a": 0},
                ("k",),
                False,
                False,
                Refuse(1, "a lacks, k may lack batch 1, and its source is gone"),
            ),
            ({}, (), True, False, Complete(1, ("the query's output",))),
            (
                {},
                (),
                False,
                False,
                Refuse(1, "the query's output may lack batch 1, and its source is gone"),
            ),
            (
                {"a": 2},
                (),
                True,
                False,
                Refuse(1, "a has batch 2, but the checkpoint ends with batch 1"),
            ),
        ],
    )
    def test_the_table(
        self,
        build_on_disk: Build,
        sinks: dict[str, int | None],
        unknown: tuple[str, ...],
        alive: bool,
        stateful: bool,
        expected: Decision,
    ) -> None:
        """Every case: which sinks have it, whether the source lives, whether there is state."""
        checkpoint = build_on_disk([[A], [B]], 0)

        assert (
            settlement(
                checkpoint, sinks=sinks, unknown=unknown, source_alive=alive, stateful=stateful
            )
            == expected
        )

    def test_nothing_is_uncommitted(self, build_on_disk: Build) -> None:
        """Settled checkpoints of any age need nothing, unless a sink is above them."""
        assert settlement(build_on_disk([[A]], 0), sinks={"a": 0}, source_alive=True) == Settled()
        young = build_on_disk([], None, name="young")
        assert settlement(young, sinks={"a": None}, source_alive=True) == Settled()
        assert settlement(young, sinks={"a": 3}, source_alive=True) == Refuse(
            None, "a has batch 3, but the checkpoint ends with no batch"
        )

    def test_a_broken_one_is_refused(self, build_on_disk: Build) -> None:
        """More than one uncommitted entry is no case of the table."""
        decision = settlement(build_on_disk([[A], [B], [C]], 0), sinks={"a": 0}, source_alive=True)

        assert isinstance(decision, Refuse)

    def test_state_is_found_in_the_checkpoint(self, build: Build) -> None:
        """Without being told, the directory of the state says whether there is any."""
        checkpoint = build([[A], [B]], 0)
        assert settlement(checkpoint, sinks={"a": 1}, source_alive=False) == WriteCommit(1)
        (root(checkpoint) / "state" / "0").mkdir(parents=True)
        (root(checkpoint) / "state" / "0" / "1.delta").write_text("state")
        assert isinstance(settlement(checkpoint, sinks={"a": 1}, source_alive=False), Refuse)


class TestWriteCommit:
    def test_golden_bytes_and_the_watermark_goes_on(self, build: Build) -> None:
        """The commit is what Spark would write, with the watermark of the one before."""
        checkpoint = build([[A], [B]], 0)
        (root(checkpoint) / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":17}')

        write_commit(checkpoint, 1)
        assert (root(checkpoint) / "commits/1").read_bytes() == b'v1\n{"nextBatchWatermarkMs":17}'
        assert checkpoint.state() == State("settled", 1)
        write_commit(checkpoint, 1)

    def test_batch_0(self, build: Build) -> None:
        """There is no commit before it."""
        checkpoint = build([[A]], None)
        write_commit(checkpoint, 0)

        assert (root(checkpoint) / "commits/0").read_bytes() == b'v1\n{"nextBatchWatermarkMs":0}'

    def test_only_the_uncommitted_batch(self, build: Build) -> None:
        """Batch ids are never made up."""
        checkpoint = build([[A], [B]], 0)
        for batch in (0, 2):
            with pytest.raises(UnsettledCheckpoint, match=f"batch {batch} is not the uncommitted"):
                write_commit(checkpoint, batch)


class TestRemove:
    def test_the_entry_goes(self, build: Build) -> None:
        """With its checksum and the state it left; again is fine."""
        checkpoint = build([[A], [B]], 0)
        state = root(checkpoint) / "state" / "0" / "0"
        state.mkdir(parents=True)
        for version in (1, 2):
            (state / f"{version}.delta").write_text("state")
        remove_entry(checkpoint, 1)

        assert checkpoint.state() == State("first", 0)
        assert not (root(checkpoint) / "offsets" / ".1.crc").exists()
        assert [file.name for file in state.iterdir()] == ["1.delta"]
        remove_entry(checkpoint, 1)

    def test_batch_0_leaves_a_young_checkpoint(self, build: Build) -> None:
        """Nothing was ever committed."""
        checkpoint = build([[A]], None)
        remove_entry(checkpoint, 0)

        assert checkpoint.state() == State("none")

    def test_a_committed_batch_stays(self, build: Build) -> None:
        """Its rows are out."""
        checkpoint = build([[A], [B]], 1)
        with pytest.raises(UnsettledCheckpoint):
            remove_entry(checkpoint, 1)

    @pytest.mark.parametrize("decision", [Remove(1), WriteCommit(1)])
    def test_cut_off_anywhere(self, build: Build, decision: Decision) -> None:
        """After a crash at any operation the entry is there or settled, and a repetition ends."""
        for at in itertools.count(1):
            checkpoint = build([[A], [B]], 0, name=f"c{at}")
            point = CrashPoint(at)
            try:
                perform(
                    Checkpoint(checkpoint.address, files=Files(point.on_call)), decision
                )
            except SimulatedCrash:
                assert checkpoint.state() in (
                    State("uncommitted", 1),
                    State("first", 0),
                    State("settled", 1),
                )
            else:
                break
            assert perform(checkpoint, decision)
            assert checkpoint.state().is_settled


class TestPerform:
    def test_what_is_left_to_spark(self, build: Build) -> None:
        """Finish and Complete need a run; Settled nothing; Refuse is an error."""
        checkpoint = build([[A], [B]], 0)

        assert perform(checkpoint, Settled())
        assert not perform(checkpoint, Finish(1))
        assert not perform(checkpoint, Complete(1, ("a",)))
        with pytest.raises(UnsettledCheckpoint, match="cannot be settled: because"):
            perform(checkpoint, Refuse(1, "because"))
