"""Turns a prepared migration into the one compare-and-set that puts a release in force.

What users declared on objects that get new ids is linked to those in the same commit. The bundled
streams of a release follow in one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec

from catalog_migrate.catalog.operation_kinds import MIGRATE, ROLLBACK
from catalog_migrate.catalog.records import (
    RECONCILE,
    AllocatorRecord,
    ConfigRecord,
    ItemRecord,
    MappingRecord,
    Owner,
    ReleaseRecord,
    ShardRecord,
    TombstoneRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.state import SCHEMAS, State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.catalog.updates import Update
from catalog_migrate.errors import CommitConflict, EngineFailure
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.table_properties import left_out
from catalog_migrate.planner.earlier_state import rows_of
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.planner.record_format import find_record_format
from catalog_migrate.program.steps import IN_PLACE, NAMES, Executed, Step, decoded, stored
from catalog_migrate.reconciler.execution_context import BundledChanges, ExecutionContext, NewShard
from catalog_migrate.reconciler.prepare import Prepared
from catalog_migrate.reconciler.reshape import sessions_in_the_way


def put_in_force(
    work: ExecutionContext, base: State, migration: Migration, prepared: Prepared, *, owner: Owner,
    beside: Callable[[Changes, State], None] | None = None, reason: str | None = None,
) -> State:
    """Commit the new state; raises CommitConflict when the catalog is not at ``base`` any more.

    The commit is refused (LeaseLost) when another process has raised the epoch since. ``beside``
    puts what else goes on record with it, ``reason`` is what a person gave for it.
    """
    now = int(work.clock.wall())

    def changes_for(state: State) -> Changes:
        if state.serial != base.serial:
            raise CommitConflict(
                f"the catalog moved from serial {base.serial} to {state.serial}",
                remedy="plan again",
            )
        if prepared.shapes:
            reason = sessions_in_the_way(work, state)
            if reason is not None:  # it started since the plan was prepared
                raise CommitConflict(reason, remedy="plan again: the tables are copied then")
        changes = _changes(work, state, migration, prepared, owner=owner, now=now)
        if beside is not None:
            beside(changes, state)
        return changes

    with work.journal.unlogged() as executed:
        return _committed(work, changes_for, migration, _verb(MIGRATE, owner), reason, executed)


def put_release(
    work: ExecutionContext, migration: Migration, *, owner: Owner, reason: str | None = None
) -> State:
    """Record that a release without any difference is in force now (no new serial).

    A rollback has a serial of its own, so that one can go back behind it: which release is in
    force decides which other ones are let in.

    Decisions that it carries for columns that are right already count as applied from now on.
    """

    def changes_for(state: State) -> Changes:
        changes = Changes()
        serial = state.serial
        if migration.plan.target.serial is not msgspec.UNSET:
            changes.raise_serial()
            serial += 1
        for target in migration.targets:
            mapping = state.mappings[identity_text(target.identity)]
            changes.put(
                "mapping", identity_text(target.identity),
                msgspec.structs.replace(mapping, applied=target.applied),
            )
        name = migration.plan.target.release
        _put_release(changes, state, owner, name, migration.manifest_hash, serial)
        return changes

    return _committed(work, changes_for, migration, _verb("release", owner), reason)


def _committed(
    work: ExecutionContext, changes_for: Callable[[State], Changes], migration: Migration,
    verb: str, reason: str | None, executed: Sequence[Executed] = (),
) -> State:
    serial = migration.plan.target.serial
    if serial is msgspec.UNSET:
        return commit(
            work.log, changes_for, epoch=work.epoch, kind=verb, reason=reason, executed=executed
        )
    back = f"rollback to serial {serial}"
    return commit(
        work.log, changes_for, epoch=work.epoch, kind=ROLLBACK, rollback_to=serial,
        reason=f"{back}: {reason}" if reason else back, executed=executed,
    )


def stored_program(state: State) -> tuple[Step, ...]:
    """The program that the pending commit stored; () where there is none that this tool knows."""
    record = state.operations.get(RECONCILE)
    return () if record is None else decoded(record.program)


def _verb(verb: str, owner: Owner) -> str:
    """The word for the history; our own built-ins are told from the software's release."""
    return verb if owner == "release" else f"{verb} {owner}"


