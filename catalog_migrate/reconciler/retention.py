"""Lets go of replaced shards when their retention is over: on record first, then on disk."""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.program.operations import RetireShard
from catalog_migrate.reconciler.execution_context import ExecutionContext, Progress, StreamTables

RETENTION = 7 * 86_400.0
"""Seconds that a replaced shard is kept, for old readers and for going back."""


def expired(state: State, now: float, retention: float, streams: StreamTables) -> list[str]:
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


def _remove(work: ExecutionContext, path: str) -> None:
    """Delete the data of one shard that was given up.

    The place of an adopted table is its owner's: what stands there without our seal was made anew
    after the table had been taken away, and stays.
    """
    location = work.absolute(path)
    if is_absolute(path) and (
        work.engine.shard_version(location) is None or not work.engine.is_sealed(location)
    ):
        return
    work.engine.delete_shard_data(location)


def remove_data(work: ExecutionContext, state: State) -> State:
    """Delete the data of every shard that is on record as given up; safe to repeat.

    That they are gone was committed before, so that no plan counts on rows that may go at any
    moment, whatever clock it was that called their retention over.
    """
    paths = removing(state)
    if not paths:
        return state
    steps = [RetireShard(name=path, id=state.shards[path].item_id) for path in paths]
    work.journal.steps += steps
    for number, step in enumerate(steps, start=1):
        with work.executing(step):
            work.retrying(lambda path=step.name: _remove(work, path))  # type: ignore[misc]
        work.on_progress(Progress("remove", number, len(paths), step.name))

    def changes_for(current: State) -> Changes:
        changes = Changes()
        for path in paths:
            record = current.shards[path]
            changes.put("shard", path, msgspec.structs.replace(record, removing=False))
        return changes

    with work.journal.unlogged() as executed:
        return commit(
            work.log, changes_for, epoch=work.epoch, kind="remove", executed=executed
        )
