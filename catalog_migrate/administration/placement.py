"""Where the directories of tables and catalogs lie: in one another, or in one place by links.

Looks only; whoever finds a reason here refuses the whole adoption or relocation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from catalog_migrate.catalog.opening import HOME, open_log, read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.commits import is_same_commit
from catalog_migrate.delta.directory import table_around
from catalog_migrate.delta.table import shard_version
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.paths import is_absolute, shard_location
from catalog_migrate.store import is_seen
from catalog_migrate.store.address import is_remote, is_same_place, is_within, resolved


def held(directory: str, state: State | None, home: str, warehouse: str) -> Iterator[str]:
    """What of a catalog lies inside a real directory: a migration would remove that one day."""
    for place, what in places(home, warehouse):
        if is_within(resolved(place), directory):
            yield f"{what} {place}"
    if state is None:
        return
    for path, record in sorted(state.shards.items()):
        if not is_absolute(path) or record.state not in ("live", "retired"):
            continue
        lies = resolved(path)
        if lies != directory and is_within(lies, directory):
            yield f"{path}, a table of {record.item_id},"


def places(home: str, warehouse: str) -> Iterator[tuple[str, str]]:
    """The directories of a catalog, and what each is; none of those on an object store."""
    for place, what in ((home, "the catalog"), (warehouse, "the catalog's warehouse")):
        if not is_remote(place):
            yield place, what


def originals_shards(state: State) -> frozenset[str]:
    """Real directories of every shard that the installation which this is a copy of has now.

    Empty when that one is missing or does not answer: then nobody can say.
    """
    record = state.config.get(HOME)
    if record is None:
        return frozenset()
    try:
        original = read_state(open_log(record.value))
    except (CatalogMigrateError, OSError):
        return frozenset()
    if original.lineage != state.lineage:
        return frozenset()
    place = original.setting("warehouse")
    return frozenset(resolved(shard_location(place, shard)) for shard in original.shards)


def shared(state: State, old: str, new: str, theirs: Collection[str]) -> Iterator[str]:
    """Directories in the warehouse ``new`` of a copy that are the original's, by links.

    Shards that are no table's any more count too, and those of attempts that died: the copy would
    remove them one day, or at once.
    """
    paths = {shard for shard in state.shards if not is_absolute(shard)}
    for intent in state.intents.values():
        paths.update(path for path in intent.paths if not is_absolute(path))
    for path in sorted(paths):
        here = shard_location(new, path)
        # a link is one though what it leads to is away
        if resolved(here) in theirs or (
            is_seen(here) and is_same_place(here, shard_location(old, path))
        ):
            yield here


def misplaced(path: str, state: State, home: str, warehouse: str) -> Iterator[str]:
    """Why a directory cannot be an adopted table's own: what is inside it, and what it is in."""
    real = resolved(path)
    for inside in held(real, state, home, warehouse):
        yield f"{inside} lies inside it"
    for place, what in places(home, warehouse):
        around = resolved(place)
        if real != around and is_within(real, around):
            yield f"it lies inside {what} {place}"
    outer = table_around(real)
    if outer is not None:
        yield f"it lies inside another table, {outer}"


def went_on(old: str, new: str) -> bool:
    """Whether a table that still stands in its old place has a commit that the new one lacks.

    It was copied then and not moved, and rows that came meanwhile would be left behind.
    """
    if is_same_place(old, new) or shard_version(new) is None:
        return False
    try:
        version = shard_version(old)
        return version is not None and not is_same_commit(old, new, version)
    except (CatalogMigrateError, OSError):
        return False  # what stands there cannot be read any more
