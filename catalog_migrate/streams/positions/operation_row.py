"""The durable row of an unsafe operation: how it begins, and its program.

And what must be open, said and confirmed before one begins: all of it is asked for at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import UnsafeRefused
from catalog_migrate.operations.kinds import UNSAFE
from catalog_migrate.operations.steps import store_program
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.positions.planning import dependent_jobs
from catalog_migrate.streams.positions.requests import Request
from catalog_migrate.streams.runtime.operations import (
    Program,
    in_order,
    list_restarted,
    next_wave,
    starts_of,
    step_on,
    stops_of,
)


def new_row(
    state: State, request: Request, program: Program, *, reason: str, who: str, host: str, at: str,
    limit: float,
) -> OperationRecord:
    """The first row of an operation."""
    items = tuple(part.item_id for part in request.parts)
    names = tuple(
        dependencies.display(state, part.item_id) for part in request.parts if not part.past
    )
    jobs = {str(job.name): None for item_id in items for job in dependent_jobs(state, item_id)}
    return OperationRecord(
        kind=UNSAFE, state="requested",
        cluster=state.items[items[0]].links.get("cluster", ""), target=items[0],
        dependents=items, limit=limit, validate=not request.skip_validate,
        program=store_program(program),
        detail={"since": at, "summary": f"unsafe operation on {', '.join(names)}"},
        unsafe=UnsafeAct(
            who=who, host=host, at=at, reason=reason,
            request=msgspec.to_builtins(request), sources=names, jobs=tuple(jobs),
            keys=tuple(sorted({key for part in request.parts for key in part.keys})),
            reset=any(part.reset is not None for part in request.parts), undoes=request.undoes,
        ),
    )


class Allowed(msgspec.Struct, frozen=True):
    """The gate of an operation's cluster is open, and a reason was given."""

    row: OperationRecord

    def check(self, state: State) -> None:
        """Raise :class:`UnsafeRefused` for what is missing."""
        assert self.row.unsafe is not None
        require(
            list_missing(
                state, self.row.cluster, reason=self.row.unsafe.reason, confirmed=True
            ),
            self.row.detail["summary"],
        )


# -- its program -----------------------------------------------------------------------------------


def unsafe_program(
    state: State, request: Request, edited: Collection[str], *, runs: bool
) -> Program:
    """An unsafe operation; ``edited`` are the parts whose positions change, ``runs`` is whether a
    runtime has the cluster.

    The sinks below go on until the topic of before is sent to its end, and restart for the ids of
    the new one.
    """
    parts = [part.item_id for part in request.parts]
    steps = [
        step_on(state, "validate", part.item_id, 1) for part in request.parts
        if part.redefines and not request.skip_validate
    ]
    steps += stops_of(state, parts, next_wave(steps), "settle")
    for part in request.parts:
        if part.restore is not None:
            steps.append(step_on(state, "restore", part.item_id, next_wave(steps)))
    wave = next_wave(steps)
    steps += [
        step_on(state, "edit", item_id, wave) for item_id in parts if item_id in edited
    ]
    if runs:
        below = sinks_below(state, request)
        steps += stops_of(state, below, next_wave(steps))
        steps += starts_of(state, list_restarted(state, (*parts, *below), edited), next_wave(steps))
    return in_order(steps)


def sinks_below(state: State, request: Request) -> list[str]:
    """The sinks of the cluster that form their row keys with the ids of topics that go."""
    if not request.accept_new_topic:
        return []
    parts = {part.item_id for part in request.parts}
    clusters = {state.items[item_id].links.get("cluster") for item_id in parts & set(state.items)}
    return [
        user for part in request.parts for user in dependencies.users_of(state, part.item_id)
        if dependencies.is_query(state.items[user]) and user not in parts
        and state.items[user].links.get("cluster") in clusters
    ]


# -- what must be said -----------------------------------------------------------------------------


KEY = "streams.enable_unsafe_ops"
"""The configuration of the runtime that opens the gate."""


def is_gate_open(state: State, cluster: str) -> bool:
    """Whether the runtime of a cluster was last started with the gate open; no row is closed."""
    row = state.clusters.get(cluster)
    return row is not None and row.unsafe


class Missing(msgspec.Struct, frozen=True):
    """What is missing for an unsafe operation to begin, and how it is given."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def list_missing(
    state: State, cluster: str, *, reason: str | None, confirmed: bool, said: bool = True,
    kind: str = "source",
) -> tuple[Missing, ...]:
    """List what is missing. ``said``: the word UNSAFE, or the verb ``unsafe``, was given.

    ``kind`` is what the operation is on: its name is what is asked for.
    """
    found = []
    if not is_gate_open(state, cluster):
        name = dependencies.display(state, cluster) if cluster else "of it"
        found.append(Missing(
            f"the gate of cluster {name} is closed",
            f"start its runtime with {KEY} = true "
            "(environment CATALOG_MIGRATE__STREAMS__ENABLE_UNSAFE_OPS=true)",
        ))
    if not said:
        found.append(Missing("the word", f"UNSAFE after the name of the {kind}"))
    if not (reason or "").strip():
        found.append(Missing("a reason", "--reason TEXT, or REASON 'text'"))
    if not confirmed:
        found.append(
            Missing("the confirmation", f"--yes, or the {kind}'s name typed on a terminal")
        )
    return tuple(found)


def require(found: Iterable[Missing], what: str) -> None:
    """:class:`UnsafeRefused` when anything is missing."""
    listed = tuple(map(str, found))
    if listed:
        raise UnsafeRefused(
            f"{what} was refused, nothing was done", missing=listed,
            remedy="unsafe operations are the last resort; --plan (in SQL: EXPLAIN) shows what one "
            "would do and needs none of this",
        )


