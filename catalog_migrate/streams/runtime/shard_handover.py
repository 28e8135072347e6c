"""A sink follows its table into the shard that a migration made.

The old shard is sealed and kept, so nobody has to wait: the sink reads it to the seal whenever it
can, also days later, and then goes on in the new shard right after the version that holds the
copied rows. Each appended row is sent once, in the shape it had when it was appended.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import ShardRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Swap
from catalog_migrate.errors import PositionLost
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.failures import SOURCE
from catalog_migrate.streams.catalog.operation_records import backfilling, edit_in, encode_edit
from catalog_migrate.streams.catalog.tables import Tables, transaction
from catalog_migrate.streams.catalog.upstream_tables import snapshot_app
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import carry_batch
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Edit, apply, move, needs_edit, reset
from catalog_migrate.streams.checkpoint.snapshots import Snapshots


def successor(state: State, path: str) -> tuple[str, ShardRecord] | None:
    """Return the committed shard that was copied from the one at ``path``."""
    for other, record in state.shards.items():
        if record.source == path and record.state in ("live", "retired"):
            return other, record
    return None


def pending(state: State, item_id: str) -> bool:
    """Return whether a sink's positions are of another shard than its table has now."""
    stream = state.streams.get(item_id)
    reads = state.items.get(state.items[item_id].links.get("reads", ""))
    return (
        stream is not None and reads is not None and bool(stream.reads)
        and stream.reads != reads.shard
    )


def next_shard(state: State, item_id: str) -> tuple[str, ShardRecord, bool]:
    """Where a sink goes on: path, record, and whether it begins there anew (a derived table)."""
    stream = state.streams[item_id]
    reads = state.items[state.items[item_id].links["reads"]]
    found = successor(state, stream.reads)
    if found is not None:
        return (*found, False)
    if reads.definition.is_derived and reads.shard is not None:
        return reads.shard, state.shards[reads.shard], True
    raise PositionLost(
        f"sink {dependencies.display(state, item_id)} has read the shard {stream.reads}, and "
        f"nothing says which shard of {reads.definition.item_name} follows it",
        remedy="create the sink again; it sends the table from the beginning",
        statements=(f"SHOW CREATE SINK {SOURCE}",),
    )


def is_drained(
    checkpoint: Checkpoint, path: str, seal: int | None, tables: Tables, *,
    skip_changes: bool = False,
) -> bool:
    """Return whether everything up to the version ``seal`` of the old shard was read and committed.

    A settled checkpoint is needed: an uncommitted batch is finished on the old shard first.
    Without any batch nothing was read yet, and the new shard has it all.
    """
    batch = checkpoint.state()
    if batch.kind == "none":
        return True
    if not batch.is_settled or batch.batch is None or seal is None:
        return False
    position: DeltaPosition | None = DeltaCodec().read(checkpoint.entry(batch.batch).sources[0])
    consumed = position.consumed if position is not None else None
    if consumed is None:
        return False
    # a commit without data (the seal itself) makes no batch, so versions alone would never meet
    return consumed >= seal or not tables.has_rows(
        path, consumed, seal, skip_changes=skip_changes
    )


def ready(
    state: State, item_id: str, checkpoint: Checkpoint, tables: Tables
) -> bool:
    """Return whether a sink whose table has another shard may be moved one shard on.

    One with a committed edit that its checkpoint lacks is not: its lines are not of this shard.
    Raises :class:`PositionLost` once everything was read and nothing leads on.
    """
    stream = state.streams[item_id]
    if stream.edit and needs_edit(checkpoint, stream.generation):
        return False
    old, skip = state.shards.get(stream.reads), dependencies.skips_changes(state.items[item_id])
    seal = old.sealed_version if old is not None else None
    path = dependencies.location(state, stream.reads)
    # what is in a sealed shard is sent also when nothing leads on from it
    if seal is not None and not is_drained(
        checkpoint, path, seal, tables, skip_changes=skip
    ):
        return False
    _, record, anew = next_shard(state, item_id)
    if anew:
        return checkpoint.state().is_settled
    return seal is not None or is_drained(
        checkpoint, path, record.source_version, tables, skip_changes=skip
    )


def step(
    state: State, item_id: str, checkpoint: Checkpoint, tables: Tables, *,
    commit: Callable[[Commit], State],
) -> State | None:
    """Move a stopped sink one shard on when it is drained; the state after, None if it was not.

    ``commit`` commits under the lease of its cluster.

    One commit holds the new shard, the generation and the exact lines; then the files are edited,
    which any later start repeats if it was cut off.
    """
    if not ready(state, item_id, checkpoint, tables):
        return None
    stream = state.streams[item_id]
    path, record, anew = next_shard(state, item_id)
    edit: Edit | None = None
    if checkpoint.latest_offsets is not None:
        if anew or record.version is None:
            edit = reset(checkpoint, 0)
        else:
            target = tables.target(dependencies.location(state, path), record.version)
            edit = move(checkpoint, 0, DeltaCodec().write(target))
        Snapshots(checkpoint).take(f"before it follows into {path}")
    moved = msgspec.structs.replace(
        stream, reads=path, generation=stream.generation + (edit is not None),
        edit=encode_edit(state, edit),
    )
    after = commit(Commit("follow", (Swap("stream", item_id, stream, moved),)))
    committed = after.streams.get(item_id)
    if committed is not None:
        apply_committed(checkpoint, item_id, committed)
    return after


def apply_committed(checkpoint: Checkpoint, item_id: str, stream: StreamRecord) -> bool:
    """Repeat the committed edit of a checkpoint unless it has it; whether it was applied now."""
    edit = edit_in(stream)
    if edit is None or not needs_edit(checkpoint, stream.generation):
        return False
    return apply(checkpoint, edit, item=item_id, generation=stream.generation)


def still_read(state: State) -> frozenset[str]:
    """Retired shards that a sink has still to read, or to pass through: they must be kept."""
    kept: set[str] = set()
    for item_id, stream in state.streams.items():
        if not stream.reads or item_id not in state.items or not pending(state, item_id):
            continue
        path: str | None = stream.reads
        while path is not None and path not in kept:
            kept.add(path)
            following = successor(state, path)
            path = following[0] if following is not None else None
    return frozenset(kept)


def carry_transactions(state: State, table: str, old: str, new: str) -> int:
    """Let the copy of a table that sources write know what it has; of how many writers.

    Writers are queries, and operations that are reading what they skipped.

    ``old`` (sealed) and ``new`` are absolute directories, ``table`` is the item.
    """
    carried = 0
    for item_id, stream in state.streams.items():
        item = state.items.get(item_id)
        if item is None or table not in dependencies.outputs(item):
            continue
        query_id = Checkpoint(dependencies.location(state, stream.checkpoint)).query_id
        writers = [query_id] if query_id is not None else []
        writers.append(snapshot_app(item_id))
        writers += [
            transaction(key) for key, items in backfilling(state).items() if item_id in items
        ]
        carried += sum(carry_batch(old, new, writer) is not None for writer in writers)
    return carried
