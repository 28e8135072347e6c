"""The oracle for rows: what every table must hold, kept apart from everything under test.

The ledger knows tables and columns by their lasting numbers and hears of exactly two things: a row
that some writer's append was acknowledged for, and that a release came in force. What a row looks
like after that follows from the drafts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from catalog_migrate.model.objects import Column
from catalog_migrate.testing.bodies import Row, compile_expression
from catalog_migrate.testing.draft import ColumnShape, DraftedRelease, TableShape


class Ledger:
    """Acknowledged rows by table number, key and column number."""

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
        self._rows: dict[int, dict[int, dict[int, Any]]] = {}
        self._next_key = 1
        self.in_force: DraftedRelease | None = None

    def put_in_force(self, release: str) -> None:
        """A release came in force: drop what it drops, fill what it adds. The same one: nothing."""
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
            self._rows[number] = {
                key: {column: row.get(column, fill) for column, fill in fills}
                for key, row in before.get(number, {}).items()
            }

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
        """An append of this row was accepted: from now on it must never be lost or doubled."""
        key = next(iter(row.values()))
        self._rows.setdefault(table, {})[key] = {
            self._numbers[table, name]: value for name, value in row.items()
        }

    def expected(self, shape: TableShape) -> dict[int, Row]:
        """The table's rows as the release in force shows them, by key."""
        return {
            key: {column.name: row.get(column.number) for column in shape.columns}
            for key, row in self._rows.get(shape.number, {}).items()
        }

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
