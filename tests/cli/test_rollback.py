"""``rollback`` as far as it goes without Spark: plans, saved plans, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.cli.main import main
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import World

from .conftest import LookIn

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def world() -> World:
    """The names and shards of the engine that the releases were brought in by."""
    return World()


@pytest.fixture
def call(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], look_in: LookIn,
) -> Call:
    """Runs a command line beside the catalog ``c``, which had releases 1 and 2."""
    monkeypatch.chdir(tmp_path)
    look_in(world)
    for name, columns in (("1", "a INT"), ("2", "a INT, b STRING")):
        migrate(
            SimulatedEngine(world, persistent=True), open_log(str(tmp_path / "c")),
            load_texts([("t.sql", f"CREATE TABLE s.t ({columns});")], name=name),
            warehouse=str(tmp_path / "w"), clock=SystemClock(), holder="a test",
        )

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*args, *(() if "--catalog" in args else ("--catalog", "c"))])
        return code, *capsys.readouterr()

    return run


def test_plan(call: Call) -> None:
    """The plan says what would be lost and how to allow it; exit 3 until that is approved."""
    code, out, _ = call("rollback", "--plan", "--format", "json")
    plan = json.loads(out)
    assert code == 3
    assert (plan["base"]["release"], plan["base"]["serial"]) == ("2", 2)
    assert (plan["target"]["release"], plan["target"]["serial"]) == ("1", 1)
    assert [(b["name"], b["column"], b["code"], b["remedy"]) for b in plan["blocked"]] == [
        ("s.t", "b", "CM0302", "--approve s.t.b")
    ]
    assert call("rollback", "--plan", "--to", "1", "--approve", "s.t.b")[0] == 0
    code, _, err = call("rollback", "--yes")
    assert (code, "CM0300" in err) == (3, True)


def test_saved(call: Call, tmp_path: Path) -> None:
    """A saved plan is one that `apply` takes without a release; without a word it asks.

    One that is blocked is saved with the word that it is.
    """
    code, _, err = call("rollback", "--out", "back.json")
    assert (code, "saved to back.json; it is blocked: `apply` refuses it" in err) == (3, True)
    code, _, err = call("rollback", "--approve", "s.t.b", "--out", "back.json")
    assert (code, "saved to back.json" in err) == (0, True)
    code, _, err = call("apply", "back.json", "--no-input")
    assert (code, "add --yes" in err) == (64, True)
    saved = tmp_path / "back.json"
    saved.write_text(saved.read_text().replace('"serial": 1', '"serial": 2'))
    assert call("apply", "back.json", "--yes")[0] == 1


@pytest.mark.parametrize(
    ("to", "code", "what"),
    [("9", 1, "CM0205"), ("0", 64, "no release was in force at serial 0"), ("-1", 64, "-1")],
)
def test_where_to(call: Call, to: str, code: int, what: str) -> None:
    """A serial that never was, or before the first release, is refused."""
    found, out, err = call("rollback", "--plan", "--to", to)
    assert (found, out) == (code, "")
    assert what in err


def test_past_a_drop_in_place(call: Call, tmp_path: Path, look_in: LookIn) -> None:
    """No approval is offered: not in the head line, not below the entry, which says what helps."""
    world = World()
    look_in(world)
    log = open_log(str(tmp_path / "d"))

    def start(name: str, columns: str) -> None:
        migrate(
            SimulatedEngine(world, persistent=True), log,
            load_texts([("u.sql", f"CREATE TABLE s.u {columns};")], name=name),
            warehouse=str(tmp_path / "w2"), clock=SystemClock(), holder="a test",
        )

    start("1", "(a INT, b STRING)")
    (path,) = (path for path in world.shards if "/u/" in path)
    world.append(path, [{"a": 1, "b": "x"}])
    start("2", "(a INT) DROPPED (b)")
    code, out, err = call("rollback", "--yes", "--catalog", "d")
    assert code == 3
    assert "remedy: choose a serial after the drop" in out
    head, entry = err.split("s.u.b: column b was dropped in place and its values with it [CM0340]")
    assert "no approval helps" in head
    assert "approve what" not in head
    assert "remedy: choose a serial after the drop" in entry
    assert "backup" not in entry


def test_only_the_release(call: Call, world: World, tmp_path: Path) -> None:
    """Where no object changes, another release comes into force all the same: it is asked for."""
    migrate(
        SimulatedEngine(world, persistent=True), open_log(str(tmp_path / "c")),
        load_texts([("t.sql", "CREATE TABLE s.t (a INT) DROPPED (b);")], name="3"),
        warehouse=str(tmp_path / "w"), clock=SystemClock(), holder="a test",
    )
    code, out, _ = call("rollback", "--to", "1", "--plan")
    assert (code, out.startswith("SAFE: release 3 goes out of force for 1, no object")) == (0, True)
    code, _, err = call("rollback", "--to", "1", "--no-input")
    assert (code, "add --yes" in err) == (64, True)
