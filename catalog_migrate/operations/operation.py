"""Operations act: each does one step of a program, with its inputs inside; one executor runs them.

An operation is made for a step (of the plan, of a record, or of what is observed to be missing) by
the module that knows how: tables and names by :mod:`catalog_migrate.migrations`, queries by
:mod:`catalog_migrate.streams`. :func:`execute` walks the waves of a program and puts on record what
was executed; what takes a program back is a program of the inverse steps
(:data:`~catalog_migrate.operations.steps.WORDS`). Modelled on Django's migration operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from catalog_migrate.operations.steps import SESSION, Executed, Step

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Execution:
    """Keeps what one process executes, whatever kind of program its steps are of."""

    executed: list[Executed] = field(default_factory=list)
    _logged: int = 0

    def record(self, step: Step, began: float, ended: float, outcome: str = "done") -> None:
        """Put on record that a step was executed from ``began`` to ``ended`` (epoch seconds)."""
        self.executed.append(Executed.of(step, began, ended, outcome))

    @contextmanager
    def executing(self, step: Step, wall: Callable[[], float]) -> Iterator[None]:
        """Put on record when a step is executed inside, how long by the clock ``wall``, and how it
        ends."""
        began, outcome = wall(), "done"
        try:
            yield
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            self.record(step, began, wall(), outcome)

    @contextmanager
    def log_executed(self) -> Iterator[tuple[Executed, ...]]:
        """What was executed and is in no commit yet, for the commit that is made inside."""
        last = len(self.executed)
        yield tuple(one for one in self.executed[self._logged : last] if one.phase != SESSION)
        self._logged = last


def outcome_of(error: BaseException) -> str:
    """``failed:`` and the class of the error; its message may hold values of rows."""
    if not isinstance(error, Exception):
        return "failed: interrupted"
    condition = getattr(error, "condition", None) or getattr(error, "code", None)
    return f"failed: {condition or type(error).__name__}"


class Context(Protocol):
    """What operations are executed with, beside what their module needs."""

    @property
    def execution(self) -> Execution:
        """What was executed."""

    def wall(self) -> float:
        """Return the seconds since the epoch."""

    def spread(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """Run ``act`` on every item side by side; results in the order of the items."""

    def retrying(self, act: Callable[[], R]) -> R:
        """Run a repeatable act with the right to do so, again while what it raises may pass."""


C = TypeVar("C", bound=Context)


@dataclass(frozen=True)
class Operation(ABC, Generic[C]):
    """One step that acts. Every method may be repeated: a process may end behind any line.

    ``TOGETHER`` is how many of one wave run side by side at most; None for all. ``ONCE``: what it
    raises may pass, and yet it is not run again by this process. ``GOES_ON``: :meth:`run` only
    begins it; later waves do not wait for it, and what ends it puts it on record.
    """

    step: Step

    TOGETHER: ClassVar[int | None] = None
    ONCE: ClassVar[bool] = False
    GOES_ON: ClassVar[bool] = False

    @property
    def key(self) -> Hashable:
        """By what others name it in ``needs``."""
        return self.step.id

    @property
    def needs(self) -> frozenset[Any]:
        """Keys of operations without which this one is left out."""
        return frozenset()

    def is_done(self, context: C) -> str:  # noqa: ARG002 - for those that look
        """Return why there is nothing to do, for the record; empty where it must run."""
        return ""

    @abstractmethod
    def run(self, context: C) -> str | None:
        """Do it; return why nothing was done, if so."""

    def describe(self) -> str:
        """``copy table shop.orders``."""
        return self.step.describe()

    def outcome_of(self, error: BaseException) -> str:
        """Return what is put on record when it fails."""
        return outcome_of(error)

    def is_hopeless(self, error: Exception) -> bool:  # noqa: ARG002 - for those that know
        """Return whether all that follow would fail of this error, too, after as long a wait."""
        return False


class Failure(NamedTuple):
    """An operation that failed, and of what."""

    operation: Operation[Any]
    error: Exception


@dataclass(frozen=True, slots=True)
class _Attempt:
    """When an operation was executed, and what became of it."""

    began: float
    ended: float
    outcome: str
    error: BaseException | None = None


def execute(
    operations: Iterable[Operation[C]], context: C, *, keep_going: bool = False,
    on_ended: Callable[[Any], None] = lambda _: None,
) -> list[Failure]:
    """Run operations wave by wave, and put on record what became of each; returns the failures.

    Those of one wave are run side by side, in the order given. What is done already is skipped.
    ``keep_going``: what needs none of those that failed is run nevertheless; else the first error
    is raised when those beside it have ended. ``on_ended`` hears of each that has ended, however.
    """
    execution = context.execution
    failures: list[Failure] = []
    left_out: set[Hashable] = set()
    attempt = partial(_attempt, context, context.wall)
    for group in _groups(operations):
        for operation, ended in context.spread(_ready(group, left_out), attempt):
            if not (operation.GOES_ON and ended.outcome == "done"):
                execution.record(operation.step, ended.began, ended.ended, ended.outcome)
            if not isinstance(ended.error, Exception | None):
                raise ended.error
            on_ended(operation)
            if ended.error is not None:
                left_out.add(operation.key)
                failures.append(Failure(operation, ended.error))
                if keep_going and operation.is_hopeless(ended.error):
                    return failures
        if failures and not keep_going:
            raise failures[0].error
    return failures


def _attempt(context: C, wall: Callable[[], float], operation: Operation[C]) -> _Attempt:
    def act() -> str | None:
        return operation.is_done(context) or operation.run(context)

    began = wall()
    try:
        skipped = act() if operation.ONCE else context.retrying(act)
    except BaseException as error:  # noqa: BLE001 - handed on as a value
        return _Attempt(began, wall(), operation.outcome_of(error), error)
    return _Attempt(began, wall(), f"skipped: {skipped}" if skipped else "done")


def _ready(group: Sequence[Operation[C]], left_out: set[Hashable]) -> Sequence[Operation[C]]:
    """Those of a group that need none of what was left out; the others are left out, too."""
    if not left_out:
        return group
    ready = [each for each in group if not left_out & {each.key, *each.needs}]
    left_out.update(each.key for each in group if left_out & each.needs)
    return ready


def _groups(operations: Iterable[Operation[C]]) -> Iterator[Sequence[Operation[C]]]:
    """What is run side by side: a wave, by kinds that bear only so many at once."""
    ordered = sorted(operations, key=lambda each: each.step.wave)
    for _, wave in groupby(ordered, key=lambda each: each.step.wave):
        for most, alike in groupby(wave, key=lambda each: each.TOGETHER):
            group = list(alike)
            for first in range(0, len(group), most or len(group)):
                yield group[first : first + (most or len(group))]
