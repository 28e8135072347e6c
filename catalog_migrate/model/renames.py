"""Which name continues which: one matching for the columns of a table and the objects of a release.

Of the earlier names that something lists, the newest counts that it can have. Names may be swapped
or passed on in a circle or a chain, and no rename drops anything: what goes on under its own name
gives that up only for another one, and only to something else that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)


def match(
    standing: Collection[Name], earlier: Mapping[Name, Sequence[Name]]
) -> dict[Name, Name]:
    """New name -> the old name that it continues, for all that are not under their own name.

    ``standing`` are the names that both sides have, ``earlier`` the old names that a new one may
    continue, newest first. As many are matched as the depth-first order finds a way for; the
    answer depends on no order of what comes in.
    """
    holders = {name: name for name in standing}
    ranked = sorted(earlier, key=repr)

    def any_options(name: Name) -> Sequence[Name]:
        own = (name,) if name in standing else ()
        return *earlier.get(name, ()), *own

    def others(name: Name) -> Sequence[Name]:
        return earlier.get(name, ())

    for name in ranked:
        if name not in standing:  # it comes: what has its name makes way, if it can
            _take(holders, _path(name, any_options, holders, lambda old: old not in holders))
    for name in ranked:
        if holders.get(name) == name:  # it stays, unless a circle leads back to its name
            _take(holders, _path(name, others, holders, name.__eq__))
    return {new: old for old, new in holders.items() if new != old}


def find_clashes(earlier: Mapping[Name, Sequence[Any]]) -> list[tuple[Name, Name]]:
    """Pairs (one, another) of which at most one can ever continue what it lists.

    Whatever the old names are: there are fewer earlier names than there are heirs of them.
    """
    holders: dict[Any, Name] = {}
    clashes: list[tuple[Name, Name]] = []
    for name, names in earlier.items():
        trail = _path(name, earlier.__getitem__, holders, lambda old: old not in holders)
        if trail:
            _take(holders, trail)
        elif names:
            clashes.append((holders[names[0]], name))
    return clashes


def _take(holders: dict[Any, Name], trail: Sequence[tuple[Name, Any]]) -> None:
    holders.update((old, new) for new, old in trail)


def _path(
    start: Name, options: Callable[[Name], Sequence[Any]], holders: Mapping[Any, Name],
    is_goal: Callable[[Any], bool],
) -> list[tuple[Name, Any]]:
    """(name, old name that it takes) from ``start`` on, each taking what the next gives up.

    Ends with an old name that is a goal; empty when no way leads to one. Iterative, so that the
    length of a chain does not matter.
    """
    seen: set[Any] = set()
    trail: list[tuple[Name, Any]] = []
    pending = [(start, iter(options(start)))]
    while pending:
        name, sources = pending[-1]
        for old in sources:
            if old in seen:
                continue
            seen.add(old)
            if is_goal(old):
                return [*trail, (name, old)]
            if old in holders:
                trail.append((name, old))
                pending.append((holders[old], iter(options(holders[old]))))
                break
        else:
            pending.pop()
            if trail:
                trail.pop()
    return []
