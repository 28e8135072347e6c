"""Connections, sources and sinks that a release bundles, brought into the catalog (pure).

Nothing is ever taken away: a definition that a user altered stays as the user has it, and what a
release no longer bundles is handed over to the user, rows, positions and all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ItemRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Delete,
    Put,
    RaiseSerial,
    Update,
    find_effects,
    preview,
    put_object,
)
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.catalog import dependencies, statement_changes
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.query_options import check_query
from catalog_migrate.streams.catalog.statement_changes import Draft
from catalog_migrate.streams.ddl import create

_APART = 1_000_000_000
"""The first item id of bundled objects where two releases are compared without a catalog."""

Action = Literal["create", "alter", "keep", "hand over", "wait"]


class BundledStream(msgspec.Struct, frozen=True):
    """What becomes of one bundled object; ``reason`` is for the report.

    ``wait``: an object of the user's is in the way; it is tried again at every start (I8).
    """

    kind: str
    name: str
    action: Action
    reason: str

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.name}: {self.reason}"


class BundledStreamsPlan(msgspec.Struct, frozen=True):
    """All bundled streams of a release, and the updates that make them."""

    streams: tuple[BundledStream, ...]
    updates: tuple[Update, ...]
    created: tuple[str, ...] = ()


    @property
    def waiting(self) -> tuple[str, ...]:
        """What an object of the user's is in the way of, in words."""
        return tuple(str(each) for each in self.streams if each.action == "wait")


def plan_bundled_streams(state: State, statements: Sequence[str]) -> BundledStreamsPlan:
    """What bringing a release's statements in force would do; objects of others are left alone.

    What fails because of an object of the user's waits, and says why: the software starts without
    it. Raises what is wrong with the statements themselves (InvalidOptions, UnknownItem, …).
    """
    streams: list[BundledStream] = []
    updates: list[Update] = []
    created: list[str] = []
    current = state
    seen: set[str] = set()
    parsed = [_parse(text) for text in statements]
    for kind, statement in parsed:
        seen.add(identity_text(dependencies.identity_of(kind, statement.name)))
        try:
            step, stream, made = _one(current, kind, statement)
        except CatalogMigrateError as error:
            _require_users_fault(current, parsed, error)
            remedy = f" ({error.remedy})" if error.remedy else ""
            streams.append(
                BundledStream(kind, statement.name, "wait", f"{error.code} {error.message}{remedy}")
            )
            continue
        created += made
        if stream is not None:
            streams.append(stream)
        updates += step
        current = preview(current, step)
    updates += _hand_over(current, seen, streams)
    acting = any(stream.action not in ("keep", "wait") for stream in streams)
    acts = acting or bool(find_effects(state, updates))
    return BundledStreamsPlan(tuple(streams), tuple(updates) if acts else (), tuple(created))


def _parse(text: str) -> tuple[str, Any]:
    statement: Any = parse_one(text)
    return create.CREATES[type(statement)][0], statement


def _one(
    state: State, kind: str, statement: Any
) -> tuple[tuple[Update, ...], BundledStream | None, tuple[str, ...]]:
    """What one statement writes, what is said of it, and the items that it creates."""
    found = dependencies.lookup(state, kind, statement.name)
    if found is None:
        effect = create.create(state, statement, owner="shipped")
        made = BundledStream(kind, statement.name, "create", "new in this release")
        return effect.updates, made, effect.created
    if found.mapping.owner != "shipped":
        reason = f"a {found.mapping.owner}'s {kind} has that name; it stays as it is"
        return (), BundledStream(kind, statement.name, "keep", reason), ()
    step, stream = _again(state, found, statement)
    return step, stream, ()


def _require_users_fault(
    state: State, parsed: Sequence[tuple[str, Any]], error: CatalogMigrateError
) -> None:
    """Raise ``error`` unless the very statements are fine in a catalog without users' objects."""
    users = [key for key, mapping in state.mappings.items() if mapping.owner == "user"]
    if not users:
        raise error
    bare = preview(state, [Delete("mapping", key) for key in users])
    for kind, statement in parsed:
        try:
            step, _, _ = _one(bare, kind, statement)
        except CatalogMigrateError:
            raise error from None
        bare = preview(bare, step)


def _again(
    state: State, found: dependencies.CatalogEntry, statement: Any
) -> tuple[tuple[Update, ...], BundledStream | None]:
    """An object that an earlier release bundled: altered by this one, by a user, or neither."""
    wanted, links = _plan_definition(state, found, statement)
    item = found.item
    before = item.shipped or item.definition
    if wanted.external == before.external:
        return (), None
    name, kind = str(item.definition.item_name), found.mapping.kind
    if item.definition.external != before.external:
        # the user's word stands; that this release says something else is remembered as said
        return (Put("item", found.item_id, replace(item, shipped=wanted)),), BundledStream(
            kind, name, "keep", "a user has altered it: the user's definition stays"
        )
    draft = Draft(state, owner="shipped")
    draft.redefine(found, wanted, links=links, bundled=wanted)
    return draft.updates, BundledStream(
        kind, name, "alter", "its definition changes with this release"
    )


