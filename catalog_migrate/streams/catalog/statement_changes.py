"""What a statement would do to the catalog: the updates, who restarts, and what to tell people.

Everything here is pure: an :class:`Effect` is computed from a state, printed by EXPLAIN, and
committed only while it is still what the newest state gives.

So is what a migration of tables means for the sources and sinks that use them. A sink's KEY and
ORDER BY follow a renamed column. What cannot go on, because a table became a view or a column of
its KEY is gone, is quarantined with the reason, until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import (
    EXTERNAL_FORMAT,
    AllocatorRecord,
    ItemRecord,
    MappingRecord,
    Owner,
    ShardRecord,
    TombstoneRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Delete,
    Edit,
    Put,
    RaiseFormat,
    RaiseSerial,
    Update,
    preview,
    put_object,
)
from catalog_migrate.errors import RefusedStatement
from catalog_migrate.model.hashes import schema_fingerprint
from catalog_migrate.model.names import Allocator, spark_refuses
from catalog_migrate.model.objects import External, Hashes, ObjectDefinition
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.streams.catalog import dependencies


class Restart(msgspec.Struct, frozen=True):
    """A query that a statement restarts, or one below it that it does not and why."""

    item_id: str
    name: str
    kind: str
    restarts: bool
    reason: str


class Alteration(msgspec.Struct, frozen=True):
    """The old and the new definition of an altered item, with the links of each."""

    item_id: str
    before: ObjectDefinition
    after: ObjectDefinition
    links_before: Mapping[str, str]
    links_after: Mapping[str, str]

    @property
    def text(self) -> str:
        """For messages: ``connection default.c``."""
        return f"{self.before.kind} {self.before.item_name}"


class Effect(msgspec.Struct, frozen=True):
    """What one statement does.

    ``summary`` is the sentence to print when it is done. Without ``updates`` there is nothing to do
    (then ``notices`` say why). ``alteration`` is there when a definition changes that queries hang
    on; ``restarts`` lists every query below it. ``removed`` are item ids that go. ``validate`` is
    what the statement says about validation, None for the default.
    """

    summary: str
    updates: tuple[Update, ...]
    notices: tuple[str, ...] = ()
    alteration: Alteration | None = None
    restarts: tuple[Restart, ...] = ()
    removed: tuple[str, ...] = ()
    validate: bool | None = None
    created: tuple[str, ...] = ()

    @property
    def affected(self) -> tuple[str, ...]:
        """Item ids of the queries that restart."""
        return tuple(each.item_id for each in self.restarts if each.restarts)


class Draft:
    """Collects the updates of one statement on one state, ids included.

    The serial is raised by every draft: it changes mappings or items.
    """

    def __init__(self, state: State, *, owner: Owner = "user") -> None:
        self.state = state
        self.owner = owner
        self._edits: list[Edit] = [RaiseSerial()]
        self._items = Allocator("i", _next(state, "i"))
        self._ids = Allocator("u", _next(state, "u"))
        self._position = 0

    @property
    def updates(self) -> tuple[Edit, ...]:
        """What was collected."""
        return tuple(self._edits)

    def add(self, edit: Edit) -> None:
        """Put one more edit."""
        self._edits.append(edit)

    def create(
        self, definition: ObjectDefinition, *, uses: Iterable[str] = (),
        links: Mapping[str, str] | None = None, shard: str | None = None,
    ) -> str:
        """Put a user's new object; returns its item id. RefusedStatement when the name is taken."""
        _refuse_odd(definition)
        key = identity_text(definition.identity)
        taken = self.state.mappings.get(key)
        if taken is not None:
            raise RefusedStatement(
                f"{taken.key} exists already ({taken.kind})",
                remedy="choose another name, or write IF NOT EXISTS",
            )
        item_id, global_id = self._items.allocate(), self._ids.allocate()
        self.add(Put("allocator", "i", AllocatorRecord(next=self._items.next_value)))
        self.add(Put("allocator", "u", AllocatorRecord(next=self._ids.next_value)))
        self._put(definition, item_id, global_id, uses, links or {}, shard)
        if shard is not None:
            self.add(Put(
                "shard", shard,
                ShardRecord(item_id=item_id, global_id=global_id, state="live"),
            ))
        return item_id

    def redefine(
        self, found: dependencies.CatalogEntry, definition: ObjectDefinition, *,
        links: Mapping[str, str] | None = None, bundled: ObjectDefinition | None = None,
    ) -> None:
        """Give an object another definition (the name may differ).

        With other columns it gets a new global id, and its shard is to be evolved.
        ``bundled`` is there when a release does it: the new definition to tell a user's by.
        """
        old, new = found.mapping.identity, definition.identity
        if old != new:
            _refuse_odd(definition)
            if identity_text(new) in self.state.mappings:
                raise RefusedStatement(
                    f"{definition.item_name} exists already", remedy="choose another name"
                )
            self.add(Delete("mapping", identity_text(old)))
            self.add_tombstone(found)
        links = found.item.links if links is None else links
        roles = set(found.item.links.values())
        uses = (set(found.item.uses) - roles) | set(links.values())
        item = found.item
        if bundled is not None:
            item = msgspec.structs.replace(item, shipped=bundled)
        global_id, shard = found.item.global_id, found.item.shard
        if shard is not None and definition.columns != found.item.definition.columns:
            global_id = self._ids.allocate()
            self.add(Put("allocator", "u", AllocatorRecord(next=self._ids.next_value)))
            record = self.state.shards[shard]
            self.add(Put(
                "shard", shard, msgspec.structs.replace(record, global_id=global_id, evolve=True)
            ))
        self._put(
            definition, found.item_id, global_id, uses, links, shard, found.mapping, item,
        )

    def remove(self, found: dependencies.CatalogEntry, *, now: int = 0) -> None:
        """Take an object away; its shard retires, its stream and its holds go."""
        self.add(Delete("mapping", identity_text(found.mapping.identity)))
        self.add(Delete("item", found.item_id))
        self.add(Delete("stream", found.item_id))
        for key, hold in self.state.holds.items():
            if hold.item_id == found.item_id:
                self.add(Delete("hold", key))
        if found.item.shard is not None:
            self.add_tombstone(found)
            record = self.state.shards[found.item.shard]
            self.add(Put(
                "shard", found.item.shard,
                msgspec.structs.replace(
                    record, state="retired", retired_at=now, retired_serial=self.state.serial + 1
                ),
            ))

    def add_tombstone(self, found: dependencies.CatalogEntry) -> None:
        """Leave word that a registered name goes (only kinds with a shard are registered)."""
        if found.item.shard is None:
            return
        serial = self.state.serial + 1
        self.add(Put(
            "tombstone", f"{serial:010d}/{self._position:06d}",
            TombstoneRecord(
                item_id=found.item_id, global_id=found.item.global_id,
                schema=found.mapping.schema, kind="table", name=found.mapping.name,
                serial=serial, position=self._position, location=found.item.shard,
            ),
        ))
        self._position += 1

    def after(self) -> State:
        """Return the state as it would be."""
        return preview(self.state, self._edits)

    def _keep_bundled(self, definition: ObjectDefinition) -> ObjectDefinition | None:
        return definition if self.owner == "shipped" else None

    def _put(
        self, definition: ObjectDefinition, item_id: str, global_id: str, uses: Iterable[str],
        links: Mapping[str, str], shard: str | None, mapping: MappingRecord | None = None,
        item: ItemRecord | None = None,
    ) -> None:
        if needs_external_format(definition.external):
            self._edits += RaiseFormat(EXTERNAL_FORMAT).apply(self.state)
        owner = mapping.owner if mapping is not None else self.owner
        self._edits += put_object(
            item_id,
            ItemRecord(
                owner=owner, global_id=global_id, definition=definition,
                uses=tuple(sorted({*uses, *links.values()})), shard=shard, links=dict(links),
                quarantined=item.quarantined if item is not None else None,
                shipped=item.shipped if item is not None else self._keep_bundled(definition),
            ),
            Hashes(schema_fingerprint(definition.columns), external_hash(definition)),
            applied=mapping.applied if mapping is not None else (),
        )


