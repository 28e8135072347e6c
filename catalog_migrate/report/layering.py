"""Layers of a graph and the order within them: positions in, positions out.

An edge is a pair (used, user) of positions. ``page/graph.js`` has the same functions for what is
opened in a browser; ``tests/browser`` holds both against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Edge = tuple[int, int]

_SWEEPS = 8


def arrange(
    size: int, edges: Sequence[Edge], soft: Sequence[Edge] = (),
    rank: Sequence[int] | None = None,
) -> list[list[int]]:
    """Return the layers of the positions below ``size``, each in the order it is drawn in.

    What is used is in an earlier layer than its users, each user as early as that allows. An edge
    of ``soft`` that is on a circle counts for nothing; nor does, on a circle of ``edges``, one that
    does not lead to a higher ``rank``, which is that of each position, and the position by default.
    Neighbours in the order are those whose own neighbours are: each layer is sorted by the mean
    place of what its members use, then of their users, and so on.
    """
    kept = without_circles(size, edges, soft, rank)
    layers = generations(size, kept)
    used: list[list[int]] = [[] for _ in range(size)]
    users: list[list[int]] = [[] for _ in range(size)]
    for one, other in kept:
        used[other].append(one)
        users[one].append(other)
    place = [0.0] * size

    def mean(near: list[list[int]], node: int) -> float:
        beside = near[node]
        return sum(place[other] for other in beside) / len(beside) if beside else place[node]

    for layer in layers:
        _spread(layer, place)
    for sweep in range(_SWEEPS):
        near, ordered = (users, layers[::-1]) if sweep % 2 else (used, layers)
        for layer in ordered:
            wanted = {node: mean(near, node) for node in layer}
            layer.sort(key=wanted.__getitem__)
            _spread(layer, place)
    return layers


def generations(size: int, edges: Iterable[Edge]) -> list[list[int]]:
    """Return layer by layer the positions all of whose used ones are in earlier layers, ascending.

    What is on a circle, or uses something that is, is in no layer.
    """
    users: list[list[int]] = [[] for _ in range(size)]
    waiting = [0] * size
    for used, user in edges:
        users[used].append(user)
        waiting[user] += 1
    layers: list[list[int]] = []
    layer = [node for node in range(size) if not waiting[node]]
    while layer:
        layers.append(layer)
        following = []
        for node in layer:
            for user in users[node]:
                waiting[user] -= 1
                if not waiting[user]:
                    following.append(user)
        layer = sorted(following)
    return layers


def without_circles(
    size: int, edges: Sequence[Edge], soft: Sequence[Edge] = (),
    rank: Sequence[int] | None = None,
) -> list[Edge]:
    """Return the edges that count for :func:`arrange`, those of ``soft`` last."""
    firm = [edge for edge in edges if edge[0] != edge[1]]
    both = [*firm, *(edge for edge in soft if edge[0] != edge[1])]
    if _is_ordered(size, both):
        return both
    circle = _circles(size, both)
    kept = [edge for edge in both[len(firm):] if circle[edge[0]] != circle[edge[1]]]
    if not _is_ordered(size, firm):
        circle = _circles(size, firm)
        height = range(size) if rank is None else rank
        firm = [
            (used, user) for used, user in firm
            if circle[used] != circle[user] or height[used] < height[user]
        ]
    return [*firm, *kept]


def _is_ordered(size: int, edges: Iterable[Edge]) -> bool:
    return sum(map(len, generations(size, edges))) == size


def _circles(size: int, edges: Iterable[Edge]) -> list[int]:
    """For each position a number that it has in common with those on a circle with it."""
    import networkx  # here: few graphs have circles

    graph = networkx.DiGraph(edges)
    graph.add_nodes_from(range(size))
    found = [0] * size
    for number, nodes in enumerate(networkx.strongly_connected_components(graph)):
        for node in nodes:
            found[node] = number
    return found


def _spread(layer: Sequence[int], place: list[float]) -> None:
    """Place the positions of a layer evenly between 0 and 1."""
    for number, node in enumerate(layer):
        place[node] = (number + 0.5) / len(layer)
