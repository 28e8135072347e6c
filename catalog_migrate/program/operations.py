"""Operations are values: what is done to one object, and what is recorded once it was done.

A program is a tuple of operations in their one order (:mod:`catalog_migrate.program.order`). It is
printed by the report, carried by the plan file as ``steps``, stored with the commit that it follows
from, and executed. Modelled on Alembic's ``operations.ops`` and Django's migration operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar

import msgspec

PREPARE, IN_PLACE, NAMES, SESSION = "prepare", "in place", "names", "session"
STREAMS, RETENTION = "streams", "retention"


class Operation(msgspec.Struct, frozen=True, tag_field="op", gc=False):
    """One operation on one object.

    ``kind`` and ``name`` say which object as a person would, ``id`` is its item id. Operations of
    one ``wave`` do not depend on each other; a wave begins when the one before it has ended, but
    that a query starts while its source is still probed.
    ``phase`` is when it is taken: ``prepare`` before the commit, ``in place`` and ``names`` after
    it, ``session`` for names of this session alone, ``streams`` for running queries, ``retention``
    for what time alone calls for, which no plan has.
    """

    kind: str
    name: str
    id: str = ""
    wave: int = 0
    phase: str = ""

    symbol: ClassVar[str] = "~"
    """``+`` something comes, ``-`` something goes, ``~`` something changes."""
    verb: ClassVar[str] = ""
    table_verb: ClassVar[str] = ""
    """The verb for a table, whose name comes and goes while its rows stay."""
    absent: ClassVar[bool] = False
    """Whether the name is absent from this operation on."""
    stands_still: ClassVar[bool] = False
    """Whether the query stands still from this operation on."""
    inverse: ClassVar[type[Operation] | None] = None
    """What takes it back, where anything does."""

    @property
    def op(self) -> str:
        """The word for the operation in plan files and reports."""
        return str(type(self).__struct_config__.tag)

    def describe(self) -> str:
        """``copy table shop.orders``."""
        name = self.name.partition(":")[2] if ":" in self.name.partition("`")[0] else self.name
        verb = (self.kind == "table" and self.table_verb) or self.verb or self.op
        return f"{verb} {self.kind.replace('_', ' ')} {name}"


class BuildTable(Operation, frozen=True, tag="build"):
    """Make the directory of a new table, empty."""

    phase: str = PREPARE
    symbol: ClassVar[str] = "+"


class CopyTable(Operation, frozen=True, tag="copy"):
    """Make a new directory for a table and copy its rows there, from the one in force."""

    phase: str = PREPARE


class PopulateTable(Operation, frozen=True, tag="populate"):
    """Make a new directory for a derived table and let the application fill it."""

    phase: str = PREPARE


class FillTable(Operation, frozen=True, tag="fill"):
    """Make the directory of a new table and fill it by a query over the tables in force."""

    phase: str = PREPARE
    symbol: ClassVar[str] = "+"


class SealTable(Operation, frozen=True, tag="seal"):
    """Close the directory in force for writers and carry over what came meanwhile."""

    phase: str = PREPARE


class EvolveTable(Operation, frozen=True, tag="evolve"):
    """Change the columns, properties or comments of a table in place."""

    phase: str = IN_PLACE


class UnsealTable(Operation, frozen=True, tag="unseal"):
    """Open a table for writers again, which was sealed because another one is filled from it."""

    phase: str = IN_PLACE


class SetProperties(Operation, frozen=True, tag="properties"):
    """Set and unset properties of a table that bring a Delta table feature."""

    phase: str = IN_PLACE
    verb: ClassVar[str] = "set properties of"


class CreateName(Operation, frozen=True, tag="create"):
    """Create a view or function, or register a table."""

    phase: str = NAMES
    symbol: ClassVar[str] = "+"
    table_verb: ClassVar[str] = "register"


class DropName(Operation, frozen=True, tag="drop"):
    """Drop a name; rows stay where they are."""

    phase: str = NAMES
    symbol: ClassVar[str] = "-"
    table_verb: ClassVar[str] = "unregister"
    absent: ClassVar[bool] = True
    inverse: ClassVar[type[Operation] | None] = CreateName


class ReplaceName(Operation, frozen=True, tag="redefine"):
    """Replace a view or function under its name, which is there all the time."""

    phase: str = NAMES
    verb: ClassVar[str] = "replace"


class UpdateComment(Operation, frozen=True, tag="update"):
    """Change what a view or function says of itself: its comments and properties."""

    phase: str = NAMES


class RetireShard(Operation, frozen=True, tag="retire"):
    """Delete the files of a shard that was replaced, its retention being over.

    ``name`` is its path, ``id`` that of the item whose rows it had.
    """

    kind: str = "shard"
    name: str = ""
    phase: str = RETENTION
    symbol: ClassVar[str] = "-"
    verb: ClassVar[str] = "delete"


class ValidateConnection(Operation, frozen=True, tag="validate"):
    """Reach out to a connection with the options that it is to have."""

    phase: str = STREAMS
    symbol: ClassVar[str] = " "


class StartQuery(Operation, frozen=True, tag="start"):
    """Start the query of a source or sink."""

    phase: str = STREAMS
    symbol: ClassVar[str] = "+"


class StopQuery(Operation, frozen=True, tag="stop"):
    """Stop the query of a source or sink after its batch."""

    phase: str = STREAMS
    symbol: ClassVar[str] = "-"
    stands_still: ClassVar[bool] = True
    inverse: ClassVar[type[Operation] | None] = StartQuery


class SettleCheckpoint(Operation, frozen=True, tag="settle"):
    """Settle a batch that was begun and not committed, so that none is lost or doubled."""

    phase: str = STREAMS


class RestoreTable(Operation, frozen=True, tag="restore"):
    """Take the rows of a source's table back to an earlier version."""

    phase: str = STREAMS


