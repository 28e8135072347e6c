"""Bad input: a code, the place, a remedy and the right exit code, and not one byte written."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.catalog.records import ConfigRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.cli.main import main
from catalog_migrate.errors import InvalidRelease, LeaseLost, UnsuitableSession
from catalog_migrate.release.loader import load_release
from tests.decisions import Changes, commit


class Bad(NamedTuple):
    """A release that cannot be used: its files, and what its refusal must say."""

    files: dict[str, str | bytes]
    code: str
    place: str
    remedy: str


RELEASES = {
    "nothing there": Bad({}, "CM0100", "r", "name a directory"),
    "empty directory": Bad({"r/readme.txt": "x"}, "CM0100", "r", "remedy: "),
    "no statement": Bad({"r/a.sql": "-- later\n"}, "CM0112", "", "add a CREATE statement"),
    "not UTF-8": Bad({"r/a.sql": b"CREATE \xff\xfe"}, "CM0100", "a.sql", "UTF-8"),
    "syntax": Bad({"r/a.sql": "CREATE TABEL s.t (a INT);"}, "CM0101", "a.sql:1:", "remedy: "),
    "truncated manifest": Bad(
        {"r.json": '{"format_version": "1.0", "rel'}, "CM0108", "r.json:1:31", "release compile"
    ),
    "an object that is none, truncated behind it": Bad(
        {"r.json": '{"format_version": "1.0", "release": "1", "objects": [1, '}, "CM0108",
        "$.objects[0]", "manifest's format",
    ),
    "newer major": Bad(
        {"r.json": '{"format_version": "3.0", "things": []}'}, "CM0110", "r.json", "newer"
    ),
    "two of one name": Bad(
        {"r/a.sql": "CREATE TABLE s.t (a INT);", "r/b.sql": "CREATE VIEW S.T (a INT) AS SELECT 1"},
        "CM0102",
        "b.sql:1:13",
        "keep one, or rename one",
    ),
    "cycle": Bad(
        {
            "r/a.sql": "CREATE VIEW s.a (x INT) AS SELECT x FROM s.b;\n"
            "CREATE VIEW s.b (x INT) AS SELECT x FROM s.a;"
        },
        "CM0130",
        "s.a -> s.b -> s.a",
        "break the circle",
    ),
    "unknown type": Bad(
        {"r/a.sql": "CREATE TABLE s.t (a INTT);"}, "CM0120", "a.sql:1:19", "did you mean INT?"
    ),
}


class Answer(NamedTuple):
    """What a call left."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs a command line in the test's directory, which it must leave as it was."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Answer:
        before = listing(tmp_path)
        capsys.readouterr()
        code = main(args)
        assert listing(tmp_path) == before
        return Answer(code, *capsys.readouterr())

    return run


def listing(place: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory with its size and the time of its last change."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (place, *sorted(place.rglob("*")))
    }


@pytest.fixture
def good(tmp_path: Path) -> str:
    """A release of one table."""
    path = tmp_path / "good.json"
    path.write_text(
        json.dumps(
            {
                "format_version": "1.0",
                "release": "1",
                "objects": [
                    {
                        "schema": "s",
                        "kind": "table",
                        "name": "t",
                        "columns": [{"name": "a", "type": "INT"}],
                    }
                ],
            }
        )
    )
    return str(path)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A catalog with three commits and nothing in force."""
    place = tmp_path / "catalog"
    log = open_log(str(place))
    create_catalog(log, warehouse=str(tmp_path / "rows"))
    for key in ("a", "b"):
        commit(log, put("operation", key, OperationRecord(kind="k", state="s")), kind="test")
    return place


def put(collection: str, key: str, record: Any) -> Callable[[State], Changes]:
    """A decision that puts one record and raises the serial."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put(collection, key, record)
        changes.raise_serial()
        return changes

    return decide


@pytest.mark.parametrize("verb", ["bootstrap", "plan", "apply"])
@pytest.mark.parametrize("bad", RELEASES.values(), ids=RELEASES)
def test_a_bad_release(call: Call, tmp_path: Path, verb: str, bad: Bad) -> None:
    """Exit 1 with code, place and remedy before Spark is started or a catalog is made."""
    for name, content in bad.files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    release = "r.json" if "r.json" in bad.files else "r"
    answer = call(verb, "--release", release, "--catalog", "catalog")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error CM")
    for part in (bad.code, bad.place, bad.remedy):
        assert part in answer.err
    assert not (tmp_path / "catalog").exists()


