"""Steps are values: what is done to one object, in which place of the order, and when it was done.

A program is a tuple of steps in their one order (:mod:`catalog_migrate.operations.order`). It is
printed by the report, carried by the plan file as ``steps``, stored with the commit that it follows
from, and executed: each step by its operation (:mod:`catalog_migrate.operations.operation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec

PREPARE, IN_PLACE, NAMES, SESSION = "prepare", "in place", "names", "session"
STREAMS, RETENTION = "streams", "retention"

Op = Literal[
    "build", "copy", "populate", "fill", "seal", "evolve", "unseal", "properties", "create", "drop",
    "redefine", "update", "retire", "validate", "start", "stop", "settle", "restore", "edit",
    "probe",
]
"""The word for an operation in plan files, records and reports."""


class StepWords(msgspec.Struct, frozen=True):
    """What people are told of steps of one kind, and when they are taken.

    ``phase`` is ``prepare`` before the commit, ``in place`` and ``names`` after
    it, ``streams`` for running queries, ``retention`` for what time alone calls for, which no plan
    has. ``symbol``: ``+`` something comes, ``-`` something goes, ``~`` something changes.
    ``table_verb`` is for a table, whose name comes and goes while its rows stay. ``absent``: the
    name is absent from this step on; ``stops``: the query is stopped from this step on, until the
    step ``inverse`` takes it back.
    """

    phase: str
    symbol: str = "~"
    verb: str = ""
    table_verb: str = ""
    absent: bool = False
    stops: bool = False
    inverse: Op | None = None


WORDS: Mapping[Op, StepWords] = {
    # make the directory of a new table, empty
    "build": StepWords(PREPARE, "+"),
    # make a new directory for a table and copy its rows there, from the one in force
    "copy": StepWords(PREPARE),
    # make a new directory for a derived table and let the application fill it
    "populate": StepWords(PREPARE),
    # make the directory of a new table and fill it by a query over the tables in force
    "fill": StepWords(PREPARE, "+"),
    # close the directory in force for writers and carry over what came meanwhile
    "seal": StepWords(PREPARE),
    # change the columns, properties or comments of a table in place
    "evolve": StepWords(IN_PLACE),
    # open a table for writers again, which was sealed because another one is filled from it
    "unseal": StepWords(IN_PLACE),
    # set and unset properties of a table that bring a Delta table feature
    "properties": StepWords(IN_PLACE, verb="set properties of"),
    # create a view or function, or register a table
    "create": StepWords(NAMES, "+", table_verb="register"),
    # drop a name; rows stay where they are
    "drop": StepWords(NAMES, "-", table_verb="unregister", absent=True, inverse="create"),
    # replace a view or function under its name, which is there all the time
    "redefine": StepWords(NAMES, verb="replace"),
    # change what a view or function says of itself: its comments and properties
    "update": StepWords(NAMES),
    # delete the files of a shard that was replaced, its retention being over
    "retire": StepWords(RETENTION, "-", verb="delete"),
    # reach out to a connection with the options that it is to have
    "validate": StepWords(STREAMS, " "),
    # start the query of a source or sink
    "start": StepWords(STREAMS, "+"),
    # stop the query of a source or sink after its batch
    "stop": StepWords(STREAMS, "-", stops=True, inverse="start"),
    # settle a batch that was begun and not committed, so that none is lost or doubled
    "settle": StepWords(STREAMS),
    # take the rows of a source's table back to an earlier version
    "restore": StepWords(STREAMS),
    # write another position into a checkpoint; its snapshot takes it back
    "edit": StepWords(STREAMS),
    # wait until a query that was started is healthy
    "probe": StepWords(STREAMS, " "),
}
"""Every kind of step there is."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """One operation on one object, and its place in the order.

    ``kind`` and ``name`` say which object as a person would (of a shard its path), ``id`` is its
    item id. Steps of one ``wave`` do not depend on each other; a wave begins when the one before it
    has ended, but that a query starts while its source is still probed. ``phase`` is that of its
    words, but ``session`` for names of this session alone.
    """

    op: Op
    kind: str
    name: str
    id: str = ""
    wave: int = 0
    phase: str = ""

    def __post_init__(self) -> None:
        if not self.phase:
            msgspec.structs.force_setattr(self, "phase", WORDS[self.op].phase)

    @property
    def words(self) -> StepWords:
        """What people are told of it."""
        return WORDS[self.op]

    @property
    def symbol(self) -> str:
        """``+``, ``-``, ``~`` or a blank."""
        return WORDS[self.op].symbol

    @property
    def subject(self) -> str:
        """The name without the kind of the object; of a shard its path."""
        if self.kind == "shard":
            return self.name
        return self.name.partition(":")[2] if ":" in self.name.partition("`")[0] else self.name

    def describe(self) -> str:
        """``copy table shop.orders``."""
        words = WORDS[self.op]
        verb = (self.kind == "table" and words.table_verb) or words.verb or self.op
        return f"{verb} {self.kind.replace('_', ' ')} {self.subject}"


def store_program(program: Iterable[Step]) -> tuple[dict[str, Any], ...]:
    """Return a program as a record carries it."""
    return tuple(msgspec.to_builtins(step) for step in program)


def decode_program(program: Sequence[dict[str, Any]]) -> tuple[Step, ...]:
    """The program that a record carries; () where it has operations that this tool does not know.

    A newer tool may have stored it: what is left to do is then ordered by what is observed.
    """
    try:
        return msgspec.convert(program, tuple[Step, ...])
    except msgspec.ValidationError:
        return ()


def interruptions(program: Sequence[Step]) -> list[tuple[str, int, int | None]]:
    """Whose name is absent, or whose query is stopped: (name, from step, to step), by its start.

    The last is the step that takes the first one back; None where there is none.
    """
    found: list[tuple[str, int, int | None]] = []
    later: dict[tuple[Op | None, str], int] = {}
    for number in range(len(program), 0, -1):
        step = program[number - 1]
        words = step.words
        if words.absent or words.stops:
            found.append((step.name, number, later.get((words.inverse, step.name))))
        later[step.op, step.name] = number
    return found[::-1]


def describe_interruption(number: int, back: int | None, *, lasting: str = "for good") -> str:
    """Write from which step to which a name is absent or a query is stopped."""
    return f"from step {number} {lasting}" if back is None else f"from step {number} to step {back}"


def number_steps(
    program: Sequence[Step], shown: int | None = None
) -> list[tuple[str, str]]:
    """(symbol, ``  3  drop view shop.v``) of each operation: how every report prints a program."""
    return [
        (step.symbol, f"{number:>3}  {step.describe()}")
        for number, step in enumerate(program[:shown], 1)
    ]


class Executed(msgspec.Struct, frozen=True, gc=False):
    """One step that was executed.

    ``op``, ``kind``, ``name``, ``id``, ``phase`` and ``wave`` are the step's.
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
        cls, step: Step, began: float, ended: float, outcome: str = "done"
    ) -> Executed:
        """Return what was executed from ``began`` to ``ended`` (seconds since the epoch)."""
        moment = datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="milliseconds")
        return cls(
            step.op, step.kind, step.name, step.id, step.phase,
            moment, round(max(ended - began, 0.0), 3), outcome, step.wave,
        )