class EditCheckpoint(Operation, frozen=True, tag="edit"):
    """Write another position into a checkpoint; its snapshot takes it back."""

    phase: str = STREAMS


class ProbeQuery(Operation, frozen=True, tag="probe"):
    """Wait until a query that was started is healthy."""

    phase: str = STREAMS
    symbol: ClassVar[str] = " "


AnyOperation = (
    BuildTable | CopyTable | PopulateTable | FillTable | SealTable | EvolveTable | SetProperties
    | UnsealTable | DropName | ReplaceName | UpdateComment | CreateName | RetireShard
    | ValidateConnection | StopQuery | SettleCheckpoint | RestoreTable | EditCheckpoint | StartQuery
    | ProbeQuery
)
"""Every operation there is, told apart by ``op`` in JSON."""


def stored(program: Iterable[Operation]) -> tuple[dict[str, Any], ...]:
    """A program as a record carries it."""
    return tuple(msgspec.to_builtins(step) for step in program)


def decoded(program: Sequence[dict[str, Any]]) -> tuple[AnyOperation, ...]:
    """The program that a record carries; () where it has operations that this tool does not know.

    A newer tool may have stored it: what is left to do is then ordered anew, from what is observed.
    """
    try:
        return msgspec.convert(program, tuple[AnyOperation, ...])
    except msgspec.ValidationError:
        return ()


def outcome_of(error: Exception) -> str:
    """``failed:`` and the class of the error; its message may hold values of rows."""
    condition = getattr(error, "condition", None) or getattr(error, "code", None)
    return f"failed: {condition or type(error).__name__}"


def interruptions(program: Sequence[Operation]) -> list[tuple[str, int, int | None]]:
    """Whose name is absent, or whose query stands still: (name, from step, to step), by its start.

    The last is the step that takes the first one back; None where there is none.
    """
    found: list[tuple[str, int, int | None]] = []
    later: dict[tuple[type[Operation] | None, str], int] = {}
    for number in range(len(program), 0, -1):
        step = program[number - 1]
        if step.absent or step.stands_still:
            found.append((step.name, number, later.get((step.inverse, step.name))))
        later[type(step), step.name] = number
    return found[::-1]


def describe_interruption(number: int, back: int | None, *, lasting: str = "for good") -> str:
    """Write from which step to which a name is absent or a query is stopped."""
    return f"from step {number} {lasting}" if back is None else f"from step {number} to step {back}"


def numbered(
    program: Sequence[Operation], shown: int | None = None
) -> list[tuple[str, str]]:
    """(symbol, ``  3  drop view shop.v``) of each operation: how every report prints a program."""
    return [
        (step.symbol, f"{number:>3}  {step.describe()}")
        for number, step in enumerate(program[:shown], 1)
    ]


class Executed(msgspec.Struct, frozen=True, gc=False):
    """One operation that was executed.

    ``op``, ``kind``, ``name``, ``id``, ``phase`` and ``wave`` are the operation's.
    ``started`` is ISO 8601 in UTC, ``seconds`` how long it took, ``outcome`` ``done``, or why
    not: ``failed: <reason>``, ``skipped: <reason>``.
    """

    op: str
    kind: str
    name: str
    id: str
    phase: str
    started: str
    seconds: float
    outcome: str = "done"
    wave: int = 0

    @classmethod
    def of(
        cls, operation: Operation, began: float, ended: float, outcome: str = "done"
    ) -> Executed:
        """What was executed from ``began`` to ``ended`` (seconds since the epoch)."""
        moment = datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="milliseconds")
        return cls(
            operation.op, operation.kind, operation.name, operation.id, operation.phase,
            moment, round(max(ended - began, 0.0), 3), outcome, operation.wave,
        )


@dataclass(slots=True)
class Execution:
    """Keeps what one process executes, whatever kind of operation its steps are of."""

    executed: list[Executed] = field(default_factory=list)
    _logged: int = 0

    def record(
        self, step: Operation, began: float, ended: float, outcome: str = "done"
    ) -> None:
        """Put on record that a step was executed from ``began`` to ``ended`` (epoch seconds)."""
        self.executed.append(Executed.of(step, began, ended, outcome))

    @contextmanager
    def executing(self, step: Operation, wall: Callable[[], float]) -> Iterator[list[str]]:
        """Put on record when a step is executed inside, how long by the clock ``wall``, and how it
        ends; what is put into the list says why nothing was done."""
        skipped: list[str] = []
        began, outcome = wall(), "failed: interrupted"
        try:
            yield skipped
            outcome = f"skipped: {skipped[0]}" if skipped else "done"
        except Exception as error:
            outcome = outcome_of(error)
            raise
        finally:
            self.record(step, began, wall(), outcome)

    @contextmanager
    def unlogged(self) -> Iterator[tuple[Executed, ...]]:
        """What was executed and is in no commit yet, for the commit that is made inside."""
        last = len(self.executed)
        yield tuple(one for one in self.executed[self._logged : last] if one.phase != SESSION)
        self._logged = last