def external_hash(definition: ObjectDefinition) -> str:
    """Return the hash of the external part: references to secrets by name, never a value."""
    import xxhash

    data = msgspec.json.encode(definition.external, order="deterministic")
    return "1:" + xxhash.xxh3_128_hexdigest(b"\x01" + data)


def restarts(before: State, after: State, roots: Iterable[str]) -> tuple[Restart, ...]:
    """Return every query at or below ``roots``, with whether its fingerprint changed.

    A held query restarts nothing: it starts from the new definition once its holds are gone.
    """
    reached: dict[str, None] = {}
    for root in roots:
        if root in after.items and dependencies.is_query(after.items[root]):
            reached[root] = None
        reached.update(dict.fromkeys(dependencies.dependents(after, root)))
    found = []
    for item_id in sorted(reached, key=lambda each: int(each[1:])):
        item = after.items[item_id]
        held = [hold.reason for hold in after.holds.values() if hold.item_id == item_id]
        if item_id not in before.items:
            changed, reason = False, "new"
        elif dependencies.fingerprint(before, item_id) == dependencies.fingerprint(after, item_id):
            changed, reason = False, "its definition comes out the same"
        elif held:
            changed, reason = False, f"it is held ({held[0]}); it will start on the new definition"
        else:
            changed, reason = True, "its definition changes"
        found.append(
            Restart(
                item_id, str(item.definition.item_name), item.definition.kind, changed, reason
            )
        )
    return tuple(found)


