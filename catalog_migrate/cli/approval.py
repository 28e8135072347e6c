"""A plan before it is carried out: shown, refused when it may not be applied, asked for."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from catalog_migrate.cli import logs
from catalog_migrate.cli.output import confirm, note, render_plan
from catalog_migrate.errors import DECISION_CODES, MigrationBlocked

if TYPE_CHECKING:
    from catalog_migrate.config import Settings
    from catalog_migrate.planner.plan import Plan


def approved(
    plan: Plan, settings: Settings, format_: str, *, question: str, remedy: str, yes: bool,
    no_input: bool,
) -> bool:
    """Whether the person at the terminal (or ``--yes``) wants ``plan`` carried out.

    Raises MigrationBlocked, with ``remedy`` and after the report, for a plan that may not be
    applied, and UsageError where there is nobody to ask. A plan without changes is not asked for.
    """
    if not plan.applyable:
        if plan.blocked and all(entry.code not in DECISION_CODES for entry in plan.blocked):
            remedy = "do what stands below each entry; no approval helps"
        sys.stdout.write(render_plan(plan, format_, settings))
        raise MigrationBlocked(
            "the plan may not be applied; nothing was touched", plan=plan, remedy=remedy
        )
    if plan.is_noop or yes:
        return True
    for line in render_plan(plan, "text", settings, to_file=logs.is_json()).splitlines():
        # a report shows nothing of others raw, and may have colours of our own
        logs.log(logging.INFO, "note", line, None if logs.is_json() else {"painted": True})
    if confirm(question, yes=yes, no_input=no_input):
        return True
    note("nothing was touched")
    return False
