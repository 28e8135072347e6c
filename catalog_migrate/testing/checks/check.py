"""What a team adds to a chain of releases: what its writers write, what must hold afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog_migrate.release.release import Release
    from catalog_migrate.testing.checks.platform import Platform


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
