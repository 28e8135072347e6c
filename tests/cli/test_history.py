"""``history``, ``show --serial`` and ``status --serial``: read without Spark, writing nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.cli import inspection
from catalog_migrate.cli.main import main
from catalog_migrate.engine.port import ViewSpec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.release.loader import load_release, load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import World

from .conftest import LookIn

Call = Callable[..., tuple[int, str, str]]


def bring_in_force(world: World, place: Path, name: str, columns: str) -> None:
    """Apply a release of one table to the catalog ``<place>/c`` in a simulated world."""
    release = place / "release"
    release.mkdir(exist_ok=True)
    (release / "t.sql").write_text(f"CREATE TABLE s.t ({columns});\n")
    (release / "release.toml").write_text(f'name = "{name}"\n')
    migrate(
        SimulatedEngine(world, persistent=True), open_log(str(place / "c")), load_release(release),
        warehouse=str(place / "warehouse"), clock=SystemClock(), holder="a test",
    )


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    look_in: LookIn,
) -> Call:
    """Runs a command line beside the catalog ``c``, which had releases 1 and 2."""
    monkeypatch.chdir(tmp_path)
    world = World()
    look_in(world)
    bring_in_force(world, tmp_path, "1", "a INT")
    bring_in_force(world, tmp_path, "2", "a INT, b STRING")

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*args, "--catalog", "c"])
        return code, *capsys.readouterr()

    return run


def test_history(call: Call) -> None:
    """Each change is listed, newest first, with who, where and both serials."""
    code, out, _ = call("history", "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert [(e["verb"], e["serial_before"], e["serial"], e["release"]) for e in found] == [
        ("migrate", 1, 2, "2"), ("migrate", 0, 1, "1"), ("create", None, 0, None),
    ]
    assert {(e["who"], e["host"]) for e in found} == {(this_user(), this_host())}
    code, out, _ = call("history", "--limit", "1")
    assert code == 0
    head, line = out.splitlines()
    assert head.split() == ["serial", "when", "(UTC)", "what", "release", "who", "reason"]
    assert line.startswith("1 -> 2  ")
    assert f"migrate  2        {this_user()}@{this_host()}" in line


def test_the_reason_of_a_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], look_in: LookIn
) -> None:
    """Kept with what the start committed, of a rollback behind the serial; not with our own views.

    Programs get it as it was given; in a list for people it forges no line and steers nothing.
    """
    world, at, clock = World(), str(tmp_path / "r"), SystemClock()
    look_in(world)
    engine = SimulatedEngine(world, persistent=True)
    log = open_log(at)
    own = load_texts([("v.sql", "CREATE VIEW own.v (a INT) AS SELECT 1 AS a;")], name="own")
    for name, columns, reason in (
        ("1", "a INT", "first"), ("2", "a INT, b STRING", "ticket 4711\n9 -> 10 \x1b[31m"),
        ("3", "a INT, b STRING", "only a name"), ("4", "a INT, b STRING", None),
    ):
        migrate(
            engine, log, load_texts([("t.sql", f"CREATE TABLE s.t ({columns});")], name=name),
            warehouse=str(tmp_path / "rw"), clock=clock, holder="a test", system=own,
            reason=reason,
        )
    roll_back(
        engine, log, to=1, clock=clock, holder="a test", approve=("s.t.b",), reason="it was wrong"
    )
    assert main(["history", "--format", "json", "--catalog", at]) == 0
    found = [(row["verb"], row["reason"]) for row in json.loads(capsys.readouterr().out)]
    assert found == [
        ("rollback", "rollback to serial 1: it was wrong"),
        ("release", None),
        ("release", "only a name"),
        ("migrate", "ticket 4711\n9 -> 10 \x1b[31m"),
        ("migrate system", None),
        ("migrate", "first"),
        ("create", None),
    ]
    assert main(["history", "--catalog", at]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(found)
    assert lines[4].endswith("  ticket 4711 9 -> 10 \\u001b[31m")


@pytest.mark.parametrize("verb", ["apply", "bootstrap", "rollback"])
def test_a_reason_that_would_be_lost(call: Call, verb: str) -> None:
    """An empty one, of a variable that is not set, is a usage error; so is one of a dry run."""
    code, _, err = call(verb, "--reason", " ")
    assert (code, err.splitlines()[0]) == (64, "error CM0601: --reason is empty")
    if verb == "rollback":
        code, _, err = call(verb, "--out", "back.json", "--reason", "why")
        assert code == 64
        assert "give it to `apply FILE`" in err


def test_our_own_views_are_told_from_a_release() -> None:
    """People read what it was; programs keep the word of the record."""
    row = {
        "serial": 2, "serial_before": 1, "at": "2026-01-02T03:04:05Z", "verb": "migrate system",
        "release": "1", "who": "u", "host": "h", "reason": None,
    }
    assert inspection.history_text([row]).splitlines()[1].split() == [
        "1", "->", "2", "2026-01-02", "03:04:05", "own", "views", "1", "u@h",
    ]


def test_everything(call: Call) -> None:
    """With --all the commits that only prepare and tidy are listed too, none left out."""
    found = json.loads(call("history", "--all", "--format", "json")[1])
    versions = [entry["version"] for entry in found]
    assert versions == list(range(versions[0], -1, -1))
    assert {"take lease", "release lease", "reconcile"} <= {entry["verb"] for entry in found}


def test_one_object(call: Call) -> None:
    """The history of an object says what happened to it and its id since."""
    found = json.loads(call("history", "s.t", "--format", "json")[1])
    assert [(e["happening"], e["name"], e["id"], e["serial"]) for e in found] == [
        ("migrated", "s.t", "s2", 2), ("created", "s.t", "s1", 1),
    ]
    code, _, err = call("history", "s.u")
    assert (code, "nothing in this catalog is called s.u" in err) == (1, True)


def test_then(call: Call) -> None:
    """Object and status are shown as they were at a serial."""
    now = json.loads(call("show", "s.t", "--format", "json")[1])
    then = json.loads(call("show", "s.t", "--serial", "1", "--format", "json")[1])
    assert [[c["name"] for c in each["columns"]] for each in (then, now)] == [["a"], ["a", "b"]]
    assert (then["id"], now["id"], then["item_id"]) == ("s1", "s2", now["item_id"])
    status = json.loads(call("status", "--serial", "1", "--format", "json")[1])
    assert (status["release"], status["serial"], status["objects"]) == ("1", 1, 1)
    told = call("status", "--serial", "0")[1]
    assert told.startswith("release    none\nserial     0\n")
    assert [word for word in ("lease", "pending", "next") if f"\n{word}" in told] == []
    assert "\npending " in call("status")[1]
    for serial in ("2",):  # in force: as without it
        assert call("status", "--serial", serial)[1] == call("status")[1]
    code, _, err = call("status", "--serial", "9")
    assert (code, err.splitlines()[0]) == (
        1, "error CM0205: the catalog never had serial 9: it is at 2"
    )
    assert call("show", "s.t", "--serial", "0")[0] == 1


def test_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table's CHECKs are shown, named or not, as text and as JSON."""
    text = "CREATE TABLE s.t (a INT, CHECK (a > 0), CONSTRAINT small CHECK (a < 9));"
    migrate(
        SimulatedEngine(World(), persistent=True), open_log(str(tmp_path / "k")),
        load_texts([("t.sql", text)], name="1"), warehouse=str(tmp_path / "kw"),
        clock=SystemClock(), holder="a test",
    )
    assert main(["show", "s.t", "--catalog", str(tmp_path / "k")]) == 0
    assert "\nchecks\n  check_1  a > 0\n  small    a < 9\n" in capsys.readouterr().out
    assert main(["show", "s.t", "--catalog", str(tmp_path / "k"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"] == [
        {"name": "check_1", "expression": "a > 0"}, {"name": "small", "expression": "a < 9"}
    ]


def test_reads_only(call: Call, tmp_path: Path) -> None:
    """None of it writes one byte."""

    def listing() -> list[tuple[str, int]]:
        return sorted(
            (os.path.join(where, name), os.stat(os.path.join(where, name)).st_mtime_ns)
            for where, folders, names in os.walk(tmp_path) for name in (*folders, *names)
        )

    before = listing()
    call("history")
    call("history", "s.t")
    call("show", "s.t", "--serial", "1")
    call("status", "--serial", "1")
    assert listing() == before


@pytest.mark.usefixtures("call")
def test_without_java(tmp_path: Path) -> None:
    """The history needs no Java and does not even import pyspark."""
    code = (
        "import sys; from catalog_migrate.cli.main import main;"
        "code = main(['history', '--catalog', 'c']);"
        "print(code, sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"},
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_damage(call: Call, tmp_path: Path) -> None:
    """A commit that is missing or no commit is named; no shorter history is printed."""
    file = tmp_path / "c" / "log" / "_delta_log" / f"{2:020d}.json"
    whole = file.read_text()
    for text in (whole.replace('"commitInfo":{', '"commitInfo":5,"x":{'), None):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        for args in (("history",), ("history", "s.t"), ("show", "s.t", "--serial", "1")):
            code, out, err = call(*args)
            assert (code, out) == (1, "")
            assert err.startswith("error CM0202: ")
            assert file.name in err


def test_drift_says_what_to_do(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing comes with the command that registers it."""
    from catalog_migrate.api import registrations

    empty = SimulatedEngine(World(), persistent=True)
    monkeypatch.setattr(registrations, "has_lasting_names", lambda _: True)
    monkeypatch.setattr(registrations, "open_spark", lambda *_: nullcontext())
    monkeypatch.setattr(registrations, "engine_on", lambda *_: empty)
    code, out, _ = call("drift", "--detailed-exitcode")
    assert code == 2
    assert "s.t" in out
    assert out.startswith("DRIFT: 1 name differs: 1 missing\n")
    assert "What differs\n  + s.t (table) missing: the name is not registered\n" in out
    assert "Steps, in this order\n  +   1  register table s.t\n" in out
    assert out.endswith(
        "Next\n  catalog-migrate drift --repair (names that are not ours are left alone).\n"
    )
    found = json.loads(call("drift", "--format", "json")[1])
    assert found["executed"] == []
    assert found["steps"][0]["op"] == "create"
    empty.ensure_schema("s")
    theirs = ViewSpec(ItemName("s", "t"), (Column("a", "INT"),), "SELECT CAST(1 AS INT) AS a")
    empty.create_view(theirs)
    code, out, _ = call("drift", "--repair", "--yes", "--format", "json")
    assert (code, json.loads(out)["left"]) == (0, ["s.t"])


def test_a_plan_beside_a_moved_catalog_says_until_when(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every start is refused, and the sentence ends with what ends that."""
    (tmp_path / "c").rename(tmp_path / "moved")
    (tmp_path / "release" / "t.sql").write_text("CREATE TABLE s.t (a INT, b STRING, c DATE);\n")
    main(["plan", "--release", "release", "--catalog", "moved"])
    assert (
        "it was moved or copied; every start is refused (CM0801) until this is done: moved:"
        " catalog-migrate relocate --catalog "
    ) in capsys.readouterr().err
