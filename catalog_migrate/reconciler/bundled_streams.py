"""The connections, sources and sinks of a release, brought in by a start; their runtime follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.errors import EngineFailure
from catalog_migrate.reconciler.execution_context import ExecutionContext

if TYPE_CHECKING:
    from collections.abc import Sequence


class BundledStreams:
    """What a release bundles beside its objects, as ``statements`` of the language.

    ``statements`` None leaves what was bundled as it is. ``waiting`` says in words what could not
    be brought in yet, ``unmade`` what has no shard, because the table that it reads is a user's
    and broken.
    """

    __slots__ = ("statements", "unmade", "waiting")

    def __init__(self, statements: Sequence[str] | None) -> None:
        self.statements = statements
        self.waiting: tuple[str, ...] = ()
        self.unmade: tuple[str, ...] = ()

    def pending(self, state: State) -> bool:
        """Whether something is not as the release has it; notes what is waiting."""
        if self.statements is None or not (self.statements or state.has_owner("shipped")):
            return False
        from catalog_migrate.streams.bundled_streams import plan_bundled_streams

        planned = plan_bundled_streams(state, self.statements)
        self.waiting = planned.waiting
        return planned.changes is not None

    def bring_in(self, work: ExecutionContext, state: State) -> State:
        """Commit what is pending and make the shards of what came."""
        statements = self.statements
        if statements is None or not self.pending(state):
            return state
        from catalog_migrate.streams.bundled_streams import plan_bundled_streams
        from catalog_migrate.streams.shards import ShardMaker

        made: tuple[str, ...] = ()

        def decide(current: State) -> Changes | None:
            nonlocal made
            planned = plan_bundled_streams(current, statements)
            made, self.waiting = planned.created, planned.waiting
            return planned.changes

        state = commit(work.log, decide, epoch=work.epoch, kind="ship")
        maker = ShardMaker(work.engine.create_shard, work.engine.shard_version)
        clusters = (state.items[item_id].links.get("cluster", "") for item_id in made)
        unmade = []
        for item_id in (*made, *filter(None, dict.fromkeys(clusters))):
            try:
                maker.ensure(state, item_id)
            except EngineFailure as error:
                item = state.items[item_id].definition
                unmade.append(f"{item.kind} {item.item_name}: {error.message}")
        self.unmade = tuple(unmade)
        return state
