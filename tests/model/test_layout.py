"""From one layout of columns to another, by physical names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import (
    LAYOUT_CHANGED,
    Alter,
    Layout,
    PlacedColumn,
    Shape,
    steps_to,
)


def placed(*pairs: str) -> tuple[PlacedColumn, ...]:
    """``p:name``: the column ``name`` with physical name ``p``; ``:name`` is still to be added."""
    return tuple(
        PlacedColumn(physical, name, "INT")
        for physical, _, name in (pair.partition(":") for pair in pairs)
    )


def standing(*pairs: str, mapped: bool = True) -> Layout:
    return Layout(mapped, placed(*pairs))


def rename(old: str, new: str) -> Alter:
    return Alter("rename", (old,), to=new)


def applied(layout: Layout, step: Alter) -> Layout:
    """What one statement makes of a layout."""
    columns = list(layout.columns)
    place = {column.name.lower(): index for index, column in enumerate(columns)}
    if step.op == "map":
        return Layout(True, layout.columns)
    if step.op == "drop":
        assert layout.mapped
        kept = [column for column in columns if column.name not in step.names]
        assert len(columns) - len(kept) == len(step.names)
        return Layout(True, tuple(kept))
    if step.op == "rename":
        assert layout.mapped
        assert (step.to or "").lower() not in place
        index = place[step.names[0].lower()]
        columns[index] = PlacedColumn(columns[index].physical, step.to or "", "INT")
        return replace(layout, columns=tuple(columns))
    if step.op == "add":
        assert step.names[0].lower() not in place
        column = PlacedColumn(f"new-{step.names[0]}", step.names[0], "INT")
    else:
        column = columns.pop(place[step.names[0].lower()])
    after = [c.name.lower() for c in columns]
    columns.insert(0 if step.after is None else after.index(step.after.lower()) + 1, column)
    return replace(layout, columns=tuple(columns))


def test_nothing_is_done_where_it_is_done_already():
    """A shape that stands needs no statement."""
    assert steps_to(standing("p:a", "q:b"), Shape(placed("p:a", "q:b"), ("gone",))) == ()


def test_mapping_is_turned_on_only_for_what_needs_it():
    """Adding and moving need no column mapping, renaming and dropping do."""
    unmapped = standing("a:a", "b:b", mapped=False)
    assert [s.op for s in steps_to(unmapped, Shape(placed("b:b", ":c", "a:a")))] == ["add", "move"]
    assert [s.op for s in steps_to(unmapped, Shape(placed("a:a"), ("b",)))] == ["map", "drop"]
    assert [s.op for s in steps_to(unmapped, Shape(placed("a:x", "b:b")))] == ["map", "rename"]


def test_a_chain_of_names_is_renamed_from_its_free_end():
    """c <- b <- a: b becomes c first, then a becomes b."""
    steps = steps_to(standing("p:a", "q:b"), Shape(placed("p:b", "q:c")))
    assert steps == (rename("b", "c"), rename("a", "b"))


def test_a_swap_goes_by_a_name_of_ours():
    """One of the two steps aside for the while."""
    steps = steps_to(standing("p:a", "q:b"), Shape(placed("p:b", "q:a")))
    assert steps == (
        rename("a", "catalog_migrate_moving_1"), rename("b", "a"),
        rename("catalog_migrate_moving_1", "b"),
    )


def test_a_dropped_name_is_free_for_another_column():
    """Drops come first."""
    steps = steps_to(standing("p:a", "q:b"), Shape(placed("p:b"), ("q",)))
    assert steps == (Alter("drop", ("b",)), rename("a", "b"))


def test_a_dropped_and_a_new_column_of_one_name_are_two():
    """The old values do not come back under the name."""
    shape = Shape(placed("p:a", ":b"), ("q",))
    steps = steps_to(standing("p:a", "q:b"), shape)
    assert steps == (Alter("drop", ("b",)), Alter("add", ("b",), after="a"))
    assert steps_to(standing("p:a", "r:b"), shape) == ()


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (standing("p:a"), Shape(placed("p:a", "q:b"))),
        (standing("p:a", "x:b"), Shape(placed("p:b"))),
        (Layout(True, (PlacedColumn("p", "a", "STRING"),)), Shape(placed("p:a"))),
    ],
    ids=["a column is gone", "a name is taken by another's column", "another type"],
)
def test_what_others_changed_is_refused(layout, shape):
    """A shape is never forced on a shard that it was not made for."""
    with pytest.raises(EngineFailure) as caught:
        steps_to(layout, shape)
    assert caught.value.condition == LAYOUT_CHANGED


@st.composite
def changes(draw):
    """A layout of up to six columns and a shape: some go, some come, names and places shuffled."""
    physical = [f"p{number}" for number in range(draw(st.integers(1, 6)))]
    names = draw(st.permutations(["a", "b", "c", "d", "e", "f", "g", "h"]))
    layout = Layout(
        draw(st.booleans()),
        tuple(PlacedColumn(p, n, "INT") for p, n in zip(physical, names, strict=False)),
    )
    gone = tuple(p for p in physical if draw(st.booleans()))
    kept = draw(st.permutations([p for p in physical if p not in gone]))
    new = list(kept) + [""] * draw(st.integers(0, 2))
    after = draw(st.permutations(["a", "b", "c", "d", "e", "f", "g", "h"]))
    shuffled = draw(st.permutations(new))
    return layout, Shape(
        tuple(PlacedColumn(p, n, "INT") for p, n in zip(shuffled, after, strict=False)), gone
    )


@given(changes(), st.data())
def test_any_shape_is_reached_from_any_point_of_the_way(change, data):
    """Stopped after any statement, and asked again, the rest leads to the very same layout."""
    layout, shape = change
    steps = steps_to(layout, shape)
    for step in steps[: data.draw(st.integers(0, len(steps)))]:
        layout = applied(layout, step)
    for step in steps_to(layout, shape):
        layout = applied(layout, step)
    assert [column.name for column in layout.columns] == [c.name for c in shape.columns]
    for column, wanted in zip(layout.columns, shape.columns, strict=True):
        assert column.physical == (wanted.physical or f"new-{wanted.name}")
    assert steps_to(layout, shape) == ()
