"""Typed column lists that a release leaves to Spark: found against stand-ins, nothing written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.engine.port import BindRequest
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.reconciler.actions import function_spec, view_spec
from catalog_migrate.release.manifest import creation_order

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.release.release import Release


def find_contracts(engine: Engine, release: Release) -> Mapping[Identity, Sequence[Column] | str]:
    """The columns of the views without a typed list, or Spark's reason why there are none.

    Views that read one of the latter are left out: what is wrong with them cannot be known.
    """
    ordered = creation_order(release)
    functions = [function_spec(each, {}) for each in ordered if each.kind == "function"]
    columns: dict[ItemName, Sequence[Column]] = {}
    found: dict[Identity, Sequence[Column] | str] = {}
    unknown: set[Identity] = set()
    for definition in ordered:
        if definition.kind != "view" or definition.columns:
            columns[definition.item_name] = definition.columns
            continue
        uses = release.uses.get(definition.identity, ())
        if not unknown.isdisjoint(uses):
            unknown.add(definition.identity)
            continue
        parents = {
            parent.item_name: columns[parent.item_name]
            for parent in (release.by_identity[use] for use in uses)
            if parent.kind in ("table", "view")
        }
        (result,) = engine.bind([BindRequest(view_spec(definition, {}), parents, functions)])
        if result.columns is None:
            unknown.add(definition.identity)
            found[definition.identity] = result.reason or "it does not analyse"
        else:
            found[definition.identity] = columns[definition.item_name] = result.columns
    return found
