"""Positions injected and reset on a real topic, in a checkpoint as Spark leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.updates import RaiseFormat
from catalog_migrate.errors import InvalidPosition, UnsafeBlocked, UnsafeRefused
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.positions.audit import actual
from tests.services.checkpoints import root

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services
At = Callable[..., str]


class EmptyTables(DeltaTables):
    """Tables without a row."""

    @staticmethod
    def rows_in(*_: object) -> dict[tuple[str, int], tuple[int, int]]:  # type: ignore[override]
        return {}


def test_back_four(stage: Stage, at: At) -> None:
    """Four records back: both entries hold the number, four records are doubled, exactly."""
    topic = at([10, 5], {0: 10, 1: 5})
    stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 6)")
    assert stage.positions() == {0: 6, 1: 5}
    assert stage.plans[0].totals == Totals(doubled=4)
    act = stage.operation.unsafe
    assert act is not None
    assert (act.doubled, act.skipped, act.injected, act.exact) == (4, 0, 1, True)
    assert stage.operation.state == "done"
    assert not stage.state.holds


def test_forward_three(stage: Stage, at: At) -> None:
    """Three records forward: they are skipped, exactly."""
    topic = at([10, 5], {0: 2, 1: 5})
    result = stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 5)")
    assert stage.positions() == {0: 5, 1: 5}
    assert "0 records doubled, 3 skipped; 0 already expired" in result.notices


def test_every_form(stage: Stage, at: At) -> None:
    """A target for all partitions comes to numbers; NULL is START."""
    topic = at([10, 5], {0: 8, 1: 4})
    start = f"'{topic}:0' = NULL, '{topic}:1' = NULL"
    for targets, wanted in (
        ("TO 'shift -2'", {0: 6, 1: 2}), ("TO 'duration PT1H'", {0: 0, 1: 0}),
        ("TO latest", {0: 10, 1: 5}), ("TO 'timestamp 2020-01-01T00:00:00Z'", {0: 0, 1: 0}),
        ("TO 'shift 3'", {0: 3, 1: 3}), ("TO earliest", {0: 0, 1: 0}),
        ("TO latest", {0: 10, 1: 5}), (start, {0: 0, 1: 0}),
    ):
        stage.unsafe(f"INJECT OFFSETS ({targets})")
        assert stage.positions() == wanted, targets


def test_nothing_changes(stage: Stage, at: At) -> None:
    """Injecting the present positions writes no operation, no hold and no byte."""
    topic = at([10, 5], {0: 8, 1: 4})
    version = stage.log.version()
    for actions in (f"INJECT OFFSETS ('{topic}:0' = 8, '{topic}:1' = 4)",
                    "INJECT OFFSETS (TO committed)"):
        assert stage.unsafe(actions).summary == "nothing changes, nothing restarts"
    assert stage.log.version() == version
    assert stage.checkpoint.mark.generation == 0


REFUSED = [
    ("INJECT OFFSETS ('{t}:0' = 11)", "{t}:0: 11 is beyond the end, 10"),
    ("INJECT OFFSETS ('{t}:7' = 1)", "partition {t}:7 does not exist: topic {t} has 0 to 1"),
    ("INJECT OFFSETS ('x:0' = 1)", "partition x:0 does not exist: the topics read are {t}"),
    ("INJECT OFFSETS (TO 'timestamp 2040-01-01T00:00:00Z')",
     "{t}:0: no record is as young as timestamp 2040-01-01T00:00:00Z; its end is 10"),
    ("RESET SPLITS ('{t}:3')", "partition {t}:3 does not exist"),
]


def test_refused(stage: Stage, at: At) -> None:
    """What is not there is refused with what is, and nothing changes."""
    topic = at([10, 5], {0: 8, 1: 4})
    before = stage.lines()
    for actions, message in REFUSED:
        with pytest.raises(UnsafeBlocked, match="cannot be put there") as caught:
            stage.unsafe(actions.format(t=topic))
        assert message.format(t=topic) in str(caught.value)
        assert stage.lines() == before
        assert not stage.state.operations


def test_below_the_oldest(stage: Stage, at: At) -> None:
    """Below the low watermark: refused, clamped, or allowed, as the policy says."""
    topic = at([10], {0: 8})
    stage.kafka.delete_records(topic, {0: 4})
    with pytest.raises(UnsafeBlocked, match=r"2 is below the oldest record kept, 4"):
        stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 2)")
    stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 2) WITH (POLICY = 'clamp')")
    assert stage.positions() == {0: 4}
    assert stage.plans[-1].items[0].notes == (
        f"{topic}:0: 2 is below the oldest record kept, 4: clamped to 4", RaiseFormat(6).notice,
    )
    assert stage.plans[-1].totals == Totals(doubled=4)
    stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 2) WITH (POLICY = 'allow')")
    assert stage.positions() == {0: 2}
    assert stage.plans[-1].totals == Totals(expired=2)


def test_beyond_the_end(stage: Stage, at: At) -> None:
    """Where POLICY allows it, what is not written yet is skipped neither before nor after."""
    topic = at([10], {0: 10})
    key = stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 50) WITH (POLICY = 'allow')").operation
    assert stage.positions() == {0: 50}
    assert stage.plans[-1].totals == Totals()
    found = actual(
        stage.state, stage.state.operations[key or ""], EmptyTables()
    )
    assert found == (0, 0)


def test_retention_passed_the_position(stage: Stage, at: At) -> None:
    """Records that expired before they were read are counted, and the source goes on behind."""
    topic = at([10], {0: 3})
    stage.kafka.delete_records(topic, {0: 7})
    stage.unsafe("INJECT OFFSETS (TO earliest)")
    assert stage.positions() == {0: 7}
    assert stage.plans[-1].totals == Totals(expired=4)


def test_only_what_lost_its_place(stage: Stage, at: At) -> None:
    """Where stands, clamped: a partition whose records expired goes on behind, the others stay."""
    topic = at([10, 10], {0: 3, 1: 6})
    stage.kafka.delete_records(topic, {0: 7})
    stage.unsafe("INJECT OFFSETS (TO committed) WITH (POLICY = 'clamp')")
    assert stage.positions() == {0: 7, 1: 6}
    assert stage.plans[-1].totals == Totals(expired=4)


def test_partition_added(stage: Stage, at: At) -> None:
    """RESET SPLITS writes the complete line, new partitions in, and starts at START."""
    topic = at([10, 5], {0: 8, 1: 4})
    stage.kafka.add_partitions(topic, 3)
    stage.produce(topic, 2, 2)
    stage.unsafe(f"RESET SPLITS, INJECT OFFSETS ('{topic}:0' = committed)")
    assert stage.positions() == {0: 8, 1: 0, 2: 0}


def test_before_the_first_batch(stage: Stage) -> None:
    """A source that never ran is given its first positions, all partitions written out."""
    topic = stage.topic("t", [10, 5])
    stage.source(topic)
    stage.open_gate()
    stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 6)")
    initial = root(stage.checkpoint) / "sources/0/0"
    assert initial.read_bytes() == b'\x00v1\n{"%s":{"0":6,"1":0}}' % topic.encode()
    assert stage.checkpoint.mark.generation == 1
    assert stage.state.streams[stage.id].topics == {topic: stage.kafka.topic_id(topic)}


def test_compaction_is_at_most(stage: Stage) -> None:
    """On a compacted topic the counts are upper bounds, and said to be."""
    topic = stage.topic("t", [10], **{"cleanup.policy": "compact"})
    stage.source(topic)
    stage.started(topic, {0: 8})
    stage.open_gate()
    result = stage.unsafe("INJECT OFFSETS (TO earliest)")
    assert "at most 8 records doubled" in result.notices[0]


class TestGates:
    def test_closed(self, stage: Stage, at: At) -> None:
        """With a closed gate everything that is missing is named, and nothing is asked or done."""
        topic = at([10], {0: 8})
        stage.open_gate(False)
        with pytest.raises(UnsafeRefused) as caught:
            stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 6)")
        assert len(caught.value.missing) == 1
        assert "streams.enable_unsafe_ops = true" in caught.value.missing[0]
        assert not stage.plans
        assert stage.positions_untouched()

    def test_no_confirmation(self, stage: Stage, at: At) -> None:
        """Whoever does not say yes has done nothing."""
        topic = at([10], {0: 8})
        with pytest.raises(UnsafeRefused, match="confirmation"):
            stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = 6)", yes=False)
        assert not stage.state.operations

    def test_bad_targets(self, stage: Stage, at: At) -> None:
        """A target that is none is refused before anything is asked of the broker."""
        topic = at([10], {0: 8})
        for text in ("'shift x'", "'timestamp 2026-01-01T00:00:00'", "soon", "'duration 2h'"):
            with pytest.raises(InvalidPosition):
                stage.unsafe(f"INJECT OFFSETS ('{topic}:0' = {text})")
