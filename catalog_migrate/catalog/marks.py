"""Whose a shard is, as its own Delta log says: for other installations, and for a lost catalog.

The marks are table properties under a prefix of their own. They take no part in fingerprints or
storage hashes, so that a marked table compares like one that is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import ItemKey, quote_part, split_name
from catalog_migrate.model.objects import ObjectDefinition

PREFIX = "catalog_migrate."
LINEAGE = PREFIX + "lineage"
HOME = PREFIX + "home"
ITEM = PREFIX + "item"
NAME = PREFIX + "name"
CONTENTS = PREFIX + "contents"
SOURCE = PREFIX + "source"


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


def marks_of(
    state: State, item_id: str, definition: ObjectDefinition, source: str | None = None
) -> dict[str, str]:
    """The properties of a shard that is being made for an item of ``state``."""
    home = state.config.get("home")
    marks = {
        LINEAGE: state.lineage,
        ITEM: item_id,
        NAME: f"{definition.kind}:{quote_part(definition.schema)}.{quote_part(definition.name)}",
        CONTENTS: definition.contents or "",
    }
    if home is not None:
        marks[HOME] = home.value
    if source is not None:
        marks[SOURCE] = source
    return marks


def read_mark(properties: Mapping[str, str]) -> Mark | None:
    """The mark among a table's properties; None for a table that is nobody's."""
    lineage = properties.get(LINEAGE)
    if not lineage:
        return None
    kind, _, name = properties.get(NAME, "").partition(":")
    key: ItemKey | None = None
    if name:
        schema, bare = split_name(name)
        key = ItemKey(schema or "", kind, bare)
    return Mark(
        lineage=lineage,
        home=properties.get(HOME, ""),
        item_id=properties.get(ITEM, ""),
        key=key,
        contents=properties.get(CONTENTS, ""),
        source=properties.get(SOURCE, ""),
    )


def cleared() -> dict[str, str]:
    """The properties of a table that is given back; delta-rs cannot take a property off."""
    return dict.fromkeys((LINEAGE, HOME, ITEM, NAME, CONTENTS, SOURCE), "")
