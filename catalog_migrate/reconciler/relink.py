"""Users' objects that lost a table find it again when a rollback brings it back."""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import ItemRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.planner.migration import Migration


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
    again = True
    while again:
        again = False
        for key, item in sorted(waiting.items()):
            if key in present or not present.issuperset(item.uses):
                continue
            if key not in touched and touched.isdisjoint(item.uses):
                continue  # quarantined for a reason that has nothing to do with these tables
            changes.put("item", key, item)
            present.add(key)
            touched.add(key)
            again = True
