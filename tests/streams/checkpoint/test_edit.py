"""Tests of changing a position: the exact files after it, at every crash, and what is refused."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.errors import (
    EditConflict,
    ForeignCheckpoint,
    InvalidPosition,
    UnsettledCheckpoint,
    UsageError,
)
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import (
    Edit,
    OffsetEdit,
    apply,
    begin,
    move,
    needs_edit,
    reset,
)
from catalog_migrate.streams.checkpoint.files import Files, Mark
from tests.services.checkpoints import adopt, root
from tests.simulation.crashes import CrashPoint, SimulatedCrash

Build = Any
A, B, C, D = ('{"t":{"0":%d}}' % number for number in range(1, 5))  # noqa: UP031 - braces
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


def owned(checkpoint: Checkpoint, count: int = 1) -> Checkpoint:
    """The checkpoint, claimed by item i7."""
    adopt(checkpoint, item="i7", sources=[f"s{n}" for n in range(count)])
    return checkpoint


def lines(checkpoint: Checkpoint, source: int = 0) -> list[str]:
    """The lines of one source in all entries."""
    numbers = sorted(
        int(path.name)
        for path in (root(checkpoint) / "offsets").iterdir()
        if not path.name.startswith(".")
    )
    return [checkpoint.entry(number).sources[source] for number in numbers]


def carry_out(checkpoint: Checkpoint, edit: Edit, generation: int = 1) -> bool:
    return apply(checkpoint, edit, item="i7", generation=generation)


class TestMove:
    def test_both_last_entries_get_the_target(self, build: Build) -> None:
        """The line is overwritten in N-1 and N; older entries, commits and the rest stay."""
        checkpoint = owned(build([[A, D], [B, D], [C, D]], 2), 2)
        edit = move(checkpoint, 0, '{"t":{"0":9}}')

        assert edit == Edit(
            2, (OffsetEdit(1, 0, B, '{"t":{"0":9}}'), OffsetEdit(2, 0, C, '{"t":{"0":9}}'))
        )
        assert carry_out(checkpoint, edit)
        assert lines(checkpoint) == [A, '{"t":{"0":9}}', '{"t":{"0":9}}']
        assert lines(checkpoint, 1) == [D, D, D]
        planned = [checkpoint.entry(n).metadata["batchTimestampMs"] for n in range(3)]
        assert [moment % 10 for moment in planned] == [0, 1, 2]
        assert not (root(checkpoint) / "offsets" / ".2.crc").exists()
        on_disk = not is_remote(checkpoint.address)
        assert (root(checkpoint) / "offsets" / ".0.crc").exists() is on_disk

    def test_only_batch_0(self, build: Build) -> None:
        """A checkpoint with one batch has one line to change."""
        checkpoint = owned(build([[A]], 0))

        assert carry_out(checkpoint, move(checkpoint, 0, B))
        assert lines(checkpoint) == [B]

    def test_no_batch_yet(self, build: Build) -> None:
        """Nothing to change: the source starts where its options say."""
        checkpoint = owned(build([], None))
        edit = move(checkpoint, 0, B)

        assert edit == Edit(None)
        assert carry_out(checkpoint, edit)
        assert checkpoint.mark == Mark("i7", 1, ("s0",))

    def test_a_directory_that_does_not_exist_yet(self, tmp_path: Path) -> None:
        """The generation is marked, so that a start finds nothing left to do."""
        checkpoint = Checkpoint(tmp_path / "new" / "ckpt")

        assert carry_out(checkpoint, move(checkpoint, 0, B))
        assert checkpoint.mark == Mark("i7", 1, None)

    @pytest.mark.parametrize("source", [-1, 1])
    def test_an_unknown_source_is_refused(self, build: Build, source: int) -> None:
        """Sources are numbered from 0 in their order."""
        with pytest.raises(InvalidPosition, match="has 1 sources"):
            move(build([[A], [B]], 1), source, C)

    @pytest.mark.parametrize("line", ["", "a\nb", "a\rb"])
    def test_what_is_not_one_line_is_refused(self, build: Build, line: str) -> None:
        """A line break would shift the sources after it."""
        with pytest.raises(InvalidPosition):
            move(build([[A], [B]], 1), 0, line)

    def test_an_uncommitted_entry_is_refused(self, build: Build) -> None:
        """It must be settled first."""
        with pytest.raises(UnsettledCheckpoint):
            move(build([[A], [B]], 0), 0, C)


class TestReset:
    def test_both_lines_and_the_initial_offsets_go(self, build: Build) -> None:
        """START in both entries, and the stored beginning of that source only is forgotten."""
        checkpoint = owned(build([[A, B], [C, D]], 1), 2)
        for source in (0, 1):
            (root(checkpoint) / f"sources/{source}").mkdir(parents=True)
            (root(checkpoint) / f"sources/{source}/0").write_bytes(b"\x00v1\n{}")

        assert carry_out(checkpoint, reset(checkpoint, 1))
        assert (lines(checkpoint, 0), lines(checkpoint, 1)) == ([A, C], ["-", "-"])
        assert [path.name for path in (root(checkpoint) / "sources").iterdir()] == ["0"]

    def test_moving_to_start_is_a_reset(self, build: Build) -> None:
        """START in the lines alone would read the stored beginning."""
        checkpoint = build([[A], [B]], 1)

        assert move(checkpoint, 0, "-") == reset(checkpoint, 0)


class TestBegin:
    def test_initial_offsets_of_a_young_kafka_source(self, build: Build) -> None:
        """Without a batch, the file of initial offsets says where the source begins."""
        checkpoint = owned(build([], None))
        data = KafkaCodec().write_initial({("t", 0): 5})

        assert carry_out(checkpoint, begin(checkpoint, 0, data))
        assert (root(checkpoint) / "sources/0/0").read_bytes() == b'\x00v1\n{"t":{"0":5}}'

    def test_with_a_batch_it_is_refused(self, build: Build) -> None:
        """Spark would not read it."""
        with pytest.raises(UsageError, match="initial offsets would not be read"):
            begin(build([[A]], 0), 0, b"\x00v1\n{}")


class TestApply:
    def test_the_row_of_the_catalog_is_enough(self, build: Build) -> None:
        """An edit goes through JSON and back without a change."""
        edit = move(build([[A], [B]], 1), 0, '{"t-ü":{"0":9}}')

        assert msgspec.json.decode(msgspec.json.encode(edit), type=Edit) == edit

    def test_a_second_time_does_nothing(self, build: Build) -> None:
        """The mark says that it is done, even when the query has run on since."""
        checkpoint = owned(build([[A], [B]], 1))
        edit = move(checkpoint, 0, D)

        assert needs_edit(checkpoint, 1)
        assert [carry_out(checkpoint, edit), carry_out(checkpoint, edit)] == [True, False]
        assert not needs_edit(checkpoint, 1)
        (root(checkpoint) / "offsets/2").write_bytes((root(checkpoint) / "offsets/1").read_bytes())
        assert not carry_out(checkpoint, edit)

    def test_the_description_of_the_sources_is_kept(self, build: Build) -> None:
        """The mark keeps what it said of the sources."""
        checkpoint = owned(build([[A], [B]], 1))
        carry_out(checkpoint, move(checkpoint, 0, D), 4)

        assert checkpoint.mark == Mark("i7", 4, ("s0",))

    def test_the_checkpoint_of_another_item_is_refused(self, build: Build) -> None:
        """So is one that has been used by nobody we know."""
        checkpoint = owned(build([[A], [B]], 1))
        edit = move(checkpoint, 0, D)
        with pytest.raises(ForeignCheckpoint, match="belongs to i7, not to i8"):
            apply(checkpoint, edit, item="i8", generation=1)
        with pytest.raises(ForeignCheckpoint, match="has been used, but not by i7"):
            carry_out(build([[A], [B]], 1, name="unmarked"), edit)
        assert lines(checkpoint) == [A, B]

    def test_a_query_that_ran_since_is_a_conflict(self, build: Build) -> None:
        """Lines of an older batch are no longer those that count."""
        checkpoint = owned(build([[A], [B], [C]], 2))
        with pytest.raises(EditConflict, match="is of batch 1, the newest is 2"):
            carry_out(checkpoint, Edit(1, (OffsetEdit(0, 0, A, D), OffsetEdit(1, 0, B, D))))

    def test_other_lines_are_a_conflict_and_nothing_is_written(self, build: Build) -> None:
        """All lines are looked at before the first is written."""
        checkpoint = owned(build([[A], [B]], 1))
        with pytest.raises(EditConflict, match="source 0 stands at"):
            carry_out(checkpoint, Edit(1, (OffsetEdit(0, 0, A, D), OffsetEdit(1, 0, C, D))))
        assert lines(checkpoint) == [A, B]
        assert needs_edit(checkpoint, 1)

    def test_cut_off_at_every_file_operation_it_is_carried_forward(self, build: Build) -> None:
        """After a crash anywhere both entries are whole, and a repetition ends as if none was."""
        numbers = itertools.count()
        for at in itertools.count(1):
            checkpoint = owned(build([[A, B], [B, C]], 1, name=f"c{next(numbers)}"), 2)
            (root(checkpoint) / "sources/1").mkdir(parents=True)
            (root(checkpoint) / "sources/1/0").write_bytes(b"\x00v1\n{}")
            moved, begun_anew = move(checkpoint, 0, D), reset(checkpoint, 1)
            edit = Edit(1, (*moved.lines, *begun_anew.lines), begun_anew.forget)
            point = CrashPoint(at)
            try:
                carry_out(Checkpoint(checkpoint.address, files=Files(point.on_call)), edit)
            except SimulatedCrash:
                assert checkpoint.state().kind == "settled"
                for number in (0, 1):
                    before = [line for line in edit.lines if line.batch == number]
                    found = checkpoint.entry(number).sources
                    for line in before:
                        assert found[line.source] in (line.before, line.after)
                    if any(found[line.source] == line.after for line in before):
                        # a checksum of the old contents would make Spark refuse the file
                        assert not (root(checkpoint) / "offsets" / f".{number}.crc").exists()
                assert needs_edit(checkpoint, 1) or point.calls[-1].startswith("sync")
            else:
                assert at > (3 if is_remote(checkpoint.address) else 15)
                break
            carry_out(checkpoint, edit)
            assert (lines(checkpoint, 0), lines(checkpoint, 1)) == ([D, D], ["-", "-"])
            assert not (root(checkpoint) / "sources/1").exists()
            assert checkpoint.mark == Mark("i7", 1, ("s0", "s1"))

    def test_a_driver_that_wakes_up_writes_nothing(self, build: Build) -> None:
        """Before whatever write it was stopped, what its successor has written meanwhile stays."""
        for at in itertools.count(1):
            checkpoint = owned(build([[A], [B]], 1, name=f"c{at}"))
            edit, turn = move(checkpoint, 0, C), itertools.count(1)

            def stopped(step: str, checkpoint: Any = checkpoint, turn: Any = turn) -> None:
                if step.startswith(("put", "remove")) and next(turn) == at:  # noqa: B023 - this one
                    carry_out(checkpoint, edit, 1)  # noqa: B023 - the successor ends what it finds
                    carry_out(checkpoint, move(checkpoint, 0, D), 2)

            woken = Checkpoint(checkpoint.address, files=Files(stopped))
            try:
                carry_out(woken, edit, 1)
            except EditConflict:
                assert lines(checkpoint) == [D, D]
                assert checkpoint.mark == Mark("i7", 2, ("s0",))
                assert not carry_out(woken, edit, 1)
            else:
                assert lines(checkpoint) == [C, C]
                break
        assert at == (4 if is_remote(checkpoint.address) else 3)

    @settings(deadline=None, max_examples=40)
    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 9), st.none() | st.integers(1, 30)),
            max_size=6,
        )
    )
    def test_any_edits_with_any_crashes_leave_exactly_the_last_targets(
        self, moves: list[tuple[int, int, int | None]]
    ) -> None:
        """Each edit changes its source in both entries and nothing else, crash or no crash."""
        with tempfile.TemporaryDirectory() as place:
            root = Path(place) / "ckpt"
            text = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n%s\n%s\n%s'
            for part in ("offsets", "commits"):
                (root / part).mkdir(parents=True)
            (root / "metadata").write_text(f'{{"id":"{QUERY}"}}')
            for number in (0, 1):
                (root / "offsets" / str(number)).write_text(text % (number, A, B, C))
                (root / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            checkpoint = owned(Checkpoint(root), 3)
            expected = [A, B, C]
            for generation, (source, offset, crash) in enumerate(moves, start=1):
                target = KafkaCodec().write({("t", 0): offset})
                edit = move(checkpoint, source, target)
                point = CrashPoint(crash)
                try:
                    carry_out(Checkpoint(root, files=Files(point.on_call)), edit, generation)
                except SimulatedCrash:
                    carry_out(checkpoint, edit, generation)
                expected[source] = target
                for number in (0, 1):
                    assert (root / "offsets" / str(number)).read_text() == text % (
                        number,
                        *expected,
                    )
            visible = {path.name for path in root.iterdir() if not path.name.startswith(".")}
            assert visible == {"catalog_migrate.json", "commits", "metadata", "offsets"}
