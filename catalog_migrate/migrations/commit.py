"""Turns a prepared migration into the one compare-and-set that puts a release in force.

What users declared on objects that get new ids is linked to those in the same commit. The bundled
streams of a release follow in one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from catalog_migrate.catalog.commits import Commit, commit, commit_onto
from catalog_migrate.catalog.records import (
    RECONCILE,
    AllocatorRecord,
    ConfigRecord,
    ItemRecord,
    Owner,
    ReleaseRecord,
    ShardRecord,
    TombstoneRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.requirements import SerialIs
from catalog_migrate.catalog.state import SCHEMAS, State
from catalog_migrate.catalog.updates import (
    Delete,
    Edit,
    Put,
    RaiseSerial,
    Update,
    edits_of,
    put_object,
)
from catalog_migrate.errors import CommitConflict, EngineFailure
from catalog_migrate.migrations.build_tables import Prepared
from catalog_migrate.migrations.execution_context import (
    BundledChanges,
    ExecutionContext,
    NewShard,
    StreamTables,
)
from catalog_migrate.migrations.reshape import sessions_in_the_way
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.table_properties import list_omitted
from catalog_migrate.operations.kinds import MIGRATE, ROLLBACK
from catalog_migrate.operations.steps import IN_PLACE, NAMES, Step, decode_program, store_program
from catalog_migrate.planner.earlier_state import rows_of
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.planner.record_format import find_record_format


class NoOtherSession(msgspec.Struct, frozen=True):
    """No process but this one, as ``holder``, may live with columns that are changed in place."""

    holder: str

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when one has started since the plan was prepared."""
        reason = sessions_in_the_way(state, self.holder)
        if reason is not None:
            raise CommitConflict(reason, remedy="plan again: the tables are copied then")


def put_in_force(
    work: ExecutionContext, base: State, migration: Migration, prepared: Prepared, *, owner: Owner,
    beside: Sequence[Update] = (), reason: str | None = None,
) -> State:
    """Commit the new state; raises CommitConflict when the catalog is not at ``base`` any more.

    The commit is refused (LeaseLost) when another process has raised the epoch since. ``beside``
    is what else goes on record with it, ``reason`` is what a person gave for it.
    """
    updates = (
        PutInForce(migration, prepared, owner, work.epoch, int(work.clock.wall())),
        work.streams.follow(migration), Relink(migration), *beside,
    )
    alone = (NoOtherSession(work.holder),) if prepared.shapes else ()
    return work.commit(_of_migration(migration, Commit(
        _verb(MIGRATE, owner), updates, (SerialIs(base.serial), *alone), reason=reason
    )))


def put_release(
    work: ExecutionContext, migration: Migration, *, owner: Owner, reason: str | None = None
) -> State:
    """Record that a release without any difference is in force now (no new serial).

    A rollback has a serial of its own, so that one can go back behind it: which release is in
    force decides which other ones are let in.

    Decisions that it carries for columns that are right already count as applied from now on.
    """
    updates = (PutRelease(migration, owner),)
    return commit(work.log, _of_migration(
        migration, Commit(_verb("release", owner), updates, (work.held,), reason=reason)
    ))


def _of_migration(migration: Migration, wanted: Commit) -> Commit:
    """The commit as that of a rollback, where the migration is one."""
    serial = migration.plan.target.serial
    if serial is msgspec.UNSET:
        return wanted
    back = f"rollback to serial {serial}"
    return msgspec.structs.replace(
        wanted, kind=ROLLBACK, rollback_to=serial,
        reason=f"{back}: {wanted.reason}" if wanted.reason else back,
    )


def read_stored_program(state: State) -> tuple[Step, ...]:
    """The program that the pending commit stored; () where there is none that this tool knows."""
    record = state.operations.get(RECONCILE)
    return () if record is None else decode_program(record.program)


def _verb(verb: str, owner: Owner) -> str:
    """The word for the history; our own built-ins are told from the software's release."""
    return verb if owner == "release" else f"{verb} {owner}"


