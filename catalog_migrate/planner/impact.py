"""The impact of a change: every dependent was built against ids, and those ids change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from catalog_migrate.model.names import Identity

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.planner.diff import Difference


def roots_of(difference: Difference) -> frozenset[Identity]:
    """Names of the release under which another id stands than before.

    These are objects that migrate by themselves (renamed ones included) and new objects under the
    name of an old one of another kind. A wholly new name is nobody's root: what reads it now must
    have another definition and is redefined.
    """
    return frozenset(
        identity
        for identity, compared in difference.objects.items()
        if compared.action == "migrate" or compared.created_over
    )


def impact_paths(
    graph: DependencyGraph, roots: frozenset[Identity], difference: Difference
) -> Mapping[Identity, tuple[Identity, ...]]:
    """For each dependent of a root in the NEW graph, the path from its root to it.

    New objects are not among them: they have no earlier id that could change.
    """
    return {
        identity: graph.because(roots, identity)
        for identity in graph.dependents(roots)
        if identity not in roots and difference.objects[identity].action != "create"
    }
