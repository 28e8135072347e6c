"""The programs of statements on running queries: their operations in the one order (pure).

Stops come in reverse topological order and starts in topological order, and what does not depend on
each other is in one wave. EXPLAIN prints a program, the operation's row carries it, and whoever has
the cluster's lease executes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import Identity
from catalog_migrate.program.operations import (
    EditCheckpoint,
    Operation,
    ProbeQuery,
    SettleCheckpoint,
    StartQuery,
    StopQuery,
    ValidateConnection,
    decoded,
    numbered,
)
from catalog_migrate.program.order import order_waves
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.probes import connections_using
from catalog_migrate.streams.supervisor import UPSTREAM, input_known

Program = tuple[Operation, ...]
"""Operations in their order, each with its wave."""


def alter_program(
    state: State, target: str, dependents: Collection[str], *, validate: bool
) -> Program:
    """An ALTER of ``target``: all is tried first, then its dependents restart and are watched."""
    steps: list[Operation] = []
    if validate:
        checked = (*connections_using(state, target), *dependents)
        steps = [on(state, ValidateConnection, item_id, 1) for item_id in checked]
    return in_order(steps, *_restart(state, dependents, after(steps), SettleCheckpoint))


def rollback_program(
    state: State, dependents: Collection[str], edited: Collection[str], program: Program
) -> Program:
    """What takes an ALTER back after ``program``: its queries restart from their snapshots."""
    return in_order(*_restart(state, dependents, after(program), EditCheckpoint, edited))


def restarted(
    state: State, item_ids: Iterable[str], edited: Collection[str] = ()
) -> list[str]:
    """The queries that are started again: those that nobody else holds, and that know the ids of
    their source's topics by then; the hold of a changed upstream goes with an edit."""
    held = {
        hold.item_id for hold in state.holds.values()
        if not hold.holder.startswith("operation:")
        and not (hold.holder == UPSTREAM and hold.item_id in edited)
    }
    free = [item_id for item_id in item_ids if item_id in state.items and item_id not in held]
    return [
        item_id for item_id in free
        if input_known(state, item_id)
        or state.items[item_id].links.get("reads") in free
    ]


# -- order -----------------------------------------------------------------------------------------


def on(state: State, what: type[Operation], item_id: str, wave: int = 0) -> Operation:
    """An operation on an item."""
    item = state.items.get(item_id)
    if item is None:
        return what("", item_id, item_id, wave)
    key = item.definition.key
    return what(key.kind, str(key), item_id, wave)


def in_order(*steps: Iterable[Operation]) -> Program:
    """All steps, wave by wave; those of one wave as they were given."""
    return tuple(sorted((step for some in steps for step in some), key=lambda step: step.wave))


def after(steps: Iterable[Operation]) -> int:
    """The wave that follows all of these steps."""
    return 1 + max((step.wave for step in steps), default=0)


def _restart(
    state: State, item_ids: Collection[str], first: int, then: type[Operation],
    only: Collection[str] | None = None,
) -> tuple[Sequence[Operation], ...]:
    """Stops with ``then`` behind each, starts with a probe behind each."""
    stops = stops_of(state, item_ids, first, then, only)
    starts = starts_of(state, restarted(state, item_ids), after(stops))
    return stops, starts, [on(state, ProbeQuery, step.id, step.wave + 1) for step in starts]


def stops_of(
    state: State, item_ids: Collection[str], first: int, then: type[Operation] | None = None,
    only: Collection[str] | None = None,
) -> list[Operation]:
    """Stops from the wave ``first`` on, with ``then`` behind each (of ``only`` these)."""
    stops = [
        on(state, StopQuery, item_id, first + number)
        for number, wave in enumerate(_waves(state, stops=item_ids)) for item_id in wave
    ]
    if then is None:
        return stops
    return stops + [
        on(state, then, step.id, step.wave + 1) for step in stops if only is None or step.id in only
    ]


def starts_of(state: State, item_ids: Iterable[str], first: int = 1) -> list[Operation]:
    """Starts from the wave ``first`` on."""
    return [
        on(state, StartQuery, item_id, first + number)
        for number, wave in enumerate(_waves(state, starts=item_ids)) for item_id in wave
    ]


def _waves(
    state: State, *, stops: Iterable[str] = (), starts: Iterable[str] = ()
) -> list[tuple[str, ...]]:
    """Items in the one order: a query that stops goes as a name does, one that starts comes."""

    def names(item_ids: Iterable[str]) -> list[Identity]:
        return [
            state.items[item_id].definition.identity for item_id in item_ids
            if item_id in state.items
        ]

    found = order_waves(
        state.graph, state.graph, drops=names(stops), creates=names(starts), redefines=()
    )
    return [dependencies.ids_of(state, [name for _, name in wave]) for wave in found]


# -- rows ------------------------------------------------------------------------------------------


def program_of(row: OperationRecord) -> Program:
    """The program that a row carries; empty for one of an older version, or of a newer one."""
    return decoded(row.program)


def lines_of(program: Iterable[Operation]) -> list[str]:
    """A program for people, a line an operation."""
    return [f"  {symbol} {line}" for symbol, line in numbered(tuple(program))]
