"""The states of operations as rows and intents of the catalog have them, and what may follow.

Every commit is held to :data:`~catalog_migrate.operations.kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from catalog_migrate.catalog.records import RECONCILE, IntentRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.operations.kinds import (
    ABANDONED,
    BACKFILLING,
    BUILDING,
    COMMITTED,
    FAILED,
    KINDS,
    LATER,
    MIGRATES,
    SEALED,
    SEALING,
    OperationKind,
    OperationState,
)

_ENDED = OperationState()
_NO_STATES: Mapping[str, OperationState] = {}


def phase_of(row: OperationRecord) -> str:
    """Return how far an operation is within its state; empty where that has no parts."""
    return row.detail.get("phase", "")


def state_of(row: OperationRecord) -> str:
    """Return the state of a row, with its phase where that is declared."""
    with_phase = f"{row.state}, {phase_of(row)}"
    return with_phase if with_phase in _states(row) else row.state


def find_declared_state(row: OperationRecord) -> OperationState:
    """Return the declared state of a row; an ended one for a row of another kind."""
    return _states(row).get(state_of(row), _ENDED)


def is_open(row: OperationRecord) -> bool:
    """Whether a runtime has to take an operation to its end; a backfill goes on beside it."""
    return bool(find_declared_state(row).leads_to) and row.state != BACKFILLING


def _states(row: OperationRecord) -> Mapping[str, OperationState]:
    kind = KINDS.get(row.kind)
    return _NO_STATES if kind is None else kind.states


def attempt_state(intent: IntentRecord) -> str:
    """The state of a migration or rollback that is not committed, or of a later attempt, which
    belongs to no plan."""
    if intent.committed:
        return SEALED
    if intent.abandoned:
        return ABANDONED
    if not intent.plan_hash:
        return LATER
    return SEALING if intent.seals else BUILDING


def find_committed_state(state: State) -> str | None:
    """The state of the migration or rollback that was committed; None when nothing is left of it.

    What statements on streams leave to the next start (a name to be dropped, a column of a source's
    table) counts as left of it.
    """
    row = state.operations[RECONCILE] if RECONCILE in state.raw.get("operation", {}) else None
    if row is not None and row.state == FAILED:
        return FAILED
    if state.has_pending_changes:
        return COMMITTED[0]
    if state.raw.get("tombstone"):
        return COMMITTED[1]
    return None if row is None else COMMITTED[2]


def wrong_transitions(state: State, before: State) -> Iterator[str]:
    """Yield what moves between two committed states otherwise than its kind declares, in words.

    What a migration has left to do after its commit may come in any order; its program is held to.
    Rows of kinds that are not declared here are left alone.
    """
    for key in _list_changes(state, before, "operation"):
        stays = key in state.raw.get("operation", {})
        was, now = before.operations.get(key), state.operations[key] if stays else None
        if key != RECONCILE:
            yield from _check_move(f"operation {key}", was, now)
        if now is not None:
            if was is not None and not was.program and state.serial > before.serial:
                was = None  # a word that names of a session failed gives way to the next migration
            yield from _check_program(f"operation {key}", key == RECONCILE, was, now)
    for key in _list_changes(state, before, "intent"):
        old, new = before.intents.get(key), state.intents.get(key)
        yield from _step(
            f"the attempt of epoch {key}", MIGRATES, None if old is None else attempt_state(old),
            _find_end(state, before, old) if new is None else attempt_state(new),
        )


def _find_end(state: State, before: State, attempt: IntentRecord | None) -> str:
    """Where an attempt is whose record a commit took away: its own one, or a clean-up after it."""
    if attempt is not None and attempt.committed:
        return "done"
    if state.serial > before.serial:
        return find_committed_state(state) or "done"
    return "undone"


def _list_changes(state: State, before: State, collection: str) -> Collection[str]:
    new, old = state.raw.get(collection, {}), before.raw.get(collection, {})
    if new is old:
        return ()
    return sorted(key for key in new.keys() | old.keys() if new.get(key) != old.get(key))


def _check_move(
    name: str, old: OperationRecord | None, new: OperationRecord | None
) -> Iterator[str]:
    """A row of its own goes from state to state, and is forgotten only when it has ended."""
    if new is None:
        if old is not None and find_declared_state(old).leads_to:
            yield f"{name} is forgotten while it is {state_of(old)}"
    elif new.kind in KINDS:
        was = None if old is None else state_of(old)
        yield from _step(name, KINDS[new.kind], was, state_of(new))


def _check_program(
    name: str, migrates: bool, old: OperationRecord | None, new: OperationRecord
) -> Iterator[str]:
    """A program has operations of its kind; it changes with the state, that of a migration never.

    It may go: what is left to do is then ordered by what is observed.
    """
    kind = MIGRATES if migrates else KINDS.get(new.kind)
    if kind is None or not new.program or (old is not None and new.program == old.program):
        return
    known = set(kind.steps)
    for op in sorted({str(step.get("op")) for step in new.program} - known):
        yield f"{name} is to {op}, which no {kind.title} does"
    if old is not None and (migrates or state_of(old) == state_of(new)):
        yield f"{name} gets another program while it is {state_of(old)}"


def _step(name: str, kind: OperationKind, old: str | None, new: str | None) -> Iterator[str]:
    """Whether a state may follow another; None stands for nothing on record."""
    if old == new or (old is not None and old not in kind.states):
        return  # another version of the tool wrote it
    if old is None:
        if new not in kind.begins:
            yield f"{name} begins as {new}"
    elif new not in kind.states[old].leads_to and new != kind.states[old].moved:
        yield f"{name} goes from {old} to {new}"