class PutInForce(msgspec.Struct, frozen=True):
    """Put what a prepared migration has made in force, as an owner's release.

    ``epoch`` is that of the attempt, ``now`` in seconds since 1970.
    """

    migration: Migration
    prepared: Prepared
    owner: Owner
    epoch: int
    now: int

    def apply(self, state: State) -> list[Edit]:
        """Return all that changes of the release's own objects, and what is to be reconciled."""
        migration, serial = self.migration, state.serial + 1
        later = [step for step in self.prepared.steps if step.phase in (IN_PLACE, NAMES)]
        return [
            RaiseSerial(),
            *_leave_tombstones(state, migration),
            *self._raise_format(state),
            *self._put_targets(state),
            *self._remove(state),
            *self._free_names(),
            *_remember_schemas(state, migration, self.owner),
            Put("allocator", "i", AllocatorRecord(next=migration.next_item)),
            Put("allocator", "s", AllocatorRecord(next=migration.next_global)),
            Delete("intent", str(self.epoch)),
            *self._keep_seals(state),
            Put("operation", RECONCILE, to_reconcile(
                f"bring in serial {serial}", store_program(later)
            )),
            *_record_release(state, migration, self.owner, serial),
        ]

    def _raise_format(self, state: State) -> Iterator[Edit]:
        needed = find_record_format(
            self.migration.targets,
            lambda target: None if target.old is None else state.items[target.item_id].definition,
        )
        if needed > int(state.setting("format_version")):
            yield Put("config", "format_version", ConfigRecord(value=str(needed)))

    def _free_names(self) -> Iterator[Edit]:
        """Mappings of names that no target has any more."""
        targets, removed = self.migration.targets, self.migration.removed
        kept = {target.identity for target in targets}
        for left in (*(target.old for target in targets), *removed):
            if left is not None and left not in kept:
                yield Delete("mapping", identity_text(left))

    def _put_targets(self, state: State) -> Iterator[Edit]:
        item_of = {
            identity: item_id for identity, item_id in state.item_ids.items()
            if state.items[item_id].owner != self.owner
        }
        item_of |= {target.identity: target.item_id for target in self.migration.targets}
        for target in self.migration.targets:
            yield from self._put_target(state, target, item_of)

    def _put_target(
        self, state: State, target: Target, item_of: Mapping[Identity, str]
    ) -> Iterator[Edit]:
        """What a target is now, and what becomes of the shard that it had."""
        definition = target.definition
        old = state.items.get(target.item_id) if target.old is not None else None
        old_shard = old.shard if old is not None else None
        new = self.prepared.shards.get(target.identity)
        shard = new.path if new is not None else (old_shard if definition.kind == "table" else None)
        yield from put_object(target.item_id, ItemRecord(
            owner=self.owner, global_id=target.global_id, definition=definition,
            uses=tuple(sorted({item_of[use] for use in target.uses if use in item_of})),
            shard=shard, column_ids=target.column_ids,
        ), target.hashes, applied=target.applied)
        if shard is not None:
            yield Put("shard", shard, self._shard(state, target, shard))
        if old is not None and shard != old_shard:
            yield from self._retire(state, old)

    def _shard(self, state: State, target: Target, path: str) -> ShardRecord:
        """What the shard of a target is now: a new one, or that which it had."""
        new = self.prepared.shards.get(target.identity)
        if new is not None:
            size = new.size or TableSize(0, 0)
            return ShardRecord(
                item_id=target.item_id, global_id=target.global_id, state="live",
                source=new.source, source_version=new.source_version, version=new.version,
                unfilled=new.unfilled, rows_of=_rows_of(state, new), copied_bytes=size.bytes,
                copy_seconds=size.seconds or 0.0,
            )
        record, definition = state.shards[path], target.definition
        evolve = record.evolve or (
            target.action is not None and target.contents == "evolve"
        ) or (target.action == "update" and definition.kind == "table")
        return msgspec.structs.replace(
            record, global_id=target.global_id, evolve=evolve,
            unset=_unset(record, state.items.get(target.item_id), definition) if evolve else (),
            shape=self.prepared.shapes.get(target.identity, record.shape),
        )

    def _remove(self, state: State) -> Iterator[Edit]:
        for identity in self.migration.removed:
            mapping = state.mappings.get(identity_text(identity))
            if mapping is not None:
                yield Delete("item", mapping.item_id)
                yield from self._retire(state, state.items[mapping.item_id])

    def _retire(self, state: State, item: ItemRecord) -> Iterator[Edit]:
        if item.shard is not None:
            sealed = self.prepared.sealed.get(item.shard)
            record = state.shards[item.shard]
            yield Put("shard", item.shard, record.retire(
                self.now, state.serial + 1, sealed, item.name_of
            ))

    def _keep_seals(self, state: State) -> Iterator[Edit]:
        """Which tables stay in force sealed, until their changes in place are made."""
        unsealing = self.prepared.unsealing
        if unsealing:
            intent = state.intents[str(self.epoch)]
            kept = tuple(seal for seal in intent.seals if seal.path in unsealing)
            yield Put("intent", f"{self.epoch}/sealed", msgspec.structs.replace(
                intent, paths=(), seals=kept, committed=True
            ))