def _plan_definition(
    state: State, found: dependencies.CatalogEntry, statement: Any
) -> tuple[ObjectDefinition, dict[str, str]]:
    """The definition that a release's statement asks for, checked as a whole."""
    item, kind = found.item, found.mapping.kind
    if kind == "secret":
        if statement.reference != found.external.reference:
            create.check_reference(found.text, statement.reference)
        external = replace(
            found.external, reference=statement.reference,
            revision=(item.shipped or item.definition).external.revision,  # type: ignore[union-attr]
        )
        return dependencies.redefine(item, external), {}
    if kind == "cluster":
        return dependencies.redefine(item, External()), dict(item.links)
    if kind == "connection":
        asked = dependencies.redefine(item, statement.external)
        return create.check_connection(
            state, asked, item_id=found.item_id, before=found.external.options
        )
    stored = ((item.shipped or item.definition).external or External()).options
    external, links = check_query(
        state, kind, statement.name, statement.external, stored  # type: ignore[arg-type]
    )
    if kind == "sink":
        reads = dependencies.by_id(state, item.links["reads"])
        create.check_input(f"sink {statement.name}", reads, external)
    return dependencies.redefine(item, external), {**item.links, **links}


def _hand_over(
    state: State, seen: set[str], streams: list[BundledStream]
) -> Iterator[Update]:
    """What is no longer bundled belongs to the user from now on."""
    # a cluster came along with the first query in it and serves whoever runs there
    kinds = {kind for kind, _ in create.CREATES.values()} - {"cluster"}
    for key, mapping in state.mappings.items():
        if mapping.owner != "shipped" or key in seen or mapping.kind not in kinds:
            continue
        item = state.items[mapping.item_id]
        yield RaiseSerial()
        yield Put("mapping", key, replace(mapping, owner="user"))
        yield Put("item", mapping.item_id, replace(item, owner="user", shipped=None))
        streams.append(
            BundledStream(mapping.kind, str(mapping.key.item_name), "hand over",
                     "this release no longer ships it; it is yours now, DROP removes it")
        )


def with_bundled_streams(
    migration: Migration, state: State, statements: Sequence[str]
) -> Migration:
    """A migration whose plan also says what becomes of connections and queries.

    Raises what is wrong with the release's statements, so that nothing was touched by then.
    """
    lines: tuple[str, ...] = ()
    if migration.plan.changes:
        lines = statement_changes.migration_notes(state, migration)
    if statements or state.has_owner("shipped"):
        bundled = plan_bundled_streams(_migrate(state, migration), statements)
        lines += tuple(str(each) for each in bundled.streams)
    if not lines:
        return migration
    return replace(migration, plan=replace(migration.plan, shipments=lines))


def _migrate(state: State, migration: Migration) -> State:
    """The state with the names of the migration, for statements that use what comes with it."""
    updates: list[Update] = [
        Delete("mapping", identity_text(identity)) for identity in migration.removed
    ]
    for target in migration.targets:
        known = state.items.get(target.item_id)
        updates += put_object(target.item_id, ItemRecord(
            owner="release", global_id=target.global_id, definition=target.definition,
            shard=known.shard if known is not None else None,
        ), target.hashes)
    # ids that the migration takes are not handed out again
    free = state.allocators.get("i", AllocatorRecord(next=1)).next
    updates += (
        Put("allocator", "i", AllocatorRecord(next=max(free, migration.next_item))),
        Put("allocator", "s", AllocatorRecord(next=migration.next_global)),
        statement_changes.FollowTables(migration),
    )
    return preview(state, updates)


def as_in_force(baseline: Baseline, statements: Sequence[str]) -> State:
    """The state of a catalog that has nothing but one release, for comparing it with another.

    Bundled streams are numbered apart, so that the ids of ``baseline`` and of what comes after it
    stay free. Raises what is wrong with the release's own statements.
    """
    state = create_catalog(MemoryLog(), warehouse="/")
    item_of = {identity: each.item_id for identity, each in baseline.objects.items()}
    updates: list[Update] = []
    for each in baseline.objects.values():
        updates += put_object(each.item_id, ItemRecord(
            owner="release", global_id=each.global_id, definition=each.definition,
            uses=tuple(sorted({item_of[use] for use in each.uses if use in item_of})),
        ), each.hashes)
    state = preview(state, (*updates, Put("allocator", "i", AllocatorRecord(next=_APART))))
    return preview(state, plan_bundled_streams(state, statements).updates)


def list_bundled(state: State) -> tuple[str, ...]:
    """Return what the release in force bundles, as it does: users' changes of it are left out."""
    found = []
    for mapping in state.mappings.values():
        item = state.items[mapping.item_id]
        if mapping.owner != "shipped" or mapping.kind == "log":
            continue
        asked = replace(item, definition=item.shipped or item.definition)
        found.append(create_statement(state, dependencies.CatalogEntry(mapping, asked)))
    return tuple(sorted(found))
