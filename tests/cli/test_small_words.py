"""Options that are empty, dashes, or meet nothing: each says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.api.releases import note_unmet
from catalog_migrate.cli.main import main
from catalog_migrate.cli.output import note
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.missing_data import MissingData
from catalog_migrate.planner.plan_validation import with_missing_data
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.release import Release
from tests.cli.test_main import Answer, Call, bring_in_force, manifest

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Call:
    """Runs a command line beside a catalog of release 1, and the manifests of 1 and 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", "c")
    first = manifest(tmp_path / "1.json", "1", [("a", "INT"), ("gone", "STRING")])
    bring_in_force(tmp_path, first)
    manifest(tmp_path / "2.json", "2", [("a", "INT")])

    def run(*args: str) -> Answer:
        capsys.readouterr()
        code = main(args)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    "line",
    [["plan", "--release", "2.json"], ["diff", "1.json", "2.json"], ["check", "2.json"],
     ["apply", "--release", "2.json", "--no-input"]],
)
def test_an_approval_that_meets_nothing(call: Call, line: list[str]) -> None:
    """A misspelt approval is told with the nearest name; one that was needed is not."""
    found = call(*line, "--approve", "s.t.gome")
    assert (
        "--approve s.t.gome met nothing: no change of this plan needs it; did you mean s.t.gone?"
    ) in found.err
    assert found.code == 3
    for approval in ("s.t.gone", "S.`t`.Gone", "s.t"):
        assert "met nothing" not in call(*line, "--approve", approval).err


def test_an_approval_of_what_needs_none(capsys: Capture) -> None:
    """A view that goes holds no rows: that is said, and its own name is not offered instead."""
    objects = tuple(
        ObjectDefinition("s", kind, name, (Column("a", "INT"),), sql="SELECT 1 AS a")
        for kind, name in (("view", "v"), ("table", "t"))
    )
    old, new = (
        Release(name, objects[:number], name, {each.identity: () for each in objects}, {})
        for name, number in (("1", 2), ("2", 0))
    )
    plan = plan_migration(Baseline.from_release(old), new, approve=["s.v", "s.t"]).plan
    note_unmet(plan, ["s.v", "s.t"], note)
    assert capsys.readouterr().err == (
        "--approve s.v was not needed: the change of it asks for no approval\n"
    )


def test_an_approval_beside_rows_that_are_missing(capsys: Capture) -> None:
    """What is missing is named by its place, which is no name that an approval could have."""
    none = Release("1", (), "1", {}, {})
    migration = plan_migration(Baseline.from_release(none), none)
    rows = MissingData("/w", "the rows of 2 tables cannot be seen", "mount the disk")
    plan = with_missing_data(migration, [rows]).plan
    assert [entry.name for entry in plan.blocked] == ["/w"]
    note_unmet(plan, ["s.v"], note)
    assert capsys.readouterr().err == (
        "--approve s.v met nothing: no change of this plan needs it\n"
    )


def test_a_plan_on_stdout(call: Call, tmp_path: Path) -> None:
    """``--out -`` prints what a file would get, and makes no file of that name."""
    assert call("plan", "--release", "2.json", "--out", "saved.json").code == 3
    found = call("plan", "--release", "2.json", "--out", "-")
    assert (found.code, json.loads(found.out)["plan_hash"]) == (
        3, json.loads((tmp_path / "saved.json").read_text())["plan_hash"]
    )
    assert call("graph", "--out", "-").out == call("graph").out
    compiled = call("release", "compile", "2.json", "--out", "-")
    assert (compiled.code, json.loads(compiled.out)["format_version"]) == (0, "1.0")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (["plan", "--release", "2.json", "--out", ""], 64, "name of the file is empty"),
        (["release", "compile", "2.json", "--out", ""], 64, "name of the file is empty"),
        (["release", "compile", "2.json", "--check", "--out", "-"], 64, "name the file"),
        (["unlock", "--if-holder", ""], 64, "--if-holder is empty"),
        (["check", ""], 78, "release.path"),
        (["export", "--no-input"], 64, "there is no terminal"),
        (["unsafe", "backfill", "nope"], 3, "there is no unsafe operation nope"),
    ],
)
def test_refused_at_once(call: Call, line: list[str], code: int, told: str) -> None:
    """What cannot be meant is refused before Spark is started for it."""
    found = call(*line)
    assert found.code == code, found.err
    assert told in found.err
    assert "starting Spark" not in found.err


def test_a_margin_as_long_as_its_lease(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that would stop as soon as it started is a mistake of the configuration."""
    monkeypatch.setenv("CATALOG_MIGRATE__STREAMS__LEASE_TTL", "10")
    found = call("config", "show")
    assert found.code == 78
    assert "streams.lease_margin is 10.0 (default), which is not below" in found.err
    monkeypatch.setenv("CATALOG_MIGRATE__STREAMS__LEASE_MARGIN", "9.5")
    assert call("config", "show").code == 0
