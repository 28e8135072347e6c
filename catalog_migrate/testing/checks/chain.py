"""A chain of releases brought up on a platform, looked at after every step, and rolled back.

:class:`Check` is what a team adds: what its writers write, and what must hold afterwards. For teams
whose writers cannot run in a test there are rows for every table of a release, and their fate: what
a table held before an upgrade must be there after it, as many rows, and in each column that kept
its name and type the same values. Objects are followed by their id, so that a rename is none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.delta.datatypes import without_lengths
from catalog_migrate.errors import MigrationBlocked
from catalog_migrate.planner.rollback import IRREVERSIBLE
from catalog_migrate.release.loader import load_release
from catalog_migrate.release.release import Release

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.release.release import Release

Source = Release | str | os.PathLike[str]
"""A release: loaded, a directory of ``*.sql``, or a manifest file."""

Row = Mapping[str, Any]
"""One row: column name in lower case -> value."""


class Platform(Protocol):
    """An installation of the team's software: one durable catalog, one warehouse, one engine."""

    @property
    def log(self) -> CatalogLog:
        """The durable catalog."""

    def start(self, release: Release, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """Start the software with a release, in a process whose session knows no name."""

    def roll_back(self, serial: int, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """Bring the catalog back to what it was at a serial."""

    def drift(self) -> Sequence[str]:
        """Names that are not what is committed; empty when all are."""

    def columns(self, name: str) -> Mapping[str, str]:
        """Column name -> canonical type of a table or view, as a reader's session sees it."""

    def rows(self, name: str) -> Sequence[Row]:
        """All rows of a table or view (views: on Spark only), in no order."""

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """Append rows to a table by its name; columns that a row lacks are NULL."""


class CheckFailed(AssertionError):
    """Something does not hold: ``phase`` is what was just done, ``found`` all that is wrong."""

    def __init__(self, phase: str, found: list[str]) -> None:
        self.phase = phase
        self.found = found
        lines = "\n".join(f"  - {one}" for one in found)
        super().__init__(f"after {phase}:\n{lines}")


class Check:
    """One concern of the team; both methods may be overridden, and do nothing as they are.

    An object of the class lives through one chain, so it may keep what it wrote and compare.
    """

    def write(self, platform: Platform, release: Release) -> None:
        """Write what the team's software would, while ``release`` is in force."""

    def validate(self, platform: Platform, release: Release) -> None:
        """Raise AssertionError for what is not as it should be while ``release`` is in force."""

    def let_go(self, names: Sequence[str]) -> None:
        """Told what a rollback takes away: columns, and tables whose later rows do not fit back.

        ``names`` are ``schema.table[.column]``, as an operator would approve them.
        """


@dataclass(slots=True)
class ChainReport:
    """What a chain did: ``steps`` in words, ``rows_copied`` by all of them."""

    releases: tuple[str, ...]
    steps: list[str] = field(default_factory=list)
    rows_copied: int = 0


def chains_of(releases: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Every pair old to new, and the whole chain when it is longer than a pair."""
    chains: list[tuple[Source, ...]] = list(combinations(releases, 2))
    return [*chains, tuple(releases)] if len(releases) > 2 else chains


def run_chain(
    platform: Platform, releases: Iterable[Source], *, checks: Sequence[Check] = (),
    approve: Mapping[str, Sequence[str]] | None = None, rollback: bool = True,
) -> ChainReport:
    """Initialise on the first release and upgrade through the others, then roll back to the first.

    After each start: the plan of the release is empty, nothing is pending, no name drifted, every
    relation has the columns that its definition says, and each of ``checks`` validates. Then the
    checks write, and a restart must find nothing changed. ``approve`` holds by release name what
    may be lost on the way to it (``schema.table[.column]``); ``rollback`` says whether to go back
    in the end, with the loss of what came later; where an upgrade said that there is no rollback
    past its commit (a column was dropped in place), the way back ends there, and the report says
    so. Raises CheckFailed with everything that is wrong after the step that broke it.
    """
    loaded = [one if isinstance(one, Release) else load_release(os.fspath(one)) for one in releases]
    report = ChainReport(tuple(release.name for release in loaded))
    approved = approve or {}
    serials: list[int] = []
    final: list[bool] = []
    for number, release in enumerate(loaded):
        began = platform.start(release, approve=tuple(approved.get(release.name, ())))
        phase = f"{'an upgrade' if number else 'a first start'} to {release.name}"
        expected = {"migrated"} if number else {"initialized"}
        _check_settled(platform, release, phase, began.outcome, expected, checks)
        report.steps.append(f"{phase}: {began.outcome}")
        report.rows_copied += began.rows_copied
        for check in checks:
            check.write(platform, release)
        again = platform.start(release)
        phase = f"a restart of {release.name}"
        _check_settled(platform, release, phase, again.outcome, {"unchanged"}, checks)
        report.steps.append(f"{phase}: {again.outcome}")
        serials.append(read_state(platform.log).serial)
        point = began.plan.point_of_no_return if began.plan is not None else None
        final.append(point is not None and point.after == "commit")
    if rollback:
        _roll_back(platform, loaded, serials, final, checks, report)
    return report


def _roll_back(
    platform: Platform, loaded: Sequence[Release], serials: Sequence[int],
    final: Sequence[bool], checks: Sequence[Check], report: ChainReport,
) -> None:
    """``final`` says of each release whether its plan ruled out a rollback past its commit."""
    for number in reversed(range(len(loaded) - 1)):
        release = loaded[number]
        try:
            back = platform.roll_back(serials[number])
        except MigrationBlocked as blocked:
            gone = [one for one in blocked.plan.blocked if one.code == IRREVERSIBLE]
            if gone and any(final[number + 1 :]):
                lost = ", ".join(f"{one.name}.{one.column}" for one in gone)
                report.steps.append(f"no way back to {release.name}: {lost}")
                newer = loaded[number + 1]
                outcome = platform.start(newer).outcome
                phase = f"a restart of {newer.name} after a refused rollback"
                _check_settled(platform, newer, phase, outcome, {"unchanged"}, checks)
                return
            # what came with the later release goes with it: said in the report, and meant here
            goes = [
                entry.name if entry.column is None else f"{entry.name}.{entry.column}"
                for entry in blocked.plan.blocked
                if entry.remedy.startswith("--approve ")
            ]
            if len(goes) != len(blocked.plan.blocked):
                raise
            report.steps.append(f"goes with a rollback to {release.name}: {', '.join(goes)}")
            back = platform.roll_back(serials[number], approve=goes)
            for check in checks:
                check.let_go(goes)
        phase = f"a rollback to {release.name}"
        _check_settled(platform, release, phase, back.outcome, {"rolled_back"}, checks)
        report.steps.append(f"{phase}: {back.outcome}")
        report.rows_copied += back.rows_copied


def _check_settled(
    platform: Platform, release: Release, phase: str, outcome: str, expected: set[str],
    checks: Sequence[Check],
) -> None:
    """CheckFailed with all that does not hold while ``release`` should be in force, at rest."""
    found: list[str] = []
    if outcome not in expected:
        found.append(f"the outcome is {outcome}, not {' or '.join(sorted(expected))}")
    catalog = Catalog(platform.log)
    plan = catalog.plan(release)
    if not plan.is_empty:
        found.append(f"planning {release.name} again is not empty: {plan.summary}")
    found += [f"pending: {work}" for work in catalog.status().work]
    found += [f"drift: {one}" for one in platform.drift()]
    found += _wrong_columns(platform, release)
    for check in checks:
        try:
            check.validate(platform, release)
        except AssertionError as error:
            found.append(f"{type(check).__name__}: {error}")
    if found:
        raise CheckFailed(phase, found)


def _wrong_columns(platform: Platform, release: Release) -> list[str]:
    wrong: list[str] = []
    for definition in release.objects:
        if definition.kind not in {"table", "view"} or not definition.columns:
            continue
        name = str(definition.key)
        # a reader sees strings where the definition says CHAR or VARCHAR
        declared = {c.name.lower(): without_lengths(c.type) for c in definition.columns}
        try:
            seen = platform.columns(name)
        except Exception as error:  # noqa: BLE001 - a view fails in many ways, each is told
            wrong.append(f"{name} cannot be read: {error}")
            continue
        standing = {column: without_lengths(type_) for column, type_ in seen.items()}
        if standing != declared:
            differing = sorted(
                column for column in {*standing, *declared}
                if standing.get(column) != declared.get(column)
            )
            wrong.append(f"{name} differs from its definition in {', '.join(differing)}")
    return wrong


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
