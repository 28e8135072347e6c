"""What happened to one object over the serials, from the history of commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from catalog_migrate.catalog.history import Entry, entries
from catalog_migrate.catalog.records import MappingRecord
from catalog_migrate.catalog.state import State

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog

Happening = Literal["created", "migrated", "renamed", "changed", "dropped"]


class ObjectEntry(msgspec.Struct, frozen=True):
    """One commit that changed the object: what happened, its name and global id after it.

    For a dropped object name and id are those it had.
    """

    entry: Entry
    happening: Happening
    name: str
    global_id: str


def object_history(log: CatalogLog, identity_key: str) -> Iterator[ObjectEntry]:
    """The commits that changed the object under a name, newest first.

    ``identity_key`` is the durable key of a mapping. The object is the one that stands under the
    name now, else the one that stood there last; it is followed by its item id, through renames.
    Nothing is yielded for a name that nothing ever had. Raises
    :class:`~catalog_migrate.errors.CatalogCorrupt` where the history is not whole.
    """
    after = State.from_snapshot(log.read())
    standing = after.mappings.get(identity_key)
    item_id = None if standing is None else standing.item_id
    for entry in entries(log):
        if entry.serial_before in (None, entry.serial_after):
            continue
        if item_id is not None and entry.items is not None and item_id not in entry.items:
            continue
        before = State.from_snapshot(log.read_at(entry.version - 1))
        if item_id is None:
            found = before.mappings.get(identity_key)
            if found is None:
                continue
            item_id = found.item_id
        after = State.from_snapshot(log.read_at(entry.version))
        one = _happened(item_id, before, after)
        if one is not None:
            yield ObjectEntry(entry, *one)


def _happened(item_id: str, before: State, after: State) -> tuple[Happening, str, str] | None:
    old, new = _mapping(before, item_id), _mapping(after, item_id)
    if old is None and new is None:
        return None
    if new is None:
        assert old is not None
        return "dropped", str(old.key), old.global_id
    if old is None:
        return "created", str(new.key), new.global_id
    if old.identity != new.identity:
        return "renamed", str(new.key), new.global_id
    if old.global_id != new.global_id:
        return "migrated", str(new.key), new.global_id
    if before.raw["item"].get(item_id) == after.raw["item"].get(item_id):
        return None
    return "changed", str(new.key), new.global_id


def _mapping(state: State, item_id: str) -> MappingRecord | None:
    return next((row for row in state.mappings.values() if row.item_id == item_id), None)