def _changes(
    work: ExecutionContext, state: State, migration: Migration, prepared: Prepared, *,
    owner: Owner, now: int,
) -> Changes:
    changes = Changes()
    changes.raise_serial()
    serial = state.serial + 1
    item_of = {target.identity: target.item_id for target in migration.targets}
    for mapping in state.mappings.values():
        if mapping.owner != owner:
            item_of.setdefault(mapping.identity, mapping.item_id)
    _put_tombstones(changes, state, migration, serial)
    needed = find_record_format(
        migration.targets,
        lambda target: None if target.old is None else state.items[target.item_id].definition,
    )
    if needed > int(state.setting("format_version")):
        changes.put("config", "format_version", ConfigRecord(value=str(needed)))
    for target in migration.targets:
        shard = _put_target(changes, state, target, prepared, item_of, owner)
        old = state.items.get(target.item_id) if target.old is not None else None
        if old is not None and old.shard is not None and old.shard != shard:
            _retire(changes, state, old, prepared.sealed.get(old.shard), now, serial)
    for identity in migration.removed:
        _remove(changes, state, identity, prepared, now, serial)
    work.streams.put_migrated(changes, state, migration)
    relink(changes, state, migration)
    kept = {target.identity for target in migration.targets}
    for left in (*(target.old for target in migration.targets), *migration.removed):
        if left is not None and left not in kept:
            changes.delete("mapping", identity_text(left))
    _remember_schemas(changes, state, migration, owner)
    changes.put("allocator", "i", AllocatorRecord(next=migration.next_item))
    changes.put("allocator", "s", AllocatorRecord(next=migration.next_global))
    changes.delete("intent", str(work.epoch))
    if prepared.unsealing:
        _keep_seals(changes, state, prepared, work.epoch)
    later = [step for step in prepared.steps if step.phase in (IN_PLACE, NAMES)]
    changes.put("operation", RECONCILE, to_reconcile(f"bring in serial {serial}", stored(later)))
    _put_release(
        changes, state, owner, migration.plan.target.release, migration.manifest_hash, serial
    )
    return changes


def _keep_seals(changes: Changes, state: State, prepared: Prepared, epoch: int) -> None:
    """Put on record which tables stay in force sealed, until their changes in place are made."""
    intent = state.intents[str(epoch)]
    kept = tuple(seal for seal in intent.seals if seal.path in prepared.unsealing)
    changes.put("intent", f"{epoch}/sealed", msgspec.structs.replace(
        intent, paths=(), seals=kept, committed=True
    ))


def _remember_schemas(
    changes: Changes, state: State, migration: Migration, owner: Owner
) -> None:
    """Keep the schemas that this release leaves: a name that comes late there has to be seen."""
    left = {row.schema.lower(): row.schema for row in state.mappings.values() if row.owner == owner}
    for target in migration.targets:
        left.pop(target.definition.schema.lower(), None)
    known = {schema.lower(): schema for schema in state.former_schemas}
    if left.keys() - known.keys():
        kept = sorted({**left, **known}.values())
        value = msgspec.json.encode(kept).decode()
        changes.put("config", SCHEMAS, ConfigRecord(value=value))


def _put_tombstones(
    changes: Changes, state: State, migration: Migration, serial: int
) -> None:
    """One tombstone for each name that goes, in the order of the plan; users by name.

    Users are those that go too, and those that are replaced: they let go of it before.
    """
    users: dict[str, list[str]] = {}
    mappings = [state.mappings.get(identity_text(identity)) for identity in migration.drops]
    text_of = {m.item_id: identity_text(m.identity) for m in mappings if m is not None}
    replaced = {
        target.item_id: identity_text(target.identity)
        for target in migration.targets if target.action == "redefine"
    }
    for item_id, text in {**replaced, **text_of}.items():
        for use in state.items[item_id].uses:
            if use in text_of:
                users.setdefault(text_of[use], []).append(text)
    for position, mapping in enumerate(mappings):
        if mapping is None:
            continue
        item = state.items[mapping.item_id]
        changes.put(
            "tombstone", f"{serial:010d}/{position:06d}",
            TombstoneRecord(
                item_id=mapping.item_id, global_id=mapping.global_id, schema=mapping.schema,
                kind=mapping.kind, name=mapping.name, serial=serial, position=position,
                location=item.shard,
                definition_hash=None if mapping.kind == "table" else mapping.definition_hash,
                users=tuple(sorted(users.get(identity_text(mapping.identity), ()))),
            ),
        )


def _put_target(
    changes: Changes,
    state: State,
    target: Target,
    prepared: Prepared,
    item_of: Mapping[Identity, str],
    owner: Owner,
) -> str | None:
    """Put what a target is now; returns the shard that it has from now on."""
    definition = target.definition
    old_item = state.items.get(target.item_id) if target.old is not None else None
    old_shard = old_item.shard if old_item is not None else None
    new = prepared.shards.get(target.identity)
    shard = new.path if new is not None else (old_shard if definition.kind == "table" else None)
    changes.put(
        "mapping", identity_text(target.identity),
        MappingRecord.of(
            definition, target.hashes, owner=owner, item_id=target.item_id,
            global_id=target.global_id, applied=target.applied,
        ),
    )
    changes.put(
        "item", target.item_id,
        ItemRecord(
            owner=owner, global_id=target.global_id, definition=definition,
            uses=tuple(sorted({item_of[use] for use in target.uses if use in item_of})),
            shard=shard, column_ids=target.column_ids,
        ),
    )
    if new is not None:
        size = new.size or TableSize(0, 0)
        changes.put(
            "shard", new.path,
            ShardRecord(
                item_id=target.item_id, global_id=target.global_id, state="live",
                source=new.source, source_version=new.source_version, version=new.version,
                unfilled=new.unfilled, rows_of=_rows_of(state, new), copied_bytes=size.bytes,
                copy_seconds=size.seconds or 0.0,
            ),
        )
    elif shard is not None:
        record = state.shards[shard]
        evolve = record.evolve or (
            target.action is not None and target.contents == "evolve"
        ) or (target.action == "update" and definition.kind == "table")
        changes.put(
            "shard", shard,
            _shard(
                record, global_id=target.global_id, evolve=evolve,
                unset=_unset(record, state.items.get(target.item_id), definition) if evolve else (),
                shape=prepared.shapes.get(target.identity, record.shape),
            ),
        )
    return shard


