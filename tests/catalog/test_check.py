"""Every invariant of a commit, each broken once: the commit is refused and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ColumnIds,
    ConfigRecord,
    LeaseRecord,
    ReleaseRecord,
    ShardRecord,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CheckFailed
from tests.decisions import Changes, commit

Edit = Callable[[Changes, State, Any], None]
replace = msgspec.structs.replace


@pytest.fixture
def log(memory: MemoryLog, build: Any) -> MemoryLog:
    """Tables a, b, c as i1, i2, i3, each using the one before; a lease at epoch 4."""
    commit(memory, build.tables("a", "b", "c"), kind="test")

    def lease(_: State) -> Changes:
        changes = Changes()
        changes.put("lease", "migration", LeaseRecord(epoch=4))
        return changes

    commit(memory, lease, kind="test")
    return memory


def put_item(key: str, **fields: Any) -> Edit:
    def edit(changes: Changes, state: State, _: Any) -> None:
        changes.put("item", key, replace(state.items[key], **fields))

    return edit


def put_mapping(key: str, **fields: Any) -> Edit:
    def edit(changes: Changes, state: State, _: Any) -> None:
        changes.put("mapping", key, replace(state.mappings[key], **fields))

    return edit


def put_shard(key: str, **fields: Any) -> Edit:
    def edit(changes: Changes, state: State, _: Any) -> None:
        changes.put("shard", key, replace(state.shards[key], **fields))

    return edit


def put(collection: str, key: str, record: Any) -> Edit:
    return lambda changes, _, __: changes.put(collection, key, record)


def delete(collection: str, key: str) -> Edit:
    return lambda changes, _, __: changes.delete(collection, key)


def both(*edits: Edit) -> Edit:
    def edit(changes: Changes, state: State, build: Any) -> None:
        for one in edits:
            one(changes, state, build)

    return edit


def new_table(number: int) -> Edit:
    return lambda changes, _, build: build.table(changes, number, "d")


BROKEN: dict[str, tuple[Edit, str]] = {
    "id not handed out": (new_table(9), r"i9 was never handed out \(next is i4\)"),
    "id that is none": (put_item("i1", global_id="x1"), "'x1' is not an id of the form s<n>"),
    "global id twice": (
        both(put_item("i1", global_id="s2"), put_mapping("relation:s.a", global_id="s2")),
        "s2 belongs to both i1 and i2",
    ),
    "counter falls": (put("allocator", "i", AllocatorRecord(next=3)), "'i' falls from 4 to 3"),
    "counter deleted": (delete("allocator", "u"), "'u' falls from 1 to None"),
    "a column without an id": (
        put_item("i1", column_ids=ColumnIds((1, 2), 2)), r"i1 \(s\.a\) have not one id each",
    ),
    "a column's id never handed out": (
        put_item("i1", column_ids=ColumnIds((4,), 3)), r"i1 \(s\.a\) has an id never handed out",
    ),
    "a column's id taken by another": (
        put_item("i1", column_ids=ColumnIds((2,), 2)), "the ids of the columns of s1 change",
    ),
    "mapping without item": (
        both(delete("item", "i3"), put_shard("s/c/1", state="retired")),
        "relation:s.c names i3, which does not exist",
    ),
    "item without mapping": (delete("mapping", "relation:s.c"), r"i3 \(s\.c\) has no mapping"),
    "ids disagree": (
        put_mapping("relation:s.c", global_id="s1"),
        "relation:s.c is s1 by its mapping, s3 by its item",
    ),
    "names disagree": (
        put_mapping("relation:s.c", name="x"), "the mapping relation:s.c is of s.x"
    ),
    "owners disagree": (put_mapping("relation:s.c", owner="user"), "is owned by user by its map"),
    "two names of an item": (
        lambda changes, state, _: changes.put(
            "mapping", "relation:s.x", replace(state.mappings["relation:s.c"], name="x")
        ),
        "i3 has two names: relation:s.c and relation:s.x",
    ),
    "dangling edge": (put_item("i3", uses=("i7",)), r"i3 \(s\.c\) uses i7, which does not exist"),
    "used by one that stays": (
        both(
            delete("item", "i1"), delete("mapping", "relation:s.a"),
            put_shard("s/a/1", state="retired"),
        ),
        r"i2 \(s\.b\) uses i1, which does not exist",
    ),
    "cycle": (
        put_item("i1", uses=("i3",)),
        r"in a circle: i1 \(s\.a\) -> i3 \(s\.c\) -> i2 \(s\.b\) -> i1 \(s\.a\)",
    ),
    "uses itself": (put_item("i2", uses=("i2",)), r"in a circle: i2 \(s\.b\) -> i2 \(s\.b\)"),
    "columns change": (
        put_mapping("relation:s.a", fingerprint="1:zz"),
        r"the columns of s1 \(relation:s\.a\) change under its id",
    ),
    "columns change under a re-stamp": (
        lambda changes, state, build: (
            changes.put("mapping", "relation:s.a",
                        replace(state.mappings["relation:s.a"], fingerprint="2:zz")),
            changes.put("item", "i1", replace(
                state.items["i1"], definition=build.definition("a", "STRING"))),
        )[0],
        r"the columns of s1 \(relation:s\.a\) change under its id",
    ),
    "shard not handed out": (put_item("i1", shard="s/a/9"), "s/a/9, which was never handed out"),
    "shard of another": (put_item("i1", shard="s/b/1"), "s/b/1, which belongs to i2"),
    "shard shared": (put_item("i1", shard="s/b/1"), "i1 and i2 both have the shard s/b/1"),
    "shard retired": (put_shard("s/b/1", state="retired"), "i2 has the shard s/b/1, which is re"),
    "shard of another item retired": (
        lambda changes, state, build: (
            changes.put("item", "i1", replace(
                state.items["i1"], definition=replace(
                    state.items["i1"].definition, comment="other"))),
            changes.put("shard", "s/b/1", replace(state.shards["s/b/1"], state="retired")),
        )[0],
        "i2 has the shard s/b/1, which is retired",
    ),
    "shard given away": (put_shard("s/b/1", item_id="i1"), "s/b/1, which belongs to i1"),
    "shard row deleted": (
        both(put_item("i1", shard=None), delete("shard", "s/a/1")),
        "the row of the shard s/a/1 is deleted",
    ),
    "serial falls": (put("config", "serial", ConfigRecord(value="0")), "serial falls from 1 to 0"),
    "lineage changes": (put("config", "lineage", ConfigRecord(value="x")), "'lineage' never"),
    "epoch falls": (put("lease", "migration", LeaseRecord(epoch=3)), "falls from 4 to 3"),
    "lease deleted": (delete("lease", "migration"), "'migration' is deleted"),
    "two releases in force": (
        both(*(put("release", f"release/{n}", ReleaseRecord("release", f"r{n}", "h", 1, True))
               for n in (1, 2))),
        "releases 'r1' and 'r2' are both in force",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refused(log: MemoryLog, build: Any, name: str) -> None:
    """A commit that breaks the rule is refused, says which one, and leaves no version."""
    edit, message = BROKEN[name]

    def decide(state: State) -> Changes:
        changes = Changes()
        edit(changes, state, build)
        return changes

    version = log.version()
    with pytest.raises(CheckFailed, match=message):
        commit(log, decide, kind="test")
    assert log.version() == version


ALLOWED: dict[str, Edit] = {
    "quarantined edges may dangle": put_item("i3", uses=("i7",), quarantined="parent is gone"),
    "shard being built": put("shard", "s/z/1", ShardRecord("i99", "s99", "building")),
    "shard of nobody ends": both(
        put_item("i3", shard=None), put_shard("s/c/1", state="retired")
    ),
    "re-stamped fingerprint": put_mapping("relation:s.a", fingerprint="2:zz"),
    "whole object goes": both(
        delete("item", "i3"), delete("mapping", "relation:s.c"), put_shard("s/c/1", state="gone")
    ),
    "new warehouse": put("config", "warehouse", ConfigRecord(value="elsewhere")),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(log: MemoryLog, build: Any, name: str) -> None:
    """What the rules allow is committed."""

    def decide(state: State) -> Changes:
        changes = Changes()
        ALLOWED[name](changes, state, build)
        return changes

    version = log.version()
    commit(log, decide, kind="test")
    assert log.version() == version + 1


@pytest.mark.parametrize("name", {**BROKEN, **ALLOWED})
def test_what_is_passed_over_was_sound(log: MemoryLog, build: Any, name: str) -> None:
    """Records that are the very same are not looked at again: nothing is missed by that.

    Two states that share no record, because both were read afresh, are looked at whole.
    """
    edit = ALLOWED[name] if name in ALLOWED else BROKEN[name][0]
    before, changes = read_state(log), Changes()
    for decoded in (before.items, before.mappings, before.shards):
        assert decoded  # and handed on to the state after it
    edit(changes, before, build)
    check(before)
    after = before.apply_edits(before.version + 1, changes.effective(before))
    assert any(after.items.get(key) is item for key, item in before.items.items())
    found = problems(after, before)
    whole = problems(State(after.version, after.raw), State(before.version, before.raw))
    assert found <= whole  # of a counter that falls, only that is told
    assert bool(found) == bool(whole) == (name in BROKEN)


@pytest.mark.parametrize("commits_before", [0, 2])
def test_a_state_that_was_never_checked_is_not_trusted(
    log: MemoryLog, build: Any, commits_before: int
) -> None:
    """What is wrong already in a log is found by the next commit of objects, whichever these are,
    and commits of leases before it change nothing in that."""
    raw = {kind: dict(rows) for kind, rows in read_state(log).raw.items()}
    raw["item"]["i3"] = raw["item"]["i3"].replace('"uses":["i2"]', '"uses":["i7"]')
    damaged = MemoryLog()
    damaged.create(
        [LogRow(kind, key, text, 1) for kind, rows in raw.items() for key, text in rows.items()],
        commit_id="x",
    )
    for epoch in range(5, 5 + commits_before):
        commit(damaged, lambda _, epoch=epoch: lease_of(epoch), kind="test")

    def decide(state: State) -> Changes:
        assert len(state.items) == len(state.mappings) == 3  # decoded, and handed on
        changes = Changes()
        build.table(changes, 4, "d")
        return changes

    with pytest.raises(CheckFailed, match=r"i3 \(s\.c\) uses i7, which does not exist"):
        commit(damaged, decide, kind="test")


def lease_of(epoch: int) -> Changes:
    changes = Changes()
    changes.put("lease", "migration", LeaseRecord(epoch=epoch))
    return changes


def problems(state: State, before: State) -> frozenset[str]:
    try:
        check(state, before)
    except CheckFailed as refusal:
        return frozenset(refusal.data["problems"])
    return frozenset()


def test_ids_never_come_back(log: MemoryLog, build: Any) -> None:
    """I5: the ids of a removed object are not given to anything again."""

    def remove(state: State) -> Changes:
        changes = Changes()
        changes.delete("item", "i3")
        changes.delete("mapping", "relation:s.c")
        changes.put("shard", "s/c/1", replace(state.shards["s/c/1"], state="retired"))
        return changes

    def again(_: State) -> Changes:
        changes = Changes()
        build.table(changes, 3, "d")
        return changes

    commit(log, remove, kind="test")
    with pytest.raises(CheckFailed) as caught:
        commit(log, again, kind="test")
    assert caught.value.data["problems"] == (
        "s3 (relation:s.d) was given to something else before",
        "i3 (s.d) was given to something else before",
    )


def test_all_at_once(log: MemoryLog, build: Any) -> None:
    """All problems are in the error, twenty of them in its text."""

    def decide(_: State) -> Changes:
        changes = Changes()
        for number in range(10, 40):
            build.table(changes, number, f"t{number}")
        return changes

    with pytest.raises(CheckFailed, match=r"60 problems(?s:.*)and 40 more") as caught:
        commit(log, decide, kind="test")
    assert len(caught.value.data["problems"]) == 60


def test_long_chain(memory: MemoryLog, build: Any) -> None:
    """A chain of 5,000 objects is checked without recursion."""
    state = commit(memory, build.tables(*(f"t{n}" for n in range(5_000))), kind="test")
    check(read_state(memory))
    assert len(state.items) == 5_000


def test_cheap(log: MemoryLog) -> None:
    """A commit that touches a lease decodes neither items nor mappings nor shards."""
    reopened = MemoryLog()
    reopened.create([LogRow(*row, 1) for row in log.replay().rows], commit_id="x")

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("lease", "migration", LeaseRecord(epoch=5))
        return changes

    state = commit(reopened, decide, kind="test")
    assert {"items", "mappings", "shards"}.isdisjoint(vars(state))
