"""Rows for every table of a release, for teams whose writers cannot run in a test, and their fate.

What a table held before an upgrade must be there after it: as many rows, and in each column that
kept its name and type the same values. Objects are followed by their id, so that a rename is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.testing.checks.chain import Check

if TYPE_CHECKING:
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.release.release import Release
    from catalog_migrate.testing.checks.chain import Platform, Row

_DAY = date(2026, 1, 1)


def sample_value(type_: str, number: int) -> Any:
    """A value of a canonical type, another one for another number; None for nested types."""
    name, _, arguments = type_.partition("(")
    match name:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return number % 100 + 1
        case "FLOAT" | "DOUBLE":
            return number + 0.5
        case "DECIMAL":
            precision, scale = (int(part) for part in arguments.rstrip(")").split(","))
            return Decimal(number % 10 if precision > scale else 0).quantize(
                Decimal(1).scaleb(-scale)
            )
        case "STRING":
            return f"value {number}"
        case "CHAR" | "VARCHAR":
            return str(number % 10)
        case "BOOLEAN":
            return number % 2 == 0
        case "DATE":
            return _DAY + timedelta(days=number)
        case "TIMESTAMP":
            return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=number)
        case "TIMESTAMP_NTZ":
            return datetime(2026, 1, 1) + timedelta(minutes=number)
        case "BINARY":
            return str(number).encode()
        case _:
            return None


def sample_rows(definition: ObjectDefinition, count: int, first: int = 0) -> list[dict[str, Any]]:
    """``count`` rows for a table; empty where no row can be made up.

    That is so for a NOT NULL column of a nested type, and where CHECKs say what only the team
    knows. Generated columns are left to the engine.
    """
    if definition.checks:
        return []
    rows = [
        {
            column.name.lower(): sample_value(column.type, number)
            for column in definition.columns
            if column.generated is None
        }
        for number in range(first, first + count)
    ]
    needed = [c.name.lower() for c in definition.columns if not c.nullable and not c.generated]
    return [row for row in rows if all(row[name] is not None for name in needed)]


class _Held(msgspec.Struct, frozen=True):
    """What a table held when it was last looked at."""

    name: str
    columns: Mapping[str, str]
    rows: Sequence[Row]


class SampleRows(Check):
    """Appends ``count`` rows to each retained table of every release, and sees that they stay."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self._held: dict[str, _Held] = {}
        self._written = 0

    def write(self, platform: Platform, release: Release) -> None:  # noqa: ARG002
        """Append to each table that takes made-up rows, and note what all tables hold."""
        for name, definition in _tables(platform).values():
            rows = sample_rows(definition, self.count, self._written)
            if rows and not any(column.generated for column in definition.columns):
                platform.append(name, rows)
        self._written += self.count
        self._note(platform)

    def _note(self, platform: Platform) -> None:
        self._held = {
            item_id: _Held(
                name, {column.name.lower(): column.type for column in definition.columns},
                platform.rows(name),
            )
            for item_id, (name, definition) in _tables(platform).items()
        }

    def validate(self, platform: Platform, release: Release) -> None:  # noqa: ARG002
        """Every table that is still there has its rows; AssertionError names all that have not."""
        lost: list[str] = []
        standing = _tables(platform)
        for item_id, held in self._held.items():
            if item_id not in standing:
                continue
            name, definition = standing[item_id]
            kept = [
                column.name.lower()
                for column in definition.columns
                if held.columns.get(column.name.lower()) == column.type
            ]
            before, after = _values(held.rows, kept), _values(platform.rows(name), kept)
            if before != after:
                gone, new = before - after, after - before
                lost.append(
                    f"{name}: {sum(before.values())} rows became {sum(after.values())};"
                    f" {sum(gone.values())} are gone or changed, {sum(new.values())} are new"
                )
        assert not lost, "; ".join(lost)

    def let_go(self, names: Sequence[str]) -> None:
        """Tables whose later rows were given up are compared no more."""
        self._held = {
            item_id: held for item_id, held in self._held.items() if held.name not in names
        }


def _tables(platform: Platform) -> dict[str, tuple[str, ObjectDefinition]]:
    """Retained tables of the release in force by item id, with their names."""
    state = read_state(platform.log)
    return {
        mapping.item_id: (
            str(mapping.key), state.items[mapping.item_id].definition
        )
        for mapping in state.mappings.values()
        if mapping.kind == "table"
        and mapping.owner == "release"
        and state.items[mapping.item_id].definition.contents != "derived"
    }


def _values(rows: Sequence[Row], columns: Sequence[str]) -> Counter[str]:
    """Rows as a multiset over some columns; by their text, since values may not be hashable."""
    return Counter(repr([row.get(column) for column in columns]) for row in rows)
