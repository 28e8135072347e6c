"""Which column is which: over changes, over rollbacks, and in records of before there were ids."""

from __future__ import annotations

import pytest

from catalog_migrate.catalog.records import ColumnIds, ItemRecord
from catalog_migrate.model.hashes import decision_hashes
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.column_ids import Moment, continue_ids, over, restore_ids
from catalog_migrate.planner.diff import compare_columns

A, B = Column("a", "INT"), Column("b", "STRING")


def table(*columns: Column, ids: ColumnIds | None = None) -> ItemRecord:
    return ItemRecord("release", "s1", ObjectDefinition("s", "table", "t", columns), column_ids=ids)


def after(before: ColumnIds, old: tuple[Column, ...], *new: Column) -> ColumnIds:
    """The ids behind a release that has the columns ``new``."""
    decisions = decision_hashes(table(*new).definition)
    pairs = compare_columns(old, new, decisions).pairs
    return continue_ids(before, old, pairs, decisions, ())


@pytest.mark.parametrize(
    ("new", "ids", "values"),
    [
        ((Column("x", "INT", renamed_from="a"), B), (1, 2), ()),
        ((B, A), (2, 1), ()),
        ((Column("a", "BIGINT"), B), (1, 2), ()),
        ((A, Column("B", "STRING")), (1, 2), ()),
        ((B, Column("c", "INT")), (2, 3), ()),
        ((Column("a", "INT", renamed_from="b"), Column("b", "INT", renamed_from="a")), (2, 1),
         (3, 1)),
        ((Column("a", "STRING", using="f(a)"), B), (1, 2), (3, 2)),
    ],
    ids=["renamed", "moved", "widened", "spelt", "dropped and added", "swapped", "converted"],
)
def test_a_change(new: tuple[Column, ...], ids: tuple[int, ...], values: tuple[int, ...]) -> None:
    """A column keeps its id under any name, a new one has a new id, and where a decision replaces
    the values they have another number."""
    found = after(ColumnIds.number(2), (A, B), *new)
    assert (found.ids, found.values) == (ids, values)


def test_a_name_given_again() -> None:
    """An id never comes back to another column, however often a name does."""
    without = after(ColumnIds.number(2), (A, B), A)
    assert without == ColumnIds((1,), 2)
    assert after(without, (A,), A, B) == ColumnIds((1, 3), 3)


def test_a_rollback() -> None:
    """The columns are those of then; one that goes means the same when a release brings it again,
    with values of its own."""
    now = after(ColumnIds.number(1), (A,), A, B)
    back = restore_ids(ColumnIds.number(1), (A,), now, (A, B), together=False)
    assert back == ColumnIds((1,), 2, taken={"b": 2})
    assert after(back, (A,), A, B) == ColumnIds((1, 2), 3, (1, 3))
    given_up = after(after(back, (A,), A, B), (A, B), A)
    assert after(given_up, (A,), A, B) == ColumnIds((1, 4), 4)


@pytest.mark.parametrize("together", [True, False])
def test_values_after_a_rollback(together: bool) -> None:
    """Those of then where the rows come from the shards of then, else those of now."""
    text = Column("a", "STRING", using="f(a)")
    now = after(ColumnIds.number(2), (A, B), text, B)
    back = restore_ids(ColumnIds.number(2), (A, B), now, (text, B), together=together)
    assert (back.ids, back.values) == ((1, 2), () if together else (4, 2))


def numbers(history: list[Moment]) -> list[tuple[list[int], list[int]] | None]:
    """Ids and numbers of values at each moment."""
    return [
        None if item is None else (list(item.ids.ids), list(item.ids.values_of.values()))
        for item in over(history)
    ]


def test_a_history_without_ids() -> None:
    """Old states are numbered so that the newest of them has its columns in order; what had gone by
    then is no column of now."""
    renamed, new = Column("x", "STRING", renamed_from="b"), Column("c", "INT")
    history = [Moment(table(A, B)), Moment(table(renamed)), Moment(table(renamed, new))]
    assert numbers(history) == [([-1, 1], [-1, 1]), ([1], [1]), ([1, 2], [1, 2])]


def test_values_that_were_replaced_before_there_were_ids() -> None:
    """The column is the same, and its values of then are none that there are now."""
    history = [Moment(table(A)), Moment(table(Column("a", "STRING", using="f(a)")))]
    assert numbers(history) == [([1], [-1]), ([1], [1])]


def test_a_history_without_ids_that_a_rollback_went_back_to() -> None:
    """A column that comes back gets an id then, and keeps it when one goes back there again."""
    old = [Moment(table(A, B)), Moment(table(B))]
    then = over(old)[0]
    assert then is not None
    given = restore_ids(then.ids, (A, B), ColumnIds.number(1), (B,), together=True)
    assert given == ColumnIds((2, 1), 2)
    again = [*old, Moment(table(A, B, ids=given), back=0, together=True)]
    assert numbers(again) == [([2, 1], [2, 1]), ([1], [1]), ([2, 1], [2, 1])]


def test_a_table_that_was_a_view_meanwhile() -> None:
    """It has no ids while it is none, and is numbered anew."""
    history = [Moment(table(A)), Moment(None), Moment(table(A, B))]
    assert numbers(history)[1:] == [None, ([1, 2], [1, 2])]
