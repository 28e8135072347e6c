"""What must hold in every committed state; a commit that breaks it is refused whole.

Ids are never handed out twice, and every id that a row names is there. Work is proportional to
what a commit touches: one that leaves mappings, items and shards alone decodes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from catalog_migrate.catalog.operation_states import wrong_transitions
from catalog_migrate.catalog.records import (
    ItemRecord,
    LeaseRecord,
    MappingRecord,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CheckFailed
from catalog_migrate.model.names import number_of
from catalog_migrate.model.walks import find_cycle
from catalog_migrate.model.wording import counted

_SHOWN = 20
"""How many problems an error lists; the rest is counted."""

_ID_COLLECTIONS = ("mapping", "item", "allocator")
_OF_OPERATIONS = ("operation", "intent", "tombstone", "shard")
"""Collections that say where operations are."""
_COLLECTIONS = ("config", "lease", "release", *_OF_OPERATIONS, *_ID_COLLECTIONS)
_NOTHING: Mapping[str, str] = {}
_NOBODY_LOOKED = State(-1, {})
"""What is known to be sound before anything was checked: no record."""


def check(state: State, before: State | None = None) -> None:
    """Raise :class:`CheckFailed` with everything that is wrong with ``state``.

    ``before`` is the committed state that it was made from, if any: then transitions are checked
    too (an id keeps its columns and never comes back, counters and epochs never fall, operations go
    as their kind declares), and collections that are the same in both are not looked at again;
    records neither, once all of them were looked at
    (:attr:`~catalog_migrate.catalog.state.State.is_sound`).
    """
    problems = list(_problems(state, before))
    if not problems:
        # a commit that changes items of a state that nobody looked through looks at all there is
        state.is_sound = (
            before is None or before.is_sound or state.raw.get("item") is not before.raw.get("item")
        )
        return
    shown = "".join(f"\n  {problem}" for problem in problems[:_SHOWN])
    more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise CheckFailed(
        "the commit was refused, nothing was written: "
        f"{counted(len(problems), 'problem')}{shown}{more}",
        remedy="this is a fault of the program, not of your release: please report it",
        problems=tuple(problems),
    )


def _problems(state: State, before: State | None) -> Iterator[str]:
    changed = set(_COLLECTIONS)
    if before is not None:
        new, old = state.raw, before.raw
        changed = {name for name in _COLLECTIONS if new.get(name) is not old.get(name)}
    known = before if before is not None and before.is_sound else _NOBODY_LOOKED
    for rule in _RULES:
        if changed.isdisjoint(rule.about):
            continue
        if not rule.is_between:
            yield from rule.find(state, known)
        elif before is not None:
            yield from rule.find(state, before)


def _config(state: State, before: State) -> Iterator[str]:
    for fixed in ("lineage", "ansi", "time_zone"):
        old = before.config.get(fixed)
        if fixed == "lineage" and state.config.get("home") != before.config.get("home"):
            continue  # a copy that becomes an installation of its own
        if old is not None and state.config.get(fixed) != old:
            yield f"the setting {fixed!r} never changes"
    if state.serial < before.serial:
        yield f"the serial falls from {before.serial} to {state.serial}"


def _leases(state: State, before: State) -> Iterator[str]:
    for key, old in before.leases.items():
        new: LeaseRecord | None = state.leases.get(key)
        if new is None:
            yield f"the lease {key!r} is deleted, its epoch with it"
        elif new.epoch < old.epoch:
            yield f"the epoch of the lease {key!r} falls from {old.epoch} to {new.epoch}"


def _releases(state: State, _: State) -> Iterator[str]:
    in_force: dict[str, str] = {}
    for row in state.releases:
        if row.in_force and row.owner in in_force:
            yield f"releases {in_force[row.owner]!r} and {row.name!r} are both in force"
        if row.in_force:
            in_force[row.owner] = row.name


def _counters(state: State, before: State) -> Iterator[str]:
    nexts = {prefix: record.next for prefix, record in state.allocators.items()}
    for prefix, record in before.allocators.items():
        if nexts.get(prefix, 0) < record.next:
            yield f"the counter {prefix!r} falls from {record.next} to {nexts.get(prefix)}"


def _ids(state: State, known: State) -> Iterator[str]:
    nexts = {prefix: record.next for prefix, record in state.allocators.items()}
    owners: dict[str, str] = {}
    sound = known.items
    for item_id, item in state.items.items():
        global_id = item.global_id
        other = owners.setdefault(global_id, item_id)
        if other != item_id:
            yield f"{global_id} belongs to both {other} and {item_id}"
        if sound.get(item_id) is item:
            continue  # its ids were handed out before, and counters never fall
        letter = "u" if global_id[:1] == "u" else "s"
        for identifier, prefix in ((item_id, "i"), (global_id, letter)):
            number = identifier[1:]
            if identifier[:1] != prefix or not number.isdecimal():
                yield f"{identifier!r} is not an id of the form {prefix}<n>"
            elif number_of(identifier) >= nexts.get(prefix, 1):
                yield f"{identifier} was never handed out (next is {prefix}{nexts.get(prefix, 1)})"


def _pairs(state: State, known: State) -> Iterator[str]:
    """Each mapping has its item and each item its one mapping, and they agree."""
    mapped: dict[str, str] = {}
    items = state.items
    old_mappings, old_items = known.mappings, known.items
    for key, mapping in state.mappings.items():
        other = mapped.setdefault(mapping.item_id, key)
        if other != key:
            yield f"{mapping.item_id} has two names: {other} and {key}"
        item = items.get(mapping.item_id)
        if old_mappings.get(key) is mapping and old_items.get(mapping.item_id) is item is not None:
            continue
        identity = mapping.identity
        if identity_text(identity) != key:
            yield f"the mapping {key} is of {mapping.key}"
        if item is None:
            yield f"the mapping {key} names {mapping.item_id}, which does not exist"
            continue
        if mapping.global_id != item.global_id:
            yield f"{key} is {mapping.global_id} by its mapping, {item.global_id} by its item"
        if identity != item.definition.identity:
            yield f"the mapping {key} has the item of {item.definition.key}"
        if mapping.owner != item.owner:
            yield f"{key} is owned by {mapping.owner} by its mapping, {item.owner} by its item"
    for item_id, item in items.items():
        if item_id not in mapped:
            yield f"{item_id} ({item.definition.key}) has no mapping"


def _edges(state: State, sound: State) -> Iterator[str]:
    """Nothing uses what is not there, or itself. A new circle goes through an object that is new or
    changed, and unless one is removed only those can use what is not there."""
    items, known = state.items, sound.items
    changed = [item_id for item_id, item in items.items() if known.get(item_id) is not item]
    removed = not known.keys() <= items.keys()
    for item_id in items if removed else changed:
        item = items[item_id]
        if item.quarantined is None:
            for use in item.uses:
                if use not in items:
                    yield f"{item_id} ({item.definition.key}) uses {use}, which does not exist"
    cycle = find_cycle(changed, lambda item_id: items[item_id].uses, items)
    if cycle:
        path = " -> ".join(f"{item_id} ({items[item_id].definition.key})" for item_id in cycle)
        yield f"objects use each other in a circle: {path}"


def _column_ids(state: State, known: State) -> Iterator[str]:
    """One id for each column of a table, and for each that a rollback took, of those handed out."""
    sound = known.items
    for item_id, item in state.items.items():
        held = item.column_ids
        if held is None or sound.get(item_id) is item:
            continue
        numbers = (*held.ids, *held.taken.values())
        if len(held.ids) != len(item.definition.columns) or len(set(numbers)) != len(numbers):
            yield f"the columns of {item_id} ({item.definition.key}) have not one id each"
        if any(not 0 < number <= held.last for number in (*numbers, *held.values)):
            yield f"a column of {item_id} ({item.definition.key}) has an id never handed out"


def _history(state: State, before: State) -> Iterator[str]:
    """An id's columns never change, and an id that is removed never comes back."""
    old_nexts = {prefix: record.next for prefix, record in before.allocators.items()}
    held = before.mappings
    changed = [
        (key, mapping) for key, mapping in state.mappings.items() if held.get(key) is not mapping
    ]
    old = {mapping.global_id: mapping for mapping in held.values()} if changed else {}
    for key, mapping in changed:
        known = old.get(mapping.global_id)
        if known is None:
            yield from _fresh(mapping.global_id, key, old_nexts)
        elif not _same_columns(state, before, mapping, known):
            yield f"the columns of {mapping.global_id} ({key}) change under its id"
    for item_id, item in state.items.items():
        earlier = before.items.get(item_id)
        if earlier is None:
            yield from _fresh(item_id, str(item.definition.key), old_nexts)
        elif earlier is not item and item.column_ids is not None and earlier.shard is not None:
            yield from _same_ids(item_id, item, earlier)


