"""Operations on running queries: their rows, their programs, and what takes one to its end.

An ALTER that restarts queries and an unsafe operation are rows that whoever asks writes and whoever
holds the cluster's lease carries out, state by state as
:data:`~catalog_migrate.operations.kinds.KINDS` declares. Every step can be repeated: a
runtime that finds an open row goes on from what it says.

A program has its operations in the one order: stops come in reverse topological order and starts in
topological order, and what does not depend on each other is in one wave. EXPLAIN prints a program,
the operation's row carries it, and whoever has the cluster's lease executes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.operation_states import find_declared_state, is_open, state_of
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Update
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import (
    CatalogMigrateError,
    LeaseLost,
    ValidationFailed,
)
from catalog_migrate.model.findings import Finding, list_findings
from catalog_migrate.model.names import Identity
from catalog_migrate.operations.operation import Execution, Operation, execute
from catalog_migrate.operations.order import order_waves
from catalog_migrate.operations.steps import Op, Step, decode_program, number_steps, store_program
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import OF_QUERIES, OPERATION
from catalog_migrate.streams.catalog.queries import RunningQuery
from catalog_migrate.streams.catalog.updates import ForgetAlters, MoveOperation
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Finish, perform, settlement, write_commit
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.runtime.probes import connections_using
from catalog_migrate.streams.runtime.supervisor import STOPS, Known, Supervisor
from catalog_migrate.streams.upstreams.upstream import input_known

Program = tuple[Step, ...]
"""Operations in their order, each with its wave."""

KEPT = 50
"""How many ended ALTERs SHOW OPERATIONS still lists."""

T = TypeVar("T")
R = TypeVar("R")


# -- programs --------------------------------------------------------------------------------------


def alter_program(
    state: State, target: str, dependents: Collection[str], *, validate: bool
) -> Program:
    """An ALTER of ``target``: all is tried first, then its dependents restart and are watched."""
    steps: list[Step] = []
    if validate:
        checked = (*connections_using(state, target), *dependents)
        steps = [step_on(state, "validate", item_id, 1) for item_id in checked]
    return in_order(steps, *_restart(state, dependents, next_wave(steps), "settle"))


def rollback_program(
    state: State, dependents: Collection[str], edited: Collection[str], program: Program
) -> Program:
    """What takes an ALTER back after ``program``: its queries restart from their snapshots."""
    return in_order(*_restart(state, dependents, next_wave(program), "edit", edited))


def list_restarted(
    state: State, item_ids: Iterable[str], edited: Collection[str] = ()
) -> list[str]:
    """The queries that are started again: those that nobody else holds, and that know the ids of
    their source's topics by then; the holds of what a query met go with an edit."""
    held = {
        hold.item_id for hold in state.holds.values()
        if not hold.holder.startswith(OPERATION)
        and not (hold.holder in OF_QUERIES and hold.item_id in edited)
    }
    free = [item_id for item_id in item_ids if item_id in state.items and item_id not in held]
    return [
        item_id for item_id in free
        if input_known(state, item_id)
        or state.items[item_id].links.get("reads") in free
    ]


def step_on(state: State, op: Op, item_id: str, wave: int = 0) -> Step:
    """Return a step on an item."""
    item = state.items.get(item_id)
    if item is None:
        return Step(op, "", item_id, item_id, wave)
    key = item.definition.key
    return Step(op, key.kind, str(key), item_id, wave)


def in_order(*steps: Iterable[Step]) -> Program:
    """Return all steps, wave by wave; those of one wave as they were given."""
    return tuple(sorted((step for some in steps for step in some), key=lambda step: step.wave))


def next_wave(steps: Iterable[Step]) -> int:
    """Return the wave that follows all of these steps."""
    return 1 + max((step.wave for step in steps), default=0)


def _restart(
    state: State, item_ids: Collection[str], first: int, then: Op,
    only: Collection[str] | None = None,
) -> tuple[Sequence[Step], ...]:
    """Stops with ``then`` behind each, starts with a probe behind each."""
    stops = stops_of(state, item_ids, first, then, only)
    starts = starts_of(state, list_restarted(state, item_ids), next_wave(stops))
    probes = [step_on(state, "probe", step.id, step.wave + 1) for step in starts]
    return stops, starts, probes