def needs_external_format(external: External | None) -> bool:
    """Return whether an older tool would leave part of a definition out, or pass it over."""
    return external is not None and bool(
        external.tables or external.registry is not None or external.package is not None
        or _NEW_OPTIONS & set(external.options)
    )


_NEW_OPTIONS = frozenset({"SSH TUNNEL", "START OFFSETS"})


def _next(state: State, prefix: str) -> int:
    record = state.allocators.get(prefix)
    return record.next if record is not None else 1


def _refuse_odd(definition: ObjectDefinition) -> None:
    """RefusedStatement for a name that would be committed and could never be registered."""
    odd = spark_refuses(definition.kind, definition.schema, definition.name)
    if odd is not None:
        raise RefusedStatement(
            f"Spark cannot have a {definition.kind} called {definition.item_name}",
            remedy="use at most 255 of A-Z, a-z, 0-9 and _; a cluster's name begins its log's",
        )


# -- migrations of tables --------------------------------------------------------------------------


def find_quarantined(state: State, migration: Migration) -> dict[str, str]:
    """Users' and bundled objects that lose what they use, by item id, with the reason (I8)."""
    release = migration.plan.target.release
    found: dict[str, str] = {}
    for target, user_id, user in _uses(state, migration):
        table = target.definition.item_name
        if target.definition.kind == "view":
            why = f"became a view with release {release}, and a stream can use tables only"
            found[user_id] = f"{table} {why}"
            continue
        renamed = _find_renamed_columns(state, target)
        keys = {name.lower() for name in _key_columns(user)}
        lost = sorted(name for name in keys if renamed.get(name, name) is None)
        if lost:
            found[user_id] = (
                f"{table} lost the column {', '.join(lost)} of its KEY or ORDER BY with"
                f" release {release}"
            )
    roots = frozenset(
        {name for name in migration.removed if name in state.item_ids}
        | {state.items[item_id].definition.identity for item_id in found}
    )
    standing = {
        name for name, item_id in state.item_ids.items()
        if state.items[item_id].owner not in ("release", "system")
        and state.items[item_id].quarantined is None
    }
    if not roots or not standing:
        return found
    graph = state.graph.part(roots | standing)
    for name in sorted(graph.dependents(roots) - roots):  # whoever uses what is lost is lost too
        used = graph.because(roots, name)[-2]
        found[state.item_ids[name]] = f"{graph.key(used)} went with release {release}"
    return found


def sinks_with_renamed_keys(state: State, migration: Migration) -> dict[str, ItemRecord]:
    """Sinks whose KEY or ORDER BY has columns that the migration renames, as they are then."""
    found: dict[str, ItemRecord] = {}
    for target, user_id, user in _uses(state, migration):
        renamed = _find_renamed_columns(state, target)
        if not any(renamed.get(name.lower()) for name in _key_columns(user)):
            continue
        bundled = user.shipped
        found[user_id] = msgspec.structs.replace(
            user, definition=_rename_columns(user.definition, renamed),
            shipped=None if bundled is None else _rename_columns(bundled, renamed),
        )
    return found


