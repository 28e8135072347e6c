"""Why a plan no longer fits the catalog, object by object."""

from __future__ import annotations

from catalog_migrate.errors import StalePlan
from catalog_migrate.model.ids import number_of
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Plan
from catalog_migrate.release.release import Release

AGAIN = "run `catalog-migrate plan` again and approve the new plan"


def stale(plan: Plan, baseline: Baseline, release: Release) -> StalePlan:
    """The refusal of an approved plan that is not the one of this catalog and this release."""
    return StalePlan(
        "the plan does not describe this catalog and this release any more",
        changes=(*other_target(plan, release), *explain_staleness(plan, baseline)),
        remedy=AGAIN,
    )


def other_target(plan: Plan, release: Release) -> tuple[str, ...]:
    """How the release at hand is not the one that the plan was made for; empty when it is."""
    target = plan.target
    if target.manifest_hash in (None, release.manifest_hash):
        return ()
    if target.release != release.name:
        return (f"the plan was made for release {target.release}, this is {release.name}",)
    return (f"the contents of release {release.name} changed since the plan was made",)


def explain_staleness(plan: Plan, baseline: Baseline) -> tuple[str, ...]:
    """What changed since the plan was made; empty when the plan fits the catalog."""
    base, now = plan.base, baseline.base
    if base.lineage is None or base.serial is None:
        return ("the plan compares two releases; it was not made for a catalog",)
    if base.lineage != now.lineage:
        return (f"the plan was made for catalog {base.lineage}, this is {now.lineage}",)
    if base.serial == now.serial:
        return ()
    lines = [f"the catalog is at serial {now.serial}, the plan was made at {base.serial}"]
    if base.release != now.release:
        lines.append(
            f"release {now.release or 'none'} is in force, it was {base.release or 'none'}"
        )
    lines.extend(_moved_objects(plan, baseline))
    return tuple(lines)


def _moved_objects(plan: Plan, baseline: Baseline) -> list[str]:
    by_item = {held.item_id: held for held in baseline.objects.values()}
    names = {str(held.definition.key) for held in baseline.objects.values()}
    lines: dict[str, str] = {}
    planned: set[str] = set()
    for change in plan.changes:
        if change.old_id is not None and change.item_id is not None:
            planned.add(change.item_id)
            held = by_item.get(change.item_id)
            earlier = change.old_name or change.name
            if held is None:
                lines[earlier] = f"{earlier} was dropped since (it was {change.old_id})"
            elif held.global_id != change.old_id:
                lines[earlier] = (
                    f"{held.definition.key} was migrated since "
                    f"({held.global_id}, it was {change.old_id})"
                )
        elif change.action == "create" and change.name in names:
            lines[change.name] = f"{change.name} was created since"
    handed_out = [
        number_of(change.new_id)
        for change in plan.changes
        if change.new_id is not None and change.new_id != change.old_id
    ]
    if handed_out:
        first = min(handed_out)
        for held in baseline.objects.values():
            name = str(held.definition.key)
            if number_of(held.global_id) >= first and held.item_id not in planned:
                lines.setdefault(name, f"{name} was created or migrated since ({held.global_id})")
    return [lines[name] for name in sorted(lines)]
