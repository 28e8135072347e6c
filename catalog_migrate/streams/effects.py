"""What a statement would do to the catalog: the changes, who restarts, and what to tell people.

Everything here is pure: an :class:`Effect` is computed from a state, printed by EXPLAIN, and
committed only while it is still what the newest state gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from catalog_migrate.catalog.records import (
    FORMAT_VERSION,
    AllocatorRecord,
    ConfigRecord,
    ItemRecord,
    MappingRecord,
    Owner,
    ShardRecord,
    TombstoneRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.model.hashes import schema_fingerprint
from catalog_migrate.model.names import Allocator, spark_refuses
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.errors import RefusedStatement


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


class Effect(msgspec.Struct, frozen=True):
    """What one statement does.

    ``summary`` is the sentence to print when it is done. ``changes`` is None when there is
    nothing to do (then ``notices`` say why). ``alteration`` is there when a definition changes
    that queries hang on; ``restarts`` lists every query below it. ``removed`` are item ids that
    go. ``validate`` is what the statement says about validation, None for the default.
    """

    summary: str
    changes: Changes | None
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
    """Collects the changes of one statement on one state, ids included.

    The serial is raised by every draft: it changes mappings or items.
    """

    def __init__(self, state: State, *, owner: Owner = "user") -> None:
        self.state = state
        self.owner = owner
        self.changes = Changes()
        self.changes.raise_serial()
        self._items = Allocator("i", _next(state, "i"))
        self._ids = Allocator("u", _next(state, "u"))
        self._position = 0

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
        self.changes.put("allocator", "i", AllocatorRecord(next=self._items.next_value))
        self.changes.put("allocator", "u", AllocatorRecord(next=self._ids.next_value))
        self._put(definition, item_id, global_id, uses, links or {}, shard)
        if shard is not None:
            self.changes.put(
                "shard", shard,
                ShardRecord(item_id=item_id, global_id=global_id, state="live"),
            )
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
            self.changes.delete("mapping", identity_text(old))
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
            self.changes.put("allocator", "u", AllocatorRecord(next=self._ids.next_value))
            record = self.state.shards[shard]
            self.changes.put(
                "shard", shard, msgspec.structs.replace(record, global_id=global_id, evolve=True)
            )
        self._put(
            definition, found.item_id, global_id, uses, links, shard, found.mapping, item,
        )

    def remove(self, found: dependencies.CatalogEntry, *, now: int = 0) -> None:
        """Take an object away; its shard retires, its stream and its holds go."""
        self.changes.delete("mapping", identity_text(found.mapping.identity))
        self.changes.delete("item", found.item_id)
        self.changes.delete("stream", found.item_id)
        for key, hold in self.state.holds.items():
            if hold.item_id == found.item_id:
                self.changes.delete("hold", key)
        if found.item.shard is not None:
            self.add_tombstone(found)
            record = self.state.shards[found.item.shard]
            self.changes.put(
                "shard", found.item.shard,
                msgspec.structs.replace(
                    record, state="retired", retired_at=now, retired_serial=self.state.serial + 1
                ),
            )

    def add_tombstone(self, found: dependencies.CatalogEntry) -> None:
        """Leave word that a registered name goes (only kinds with a shard are registered)."""
        if found.item.shard is None:
            return
        serial = self.state.serial + 1
        self.changes.put(
            "tombstone", f"{serial:010d}/{self._position:06d}",
            TombstoneRecord(
                item_id=found.item_id, global_id=found.item.global_id,
                schema=found.mapping.schema, kind="table", name=found.mapping.name,
                serial=serial, position=self._position, location=found.item.shard,
            ),
        )
        self._position += 1

    def after(self) -> State:
        """The state as it would be."""
        return self.state.changed(self.state.version + 1, self.changes.effective(self.state))

    def _bundled(self, definition: ObjectDefinition) -> ObjectDefinition | None:
        return definition if self.owner == "shipped" else None

    def _put(
        self, definition: ObjectDefinition, item_id: str, global_id: str, uses: Iterable[str],
        links: Mapping[str, str], shard: str | None, mapping: MappingRecord | None = None,
        item: ItemRecord | None = None,
    ) -> None:
        if _is_news(definition.external):
            known = int(self.state.setting("format_version"))
            raised = ConfigRecord(value=str(max(known, FORMAT_VERSION)))
            self.changes.put("config", "format_version", raised)
        owner = mapping.owner if mapping is not None else self.owner
        self.changes.put(
            "mapping", identity_text(definition.identity),
            MappingRecord(
                schema=definition.schema, kind=definition.kind, name=definition.name, owner=owner,
                item_id=item_id, global_id=global_id,
                fingerprint=schema_fingerprint(
                    [(column.name, column.type, column.nullable) for column in definition.columns]
                ),
                definition_hash=definition_hash(definition), storage_hash="",
                applied=mapping.applied if mapping is not None else (),
            ),
        )
        self.changes.put(
            "item", item_id,
            ItemRecord(
                owner=owner, global_id=global_id, definition=definition,
                uses=tuple(sorted({*uses, *links.values()})), shard=shard, links=dict(links),
                quarantined=item.quarantined if item is not None else None,
                shipped=item.shipped if item is not None else self._bundled(definition),
            ),
        )


def definition_hash(definition: ObjectDefinition) -> str:
    """The hash of the external part: references to secrets by name, never a value."""
    import xxhash

    data = msgspec.json.encode(definition.external, order="deterministic")
    return "1:" + xxhash.xxh3_128_hexdigest(b"\x01" + data)


def restarts(before: State, after: State, roots: Iterable[str]) -> tuple[Restart, ...]:
    """Every query at or below ``roots``, with whether its fingerprint changed.

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


def _is_news(external: External | None) -> bool:
    """Whether an older tool would leave part of a definition out, or pass it over."""
    return external is not None and bool(
        external.tables or external.registry is not None or _NEW_OPTIONS & set(external.options)
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
