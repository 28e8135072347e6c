"""The program of a migration: every operation that its plan leads to, in the order of execution."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.planner.plan import Target
from catalog_migrate.program.order import order_waves
from catalog_migrate.program.steps import Op, Step

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph

Held = tuple[ItemKey, str]
"""An object of OLD: its key and its item id."""

NAMED_KINDS = frozenset({"table", "view", "function"})
"""Kinds whose names Spark's catalog holds; of others nothing is executed."""
_MOVES = frozenset({"copy", "derived"})


def program(
    targets: Sequence[Target],
    old: Mapping[Identity, Held],
    drops: Collection[Identity],
    creates: Collection[Identity],
    graphs: tuple[DependencyGraph, DependencyGraph],
) -> tuple[Step, ...]:
    """What a migration executes, wave by wave.

    ``targets`` are all objects of NEW in creation order, ``old`` those in force; ``drops`` are the
    names of OLD that go, in their order, ``creates`` those of NEW that come, both with those that
    go for a moment; ``graphs`` are OLD and NEW.

    Tables are built, copied, filled and sealed before the commit, changed in place, their
    properties last, and unsealed right after it; then names go and come. The name of a table whose
    directory stays is never dropped.
    """
    changed = [target for target in targets if target.action is not None]
    sealed = list(_sealed(changed, targets, old, drops))
    closed = {operation.id for operation in sealed}
    read = dict.fromkeys(
        name for target in changed if target.fill is not None for name in target.fill.tables
    )
    waves = [
        list(_built(changed)),
        list(_copied(changed)),
        [_on("populate", target) for target in changed if target.contents == "derived"],
        [_on("fill", target) for target in changed if target.fill is not None],
        [*sealed, *(_gone("seal", old[name]) for name in read if old[name][1] not in closed)],
        sorted(
            (_on("evolve", target) for target in changed if _in_place(target)),
            key=lambda operation: operation.name.lower(),
        ),
        sorted(
            (
                _on("properties", target) for target in changed
                if _in_place(target) and target.sets_properties
            ),
            key=lambda operation: operation.name.lower(),
        ),
        [_on("unseal", target) for target in targets if target.old in read and _stays(target)],
        *_names(changed, old, set(drops), set(creates), graphs),
    ]
    return _numbered(filter(None, waves))


def _numbered(waves: Iterable[Iterable[Step]]) -> tuple[Step, ...]:
    return tuple(
        replace(operation, wave=number)
        for number, wave in enumerate(waves, start=1) for operation in wave
    )


def _on(op: Op, target: Target) -> Step:
    key = target.definition.key
    return Step(op, key.kind, str(key), target.item_id)


def _gone(op: Op, held: Held) -> Step:
    key, item_id = held
    return Step(op, key.kind, str(key), item_id)


def _built(changed: Sequence[Target]) -> Iterator[Step]:
    for target in changed:
        if target.definition.kind == "table" and target.contents == "none":
            yield _on("build", target)


def _copied(changed: Sequence[Target]) -> Iterator[Step]:
    for target in changed:
        if target.contents == "copy":
            yield _on("copy", target)


def _sealed(
    changed: Sequence[Target], targets: Sequence[Target], old: Mapping[Identity, Held],
    drops: Collection[Identity],
) -> Iterator[Step]:
    """What is copied from a table in force, and what goes for good or becomes another kind."""
    for target in changed:
        if target.contents == "copy" and target.old is not None:
            yield _gone("seal", old[target.old])
    tables = {target.item_id for target in targets if target.definition.kind == "table"}
    for identity in drops:
        key, item_id = old[identity]
        if key.kind == "table" and item_id not in tables:
            yield _gone("seal", old[identity])


def _stays(target: Target) -> bool:
    """Whether a table keeps its directory."""
    return target.definition.kind == "table" and target.contents not in _MOVES


def _in_place(target: Target) -> bool:
    if not _stays(target):
        return False
    return target.contents == "evolve" or target.action == "update"


def _names(
    changed: Sequence[Target],
    old: Mapping[Identity, Held],
    drops: set[Identity],
    creates: set[Identity],
    graphs: tuple[DependencyGraph, DependencyGraph],
) -> Iterator[list[Step]]:
    replaced: dict[Identity, Step] = {}
    by_identity = {target.identity: target for target in changed}
    for identity, target in by_identity.items():
        if target.definition.kind == "table":
            if target.old == identity and old[identity][0].kind == "table":
                moves = target.contents in _MOVES
                (drops.add if moves else drops.discard)(identity)
                (creates.add if moves else creates.discard)(identity)
        elif target.definition.kind not in NAMED_KINDS or identity in creates:
            continue
        elif target.action in ("redefine", "update"):
            replaced[identity] = _on(target.action, target)
    drops = {identity for identity in drops if old[identity][0].kind in NAMED_KINDS}
    creates = {
        identity for identity in creates
        if by_identity[identity].definition.kind in NAMED_KINDS
    }
    renames = {  # no directory has two names at any moment
        identity: target.old for identity, target in by_identity.items()
        if target.old not in (None, identity) and target.definition.kind == "table"
    }
    for wave in order_waves(
        *graphs, drops=drops, creates=creates, redefines=replaced, renames=renames
    ):
        yield [
            _gone("drop", old[identity]) if op == "drop"
            else replaced[identity] if op == "redefine"
            else _on("create", by_identity[identity])
            for op, identity in wave
        ]
