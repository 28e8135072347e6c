"""Tables that a plan would read, change or seal, and under whose Delta features nothing can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from catalog_migrate.model.paths import shard_location
from catalog_migrate.planner.plan import Blocked

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.model.table_features import Unsupported
    from catalog_migrate.planner.plan import Plan

UNSUPPORTED_TABLE = "CM0336"
_ACTS = {"copy": "copied", "evolve": "changed in place", "seal": "sealed"}
"""Operations on shards in force, and what the table cannot be."""


def find_unsupported_tables(
    plan: Plan, state: State, look: Callable[[str], Unsupported | None]
) -> Iterator[Blocked]:
    """An entry for each table that ``plan`` does something to which it cannot bear, by name.

    ``look`` tells of an absolute path; it is asked about tables that change alone.
    """
    acts: dict[str, tuple[str, list[str]]] = {}
    for step in plan.steps:
        verb = _ACTS.get(step.op)
        if verb is not None and step.id in state.items:
            acts.setdefault(step.id, (step.name, []))[1].append(verb)
    for item_id, (name, verbs) in sorted(acts.items(), key=lambda each: each[1][0]):
        shard = state.items[item_id].shard
        if shard is None:
            continue
        path = shard_location(state.setting("warehouse"), shard)
        found = look(path)
        if found is not None:
            yield Blocked(
                name, UNSUPPORTED_TABLE,
                f"it cannot be {' and '.join(dict.fromkeys(verbs))}: {found.reason} ({path})",
                found.remedy,
            )
