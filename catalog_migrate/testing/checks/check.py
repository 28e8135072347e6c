"""What a team adds to a chain of releases: what its writers write, what must hold afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.release.release import Release


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
