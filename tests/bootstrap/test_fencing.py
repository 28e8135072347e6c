"""A release that a start would fence out: plan, check and apply say it first, with exit 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.report.verdict import verdict

pytestmark = pytest.mark.spark

WIDER = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING, paid BOOLEAN);"


@pytest.fixture
def upgraded(shop: Any) -> Any:
    """The shop at release 2, after release 1."""
    shop.start(shop.release("1"))
    shop.start(shop.release("2", orders=WIDER))
    return shop


def test_a_plan_says_that_a_start_would_do_nothing(
    upgraded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Above the decisions that it would need as well: those are no use before this is settled."""
    release = str(upgraded.release("1"))
    catalog = ["--catalog", str(upgraded.catalog)]
    assert main(["plan", "--release", release, *catalog]) == 5
    told = capsys.readouterr().out
    assert told.startswith("FENCED OUT: release 1 was replaced by 2 (serial 3)\n")
    assert "NEEDS" not in told
    assert "--allow-downgrade" in told
    assert main(["plan", "--release", release, "--format", "json", *catalog]) == 5
    assert json.loads(capsys.readouterr().out)["fenced_out"].startswith("release 1 was replaced")
    assert main(["check", release, "--format", "json", *catalog]) == 5
    checked = json.loads(capsys.readouterr().out)
    assert (checked["verdict"], checked["applyable"]) == ("FENCED OUT", False)
    assert main(["check", release, "--against", f"catalog:{upgraded.catalog}"]) == 5
    assert "against catalog:" in capsys.readouterr().out


def test_nobody_is_asked_and_no_spark_started(
    upgraded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """apply, with and without a plan, and bootstrap end before either."""
    release = str(upgraded.release("1"))
    catalog = ["--release", release, "--catalog", str(upgraded.catalog)]
    before = upgraded.listing()
    for words in (["apply"], ["apply", "--yes"], ["bootstrap"], ["bootstrap", "--read-only"]):
        assert main([*words, *catalog]) == 5
        told = capsys.readouterr()
        assert "CM0222" in told.err
        assert "starting Spark" not in told.err
        assert told.out == ""
    assert upgraded.listing() == before


def test_going_back_is_meant_where_it_is_said(
    upgraded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of a release that is fenced out is carried out by `apply --allow-downgrade` only,
    whether it was made with the flag or without it: it is the same plan."""
    release = str(upgraded.release("1"))
    monkeypatch.chdir(upgraded.home)
    given = ["--release", release, "--catalog", str(upgraded.catalog)]
    approved = ["--approve", f"{upgraded.schema}.orders.paid"]
    assert main(["plan", "--out", "without.json", *approved, *given]) == 5
    assert main(["plan", "--allow-downgrade", "--out", "with.json", *approved, *given]) == 0
    assert "`apply` goes back to it" in capsys.readouterr().err
    hashes = {json.loads(Path(f"{name}.json").read_text())["plan_hash"]
              for name in ("with", "without")}
    assert len(hashes) == 1
    assert main(["apply", "with.json", "--yes", *given]) == 5
    assert main(["apply", "without.json", "--yes", "--allow-downgrade", *given]) == 0
    assert upgraded.open().status().release == "1"


def test_a_rule_of_the_policy_decides_for_the_plan_too(
    upgraded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`allow` lets apply go back without the flag; `refuse` stands above the flag, and the remedy
    does not name it."""
    given = ["--release", str(upgraded.release("1")), "--catalog", str(upgraded.catalog)]
    monkeypatch.chdir(upgraded.home)
    rules = Path("catalog_migrate.toml")
    text = '[[policy]]\nrisk = "downgrade"\naction = "{}"\n'
    rules.write_text(text.format("allow"))
    assert main(["plan", *given]) == 3  # the decision about the column is what is left
    assert "NEEDS 1 DECISION" in capsys.readouterr().out
    rules.write_text(text.format("refuse"))
    assert main(["plan", "--allow-downgrade", *given]) == 5
    assert "goes back to it" not in capsys.readouterr().err
    assert main(["apply", "--allow-downgrade", "--yes", *given]) == 5
    told = capsys.readouterr().err
    assert "have the rule changed" in told
    assert "--allow-downgrade" not in told


def test_a_rollback_that_a_rule_refuses(
    upgraded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan says so, and neither verb starts Spark for it; without the rule it is carried out,
    also from the plan that was saved under it."""
    given = ["--catalog", str(upgraded.catalog), "--approve", f"{upgraded.schema}.orders.paid"]
    monkeypatch.chdir(upgraded.home)
    rules = Path("catalog_migrate.toml")
    rules.write_text('[[policy]]\nrisk = "downgrade"\naction = "refuse"\n')
    assert main(["rollback", "--out", "back.json", *given]) == 5
    assert capsys.readouterr().out.startswith("FENCED OUT: ")
    for words in (["rollback", "--yes", *given], ["apply", "back.json", "--yes", *given[:2]]):
        assert main(words) == 5
        told = capsys.readouterr().err
        assert "have the rule changed" in told
        assert "starting Spark" not in told
    rules.unlink()
    assert verdict(upgraded.open().plan_rollback()).kind != "fenced"
    assert main(["apply", "back.json", "--yes", *given[:2]]) == 0
    assert upgraded.open().status().release == "1"
