"""Typed column lists that a release leaves to Spark: found against stand-ins, nothing written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.engine.port import BindRequest, function_spec
from catalog_migrate.migrations.actions import view_spec
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.manifest import creation_order

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.release.release import Release


def find_contracts(engine: Engine, release: Release) -> Mapping[Identity, Sequence[Column] | str]:
    """Return the columns of the views without a typed list, or Spark's reason why there are none.

    Views that read one of the latter are left out: what is wrong with them cannot be known.
    """
    columns: dict[ItemName, Sequence[Column]] = {}
    found: dict[Identity, Sequence[Column] | str] = {}
    waiting: dict[Identity, BindRequest] = {}
    for definition in creation_order(release):
        if definition.kind == "view" and not definition.columns:
            waiting[definition.identity] = BindRequest(view_spec(definition, {}), {})
        else:
            columns[definition.item_name] = definition.columns
    calls = release.graph.part(_functions(release))
    reached = {identity: _find_reached(release, calls, identity) for identity in waiting}
    while ready := [one for one in waiting if waiting.keys().isdisjoint(reached[one])]:
        requests = [
            _request_with_columns(
                waiting[identity], [release.by_identity[one] for one in reached[identity]], columns
            )
            for identity in ready
        ]
        for identity, result in zip(ready, engine.bind(requests), strict=True):
            if result.columns is None:  # it stays waiting, and so does what reads it
                found[identity] = result.reason or "it does not analyse"
                reached[identity].add(identity)
            else:
                found[identity] = columns[result.name] = result.columns
                del waiting[identity]
    return found


def _functions(release: Release) -> Iterator[Identity]:
    return (one for one, each in release.by_identity.items() if each.kind == "function")


def _request_with_columns(
    request: BindRequest, read: Sequence[ObjectDefinition],
    columns: Mapping[ItemName, Sequence[Column]],
) -> BindRequest:
    """The request of a view with what it reads and calls."""
    return replace(
        request,
        parents={
            each.item_name: columns[each.item_name]
            for each in read if each.kind in ("table", "view")
        },
        functions=[function_spec(each, {}) for each in read if each.kind == "function"],
    )


def _find_reached(release: Release, calls: DependencyGraph, identity: Identity) -> set[Identity]:
    """What a view reads and calls, also through the functions that it calls."""
    read = set(release.uses.get(identity, ()))
    own = {each for each in read if each in calls}
    called = own | calls.dependencies(own)
    return read | called | {use for each in called for use in release.uses.get(each, ())}