def stops_of(
    state: State, item_ids: Collection[str], first: int, then: Op | None = None,
    only: Collection[str] | None = None,
) -> list[Step]:
    """Stops from the wave ``first`` on, with ``then`` behind each (of ``only`` these)."""
    stops = [
        step_on(state, "stop", item_id, first + number)
        for number, wave in enumerate(_waves(state, stops=item_ids)) for item_id in wave
    ]
    if then is None:
        return stops
    return stops + [
        step_on(state, then, step.id, step.wave + 1)
        for step in stops if only is None or step.id in only
    ]


def starts_of(state: State, item_ids: Iterable[str], first: int = 1) -> list[Step]:
    """Starts from the wave ``first`` on."""
    return [
        step_on(state, "start", item_id, first + number)
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


def program_of(row: OperationRecord) -> Program:
    """The program that a row carries; empty for one of an older version, or of a newer one."""
    return decode_program(row.program)


def lines_of(program: Iterable[Step]) -> list[str]:
    """Return a program for people, a line an operation."""
    return [f"  {symbol} {line}" for symbol, line in number_steps(tuple(program))]


# -- one on its way --------------------------------------------------------------------------------


@dataclass
class OperationRun(ABC):
    """One operation on its way to its end, under the lease of its cluster.

    ``follow`` gives the newest state, ``alive`` raises once the lease is lost, ``say`` hears what
    becomes of the operation. ``inherited``: another process had begun it. A kind is a subclass
    whose ``states`` take a row on from each of its open states: they make operations of the steps
    of its program that are due there, execute them, and move it to the next one. The operations
    have it as their context.
    """

    supervisor: Supervisor
    follow: Callable[[], State]
    alive: Callable[[], None]
    say: Callable[[str], None]
    key: str
    inherited: bool = False
    begun: float = field(init=False)
    program: Program = field(init=False)
    execution: Execution = field(init=False, default_factory=Execution)
    starts: dict[int, list[Future[RunningQuery]]] = field(init=False, default_factory=dict)
    """Starts that were begun, by wave."""
    states: ClassVar[Mapping[str, Callable[[Any], None]]] = {}
    title: ClassVar[str] = ""

    @property
    def row(self) -> OperationRecord:
        """The row as it is now."""
        return self.follow().operations[self.key]

    @abstractmethod
    def planned(self, state: State, row: OperationRecord) -> Program:
        """Return the program of a row that carries none: an older version wrote it."""

    @abstractmethod
    def about(self, state: State) -> str:
        """Return what the operation is on, for the history."""

    @abstractmethod
    def abandoned(self) -> CatalogMigrateError:
        """Return what refuses an operation that another process began and did not commit."""

    def refused_as(self, _error: CatalogMigrateError) -> str:
        """The state in which an error ends an operation that changed nothing yet."""
        return find_declared_state(self.row).refused

    def run(self) -> None:
        """Take it to its end; its queries are nobody else's meanwhile."""
        self.begun = self.supervisor.clock.monotonic()
        state, row = self.follow(), self.row
        self.program = program_of(row) or self.planned(state, row)
        self.say(f"operation {self.key}: {self.title}{self.about(state)}, {row.state}")
        self.supervisor.pinned.update(row.dependents)
        try:
            self._go_on()
        finally:
            self.supervisor.pinned.difference_update(row.dependents)
            self.supervisor.forget(row.dependents)

    def _go_on(self) -> None:
        while is_open(row := self.row):
            self._leave(row)
            self.inherited = False

    def _leave(self, row: OperationRecord) -> None:
        now = find_declared_state(row)
        try:
            if now.refused and self.inherited:
                raise self.abandoned()
            self.states[state_of(row)](self)
        except LeaseLost:
            raise
        except CatalogMigrateError as error:
            if not now.refused:
                raise
            if find_declared_state(self.row).refused:  # else it landed, the reply was lost
                self.refuse(error)

    # -- the row -------------------------------------------------------------------------------

    def move(
        self, to: str, wanted: Commit, *, phase: str = "", detail: Mapping[str, str] | None = None,
        act: Mapping[str, Any] | None = None, program: Program = (), **fields: Any,
    ) -> State:
        """Commit that the row goes on to a state and phase, with its holds, beside ``wanted``.

        ``detail`` and ``fields`` go into the row, ``act`` into what an unsafe one says of itself.
        With a ``program`` it has that one from then on. Without a reason of its own the commit is
        about the operation.
        """
        if program:
            fields["program"] = store_program(program)
        reason = wanted.reason or self.about(self.follow())
        with self.execution.log_executed() as executed:
            move = MoveOperation(
                self.key, to, phase, detail or {}, tuple(executed), fields, act or {}
            )
            state = self.supervisor.commit(msgspec.structs.replace(
                wanted, updates=(*wanted.updates, move), reason=reason, executed=tuple(executed)
            ))
        self.program = program or self.program
        return state

    def end(
        self, final: str, reason: str = "", findings: Sequence[Finding] = (), *, kind: str = "",
        detail: Mapping[str, str] | None = None, updates: tuple[Update, ...] = (), **fields: Any,
    ) -> None:
        """Commit the last state, with why and all that was found; ``fields`` go into the row."""
        why_so = {"reason": reason} if reason else {}
        act: dict[str, Any] = {}
        if self.row.unsafe is not None:
            seconds = round(self.supervisor.clock.monotonic() - self.begun, 3)
            act = {"seconds": seconds, "prepared": ""}
            if find_declared_state(self.row).refused:  # what was to be committed after a RESTORE
                act["commit"] = None
        why = "; ".join(filter(None, (reason, *map(str, findings))))
        about = f"{self.about(self.follow())}{': ' * bool(why)}{why}"
        wanted = Commit(kind or final, (ForgetAlters(KEPT), *updates), reason=about)
        self.move(
            final, wanted, detail={**(detail or {}), **why_so}, act=act, findings=tuple(findings),
            **fields,
        )
        self.say(f"operation {self.key}: {final}, {about}")

    def refuse(self, error: CatalogMigrateError) -> None:
        """Nothing was changed: the holds go, and the row says why, for the caller to raise."""
        self.end(
            self.refused_as(error), error.message, list_findings(error),
            kind=find_declared_state(self.row).refused or "refused",
            detail={"outcome": error.code, **({"remedy": error.remedy} if error.remedy else {})},
        )

    # -- the program ---------------------------------------------------------------------------

    def steps(self, *ops: Op) -> list[Step]:
        """Return the steps of the program that do this."""
        return [step for step in self.program if step.op in ops]

    def execute(self, operations: Iterable[Operation[Any]], *, keep_going: bool = False) -> None:
        """Execute operations of the program. Starts of queries that are to be stopped are called
        back, or waited for, before."""
        operations = list(operations)
        self.supervisor.await_starts(
            each.step.id for each in operations if each.step.op == "stop"
        )
        execute(operations, self, keep_going=keep_going)

    def validate(self, judge: Callable[[], tuple[Finding, ...]]) -> tuple[Finding, ...]:
        """Validate all at once; what that says of each item is on record."""
        with self.supervisor.ports.threads.pool(1, "validate") as pool:
            judged = pool.submit(judge)
            self.execute(
                [ValidateAccess(step, judged) for step in self.steps("validate")], keep_going=True
            )
        return judged.result()

    def record(self, step: Step, began: float, outcome: str = "done") -> None:
        """Put on record that an operation ends now; ``began`` is in seconds since the epoch."""
        self.execution.record(step, began, self.wall(), outcome)

    # -- as the context of operations ----------------------------------------------------------

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return self.supervisor.clock.wall()

    def spread(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """Run ``act`` on every item side by side, on one alone here."""
        if len(items) == 1:
            yield items[0], act(items[0])
            return
        threads = self.supervisor.ports.threads
        with threads.pool(min(STOPS, len(items)), "operation") as pool:
            yield from zip(items, pool.map(act, items), strict=True)

    def retrying(self, act: Callable[[], R]) -> R:
        """Run it: what may pass is tried again by what asked for the operation."""
        return act()

    # -- checkpoints ---------------------------------------------------------------------------

    def settle(self, spec: QuerySpec, *, stateless: bool = False) -> bool:
        """Settle the batch that was under way by what its sinks have, on files alone.

        False where it must be run once more. ``stateless``: nothing is kept between batches, so one
        that all sinks have is committed by hand.
        """
        checkpoint = self.supervisor.ports.checkpoint(spec.checkpoint)
        if checkpoint.state().kind != "uncommitted":
            return True
        sinks = self.supervisor.engine.last_batch(spec, checkpoint.query_id or "")
        decision = settlement(
            checkpoint, sinks=sinks, unknown=() if sinks else ("the destination",)
        )
        if stateless and isinstance(decision, Finish):
            write_commit(checkpoint, decision.batch)
            return True
        return perform(checkpoint, decision)

    def snapshot(self, checkpoint: Checkpoint) -> int:
        """Keep a copy of a checkpoint's metadata under this operation; its number."""
        return Snapshots(checkpoint).take(f"operation {self.key}").number


# -- operations of every kind ----------------------------------------------------------------------

NOT_RUNNING = "its query does not run"
"""Why a query is not started or probed: it is held by now, or there is no runtime to start it."""


@dataclass(frozen=True)
class ValidateAccess(Operation[OperationRun]):
    """Reports what validation finds of a connection or query; all are validated at once."""

    judged: Future[tuple[Finding, ...]]

    def run(self, context: OperationRun) -> None:
        """Wait for what it says; raises :class:`ValidationFailed` with the first finding."""
        del context
        for finding in self.judged.result():
            if finding.item_id == self.step.id and not finding.ok:
                raise ValidationFailed(finding.message)

    def outcome_of(self, error: BaseException) -> str:
        """Return the finding itself."""
        if isinstance(error, ValidationFailed):
            return f"failed: {error.message}"
        return super().outcome_of(error)


@dataclass(frozen=True)
class StopQuery(Operation[OperationRun]):
    """Stops a query; its batch may take ``limit`` seconds to end."""

    limit: float | None = None

    def run(self, context: OperationRun) -> None:
        """Stop it where it runs."""
        context.supervisor.stop_one(self.step.id, self.limit)


@dataclass(frozen=True)
class StartQuery(Operation[OperationRun]):
    """Begins to start a query, which goes off when those of the waves before have started.

    ``runs`` is False for one that is held, ``waits`` for one that has ended and is started again;
    ``known`` gives the upstreams that were just asked about for all queries that start together.
    Queries are begun by one thread alone.
    """

    state: State
    runs: bool = True
    known: Known | None = None
    waits: bool = True

    TOGETHER: ClassVar[int | None] = 1
    GOES_ON: ClassVar[bool] = True

    def is_done(self, context: OperationRun) -> str:
        """Leave a held one alone, and one that was dropped meanwhile."""
        del context
        return "" if self.runs and self.step.id in self.state.items else NOT_RUNNING

    def run(self, context: OperationRun) -> None:
        """Begin it, unless it runs or starts; its thread puts on record how that ends."""

        def carry_out(start: Callable[[], RunningQuery]) -> RunningQuery:
            with context.execution.executing(self.step, context.wall):
                return start()

        earlier = max((wave for wave in context.starts if wave < self.step.wave), default=0)
        begun = context.supervisor.start(
            self.state, self.step.id, known=self.known, by=carry_out,
            after=tuple(context.starts.get(earlier, ())) if self.waits else (),
        )
        if begun is not None:
            context.starts.setdefault(self.step.wave, []).append(begun)


# -- rows ------------------------------------------------------------------------------------------


def pending(state: State, cluster: str) -> list[tuple[str, OperationRecord]]:
    """Open operations of a cluster, oldest first."""
    return [
        (key, row) for key, row in sorted(state.operations.items())
        if row.cluster == cluster and is_open(row)
    ]
