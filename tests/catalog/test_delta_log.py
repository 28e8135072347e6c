"""What is particular to the log on disk: damage, refusals, processes that race, not one byte."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.commits import commit as catalog_commit
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.catalog.records import ConfigRecord, OperationRecord
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.catalog.updates import Put
from catalog_migrate.errors import (
    CatalogCorrupt,
    CatalogMigrateError,
    CatalogNotFound,
    CatalogWriteRefused,
    CommitConflict,
    CommitOutcomeUnknown,
    NotACatalog,
    UnsupportedFormat,
    UsageError,
)
from catalog_migrate.store import address
from catalog_migrate.store.address import Storage
from tests.decisions import Changes, commit


def put(key: str, state: str = "s") -> Callable[[State], Changes]:
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("operation", key, OperationRecord(kind="k", state=state))
        changes.raise_serial()
        return changes

    return decide


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A catalog with three commits."""
    path = tmp_path / "catalog"
    log = open_log(str(path))
    create_catalog(log, warehouse="w")
    commit(log, put("a"), kind="test")
    commit(log, put("b"), kind="test")
    return path


def commit_file(place: Path, version: int) -> Path:
    return place / "log" / "_delta_log" / f"{version:020d}.json"


def listing(place: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(place)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (place, *sorted(place.rglob("*")))
    }


class TestAddress:
    def test_file_uri(self, place: Path) -> None:
        """A file: URI is the directory it names."""
        assert read_state(open_log(place.as_uri())).serial == 2

    def test_other_store(self) -> None:
        """A store that nobody commits to safely is refused by name; another machine's file too."""
        for place in ("ftp://host/catalog", "memory:///catalog", "file://host/catalog"):
            with pytest.raises(UsageError, match=place):
                open_log(place)

    def test_lazy(self, tmp_path: Path) -> None:
        """Opening a log writes nothing, not even a directory."""
        open_log(str(tmp_path / "catalog"))
        assert list(tmp_path.iterdir()) == []

    def test_a_version_of_nothing(self, tmp_path: Path) -> None:
        """Where no catalog is, none is damaged."""
        with pytest.raises(CatalogNotFound, match="there is no catalog at"):
            open_log(str(tmp_path / "catalog")).read_at(0)


class TestNotOurs:
    def test_file(self, tmp_path: Path) -> None:
        """A file at the catalog's address is not a catalog."""
        (tmp_path / "catalog").write_text("hello")
        with pytest.raises(NotACatalog, match="a file is there"):
            open_log(str(tmp_path / "catalog")).read()

    def test_directory_with_something_else(self, tmp_path: Path) -> None:
        """A directory of other things is not a catalog, and none is created in it."""
        (tmp_path / "notes.txt").write_text("hello")
        with pytest.raises(NotACatalog, match=r"notes\.txt"):
            create_catalog(open_log(str(tmp_path)), warehouse="w")
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_other_table(self, tmp_path: Path) -> None:
        """A Delta table with other columns under ``log`` is not a catalog."""
        from arro3.core import Array, DataType, Table
        from deltalake import write_deltalake

        rows = Table.from_pydict({"x": Array([1], DataType.int32())})
        write_deltalake(str(tmp_path / "log"), rows)
        with pytest.raises(NotACatalog, match="a table with the columns x"):
            open_log(str(tmp_path)).read()

    def test_other_table_itself(self, tmp_path: Path) -> None:
        """The directory of a Delta table is not a catalog."""
        (tmp_path / "_delta_log").mkdir()
        with pytest.raises(NotACatalog, match="_delta_log"):
            open_log(str(tmp_path)).exists()

    def test_interrupted_creation(self, tmp_path: Path) -> None:
        """What a creation that died before its commit left behind does not stand in the way."""
        (tmp_path / "log" / "_delta_log").mkdir(parents=True)
        (tmp_path / "log" / "part-0.parquet").write_bytes(b"x")
        log = open_log(str(tmp_path))
        assert log.exists() is False
        assert create_catalog(log, warehouse="w").serial == 0


