"""The state that is kept beside the log: when it is taken, and that it says what the log says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.catalog import kept_state
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import (
    RECONCILE,
    AllocatorRecord,
    ConfigRecord,
    OperationRecord,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import LARGE, State, encode_record
from catalog_migrate.errors import CatalogCorrupt, UnsupportedFormat
from tests.catalog.conftest import Build
from tests.decisions import Changes, commit


def put_tables(log: DeltaLog, *names: str) -> State:
    """Commit tables of the release, numbered from 1."""
    def decide(state: State) -> Changes:
        changes = Changes()
        first = state.allocators["i"].next
        for number, name in enumerate(names, first):
            Build().table(changes, number, name)
        for letter in "is":
            changes.put("allocator", letter, AllocatorRecord(next=first + len(names)))
        return changes

    commit(log, decide, kind="tables")
    return read_state(log)


def put(log: DeltaLog, collection: str, key: str, record: Any) -> None:
    """Commit one record."""
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put(collection, key, record)
        return changes

    commit(log, decide, kind="note")


def delete(log: DeltaLog, collection: str, key: str) -> None:
    """Commit that one record goes."""
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.delete(collection, key)
        return changes

    commit(log, decide, kind="note")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A catalog of two tables whose newest state is kept."""
    log = DeltaLog(str(tmp_path / "c"))
    create_catalog(log, warehouse="w")
    put_tables(log, "t", "u")
    log.keep_state()
    return tmp_path / "c"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions at which rows of a log are read."""
    found: list[int] = []
    query: Callable[..., Any] = DeltaLog._query

    def _query(self: DeltaLog, table: Any) -> Any:
        found.append(table.version())
        return query(self, table)

    monkeypatch.setattr(DeltaLog, "_query", _query)
    return found


def kept_file(place: Path) -> Path:
    (found,) = (place / "states").iterdir()
    return found


class TestWhatIsKept:
    def test_small_collections_and_answers_need_no_log(
        self, place: Path, reads: list[int]
    ) -> None:
        """Settings, leases, intents and what a plan asks of the objects are there at once; the
        log is read when an object is looked at, and then once."""
        state = read_state(DeltaLog(str(place)))
        assert (state.serial, state.is_pending, state.release_in_force()) == (0, False, None)
        assert state.answers.schemes == {"release": {"1": 2}}
        assert state.answers.tables == {"s/t/1": "i1", "s/u/1": "i2"}
        assert reads == []
        assert sorted(state.items) == ["i1", "i2"]
        assert sorted(state.shards) == ["s/t/1", "s/u/1"]
        assert reads == [state.version]

    def test_it_says_what_the_log_says(self, place: Path) -> None:
        """Every collection, row for row, and the rows of the snapshot; not one that is empty by
        now."""
        log = DeltaLog(str(place))
        put(log, "operation", "x", OperationRecord(kind="x", state="done"))
        delete(log, "operation", "x")
        log.keep_state()
        log = DeltaLog(str(place))
        kept = read_state(log)
        assert kept.raw.get("operation") is None
        rows = sorted(log.read().rows)
        kept_file(place).unlink()
        log = DeltaLog(str(place))
        state = read_state(log)
        assert (kept.version, dict(kept.raw), kept.answers) == (
            state.version, dict(state.raw), state.answers
        )
        assert rows == sorted(log.read().rows)
        assert len(kept.raw) == len(state.raw)

    def test_large_collections_stay_in_the_log(self, place: Path) -> None:
        """What is kept grows with the names of tables, not with definitions."""
        kept = json.loads(kept_file(place).read_bytes())
        assert not LARGE & kept["collections"].keys()
        assert b"columns" not in kept_file(place).read_bytes()

    def test_nothing_is_written_again(self, place: Path) -> None:
        """A start that finds the newest state kept leaves the file as it is."""
        before = kept_file(place).stat().st_mtime_ns
        log = DeltaLog(str(place))
        read_state(log)
        log.keep_state()
        assert kept_file(place).stat().st_mtime_ns == before

    def test_one_state_is_kept(self, place: Path) -> None:
        """The newest one; others, and one that a commit left behind, go."""
        for number in range(3):
            put(DeltaLog(str(place)), "config", f"note {number}", ConfigRecord(value="x"))
            log = DeltaLog(str(place))
            log.keep_state()
            assert int(kept_file(place).name) == log.version()

    def test_a_commit_follows_from_it(self, place: Path) -> None:
        """All collections are in the state after a commit, the next commit of another too."""
        state = put_tables(DeltaLog(str(place)), "v")
        assert sorted(state.items) == ["i1", "i2", "i3"]
        assert state.answers.schemes == {"release": {"1": 3}}
        assert state.answers.tables == {"s/t/1": "i1", "s/u/1": "i2", "s/v/1": "i3"}
        assert dict(read_state(DeltaLog(str(place))).raw) == dict(state.raw)


class TestWhenItIsNotTaken:
    def test_later_commits_count(self, place: Path, reads: list[int]) -> None:
        """What is on record since is seen, pending work for one."""
        pending = OperationRecord(kind=RECONCILE, state="pending")
        put(DeltaLog(str(place)), "operation", RECONCILE, pending)
        reads.clear()
        state = read_state(DeltaLog(str(place)))
        assert (state.is_pending, reads) == (True, [state.version])

    @pytest.mark.parametrize("damage", ["cut", "empty", "no JSON", "commit", "tool"])
    def test_another_one_or_a_damaged_one(
        self, place: Path, reads: list[int], damage: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The log itself is read then, and says the same."""
        file = kept_file(place)
        data = file.read_bytes()
        kept = json.loads(data)
        kept["collections"]["config"]["serial"] = '{"value":"99"}'
        file.write_bytes({
            "cut": data[:-9], "empty": b"", "no JSON": b"x",
            "commit": json.dumps({**kept, "commit_id": "another"}).encode(),
            "tool": json.dumps(kept).encode(),
        }[damage])
        if damage == "tool":
            monkeypatch.setattr(kept_state, "__version__", "another")
        state = read_state(DeltaLog(str(place)))
        assert (state.serial, reads) == (0, [state.version])

    def test_another_log_at_the_same_place(self, place: Path) -> None:
        """A catalog that was made again has nothing of the one before; a state of before says so
        instead of the rows of another."""
        log = DeltaLog(str(place))
        old = read_state(log)
        (place / "log").rename(place.parent / "away")
        create_catalog(DeltaLog(str(place)), warehouse="w")
        put_tables(DeltaLog(str(place)), "x")
        assert set(read_state(DeltaLog(str(place))).items) == {"i1"}
        with pytest.raises(CatalogCorrupt, match="not the commit that it was"):
            _ = old.items

    @pytest.mark.parametrize("cut", [True, False])
    @pytest.mark.parametrize("what", ["*.parquet", f"_delta_log/{0:020}.json"])
    def test_a_damaged_log_is_told(self, place: Path, what: str, cut: bool) -> None:
        """A data or commit file that is missing or cut off is found at the first read, as ever."""
        file = max((place / "log").glob(what), key=lambda each: each.stat().st_size)
        file.write_bytes(file.read_bytes()[:-20]) if cut else file.unlink()
        with pytest.raises(CatalogCorrupt, match=file.name):
            read_state(DeltaLog(str(place)))

    def test_a_commit_of_zeros_is_told(self, place: Path) -> None:
        """A power failure leaves a file its size; commits are read, as in every catalog."""
        file = place / "log" / "_delta_log" / f"{0:020}.json"
        file.write_bytes(bytes(file.stat().st_size))
        with pytest.raises(CatalogCorrupt, match=file.name):
            read_state(DeltaLog(str(place)))

    def test_files_that_are_read_no_more_do_not_count(self, place: Path) -> None:
        """What is kept grows with what a reader opens, not with the age of the catalog."""
        log = DeltaLog(str(place))
        for number in range(70):  # compacted once, with a checkpoint
            put(log, "config", "note", ConfigRecord(value=str(number)))
        log.keep_state()
        files = json.loads(kept_file(place).read_bytes())["files"]
        assert all((place / name).stat().st_size == size for name, size in files.items())
        assert len([name for name in files if ".checkpoint" in name]) == 1
        assert len(files) < 12 < len(list((place / "log").glob("*.parquet")))

    def test_what_was_kept_on_a_store_is_not_taken_on_a_disk(
        self, place: Path, reads: list[int]
    ) -> None:
        """It says nothing of the files of a copy, of which one may be missing."""
        file = kept_file(place)
        kept = json.loads(file.read_bytes())
        file.write_text(json.dumps({**kept, "files": {}}))
        assert reads == []
        assert read_state(DeltaLog(str(place))).version in reads

    def test_a_file_that_another_process_is_writing_stays(self, place: Path) -> None:
        """Only states that were kept are cleaned up."""
        partial = place / "states" / ".0123.tmp"
        partial.write_bytes(b"")
        log = DeltaLog(str(place))
        put(log, "config", "note", ConfigRecord(value="x"))
        log.keep_state()
        assert partial.exists()

    def test_a_newer_format_is_refused(self, place: Path) -> None:
        """The format is looked at in what was kept as in the log."""
        log = DeltaLog(str(place))
        file = kept_file(place)
        kept = json.loads(file.read_bytes())
        kept["collections"]["config"]["format_version"] = '{"value":"99"}'
        file.write_text(json.dumps(kept))
        with pytest.raises(UnsupportedFormat):
            read_state(log)

    def test_it_may_not_be_written(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A full disk keeps no start from ending: the log is whole without it."""
        def full(*_: object, **__: object) -> bool:
            raise OSError(28, "No space left on device")

        log = DeltaLog(str(place))
        put(log, "config", "note", ConfigRecord(value="x"))
        monkeypatch.setattr(log._store.__class__, "put_if_absent", full)
        log.keep_state()


@given(st.lists(st.sampled_from(["table", "view", "user", "old", "retired"]), max_size=12))
def test_answers_are_those_of_the_collections(kinds: list[str]) -> None:
    """For any objects: counted by owner and scheme, and the live shards of the release's tables;
    an edit makes them again."""
    build, state = Build(), State(0, {})
    edits: dict[tuple[str, str], str | None] = {}
    for number, kind in enumerate(kinds, 1):
        fields = {
            "view": {"kind": "view"}, "user": {"owner": "user"}, "old": {"fingerprint": "0:aa"},
        }.get(kind, {})
        name = f"n{number}"
        edits["mapping", identity_text(("relation", "s", name))] = encode_record(
            build.mapping(number, name, **fields)
        )
        edits["shard", f"s/{name}/1"] = encode_record(ShardRecord(
            item_id=f"i{number}", global_id=f"s{number}",
            state="retired" if kind == "retired" else "live",
        ))
        state.answers  # noqa: B018 - what was asked before must not be told afterwards
        state = state.apply_edits(number, edits)
    release = [kind for kind in kinds if kind != "user"]
    expected = {
        "release": {"1": len(release) - kinds.count("old"), "0": kinds.count("old")},
        "user": {"1": kinds.count("user")},
    }
    assert state.answers.schemes == {
        owner: {scheme: n for scheme, n in counts.items() if n}
        for owner, counts in expected.items() if any(counts.values())
    }
    assert state.answers.tables == {
        f"s/n{number}/1": f"i{number}" for number, kind in enumerate(kinds, 1)
        if kind in ("table", "old")
    }
