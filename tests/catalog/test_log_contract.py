"""The contract of the log, for the Delta table and for memory alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from catalog_migrate.catalog import commits
from catalog_migrate.catalog.log import CatalogLog, LogRow
from catalog_migrate.catalog.opening import SessionSettings, create_catalog, read_state
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogNotFound, CommitConflict
from tests.decisions import Changes, commit

FORMAT = LogRow("config", "format_version", '{"value":"1"}', 1)
ROW = LogRow("operation", "o", '{"kind":"k","state":"1"}', 1)


def contents(log: CatalogLog) -> tuple[int, list[tuple[str, str, str]]]:
    """Version and rows of the newest state, but for its format."""
    state = log.read()
    return state.version, [row for row in state.rows if row != FORMAT[:3]]


class TestCreate:
    def test_nothing_there(self, users: Any) -> None:
        """Where no log is, it does not exist, and reading says CatalogNotFound with a remedy."""
        assert users.first.exists() is False
        with pytest.raises(CatalogNotFound, match=r"there is no catalog at .*(?s:.*)remedy: "):
            users.first.read()
        with pytest.raises(CatalogNotFound):
            users.first.version()
        assert users.first.heartbeat("migration") is None

    def test_first_version(self, users: Any) -> None:
        """The first rows are version 0 and everybody sees them."""
        assert users.first.create([FORMAT, ROW], commit_id="c0") == 0
        assert users.second.exists() is True
        assert users.second.version() == 0
        assert contents(users.second) == (0, [("operation", "o", ROW.value)])

    def test_twice(self, users: Any) -> None:
        """A log is created once; the second creator gets a conflict and changes nothing."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        with pytest.raises(CommitConflict):
            users.second.create([FORMAT, ROW], commit_id="c1")
        assert users.second.read().version == 0

    def test_settings(self, users: Any) -> None:
        """A new catalog has serial 0, its warehouse and session settings, and fresh counters."""
        berlin = SessionSettings(ansi=False, time_zone="Europe/Berlin")
        state = create_catalog(users.first, warehouse="w", sessions=berlin)
        again = read_state(users.second)
        assert again.raw == state.raw
        own = ("lineage", "home")
        assert {key: row.value for key, row in again.config.items() if key not in own} == {
            "format_version": "1", "serial": "0", "warehouse": "w", "ansi": "false",
            "time_zone": "Europe/Berlin",
        }
        home = again.config.get("home")
        assert (None if home is None else home.value) == users.first.home
        assert len(again.lineage) == 32
        assert {key: row.next for key, row in again.allocators.items()} == {"i": 1, "s": 1, "u": 1}


class TestAppend:
    def test_sum(self, users: Any) -> None:
        """The state is the sum of all rows: a retraction removes what was added."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        users.first.read()
        new = '{"kind":"k","state":"2"}'
        rows = [ROW._replace(diff=-1), LogRow("operation", "o", new, 1)]
        assert users.first.append(rows, follows=0, commit_id="c1", metadata={"kind": "t"}) == 1
        assert contents(users.first) == (1, [("operation", "o", new)])
        assert contents(users.second) == (1, [("operation", "o", new)])

    def test_compare_and_set(self, users: Any) -> None:
        """Only the first of two commits that follow one version lands."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        users.first.read()
        users.second.read()
        other = LogRow("operation", "p", ROW.value, 1)
        assert users.first.append([other], follows=0, commit_id="c1", metadata={}) == 1
        with pytest.raises(CommitConflict) as caught:
            users.second.append([other], follows=0, commit_id="c2", metadata={})
        assert caught.value.sqlstate == "40001"
        assert users.second.version() == 1

    def test_future(self, users: Any) -> None:
        """A commit cannot follow a version that does not exist yet."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        with pytest.raises(CommitConflict):
            users.first.append([ROW], follows=3, commit_id="c1", metadata={})
        assert users.first.version() == 0

    def test_find_commit(self, users: Any) -> None:
        """A commit is found by its id, by any user, above the version asked for only."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        users.first.append(
            [LogRow("operation", "p", "{}", 1)], follows=0, commit_id="c1", metadata={}
        )
        assert users.second.find_commit("c0", after=-1) == 0
        assert users.second.find_commit("c1", after=0) == 1
        assert users.second.find_commit("c1", after=1) is None
        assert users.second.find_commit("c9", after=-1) is None