def _remember_schemas(state: State, migration: Migration, owner: Owner) -> Iterator[Edit]:
    """Keep the schemas that this release leaves: a name that comes late there has to be seen."""
    left = {row.schema.lower(): row.schema for row in state.mappings.values() if row.owner == owner}
    for target in migration.targets:
        left.pop(target.definition.schema.lower(), None)
    known = {schema.lower(): schema for schema in state.former_schemas}
    if left.keys() - known.keys():
        kept = sorted({**left, **known}.values())
        yield Put("config", SCHEMAS, ConfigRecord(value=msgspec.json.encode(kept).decode()))


def _leave_tombstones(state: State, migration: Migration) -> Iterator[Edit]:
    """One tombstone for each name that goes, in the order of the plan; users by name.

    Users are those that go too, and those that are replaced: they let go of it before.
    """
    users: dict[str, list[str]] = {}
    dropped = {text: state.mappings.get(text) for text in map(identity_text, migration.drops)}
    text_of = {m.item_id: text for text, m in dropped.items() if m is not None}
    replaced = {
        target.item_id: identity_text(target.identity)
        for target in migration.targets if target.action == "redefine"
    }
    for item_id, text in {**replaced, **text_of}.items():
        for use in state.items[item_id].uses:
            if use in text_of:
                users.setdefault(text_of[use], []).append(text)
    serial = state.serial + 1
    for position, (text, mapping) in enumerate(dropped.items()):
        if mapping is None:
            continue
        yield Put("tombstone", f"{serial:010d}/{position:06d}", TombstoneRecord(
            item_id=mapping.item_id, global_id=mapping.global_id, schema=mapping.schema,
            kind=mapping.kind, name=mapping.name, serial=serial, position=position,
            location=state.items[mapping.item_id].shard,
            definition_hash=None if mapping.kind == "table" else mapping.definition_hash,
            users=tuple(sorted(users.get(text, ()))),
        ))


def _unset(
    record: ShardRecord, item: ItemRecord | None, definition: ObjectDefinition
) -> tuple[str, ...]:
    """The properties that the release leaves out of what was declared, done or not."""
    before = (*record.unset, *(item.definition.properties if item is not None else ()))
    return list_omitted(before, definition.properties) if before else ()


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


class ReplaceShard(msgspec.Struct, frozen=True):
    """Put a new shard in the place of the one that an item has; that retires.

    ``sealed`` is the version of its seal, ``columns`` what it calls its columns (None: as the item
    does), ``now`` in seconds since 1970.
    """

    path: str
    record: ShardRecord
    now: int
    sealed: int | None = None
    columns: Mapping[int, str] | None = None

    def apply(self, state: State) -> Iterator[Edit]:
        """Return item and shards; nothing of an item without a shard."""
        item_id = self.record.item_id
        item = state.items[item_id]
        if item.shard is None:
            return
        columns = item.name_of if self.columns is None else self.columns
        retired = state.shards[item.shard].retire(
            self.now, state.serial + 1, self.sealed, columns
        )
        yield Put("item", item_id, msgspec.structs.replace(item, shard=self.path))
        yield Put("shard", self.path, self.record)
        yield Put("shard", item.shard, retired)