def _same_ids(item_id: str, item: ItemRecord, earlier: ItemRecord) -> Iterator[str]:
    """A table's columns have their ids for life."""
    if item.ids.last < earlier.ids.last:
        yield f"the counter of the columns of {item_id} falls to {item.ids.last}"
    if item.global_id == earlier.global_id and item.ids.ids != earlier.ids.ids:
        yield f"the ids of the columns of {item.global_id} change under its id"


def _fresh(identifier: str, name: str, old_nexts: Mapping[str, int]) -> Iterator[str]:
    number = identifier[1:]
    if number.isdecimal() and int(number) < old_nexts.get(identifier[:1], 1):
        yield f"{identifier} ({name}) was given to something else before"


def _same_columns(
    state: State, before: State, mapping: MappingRecord, known: MappingRecord
) -> bool:
    if mapping.fingerprint == known.fingerprint:
        return True
    if mapping.fingerprint.partition(":")[0] == known.fingerprint.partition(":")[0]:
        return False
    # another recipe for the same columns re-stamps the fingerprint; then the columns speak
    return _columns(state, mapping) == _columns(before, known)


def _columns(state: State, mapping: MappingRecord) -> list[tuple[str, str, bool]]:
    item = state.items.get(mapping.item_id)
    columns = item.definition.columns if item is not None else ()
    return [(column.name.lower(), column.type, column.nullable) for column in columns]


