"""The oracle for rows: what every table must hold, kept apart from everything under test.

The ledger knows tables and columns by their lasting numbers and hears of exactly two things: a row
that some writer's append was acknowledged for, and that a release came in force, by a migration or
by going back to an earlier serial. What a row looks like after that follows from the drafts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from catalog_migrate.model.objects import Column
from catalog_migrate.testing.bodies import Row, compile_expression
from tests.simulation.draft import ColumnShape, DraftedRelease, TableShape

Rows = dict[int, dict[int, dict[int, Any]]]
"""Rows by table number, key and column number."""


class Past(msgspec.Struct, frozen=True):
    """What was in force at the end of a serial: the release, and the rows."""

    draft: DraftedRelease
    rows: Rows


class Ledger:
    """Acknowledged rows by table number, key and column number.

    ``history`` has what was in force at the end of every serial that was seen.
    """

    def __init__(self, chain: Sequence[DraftedRelease]) -> None:
        self._drafts = {draft.name: draft for draft in chain}
        self._numbers = {
            (shape.number, column.name): column.number
            for draft in chain
            for shape in draft.tables.values()
            for column in shape.columns
        }
        self.derived = frozenset(
            shape.name for draft in chain for shape in draft.tables.values() if shape.derived
        )
        """Names that derived tables have anywhere in the chain."""
        self._rows: Rows = {}
        self._born: dict[int, dict[int, int]] = {}
        self._next_key = 1
        self._serial = 0
        self.history: dict[int, Past] = {}
        self.in_force: DraftedRelease | None = None

    def put_in_force(
        self, release: str, *, serial: int | None = None, back_to: int | None = None
    ) -> None:
        """A release came in force: drop what it drops, fill what it adds. The same one: nothing.

        ``serial`` is the catalog's since then; ``back_to`` the one that a rollback went back to.
        """
        if serial is not None and serial != self._serial:
            if self.in_force is not None:
                kept = {number: dict(rows) for number, rows in self._rows.items()}
                self.history[self._serial] = Past(self.in_force, kept)
            self._serial = serial
            if back_to is not None:
                self._go_back(back_to)
        draft = self._drafts[release]
        if self.in_force is draft:
            return
        self.in_force = draft
        before = self._rows
        self._rows = {}
        for number, shape in draft.tables.items():
            fills = [
                (column.number, None if column.default is None else _value(column.default))
                for column in shape.columns
            ]
            rows = before.get(number)
            if rows is None and shape.filled is not None:
                pairs = shape.filled.columns
                rows = {
                    key: {new: row[old] for new, (old, _) in pairs.items() if old in row}
                    for key, row in before.get(shape.filled.source, {}).items()
                }
            self._rows[number] = {
                key: {column: row.get(column, fill) for column, fill in fills}
                for key, row in (rows or {}).items()
            }

    def _go_back(self, serial: int) -> None:
        """Rows of then are as they were; those written since have what was written to them."""
        past = self.history[serial]
        self.in_force = past.draft
        self._rows = {}
        for number, shape in past.draft.tables.items():
            rows = dict(past.rows.get(number, {}))
            for key, born in self._born.get(number, {}).items():
                if key not in rows and born > serial:
                    written = self.history[born].rows[number][key]
                    rows[key] = {
                        column.number: written.get(column.number) for column in shape.columns
                    }
            self._rows[number] = rows

    def new_row(self, columns: Sequence[Column], random: Random) -> dict[str, Any]:
        """A row that fits a shard's columns; its first column is a key never used before."""
        key = self._next_key
        self._next_key += 1
        row: dict[str, Any] = {columns[0].name: key}
        for column in columns[1:]:
            if column.nullable and random.random() < 0.2:
                row[column.name] = None
            elif column.type == "STRING":
                row[column.name] = f"s{key}"
            else:
                row[column.name] = random.randrange(1000)
        return row

    def acknowledge(self, table: int, row: Mapping[str, Any]) -> None:
        """An append of this row was accepted: from now on it must never be lost or doubled.

        A value of a column that is no longer in force, and still in the table, goes with it.
        """
        key = next(iter(row.values()))
        shape = None if self.in_force is None else self.in_force.tables.get(table)
        numbers = {name: self._numbers[table, name] for name in row}
        kept = numbers.values() if shape is None else {each.number for each in shape.columns}
        self._rows.setdefault(table, {})[key] = {
            numbers[name]: value for name, value in row.items() if numbers[name] in kept
        }
        self._born.setdefault(table, {})[key] = self._serial

    def expected(self, shape: TableShape) -> dict[int, Row]:
        """The table's rows as the release in force shows them, by key."""
        return {
            key: {column.name: row.get(column.number) for column in shape.columns}
            for key, row in self._rows.get(shape.number, {}).items()
        }

    def count(self, table: int) -> int:
        """How many rows a table must hold."""
        return len(self._rows.get(table, ()))

    def keys(self, table: int) -> set[int]:
        """The keys of the rows that a table must hold."""
        return set(self._rows.get(table, ()))


def derived_rows(columns: Sequence[Column] | Sequence[ColumnShape]) -> list[Row]:
    """What the application fills a derived table with: three rows that follow from its columns."""
    key, *others = columns
    return [
        {
            key.name: number,
            **{c.name: f"{c.name}{number}" if c.type == "STRING" else number for c in others},
        }
        for number in (1, 2, 3)
    ]


def _value(default: str) -> Any:
    return compile_expression(default)({})