def _unset(
    record: ShardRecord, item: ItemRecord | None, definition: ObjectDefinition
) -> tuple[str, ...]:
    """The properties that the release leaves out of what was declared, done or not."""
    before = (*record.unset, *(item.definition.properties if item is not None else ()))
    return left_out(before, definition.properties) if before else ()


def _rows_of(state: State, new: NewShard) -> tuple[str, ...]:
    """Whose rows a rollback put together; empty for a copy, which has those of its source."""
    if new.target.definition.is_derived:
        return ()
    found: dict[str, None] = {}
    for segment in new.target.segments:
        if segment.projection is not None:
            whole = rows_of(segment.path, state.shards) if segment.after is None else ()
            found |= dict.fromkeys((*whole, segment.path))
    return tuple(found)


def _remove(
    changes: Changes, state: State, identity: Identity, prepared: Prepared, now: int, serial: int
) -> None:
    mapping = state.mappings.get(identity_text(identity))
    if mapping is None:
        return
    item = state.items[mapping.item_id]
    changes.delete("item", mapping.item_id)
    if item.shard is not None:
        _retire(changes, state, item, prepared.sealed.get(item.shard), now, serial)


def _retire(
    changes: Changes, state: State, item: ItemRecord, sealed: int | None, now: int, serial: int
) -> None:
    path = item.shard or ""
    changes.put("shard", path, state.shards[path].retired(now, serial, sealed, item.name_of))


def _shard(record: ShardRecord, **changes: object) -> ShardRecord:
    return msgspec.structs.replace(record, **changes)


def _put_release(
    changes: Changes, state: State, owner: Owner, name: str, manifest_hash: str, serial: int
) -> None:
    number = 0
    current = None
    for key, record in sorted(state.release_rows(owner).items()):
        number = max(number, int(key.partition("/")[2]))
        if record.in_force:
            current = key
            if record.name == name:
                changes.put(
                    "release", key,
                    ReleaseRecord(owner=owner, name=name, manifest_hash=manifest_hash,
                                  serial=serial, in_force=True),
                )
                return
    if current is not None:
        changes.put(
            "release", current,
            msgspec.structs.replace(state.release_rows(owner)[current], in_force=False),
        )
    changes.put(
        "release", f"{owner}/{number + 1:06d}",
        ReleaseRecord(
            owner=owner, name=name, manifest_hash=manifest_hash, serial=serial, in_force=True
        ),
    )


def relink(changes: Changes, state: State, migration: Migration) -> None:
    """Point what is quarantined at the tables that come back from retired shards.

    A table that comes back has a new item id, because ids never do. Its users keep theirs, use it
    again and are let back into the world, unless something else that they use is gone.
    """
    back = {  # whose rows are put together: the table of then, and those that had its name since
        state.shards[segment.path].item_id: target.item_id
        for target in migration.targets if target.old is None
        for segment in target.segments if segment.path in state.shards
    }
    if not back:
        return
    gone = {
        state.mappings[identity_text(identity)].item_id
        for identity in migration.removed if identity_text(identity) in state.mappings
    }
    present = {key for key, item in state.items.items() if item.quarantined is None} - gone
    present |= {target.item_id for target in migration.targets}
    waiting: dict[str, ItemRecord] = {
        key: msgspec.structs.replace(
            item,
            uses=tuple(sorted({back.get(use, use) for use in item.uses})),
            links={role: back.get(use, use) for role, use in item.links.items()},
            quarantined=None,
        )
        for key, item in state.items.items() if item.quarantined is not None
    }
    touched: set[str] = {
        key for key in waiting if not set(back).isdisjoint(state.items[key].uses)
    }
    names = {state.items[key].definition.identity: key for key in waiting}
    for name in chain(*state.graph.part(names).waves()):  # users after what they use
        key = names[name]
        item = waiting[key]
        if key in present or not present.issuperset(item.uses):
            continue
        if key not in touched and touched.isdisjoint(item.uses):
            continue  # quarantined for a reason that has nothing to do with these tables
        changes.put("item", key, item)
        present.add(key)
        touched.add(key)


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
    return planned if planned.updates else None


def bring_in_bundled(
    work: ExecutionContext, state: State, statements: Sequence[str] | None
) -> State:
    """Commit what is pending and make the shards of what came; notes what has none."""
    if pending_bundled(work, state, statements) is None:
        return state
    made: tuple[str, ...] = ()

    def bundled(current: State) -> Sequence[Update]:
        nonlocal made
        planned = pending_bundled(work, current, statements)
        made = () if planned is None else planned.created
        return () if planned is None else planned.updates

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
