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

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.model.names import Identity

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph

_DROP, _REDEFINE, _CREATE, _PASS = "drop", "redefine", "create", "pass"
_RANK = {_PASS: 0, _DROP: 1, _REDEFINE: 2, _CREATE: 3}

_NO_RENAMES: Mapping[Identity, Identity] = MappingProxyType({})

_Node = tuple[str, str, Identity]
"""(side ``old`` or ``new``, what happens, identity on that side)."""


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
    if not redefines:
        dropped, created = set(drops), set(creates)
        return Order(
            tuple(name for name in old.reverse_topological() if name in dropped),
            tuple(name for name in new.topological() if name in created),
        )
    _, ordered, recreated = _ordered(old, new, set(drops), set(creates), set(redefines), {})
    return Order(
        tuple(name for _, what, name in ordered if what == _DROP),
        tuple(name for _, what, name in ordered if what == _CREATE),
        recreated,
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
    """The steps in waves: a step stands in the wave behind the last one that it waits for.

    ``renames`` are the names of NEW, with those of OLD, of what must never have both.
    """
    if not drops and not redefines:  # a session gets its names: nothing has to go for them
        return tuple(tuple((_CREATE, name) for name in wave) for wave in new.waves(creates))
    waves: dict[int, list[tuple[str, Identity]]] = {}
    if redefines:
        before, ordered, _ = _ordered(
            old, new, set(drops), set(creates), set(redefines), renames
        )
        level = dict.fromkeys(before, 0)
        for node in ordered:
            _, what, name = node
            depth = level[node]
            if what != _PASS:
                waves.setdefault(depth, []).append((what, name))
                depth += 1
            for follower in before[node]:
                level[follower] = max(level[follower], depth)
    else:
        _drops_then_creates(old, new, set(drops), set(creates), waves, renames)
    back = {*drops} & {*creates}

    def place(step: tuple[str, Identity]) -> tuple[int, Identity]:
        """A name that comes back goes last in its wave and comes first: it is absent for less."""
        what, name = step
        if name in back:
            return (4 if what == _DROP else 0), name
        return _RANK[what], name

    return tuple(tuple(sorted(waves[depth], key=place)) for depth in sorted(waves))


def _drops_then_creates(
    old: DependencyGraph,
    new: DependencyGraph,
    dropped: Collection[Identity],
    created: Collection[Identity],
    waves: dict[int, list[tuple[str, Identity]]],
    renames: Mapping[Identity, Identity],
) -> None:
    """Fill ``waves`` where nothing is redefined: linear in the edges, without a graph of steps."""
    free: dict[Identity, int] = {}  # the first wave in which the name is free
    for name in old.reverse_topological():
        depth = free.get(name, 0)
        if name in dropped:
            waves.setdefault(depth, []).append((_DROP, name))
            depth += 1
        free[name] = depth
        for used in old.uses(name):
            free[used] = max(free.get(used, 0), depth)
    there: dict[Identity, int] = {}  # the first wave in which what it uses is there
    for name in new.topological():
        depth = there.get(name, 0)
        if name in created:
            for before in (name, renames.get(name, name)):
                if before in dropped:
                    depth = max(depth, free[before])
            waves.setdefault(depth, []).append((_CREATE, name))
            depth += 1
        for user in new.used_by(name):
            there[user] = max(there.get(user, 0), depth)


def _ordered(
    old: DependencyGraph,
    new: DependencyGraph,
    dropped: set[Identity],
    created: set[Identity],
    redefined: set[Identity],
    renames: Mapping[Identity, Identity],
) -> tuple[Mapping[_Node, set[_Node]], list[_Node], frozenset[Identity]]:
    """(step -> the steps after it, all in order, what is recreated so that there is an order)."""
    drop_order, create_order = old.reverse_topological(), new.topological()
    recreated: set[Identity] = set()
    while True:
        before = _precedence(
            old, new, drop_order, create_order, dropped, created, redefined, renames
        )
        places = {identity: place for place, identity in enumerate(create_order)}
        ordered, stuck = _sort(
            before, {identity: place for place, identity in enumerate(drop_order)}, places
        )
        if not stuck:
            return before, ordered, frozenset(recreated)
        first = min(
            (name for _, what, name in stuck if what == _REDEFINE), key=places.__getitem__
        )
        moved = _with_users(old, new, first, created)
        recreated |= moved
        redefined -= moved
        dropped |= moved
        created |= moved


def _with_users(
    old: DependencyGraph, new: DependencyGraph, root: Identity, created: Collection[Identity]
) -> set[Identity]:
    """``root`` and whoever reads it before and after, transitively, and is not created anyway."""
    return {root, *new.dependents([root], both=old, without=created)}


def _precedence(
    old: DependencyGraph,
    new: DependencyGraph,
    drop_order: Collection[Identity],
    create_order: Collection[Identity],
    dropped: Collection[Identity],
    created: Collection[Identity],
    redefined: Collection[Identity],
    renames: Mapping[Identity, Identity],
) -> dict[_Node, set[_Node]]:
    """Step -> the steps that must come after it; objects that stay put pass the order on."""

    def going(identity: Identity) -> _Node:
        return "old", _DROP if identity in dropped else _PASS, identity

    def coming(identity: Identity) -> _Node:
        return "new", _CREATE if identity in created else _PASS, identity

    after: dict[_Node, set[_Node]] = {going(identity): set() for identity in drop_order}
    after.update((coming(identity), set()) for identity in create_order)
    after.update((("new", _REDEFINE, identity), set()) for identity in redefined)
    for identity in drop_order:
        after[going(identity)].update(going(used) for used in old.uses(identity))
        if identity in dropped and identity in created:
            after[going(identity)].add(coming(identity))
    for identity, before in renames.items():
        if before in dropped and identity in created:
            after[going(before)].add(coming(identity))
    for identity in create_order:
        for used in new.uses(identity):
            after[coming(used)].add(coming(identity))
            if identity in redefined:
                # An object that stays put is as good as created once its own parents are.
                after[coming(used)].add(("new", _REDEFINE, identity))
                if used in redefined:
                    after["new", _REDEFINE, used].add(("new", _REDEFINE, identity))
    known = set(drop_order)
    for identity in redefined:
        if identity in known:
            kept = new.uses(identity)  # a table that is copied under its id: registered anew
            after["new", _REDEFINE, identity].update(
                going(used) for used in old.uses(identity)
                if used in dropped and used not in kept
            )
    return after


def _sort(
    after: Mapping[_Node, set[_Node]],
    drop_places: Mapping[Identity, int],
    create_places: Mapping[Identity, int],
) -> tuple[list[_Node], list[_Node]]:
    """(steps in lexicographic topological order, the steps on cycles)."""
    import networkx  # here: a session that only gets its names does without

    def rank(node: _Node) -> tuple[int, int, str, _Node]:
        side, what, identity = node
        places = drop_places if side == "old" else create_places
        return _RANK[what], places[identity], side, node

    graph = networkx.DiGraph(after)
    try:
        return list(networkx.lexicographical_topological_sort(graph, key=rank)), []
    except networkx.NetworkXUnfeasible:
        circles = networkx.strongly_connected_components(graph)
        return [], [node for circle in circles if len(circle) > 1 for node in circle]
