"""How the columns of relations change between the shapes that users' queries were made on and the
new ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from catalog_migrate.errors import UnknownType
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import (
    canonical_type,
    find_added_fields,
    is_longer_text,
    is_lossless,
    is_number,
)

Key = tuple[str, str]
"""(schema, name) of a relation, folded."""
Retyping = Literal["whole", "number", "fields", "other"]
"""A wider whole number, a wider number, a struct with more fields, anything else."""

_WHOLE = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})


class RetypedColumn(msgspec.Struct, frozen=True):
    """The types of a column before and after; ``manner`` says what may depend on it."""

    old: str
    new: str
    manner: Retyping


class ShapeChange(msgspec.Struct, frozen=True):
    """How one relation changes, by the folded names of its columns.

    ``continues`` is the relation that it was, itself unless it is renamed. ``renamed`` maps new
    names to old ones; ``added`` has new names, ``removed`` old ones, ``retyped`` new ones.
    ``moved``: what stays comes in another order. Of a user's view that is read by another,
    ``meaning`` are columns that mean something else, ``rows`` says that it has other rows.
    """

    continues: Key
    renamed: Mapping[str, str] = {}
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    retyped: Mapping[str, RetypedColumn] = {}
    moved: bool = False
    meaning: frozenset[str] = frozenset()
    rows: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Every name that comes, goes or passes to another column."""
        return self.added | self.removed | self.renamed.keys() | {*self.renamed.values()}

    @property
    def passed(self) -> frozenset[str]:
        """Names that one column had and another one has now."""
        return (self.added | self.renamed.keys()) & (self.removed | {*self.renamed.values()})

    def __bool__(self) -> bool:
        return bool(self.names or self.retyped or self.moved or self.meaning or self.rows)


ShapeChanges = Mapping[Key, ShapeChange]
"""The changes of relations, each by its new name."""


def compare_shape(
    name: ItemName, old: Sequence[Column], new: Sequence[Column],
    renames: Mapping[str, str] | None = None, *, meaning: frozenset[str] = frozenset(),
    rows: bool = False,
) -> ShapeChange:
    """Return what becomes of the columns of a relation that was called ``name``.

    ``renames`` maps old names to new ones, in any case. A column that is in both under one name
    and in no rename is the same one.
    """
    before = {column.name.lower(): column.type for column in old}
    after = {column.name.lower(): column.type for column in new}
    renamed = _find_renamed(renames or {}, before, after)
    same = before.keys() - renamed.values()
    continued = {to: renamed.get(to, to) for to in after if to in renamed or to in same}
    retyped = {
        to: RetypedColumn(before[of], after[to], manner)
        for to, of in continued.items()
        if (manner := _manner(before[of], after[to])) is not None
    }
    kept = {*continued.values()}
    return ShapeChange(
        continues=name.folded,
        renamed=renamed,
        added=frozenset(after.keys() - continued.keys()),
        removed=frozenset(before.keys() - kept),
        retyped=retyped,
        moved=[of for of in before if of in kept] != [*continued.values()],
        meaning=frozenset(each.lower() for each in meaning),
        rows=rows,
    )


def _find_renamed(
    renames: Mapping[str, str], before: Collection[str], after: Collection[str]
) -> dict[str, str]:
    """The old names of columns that are renamed and there, by their new ones, folded."""
    folded = {to.lower(): of.lower() for of, to in renames.items()}
    return {
        to: of for to, of in folded.items() if to in after and of in before and to != of
    }


def _manner(old: str, new: str) -> Retyping | None:
    """How a column is retyped; None where no expression can find a difference."""
    if old.lower() == new.lower():
        return None
    try:
        old, new = canonical_type(old), canonical_type(new)
    except UnknownType:  # of a user's view: one that no release may have
        return "other"
    if old == new or is_longer_text(old, new):
        return None
    if is_lossless(old, new) and is_number(old) and is_number(new):
        return "whole" if {old, new} <= _WHOLE else "number"
    return "fields" if find_added_fields(old, new) else "other"
