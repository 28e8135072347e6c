"""What every act on the world needs at hand (:class:`ExecutionContext`), and its parts.

:class:`Workers` are its threads, :class:`Journal` what it executed. :class:`StreamTables` is
the port to the streams that read and write tables, implemented by
:mod:`catalog_migrate.streams.ddl.migrations`: a migration replaces and removes shards below running
queries, so it asks there what must stay, and says what was replaced.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import ParamSpec, Protocol, TypeVar
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.lease import MIGRATION, Lease
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.requirements import Epoch
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Update
from catalog_migrate.engine.port import Engine
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import EngineFailure, UsageError
from catalog_migrate.model.paths import shard_location
from catalog_migrate.model.progress import OnProgress, Progress, silent
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.operations.operation import Execution, Operation
from catalog_migrate.operations.steps import Step
from catalog_migrate.planner.plan import Migration, Target
from catalog_migrate.retry import retry
from catalog_migrate.store.address import normalise

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

class StreamTables(Protocol):
    """What a migration of tables asks of the streams that use them, and what it tells them.

    Items are named by their ids, tables by absolute directories. Nothing is asked of a catalog
    without streams.
    """

    def being_filled(self, state: State) -> Mapping[str, str]:
        """Tables that an operation is writing into now, and the operation: they cannot move."""

    def append_only(self, state: State) -> frozenset[str]:
        """Tables that may only grow, because a started query reads them."""

    def still_read(self, state: State) -> frozenset[str]:
        """Paths of retired shards that a query has still to read: they must be kept."""

    def follow_copy(self, state: State, item_id: str, old: str, new: str) -> None:
        """The shard of a table was copied from ``old`` (sealed) to ``new``; repeatable."""

    def follow(self, migration: Migration) -> Update:
        """Return what sources and sinks are after a migration, for its own commit."""

    def with_streams(
        self, migration: Migration, state: State, statements: Sequence[str]
    ) -> Migration:
        """A migration whose plan says what becomes of connections, sources and sinks.

        Raises what is wrong with the release's ``statements``.
        """

    def bring_in(self, state: State, statements: Sequence[str]) -> BundledChanges:
        """Return what puts the bundled streams of a release in force."""

    def make_shard(self, state: State, item_id: str, engine: Engine) -> None:
        """Make the shards of a new source, of its dead letters and of its cluster's log."""


class BundledChanges(Protocol):
    """What brings a release's bundled streams in."""

    @property
    def updates(self) -> Sequence[Update]:
        """What is to be committed; nothing when all is as the release has it."""

    @property
    def created(self) -> tuple[str, ...]:
        """Items that come."""

    @property
    def waiting(self) -> tuple[str, ...]:
        """What an object of the user's is in the way of, in words."""


BACK_OFF = (0.2, 0.4, 0.8)
"""Seconds before each further attempt at what failed for a reason of the engine that may pass."""


def new_token() -> str:
    """Return a random part of a path that no other attempt of any process will use."""
    return uuid4().hex


