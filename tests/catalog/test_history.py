"""The history of a catalog comes from its commits, whole or not at all; the audit copies it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable, QueryBuilder

from catalog_migrate.catalog import commits, side_tables
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.history import (
    MANY,
    entries,
    list_touched_items,
    object_history,
    state_at,
    version_of_serial,
)
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    OperationRecord,
    ReleaseRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogCorrupt, CatalogWriteRefused, UnknownSerial
from catalog_migrate.store.address import Storage
from tests.decisions import Changes, commit


def book(key: str) -> Callable[[State], Changes]:
    """A commit that leaves the serial alone."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("operation", key, OperationRecord(kind="k", state="s"))
        return changes

    return decide


def release(name: str) -> Callable[[State], Changes]:
    """A commit that puts a release in force and raises the serial."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.raise_serial()
        record = ReleaseRecord(
            owner="release", name=name, manifest_hash=name, serial=1, in_force=True
        )
        changes.put("release", "release/000001", record)
        return changes

    return decide


def some_history(log: CatalogLog, build: Any) -> None:
    """Five commits: tables, bookkeeping, a compaction, a release, bookkeeping."""
    create_catalog(log, warehouse="w")
    commit(log, build.tables("a", "b"), kind="migrate")
    commit(log, book("o"), kind="intent")
    log.compact(follows=2, commit_id="compacted")
    commit(log, release("15"), kind="release", reason="because")
    commit(log, book("p"), kind="reconcile")


class TestEntries:
    def test_all(self, users: Any, build: Any) -> None:
        """Each commit says what, who, from where, the serials around it, release and reason."""
        some_history(users.first, build)
        found = list(entries(users.second))
        assert [
            (e.version, e.verb, e.serial_before, e.serial_after, e.release, e.reason)
            for e in found
        ] == [
            (5, "reconcile", 2, 2, "15", None),
            (4, "release", 1, 2, "15", "because"),
            (3, "compact", 1, 1, None, None),
            (2, "intent", 1, 1, None, None),
            (1, "migrate", 0, 1, None, None),
            (0, "create", None, 0, None, None),
        ]
        assert {(e.who, e.host) for e in found if e.verb in {"migrate", "release"}} == {
            (this_user(), this_host())
        }
        assert found[4].items == ("i1", "i2")
        assert [e.is_routine for e in found] == [True, False, True, True, False, False]

    def test_part(self, users: Any, build: Any) -> None:
        """A part of the history says of each commit just what the whole says."""
        some_history(users.first, build)
        whole = list(entries(users.first))
        for down_to, upto in ((0, 5), (2, 4), (4, 4), (3, 3), (5, None)):
            last = 5 if upto is None else upto
            assert list(entries(users.first, down_to=down_to, upto=upto)) == [
                entry for entry in whole if down_to <= entry.version <= last
            ], (down_to, upto)

    def test_many_items(self) -> None:
        """A commit lists the items that it touches, or says that they are many."""
        edits = {("item", f"i{n}"): "" for n in range(4)} | {("mapping", "m"): ""}
        assert list_touched_items(edits) == "i0,i1,i2,i3"
        assert list_touched_items(edits, limit=3) == "*"


class TestStateAt:
    def test_serials(self, users: Any, build: Any) -> None:
        """Each serial's newest state can be read, through compactions."""
        some_history(users.first, build)
        assert [version_of_serial(users.second, n) for n in (0, 1, 2)] == [0, 3, 5]
        assert state_at(users.second, 0).items == {}
        then = state_at(users.second, 1)
        assert (then.serial, sorted(then.items), then.release_in_force()) == (1, ["i1", "i2"], None)
        assert sorted(state_at(users.second, 2).operations) == ["o", "p"]

    def test_never(self, users: Any, build: Any) -> None:
        """A serial that never was is refused with the newest one named."""
        some_history(users.first, build)
        with pytest.raises(UnknownSerial, match="never had serial 7: it is at 2"):
            state_at(users.first, 7)


