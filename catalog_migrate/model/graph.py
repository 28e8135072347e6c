"""Who uses whom: orders, waves, dependents, circles and the path that explains each of them.

The one place where edges are walked. Every answer is a function of the objects alone, never of the
order they were read in: nodes are ranked by :func:`catalog_migrate.model.objects.order_key`, ties
do not exist. networkx sorts, and finds the way round a circle; what a start without a change,
``status`` and a session's names ask for goes without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TypeVar

from catalog_migrate.errors import DependencyCycle, UsageError
from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.model.objects import order_key

Node = TypeVar("Node", bound=str | Identity)


class DependencyGraph:
    """The dependencies of one release or catalog: types, tables, views, connections, queries.

    ``uses`` names for each object what it uses directly (an object that uses nothing may be left
    out), ``keys`` has the key of every object; an identity in ``uses`` without a key is a
    :class:`UsageError`. ``links`` says of some objects as what they use another, by role
    (``connection``, ``reads``); an edge without a role is possible. A cycle is found by the methods
    that need an order (and by :meth:`cycle`), not by the constructor, so that graphs of broken
    releases can be looked at.
    """

    def __init__(
        self, uses: Mapping[Identity, Iterable[Identity]], keys: Mapping[Identity, ItemKey],
        links: Mapping[Identity, Mapping[str, Identity]] | None = None,
    ) -> None:
        self._keys = keys
        self._links = {} if links is None else links
        self._uses = {node: tuple(dict.fromkeys(uses.get(node, ()))) for node in keys}
        self._used_by: dict[Identity, list[Identity]] = {node: [] for node in keys}
        for node, used in self._uses.items():
            for other in used:
                if other not in self._used_by:
                    raise _unknown(other)
                self._used_by[other].append(node)
        if not uses.keys() <= keys.keys():
            raise _unknown(min(uses.keys() - keys.keys()))
        self._explained: tuple[frozenset[Identity], dict[Identity, Identity | None]] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, node: object) -> bool:
        return node in self._keys

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._rank)

    def key(self, node: Identity) -> ItemKey:
        """The key of an object of the graph."""
        return self._keys[node]

    def uses(self, node: Identity) -> tuple[Identity, ...]:
        """What ``node`` uses directly, in rank order; () for a node that is not in the graph."""
        return self._ranked(self._uses.get(node, ()))

    def used_by(self, node: Identity) -> tuple[Identity, ...]:
        """What uses ``node`` directly, in rank order; () for a node that is not in the graph."""
        return self._ranked(self._used_by.get(node, ()))

    def roles(self, user: Identity, used: Identity) -> tuple[str, ...]:
        """As what ``user`` uses ``used``, sorted; () where no role is on record."""
        links = self._links.get(user, {})
        return tuple(sorted(role for role, other in links.items() if other == used))

    def topological(self) -> tuple[Identity, ...]:
        """All objects, what is used first, of several possible next ones the lowest rank.

        Raises :class:`DependencyCycle`.
        """
        return self._topological

    def reverse_topological(self) -> tuple[Identity, ...]:
        """:meth:`topological` backwards: what uses comes before what is used."""
        return self._topological[::-1]

    def waves(self, subset: Iterable[Identity] | None = None) -> tuple[tuple[Identity, ...], ...]:
        """The objects of ``subset`` (all by default) in groups that may be worked on at once.

        An object stands in the wave after the last one of those of the subset that it uses,
        directly or through objects outside the subset; ranked within a wave. Backwards the waves
        are an order for drops. Nodes that are not in the graph are ignored. Imports nothing: every
        start of a session asks for it. Raises :class:`DependencyCycle` for one among the objects
        and what they use.
        """
        chosen: Collection[Identity] = self._keys.keys()
        if subset is not None:
            chosen = {node for node in subset if node in self._keys}
        ordered, stuck = self._used_first(
            chosen if subset is None else {*chosen, *self.dependencies(chosen)}
        )
        if stuck:
            raise self._in_a_circle()
        level: dict[Identity, int] = {}
        groups: list[list[Identity]] = []
        for node in ordered:
            depth = max((level[used] + (used in chosen) for used in self._uses[node]), default=0)
            level[node] = depth
            if node in chosen:
                if depth == len(groups):
                    groups.append([])
                groups[depth].append(node)
        return tuple(map(self._ranked, groups))

    def dependents(
        self, roots: Iterable[Identity], *, both: DependencyGraph | None = None,
        without: Container[Identity] = (), role: Callable[[str], bool] | None = None,
    ) -> frozenset[Identity]:
        """Everything that uses one of ``roots``, directly or not; a root only when it does, too.

        With ``both`` only what uses it there as well is followed; what is in ``without`` is not.
        With ``role`` only those edges are followed of which it accepts a role.
        """

        def users(node: Identity) -> Iterable[Identity]:
            there = self._used_by.get(node, [])
            if both is None and not without and role is None:
                return there
            also = there if both is None else both._used_by.get(node, [])
            return [
                user for user in there if user in also and user not in without
                and (role is None or any(map(role, self.roles(user, node))))
            ]

        return _reached(roots, users)

    def dependencies(self, roots: Iterable[Identity]) -> frozenset[Identity]:
        """Everything that one of ``roots`` uses, directly or not; a root only when it is, too."""
        return _reached(roots, lambda node: self._uses.get(node, ()))

    def with_dependencies(self, nodes: Iterable[Identity]) -> DependencyGraph:
        """The part of the graph that has ``nodes`` and everything that they use, directly or not.

        The order and the waves of ``nodes`` are the same in it. Unknown nodes are ignored.
        """
        chosen = set(nodes)
        return self.part(chosen | self.dependencies(chosen))

    def part(self, nodes: Iterable[Identity]) -> DependencyGraph:
        """The graph of ``nodes`` alone, with the edges between them; unknown ones are ignored."""
        kept = {node for node in nodes if node in self._keys}
        return DependencyGraph(
            {node: [used for used in self._uses[node] if used in kept] for node in kept},
            {node: self._keys[node] for node in kept},
            {node: self._links[node] for node in kept & self._links.keys()},
        )

    def because(self, roots: Container[Identity], node: Identity) -> tuple[Identity, ...]:
        """The shortest path from one of ``roots`` up to ``node``, which is ``(node,)`` for a root.

        Of several shortest paths the one whose display names come first; () when none of the
        roots is used by ``node``. Asked for many nodes, hand over a frozenset: the work for its
        roots is then done once.
        """
        found = self._explained
        if found is None or found[0] is not roots:
            starts = frozenset(identity for identity in self._keys if identity in roots)
            if found is None or found[0] != starts:
                memo = roots if isinstance(roots, frozenset) else starts
                found = self._explained = memo, self._explain(starts)
        return _path(found[1], node)

    def cycle(self) -> tuple[Identity, ...]:
        """A shortest cycle through the lowest-ranked object that is on one; () without cycles."""
        stuck = self._ranked(self.without_order)
        return next((path for path in map(self.loop, stuck) if path), ())

    def loop(self, node: Identity) -> tuple[Identity, ...]:
        """A shortest cycle through ``node``; () when it is on none, which costs next to nothing.

        Its first and last element are the same; each uses the next.
        """
        if node not in self.without_order:
            return ()
        import networkx

        used = networkx.from_dict_of_lists(dict(self._uses_in_order()), networkx.DiGraph)
        parents: dict[Identity, Identity | None] = {node: None}
        parents.update(networkx.bfs_predecessors(used, node))
        last = next((each for each in parents if node in self._uses[each]), None)
        return () if last is None else (*_path(parents, last), node)

    @cached_property
    def without_order(self) -> frozenset[Identity]:
        """What is on a cycle or uses something that is: none of it has a place in an order."""
        return frozenset(self._used_first(self._keys.keys())[1])

    @cached_property
    def _rank(self) -> dict[Identity, int]:
        ranked = sorted(self._keys, key=lambda node: order_key(self._keys[node]))
        return {node: number for number, node in enumerate(ranked)}

    def _ranked(self, nodes: Collection[Identity]) -> tuple[Identity, ...]:
        if len(nodes) < 2:
            return tuple(nodes)
        return tuple(sorted(nodes, key=self._rank.__getitem__))

    def _uses_in_order(self) -> tuple[tuple[Identity, tuple[Identity, ...]], ...]:
        return tuple((node, self.uses(node)) for node in self._rank)

    def _used_first(self, within: Collection[Identity]) -> tuple[list[Identity], set[Identity]]:
        """Objects in some order, each behind what it uses, and those that have no such place.

        ``within`` has everything that its objects use.
        """
        open_uses = {node: len(self._uses[node]) for node in within}
        ready = [node for node, count in open_uses.items() if count == 0]
        ordered: list[Identity] = []
        while ready:
            node = ready.pop()
            ordered.append(node)
            for user in self._used_by[node]:
                if user in open_uses:
                    open_uses[user] -= 1
                    if open_uses[user] == 0:
                        ready.append(user)
        return ordered, open_uses.keys() - ordered

    def _in_a_circle(self) -> DependencyCycle:
        path = tuple(str(self._keys[node]) for node in self.cycle())
        return DependencyCycle(
            f"objects use each other in a circle: {' -> '.join(path)}",
            path=path,
            remedy="take one of these references out",
        )

    def _explain(self, starts: frozenset[Identity]) -> dict[Identity, Identity | None]:
        """For each node reached from ``starts`` the node before it on its first shortest path."""
        shown = {node: str(key) for node, key in self._keys.items()}
        layer = sorted(starts, key=shown.__getitem__)
        parents: dict[Identity, Identity | None] = dict.fromkeys(layer)
        while layer:
            following: dict[Identity, int] = {}
            # A layer is sorted by its paths, so the first parent met has the first path.
            for position, node in enumerate(layer):
                for user in self._used_by[node]:
                    if user not in parents:
                        parents[user] = node
                        following[user] = position
            layer = sorted(following, key=lambda user: (following[user], shown[user]))
        return parents

    @cached_property
    def _topological(self) -> tuple[Identity, ...]:
        order = _sorted_graph(self._uses_in_order())
        if order is None:
            raise self._in_a_circle()
        return order


def _unknown(identity: Identity) -> UsageError:
    return UsageError(
        f"the graph has no object {identity!r}",
        remedy="give a key for every object that is used", identity=identity,
    )


def _path(parents: Mapping[Identity, Identity | None], node: Identity) -> tuple[Identity, ...]:
    """From the first parent, which has none itself, to ``node``; () when it has no entry."""
    path = []
    here = node if node in parents else None
    while here is not None:
        path.append(here)
        here = parents[here]
    return tuple(reversed(path))


def chain(start: Node, following: Callable[[Node], Node | None]) -> list[Node]:
    """``start``, what it leads to, and so on; ends before anything would come again."""
    found = [start]
    node = following(start)
    while node is not None and node not in found:
        found.append(node)
        node = following(node)
    return found


def find_cycle(
    roots: Iterable[Node], uses: Callable[[Node], Iterable[Node]], known: Container[Node]
) -> list[Node]:
    """A circle of uses that one of ``roots`` leads to, its first node also last; else empty.

    ``uses`` is asked for ``known`` nodes only. The circle begins with the least of its nodes.
    Iterative, so that depth does not matter; without a library, so that it costs nothing.
    """
    done: set[Node] = set()
    for root in roots:
        if root in done:
            continue
        trail = [root]
        on_trail = {root}
        pending = [iter(uses(root))]
        while pending:
            for node in pending[-1]:
                if node in on_trail:
                    circle: list[Node] = trail[trail.index(node) :]
                    first: int = circle.index(min(circle))
                    return [*circle[first:], *circle[: first + 1]]
                if node not in done and node in known:
                    trail.append(node)
                    on_trail.add(node)
                    pending.append(iter(uses(node)))
                    break
            else:
                pending.pop()
                node = trail.pop()
                on_trail.discard(node)
                done.add(node)
    return []


def _reached(
    roots: Iterable[Identity], near: Callable[[Identity], Iterable[Identity]]
) -> frozenset[Identity]:
    reached: set[Identity] = set()
    waiting = list(roots)
    while waiting:
        for node in near(waiting.pop()):
            if node not in reached:
                reached.add(node)
                waiting.append(node)
    return frozenset(reached)


@lru_cache(maxsize=8)
def _sorted_graph(
    ranked: tuple[tuple[Identity, tuple[Identity, ...]], ...],
) -> tuple[Identity, ...] | None:
    """The lexicographic topological order of (node, what it uses) in rank order, None for a cycle.

    Remembered, because the NEW graph of one plan is the OLD graph of the next.
    """
    import networkx  # here: its 100 ms are not for a plan without changes

    graph = networkx.DiGraph()
    graph.add_nodes_from(node for node, _ in ranked)
    graph.add_edges_from((used, node) for node, uses in ranked for used in uses)
    rank = {node: number for number, (node, _) in enumerate(ranked)}
    try:
        return tuple(networkx.lexicographical_topological_sort(graph, key=rank.__getitem__))
    except networkx.NetworkXUnfeasible:
        return None
