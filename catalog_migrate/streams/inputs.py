"""What a migration of tables means for the sources and sinks that use them (pure).

A sink's KEY and ORDER BY follow a renamed column. What cannot go on, because a table became a view
or a column of its KEY is gone, is quarantined with the reason, until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import ItemRecord, ShardRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import definition_hash


def quarantined(state: State, migration: Migration) -> dict[str, str]:
    """Users' and bundled objects that lose what they use, by item id, with the reason (I8)."""
    release = migration.plan.target.release
    found: dict[str, str] = {}
    for target, user_id, user in _uses(state, migration):
        table = target.definition.item_name
        if target.definition.kind == "view":
            why = f"became a view with release {release}, and a stream can use tables only"
            found[user_id] = f"{table} {why}"
            continue
        renamed = _renamed_columns(state, target)
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


def rekeyed(state: State, migration: Migration) -> dict[str, ItemRecord]:
    """Sinks whose KEY or ORDER BY has columns that the migration renames, as they are then."""
    found: dict[str, ItemRecord] = {}
    for target, user_id, user in _uses(state, migration):
        renamed = _renamed_columns(state, target)
        if not any(renamed.get(name.lower()) for name in _key_columns(user)):
            continue
        bundled = user.shipped
        found[user_id] = msgspec.structs.replace(
            user, definition=_renamed(user.definition, renamed),
            shipped=None if bundled is None else _renamed(bundled, renamed),
        )
    return found


def put_inputs(changes: Changes, state: State, migration: Migration) -> None:
    """Put the items of both functions, as part of the migration's own commit."""
    lost = quarantined(state, migration)
    for item_id, item in rekeyed(state, migration).items():
        if item_id in lost:
            continue
        changes.put("item", item_id, item)
        key = identity_text(item.definition.identity)
        mapping = state.mappings[key]
        changes.put(
            "mapping", key,
            msgspec.structs.replace(mapping, definition_hash=definition_hash(item.definition)),
        )
    for item_id, reason in lost.items():
        item = msgspec.structs.replace(state.items[item_id], quarantined=reason)
        changes.put("item", item_id, item)


def described(state: State, migration: Migration) -> tuple[str, ...]:
    """Both in words, for the plan's report."""
    lost = quarantined(state, migration)
    lines = []
    for item_id, item in rekeyed(state, migration).items():
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


def _renamed_columns(state: State, target: Target) -> dict[str, str | None]:
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


def _renamed(definition: ObjectDefinition, renamed: Mapping[str, str | None]) -> ObjectDefinition:
    external = definition.external or External()
    return msgspec.structs.replace(definition, external=_with_columns(external, renamed))


def _with_columns(external: External, renamed: Mapping[str, str | None]) -> External:
    key, order_by = (
        tuple(renamed.get(name.lower()) or name for name in names)
        for names in (external.key, external.order_by)
    )
    return msgspec.structs.replace(external, key=key, order_by=order_by)
