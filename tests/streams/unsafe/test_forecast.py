"""What a choice of positions doubles, skips and loses, on any numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.positions import Partition
from catalog_migrate.errors import InvalidPosition
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.positions.forecast import Forecast
from catalog_migrate.streams.positions.plan import Row
from catalog_migrate.streams.positions.requests import ItemRequest, Policy, partition_of


def contents(bounds: dict[int, tuple[int, int]], topic_id: str = "id") -> Contents:
    def at(_moment: int, places: Iterable[Partition]) -> Mapping[Partition, int | None]:
        return dict.fromkeys(places)

    return Contents("c", {"t": topic_id}, {("t", n): each for n, each in bounds.items()}, at)


def put(
    positions: dict[int, int] | None, bounds: dict[int, tuple[int, int]], *,
    topic_id: str = "id", policy: Policy = "error", **choice: Any,
) -> Forecast:
    line = None if positions is None else {("t", n): at for n, at in positions.items()}
    definition = ObjectDefinition("s", "source", "t", (), external=External("KAFKA"))
    part = ItemRequest("i1", 0, "", definition, definition, {}, {}, **choice)
    stream = StreamRecord("c", upstream="c", topics={"t": "id"})
    return Forecast(part, policy, line, stream, contents(bounds, topic_id), now=0.0).predict()


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_records_are_counted_one_by_one(old: int, new: int, low: int, size: int) -> None:
    """Doubled and skipped are exactly the records that are there and come twice or never."""
    high = low + size
    found = put({0: old}, {0: (low, high)}, targets={"t:0": str(new)}, policy="allow")
    there = set(range(low, high))
    assert found.totals == Totals(
        len(there & set(range(new, old))), len(there & set(range(old, new))),
        max(0, low - min(old, new)),
    )


def test_only_what_is_named() -> None:
    """Partitions that are not named stay, also when they are beyond what is there."""
    found = put({0: 5, 1: 9}, {0: (0, 10), 1: (0, 8)}, targets={"t:0": "6"})
    assert found.positions == {("t", 0): 6, ("t", 1): 9}
    assert not found.problems


def test_the_complete_line() -> None:
    """A reset names every partition that is there and none that is not."""
    found = put({0: 5, 7: 9}, {0: (2, 10), 1: (0, 8)}, reset=())
    assert found.positions == {("t", 0): 2, ("t", 1): 0}
    assert [(row.partition, row.target) for row in found.rows] == [(0, 2), (1, 0), (7, None)]


def test_a_target_over_a_reset() -> None:
    """What INJECT names goes over RESET, and what it gives to all over that of START."""
    found = put(
        {0: 5}, {0: (0, 10), 1: (0, 8)}, reset=(), everywhere="latest",
        targets={"t:1": None},
    )
    assert found.positions == {("t", 0): 10, ("t", 1): 0}


def test_a_partition_that_is_new() -> None:
    """A partition that was added meanwhile is written into the line, from its oldest record."""
    found = put({0: 5}, {0: (0, 10), 1: (3, 8)}, targets={"t:0": "6"})
    assert found.positions == {("t", 0): 6, ("t", 1): 3}


def test_a_partition_that_is_gone() -> None:
    """Without a reset a vanished partition is a problem that names the remedy."""
    found = put({0: 5, 1: 2}, {0: (0, 10)}, targets={"t:0": "6"})
    assert found.problems == [
        "t:1 is no longer there: add RESET SPLITS, which forgets what was discovered",
    ]


def test_another_topic() -> None:
    """Positions of a topic that was created again mean nothing: nothing counts as doubled."""
    found = put({0: 50}, {0: (0, 100)}, topic_id="other", reset=())
    assert found.positions == {("t", 0): 0}
    assert found.totals == Totals()
    assert found.foreign == {"t": "was created again: its id was id and is other"}


@pytest.mark.parametrize("text", ["t", ":0", "t:x", "t:-1", "t:٣"])
def test_what_is_no_partition(text: str) -> None:
    """A partition is a topic and a number."""
    with pytest.raises(InvalidPosition):
        partition_of(text)


@pytest.mark.parametrize(
    ("row", "absent"),
    [
        (Row("t", 0, 10, 50, 0, 10), 40), (Row("t", 0, 8, 50, 0, 10), 40),
        (Row("t", 0, 60, 70, 0, 10), 10), (Row("t", 0, 5, 50, 8, 10, expired=3), 43),
        (Row("t", 0, 5, 50, 10, 10, expired=5), 45), (Row("t", 0, 5, 8, 9, 10, expired=4), 3),
        (Row("t", 0, 5, 9, 0, 10), 0), (Row("t", 0, 50, 5, 0, 10), 0), (Row("t", 0, None, 5), 0),
        (Row("t", 0, 5, None), 0), (Row("t", 0, 5, 9), 0),
    ],
)
def test_what_is_not_there_to_be_skipped(row: Row, absent: int) -> None:
    """What is passed over and not there, expired or not written yet, is no record that is lost."""
    assert row.absent == absent