class PutRelease(msgspec.Struct, frozen=True):
    """Put an owner's release in force that is like the one before it in every object."""

    migration: Migration
    owner: Owner

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the release, and the decisions that count as applied."""
        serial = state.serial
        if self.migration.plan.target.serial is not msgspec.UNSET:
            yield RaiseSerial()
            serial += 1
        for target in self.migration.targets:
            key = identity_text(target.identity)
            yield Put("mapping", key, msgspec.structs.replace(
                state.mappings[key], applied=target.applied
            ))
        yield from _record_release(state, self.migration, self.owner, serial)


def _record_release(
    state: State, migration: Migration, owner: Owner, serial: int
) -> Iterator[Edit]:
    record = ReleaseRecord(
        owner=owner, name=migration.plan.target.release, manifest_hash=migration.manifest_hash,
        serial=serial, in_force=True,
    )
    number = 0
    current = None
    for key, row in sorted(state.release_rows(owner).items()):
        number = max(number, int(key.partition("/")[2]))
        if row.in_force:
            current = key
            if row.name == record.name:
                yield Put("release", key, record)
                return
    if current is not None:
        yield Put("release", current, msgspec.structs.replace(
            state.release_rows(owner)[current], in_force=False
        ))
    yield Put("release", f"{owner}/{number + 1:06d}", record)


class Relink(msgspec.Struct, frozen=True):
    """Point what is quarantined at the tables that come back from retired shards.

    A table that comes back has a new item id, because ids never do. Its users keep theirs, use it
    again and are let back into the world, unless something else that they use is gone.
    """

    migration: Migration

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the items of its users."""
        migration = self.migration
        back = {  # whose rows are put together: the table of then, and those of its name since
            state.shards[segment.path].item_id: target.item_id
            for target in migration.targets if target.old is None
            for segment in target.segments if segment.path in state.shards
        }
        if not back:
            return
        waiting = _find_quarantined_users(state, back)
        present = self._present(state)
        touched = {key for key in waiting if not back.keys().isdisjoint(state.items[key].uses)}
        names = {state.items[key].definition.identity: key for key in waiting}
        for name in chain(*state.graph.part(names).waves()):  # users after what they use
            key = names[name]
            item = waiting[key]
            if key in present or not present.issuperset(item.uses):
                continue
            if key not in touched and touched.isdisjoint(item.uses):
                continue  # quarantined for a reason that has nothing to do with these tables
            yield Put("item", key, item)
            present.add(key)
            touched.add(key)

    def _present(self, state: State) -> set[str]:
        """Items that are there after the migration and not quarantined, by their ids."""
        removed = map(identity_text, self.migration.removed)
        gone = {state.mappings[text].item_id for text in removed if text in state.mappings}
        kept = {key for key, item in state.items.items() if item.quarantined is None}
        return (kept - gone) | {target.item_id for target in self.migration.targets}


def _find_quarantined_users(state: State, back: Mapping[str, str]) -> dict[str, ItemRecord]:
    """What is quarantined, as it is when it uses the tables that come ``back``, by their ids."""
    return {
        key: msgspec.structs.replace(
            item,
            uses=tuple(sorted({back.get(use, use) for use in item.uses})),
            links={role: back.get(use, use) for role, use in item.links.items()},
            quarantined=None,
        )
        for key, item in state.items.items() if item.quarantined is not None
    }


def pending_bundled(
    work: ExecutionContext, state: State, statements: Sequence[str] | None
) -> BundledChanges | None:
    """Return what is not as the release bundles it, in ``statements``; notes what is waiting.

    ``statements`` None leaves what was bundled as it is.
    """
    if statements is None or not (statements or state.has_owner("shipped")):
        return None
    planned = work.streams.bring_in(state, statements)
    work.journal.waiting = planned.waiting
    return planned if planned.updates else None


class BringIn(msgspec.Struct, frozen=True):
    """Bring in what a release bundles: as it was planned on ``version``, or on a newer state."""

    streams: StreamTables
    statements: Sequence[str]
    planned: BundledChanges
    version: int

    def apply(self, state: State) -> list[Edit]:
        """Return it."""
        if state.version == self.version:
            return edits_of(state, self.planned.updates)
        return edits_of(state, self.streams.bring_in(state, self.statements).updates)


def bring_in_bundled(
    work: ExecutionContext, state: State, statements: Sequence[str] | None
) -> State:
    """Commit what is pending and make the shards of what came; notes what has none."""
    planned = pending_bundled(work, state, statements)
    if planned is None or statements is None:
        return state
    bring_in = BringIn(work.streams, statements, planned, state.version)
    before, after = commit_onto(work.log, Commit("ship", (bring_in,), (work.held,)))
    if before.version != state.version:
        planned = pending_bundled(work, before, statements)
    made, state = () if planned is None else planned.created, after
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
