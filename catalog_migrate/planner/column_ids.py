"""Which column is which after a change, after a rollback, and in states of before there were ids.

A column has an id for life in the record of its table: kept when it is renamed, new when a name
that was dropped is given again. Whoever asks whether a column is the one of then compares ids.

The history of a catalog holds states that were written before, and one may go back to them. They
cannot be changed, so :func:`over` numbers their columns as the commits would have, by the same two
functions, whenever a rollback looks at them. Nothing of it is stored: the first migration numbers
the columns in the order that they then have, which is where both numberings meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import ColumnIds, ItemRecord
from catalog_migrate.model.hashes import decision_hashes
from catalog_migrate.model.objects import Column
from catalog_migrate.planner.contents import Movement, changes_values
from catalog_migrate.planner.diff import Compared, compare_columns
from catalog_migrate.planner.rollback import GoingBack


def planned(compared: Compared, movement: Movement, back: GoingBack | None) -> ColumnIds | None:
    """The ids that an object of the release has behind the plan; None for what is no table.

    ``movement`` says where the rows come from, ``back`` what the plan goes back to, if it does.
    """
    definition, old = compared.definition, compared.old
    if definition.kind != "table":
        return None
    if old is None:
        return ColumnIds.numbered(len(definition.columns))
    standing = old.definition.columns
    now = old.column_ids or ColumnIds.numbered(len(standing))
    then = None if back is None else back.column_ids.get(compared.identity)
    if then is not None:
        together = bool(movement.segments)
        return restored(then, definition.columns, now, standing, together=together)
    pairs = compared.delta.pairs
    if not pairs:
        return now
    return continued(now, standing, pairs, compared.facts.decisions, old.applied)


def continued(
    before: ColumnIds,
    old: Sequence[Column],
    pairs: Iterable[tuple[Column, Column | None]],
    decisions: Mapping[str, str],
    ran: Collection[str],
) -> ColumnIds:
    """The ids of a table after a change; ``pairs`` are its columns with those that they continue.

    ``old`` are the columns before it, ``decisions`` those of the release, ``ran`` the ones that had
    been applied.
    """
    new = count(before.last + 1)
    known = {column.name.lower(): number for column, number in zip(old, before.ids, strict=True)}
    values_of = before.values_of
    taken = dict(before.taken)
    ids: list[int] = []
    values: list[int] = []
    for column, was in pairs:
        if was is not None:
            ids.append(known[was.name.lower()])
            replaced = changes_values(column, was, decisions, ran)
            values.append(next(new) if replaced else values_of[ids[-1]])
            continue
        number = taken.pop(column.name.lower(), None)  # none of its values of then is there
        values.append(next(new))
        ids.append(values[-1] if number is None else number)
    return _ids(ids, values, before.last, taken)


def restored(
    then: ColumnIds,
    columns: Sequence[Column],
    now: ColumnIds,
    old: Sequence[Column],
    *,
    together: bool,
) -> ColumnIds:
    """The ids of a table that a rollback gives the ``columns`` of ``then`` again.

    ``now`` and ``old`` are what it had before the rollback. ``together``: its rows come from the
    shards of then; else they are those of now, cast to the types of then.
    """
    new = count(now.last + 1)
    fresh: dict[int, int] = defaultdict(lambda: next(new))
    standing = dict(zip(now.ids, old, strict=True))
    values_now = now.values_of
    ids = [number if number > 0 else fresh[number] for number in then.ids]
    values: list[int] = []
    for number, known, column in zip(ids, then.values or then.ids, columns, strict=True):
        before = standing.get(number)
        if together:
            values.append(known if known > 0 else fresh[known])
        elif before is None or changes_values(
            replace(column, using=None, default=None), before, {}, ()
        ):
            values.append(next(new))
        else:
            values.append(values_now[number])
    taken = {**now.taken, **{column.name.lower(): number for number, column in standing.items()}}
    return _ids(
        ids, values, now.last,
        {name: number for name, number in taken.items() if number not in ids},
    )


def _ids(
    ids: Sequence[int], values: Sequence[int], last: int, taken: dict[str, int]
) -> ColumnIds:
    return ColumnIds(
        tuple(ids), max(last, *ids, *values), () if values == ids else tuple(values), taken
    )


class Moment(msgspec.Struct, frozen=True):
    """A table in one state of the history; ``item`` is None while it is none.

    ``applied`` are the decisions that had run. ``back`` is the place, in the history, of the state
    that the commit which led here went back to, and ``together`` whether it took the rows from
    there.
    """

    item: ItemRecord | None
    applied: tuple[str, ...] = ()
    back: int | None = None
    together: bool = False


def over(history: Sequence[Moment]) -> tuple[ColumnIds | None, ...]:
    """The ids of one table at each moment, also where none are on record.

    Numbers below zero stand for columns and values that were gone when the first ids were given.
    """
    found: list[ColumnIds | None] = []
    for number, moment in enumerate(history):
        found.append(_at(history, found, number, moment))
    bare = [
        number for number, moment in enumerate(history)
        if moment.item is not None and moment.item.column_ids is None
    ]
    if not bare:
        return tuple(found)
    newest = found[bare[-1]]
    assert newest is not None
    ids = {number: place for place, number in enumerate(newest.ids, start=1)}
    values = {number: place for place, number in enumerate(newest.values or newest.ids, start=1)}
    for moment in history[bare[-1] + 1 :]:
        then = _then(history, found, moment)
        if then is None or moment.item is None or moment.back not in bare:
            continue
        given = moment.item.ids  # a rollback brought columns back: what it called them holds
        ids = {**dict(zip(then.ids, given.ids, strict=True)), **ids}
        if moment.together:
            values = {
                **dict(zip(then.values or then.ids, given.values or given.ids, strict=True)),
                **values,
            }
    for number in bare:
        stands = found[number]
        assert stands is not None
        found[number] = ColumnIds(
            tuple(ids.get(each, -each) for each in stands.ids), 0,
            tuple(values.get(each, -each) for each in stands.values or stands.ids),
            {name: ids.get(each, -each) for name, each in stands.taken.items()},
        )
    return tuple(found)


def _at(
    history: Sequence[Moment], found: Sequence[ColumnIds | None], number: int, moment: Moment
) -> ColumnIds | None:
    """The ids at one moment, by those of the moments before."""
    item = moment.item
    if item is None or item.column_ids is not None:
        return None if item is None else item.column_ids
    earlier = history[number - 1] if number else Moment(None)
    before = found[number - 1] if number else None
    if earlier.item is None or before is None:
        return item.ids
    old, new = earlier.item.definition, item.definition
    if old.columns == new.columns and moment.back is None:
        return before
    then = _then(history, found, moment)
    if then is not None:
        return restored(then, new.columns, before, old.columns, together=moment.together)
    decisions = decision_hashes(new)
    pairs = compare_columns(old.columns, new.columns, decisions, earlier.applied).pairs
    return continued(before, old.columns, pairs, decisions, earlier.applied)


def _then(
    history: Sequence[Moment], found: Sequence[ColumnIds | None], moment: Moment
) -> ColumnIds | None:
    """The ids of the columns that a rollback led back to; None where the table has others."""
    if moment.back is None or moment.item is None:
        return None
    item = history[moment.back].item
    if item is None or item.definition.columns != moment.item.definition.columns:
        return None
    return found[moment.back]
