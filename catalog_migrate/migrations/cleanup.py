"""Removes what is not needed any more: what attempts left behind, and replaced shards.

Of an attempt that died before its commit, what its intent names and nothing else. Of a replaced
shard, the data when its retention is over: given up on record first, then deleted on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import IntentRecord, ShardRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, Delete
from catalog_migrate.errors import LeaseLost
from catalog_migrate.migrations.execution_context import Ended, ExecutionContext, StreamTables
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.table_properties import APPEND_ONLY
from catalog_migrate.operations.operation import Operation, execute
from catalog_migrate.operations.steps import Step

RETENTION_SECONDS = 7 * 86_400.0
"""How long a replaced shard is kept, for old readers and for a rollback."""


def clean_up(work: ExecutionContext, state: State) -> State:
    """Clean up after every intent of an earlier epoch, whatever release left it.

    Shards that it sealed are first fenced with an empty commit, so that a seal still under way
    from the dead holder loses its version, then unsealed with their earlier properties; its new
    shards are deleted. Safe to repeat: the intent goes last. A holder that woke up after that may
    have made one of its directories again: those of ended attempts are looked at once more. An
    adopted table's directory is never an attempt's.
    """
    for path, record in sorted(state.shards.items()):
        if record.state == "gone" and record.retired_at is None and not is_absolute(path):
            location = work.absolute(path)
            if work.engine.shard_version(location) is not None:
                work.retrying(work.engine.delete_shard, location)
    for key, intent in sorted(state.intents.items()):
        if intent.epoch < work.epoch and not intent.committed:
            state = _undo(work, state, key, intent)
    return state


def abandon(work: ExecutionContext) -> State:
    """Undo this holder's own attempt after it failed, so that the old release goes on at once.

    Its commit may have landed although the call failed, or be under way still. So the first act is
    a commit of its own: either it finds the attempt committed, and nothing is undone, or it takes
    the version that a commit under way would need.
    """
    key = str(work.epoch)

    mark = Amend("intent", key, {"abandoned": True})
    try:
        state = commit(work.log, Commit("abandon", (mark,), (work.held,)))
    except LeaseLost:
        _remove_late(work)
        raise
    intent = state.intents.get(key)
    if intent is None:
        _remove_late(work)
        return state
    return _undo(work, state, key, intent)


def _remove_late(work: ExecutionContext) -> None:
    """Remove what this holder made after its successor had cleaned up after it.

    Its shards are of this attempt alone, so that needs no lease, unless its commit landed.
    """
    shards = read_state(work.log).shards
    for path in work.journal.paths:
        record = shards.get(path)
        if record is None or record.state in ("building", "gone"):
            work.engine.delete_shard(work.absolute(path))


def _undo(work: ExecutionContext, state: State, key: str, intent: IntentRecord) -> State:
    work.on_progress(Progress("clean up", 0, 1, f"attempt of epoch {intent.epoch}"))
    for seal in intent.seals:
        record = state.shards.get(seal.path)
        if record is None or record.state != "live":
            continue
        location = work.absolute(seal.path)
        earlier = find_replacing_properties(work, state, record, seal.properties)

        def unseal(location: str = location, properties: dict[str, str | None] = earlier) -> None:
            # a holder that was stopped here and lost its lease meanwhile must not take off the
            # seal of its successor, which carries a later epoch
            work.engine.fence(location, state.app_id, work.epoch)
            work.engine.unseal(location, properties, app_id=state.app_id, epoch=work.epoch)

        work.retrying(unseal)
    for path in intent.paths:
        work.retrying(work.engine.delete_shard, work.absolute(path))

    gone = (
        Amend("shard", path, {"state": "gone"}, where={"state": "building"})
        for path in intent.paths
    )
    state = work.commit(Commit("clean up", (*gone, Delete("intent", key))))
    work.on_progress(Progress("clean up", 1, 1, f"attempt of epoch {intent.epoch}"))
    return state


def find_replacing_properties(
    work: ExecutionContext, state: State, record: ShardRecord, earlier: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the properties that take a seal's place; append-only stays where a query relies on it.

    One that was started under the seal found the table so, and set nothing.
    """
    relied = bool(state.streams) and record.item_id in work.streams.append_only(state)
    return {**earlier, APPEND_ONLY: "true"} if relied else dict(earlier)


def find_expired(state: State, now: float, retention: float, streams: StreamTables) -> list[str]:
    """Paths of retired shards whose retention (seconds) is over at wall-clock time ``now``.

    One that ``streams`` have still to read stays, however old it is.
    """
    kept = streams.still_read(state) if state.streams else frozenset()
    return sorted(
        path
        for path, record in state.shards.items()
        if record.state == "retired"
        and record.retired_at is not None
        and record.retired_at + retention <= now
        and path not in kept
    )


def removing(state: State) -> list[str]:
    """Paths of shards that were given up, and whose data is still to be deleted."""
    return sorted(path for path, record in state.shards.items() if record.removing)


@dataclass(frozen=True)
class RetireShard(Operation[ExecutionContext]):
    """Delete the data of the shard at the step's name, which was given up on record.

    The place of an adopted table is its owner's: what is there without our seal was made again
    after the table had been taken away, and stays.
    """

    TOGETHER: ClassVar = 1

    def run(self, context: ExecutionContext) -> None:
        """Delete the files."""
        path, engine = self.step.name, context.engine
        location = context.absolute(path)
        if is_absolute(path) and (
            engine.shard_version(location) is None or not engine.is_sealed(location)
        ):
            return
        engine.delete_shard_data(location)


def remove_data(work: ExecutionContext, state: State) -> State:
    """Delete the data of every shard that is on record as given up; safe to repeat.

    That they are gone was committed before, so that no plan counts on rows that may go at any
    moment, whatever clock it was that called their retention over.
    """
    paths = removing(state)
    if not paths:
        return state
    steps = [Step("retire", "shard", path, id=state.shards[path].item_id) for path in paths]
    work.journal.steps += steps
    retired = [RetireShard(step) for step in steps]
    execute(retired, work, on_ended=Ended(work.on_progress, {"retire": "remove"}, retired))
    removed = tuple(Amend("shard", path, {"removing": False}) for path in paths)
    return work.commit(Commit("remove", removed))
