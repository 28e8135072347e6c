"""The connections, sources and sinks of a release, brought in by a start; their runtime follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.errors import EngineFailure
from catalog_migrate.reconciler.execution_context import ExecutionContext
from catalog_migrate.reconciler.stream_tables import StreamTables

if TYPE_CHECKING:
    from collections.abc import Sequence


class BundledStreams:
    """What a release bundles beside its objects, as ``statements`` of the language.

    ``streams`` plans them. ``statements`` None leaves what was bundled as it is. ``waiting`` says
    in words what could not be brought in yet, ``unmade`` what has no shard, because the table that
    it reads is a user's and broken.
    """

    __slots__ = ("_streams", "statements", "unmade", "waiting")

    def __init__(self, streams: StreamTables, statements: Sequence[str] | None) -> None:
        self._streams = streams
        self.statements = statements
        self.waiting: tuple[str, ...] = ()
        self.unmade: tuple[str, ...] = ()

    def pending(self, state: State) -> bool:
        """Whether something is not as the release has it; notes what is waiting."""
        if self.statements is None or not (self.statements or state.has_owner("shipped")):
            return False
        planned = self._streams.bring_in(state, self.statements)
        self.waiting = planned.waiting
        return planned.changes is not None

    def bring_in(self, work: ExecutionContext, state: State) -> State:
        """Commit what is pending and make the shards of what came."""
        statements = self.statements
        if statements is None or not self.pending(state):
            return state
        made: tuple[str, ...] = ()

        def bundled(current: State) -> Changes | None:
            nonlocal made
            planned = self._streams.bring_in(current, statements)
            made, self.waiting = planned.created, planned.waiting
            return planned.changes

        state = commit(work.log, bundled, epoch=work.epoch, kind="ship")
        clusters = (state.items[item_id].links.get("cluster", "") for item_id in made)
        unmade = []
        for item_id in (*made, *filter(None, dict.fromkeys(clusters))):
            try:
                self._streams.make_shard(state, item_id, work.engine)
            except EngineFailure as error:
                item = state.items[item_id].definition
                unmade.append(f"{item.kind} {item.item_name}: {error.message}")
        self.unmade = tuple(unmade)
        return state
