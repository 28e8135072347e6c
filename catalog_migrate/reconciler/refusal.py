"""The error of a plan that may not be carried out: what stands in the way, and what cures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.errors import DECISION_CODES, MigrationBlocked
from catalog_migrate.model.wording import counted

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan

_WRITE = "write what is listed into the release, or approve it at the call"


def blocked(plan: Plan) -> MigrationBlocked:
    """The error for ``plan``, its decisions told apart from what no approval cures."""
    back = plan.target.serial is not msgspec.UNSET
    missing = sum(entry.code in DECISION_CODES for entry in plan.blocked)
    obstacles = len(plan.blocked) - missing
    told = []
    if missing or not obstacles:
        told.append(f"{counted(missing, 'decision')} {'is' if missing == 1 else 'are'} missing")
    if obstacles:
        told.append(f"{counted(obstacles, 'obstacle')} that no approval cures")
    way = "approve what is listed at the call" if back else _WRITE
    if obstacles:
        way = "do what stands below each entry" + (f"; {way}" if missing else "")
    return MigrationBlocked(f"{', '.join(told)}; nothing was touched", plan=plan, remedy=way)
