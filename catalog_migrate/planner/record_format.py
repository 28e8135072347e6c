"""The record format that a catalog has to have for the objects of a migration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog_migrate.catalog.records import COLUMN_IDS_FORMAT, FIRST_FORMAT, IN_PLACE_FORMAT
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.model.table_properties import list_omitted
from catalog_migrate.planner.plan import Target

Before = Callable[[Target], ObjectDefinition | None]
"""What a target was before, None for a new object."""


def find_record_format(targets: Sequence[Target], before: Before) -> int:
    """Return the oldest format whose tools misread nothing of what the migration puts on record."""
    if any(_is_misread(target, before) for target in targets):
        return IN_PLACE_FORMAT
    numbered = any(target.column_ids is not None for target in targets)
    return COLUMN_IDS_FORMAT if numbered else FIRST_FORMAT


def _is_misread(target: Target, before: Before) -> bool:
    definition = target.definition
    if definition.kind == "function":
        return definition.returns is None
    if definition.kind != "table" or target.action is None:
        return False
    if target.fill is not None or target.sets_properties:
        return True
    if target.contents != "evolve" and target.action != "update":
        return False
    old = before(target)
    return old is not None and bool(list_omitted(old.properties, definition.properties))