class TestObjects:
    def test_life(self, users: Any, build: Any) -> None:
        """An object is followed by its id: created, migrated, renamed, dropped."""
        log = users.first
        create_catalog(log, warehouse="w")
        commit(log, build.tables("a", "b"), kind="migrate")
        key_a, key_z = (identity_text(("relation", "s", name)) for name in ("a", "z"))

        def change(edit: Callable[[Changes, State], None]) -> None:
            def decide(state: State) -> Changes:
                changes = Changes()
                changes.raise_serial()
                edit(changes, state)
                return changes

            commit(log, decide, kind="migrate")

        def rename(changes: Changes, _: State) -> None:
            changes.delete("mapping", key_a)
            changes.put("mapping", key_z, build.mapping(1, "z"))
            changes.put("item", "i1", build.item(1, "z", shard="s/a/1"))

        def drop(changes: Changes, state: State) -> None:
            changes.delete("mapping", key_z)
            changes.delete("item", "i1")
            changes.put("item", "i2", build.item(2, "b"))
            shard = state.shards["s/a/1"]
            changes.put("shard", "s/a/1", msgspec.structs.replace(shard, state="gone"))

        change(rename)
        while_there = [(e.happening, e.name) for e in object_history(users.second, key_z)]
        assert while_there == [("renamed", "s.z"), ("created", "s.a")]
        change(drop)
        found = [(e.happening, e.name, e.entry.serial_after)
                 for e in object_history(users.second, key_z)]
        assert found == [("dropped", "s.z", 3), ("renamed", "s.z", 2), ("created", "s.a", 1)]
        assert list(object_history(users.first, identity_text(("relation", "s", "no")))) == []

    def test_commits_of_many_others(
        self, users: Any, build: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that says no more than that it touched many items is looked into: it made others."""
        log = users.first
        create_catalog(log, warehouse="w")

        def one(_: State) -> Changes:
            changes = Changes()
            changes.raise_serial()
            build.table(changes, 2, "b")
            for counter in ("i", "s"):
                changes.put("allocator", counter, AllocatorRecord(3))
            return changes

        with monkeypatch.context() as few:
            few.setattr(commits, "list_touched_items", lambda _: MANY)
            commit(log, build.tables("a"), kind="migrate")
        commit(log, one, kind="migrate")
        key = identity_text(("relation", "s", "b"))
        found = [(each.happening, each.entry.serial_after) for each in object_history(log, key)]
        assert found == [("created", 2)]


@pytest.fixture
def place(tmp_path: Path, build: Any) -> Path:
    path = tmp_path / "catalog"
    some_history(open_log(str(path)), build)
    return path


def commit_file(place: Path, version: int) -> Path:
    return place / "log" / "_delta_log" / f"{version:020d}.json"


def damage(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the lines of a commit file, each as JSON."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def in_info(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        if "commitInfo" in line:
            line["commitInfo"][name] = value

    return change


def replaced(action: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        if action in line:
            line[action] = value

    return change


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [
            replaced("commitInfo", 5),
            replaced("commitInfo", None),
            replaced("commitInfo", []),
            replaced("add", None),
            replaced("add", "x"),
            in_info("timestamp", "noon"),
            in_info("timestamp", 10**17),
            in_info("timestamp", True),
            in_info("catalog_migrate.serial", "one"),
            in_info("catalog_migrate.serial", "-1"),
            in_info("catalog_migrate.serial", 1),
            in_info("catalog_migrate.serial", "9" * 40),
            in_info("catalog_migrate.epoch", "?"),
            in_info("catalog_migrate.kind", None),
            in_info("operationMetrics", 7),
            in_info("operationMetrics", {"num_added_files": "many"}),
            in_info("operationMetrics", {"num_added_files": [1]}),
        ],
    )
    def test_wrong_shape(self, place: Path, change: Callable[[dict[str, Any]], None]) -> None:
        """JSON of another shape than a commit's is a typed error that names the file."""
        path = commit_file(place, 1)
        damage(path, change)
        with pytest.raises(CatalogCorrupt) as caught:
            list(entries(open_log(str(place))))
        assert caught.value.data["file"] == str(path)
        assert str(path) in caught.value.message

    def test_a_number_of_files_that_is_none(self, place: Path) -> None:
        """The message says what the commit names, not that it is truncated."""
        damage(commit_file(place, 1), in_info("operationMetrics", {"num_added_files": "many"}))
        with pytest.raises(CatalogCorrupt, match="is damaged: it names 'many' data files"):
            list(entries(open_log(str(place))))

    @pytest.mark.parametrize("version", [0, 1, 2, 4])
    def test_missing(self, place: Path, version: int) -> None:
        """A missing commit is an error from the first entry on, never a shorter history."""
        commit_file(place, version).unlink()
        with pytest.raises(CatalogCorrupt, match=f"{version:020d}.json.*is missing"):
            next(entries(open_log(str(place))))

    def test_file_of_that_time(self, place: Path) -> None:
        """A data file that only an earlier serial needs is named when that serial is read."""
        log = open_log(str(place))
        assert isinstance(log, DeltaLog)
        old = {Path(uri) for uri in DeltaTable(str(place / "log"), version=2).file_uris()}
        new = {Path(uri) for uri in DeltaTable(str(place / "log")).file_uris()}
        for path in old - new:
            path.unlink()
        assert state_at(log, 2).serial == 2
        commit_file(place, 3)
        with pytest.raises(CatalogCorrupt, match=r"parquet"):
            log.read_at(2)


def audit_rows(place: Path) -> list[tuple[Any, ...]]:
    query = QueryBuilder().register("audit", DeltaTable(str(place / "audit")))
    found = query.execute(
        "SELECT version, verb, serial_before, serial_after, reason FROM audit ORDER BY version"
    ).read_all()
    return list(zip(*(found.column(n).to_pylist() for n in range(5)), strict=True))


class TestAudit:
    def test_copy(self, place: Path) -> None:
        """Every commit is in the audit once, however often and by whomever it is copied."""
        log, other = open_log(str(place)), open_log(str(place))
        assert log.keep_audit() == 6
        assert other.keep_audit() == 0
        commit(other, book("q"), kind="operation", reason="late")
        assert log.keep_audit() == 1
        assert other.keep_audit() == 0
        assert audit_rows(place) == [
            (0, "create", None, 0, None), (1, "migrate", 0, 1, None), (2, "intent", 1, 1, None),
            (3, "compact", 1, 1, None), (4, "release", 1, 2, "because"),
            (5, "reconcile", 2, 2, None), (6, "operation", 2, 2, "late"),
        ]

    def test_race(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of two that copy the same commits one wins and the other has nothing left to do."""
        import deltalake

        write = deltalake.write_deltalake
        log, other = open_log(str(place)), open_log(str(place))

        def slow(*args: Any, **kwargs: Any) -> None:
            monkeypatch.setattr(deltalake, "write_deltalake", write)
            other.keep_audit()
            write(*args, **kwargs)

        for expected in (6, 7):
            monkeypatch.setattr(deltalake, "write_deltalake", slow)
            assert log.keep_audit() == 0
            assert len(audit_rows(place)) == expected
            commit(log, book("q"), kind="operation")

    def test_reply_lost(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A copy that landed while its reply was lost is not made twice."""
        import deltalake

        write = deltalake.write_deltalake

        def lose(*args: Any, **kwargs: Any) -> None:
            monkeypatch.setattr(deltalake, "write_deltalake", write)
            write(*args, **kwargs)
            raise OSError("no reply")

        open_log(str(place)).keep_audit()
        log = open_log(str(place))
        commit(log, book("q"), kind="operation")
        monkeypatch.setattr(deltalake, "write_deltalake", lose)
        with pytest.raises(CatalogWriteRefused, match="the next start copies what is missing"):
            log.keep_audit()
        assert log.keep_audit() == 0
        assert len(audit_rows(place)) == 7

    def test_removed(self, place: Path) -> None:
        """An audit that somebody removed is written again, whole, from the log."""
        import shutil

        log = open_log(str(place))
        log.keep_audit()
        shutil.rmtree(place / "audit")
        assert log.keep_audit() == 6

    def test_many(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The small files of many starts are put together; no row is lost, none is doubled."""
        monkeypatch.setattr(side_tables, "TIDIED", 8)
        log = open_log(str(place))
        log.keep_audit()
        for number in range(30):
            commit(log, book(f"q{number}"), kind="operation")
            assert log.keep_audit() == 1
        assert [row[0] for row in audit_rows(place)] == list(range(36))
        assert len(DeltaTable(str(place / "audit")).file_uris()) <= 9

    def test_memory(self, build: Any) -> None:
        """The log in memory keeps the same audit."""
        log = MemoryLog()
        some_history(log, build)
        assert log.keep_audit() == 6
        assert log.keep_audit() == 0
        assert [entry.version for entry in log.audit] == [0, 1, 2, 3, 4, 5]

    def test_memory_says_when_it_is_kept(self, build: Any) -> None:
        """Who watches the calls hears of it before and behind it, to be killed at either."""
        log = MemoryLog()
        some_history(log, build)
        heard: list[tuple[str, int]] = []
        log.on_call = lambda call: heard.append((call, len(log.audit)))
        log.keep_audit()
        assert (heard[0], heard[-1]) == (("audit", 0), ("audit.done", 6))


def test_who_cannot_write_a_table_beside_the_log_is_told_why(tmp_path: Path) -> None:
    """The store's own words; without any, that others were faster."""
    table = side_tables.Renewals(str(tmp_path / "beats"), Storage())
    assert "no space left" in table.write_refused(OSError("no space left")).message
    assert "faster every time" in table.write_refused(None).message
