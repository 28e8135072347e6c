"""Puts a plan together from its parts, and the migration of a release that changes nothing.

A start without a change needs just this module of the planner: it imports none of the deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.model.hashes import SCHEME
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import (
    ACTIONS,
    PLAN_FORMAT,
    Base,
    Migration,
    Plan,
    PlanTarget,
    point_of_no_return,
)
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.version import __version__

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import Owner
    from catalog_migrate.catalog.state import State


def empty_plan(base: Base, target: PlanTarget) -> Plan:
    """Return a plan in which nothing is to be done; :func:`complete` what is made of it."""
    return Plan(PLAN_FORMAT, __version__, "", base, target, {}, (), (), (), ())


def complete(plan: Plan, *, unchanged: int) -> Plan:
    """Return a plan with what follows from its parts; ``unchanged`` counts the other objects.

    Its summary, whether it is applyable, its point of no return, and its hash.
    """
    summary: dict[str, int] = dict.fromkeys(ACTIONS, 0)
    for change in plan.changes:
        summary[change.action] += 1
    summary["unchanged"] = unchanged
    plan = replace(
        plan, summary=summary,
        applyable=not plan.blocked and all(validation.ok for validation in plan.validations),
        point_of_no_return=point_of_no_return(plan.changes),
    )
    return replace(plan, plan_hash=plan_hash(plan))


def rebase(migration: Migration, base: Base) -> Migration:
    """Return a migration from nothing as one from an empty catalog that was created meanwhile."""
    plan = replace(migration.plan, base=base)
    return replace(migration, plan=replace(plan, plan_hash=plan_hash(plan)))


def nothing_to_do(
    baseline: Baseline, release: str, manifest_hash: str, *, unchanged: int
) -> Migration:
    """Return the migration to a release of ``unchanged`` objects that all stand as they should."""
    return Migration(
        plan=complete(
            empty_plan(baseline.base, PlanTarget(release, manifest_hash)), unchanged=unchanged
        ),
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
    """Return the empty migration when this very release is in force, by its name and its hash.

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
