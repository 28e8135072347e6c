"""Along uses without the graph library: waves, a circle, a chain.

For what must start at once: :mod:`catalog_migrate.model.graph` imports networkx, which takes longer
than a start without a change.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TypeVar

from catalog_migrate.model.names import Identity

Step = TypeVar("Step", bound=Hashable)
Node = TypeVar("Node", bound=str | Identity)


def measure_depths(
    order: Iterable[Step], uses: Mapping[Step, Iterable[Step]], chosen: Container[Step],
    floor: Mapping[Step, int] = MappingProxyType({}),
) -> dict[Step, int]:
    """How many of the ``chosen`` each node waits for, one after the other; at least its ``floor``.

    ``order`` has each node behind all that it uses. A node waits for those that it uses directly or
    through others.
    """
    depths: dict[Step, int] = {}
    for node in order:
        depth = floor.get(node, 0)
        for used in uses[node]:
            depth = max(depth, depths[used] + (used in chosen))
        depths[node] = depth
    return depths


def group_in_waves(depths: Mapping[Step, int], chosen: Container[Step]) -> list[list[Step]]:
    """Group the ``chosen`` by their depths, the least first."""
    waves: dict[int, list[Step]] = {}
    for node, depth in depths.items():
        if node in chosen:
            waves.setdefault(depth, []).append(node)
    return [waves[depth] for depth in sorted(waves)]


def find_cycle(
    roots: Iterable[Node], uses: Callable[[Node], Iterable[Node]], known: Container[Node]
) -> list[Node]:
    """Return a circle of uses that one of ``roots`` leads to, its first node also last; else empty.

    ``uses`` is asked for ``known`` nodes only. The circle begins with the least of its nodes.
    """
    sorter: TopologicalSorter[Node] = TopologicalSorter()
    reached = dict.fromkeys(roots)
    for root in reached:
        sorter.add(root)
    waiting = list(reached)
    for node in waiting:  # it grows
        for used in uses(node):
            if used in known:
                sorter.add(used, node)
                if used not in reached:
                    reached[used] = None
                    waiting.append(used)
    try:
        sorter.prepare()
    except CycleError as error:
        circle: list[Node] = error.args[1][:-1]
        first = circle.index(min(circle))
        return [*circle[first:], *circle[: first + 1]]
    return []


def chain(start: Node, following: Callable[[Node], Node | None]) -> list[Node]:
    """``start``, what it leads to, and so on; ends before anything would come again."""
    found = [start]
    node = following(start)
    while node is not None and node not in found:
        found.append(node)
        node = following(node)
    return found
