"""A migration planned again, with copies of tables that cannot be changed in place after all.

A plan that was made without looking at the tables may count on what they refuse. What is done then
is another program, so it is another plan, with a hash of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.catalog.state import State
from catalog_migrate.planner.plan import Change, Migration, Target, point_of_no_return
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.planner.program import program

if TYPE_CHECKING:
    from catalog_migrate.model.names import Identity

def replan_with_copies(
    migration: Migration, reasons: Mapping[Identity, str], state: State
) -> Migration:
    """Return the migration with copies of the tables that have ``reasons``, by identity.

    A policy has no say: what it says of copies applies to the plan that is made first.
    """
    from catalog_migrate.model.graph import DependencyGraph

    def copy(target: Target) -> Target:
        if target.identity not in reasons:
            return target
        return replace(target, contents="copy", reshape=(), sets_properties=False)

    targets = tuple(map(copy, migration.targets))
    because = {
        target.item_id: reasons[target.identity]
        for target in targets if target.identity in reasons
    }

    def explain(change: Change) -> Change:
        reason = because.get(change.item_id or "")
        return change if reason is None else replace(
            change, contents="copy", copied_because=(*change.copied_because, reason)
        )

    plan = migration.plan
    changes = tuple(map(explain, plan.changes))
    there = {target.identity: target.definition.key for target in targets}
    uses = {target.identity: [use for use in target.uses if use in there] for target in targets}
    steps = program(
        targets,
        {mapping.identity: (mapping.key, mapping.item_id) for mapping in state.mappings.values()},
        migration.drops, migration.creates, (state.graph, DependencyGraph(uses, there)),
    )
    plan = replace(
        plan, changes=changes, steps=steps, point_of_no_return=point_of_no_return(changes)
    )
    return replace(
        migration, targets=targets, plan=replace(plan, plan_hash=plan_hash(plan))
    )