class TestCompact:
    def test_state_stays(self, users: Any) -> None:
        """Compaction is one more version in one file, with the very same state."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        for version in range(5):
            row = LogRow("operation", f"p{version}", "{}", 1)
            users.first.append([row], follows=version, commit_id=f"d{version}", metadata={})
        before = sorted(users.second.read().rows)
        assert users.first.live_files() == 6
        assert users.first.compact(follows=5, commit_id="z") == 6
        assert users.first.live_files() == 1
        assert sorted(users.second.read().rows) == before
        assert users.second.find_commit("z", after=5) == 6
        row = LogRow("operation", "q", "{}", 1)
        assert users.second.append([row], follows=6, commit_id="e", metadata={}) == 7

    def test_lost_race(self, users: Any) -> None:
        """Compaction of a version that is not the newest any more is refused."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        users.second.append(
            [LogRow("operation", "p", "{}", 1)], follows=0, commit_id="c1", metadata={}
        )
        with pytest.raises(CommitConflict):
            users.first.compact(follows=0, commit_id="z")
        assert len(contents(users.first)[1]) == 2

    def test_when_due(self, users: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commits compact the log as soon as more than 64 files are live, and lose nothing.

        On a store, where each commit takes a quarter of a second, more than eight.
        """
        if users.first.uri.startswith("s3://"):
            monkeypatch.setattr(commits, "FILES", 8)
        most = commits.FILES
        create_catalog(users.first, warehouse="w")
        for number in range(most + 6):
            commit(users.first, _operation(number), kind="test")
        assert users.first.live_files() <= most
        assert users.first.version() == most + 7
        state = read_state(users.second)
        assert (state.serial, len(state.operations)) == (most + 6, most + 6)


class TestRenewals:
    def test_newest_counts(self, users: Any) -> None:
        """A heartbeat is seen by others, the newest one for each lease, and is no version."""
        users.first.create([FORMAT, ROW], commit_id="c0")
        users.first.renew("migration", "1:a")
        users.second.renew("cluster/c", "7:x")
        users.first.renew("migration", "1:b")
        assert users.second.heartbeat("migration") == "1:b"
        assert users.first.heartbeat("cluster/c") == "7:x"
        assert users.first.heartbeat("cluster/d") is None
        assert users.first.version() == 0


def test_racing_threads(users: Any) -> None:
    """Eight threads with ten increments each: none is lost, and each has its own version.

    On a store four threads with four each: there a lost race takes a quarter of a second.
    """
    threads_of, each = (4, 4) if users.first.uri.startswith("s3://") else (8, 10)
    total = threads_of * each
    create_catalog(users.first, warehouse="w")
    seen: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def work(log: Any, name: str) -> None:
        try:
            for number in range(each):
                state = commit(log, _increment(f"{name}/{number}"), kind="race", attempts=500)
                seen.append((state.version, state.serial))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=(users.first if n % 2 else users.second, str(n)))
        for n in range(threads_of)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    state = read_state(users.first)
    assert (state.serial, state.operations["count"].state) == (total, str(total))
    assert len(state.operations) == total + 1
    assert sorted(serial for _, serial in seen) == list(range(1, total + 1))
    assert len({version for version, _ in seen}) == total


def _operation(number: int) -> Any:
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("operation", str(number), OperationRecord(kind="k", state="s"))
        changes.raise_serial()
        return changes

    return decide


def _increment(name: str) -> Any:
    def decide(state: State) -> Changes:
        old = state.operations.get("count")
        changes = Changes()
        count = 1 + (int(old.state) if old is not None else 0)
        changes.put("operation", "count", OperationRecord(kind="k", state=str(count)))
        changes.put("operation", name, OperationRecord(kind="k", state="done"))
        changes.raise_serial()
        return changes

    return decide
