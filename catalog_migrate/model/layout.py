"""Where a shard's columns lie: physical names, and the statements from one layout to another.

With Delta's column mapping (Delta protocol, *Column Mapping*) a column has a name in the data
files that never changes, the *physical* one, beside the name that queries use. What is to become
of a shard in place is therefore said and compared by physical names: after half of a swap of two
names, the names alone could not tell whether it has begun. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from catalog_migrate.errors import EngineFailure

LAYOUT_CHANGED = "SHARD_LAYOUT_CHANGED"
"""Condition of a shard whose columns are not those that a shape was made for."""

_UNDER_WAY = "catalog_migrate_moving_"
"""Begins the name that a column of a swap has for a moment."""


class PlacedColumn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A column by its place: ``physical`` name in the files (empty: still to be added), name, type.

    The position is that in the sequence it stands in.
    """

    physical: str
    name: str
    type: str


class Layout(msgspec.Struct, frozen=True):
    """The columns of a shard as it stands; ``mapped`` is whether column mapping is on.

    Without it the physical names are the names, and neither can change.
    """

    mapped: bool
    columns: tuple[PlacedColumn, ...]


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a shard is to become in place: columns in order, and physical names that go."""

    columns: tuple[PlacedColumn, ...]
    gone: tuple[str, ...] = ()


AlterOp = Literal["map", "drop", "rename", "add", "move"]


class Alter(msgspec.Struct, frozen=True):
    """One ALTER TABLE: which columns, by their names at that moment.

    ``map`` turns column mapping on. ``drop`` has all ``names`` that go, the others one. ``to`` is a
    rename's new name; ``after`` the column that an added or moved one stands behind (None: first).
    """

    op: AlterOp
    names: tuple[str, ...] = ()
    to: str | None = None
    after: str | None = None


def steps_to(standing: Layout, shape: Shape) -> tuple[Alter, ...]:
    """The statements from what stands to ``shape``; empty when it is there already.

    Whatever part was done before is not done again. Columns that the shape does not know stay,
    behind its own. Raises EngineFailure (``SHARD_LAYOUT_CHANGED``) when a column that the shape
    keeps is gone, has another type, or one that is not the shape's has a name it needs.
    """
    found = {column.physical: column for column in standing.columns}
    kept = _require_kept(found, shape)
    gone = tuple(found[physical].name for physical in shape.gone if physical in found)
    names = {each.physical: each.name for each in found.values() if each.physical not in shape.gone}
    steps = [Alter("drop", gone)] if gone else []
    steps += _renames(names, kept)
    if steps and not standing.mapped:
        steps.insert(0, Alter("map"))
    order = [names[column.physical] for column in standing.columns if column.physical in names]
    steps += _additions(order, shape)
    steps += _moves(order, [column.name for column in shape.columns])
    return tuple(steps)


def _require_kept(
    found: Mapping[str, PlacedColumn], shape: Shape
) -> dict[str, PlacedColumn]:
    """The columns that the shape keeps; EngineFailure where one is missing or of another type."""
    kept = {column.physical: column for column in shape.columns if column.physical}
    for physical, column in kept.items():
        if physical not in found or found[physical].type != column.type:
            raise _layout_error(f"the column {column.name} is not there as {column.type} any more")
    return kept


def _renames(names: dict[str, str], kept: dict[str, PlacedColumn]) -> list[Alter]:
    """Renames in an order in which each new name is free; ``names`` (by physical) is updated.

    A circle is opened by giving one of its columns a name of ours for the while.
    """
    pending = [
        column for column in kept.values() if names[column.physical].lower() != column.name.lower()
    ]
    steps: list[Alter] = []
    while pending:
        used = {name.lower(): physical for physical, name in names.items()}
        free = next((column for column in pending if column.name.lower() not in used), None)
        if free is not None:
            steps.append(Alter("rename", (names[free.physical],), to=free.name))
            names[free.physical] = free.name
            pending.remove(free)
            continue
        waiting = {column.physical for column in pending}
        for column in pending:
            if used[column.name.lower()] not in waiting:
                raise _layout_error(f"another column has the name {column.name}")
        first = pending[0]
        number = 1
        while f"{_UNDER_WAY}{number}" in used:
            number += 1
        steps.append(Alter("rename", (names[first.physical],), to=f"{_UNDER_WAY}{number}"))
        names[first.physical] = f"{_UNDER_WAY}{number}"
    return steps


def _additions(order: list[str], shape: Shape) -> list[Alter]:
    """Columns that are not there yet, each behind the one before it; ``order`` is updated."""
    steps: list[Alter] = []
    before: str | None = None
    for column in shape.columns:
        folded = [name.lower() for name in order]
        if column.name.lower() not in folded:
            steps.append(Alter("add", (column.name,), after=before))
            place = 0 if before is None else folded.index(before.lower()) + 1
            order.insert(place, column.name)
        before = column.name
    return steps


def _moves(order: list[str], wanted: Sequence[str]) -> list[Alter]:
    """The fewest moves that bring ``order`` to ``wanted``, names of others last."""
    place = {name.lower(): index for index, name in enumerate(order)}
    positions = [place[name.lower()] for name in wanted]
    resting = longest_increasing(positions)
    steps = []
    for index, name in enumerate(wanted):
        if positions[index] not in resting:
            steps.append(Alter("move", (name,), after=wanted[index - 1] if index else None))
    return steps


def longest_increasing(positions: Sequence[int]) -> frozenset[int]:
    """Return the members of one longest rising subsequence: what need not be moved."""
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for value in positions:
        slot = bisect_left(tails, value)
        before[value] = tails[slot - 1] if slot else None
        tails[slot : slot + 1] = [value]
    chain: set[int] = set()
    current: int | None = tails[-1] if tails else None
    while current is not None:
        chain.add(current)
        current = before[current]
    return frozenset(chain)


def _layout_error(reason: str) -> EngineFailure:
    return EngineFailure(f"the shard was changed by others: {reason}", condition=LAYOUT_CHANGED)
