"""The one order: drops, creates and redefines, such that nothing misses what it reads.

The planner orders a program by it; the reconciler and a session order by it what they observe to
be missing. Steps of one wave may go side by side.

Precedence, as edges of one graph over steps:

* a drop comes before the drops of what the object used in OLD,
* a create comes after the creates of what the object uses in NEW,
* a name is dropped before it is created again,
* what goes on under another name loses the old one before it gets the new one,
* a redefine comes after the creates and redefines that it reads in NEW, and before the drops of
  what it read in OLD and reads no more.

Without redefines this graph has no cycle. With them it may (names swapped); then a redefined
object on the cycle and its users are dropped and created instead, with their ids kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.model.objects import order_key
from catalog_migrate.model.walks import group_in_waves, measure_depths

if TYPE_CHECKING:
    import networkx

    from catalog_migrate.model.graph import DependencyGraph

_DROP, _REDEFINE, _CREATE, _PASS = "drop", "redefine", "create", "pass"
_RANK = {_PASS: 0, _DROP: 1, _REDEFINE: 2, _CREATE: 3}

_NO_RENAMES: Mapping[Identity, Identity] = MappingProxyType({})

_Node = tuple[str, Identity]
"""(``old``: the name goes or stays; ``new``: it comes or stays; ``redefine``, identity)."""


Wave = tuple[tuple[str, Identity], ...]
"""(``drop``, ``redefine`` or ``create``, identity): steps that may go side by side."""


class Order(msgspec.Struct, frozen=True):
    """Drops and creates, each in order.

    ``recreated`` are redefined objects, and users of such, that are dropped and created.
    """

    drops: tuple[Identity, ...]
    creates: tuple[Identity, ...]
    recreated: frozenset[Identity] = frozenset()


def order_steps(
    old: DependencyGraph,
    new: DependencyGraph,
    *,
    drops: Collection[Identity],
    creates: Collection[Identity],
    redefines: Collection[Identity],
) -> Order:
    """Order the steps; ``drops`` are names of OLD, ``creates`` and ``redefines`` names of NEW.

    All drops come before all creates here, so that no rename has a say in it.
    """
    import networkx

    change = _Change(old, new, set(drops), set(creates), set(redefines), _NO_RENAMES)
    going, coming = old.topological()[::-1], new.topological()
    if redefines:
        steps = change.settle()
        places = {("old", name): place for place, name in enumerate(going)}
        for place, name in enumerate(coming):
            places["new", name] = places[_REDEFINE, name] = place

        def rank(step: _Node) -> tuple[int, int, str]:
            return _RANK[change.act(step)], places[step], step[0]

        ordered = list(networkx.lexicographical_topological_sort(steps, rank))
        going = tuple(name for side, name in ordered if side == "old")
        coming = tuple(name for side, name in ordered if side == "new")
    return Order(
        tuple(name for name in going if name in change.dropped),
        tuple(name for name in coming if name in change.created),
        frozenset(change.created.difference(creates)),
    )


def order_waves(
    old: DependencyGraph,
    new: DependencyGraph,
    *,
    drops: Collection[Identity],
    creates: Collection[Identity],
    redefines: Collection[Identity],
    renames: Mapping[Identity, Identity] = _NO_RENAMES,
) -> tuple[Wave, ...]:
    """Return the steps in waves: a step stands in the wave behind the last one that it waits for.

    ``renames`` are the names of NEW, with those of OLD, of what must never have both.
    """
    if not drops and not redefines:
        return tuple(tuple((_CREATE, name) for name in wave) for wave in new.waves(creates))
    change = _Change(old, new, set(drops), set(creates), set(redefines), renames)
    depths = change.measure()
    back = {*drops} & {*creates}

    def place(step: tuple[str, Identity]) -> tuple[int, Identity]:
        """A name that comes back goes last in its wave and comes first: it is absent for less."""
        act, name = step
        if name in back:
            return (4 if act == _DROP else 0), name
        return _RANK[act], name

    return tuple(
        tuple(sorted(((change.act(step), step[1]) for step in wave), key=place))
        for wave in group_in_waves(depths, depths)
    )


def order_creates(
    uses: Mapping[Identity, Collection[Identity]], keys: Mapping[Identity, ItemKey],
    creates: Collection[Identity],
) -> tuple[Wave, ...]:
    """The creates of :func:`order_waves` where nothing has to go for them: a session's names.

    Imports no graph library, except to name a circle.
    """
    try:
        depths = measure_depths(TopologicalSorter(uses).static_order(), uses, creates)
    except CycleError:
        from catalog_migrate.model.graph import DependencyGraph

        return order_waves(
            DependencyGraph(), DependencyGraph(uses, keys), drops=(), creates=creates, redefines=()
        )
    return tuple(
        tuple((_CREATE, name) for name in sorted(wave, key=lambda name: order_key(keys[name])))
        for wave in group_in_waves(depths, creates)
    )


@dataclass(slots=True)
class _Change:
    """What is dropped of OLD, and created and redefined in NEW."""

    old: DependencyGraph
    new: DependencyGraph
    dropped: set[Identity]
    created: set[Identity]
    redefined: set[Identity]
    renames: Mapping[Identity, Identity]

    def act(self, step: _Node) -> str:
        """Return what happens at a step; objects that stay put pass the order on."""
        side, name = step
        if side == "old":
            return _DROP if name in self.dropped else _PASS
        if side == "new":
            return _CREATE if name in self.created else _PASS
        return _REDEFINE

    def measure(self) -> dict[_Node, int]:
        """Each step at which something happens, and how many it waits for, one after the other."""
        if self.redefined:
            import networkx

            steps = self.settle()
            acts = {step for step in steps if self.act(step) != _PASS}
            depths = measure_depths(networkx.topological_sort(steps), steps.pred, acts)
            return {step: depths[step] for step in acts}
        going = measure_depths(self.old.topological()[::-1], self.old.succ, self.dropped)
        floor = {
            name: 1 + max(going[each] for each in before)
            for name in self.created if (before := self._list_before(name))
        }
        coming = measure_depths(self.new.topological(), self.new.pred, self.created, floor)
        return {
            **{("old", name): depth for name, depth in going.items() if name in self.dropped},
            **{("new", name): depth for name, depth in coming.items() if name in self.created},
        }

    def settle(self) -> networkx.DiGraph:
        """Return the steps, each with an edge to those that wait for it, without circles.

        For that some redefines may become drops and creates.
        """
        import networkx

        while True:
            steps = networkx.DiGraph()
            steps.add_nodes_from(("old", name) for name in self.dropped)
            steps.add_nodes_from(("new", name) for name in self.created)
            steps.add_nodes_from((_REDEFINE, name) for name in self.redefined)
            steps.add_edges_from(self._precedence())
            if networkx.is_directed_acyclic_graph(steps):
                return steps
            self._recreate(networkx.strongly_connected_components(steps))

    def _recreate(self, circles: Iterator[set[_Node]]) -> None:
        """Drop and create the first redefined object on a circle, and its users before and after.

        Raises :class:`DependencyCycle` for a circle in OLD or NEW.
        """
        stuck = {
            name for circle in circles if len(circle) > 1
            for side, name in circle if side == _REDEFINE
        }
        self.old.topological()
        first = next(name for name in self.new.topological() if name in stuck)
        moved = self.new.dependents([first], edge=lambda used, user: (
            self.old.has_edge(used, user) and user not in self.created
        )) | {first}
        self.redefined -= moved
        self.dropped |= moved
        self.created |= moved

    def _list_before(self, name: Identity) -> set[Identity]:
        """The names that go before one is created: itself, and what its object was called."""
        return {name, self.renames.get(name, name)} & self.dropped

    def _precedence(self) -> Iterator[tuple[_Node, _Node]]:
        """Pairs of steps of which the first comes before the second."""
        for name in self.dropped | self.old.dependencies(self.dropped):
            yield from ((("old", name), ("old", used)) for used in self.old.uses(name))
        coming = self.created | self.redefined
        for name in coming | self.new.dependencies(coming):
            yield from ((("new", used), ("new", name)) for used in self.new.uses(name))
        for name in self.created:
            yield from ((("old", before), ("new", name)) for before in self._list_before(name))
        for name in self.redefined:
            # an object that stays put is as good as created once its own parents are
            uses = self.new.uses(name)
            yield from ((("new", used), (_REDEFINE, name)) for used in uses)
            yield from (
                ((_REDEFINE, used), (_REDEFINE, name)) for used in self.redefined.intersection(uses)
            )
            # a table that is copied under its id: registered again
            read = self.dropped.intersection(self.old.uses(name)).difference(uses)
            yield from (((_REDEFINE, name), ("old", used)) for used in read)
