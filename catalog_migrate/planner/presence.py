"""Whether the rows of the tables in force are where the catalog says; where not, nothing begins.

A disk that is not mounted looks like a table that is lost. A start that went on would leave names
that lead nowhere, and a writer by path would begin a new table in the mount point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.model.paths import is_absolute, shard_location

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State


class Gone(msgspec.Struct, frozen=True):
    """What is not there: a table, or the directory of them all."""

    name: str
    reason: str
    remedy: str


def gone(state: State, stands: Callable[[str], bool]) -> tuple[Gone, ...]:
    """The release's tables whose directories have no Delta log any more, by name.

    ``stands`` looks at an absolute path. Where every one of several tables below the warehouse is
    gone, it is the warehouse.
    """
    tables = {
        mapping.item_id: mapping for mapping in state.mappings.values()
        if mapping.kind == "table" and mapping.owner == "release"
    }
    if not tables:
        return ()
    warehouse = state.setting("warehouse")
    found: list[Gone] = []
    below = lost = 0
    for shard, record in state.shards.items():
        if record.state != "live" or record.item_id not in tables:
            continue
        path = shard_location(warehouse, shard)
        inside = not is_absolute(shard)
        below += inside
        if stands(path):
            continue
        lost += inside
        name = str(tables[record.item_id].key)
        found.append(Gone(
            name, f"its rows are gone: there is no Delta table at {path}",
            remedy=f"mount the disk, or restore {path} from a backup"
            + ("" if inside else f"; moved: catalog-migrate relocate --table {name}=PATH"),
        ))
    if lost == below and lost > 1:
        found = [each for each in found if "relocate" in each.remedy]
        found.append(Gone(
            warehouse, f"the rows of {lost:,} tables are gone: none is below {warehouse}",
            remedy="mount the disk, or restore the directory; "
            "moved: catalog-migrate relocate --warehouse DIR",
        ))
    return tuple(sorted(found, key=lambda each: each.name))
