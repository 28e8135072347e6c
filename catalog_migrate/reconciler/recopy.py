"""The copy of a table whose change in place was refused after its commit.

The commit stands: the table has its new columns by all that is on record, and only its shard has
not. So a shard that has them is made, as prepare would have made it, and put in the other's place.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import RECONCILE, ItemRecord, ShardRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.model.paths import shard_path
from catalog_migrate.planner.plan import Target
from catalog_migrate.reconciler import cleanup
from catalog_migrate.reconciler.execution_context import ExecutionContext, NewShard, Progress
from catalog_migrate.reconciler.prepare import Attempt, copy_into
from catalog_migrate.reconciler.reshape import projection_from, standing_names


def recopy(work: ExecutionContext, state: State, path: str) -> State:
    """Copy the table at ``path`` into a shard with the committed columns, and put that in force.

    Raises PrepareFailed or EngineFailure when that fails too; then nothing has changed.
    """
    record = state.shards[path]
    item = state.items[record.item_id]
    name = str(item.definition.item_name)
    work.on_progress(Progress("copy, not in place", 0, 1, name))
    layout = work.retrying(lambda: work.engine.shard_layout(work.absolute(path)))
    standing = standing_names(layout, item, record.shape)
    shard = NewShard(
        _target(state, item, record, projection_from(layout, item, record.shape)),
        shard_path(item.definition.schema, item.definition.name, work.token()),
        path,
    )
    try:
        prepared = copy_into(work, state, Attempt("", "copy after a refusal"), [shard])
    except Exception:
        cleanup.abandon(work)
        raise
    made = prepared.shards[shard.target.identity]
    now = int(work.clock.wall())

    def changes_for(current: State) -> Changes:
        changes = Changes()
        changes.raise_serial()
        changes.put(
            "item", record.item_id,
            msgspec.structs.replace(current.items[record.item_id], shard=made.path),
        )
        changes.put(
            "shard", made.path,
            ShardRecord(
                item_id=record.item_id, global_id=record.global_id, state="live", source=path,
                source_version=made.source_version, version=made.version,
                unfilled=current.shards[path].unfilled,
            ),
        )
        changes.put(
            "shard", path,
            current.shards[path].retired(
                now, current.serial + 1, prepared.sealed[path],
                {number: standing[name] for number, name in item.name_of.items()
                 if name in standing},
            ),
        )
        changes.delete("intent", str(work.epoch))
        pending = current.operations.get(RECONCILE)
        if pending is not None:  # its name moves too: the stored program does not have that
            changes.put("operation", RECONCILE, msgspec.structs.replace(pending, program=()))
        return changes

    committed = commit(work.log, changes_for, epoch=work.epoch, kind="copy after a refusal")
    work.on_progress(Progress("copy, not in place", 1, 1, name))
    return committed


def _target(
    state: State, item: ItemRecord, record: ShardRecord, projection: tuple[tuple[str, str], ...]
) -> Target:
    mapping = next(m for m in state.mappings.values() if m.item_id == record.item_id)
    return Target(
        definition=item.definition, identity=mapping.identity, item_id=mapping.item_id,
        global_id=mapping.global_id, fingerprint=mapping.fingerprint,
        definition_hash=mapping.definition_hash, storage_hash=mapping.storage_hash,
        text_hash=mapping.text_hash, comment_hash=mapping.comment_hash, applied=mapping.applied,
        uses=(), action="migrate", old=mapping.identity, contents="copy", projection=projection,
    )