def _shards_of_items(state: State, known: State) -> Iterator[str]:
    users: dict[str, str] = {}
    shards = state.shards
    old_items, old_shards = known.items, known.shards
    for item_id, item in state.items.items():
        path = item.shard
        if path is None:
            continue
        other = users.setdefault(path, item_id)
        if other != item_id:
            yield f"{other} and {item_id} both have the shard {path}"
        shard = shards.get(path)
        if old_items.get(item_id) is item and old_shards.get(path) is shard is not None:
            continue
        yield from _shard_serves(item_id, path, shard)


def _shard_serves(item_id: str, path: str, shard: ShardRecord | None) -> Iterator[str]:
    if shard is None:
        yield f"{item_id} has the shard {path}, which was never handed out"
    elif shard.state not in ("live", "building"):
        yield f"{item_id} has the shard {path}, which is {shard.state}"
    elif shard.item_id != item_id:
        yield f"{item_id} has the shard {path}, which belongs to {shard.item_id}"


def _items_of_changed_shards(state: State, before: State) -> Iterator[str]:
    """The items stayed: only the owners of changed shards, old and new, are looked at."""
    if state.raw.get("item") is not before.raw.get("item"):
        return  # every item is looked at anyway
    for item_id in _owners_of_changed(state, before):
        item = state.items.get(item_id)
        if item is not None and item.shard is not None:
            yield from _shard_serves(item_id, item.shard, state.shards.get(item.shard))


def _owners_of_changed(state: State, before: State) -> Iterable[str]:
    new, old = state.raw.get("shard", _NOTHING), before.raw.get("shard", _NOTHING)
    changed = [path for path, text in new.items() if old.get(path) != text]
    removed = [path for path in old if path not in new]
    owners = {state.shards[path].item_id for path in changed}
    owners |= {before.shards[path].item_id for path in (*changed, *removed) if path in old}
    return sorted(owners)


def _shards_kept(state: State, before: State) -> Iterator[str]:
    """Rows of shards stay for ever: by them our own registrations are told from others'."""
    new = state.raw.get("shard", _NOTHING)
    for path in before.raw.get("shard", _NOTHING):
        if path not in new:
            yield f"the row of the shard {path} is deleted, it should end as gone"


class _Rule(NamedTuple):
    """What must hold of some collections, looked at when one of them changed.

    ``find`` takes the state and, where it ``is_between`` two, the one before; else the one whose
    records are known to be sound.
    """

    about: Collection[str]
    find: Callable[[State, State], Iterable[str]]
    is_between: bool = False


_RULES = (
    _Rule(("config",), _config, is_between=True),
    _Rule(("lease",), _leases, is_between=True),
    _Rule(("release",), _releases),
    _Rule(_ID_COLLECTIONS, _counters, is_between=True),
    _Rule(_ID_COLLECTIONS, _ids),
    _Rule(_ID_COLLECTIONS, _pairs),
    _Rule(_ID_COLLECTIONS, _edges),
    _Rule(_ID_COLLECTIONS, _column_ids),
    _Rule(_ID_COLLECTIONS, _history, is_between=True),
    _Rule(("item",), _shards_of_items),
    _Rule(("shard",), _items_of_changed_shards, is_between=True),
    _Rule(("item", "shard"), _shards_kept, is_between=True),
    _Rule(_OF_OPERATIONS, wrong_transitions, is_between=True),
)
