"""The program of a migration: every operation that its plan leads to, in the order of execution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.operations.order import order_waves
from catalog_migrate.operations.steps import Op, Step
from catalog_migrate.planner.plan import Target

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
    """Return what a migration executes, wave by wave.

    ``targets`` are all objects of NEW in creation order, ``old`` those in force; ``drops`` are the
    names of OLD that go, in their order, ``creates`` those of NEW that come, both with those that
    go for a moment; ``graphs`` are OLD and NEW.

    Tables are built, copied, filled and sealed before the commit, changed in place, their
    properties last, and unsealed right after it; then names go and come. The name of a table whose
    directory stays is never dropped.
    """
    changed = [target for target in targets if target.action is not None]
    sealed = list(_seal_steps(changed, targets, old, drops))
    closed = {operation.id for operation in sealed}
    read = dict.fromkeys(
        name for target in changed if target.fill is not None for name in target.fill.tables
    )
    waves = [
        *(_wave(changed, *each) for each in _FILLS),
        [*sealed, *(_drop_step("seal", old[name]) for name in read if old[name][1] not in closed)],
        *(sorted(_wave(changed, *each), key=_by_name) for each in _CHANGES),
        [_on("unseal", target) for target in targets if target.old in read and _stays(target)],
        *_names(changed, old, drops, creates, graphs),
    ]
    return _number(filter(None, waves))


def _number(waves: Iterable[Iterable[Step]]) -> tuple[Step, ...]:
    return tuple(
        replace(operation, wave=number)
        for number, wave in enumerate(waves, start=1) for operation in wave
    )


def _on(op: Op, target: Target) -> Step:
    key = target.definition.key
    return Step(op, key.kind, str(key), target.item_id)


def _drop_step(op: Op, held: Held) -> Step:
    key, item_id = held
    return Step(op, key.kind, str(key), item_id)


def _wave(
    changed: Sequence[Target], op: Op, applies: Callable[[Target], bool]
) -> list[Step]:
    return [_on(op, target) for target in changed if applies(target)]


def _by_name(step: Step) -> str:
    return step.name.lower()


def _seal_steps(
    changed: Sequence[Target], targets: Sequence[Target], old: Mapping[Identity, Held],
    drops: Collection[Identity],
) -> Iterator[Step]:
    """What is copied from a table in force, and what goes for good or becomes another kind."""
    for target in changed:
        if target.contents == "copy" and target.old is not None:
            yield _drop_step("seal", old[target.old])
    tables = {target.item_id for target in targets if target.definition.kind == "table"}
    for identity in drops:
        key, item_id = old[identity]
        if key.kind == "table" and item_id not in tables:
            yield _drop_step("seal", old[identity])


def _stays(target: Target) -> bool:
    """Whether a table keeps its directory."""
    return target.definition.kind == "table" and target.contents not in _MOVES


def _in_place(target: Target) -> bool:
    if not _stays(target):
        return False
    return target.contents == "evolve" or target.action == "update"


_FILLS: Sequence[tuple[Op, Callable[[Target], bool]]] = (
    ("build", lambda target: target.definition.kind == "table" and target.contents == "none"),
    ("copy", lambda target: target.contents == "copy"),
    ("populate", lambda target: target.contents == "derived"),
    ("fill", lambda target: target.fill is not None),
)
"""What is done for new shards, a wave each, and for which objects."""

_CHANGES: Sequence[tuple[Op, Callable[[Target], bool]]] = (
    ("evolve", _in_place),
    ("properties", lambda target: _in_place(target) and target.sets_properties),
)
"""What is done in place, a wave each, and for which objects."""


def _names(
    changed: Sequence[Target],
    old: Mapping[Identity, Held],
    drops: Collection[Identity],
    creates: Collection[Identity],
    graphs: tuple[DependencyGraph, DependencyGraph],
) -> Iterator[list[Step]]:
    by_identity = {target.identity: target for target in changed}
    kept = _find_kept_names(changed, old)
    moved = {identity for identity, moves in kept.items() if moves}
    replaced = _list_replaced(changed, creates)
    for wave in order_waves(
        *graphs,
        drops={
            identity for identity in {*drops} - kept.keys() | moved
            if old[identity][0].kind in NAMED_KINDS
        },
        creates={
            identity for identity in {*creates} - kept.keys() | moved
            if by_identity[identity].definition.kind in NAMED_KINDS
        },
        redefines=replaced, renames=_renames(changed),
    ):
        yield [
            _drop_step("drop", old[identity]) if op == "drop"
            else replaced[identity] if op == "redefine"
            else _on("create", by_identity[identity])
            for op, identity in wave
        ]


def _find_kept_names(
    changed: Sequence[Target], old: Mapping[Identity, Held]
) -> dict[Identity, bool]:
    """The names that tables keep, and whether each leads to another directory from now on."""
    return {
        target.identity: target.contents in _MOVES for target in changed
        if target.definition.kind == "table" and target.old == target.identity
        and old[target.identity][0].kind == "table"
    }


def _list_replaced(
    changed: Sequence[Target], creates: Collection[Identity]
) -> dict[Identity, Step]:
    """Views and functions that stand under their name all the time."""
    return {
        target.identity: _on(target.action, target) for target in changed
        if target.action in ("redefine", "update") and target.identity not in creates
        and target.definition.kind in NAMED_KINDS - {"table"}
    }


def _renames(changed: Sequence[Target]) -> dict[Identity, Identity]:
    """Tables under another name than before: no directory has two names at any moment."""
    return {
        target.identity: target.old for target in changed
        if target.old not in (None, target.identity) and target.definition.kind == "table"
    }
