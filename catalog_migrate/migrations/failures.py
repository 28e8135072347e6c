"""What could not be done after a commit: told, and put on record for ``status``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import RECONCILE, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Edit, Put, Swap, WhileAt
from catalog_migrate.errors import EngineFailure, MetastoreFailure, NotReconciled
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.kinds import FAILED


class StepFailure(msgspec.Struct, frozen=True):
    """One step that failed: what, on which name, Spark's error class, how often it was tried.

    ``held``: it was not tried, because something of others has the name.
    """

    step: str
    name: str
    reason: str
    condition: str | None = None
    attempts: int = 1
    remedy: str | None = None
    held: bool = False

    def __str__(self) -> str:
        condition = f" [{self.condition}]" if self.condition else ""
        tries = counted(self.attempts, "attempt")
        return f"{self.step} {self.name}{condition} after {tries}: {self.reason}"


def failure_of(step: str, name: str, error: Exception) -> StepFailure:
    """What is told of an error of the engine; any other one ends the start, and is raised."""
    if not isinstance(error, EngineFailure):
        raise error
    return StepFailure(
        step, name, error.message, error.condition, int(error.data.get("attempts", 1)),
        error.remedy if isinstance(error, MetastoreFailure) else None,
    )


def remedy_of(failures: Iterable[StepFailure]) -> str:
    """What to do about steps that failed: what one of them says, else the cause is to be found."""
    said = next((each.remedy for each in failures if each.remedy), None)
    return f"{said or 'fix the cause and run `catalog-migrate bootstrap` again'}; nothing is lost"


def not_tolerated(
    told: list[str], state: State, failures: list[StepFailure]
) -> list[StepFailure]:
    """Return the failures that stop a start; the others are told, and tried again at each start.

    Those are on users' objects, and a name of our own views that something else has.
    """
    owners = {str(m.key.item_name).lower(): m.owner for m in state.mappings.values()}

    def stops(failure: StepFailure) -> bool:
        owner = owners.get(failure.name.lower())
        return owner != "user" and not (owner == "system" and failure.held)

    told += [str(failure) for failure in failures if not stops(failure)]
    return [failure for failure in failures if stops(failure)]


class EndReconcile(msgspec.Struct, frozen=True):
    """Nothing is to be reconciled any more; what is pending in a session stays, unless names
    last."""

    names_last: bool

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return that the pending operation goes."""
        row = state.operations.get(RECONCILE)
        if row is None or (is_of_session(row) and not self.names_last):
            return ()
        return (Delete("operation", RECONCILE),)


def record_failure(work: ExecutionContext, error: NotReconciled) -> None:
    """Write the failing step into the catalog, so that ``status`` can name it without Spark."""
    record = _failure_record(error)
    if record is None:
        return

    fences = () if work.lease is None else (work.held,)
    with work.journal.log_executed() as executed:
        commit(work.log, Commit(
            "reconcile", (RecordFailure(record),), fences, executed=executed
        ))


class RecordFailure(msgspec.Struct, frozen=True):
    """Record what fails in the pending reconciliation, whose program stays."""

    record: OperationRecord

    def apply(self, state: State) -> tuple[Edit]:
        """Return the operation."""
        pending = state.operations.get(RECONCILE)
        program = () if pending is None else pending.program
        return (Put("operation", RECONCILE, replace(self.record, program=program)),)


def record_session_failure(work: ExecutionContext, seen: State, error: NotReconciled) -> None:
    """Leave word that names of this session could not be made, unless it is on record.

    Not where the catalog moved on from ``seen`` or calls for shared work: that says pending itself.
    """
    record, known = _failure_record(error), seen.operations.get(RECONCILE)
    if record is None or (known is not None and not is_of_session(known)):
        return
    record = replace(record, detail={**record.detail, **_OF_SESSION})
    if record == known:
        return
    note = WhileAt(seen.serial, Swap("operation", RECONCILE, known, record))
    commit(work.log, Commit("reconcile", (note,)))


def clear_session_failure(work: ExecutionContext, state: State) -> State:
    """Return the state without the word of :func:`record_session_failure`, once names were made."""
    known = state.operations.get(RECONCILE)
    if known is None or not is_of_session(known):
        return state
    return commit(work.log, Commit("reconcile", (Swap("operation", RECONCILE, known, None),)))


_OF_SESSION = {"phase": "session"}
"""What a failure has in its detail when it is about names that end with their session."""


def is_of_session(record: OperationRecord) -> bool:
    """Return whether a failure is about names that end with their session."""
    return record.state == FAILED and _OF_SESSION.items() <= record.detail.items()


def _failure_record(error: NotReconciled) -> OperationRecord | None:
    failures: Iterable[StepFailure] = error.failures
    first = next(iter(failures), None)
    if first is None:
        return None
    return OperationRecord(
        kind=RECONCILE,
        state=FAILED,
        detail={
            "step": f"{first.step} {first.name}",
            "condition": first.condition or "",
            "reason": first.reason[:1000],
            "attempts": str(first.attempts),
            "failures": str(len(error.failures)),
        },
    )
