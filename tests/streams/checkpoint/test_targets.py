"""The forms of a target and the numbers that they come to."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.errors import InvalidPosition
from catalog_migrate.streams.checkpoint.targets import (
    Landing,
    PartitionBounds,
    Target,
    land,
    parse_target,
    start_target,
)

NOW = 1_800_000_000.0
BOUNDS = PartitionBounds(current=50, low=10, high=100, later={1_799_992_800_000: 70, 5: None})


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("0", 0), ("123", 123), ("earliest", 10), ("LATEST", 100), ("committed", 50),
        (str(2**63 - 1), 2**63 - 1),
        ("shift -20", 30), ("shift +3", 53), ("shift 0", 50), ("duration PT2H", 70),
        ("timestamp 2027-01-15T06:00:00Z", 70), ("duration P0DT120M", 70),
    ],
)
def test_forms(text: str, offset: int) -> None:
    """Each form comes to a number, the next record to read."""
    assert land(parse_target(text), BOUNDS, NOW) == Landing(offset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-5", "is negative"), ("soon", "is no position"), ("1.5", "is no position"),
        ("", "is no position"), ("shift", "whole number of records"),
        ("latest 3", "is no position"),
        ("timestamp 2026-01-31T00:00:00", "needs its offset"), ("duration P", "a duration as PT2H"),
        ("timestamp latest", "is no position"), (str(2**63), "is no position"),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    """What is no position is refused with what would be one."""
    with pytest.raises(InvalidPosition, match=message) as caught:
        parse_target(text)
    assert caught.value.remedy


def test_no_record_so_young() -> None:
    """A time after the last record is the end, and is said to be only that."""
    target = Target("time", 5, "timestamp X")
    assert land(target, BOUNDS, NOW) == Landing(100, "no record is as young as timestamp X")


def test_nothing_to_shift_from() -> None:
    """A shift of a partition that was never read comes to nothing."""
    place = PartitionBounds(None, 0, 5, {})
    assert land(parse_target("shift -1"), place, NOW).offset is None


@pytest.mark.parametrize(
    ("start", "kind"),
    [(None, "earliest"), ("latest", "latest"), ("2026-01-31T00:00:00Z", "time")],
)
def test_start(start: str | None, kind: str) -> None:
    """NULL is what the START option means."""
    assert start_target(start).kind == kind


@given(st.text(max_size=20))
def test_never_another_error(text: str) -> None:
    """Whatever is written, it is a target or an InvalidPosition."""
    with contextlib.suppress(InvalidPosition):
        assert parse_target(text).text
