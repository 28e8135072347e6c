"""Operations go as their kind declares and in no other way: every pair of states is tried."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.records import (
    RECONCILE,
    IntentRecord,
    OperationRecord,
    SealedShard,
    ShardRecord,
    TombstoneRecord,
    to_reconcile,
)
from catalog_migrate.errors import CheckFailed
from catalog_migrate.operations.kinds import (
    ABANDONED,
    ALTER,
    BUILDING,
    COMMITTED,
    FAILED,
    KINDS,
    LATER,
    MIGRATE,
    SEALING,
    UNSAFE,
    OperationKind,
)
from catalog_migrate.operations.steps import WORDS, Step, store_program
from tests.decisions import Changes, commit
from tests.services.left_behind import leave
from tests.simulation.states import migration_state

ROWS = [
    (word, old, new) for word in (ALTER, UNSAFE)
    for old, new in product((None, *KINDS[word].states), KINDS[word].states)
]
SEAL = SealedShard("s/t/1", 3, {})
ATTEMPTS = {
    BUILDING: IntentRecord(1, "p", "2", paths=("s/t/2",)),
    SEALING: IntentRecord(1, "p", "2", paths=("s/t/2",), seals=(SEAL,)),
    ABANDONED: IntentRecord(1, "p", "2", seals=(SEAL,), abandoned=True),
    LATER: IntentRecord(1, "", "refill", paths=("s/t/2",)),
}
CREATE = store_program([Step("create", "view", "s.v", "i1", 1)])
START = store_program([Step("start", "source", "s.q", "i1", 1)])


def row(kind: str, place: str) -> OperationRecord:
    """A row in a declared state."""
    state, _, phase = place.partition(", ")
    return OperationRecord(kind, state, {"phase": phase} if phase else {})


def put(key: str, record: OperationRecord) -> Changes:
    changes = Changes()
    changes.put("operation", key, record)
    return changes


def is_refused(log: MemoryLog, changes: Changes) -> bool:
    version = log.version()
    try:
        commit(log, lambda _: changes, kind="test")
    except CheckFailed:
        assert log.version() == version
        return True
    return False


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestDeclared:
    """What holds of every kind."""

    def test_states_are_reached_and_left(self, kind: OperationKind) -> None:
        """Each state is reached from those that one begins in, and leads to an end."""
        reached: set[str] = set()
        following = set(kind.begins)
        while following - reached:
            reached |= following
            following = {name for each in reached for name in kind.states[each].leads_to}
        assert reached == set(kind.states)
        ends = {name for name, state in kind.states.items() if not state.leads_to}
        while True:
            more = {n for n, state in kind.states.items() if ends.intersection(state.leads_to)}
            if more <= ends:
                break
            ends |= more
        assert ends == set(kind.states)

    def test_where_it_ends_early(self, kind: OperationKind) -> None:
        """An error leads where the state leads; a move of the catalog to an end."""
        for state in kind.states.values():
            assert not state.refused or state.refused in state.leads_to
            assert not state.moved or not kind.states[state.moved].leads_to

    def test_its_inverse_undoes_what_it_does(self, kind: OperationKind) -> None:
        """It is a kind, which has every operation that takes one back."""
        inverse = KINDS[kind.inverse]
        assert {WORDS[op].inverse for op in kind.steps} - {None} <= set(inverse.steps)


@pytest.mark.parametrize(("word", "old", "new"), ROWS)
def test_each_step_of_a_row(memory: MemoryLog, word: str, old: str | None, new: str) -> None:
    """A row goes from one state to another where that is declared, and nowhere else."""
    kind = KINDS[word]
    if old is None:
        allowed = new in kind.begins
    else:
        leave(memory, put("o", row(word, old)))
        allowed = new in (old, *kind.states[old].leads_to, kind.states[old].moved)
    assert is_refused(memory, put("o", row(word, new))) is not allowed


@pytest.mark.parametrize("word", [ALTER, UNSAFE])
def test_what_is_open_is_not_forgotten(memory: MemoryLog, word: str) -> None:
    """Only a row that has ended may go."""
    for name, state in KINDS[word].states.items():
        leave(memory, put("o", row(word, name)))
        gone = Changes()
        gone.delete("operation", "o")
        assert is_refused(memory, gone) is bool(state.leads_to), name


def attempt(name: str) -> Changes:
    """An intent in a declared state; or gone, cleaned up after or with the commit it was for."""
    changes = Changes()
    if name in ATTEMPTS:
        changes.put("intent", "1", ATTEMPTS[name])
        return changes
    changes.delete("intent", "1")
    if name != "undone":
        changes.put("operation", RECONCILE, to_reconcile("bring in serial 1", CREATE))
        changes.raise_serial()
    return changes


@pytest.mark.parametrize(
    ("old", "new"),
    [*product((None,), ATTEMPTS), *product(ATTEMPTS, (*ATTEMPTS, "undone", COMMITTED[2]))],
)
def test_each_step_of_an_attempt(memory: MemoryLog, old: str | None, new: str) -> None:
    """An intent begins without seals, forgets none, and is not committed once it is abandoned."""
    kind = KINDS[MIGRATE]
    allowed = new in kind.begins
    if old is not None:
        assert migration_state(leave(memory, attempt(old))) == old
        allowed = new in (old, *kind.states[old].leads_to)
    assert is_refused(memory, attempt(new)) is not allowed


class TestCommitted:
    """A migration or rollback from its commit on."""

    def test_where_it_is(self, memory: MemoryLog) -> None:
        """Told by what is left, the most urgent first."""
        found = []
        changes = put(RECONCILE, to_reconcile("x"))
        found.append(migration_state(leave(memory, changes)))
        changes = Changes()
        changes.put("tombstone", "1/1", TombstoneRecord("i1", "s1", "s", "view", "v", 1, 1))
        found.append(migration_state(leave(memory, changes)))
        changes = Changes()
        changes.put("shard", "s/t/1", ShardRecord("i1", "s1", "live", evolve=True))
        found.append(migration_state(leave(memory, changes)))
        failed = put(RECONCILE, OperationRecord(RECONCILE, FAILED))
        found.append(migration_state(leave(memory, failed)))
        assert found == [*COMMITTED[::-1], FAILED]

    def test_no_other_one_before_it_is_done(self, memory: MemoryLog) -> None:
        """What was committed keeps its program to the end; that may be given up, never replaced."""
        leave(memory, put(RECONCILE, to_reconcile("bring in serial 1", CREATE)))
        other = store_program([Step("create", "view", "s.w", "i2", 1)])
        assert is_refused(memory, put(RECONCILE, to_reconcile("bring in serial 2", other)))
        assert not is_refused(memory, put(RECONCILE, to_reconcile("bring in serial 1")))

    def test_a_word_of_a_session_gives_way_to_the_next_one(self, memory: MemoryLog) -> None:
        """That names of a session could not be made stays on record, without a program, when all
        else is done: the next migration puts its own there, by the commit that raises the serial
        and by no other."""
        word = OperationRecord(RECONCILE, FAILED, {"phase": "session", "step": "create s.t"})
        leave(memory, put(RECONCILE, word))
        other = put(RECONCILE, to_reconcile("bring in serial 1", CREATE))
        assert is_refused(memory, other)
        other.raise_serial()
        assert not is_refused(memory, other)


class TestPrograms:
    """A stored program has operations of its kind, and stays while the state does."""

    @pytest.mark.parametrize(
        ("key", "record", "other"),
        [
            (RECONCILE, to_reconcile("x", START), "is to start, which no migration does"),
            ("o", replace(row(ALTER, "validating"), program=CREATE), "which no ALTER does"),
            ("o", replace(row(UNSAFE, "requested"), program=CREATE), "no unsafe operation does"),
        ],
    )
    def test_of_another_kind(
        self, memory: MemoryLog, key: str, record: OperationRecord, other: str
    ) -> None:
        """It is refused, with the operation and the kind."""
        with pytest.raises(CheckFailed, match=other):
            commit(memory, lambda _: put(key, record), kind="test")

    def test_another_one_under_way(self, memory: MemoryLog) -> None:
        """Nobody replaces what is being executed, unless the operation goes on with it."""
        leave(memory, put("o", replace(row(ALTER, "trial"), program=START)))
        other = store_program([Step("start", "source", "s.other", "i2", 1)])
        assert is_refused(memory, put("o", replace(row(ALTER, "trial"), program=other)))
        assert not is_refused(
            memory, put("o", replace(row(ALTER, "trial, setting back"), program=other))
        )


def test_what_is_not_declared_is_left_alone(memory: MemoryLog) -> None:
    """Rows of other kinds, and those in a state that another version of the tool gave them."""
    for state in ("a", "b"):
        assert not is_refused(memory, put("o", OperationRecord("slot", state)))
    leave(memory, put("n", OperationRecord(ALTER, "of a newer tool")))
    assert not is_refused(memory, put("n", row(ALTER, "failed")))