def refused(call: Call, good: str, place: Path) -> str:
    """What a catalog is refused with: by what looks, by what plans and by what would write."""
    said = set()
    for args in (["status"], ["plan", "--release", good], ["unlock", "--if-holder", "x"]):
        answer = call(*args, "--catalog", str(place))
        assert (answer.code, answer.out) == (1, "")
        assert "\n  remedy: " in answer.err
        said.add(answer.err)
    (err,) = said
    return err


def test_a_place_that_is_not_ours(call: Call, good: str, tmp_path: Path) -> None:
    """A directory of other things, or a file: CM0201 names it, exit 1."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("hello")
    for place in (tmp_path / "theirs", tmp_path / "theirs" / "notes.txt"):
        err = refused(call, good, place)
        assert err.startswith("error CM0201: ")
        assert str(place) in err


def test_a_catalog_of_a_newer_format(call: Call, good: str, catalog: Path) -> None:
    """CM0110 with both versions, exit 1."""
    commit(
        open_log(str(catalog)),
        put("config", "format_version", ConfigRecord(value="7")),
        kind="test",
    )
    err = refused(call, good, catalog)
    assert err.startswith("error CM0110: ")
    assert "has format 7" in err


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_log(call: Call, good: str, catalog: Path, damage: str) -> None:
    """A commit file that is missing or cut off: CM0202 names the file, exit 1."""
    file = catalog / "log" / "_delta_log" / f"{1:020d}.json"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:40])
    err = refused(call, good, catalog)
    assert err.startswith("error CM0202: ")
    assert str(file) in err
    assert damage in err


DEEP = "[" * 100_000


def test_nested_too_deep_to_read(call: Call, good: str, catalog: Path, tmp_path: Path) -> None:
    """A hundred thousand brackets are refused as what they stand for, file by file."""
    (tmp_path / "b.json").write_text(DEEP)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "release.toml").write_text(f"name = {DEEP}")
    (tmp_path / "r" / "a.sql").write_text("CREATE TABLE s.t (id INT);")
    manifest = tmp_path / "deep.json"
    manifest.write_text('{"format_version": "1.0", "release": "1", "objects": ' + DEEP)
    known = ("--release", good, "--catalog", str(catalog))
    for command in (("apply", "b.json", "--yes", *known), ("bootstrap", "--plan", "b.json", *known),
                    ("unsafe", "apply", "b.json", "--catalog", str(catalog))):
        answer = call(*command)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("error CM0311: ")
    for place, code in (("r", "CM0113"), (str(manifest), "CM0108")):
        answer = call("check", "--release", place)
        assert answer.code == 1
        assert code in answer.err
    file = catalog / "log" / "_delta_log" / f"{2:020d}.json"
    file.write_text(DEEP)
    for verb in ("status", "history"):
        answer = call(verb, "--catalog", str(catalog))
        assert (answer.code, answer.err[:13]) == (1, "error CM0202:")
        assert str(file) in answer.err


@pytest.mark.parametrize("kind", ["directory", "loop"])
def test_settings_of_a_release_that_are_no_file(tmp_path: Path, kind: str) -> None:
    """A release.toml that is there and cannot be read is not passed over."""
    release = tmp_path / "r"
    release.mkdir()
    (release / "a.sql").write_text("CREATE TABLE s.t (id INT);")
    settings = release / "release.toml"
    if kind == "directory":
        settings.mkdir()
    else:
        settings.symlink_to(settings)
    with pytest.raises(InvalidRelease, match=r"release\.toml"):
        load_release(release)


def _unlock_as_nobody(place: str, answers: Any) -> None:
    """Runs in a process of its own, which gives up its rights once everything is loaded."""
    import deltalake  # noqa: F401 - loaded while its files can still be read

    assert main(["status", "--catalog", place]) == 0
    assert main(["unlock", "--help"]) == 0
    private = Path(place).with_name("private")  # as of a cron job that stands in another's home
    private.mkdir(mode=0o700)
    os.chdir(private)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    said = StringIO()
    with redirect_stderr(said):
        code = main(["unlock", "--if-holder", "somebody", "--catalog", place])
    answers.put((code, said.getvalue()))


def test_a_catalog_that_may_not_be_written(catalog: Path) -> None:
    """CM0203 with the place, exit 1."""
    acquire(open_log(str(catalog)), holder="somebody", clock=SystemClock())
    for parent in catalog.parents:
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(0o755)
    directories = [path for path in (catalog, *catalog.rglob("*")) if path.is_dir()]
    for path in directories:
        path.chmod(0o555)
    before = listing(catalog)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_unlock_as_nobody, args=(str(catalog), answers))
    child.start()
    try:
        code, err = answers.get(timeout=600)
        child.join(60)
        assert listing(catalog) == before
    finally:
        for path in directories:
            path.chmod(0o755)
    assert code == 1
    assert err.startswith("error CM0203: ")
    assert str(catalog) in err
    assert "\n  remedy: " in err


def test_an_edited_plan(call: Call, good: str, tmp_path: Path) -> None:
    """A plan file of which one word was changed by hand: CM0311 with both hashes, exit 1."""
    assert main(["plan", "--release", good, "--catalog", "catalog", "--out", "plan.json"]) == 0
    plan = tmp_path / "plan.json"
    hashed = json.loads(plan.read_text())["plan_hash"]
    plan.write_text(plan.read_text().replace('"s.t"', '"s.u"'))
    for args in (["apply", "plan.json", "--yes"], ["bootstrap", "--plan", "plan.json"]):
        answer = call(*args, "--release", good, "--catalog", "catalog")
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("error CM0311: the plan was changed after it was made")
        assert hashed in answer.err
        assert "remedy: make it again" in answer.err


def test_a_stale_plan(call: Call, good: str, catalog: Path) -> None:
    """The catalog moved on since the plan was made: CM0310 says from where to where, exit 4."""
    assert main(["plan", "--release", good, "--catalog", "catalog", "--out", "plan.json"]) == 0
    commit(
        open_log(str(catalog)),
        put("operation", "c", OperationRecord(kind="k", state="s")),
        kind="test",
    )
    answer = call("apply", "plan.json", "--release", good, "--catalog", "catalog", "--yes")
    assert (answer.code, answer.out) == (4, "")
    assert answer.err.startswith("error CM0310: ")
    assert "the catalog is at serial 3, the plan was made at 2" in answer.err
    assert "remedy: run `catalog-migrate plan` again" in answer.err


def test_an_older_epoch(catalog: Path) -> None:
    """Whoever lost the lease commits nothing more: CM0221 with both epochs, exit code 5."""
    log = open_log(str(catalog))
    lease = acquire(log, holder="first", clock=SystemClock())
    assert main(["unlock", "--if-holder", "first", "--catalog", str(catalog)]) == 0
    before = listing(catalog)
    with pytest.raises(LeaseLost, match=f"epoch {lease.epoch} .* epoch {lease.epoch + 1}") as lost:
        commit(
            log,
            put("operation", "c", OperationRecord(kind="k", state="s")),
            epoch=lease.epoch,
            kind="test",
        )
    assert (lost.value.code, lost.value.exit_code) == ("CM0221", 5)
    assert lost.value.remedy
    assert listing(catalog) == before


@pytest.mark.spark
def test_a_lease_held_by_a_living_process(call: Call, good: str, catalog: Path, spark: Any) -> None:
    """CM0220 with holder, host, process and since when, exit 5; the holder is not disturbed."""
    lease = acquire(open_log(str(catalog)), holder="batch-3", clock=SystemClock())
    answer = call("bootstrap", "--release", good, "--catalog", "catalog", "--timeout", "0")
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.startswith("error CM0220: ") or "\nerror CM0220: " in answer.err
    for part in ("batch-3", socket.gethostname(), str(os.getpid()), "remedy: "):
        assert part in answer.err
    lease.ensure()
    lease.release()


@pytest.mark.spark
def test_a_session_without_delta(good: str, tmp_path: Path, spark: Any) -> None:
    """CM0401 names the setting that is missing, exit code 1, and no catalog is created."""
    from catalog_migrate.hook import bootstrap

    bare = spark.newSession()
    bare.conf.set("spark.sql.catalog.spark_catalog", "org.example.Catalog")
    before = listing(tmp_path)
    with pytest.raises(UnsuitableSession, match=r"lacks spark\.sql\.catalog\.spark_cat") as caught:
        bootstrap(bare, release=good, catalog=tmp_path / "catalog")
    assert (caught.value.code, caught.value.exit_code) == ("CM0401", 1)
    assert caught.value.remedy
    assert listing(tmp_path) == before
