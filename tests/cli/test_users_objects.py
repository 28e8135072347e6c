"""Users' views and functions in `plan`, `check` and `rollback`, bound by the simulated engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from catalog_migrate.api import releases, starts
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.cli.main import main
from catalog_migrate.cli.output import emit_start
from catalog_migrate.engine.port import FunctionSpec
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.planner.planfile import decode_plan
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import UserView, World

from .conftest import LookIn

Call = Callable[..., tuple[int, str, str]]
TABLES = "CREATE TABLE s.t ({});\nCREATE TABLE s.u (a INT);\n"
ONE, TWO = "a INT, city STRING, n INT", "a INT, n BIGINT"


def no_spark(*_: object) -> None:
    """What a start on a real session would come to."""
    raise AssertionError("Spark was started")


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    look_in: LookIn,
) -> Call:
    """Runs a command line beside the catalog ``c``, which has release 1; 2 drops a column.

    Users have a view that breaks, one that changes, one that goes on untouched, and others that
    read nothing that changes.
    """
    monkeypatch.chdir(tmp_path)
    world = World()
    look_in(world)
    engine = SimulatedEngine(world, persistent=True)
    monkeypatch.setattr(releases, "open_spark", lambda *_: nullcontext())
    monkeypatch.setattr(releases, "engine_on", lambda *_: engine)
    monkeypatch.setattr(starts, "open_spark", no_spark)
    monkeypatch.setenv("CATALOG_MIGRATE__SPARK__METASTORE", "metastore")
    (tmp_path / "release").mkdir()
    release(tmp_path, "2", TWO + ") DROPPED (city")
    migrate(
        engine, open_log(str(tmp_path / "c")),
        load_texts([("t.sql", TABLES.format(ONE))], name="1"),
        warehouse=str(tmp_path / "w"), clock=SystemClock(), holder="a test",
    )
    engine.ensure_schema("team")
    for name, sql, columns in (
        ("cities", "SELECT city FROM s.t", (Column("city", "STRING"),)),
        ("sums", "SELECT n FROM s.t", (Column("n", "INT"),)),
        ("same", "SELECT a FROM s.t", (Column("a", "INT"),)),
        ("other", "SELECT a FROM s.u", (Column("a", "INT"),)),
    ):
        view = UserView(
            ItemName("team", name), columns, sql, None, {}, "COMPENSATION",
            tuple(column.name for column in columns), namespace="default",
        )
        world.names.relations[view.name.folded] = view

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*args, "--catalog", "c"])
        return code, *capsys.readouterr()

    return run


def release(home: Path, name: str, columns: str) -> None:
    """The release in the working directory."""
    (home / "release" / "release.toml").write_text(f'name = "{name}"\n')
    (home / "release" / "t.sql").write_text(TABLES.format(columns))


def report_of(*repaired: str) -> BootstrapReport:
    """What a start comes to that repaired these."""
    return BootstrapReport("migrated", None, "2", 3, repaired=repaired)


def outcomes(plan: str) -> dict[str, str]:
    """What a plan in JSON says of each user's object."""
    return {each["name"]: each["outcome"] for each in json.loads(plan)["users"]}


def test_a_start_says_what_it_repaired(capsys: pytest.CaptureFixture[str]) -> None:
    """By name, for people and for programs; nothing where it repaired nothing."""
    report = report_of("view team.cities", "function team.area (its text from before a repair)")
    emit_start(report, "text")
    assert capsys.readouterr().out == (
        "migrated: release 2, serial 3\n"
        "  2 of users' views and functions repaired:\n"
        "    view team.cities\n"
        "    function team.area (its text from before a repair)\n"
    )
    emit_start(report, "json")
    assert json.loads(capsys.readouterr().out)["repaired"] == list(report.repaired)
    emit_start(report_of(), "text")
    assert capsys.readouterr().out == "migrated: release 2, serial 3\n"


