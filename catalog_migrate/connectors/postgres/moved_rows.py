"""Where the unsent values of rows come from that got another key in a batch (pure).

PostgreSQL does not send a large value (TOAST) that stayed the same. In a row that kept its key it
is the value that the mirror's row of that key has. In a row that got another key it is the one
that the row had under the key before, and so on back: to a change of the same batch that sent it,
or to the mirror's row of the key that the row had when the batch began.

A server also leaves one out of an INSERT, where a row filter of the publication makes one of the
UPDATE that moves a row into it: the value was never sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

Key = tuple[str | None, ...]
Place = tuple[int, int]
"""LSN and sequence of a change."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """What a change of one row means for its key: the one that it had (of an insert: None), the one
    that it has (of a delete: None), and the columns in which a value was not sent."""

    place: Place
    old: Key | None
    new: Key | None
    unsent: tuple[int, ...] = ()


class SentBefore(msgspec.Struct, frozen=True):
    """The value of ``column`` after the change ``at`` is the one that ``sent`` has after it."""

    at: Place
    column: int
    sent: Place


class Carried(msgspec.Struct, frozen=True):
    """The values of ``columns`` after the change ``at``, by which a row got ``key``, are those that
    the row of ``origin`` had before the first step."""

    at: Place
    key: Key
    origin: Key
    columns: tuple[int, ...]


class NeverSent(msgspec.Struct, frozen=True):
    """No change has the value of ``column`` in the row of ``key``, and no row of before has it."""

    key: Key
    column: int


class Traced(msgspec.Struct, frozen=True):
    """What is missing in the last change of its key of each row that is there in the end."""

    sent: tuple[SentBefore, ...]
    carried: tuple[Carried, ...]
    never: tuple[NeverSent, ...]


class _Row:
    """A row under way: its key before the first step (None: inserted since), the change by which
    it got another key or was inserted, and by which change each column has its value (None: none
    has it)."""

    __slots__ = ("moved", "origin", "sent")

    def __init__(self, origin: Key | None) -> None:
        self.origin = origin
        self.moved: Place | None = None
        self.sent: dict[int, Place | None] = {}


def trace(steps: Iterable[Step], columns: Collection[int]) -> Traced:
    """Where the values of ``columns`` come from that were not sent; ``steps`` in their order.

    Only rows that were inserted or got another key appear: one that kept its key has its values
    in the mirror's row of that key.
    """
    sent: list[SentBefore] = []
    carried: list[Carried] = []
    never: list[NeverSent] = []
    for key, row in _follow(steps, columns).items():
        if row is None or row.moved is None:
            continue
        for column in columns:
            if column not in row.sent:
                continue
            place = row.sent[column]
            if place is None:
                never.append(NeverSent(key, column))
            elif place < row.moved:
                sent.append(SentBefore(row.moved, column, place))
        before = tuple(column for column in columns if column not in row.sent)
        if before and row.origin is not None:
            carried.append(Carried(row.moved, key, row.origin, before))
    return Traced(tuple(sent), tuple(carried), tuple(never))


def _follow(steps: Iterable[Step], columns: Collection[int]) -> dict[Key, _Row | None]:
    """The row of each key in the end, None of one that has none any more."""
    rows: dict[Key, _Row | None] = {}
    for step in steps:
        row = None
        if step.old is not None:
            row = rows[step.old] if step.old in rows else _Row(step.old)
            rows[step.old] = None
        if step.new is None:
            continue
        if row is None:
            row = _Row(None)
        if step.new != step.old:
            row.moved = step.place
        for column in columns:
            if column not in step.unsent:
                row.sent[column] = step.place
            elif row.origin is None:
                row.sent.setdefault(column, None)
        rows[step.new] = row
    return rows
