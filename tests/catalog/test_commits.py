"""Commits: no-ops, retries, fences, faults of the log."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    OperationRecord,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CommitConflict, LeaseLost
from tests.decisions import Changes, commit


def put(state: str = "s", *, serial: bool = True) -> Any:
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("operation", "o", OperationRecord(kind="k", state=state))
        if serial:
            changes.raise_serial()
        return changes

    return decide


class TestNothingToCommit:
    def test_none(self, memory: MemoryLog) -> None:
        """A decision for nothing is no commit."""
        assert commit(memory, lambda _: None, kind="test").version == 0
        assert memory.version() == 0

    def test_same_record(self, memory: MemoryLog) -> None:
        """Putting what is there already is no commit, and raises no serial."""
        first = commit(memory, put(), kind="test")
        again = commit(memory, put(), kind="test")
        assert (first.version, first.serial) == (again.version, again.serial) == (1, 1)

    def test_delete_nothing(self, memory: MemoryLog) -> None:
        """Deleting what is not there is no commit."""

        def decide(_: State) -> Changes:
            changes = Changes()
            changes.delete("operation", "o")
            changes.raise_serial()
            return changes

        assert commit(memory, decide, kind="test").version == 0

    def test_last_word(self, memory: MemoryLog) -> None:
        """The last word on a key counts."""

        def decide(_: State) -> Changes:
            changes = Changes()
            changes.put("allocator", "u", AllocatorRecord(next=9))
            changes.delete("allocator", "u")
            changes.put("allocator", "u", AllocatorRecord(next=2))
            return changes

        assert commit(memory, decide, kind="test").allocators["u"].next == 2


class TestRaces:
    def test_decides_again(self, memory: MemoryLog) -> None:
        """After a lost race the decision is made again, on what the winner left."""
        rival = memory.attach()
        seen: list[int] = []

        def decide(state: State) -> Changes:
            seen.append(state.serial)
            if len(seen) < 3:
                commit(rival, put(f"rival {len(seen)}"), kind="rival")
            return put("mine")(state)  # type: ignore[no-any-return]

        state = commit(memory, decide, kind="test")
        assert seen == [0, 1, 2]
        assert (state.version, state.serial, state.operations["o"].state) == (3, 3, "mine")

    def test_gives_up(self, memory: MemoryLog) -> None:
        """A writer that always loses says so after the attempts it was given."""
        rival = memory.attach()
        tries = iter(range(100))

        def decide(state: State) -> Changes:
            commit(rival, put(f"rival {next(tries)}"), kind="rival")
            return put("mine")(state)  # type: ignore[no-any-return]

        with pytest.raises(CommitConflict, match="3 times in a row"):
            commit(memory, decide, kind="test", attempts=3)
        assert next(tries) == 3

    def test_a_decision_may_refuse(self, memory: MemoryLog) -> None:
        """What the decision raises ends the commit at once, a conflict too."""
        calls: list[int] = []

        def decide(_: State) -> Changes:
            calls.append(1)
            raise CommitConflict("the serial moved")

        with pytest.raises(CommitConflict, match="the serial moved"):
            commit(memory, decide, kind="test")
        assert calls == [1]

    def test_fence(self, memory: MemoryLog) -> None:
        """A commit under an epoch needs a lease of that epoch, held."""
        with pytest.raises(LeaseLost, match="it is gone"):
            commit(memory, put(), epoch=1, kind="test")


class Crash(BaseException):
    """The process is gone."""


class TestFaults:
    def test_lost_reply(self, memory: MemoryLog) -> None:
        """A commit that landed while its reply was lost has succeeded, once."""

        def lose(call: str) -> None:
            if call == "append.done":
                raise OSError("connection reset")

        memory.on_call = lose
        state = commit(memory, put(), kind="test")
        assert (state.version, state.serial, memory.version()) == (1, 1, 1)

    @pytest.mark.parametrize(("at", "version"), [("append", 0), ("append.done", 1), ("read", 0)])
    def test_crash(self, memory: MemoryLog, at: str, version: int) -> None:
        """A process can die before a call and after it; what landed stays."""

        def die(call: str) -> None:
            if call == at:
                raise Crash(call)

        memory.on_call = die
        with pytest.raises(Crash):
            commit(memory, put(), kind="test")
        assert memory.attach().version() == version

    def test_crash_in_creation(self) -> None:
        """A creation that died after its commit has created the catalog."""

        def die(call: str) -> None:
            if call == "create.done":
                raise Crash(call)

        log = MemoryLog(on_call=die)
        with pytest.raises(Crash):
            create_catalog(log, warehouse="w")
        assert read_state(log.attach()).serial == 0

    def test_metadata(self, memory: MemoryLog, clock: Any) -> None:
        """A commit carries its kind, the serial after it, its epoch, and who made it where."""
        lease = acquire(memory, holder="a", clock=clock)
        state = commit(memory, put(), kind="migrate", epoch=lease.epoch)
        assert memory.history[state.version][1] == {
            "kind": "migrate", "serial": "1", "epoch": "1", "items": "", "who": this_user(),
            "host": this_host(),
        }