def test_plan_says_what_breaks_and_asks(call: Call, tmp_path: Path) -> None:
    """Exit 3 with the text to copy, until it is approved by name or by a rule."""
    plan = ("plan", "--release", "release")
    code, out, _ = call(*plan)
    assert code == 0
    assert "Not looked at: plan --bind does, and every start before its commit." in out
    code, out, _ = call(*plan, "--bind")
    assert code == 3
    assert out.startswith("NEEDS 1 DECISION: 1 migrated; 1 unchanged; users' objects: 1 breaks,")
    assert "! team.cities (view) breaks: " in out
    assert "write: --approve team.cities (or a rule of the policy" in out
    assert "goes on untouched" in out
    assert "team.other" not in out
    code, out, err = call(*plan, "--bind", "--approve", "team.cities", "--out", "plan.json")
    assert (code, "met nothing" in err) == (0, False)
    saved = decode_plan((tmp_path / "plan.json").read_bytes())
    assert "team.cities" in saved.approved
    assert outcomes((tmp_path / "plan.json").read_text()) == {
        "team.cities": "breaks", "team.sums": "changed", "team.same": "unchanged",
    }
    code, _, err = call(*plan, "--bind", "--out", "blocked.json")
    assert (code, "`apply` looks at users' objects again" in err) == (3, True)
    (tmp_path / "catalog_migrate.toml").write_text(
        '[[policy]]\nrisk = "break_user_object"\nname = "team.*"\naction = "refuse"\n'
    )
    code, out, _ = call(*plan, "--bind", "--approve", "team.cities")
    assert code == 3
    assert out.startswith("BLOCKED: ")
    assert "refused by" in out
    assert "[CM0308]" in out


def test_check_says_so_on_a_catalog(call: Call) -> None:
    """Against a catalog, in text and JSON; against a release there are no users."""
    check = ("check", "release", "--against", "catalog:")
    code, out, _ = call(*check)
    assert code == 0
    assert "users' objects: not looked at: check --bind does, and every start before its" in out
    code, out, _ = call(*check, "--bind")
    assert code == 3
    assert "\nusers' objects: 3 of users' views and functions read what changes: 1 breaks" in out
    assert "\n  team.sums (view) changes" in out
    assert "\n  team.cities: breaks a user's view: " in out
    assert "\n    write: --approve team.cities" in out
    code, out, _ = call(*check, "--bind", "--format", "json", "--approve", "team.cities")
    assert (code, outcomes(out)["team.cities"]) == (0, "breaks")
    code, out, _ = call("check", "release", "--against", "release", "--bind", "--format", "json")
    assert (code, "users" in json.loads(out)) == (0, False)


def test_rollback_says_so_too(call: Call, tmp_path: Path) -> None:
    """A view over a column that a rollback takes away breaks; without --bind nothing has looked."""
    release(tmp_path, "2", ONE + ", later INT")
    engine = releases.engine_on(None, None)  # type: ignore[arg-type]
    migrate(
        engine, open_log(str(tmp_path / "c")),
        load_texts([("t.sql", TABLES.format(ONE + ", later INT"))], name="2"),
        warehouse=None, clock=SystemClock(), holder="a test",
    )
    engine.world.names.functions[("team", "latest")] = FunctionSpec(  # type: ignore[attr-defined]
        ItemName("team", "latest"), (), (Column("later", "INT"),), "SELECT later FROM s.t", None, {}
    )
    back = ("rollback", "--plan", "--approve", "s.t.later", "--format", "json")
    code, out, _ = call(*back)
    assert (code, json.loads(out)["users"]) == (0, None)
    code, out, _ = call(*back, "--bind")
    assert (code, outcomes(out)["team.latest"]) == (3, "breaks")
    assert [entry["name"] for entry in json.loads(out)["blocked"]] == ["function:team.latest"]
    code, out, _ = call(*back, "--bind", "--approve", "team.latest")
    assert (code, json.loads(out)["applyable"]) == (0, True)
    code, _, err = call(*back, "--bind", "--out", "back.json")
    assert (code, "`apply` looks at users' objects again" in err) == (3, True)
    with pytest.raises(AssertionError, match="Spark was started"):
        call("apply", "back.json", "--yes")
