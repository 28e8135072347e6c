"""The connections, sources and sinks of a release, brought in by a start; their runtime follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.errors import EngineFailure
from catalog_migrate.reconciler.execution_context import ExecutionContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catalog_migrate.reconciler.stream_tables import BundledChanges


def pending_bundled(
    work: ExecutionContext, state: State, statements: Sequence[str] | None
) -> BundledChanges | None:
    """What is not as the release bundles it, in ``statements``; notes what is waiting.

    ``statements`` None leaves what was bundled as it is.
    """
    if statements is None or not (statements or state.has_owner("shipped")):
        return None
    planned = work.streams.bring_in(state, statements)
    work.journal.waiting = planned.waiting
    return None if planned.changes is None else planned


def bring_in_bundled(
    work: ExecutionContext, state: State, statements: Sequence[str] | None
) -> State:
    """Commit what is pending and make the shards of what came; notes what has none."""
    if pending_bundled(work, state, statements) is None:
        return state
    made: tuple[str, ...] = ()

    def bundled(current: State) -> Changes | None:
        nonlocal made
        planned = pending_bundled(work, current, statements)
        made = () if planned is None else planned.created
        return None if planned is None else planned.changes

    state = commit(work.log, bundled, epoch=work.epoch, kind="ship")
    clusters = (state.items[item_id].links.get("cluster", "") for item_id in made)
    unmade = []
    for item_id in (*made, *filter(None, dict.fromkeys(clusters))):
        try:
            work.streams.make_shard(state, item_id, work.engine)
        except EngineFailure as error:
            item = state.items[item_id].definition
            unmade.append(f"{item.kind} {item.item_name}: {error.message}")
    work.journal.unmade = tuple(unmade)
    return state
