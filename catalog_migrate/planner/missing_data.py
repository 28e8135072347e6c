"""Whether the rows of the tables in force are where the catalog says; where not, nothing begins.

A disk that is not mounted looks like a table that is lost. A start that went on would leave names
that lead nowhere, and a writer by path would begin a new table in the mount point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.model.paths import is_absolute, shard_location
from catalog_migrate.store.address import is_remote

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State


class MissingData(msgspec.Struct, frozen=True):
    """What is not there: a table, or the directory of them all."""

    name: str
    reason: str
    remedy: str


def missing_data(
    state: State, why_missing: Callable[[str], str | None], touched: Collection[str] = ()
) -> tuple[MissingData, ...]:
    """Return the release's tables whose directories show no Delta log any more, by name.

    ``why_missing`` looks at an absolute path; None where a log is. On an object store each look is
    a request, so only items that are ``touched`` are looked at there. Where every one of several
    tables below the warehouse is gone, it is the warehouse.
    """
    warehouse = state.setting("warehouse")
    names: Mapping[str, str] = {}
    adopted: list[MissingData] = []
    below: list[MissingData] = []
    causes: set[str] = set()
    standing = 0
    within, is_far = shard_location(warehouse, ""), is_remote(warehouse)
    for shard, item_id in state.answers.tables.items():
        inside = not is_absolute(shard)
        path = within + shard if inside else shard
        if (is_far if inside else is_remote(path)) and item_id not in touched:
            standing += inside
            continue
        why = why_missing(path)
        if why is None:
            standing += inside
            continue
        causes.add(why)
        names = names or {each.item_id: str(each.key) for each in state.mappings.values()}
        name = names[item_id]
        moved = "" if inside else f"; moved: catalog-migrate relocate --table {name}=PATH"
        (below if inside else adopted).append(MissingData(
            name, f"its rows cannot be seen: no Delta log is at {path}: {why}",
            remedy=f"mount the disk, or restore {path} from a backup{moved}; lost for good: a"
            f" release without the table drops it with --approve {name}",
        ))
    if not standing and len(below) > 1:
        below = [MissingData(
            warehouse,
            f"the rows of {len(below):,} tables cannot be seen: no Delta log is below {warehouse}:"
            f" {', '.join(sorted(causes))}",
            remedy="mount the disk, or restore the directory; "
            "moved: catalog-migrate relocate --warehouse DIR",
        )]
    return tuple(sorted((*below, *adopted), key=lambda each: each.name))
