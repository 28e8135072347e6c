"""Adds to a plan what was seen outside the planner: views that bind, names and rows that stand."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from catalog_migrate.planner.migration import Migration
from catalog_migrate.planner.plan import Blocked, Plan, Validation
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.planner.presence import Gone

DOES_NOT_BIND = "CM0330"
NAME_HELD = "CM0331"
ROWS_GONE = "CM0332"


def with_validations(
    migration: Migration, proofs: Sequence[tuple[str, str | None]]
) -> Migration:
    """The migration with the outcome of each view's proof: (name, None or Spark's reason).

    A view that does not bind blocks the plan; ``bound`` says that all were tried.
    """
    blocked = [
        Blocked(
            name=name,
            code=DOES_NOT_BIND,
            reason=f"the view does not bind: {reason}",
            remedy=f"correct the SQL or the column list of {name} in the release",
        )
        for name, reason in proofs
        if reason is not None
    ]
    validations = [Validation(name, reason is None, reason) for name, reason in proofs]
    return _extended(migration, blocked, validations, bound=True)


def with_foreign(migration: Migration, held: Sequence[tuple[str, str]]) -> Migration:
    """The migration with every name of the new state that something of others holds."""
    if not held:
        return migration
    blocked = [
        Blocked(
            name=name,
            code=NAME_HELD,
            reason=reason,
            remedy=f"rename or drop what stands under {name}; it is never replaced",
        )
        for name, reason in held
    ]
    validations = [Validation(name, False, reason) for name, reason in held]
    return _extended(migration, blocked, validations, bound=migration.plan.bound)


def with_gone(migration: Migration, found: Sequence[Gone]) -> Migration:
    """The migration with every table of the old state whose rows are not where they should be.

    But for one that goes: what is gone for good is given up by dropping it.
    """
    dropped = {change.name for change in migration.plan.changes if change.action == "drop"}
    blocked = [
        Blocked(each.name, ROWS_GONE, each.reason, each.remedy)
        for each in found if each.name not in dropped
    ]
    if not blocked:
        return migration
    return _extended(migration, blocked, (), bound=migration.plan.bound)


def _extended(
    migration: Migration,
    blocked: Sequence[Blocked],
    validations: Sequence[Validation],
    *,
    bound: bool,
) -> Migration:
    before = migration.plan
    plan: Plan = replace(
        before,
        validations=(*before.validations, *validations),
        blocked=(*before.blocked, *blocked),
        bound=bound,
        applyable=before.applyable and not blocked,
    )
    if blocked:  # proofs alone are not part of the hash
        plan = replace(plan, plan_hash=plan_hash(plan))
    return replace(migration, plan=plan)
