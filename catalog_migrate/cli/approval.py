"""A plan before it is carried out: shown, refused when it may not be applied, asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

from catalog_migrate.cli import logs
from catalog_migrate.cli.output import confirm, note, render_plan
from catalog_migrate.errors import DECISION_CODES, MigrationBlocked

if TYPE_CHECKING:
    from catalog_migrate.config import Settings
    from catalog_migrate.planner.plan import Plan


def note_unmet(plan: Plan, approve: Collection[str]) -> None:
    """Say on stderr which approvals no change of ``plan`` needed, with the names most like them.

    They are no error: a job may go on giving the approvals of a release that is in force by now.
    """
    if not approve:
        return
    from difflib import get_close_matches

    from catalog_migrate.planner.policy_evaluation import approval_parts

    met = {approval_parts(name) for name in plan.approved}
    known = {
        *(change.name for change in plan.changes),
        *(f"{b.name}.{b.column}" if b.column else b.name for b in plan.blocked),
    }
    for entry in approve:
        parts = approval_parts(entry)
        if parts in met or parts[:2] in met or (
            len(parts) == 2 and any(name[:2] == parts for name in met)
        ):
            continue
        if any(":" not in name and approval_parts(name) == parts for name in known):
            note(f"--approve {entry} was not needed: the change of it asks for no approval")
            continue
        near = get_close_matches(entry, sorted(known), n=2, cutoff=0.6)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        note(f"--approve {entry} met nothing: no change of this plan needs it{meant}")


def approved(
    plan: Plan, settings: Settings, format_: str, *, question: str, remedy: str, yes: bool,
    no_input: bool,
) -> bool:
    """Whether the person at the terminal (or ``--yes``) wants ``plan`` carried out.

    Raises MigrationBlocked, with ``remedy`` and after the report, for a plan that may not be
    applied, and UsageError where there is nobody to ask. A plan that changes nothing, the release
    in force included, is not asked for.
    """
    if not plan.applyable:
        if plan.blocked and all(entry.code not in DECISION_CODES for entry in plan.blocked):
            remedy = "do what stands below each entry; no approval helps"
        sys.stdout.write(render_plan(plan, format_, settings))
        raise MigrationBlocked(
            "the plan may not be applied; nothing was touched", plan=plan, remedy=remedy
        )
    if yes or (plan.is_noop and not plan.only_release):
        return True
    for line in render_plan(plan, "text", settings, to_file=logs.is_json()).splitlines():
        # a report shows nothing of others raw, and may have colours of our own
        logs.log(logging.INFO, "note", line, None if logs.is_json() else {"painted": True})
    if confirm(question, yes=yes, no_input=no_input):
        return True
    note("nothing was touched")
    return False
