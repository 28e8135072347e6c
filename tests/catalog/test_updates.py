"""Updates and requirements: values that say what a commit writes, and what must hold for it."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.catalog.commits import Commit, commit, commit_onto
from catalog_migrate.catalog.lease import Confirm, Release, Unlock, acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import (
    ConfigRecord,
    ItemRecord,
    LeaseRecord,
    OperationRecord,
    SessionRecord,
)
from catalog_migrate.catalog.requirements import Epoch, Requirement, SerialIs
from catalog_migrate.catalog.sessions import RegisterSession, RemoveSessions
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Amend,
    Delete,
    Put,
    RaiseSerial,
    Swap,
    Update,
    edits_of,
    preview,
    put_object,
)
from catalog_migrate.errors import CommitConflict, LeaseHeld, LeaseLost, UnknownSession
from catalog_migrate.model.objects import Hashes, ObjectDefinition

ROW = OperationRecord(kind="k", state="s")
OTHER = OperationRecord(kind="k", state="other")
HELD = LeaseRecord(epoch=3, holder="a")


@pytest.fixture
def state(memory: MemoryLog) -> State:
    """One operation, one lease held under epoch 3, two sessions; the serial is 1."""
    return commit(memory, Commit("test", (
        Put("operation", "o", ROW), Put("lease", "migration", HELD),
        Put("session", "one", SessionRecord(release="1", serial=1)),
        Put("session", "two", SessionRecord(release="1", serial=2)), RaiseSerial(),
    )))


@pytest.mark.parametrize(("update", "edits"), [
    (Put("operation", "n", ROW), [Put("operation", "n", ROW)]),
    (Delete("operation", "n"), [Delete("operation", "n")]),
    (RaiseSerial(), [RaiseSerial()]),
    (Amend("operation", "o", {"state": "other"}), [Put("operation", "o", OTHER)]),
    (Amend("operation", "o", {"state": "x"}, where={"kind": "n"}), []),
    (Amend("operation", "o", {"state": "other"}, where={"kind": "k"}),
     [Put("operation", "o", OTHER)]),
    (Amend("operation", "n", {"state": "x"}), []),
    (Swap("operation", "o", ROW, OTHER), [Put("operation", "o", OTHER)]),
    (Swap("operation", "o", ROW, None), [Delete("operation", "o")]),
    (Swap("operation", "o", OTHER, ROW), []),
    (Swap("operation", "o", None, OTHER), []),
    (Swap("operation", "n", None, OTHER), [Put("operation", "n", OTHER)]),
    (Confirm("migration"),
     [Put("lease", "migration", LeaseRecord(epoch=3, holder="a", confirmed=1))]),
    (Release("migration", 3), [Put("lease", "migration", LeaseRecord(epoch=3))]),
    (Release("migration", 2), []),
    (Release("cluster/i1", 1), []),
    (Unlock("a"), [Put("lease", "migration", LeaseRecord(epoch=4))]),
    (RemoveSessions(frozenset({"two"})), [Delete("session", "two")]),
    (RemoveSessions(frozenset(), before=2), [Delete("session", "one")]),
    (RegisterSession("me", SessionRecord(release="1", serial=7), "fresh"), []),
])
def test_what_an_update_comes_to(state: State, update: Update, edits: list[Any]) -> None:
    """Each, in the newest state; what is not as it was seen is left alone."""
    assert edits_of(state, [update]) == edits


@pytest.mark.parametrize(("update", "error", "said"), [
    (Unlock("b"), LeaseHeld, "is held by 'a'"),
    (RemoveSessions(frozenset({"none", "one"})), UnknownSession, "the id none"),
])
def test_an_update_may_refuse(
    memory: MemoryLog, state: State, update: Update, error: type[Exception], said: str
) -> None:
    """What it raises ends the commit, and nothing is written."""
    with pytest.raises(error, match=said):
        commit(memory, Commit("test", (Put("operation", "n", ROW), update)))
    assert memory.version() == state.version


@pytest.mark.parametrize(("requirement", "error", "said"), [
    (Epoch("migration", 3), None, ""),
    (Epoch("migration", 2), LeaseLost, "is at epoch 3, held by 'a'"),
    (Epoch("cluster/i1", 1), LeaseLost, "it is gone"),
    (SerialIs(1), None, ""),
    (SerialIs(0), CommitConflict, "moved from serial 0 to 1"),
    (SerialIs(0, "it moved", "look again"), CommitConflict, "^CM0210 .*: it moved"),
])
def test_requirements(
    memory: MemoryLog, state: State, requirement: Requirement, error: type[Exception] | None,
    said: str,
) -> None:
    """A commit is made where all of them hold; else it raises what the first one says."""
    wanted = Commit("test", (Put("operation", "n", ROW),), (SerialIs(1), requirement))
    if error is None:
        assert commit(memory, wanted).operations["n"] == ROW
        return
    with pytest.raises(error, match=said):
        commit(memory, wanted)
    assert memory.version() == state.version


def test_a_released_lease_has_no_epoch(memory: MemoryLog, clock: Any) -> None:
    """Nothing is written under a lease that was given back, though its epoch is the newest."""
    lease = acquire(memory, holder="a", clock=clock)
    lease.release()
    with pytest.raises(LeaseLost, match="it is at epoch 1"):
        commit(memory, Commit("test", (Put("operation", "o", ROW),), (lease.held,)))


def test_values_print_and_compare() -> None:
    """A commit says in one line what must hold and what is written, and equals another like it."""
    one, two = (
        Commit("migrate", (Amend("shard", "s/t/1", {"evolve": False}), RaiseSerial()),
               (Epoch("migration", 7), SerialIs(3)), reason="why")
        for _ in range(2)
    )
    assert one == two
    assert one.epoch == 7
    assert str(one.requirements) == (
        "(Epoch(lease='migration', epoch=7), SerialIs(serial=3, said='', remedy='plan again'))"
    )
    assert str(one.updates) == (
        "(Amend(collection='shard', key='s/t/1', fields={'evolve': False}, where={}),"
        " RaiseSerial())"
    )
    for value in (one, *one.updates, *one.requirements):
        with pytest.raises(AttributeError, match="immutable"):
            value.kind = "x"  # type: ignore[union-attr]


def test_the_state_before_and_after(memory: MemoryLog, state: State) -> None:
    """A commit tells what it was made on: of one that wrote nothing, both are the same."""
    before, after = commit_onto(memory, Commit("test", (Swap("operation", "o", ROW, OTHER),)))
    assert (before.operations["o"], after.operations["o"]) == (ROW, OTHER)
    again = commit_onto(memory, Commit("test", (Swap("operation", "o", ROW, OTHER),)))
    assert again.before is again.after
    assert memory.version() == state.version + 1


def test_a_preview_writes_nothing(memory: MemoryLog, state: State) -> None:
    """The state as updates would leave it, the serial among it."""
    seen = preview(state, (Put("config", "note", ConfigRecord(value="x")), RaiseSerial()))
    assert (seen.config["note"].value, seen.serial) == ("x", 2)
    assert (read_state(memory).serial, memory.version()) == (1, state.version)


def test_all_updates_see_the_newest_state(memory: MemoryLog, state: State) -> None:
    """Of two updates of one record each sees it as it was before; the last word counts."""
    wanted = Commit("test", (
        Amend("operation", "o", {"state": "first"}), Amend("operation", "o", {"kind": "second"}),
    ))
    assert commit(memory, wanted).operations["o"] == OperationRecord(kind="second", state="s")
    assert state.operations["o"] == ROW


def test_an_object_is_put_with_its_name(state: State) -> None:
    """The mapping has the item's owner, ids and hashes, under its folded name."""
    hashes = Hashes("1:f", "2:d", "1:s", "1:c", "1:t")
    item = ItemRecord("user", "s4", ObjectDefinition("Shop", "view", "Big"))
    after = preview(state, put_object("i3", item, hashes, applied=("1:x",)))
    mapping = after.mappings["relation:shop.big"]
    assert after.items["i3"] == item
    assert (mapping.owner, mapping.item_id, mapping.global_id) == ("user", "i3", "s4")
    assert (str(mapping.key), mapping.hashes) == ("Shop.Big", hashes)
    assert mapping.applied == ("1:x",)
