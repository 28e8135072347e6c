"""Puts a plan together from its parts, and the migration of a release that changes nothing.

A start without a change needs just this module of the planner: it imports none of the deciding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.model.hashes import SCHEME
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import (
    ACTIONS,
    PLAN_FORMAT,
    Base,
    Blocked,
    Change,
    GraphObject,
    Migration,
    Plan,
    PlanTarget,
    Question,
    Replaced,
    Unproven,
    Validation,
    point_of_no_return,
)
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.program.steps import Step
from catalog_migrate.version import __version__

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import Owner
    from catalog_migrate.catalog.state import State


def assemble(
    base: Base,
    target: PlanTarget,
    *,
    unchanged: int,
    changes: Sequence[Change] = (),
    drops: Sequence[str] = (),
    creates: Sequence[str] = (),
    steps: Sequence[Step] = (),
    validations: Sequence[Validation] = (),
    questions: Sequence[Question] = (),
    blocked: Sequence[Blocked] = (),
    approved: Sequence[str] = (),
    locks_out: str | None = None,
    unproven: Sequence[Unproven] = (),
    replaced: Sequence[Replaced] = (),
    graph: Sequence[GraphObject] = (),
) -> Plan:
    """The plan of these parts with its summary and its hash; ``unchanged`` counts the others."""
    summary: dict[str, int] = dict.fromkeys(ACTIONS, 0)
    for change in changes:
        summary[change.action] += 1
    summary["unchanged"] = unchanged
    plan = Plan(
        format_version=PLAN_FORMAT,
        tool_version=__version__,
        plan_hash="",
        base=base,
        target=target,
        summary=summary,
        changes=tuple(changes),
        drops=tuple(drops),
        creates=tuple(creates),
        steps=tuple(steps),
        validations=tuple(validations),
        questions=tuple(questions),
        blocked=tuple(blocked),
        approved=tuple(approved),
        applyable=not blocked and all(validation.ok for validation in validations),
        point_of_no_return=point_of_no_return(changes),
        locks_out=locks_out,
        unproven=tuple(unproven),
        replaced=tuple(replaced),
        graph=tuple(graph),
    )
    return replace(plan, plan_hash=plan_hash(plan))


def rebased(migration: Migration, base: Base) -> Migration:
    """A migration from nothing as one from an empty catalog that was created meanwhile."""
    plan = replace(migration.plan, base=base)
    return replace(migration, plan=replace(plan, plan_hash=plan_hash(plan)))


def nothing_to_do(
    baseline: Baseline, release: str, manifest_hash: str, *, unchanged: int
) -> Migration:
    """The migration to a release of ``unchanged`` objects that all stand as they should."""
    return Migration(
        plan=assemble(baseline.base, PlanTarget(release, manifest_hash), unchanged=unchanged),
        targets=(),
        drops=(),
        creates=(),
        removed=(),
        next_item=baseline.next_item,
        next_global=baseline.next_global,
        manifest_hash=manifest_hash,
    )


def in_force(
    state: State,
    release: str,
    manifest_hash: str,
    objects: int | None = None,
    *,
    owner: Owner = "release",
    uri: str | None = None,
) -> Migration | None:
    """The empty migration when this very release is in force, told by its name and its hash.

    The commit that writes a manifest hash writes every object of that manifest too, so nothing is
    compared and no definition decoded. None, and the release has to be compared, when another one
    is in force, when the state has not as many objects as the release (``objects``), and when an
    object carries hashes of an earlier recipe, which are stamped again.
    """
    standing = state.release_in_force(owner)
    if standing is None or (standing.name, standing.manifest_hash) != (release, manifest_hash):
        return None
    schemes = state.answers.schemes.get(owner, {})
    held = schemes.get(SCHEME, 0)
    if held != sum(schemes.values()) or objects not in (None, held):
        return None
    return nothing_to_do(
        Baseline.outline(state, owner=owner, uri=uri), release, manifest_hash, unchanged=held
    )
