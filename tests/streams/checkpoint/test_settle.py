"""Tests of the case table for an uncommitted entry, and of its parts on files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog_migrate.errors import UnsettledCheckpoint
from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from catalog_migrate.streams.checkpoint.edit import (
    Complete,
    Decision,
    Finish,
    Refuse,
    Remove,
    Settled,
    perform,
    remove_entry,
    settlement,
    write_commit,
)
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.runtime.operations import OperationRun
from tests.services.checkpoints import root
from tests.simulation.crashes import CrashPoint, SimulatedCrash

Build = Any
A, B, C = '{"t":{"0":1}}', '{"t":{"0":2}}', '{"t":{"0":3}}'
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class TestDecide:
    @pytest.mark.parametrize(
        ("sinks", "unknown", "expected"),
        [
            ({"a": 1, "b": 1}, (), Finish(1)),
            ({"a": 0, "b": None}, (), Remove(1)),
            ({"b": 1, "a": 0}, (), Complete(1, ("a",))),
            ({"a": 1}, ("k",), Complete(1, ("k",))),
            ({"a": 0}, ("k",), Complete(1, ("a", "k"))),
            ({}, (), Complete(1, ("the query's output",))),
            ({"a": 2}, (), Refuse(1, "a has batch 2, but the checkpoint ends with batch 1")),
        ],
    )
    def test_the_table(
        self,
        build_on_disk: Build,
        sinks: dict[str, int | None],
        unknown: tuple[str, ...],
        expected: Decision,
    ) -> None:
        """Every case: which sinks have it, and which cannot say."""
        checkpoint = build_on_disk([[A], [B]], 0)

        assert settlement(checkpoint, sinks=sinks, unknown=unknown) == expected

    def test_nothing_is_uncommitted(self, build_on_disk: Build) -> None:
        """Settled checkpoints of any age need nothing, unless a sink is above them."""
        assert settlement(build_on_disk([[A]], 0), sinks={"a": 0}) == Settled()
        young = build_on_disk([], None, name="young")
        assert settlement(young, sinks={"a": None}) == Settled()
        assert settlement(young, sinks={"a": 3}) == Refuse(
            None, "a has batch 3, but the checkpoint ends with no batch"
        )

    def test_a_broken_one_is_refused(self, build_on_disk: Build) -> None:
        """More than one uncommitted entry is no case of the table."""
        decision = settlement(build_on_disk([[A], [B], [C]], 0), sinks={"a": 0})

        assert isinstance(decision, Refuse)


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

    @pytest.mark.parametrize("settle", [remove_entry, write_commit])
    def test_cut_off_anywhere(
        self, build: Build, settle: Callable[[Checkpoint, int], None]
    ) -> None:
        """After a crash at any operation the entry is there or settled, and a repetition ends."""
        for at in itertools.count(1):
            checkpoint = build([[A], [B]], 0, name=f"c{at}")
            point = CrashPoint(at)
            try:
                settle(Checkpoint(checkpoint.address, files=Files(point.on_call)), 1)
            except SimulatedCrash:
                assert checkpoint.state() in (
                    State("uncommitted", 1),
                    State("first", 0),
                    State("settled", 1),
                )
            else:
                break
            settle(checkpoint, 1)
            assert checkpoint.state().is_settled


class TestPerform:
    def test_what_is_left_to_spark(self, build: Build) -> None:
        """Finish and Complete need a run; Settled nothing; Refuse is an error."""
        checkpoint = build([[A], [B]], 0)

        assert perform(checkpoint, Settled())
        assert not perform(checkpoint, Finish(1))
        assert not perform(checkpoint, Complete(1, ("a",)))
        assert perform(checkpoint, Remove(1))
        assert checkpoint.state() == State("first", 0)
        with pytest.raises(UnsettledCheckpoint, match="cannot be settled: because"):
            perform(checkpoint, Refuse(1, "because"))


def test_a_stateless_query_needs_no_runtime_to_end_its_batch(build_on_disk: Build) -> None:
    """One that all sinks have is committed by hand; with state, it is run once more."""
    def settle(checkpoint: Checkpoint, *, stateless: bool) -> bool:
        run = SimpleNamespace(supervisor=SimpleNamespace(
            ports=SimpleNamespace(checkpoint=lambda _: checkpoint),
            engine=SimpleNamespace(last_batch=lambda _spec, _query: {"a": 1}),
        ))
        spec = SimpleNamespace(checkpoint=checkpoint.address)
        return OperationRun.settle(cast(Any, run), cast(Any, spec), stateless=stateless)

    checkpoint = build_on_disk([[A], [B]], 0)
    assert not settle(checkpoint, stateless=False)
    assert checkpoint.state() == State("uncommitted", 1)
    assert settle(checkpoint, stateless=True)
    assert checkpoint.state() == State("settled", 1)
