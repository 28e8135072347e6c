"""Fencing out a runtime that is not proven dead: it may wake up in the middle of a batch.

Its queries go on under new ids in copies of their checkpoints, and the old ids are barred in every
destination. The woken runtime then writes into directories that nobody reads, and its batches are
skipped (Delta, Postgres) or droppable by header (Kafka).

A destination that does not answer keeps nobody else waiting: its query is held with the reason, and
fenced as soon as that works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import HoldRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, Delete, Update
from catalog_migrate.connectors.base import sink_of
from catalog_migrate.connectors.query import SHARD
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectorMissing,
    EngineFailure,
    LeaseLost,
    NotFencedOut,
)
from catalog_migrate.retry import retry
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import FENCE
from catalog_migrate.streams.catalog.query_spec import CHECKPOINTS
from catalog_migrate.streams.catalog.updates import Hold
from catalog_migrate.streams.checkpoint.delta_tables import Fence, first_query_id, new_query_id
from catalog_migrate.streams.checkpoint.directory import Checkpoint, batch_number
from catalog_migrate.streams.checkpoint.edit import Finish, settlement, write_commit
from catalog_migrate.streams.checkpoint.snapshots import Snapshots

if TYPE_CHECKING:
    from catalog_migrate.streams.runtime.supervisor import Supervisor

_AT_ONCE = 8
"""How many queries are fenced side by side."""

_ATTEMPTS = 5
"""How often a checkpoint is copied whose owner takes files away meanwhile."""


def fence_out(supervisor: Supervisor, state: State) -> State:
    """Move every started query of the cluster to a fenced copy of its checkpoint; repeatable.

    A query that cannot be fenced now is held (``FENCE``) with its reason, for
    :func:`retry_fencing`.
    """
    return _fence(supervisor, state, [each.item_id for each in dependencies.queries(
        state, supervisor.cluster
    )])


def retry_fencing(supervisor: Supervisor, state: State) -> State:
    """Fence those out that could not be before; their hold goes when it works."""
    held = {hold.item_id for hold in state.holds.values() if hold.holder == FENCE}
    mine = [each.item_id for each in dependencies.queries(state, supervisor.cluster)]
    return _fence(supervisor, state, [item_id for item_id in mine if item_id in held])


def _fence(supervisor: Supervisor, state: State, item_ids: Sequence[str]) -> State:
    moved: dict[str, str] = {}
    failed: dict[str, CatalogMigrateError] = {}

    def one(item_id: str) -> None:
        stream = state.streams.get(item_id)
        if stream is None:
            return
        try:
            directory = _fence_one(supervisor, state, item_id, stream)
        except LeaseLost:
            raise
        except ConnectorMissing as error:
            failed[item_id] = error  # whether there is something to fence is not known
        except CatalogMigrateError as error:
            failed[item_id] = NotFencedOut(
                f"its earlier runtime is not proven dead and cannot be fenced out: {error.message}",
                remedy=error.remedy,
            )
        else:
            moved[item_id] = directory

    # side by side: a server that swallows questions takes seconds to be given up
    with supervisor.ports.threads.pool(_AT_ONCE, "fence") as pool:
        list(pool.map(one, item_ids))

    if not moved and not failed:
        return state
    names = ", ".join(dependencies.display(state, item_id) for item_id in (*moved, *failed))
    for item_id, error in failed.items():
        supervisor.say(f"{dependencies.display(state, item_id)} is held: {error.message}")
    updates: list[Update] = []
    for item_id, directory in moved.items():
        updates.append(Delete("hold", f"{item_id}/{FENCE}/1"))
        updates.append(Amend("stream", item_id, {"checkpoint": directory}))
    for item_id, error in failed.items():
        reason = f"{error.code} {error.message}"
        remedy = (error.remedy or "") if isinstance(error, ConnectorMissing) else ""
        updates.append(Hold(HoldRecord(item_id, FENCE, reason, remedy=remedy)))
    return supervisor.commit(Commit("fence out", tuple(updates), reason=names))


def _fence_one(
    supervisor: Supervisor, state: State, item_id: str, stream: StreamRecord
) -> str:
    """The directory of a query's fenced copy.

    One that has not started yet gets the id that it would start with, so that it can be fenced. Its
    directory must be left too: a runtime that wakes up would take our query in it for an earlier
    one, and fence that.
    """
    directory = f"{CHECKPOINTS}/{item_id}/{supervisor.lease.epoch}"
    old = supervisor.ports.checkpoint(dependencies.location(state, stream.checkpoint))
    if directory == stream.checkpoint:
        return directory
    if old.query_id is None:
        first_query_id(old, item_id)
    checkpoint = supervisor.ports.checkpoint(dependencies.location(state, directory))
    _copy(old, checkpoint)
    if checkpoint.restoring is not None:
        _end_restore(supervisor, state, item_id, old, checkpoint)
    batches = new_query_id(checkpoint, _fences(supervisor, state, item_id))
    catch_up(checkpoint, old, batches)
    return directory


def _copy(old: Checkpoint, new: Checkpoint) -> None:
    """Copy a checkpoint whole, its state too; what another attempt left is replaced.

    Whoever owns it may be at work in it still, and take files away: then it is copied again.
    """
    try:
        retry(
            lambda: new.files.copy_tree(old.store, new.store), OSError, repeat(0.0, _ATTEMPTS - 1),
            # a store that refuses has repeated its requests, and says why
            when=lambda error: not isinstance(error, CatalogMigrateError),
        )
    except CatalogMigrateError:
        raise
    except OSError as error:
        raise EngineFailure(
            f"the checkpoint {old.address} cannot be copied: {error}",
            remedy="look at disk space and permissions, then start the runtime again",
        ) from error


def _end_restore(
    supervisor: Supervisor, state: State, item_id: str, old: Checkpoint, checkpoint: Checkpoint
) -> None:
    """End a restore that the earlier runtime died in, in the copy and before its id changes.

    Snapshots stay with the old checkpoint: they hold the old id, which is barred. A successor that
    died may have barred it before, so of tables it is read what the id had until then.
    """
    number = checkpoint.restoring
    assert number is not None
    query_id = checkpoint.query_id or ""
    batches: dict[str, int | None] = {}
    if state.items[item_id].definition.kind == "source":
        tables, places = supervisor.ports.tables, supervisor.spec(state, item_id).destinations
        batches = {name: tables.batch(place, query_id) for name, place in places.items()}
    elif _ledger_of(state, item_id):
        batches |= supervisor.engine.last_batch(supervisor.spec(state, item_id), query_id)
    snapshots = Snapshots(checkpoint, taken_of=old)
    snapshots.restore(number, sinks_latest=batches)


def catch_up(
    checkpoint: Checkpoint, old: Checkpoint, batches: Mapping[str, int | None]
) -> None:
    """Complete a copy by what its owner did between the copy and the fence.

    ``batches`` are the newest that the fenced destinations have. No later one can arrive, so up to
    there the owner's entries are right, and its commits below it. A commit that it wrote afterwards
    is not: its rows were turned away. The copy has such commits when an earlier successor fenced
    and died: they are dropped. Where nothing is fenced (Kafka), its commits are all right.
    Entries beyond that, of a copy that was made while the owner went on, are dropped: nothing of
    them has arrived, their ranges are read again.
    A batch that every destination has is committed here, not run again: its owner may commit it
    at any time, still, and then move the slot that it was read from.
    """
    if SHARD in batches:
        _drop_commits(checkpoint, batch_number(batches[SHARD]))
    if batches:
        arrived = max(batch_number(batch) for batch in batches.values())
    else:
        arrived = batch_number(old.latest_commits) + 1
    _fill(checkpoint, old, "commits", batch_number(checkpoint.latest_commits), arrived - 1)
    committed = batch_number(checkpoint.latest_commits)
    _fill(
        checkpoint, old, "offsets", batch_number(checkpoint.latest_offsets), max(arrived, committed)
    )
    while (latest := batch_number(checkpoint.latest_offsets)) > committed + 1:
        checkpoint.files.remove(checkpoint.store, checkpoint.offsets_file(latest))
    decision = settlement(checkpoint, sinks=batches)
    if isinstance(decision, Finish) and not checkpoint.is_stateful:
        write_commit(checkpoint, decision.batch)


def _drop_commits(checkpoint: Checkpoint, arrived: int) -> None:
    """Drop the commits behind the newest batch of a source's own table: it is written last and
    fenced first, so what it lacks was turned away. Not where the batch before is purged: nothing
    could go on from there."""
    before = checkpoint.offsets_file(0) if arrived < 0 else checkpoint.commits_file(arrived)
    while (latest := batch_number(checkpoint.latest_commits)) > arrived:
        if not checkpoint.store.exists(before):
            return
        checkpoint.files.remove(checkpoint.store, checkpoint.commits_file(latest))


def _fill(checkpoint: Checkpoint, old: Checkpoint, log: str, after: int, last: int) -> None:
    for number in range(after + 1, last + 1):
        name = f"{log}/{number}"
        with suppress(FileNotFoundError):
            checkpoint.files.replace(checkpoint.store, name, old.store.read(name))


def _fences(supervisor: Supervisor, state: State, item_id: str) -> Mapping[str, Fence]:
    item, tables = state.items[item_id], supervisor.ports.tables
    fences: dict[str, Fence] = {}
    if item.definition.kind == "source":
        fences[SHARD] = tables.fence(dependencies.location(state, item.shard or ""))
        for table_id in dependencies.outputs(item):
            table = state.items[table_id]
            place = dependencies.location(state, table.shard or "")
            fences[str(table.definition.item_name)] = tables.fence(place)
    elif _ledger_of(state, item_id):
        spec = supervisor.spec(state, item_id)
        fences[_ledger_of(state, item_id)] = partial(sink_of(spec.external).fence, spec)
    return fences


def _ledger_of(state: State, item_id: str) -> str:
    """What a sink's ledger is called, "" without one: then no server is asked, and no secret
    needed."""
    return sink_of(dependencies.external_of(state.items[item_id])).ledger