@dataclass(slots=True)
class Journal(Execution):
    """What one start had to execute, what it executed, and what comes of it for its report.

    ``steps`` and ``executed`` are in the order of the program. ``paths`` are the shards that its
    attempts were to build, relative to the warehouse; ``rows`` counts rows that were copied,
    ``names`` registrations made or dropped, our own views' among them. ``tolerated`` takes what
    fails on users' objects instead of an error (I8), where it is given; ``waiting`` says in words
    which bundled streams could not be brought in yet, ``unmade`` which have no shard, because the
    table that they read is a user's and broken. ``users`` says what could not be found out about
    users' views and functions, or done for them, ``repaired`` which of them have another text.
    """

    steps: list[Step] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    rows: int = 0
    names: int = 0
    tolerated: list[str] | None = None
    waiting: tuple[str, ...] = ()
    unmade: tuple[str, ...] = ()
    users: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)

    def outstanding(self, state: State) -> tuple[str, ...]:
        """Return what could not be done for users' objects, and which are broken, each once."""
        told = (
            *self.waiting, *self.unmade, *(self.tolerated or ()), *state.list_quarantined(),
            *self.users, *map(str, state.unbound_user_objects),
        )
        return tuple(dict.fromkeys(told))


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The world and the catalog, with the right to change them while ``lease`` is held.

    ``warehouse`` is an absolute directory or URI; ``streams`` are those that use its tables;
    ``workers`` run parallel statements; ``token`` names new shards. ``lease`` is None for local
    work, which needs no right.
    """

    engine: Engine
    log: CatalogLog
    clock: Clock
    warehouse: str
    streams: StreamTables
    workers: Workers = field(default_factory=lambda: Workers(4))
    on_progress: OnProgress = silent
    token: Callable[[], str] = new_token
    lease: Lease | None = None
    journal: Journal = field(default_factory=Journal)

    def at(self, state: State, lease: Lease | None = None) -> ExecutionContext:
        """Return the same on the warehouse of ``state``, with the right that ``lease`` gives."""
        return replace(self, warehouse=state.setting("warehouse"), lease=lease)

    @property
    def epoch(self) -> int:
        """The epoch that shared work is done under."""
        if self.lease is None:
            raise UsageError("shared work was requested without the lease")
        return self.lease.epoch

    @property
    def held(self) -> Epoch:
        """What a commit of shared work requires."""
        return Epoch(MIGRATION, self.epoch)

    @property
    def holder(self) -> str:
        """The name under which this process holds the lease; empty for local work."""
        return "" if self.lease is None else self.lease.holder

    def commit(self, wanted: Commit) -> State:
        """Commit under the lease, with what was executed and is in no commit yet."""
        with self.journal.log_executed() as executed:
            return commit(self.log, msgspec.structs.replace(
                wanted, requirements=(self.held, *wanted.requirements), executed=executed
            ))

    def ensure(self) -> None:
        """Prove, before an act on the world, that the lease is ours (no-op for local work)."""
        if self.lease is not None:
            self.lease.ensure()

    def absolute(self, path: str) -> str:
        """Return the absolute form of a shard path."""
        return absolute(self.warehouse, path)

    @property
    def execution(self) -> Journal:
        """What was executed."""
        return self.journal

    @property
    def wall(self) -> Callable[[], float]:
        """The clock that says the seconds since the epoch."""
        return self.clock.wall

    def spread(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """Run ``act`` on every item side by side; results in the order of the items."""
        return self.workers.each(items, act)

    def retrying(self, act: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Run one idempotent act; transient engine failures are tried again with back-off."""
        attempts = count(1)

        def attempt() -> R:
            self.ensure()
            return act(*args, **named)

        def may_pass(error: EngineFailure) -> bool:
            error.data["attempts"] = next(attempts)
            return error.transient

        return retry(attempt, EngineFailure, BACK_OFF, when=may_pass, sleep=self.clock.sleep)


def absolute(warehouse: str, path: str) -> str:
    """Join a warehouse and a shard path; an adopted table's is absolute already."""
    return shard_location(warehouse, path)


def relative(warehouse: str, location: str) -> str | None:
    """Return the shard path of a location below the warehouse, None when it lies elsewhere."""
    if "://" in warehouse and "://" in location:
        prefix, place = normalise(warehouse) + "/", normalise(location)
        return place[len(prefix) :] if place.startswith(prefix) else None
    prefix = warehouse.rstrip("/") + "/"
    if location.startswith(prefix):
        return location[len(prefix) :].rstrip("/")
    if "://" not in warehouse:
        real = os.path.realpath(warehouse).rstrip("/") + "/"
        if location.startswith(real):
            return location[len(real) :].rstrip("/")
    return None


class NewShard(msgspec.Struct, frozen=True):
    """A shard that a prepare built: whose it is, where, and where its rows came from.

    ``expected`` counts the rows that several sources were to bring. ``read`` are the shards, with
    their versions, that a query took its rows from. ``size`` is what ``source`` had by
    the plan, with the seconds that the copy took once it is made.
    """

    target: Target
    path: str
    source: str | None = None
    source_version: int | None = None
    version: int | None = None
    rows: int = 0
    unfilled: bool = False
    expected: int = 0
    read: tuple[tuple[str, int], ...] = ()
    size: TableSize | None = None

    def __str__(self) -> str:
        return str(self.target.definition.item_name)


class AfterCommit(Operation[ExecutionContext]):
    """One step behind a commit. Run with ``keep_going``: what the engine refuses of one does not
    stop the others."""

    def is_hopeless(self, error: Exception) -> bool:
        """Return what is not the engine's is about this process: its lease, or a fault."""
        return not isinstance(error, EngineFailure)


class Ended:
    """Reports operations as they end, by the phase that those of a kind are counted in.

    Others than the ``operations`` that it was told of, and kinds without a phase, are passed over.
    """

    def __init__(
        self, report: OnProgress, phases: Mapping[str, str],
        operations: Iterable[Operation[ExecutionContext]],
    ) -> None:
        self._report, self._phases = report, phases
        self._steps = frozenset(each.step for each in operations)
        self._total = Counter(map(self._phase, self._steps))
        self._ended: Counter[str] = Counter()

    def _phase(self, step: Step) -> str:
        return self._phases.get(step.op, "")

    def __call__(self, operation: Operation[ExecutionContext]) -> None:
        step = operation.step
        phase = self._phase(step)
        if phase and step in self._steps:
            self._ended[phase] += 1
            self._report(Progress(phase, self._ended[phase], self._total[phase], step.subject))