class TestDamage:
    @pytest.mark.parametrize("version", [0, 1])
    def test_missing_commit_file(self, place: Path, version: int) -> None:
        """A missing commit file is named, with the remedy; nothing is guessed."""
        commit_file(place, version).unlink()
        with pytest.raises(CatalogCorrupt, match=r"is missing(?s:.*)restore this file") as caught:
            read_state(open_log(str(place)))
        assert caught.value.data["file"] == str(commit_file(place, version))

    @pytest.mark.parametrize("keep", [0, 40, "first line"])
    def test_truncated_commit_file(self, place: Path, keep: int | str) -> None:
        """A commit file cut off anywhere, even between two actions, is named."""
        path = commit_file(place, 2)
        data = path.read_bytes()
        path.write_bytes(data[: data.index(b"\n") + 1 if isinstance(keep, str) else keep])
        with pytest.raises(CatalogCorrupt, match="truncated") as caught:
            read_state(open_log(str(place)))
        assert caught.value.data["file"] == str(path)

    @pytest.mark.parametrize("cut", [True, False])
    def test_data_file(self, place: Path, cut: bool) -> None:
        """A data file that is missing or truncated is named."""
        actions = [json.loads(line) for line in commit_file(place, 1).read_text().splitlines()]
        name = next(action["add"]["path"] for action in actions if "add" in action)
        path = place / "log" / name
        if cut:
            path.write_bytes(path.read_bytes()[:30])
        else:
            path.unlink()
        with pytest.raises(CatalogCorrupt, match="truncated" if cut else "missing") as caught:
            read_state(open_log(str(place)))
        assert caught.value.data["file"] == str(path)

    def test_no_commit_on_damage(self, place: Path) -> None:
        """A damaged log takes no commit."""
        commit_file(place, 1).unlink()
        before = listing(place)
        with pytest.raises(CatalogCorrupt):
            commit(open_log(str(place)), put("c"), kind="test")
        assert listing(place) == before

    def test_row_twice(self, place: Path) -> None:
        """A row that sums to two is a contradiction, not a state."""
        log = open_log(str(place))
        row = LogRow("operation", "a", encode_record(OperationRecord(kind="k", state="s")), 1)
        log.append([row], follows=2, commit_id="x", metadata={})
        with pytest.raises(CatalogCorrupt, match="operation 'a' is in the log 2 times"):
            read_state(open_log(str(place)))