class FollowTables(msgspec.Struct, frozen=True):
    """What a migration of tables means for those who use them, as part of its own commit."""

    migration: Migration

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the items of both functions."""
        lost = find_quarantined(state, self.migration)
        for item_id, item in sinks_with_renamed_keys(state, self.migration).items():
            if item_id in lost:
                continue
            yield Put("item", item_id, item)
            key = identity_text(item.definition.identity)
            yield Put("mapping", key, msgspec.structs.replace(
                state.mappings[key], definition_hash=external_hash(item.definition)
            ))
        for item_id, reason in lost.items():
            item = msgspec.structs.replace(state.items[item_id], quarantined=reason)
            yield Put("item", item_id, item)


def migration_notes(state: State, migration: Migration) -> tuple[str, ...]:
    """Return both in words, for the plan's report."""
    lost = find_quarantined(state, migration)
    lines = []
    for item_id, item in sinks_with_renamed_keys(state, migration).items():
        if item_id not in lost:
            external = dependencies.external_of(item)
            columns = ", ".join((*external.key, *external.order_by))
            lines.append(
                f"alter {item.definition.kind} {item.definition.item_name}: columns of its KEY and"
                f" ORDER BY are renamed: {columns}"
            )
    for item_id, reason in lost.items():
        definition = state.items[item_id].definition
        lines.append(f"quarantine {definition.kind} {definition.item_name}: {reason}")
    return tuple(lines)


def as_in_shard(state: State, external: External, newest: str, path: str) -> External:
    """A sink's external part with KEY and ORDER BY as the columns were called in an older shard.

    ``newest`` is the shard that the table has now, ``path`` one that it was copied from.
    """
    record = state.shards.get(path)
    table = state.items[state.shards[newest].item_id] if newest in state.shards else None
    if table is not None and record is not None and record.columns:
        return _as_in(table, external, record)
    then, current = external, newest
    while current != path and current in state.shards:
        source = state.shards[current].source
        held = state.shards.get(source or "")
        if source is None or held is None:
            break
        if table is not None and held.columns:
            then = _as_in(table, external, held)
        else:  # it was replaced under format 2 or before: from copy to copy
            before = state.shards[current].renamed
            then = _with_columns(then, {new.lower(): old for new, old in before.items()})
        current = source
    return then


def _as_in(table: ItemRecord, external: External, shard: ShardRecord) -> External:
    """KEY and ORDER BY as a retired shard calls the columns, told by their ids."""
    name_of = {number: name for name, number in shard.columns.items()}
    return _with_columns(external, {
        name.lower(): name_of[number]
        for number, name in table.name_of.items() if number in name_of
    })


def _uses(state: State, migration: Migration) -> Iterator[tuple[Target, str, ItemRecord]]:
    """Queries that read or write a table that changes: what it becomes, item id and record."""
    targets = {
        target.item_id: target for target in migration.targets
        if target.action is not None and target.item_id in state.items
    }
    if not targets:
        return
    for item_id, item in state.items.items():
        if not dependencies.is_query(item):
            continue
        for used in (item.links.get("reads", ""), *dependencies.outputs(item)):
            if used in targets:
                yield targets[used], item_id, item


def _find_renamed_columns(state: State, target: Target) -> dict[str, str | None]:
    """New names of a table's columns by the folded ones they have; None for a column that goes."""
    before = state.items[target.item_id]
    if target.column_ids is None or before.definition.kind != "table":
        return {}
    names = (column.name for column in target.definition.columns)
    after = dict(zip(target.column_ids.ids, names, strict=True))
    return {
        name.lower(): after.get(number) for number, name in before.name_of.items()
        if after.get(number, "").lower() != name.lower()
    }


def _key_columns(item: ItemRecord) -> tuple[str, ...]:
    external = dependencies.external_of(item)
    return (*external.key, *external.order_by)


def _rename_columns(
    definition: ObjectDefinition, renamed: Mapping[str, str | None]
) -> ObjectDefinition:
    external = definition.external or External()
    return msgspec.structs.replace(definition, external=_with_columns(external, renamed))


def _with_columns(external: External, renamed: Mapping[str, str | None]) -> External:
    key, order_by = (
        tuple(renamed.get(name.lower()) or name for name in names)
        for names in (external.key, external.order_by)
    )
    return msgspec.structs.replace(external, key=key, order_by=order_by)
