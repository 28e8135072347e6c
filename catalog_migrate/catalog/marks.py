"""Whose a shard is, as its own Delta log says: for other installations, and for a lost catalog.

The marks are table properties under a prefix of their own. They take no part in fingerprints or
storage hashes, so that a marked table compares like one that is not. Compare-and-set puts them,
without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import quote

import msgspec

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.commit import Overtaken, commit_onto_newest
from catalog_migrate.delta.log import has_log
from catalog_migrate.errors import CatalogLost, EngineFailure
from catalog_migrate.model.names import ItemKey, quote_part, split_name
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.store import is_seen
from catalog_migrate.store.address import remember

PREFIX = "catalog_migrate."
LINEAGE = PREFIX + "lineage"
HOME = PREFIX + "home"
ITEM = PREFIX + "item"
NAME = PREFIX + "name"
CONTENTS = PREFIX + "contents"
SOURCE = PREFIX + "source"


_ATTEMPTS = 50
"""Races for the next version that are lost before a table counts as too busy."""


class Mark(msgspec.Struct, frozen=True):
    """Whose a shard is, as its log says.

    ``lineage`` and ``home`` (the catalog's address) name the installation, ``item_id`` and ``key``
    the object when the shard was made: a rename later does not reach the mark. ``source`` is the
    shard that the rows were copied from, relative to the warehouse.
    """

    lineage: str
    home: str = ""
    item_id: str = ""
    key: ItemKey | None = None
    contents: str = ""
    source: str = ""


class Marked(Exception):
    """A table carries the mark of another installation; the caller that marks catches it."""

    def __init__(self, path: str, mark: Mark) -> None:
        super().__init__(path)
        self.path = path
        self.mark = mark


def marks_of(
    state: State, item_id: str, definition: ObjectDefinition, source: str | None = None
) -> dict[str, str]:
    """Return the properties of a shard that is being made for an item of ``state``."""
    marks = {
        LINEAGE: state.lineage,
        ITEM: item_id,
        NAME: f"{definition.kind}:{quote_part(definition.schema)}.{quote_part(definition.name)}",
        CONTENTS: definition.contents or "",
    }
    home = state.home
    if home is not None:
        marks[HOME] = home
    if source is not None:
        marks[SOURCE] = source
    return marks


def read_mark(properties: Mapping[str, str]) -> Mark | None:
    """Return the mark among a table's properties; None for a table without one."""
    lineage = properties.get(LINEAGE)
    if not lineage:
        return None
    kind, _, name = properties.get(NAME, "").partition(":")
    key: ItemKey | None = None
    if name:
        schema, bare = split_name(name)
        key = ItemKey(schema or "", kind, bare)
    return Mark(
        lineage=lineage, home=properties.get(HOME, ""), item_id=properties.get(ITEM, ""), key=key,
        contents=properties.get(CONTENTS, ""), source=properties.get(SOURCE, ""),
    )


def clear_marks() -> dict[str, str]:
    """Return the properties of a table that is exported; delta-rs cannot take a property off."""
    return dict.fromkeys((LINEAGE, HOME, ITEM, NAME, CONTENTS, SOURCE), "")


def mark_at(path: str) -> Mark | None:
    """Return the mark of the Delta table at ``path``; None without one."""
    from catalog_migrate.delta.table import load_table

    return read_mark(load_table(path).metadata().configuration)


def put_mark(path: str, marks: Mapping[str, str], allowed: Callable[[Mark | None], bool]) -> int:
    """Mark a table whose present mark is ``allowed``, and return the version that carries ours.

    The commit lands exactly after the version that was looked at, so of two installations only
    one can win; the other finds the winner's mark. Raises :class:`Marked` then.
    """
    from catalog_migrate.delta.table import load_table, set_properties_after

    def attempt() -> int:
        table = load_table(path)
        configuration = table.metadata().configuration
        found = read_mark(configuration)
        if not allowed(found):
            assert found is not None, path
            raise Marked(path, found)
        if all(configuration.get(name) == value for name, value in marks.items()):
            return int(table.version())
        version = set_properties_after(path, dict(marks), follows=int(table.version()))
        if version is None:
            raise Overtaken
        return version

    return commit_onto_newest(
        attempt, attempts=_ATTEMPTS, too_busy=lambda: EngineFailure(
            f"{path} is written so often that it could not be marked",
            remedy="pause its writer and run again", transient=True,
        ),
    )


def clear_mark(path: str, lineage: str) -> bool:
    """Take our mark off a table; False when it is another's, or mark or table is missing."""
    if not has_log(path):
        return False
    found = mark_at(path)
    if found is None or found.lineage != lineage:
        return False
    put_mark(path, clear_marks(), lambda mark: mark is None or mark.lineage == lineage)
    return True


def refuse_lost(log: CatalogLog, warehouse: str) -> None:
    """Raise CatalogLost when shards below ``warehouse`` are of the catalog that ``log`` was.

    To be called where no catalog was found: its tables would be made again beside their rows. The
    rows are looked at with the options of the log: no catalog says yet that these are theirs.
    """
    from catalog_migrate.delta.table import tables_below

    home = log.home
    remember(warehouse, log.storage)
    if home is None or not is_seen(warehouse):
        return
    for path in tables_below(warehouse):
        try:
            mark = mark_at(path)
        except Exception:  # noqa: BLE001, S112 - what cannot be read says nothing
            continue
        if mark is not None and mark.home == home:
            raise CatalogLost(
                f"the catalog at {home} is missing, and {path} is one of its tables",
                remedy="restore the directory from a backup, or make it again from the release that"
                f" was in force: catalog-migrate rebuild --catalog {quote(home)}"
                f" --warehouse {quote(warehouse)} --release RELEASE",
                home=home, path=path,
            )