def test_newer_format(place: Path) -> None:
    """A catalog of a newer format is refused and stays untouched."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("config", "format_version", ConfigRecord(value="7"))
        return changes

    commit(open_log(str(place)), decide, kind="test")
    before = listing(place)
    with pytest.raises(UnsupportedFormat, match=r"has format 7, .* up to 6"):
        read_state(open_log(str(place)))
    with pytest.raises(UnsupportedFormat):
        commit(open_log(str(place)), put("c"), kind="test")
    assert listing(place) == before


def test_reading_writes_nothing(place: Path) -> None:
    """I10: opening, reading, finding and counting change no file, size or time."""
    open_log(str(place)).renew("migration", "1:a")
    before = listing(place)
    log = open_log(str(place))
    assert read_state(log).serial == 2
    assert (log.version(), log.live_files(), log.heartbeat("migration")) == (2, 3, "1:a")
    assert log.find_commit("nobody", after=-1) is None
    assert log.exists() is True
    assert listing(place) == before


def test_commit_metadata(place: Path) -> None:
    """A commit file tells the kind, the serial and the id of its commit; history is kept."""
    text = commit_file(place, 2).read_text()
    info = next(
        action["commitInfo"] for action in map(json.loads, text.splitlines())
        if "commitInfo" in action
    )
    assert info["catalog_migrate.kind"] == "test"
    assert info["catalog_migrate.serial"] == "2"
    assert len(info["catalog_migrate.commit"]) == 32
    first = commit_file(place, 0).read_text()
    assert '"delta.enableExpiredLogCleanup":"false"' in first
    assert '"delta.logRetentionDuration":"interval 36500 days"' in first


def test_snapshot_is_carried_forward(place: Path) -> None:
    """What a committer remembers after its commits equals what a newcomer reads."""
    log = open_log(str(place))
    log.read()
    for number in range(4):
        commit(log, put("a", str(number)), kind="test")
    assert sorted(log.read().rows) == sorted(open_log(str(place)).read().rows)


class TestUnknownOutcome:
    """The reply of a commit is lost: the log is asked, by the commit's id."""

    ROW = LogRow("operation", "z", '{"kind":"k","state":"s"}', 1)

    def test_landed(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A commit that is found in the log has succeeded, whatever the call said."""
        import deltalake

        real = deltalake.write_deltalake

        def lost_reply(*args: Any, **kwargs: Any) -> None:
            real(*args, **kwargs)
            raise OSError("connection reset")

        monkeypatch.setattr(deltalake, "write_deltalake", lost_reply)
        assert open_log(str(place)).append([self.ROW], follows=2, commit_id="x", metadata={}) == 3

    def test_landed_then_others(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is found even when others have committed after it."""
        import deltalake

        real = deltalake.write_deltalake

        def lost_reply(*args: Any, **kwargs: Any) -> None:
            real(*args, **kwargs)
            monkeypatch.setattr(deltalake, "write_deltalake", real)
            commit(open_log(str(place)), put("other"), kind="test")
            raise OSError("connection reset")

        monkeypatch.setattr(deltalake, "write_deltalake", lost_reply)
        log = open_log(str(place))
        assert log.append([self.ROW], follows=2, commit_id="x", metadata={}) == 3
        assert log.version() == 4

    def test_another_landed(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A version that another writer made meanwhile is a conflict."""
        import deltalake

        real = deltalake.write_deltalake

        def too_late(*args: Any, **kwargs: Any) -> None:
            monkeypatch.setattr(deltalake, "write_deltalake", real)
            commit(open_log(str(place)), put("other"), kind="test")
            real(*args, **kwargs)

        monkeypatch.setattr(deltalake, "write_deltalake", too_late)
        with pytest.raises(CommitConflict):
            open_log(str(place)).append([self.ROW], follows=2, commit_id="x", metadata={})
        assert open_log(str(place)).version() == 3

    def test_nowhere(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A failure that says nothing and left nothing is an unknown outcome, with its cause."""
        import deltalake

        def fails(*_: Any, **__: Any) -> None:
            raise RuntimeError("timed out")

        monkeypatch.setattr(deltalake, "write_deltalake", fails)
        with pytest.raises(CommitOutcomeUnknown, match="timed out") as caught:
            open_log(str(place)).append([self.ROW], follows=2, commit_id="x", metadata={})
        assert isinstance(caught.value.__cause__, RuntimeError)

    def test_full_disk(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A full disk is a refusal that says what to do."""
        import deltalake

        def fails(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(deltalake, "write_deltalake", fails)
        with pytest.raises(CatalogWriteRefused, match="free space"):
            open_log(str(place)).append([self.ROW], follows=2, commit_id="x", metadata={})


def _as_nobody(place: str, answers: Any) -> None:
    """Try to write without the right to; runs in a process of its own."""
    import deltalake  # noqa: F401 - loaded while its files can still be read

    log = open_log(place)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    outcome: list[str] = [str(read_state(log).serial)]
    for act in (lambda: commit(log, put("c"), kind="test"), lambda: log.renew("migration", "1:a")):
        try:
            act()
            outcome.append("written")
        except CatalogMigrateError as error:
            outcome.append(error.code)
    answers.put(outcome)


def test_no_write_permission(place: Path) -> None:
    """A user who may only read gets CatalogWriteRefused, and still reads."""
    for parent in (place, *place.parents):
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(0o755)
    paths = [path for path in (place, *place.rglob("*")) if path.is_dir()]
    for path in paths:
        path.chmod(0o555)
    before = listing(place)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_as_nobody, args=(str(place), answers))
    child.start()
    try:
        assert answers.get(timeout=600) == ["2", "CM0203", "CM0203"]
        child.join(60)
        assert listing(place) == before
    finally:
        for path in paths:
            path.chmod(0o755)


def _increment_ten_times(place: str) -> None:
    log = DeltaLog(place)

    def decide(state: State) -> Changes:
        changes = Changes()
        count = int(state.operations["count"].state) + 1
        changes.put("operation", "count", OperationRecord(kind="k", state=str(count)))
        changes.raise_serial()
        return changes

    for _ in range(10):
        commit(log, decide, kind="race", attempts=500)


def test_racing_processes(tmp_path: Path) -> None:
    """Four processes with ten increments each: none lost, one version and serial for each."""
    place = str(tmp_path / "catalog")
    log = open_log(place)
    create_catalog(log, warehouse="w")
    commit(log, put("count", "0"), kind="test")
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=_increment_ten_times, args=(place,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0, 0, 0]
    state = read_state(open_log(place))
    assert (state.operations["count"].state, state.serial, state.version) == ("40", 41, 41)


def test_errors_of_the_store_are_plain_text() -> None:
    """Colours and arrows of delta-rs do not get into a message."""
    from catalog_migrate.store.address import plainly

    drawn = OSError("Generic error\n\x1b[31m↳\x1b[0m Unable to copy\n\x1b[31m↳\x1b[0m No space")
    assert plainly(drawn) == "Generic error : Unable to copy : No space"


def test_rows_are_reached_by_the_options_of_their_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the log, to whatever store its rows lie on; without options, none are given."""
    given: dict[str, Storage] = {}
    monkeypatch.setattr(address, "_given", given)
    log = DeltaLog(str(tmp_path / "catalog"))
    create_catalog(log, warehouse=str(tmp_path / "rows"))
    rows = Put("config", "warehouse", ConfigRecord("s3://rows/x"))
    catalog_commit(log, Commit("test", (rows,)))
    log.read()
    assert given == {}
    options = Storage({"aws_region": "r"})
    DeltaLog(str(tmp_path / "catalog"), options).read()
    assert address.storage_of("s3://rows/x/s/t") == options
