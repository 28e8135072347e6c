"""Who uses whom: orders, waves, dependents, circles and the path that explains each of them.

A :class:`networkx.DiGraph` with our rank: every answer is a function of the objects alone, never of
the order they were read in. The import takes longer than a start without a change: such a start,
``status`` and a session's names go by :mod:`catalog_migrate.model.walks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import networkx

from catalog_migrate.errors import DependencyCycle, UsageError
from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.model.objects import order_key
from catalog_migrate.model.walks import group_in_waves, measure_depths

_NOTHING: Mapping[Identity, Any] = MappingProxyType({})


class DependencyGraph(networkx.DiGraph):  # type: ignore[misc]  # networkx has no types
    """The dependencies of one release or catalog: types, tables, views, connections, queries.

    An edge goes from what is used to its user. ``uses`` names for each object what it uses directly
    (an object that uses nothing may be left out), ``keys`` has the key of every object; an identity
    in ``uses`` without a key is a :class:`UsageError`. ``links`` says of some objects as what they
    use another, by role (``connection``, ``reads``); an edge without a role is possible. A cycle is
    found by the methods that need an order (and by :meth:`cycle`), not by the constructor, so that
    graphs of broken releases can be looked at.

    Nodes, and the neighbours of each, are in the order of
    :func:`catalog_migrate.model.objects.order_key`, their rank. Neither is added later.
    """

    def __init__(
        self, uses: Mapping[Identity, Iterable[Identity]] = _NOTHING,
        keys: Mapping[Identity, ItemKey] = _NOTHING,
        links: Mapping[Identity, Mapping[str, Identity]] = _NOTHING,
    ) -> None:
        super().__init__()
        strangers = {used for each in uses.values() for used in each if used not in keys}
        strangers |= uses.keys() - keys.keys()
        if strangers:
            stranger = min(strangers)
            raise UsageError(
                f"the graph has no object {stranger!r}",
                remedy="give a key for every object that is used", identity=stranger,
            )
        ranked = sorted(keys, key=lambda node: order_key(keys[node]))
        self.add_nodes_from((node, {"key": keys[node]}) for node in ranked)
        self.add_edges_from(
            (used, user) for user in ranked if user in uses for used in self._by_rank(uses[user])
        )
        for user, roles in links.items():
            for role, used in sorted(roles.items()):
                if self.has_edge(used, user):
                    self.edges[used, user].setdefault("roles", []).append(role)
        self._explained: tuple[frozenset[Identity], dict[Identity, Identity | None]] | None = None

    def key(self, node: Identity) -> ItemKey:
        """Return the key of an object of the graph."""
        key: ItemKey = self.nodes[node]["key"]
        return key

    def uses(self, node: Identity) -> tuple[Identity, ...]:
        """What ``node`` uses directly, in rank order; () for a node that is not in the graph."""
        return tuple(self._pred.get(node, ()))

    def users_of(self, node: Identity) -> tuple[Identity, ...]:
        """What uses ``node`` directly, in rank order; () for a node that is not in the graph."""
        return tuple(self._succ.get(node, ()))

    def roles(self, user: Identity, used: Identity) -> tuple[str, ...]:
        """As what ``user`` uses ``used``, sorted; () where no role is on record."""
        return tuple(self.get_edge_data(used, user, {}).get("roles", ()))

    def topological(self) -> tuple[Identity, ...]:
        """Return all objects, what is used first, of several possible next ones the lowest rank.

        Raises :class:`DependencyCycle`.
        """
        return self._topological

    def waves(self, subset: Iterable[Identity] | None = None) -> tuple[tuple[Identity, ...], ...]:
        """The objects of ``subset`` (all by default) in groups that may be worked on at once.

        An object is in the wave after the last one of those of the subset that it uses, directly or
        through objects outside the subset; ranked within a wave. Backwards the waves are an order
        for drops. Nodes that are not in the graph are ignored. Raises :class:`DependencyCycle` for
        one among the objects and what they use.
        """
        chosen, within = set(self.nbunch_iter(None if subset is None else [*subset])), self
        if len(chosen) < len(self):
            within = self.subgraph(chosen | self.dependencies(chosen))
        try:
            depths = measure_depths(networkx.topological_sort(within), self._pred, chosen)
        except networkx.NetworkXUnfeasible:
            raise self._in_a_circle() from None
        return tuple(map(self._by_rank, group_in_waves(depths, chosen)))

    def dependents(
        self, roots: Iterable[Identity], *,
        edge: Callable[[Identity, Identity], bool] | None = None,
    ) -> frozenset[Identity]:
        """Everything that uses one of ``roots``, directly or not; a root only when it does, too.

        With ``edge`` only the edges are followed of which it accepts what is used and its user.
        """
        return _reach(
            self if edge is None else networkx.subgraph_view(self, filter_edge=edge), roots
        )

    def dependencies(self, roots: Iterable[Identity]) -> frozenset[Identity]:
        """Everything that one of ``roots`` uses, directly or not; a root only when it is, too."""
        return _reach(self.reverse(copy=False), roots)

    def part(self, nodes: Iterable[Identity]) -> DependencyGraph:
        """The graph of ``nodes`` alone, with the edges between them; unknown ones are ignored."""
        kept = set(nodes)
        part: DependencyGraph
        part = networkx.subgraph_view(self, filter_node=kept.__contains__).copy()
        return part

    def because(self, roots: Iterable[Identity], node: Identity) -> tuple[Identity, ...]:
        """The shortest path from one of ``roots`` up to ``node``, which is ``(node,)`` for a root.

        Of several shortest paths the one whose display names come first; () when none of the
        roots is used by ``node``. Asked for many nodes, hand over a frozenset: the work for its
        roots is then done once.
        """
        starts = frozenset(roots)
        if self._explained is None or self._explained[0] is not starts:
            self._explained = starts, self._explain(starts)
        return _path(self._explained[1], node)

    def cycle(self) -> tuple[Identity, ...]:
        """A shortest cycle through the lowest-ranked object that is on one; () without cycles."""
        return next(filter(None, map(self.loop, self)), ())

    def loop(self, node: Identity) -> tuple[Identity, ...]:
        """A shortest cycle through ``node``; () when it is on none, which costs next to nothing.

        Its first and last element are the same; each uses the next.
        """
        if node not in self.without_order:
            return ()
        back = networkx.bfs_predecessors(self.reverse(copy=False), node)
        parents: dict[Identity, Identity | None] = {node: None, **dict(back)}
        last = next((each for each in parents if self.has_edge(node, each)), None)
        return () if last is None else (*_path(parents, last), node)

    @cached_property
    def without_order(self) -> frozenset[Identity]:
        """What is on a cycle or uses something that is: none of it has a place in an order."""
        if networkx.is_directed_acyclic_graph(self):
            return frozenset()
        circles = [*networkx.selfloop_edges(self)]
        circles += (each for each in networkx.strongly_connected_components(self) if len(each) > 1)
        on_one = frozenset().union(*circles)
        return on_one | self.dependents(on_one)

    @cached_property
    def _topological(self) -> tuple[Identity, ...]:
        try:
            return tuple(networkx.lexicographical_topological_sort(self, self._rank.__getitem__))
        except networkx.NetworkXUnfeasible:
            raise self._in_a_circle() from None

    @cached_property
    def _rank(self) -> dict[Identity, int]:
        return {node: number for number, node in enumerate(self)}

    def _by_rank(self, nodes: Iterable[Identity]) -> tuple[Identity, ...]:
        return tuple(sorted(nodes, key=self._rank.__getitem__))

    def _in_a_circle(self) -> DependencyCycle:
        path = tuple(str(self.key(node)) for node in self.cycle())
        return DependencyCycle(
            f"objects use each other in a circle: {' -> '.join(path)}",
            path=path,
            remedy="take one of these references out",
        )

    def _explain(self, starts: frozenset[Identity]) -> dict[Identity, Identity | None]:
        """For each node reached from ``starts`` the node before it on its first shortest path."""
        roots = [*self.nbunch_iter([*starts])]
        parents: dict[Identity, Identity | None] = dict.fromkeys(roots)
        places: dict[Identity | None, int] = {None: 0}  # of the layer before, by their paths
        for layer in networkx.bfs_layers(self, roots):
            for node in layer:
                if node not in parents:
                    near = (used for used in self._pred[node] if used in places)
                    parents[node] = min(near, key=places.__getitem__)
            ordered = sorted(layer, key=lambda node: (places[parents[node]], str(self.key(node))))
            places = {node: place for place, node in enumerate(ordered)}
        return parents


def _reach(graph: networkx.DiGraph, roots: Iterable[Identity]) -> frozenset[Identity]:
    layers = networkx.bfs_layers(graph, [*graph.nbunch_iter([*roots])])
    return frozenset(near for layer in layers for node in layer for near in graph[node])


def _path(parents: Mapping[Identity, Identity | None], node: Identity) -> tuple[Identity, ...]:
    """From the first parent, which has none itself, to ``node``; () when it has no entry."""
    path = []
    here = node if node in parents else None
    while here is not None:
        path.append(here)
        here = parents[here]
    return tuple(reversed(path))
