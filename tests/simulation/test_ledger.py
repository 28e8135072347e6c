"""Tests of the oracle for rows."""

from __future__ import annotations

from tests.simulation.draft import ColumnShape, DraftedRelease, TableShape
from tests.simulation.ledger import Ledger

KEY = ColumnShape(2, "k", "BIGINT", False, None)
FIRST = TableShape(1, "t", (KEY, ColumnShape(3, "a", "INT", True, None)))
SECOND = TableShape(
    1, "u", (KEY, ColumnShape(4, "d", "INT", False, "7"), ColumnShape(3, "b", "BIGINT", True, None))
)
CHAIN = (
    DraftedRelease("1", (), {1: FIRST}, (), ()),
    DraftedRelease("2", (), {1: SECOND}, (), ()),
    DraftedRelease("3", (), {}, (), ()),
)


def test_rows_follow_renames_and_fills() -> None:
    """A renamed column keeps its value, a new one has its DEFAULT, a row of NEW its own value."""
    ledger = Ledger(CHAIN)
    ledger.put_in_force("1")
    ledger.acknowledge(1, {"k": 1, "a": 5})
    ledger.put_in_force("2")
    ledger.acknowledge(1, {"k": 2, "d": 9, "b": None})
    ledger.put_in_force("2")
    assert ledger.expected(SECOND) == {
        1: {"k": 1, "d": 7, "b": 5},
        2: {"k": 2, "d": 9, "b": None},
    }


def test_a_dropped_table_takes_its_rows() -> None:
    """After a release without the table nothing is expected of it."""
    ledger = Ledger(CHAIN)
    ledger.put_in_force("1")
    ledger.acknowledge(1, {"k": 1, "a": 5})
    ledger.put_in_force("3")
    assert ledger.keys(1) == set()
