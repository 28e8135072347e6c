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
from catalog_migrate.model.hashes import decision_hashes, restamp_decisions
from catalog_migrate.model.objects import Column
from catalog_migrate.planner.contents import Movement, changes_values
from catalog_migrate.planner.diff import Compared, compare_columns
from catalog_migrate.planner.rollback import GoingBack


def plan_column_ids(
    compared: Compared, movement: Movement, back: GoingBack | None
) -> ColumnIds | None:
    """Return the ids that an object of the release has behind the plan; None for what is no table.

    ``movement`` says where the rows come from, ``back`` what the plan goes back to, if it does.
    """
    definition, old = compared.definition, compared.old
    if definition.kind != "table":
        return None
    if old is None:
        return ColumnIds.number(len(definition.columns))
    standing = old.definition.columns
    now = old.column_ids or ColumnIds.number(len(standing))
    then = None if back is None else back.column_ids.get(compared.identity)
    if then is not None:
        together = bool(movement.segments)
        return restore_ids(then, definition.columns, now, standing, together=together)
    pairs = compared.delta.pairs
    if not pairs:
        return now
    return continue_ids(now, standing, pairs, compared.facts.decisions, old.applied)


def continue_ids(
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


def restore_ids(
    then: ColumnIds,
    columns: Sequence[Column],
    now: ColumnIds,
    old: Sequence[Column],
    *,
    together: bool,
) -> ColumnIds:
    """Return the ids of a table that a rollback gives the ``columns`` of ``then`` again.

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


def over(history: Sequence[Moment]) -> tuple[ItemRecord | None, ...]:
    """Return the table at each moment with the ids of its columns, also where none are on record.

    Numbers below zero stand for columns and values that were gone when the first ids were given.
    """
    found: list[ItemRecord | None] = []
    for moment in history:
        item = moment.item
        if item is not None and item.column_ids is None:
            item = replace(item, column_ids=_ids_at(moment, item, history, found))
        found.append(item)
    bare = [
        number for number, moment in enumerate(history)
        if moment.item is not None and moment.item.column_ids is None
    ]
    newest = found[bare[-1]] if bare else None
    if newest is None:
        return tuple(found)
    last = ColumnIds.number(len(newest.ids.ids)).last
    ids, values = _first_numbers(newest, bare, history, found)
    for number in bare:
        item = found[number]
        if item is not None:
            stamped = ColumnIds(
                tuple(ids.get(each, -each) for each in item.ids.ids), last,
                tuple(values.get(each, -each) for each in item.ids.values_of.values()),
            )
            found[number] = replace(item, column_ids=stamped)
    return tuple(found)


def _first_numbers(
    newest: ItemRecord, bare: Sequence[int], history: Sequence[Moment],
    found: Sequence[ItemRecord | None],
) -> tuple[dict[int, int], dict[int, int]]:
    """What the columns and values of ``newest``, the last without ids, got as their first numbers.
    """
    ids, values = _pairs(newest.ids, ColumnIds.number(len(newest.ids.ids)))
    for moment in history[bare[-1] + 1 :]:
        then = _went_back_to(moment, found)
        if then is not None and moment.item is not None and moment.back in bare:
            # columns that had gone came back with an id: it is theirs from the first
            more, back = _pairs(then.ids, moment.item.ids)
            ids = {**more, **ids}
            values = {**back, **values} if moment.together else values
    return ids, values


def _ids_at(
    moment: Moment, item: ItemRecord, history: Sequence[Moment], found: Sequence[ItemRecord | None]
) -> ColumnIds:
    """The ids that a commit without them would have given, behind the moments ``found``."""
    before = found[-1] if found else None
    if before is None:
        return item.ids
    old, new = before.definition.columns, item.definition.columns
    then = _went_back_to(moment, found)
    if then is not None:
        return restore_ids(then.ids, new, before.ids, old, together=moment.together)
    if old == new:
        return before.ids
    decisions = decision_hashes(item.definition)
    ran = restamp_decisions(history[len(found) - 1].applied, item.definition)
    pairs = compare_columns(old, new, decisions, ran).pairs
    return continue_ids(before.ids, old, pairs, decisions, ran)


def _went_back_to(moment: Moment, found: Sequence[ItemRecord | None]) -> ItemRecord | None:
    """The table that a rollback led back to; None where it has other columns than that."""
    then = None if moment.back is None else found[moment.back]
    if then is None or moment.item is None:
        return None
    return then if then.definition.columns == moment.item.definition.columns else None


def _pairs(before: ColumnIds, after: ColumnIds) -> tuple[dict[int, int], dict[int, int]]:
    """Ids, and numbers of values, of one column after the other."""
    return (
        dict(zip(before.ids, after.ids, strict=True)),
        dict(zip(before.values_of.values(), after.values_of.values(), strict=True)),
    )
