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


Said = pytest.CaptureFixture[str]


def test_a_release_that_was_replaced_and_the_ways_back_to_it(
    shop: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 2 in force after 1: what is refused writes nothing; then the two ways back."""
    shop.start(shop.release("1"))
    shop.start(shop.release("2", orders=WIDER))
    monkeypatch.chdir(shop.home)
    before = shop.listing()
    a_plan_says_that_a_start_would_do_nothing(shop, capsys)
    nobody_is_asked_and_no_spark_started(shop, capsys)
    a_rule_of_the_policy_decides_for_the_plan_too(shop, capsys)
    assert shop.listing() == before
    going_back_is_meant_where_it_is_said(shop, capsys)
    assert shop.start(shop.release("3", orders=WIDER)).outcome == "migrated"
    a_rollback_that_a_rule_refuses(shop, capsys)


def a_plan_says_that_a_start_would_do_nothing(shop: Any, capsys: Said) -> None:
    """Above the decisions that it would need as well: those are no use before this is settled."""
    release = str(shop.release("1"))
    catalog = ["--catalog", str(shop.catalog)]
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
    assert main(["check", release, "--against", f"catalog:{shop.catalog}"]) == 5
    assert "against catalog:" in capsys.readouterr().out


def nobody_is_asked_and_no_spark_started(shop: Any, capsys: Said) -> None:
    """apply, with and without a plan, and bootstrap end before either."""
    release = str(shop.release("1"))
    catalog = ["--release", release, "--catalog", str(shop.catalog)]
    for words in (["apply"], ["apply", "--yes"], ["bootstrap"], ["bootstrap", "--read-only"]):
        assert main([*words, *catalog]) == 5
        told = capsys.readouterr()
        assert "CM0222" in told.err
        assert "starting Spark" not in told.err
        assert told.out == ""


def going_back_is_meant_where_it_is_said(shop: Any, capsys: Said) -> None:
    """A plan of a release that is fenced out is carried out by `apply --allow-downgrade` only,
    whether it was made with the flag or without it: it is the same plan."""
    release = str(shop.release("1"))
    given = ["--release", release, "--catalog", str(shop.catalog)]
    approved = ["--approve", f"{shop.schema}.orders.paid"]
    assert main(["plan", "--out", "without.json", *approved, *given]) == 5
    assert main(["plan", "--allow-downgrade", "--out", "with.json", *approved, *given]) == 0
    assert "`apply` goes back to it" in capsys.readouterr().err
    hashes = {json.loads(Path(f"{name}.json").read_text())["plan_hash"]
              for name in ("with", "without")}
    assert len(hashes) == 1
    assert main(["apply", "with.json", "--yes", *given]) == 5
    assert main(["apply", "without.json", "--yes", "--allow-downgrade", *given]) == 0
    assert shop.open().status().release == "1"


def a_rule_of_the_policy_decides_for_the_plan_too(shop: Any, capsys: Said) -> None:
    """`allow` lets apply go back without the flag; `refuse` stands above the flag, and the remedy
    does not name it."""
    given = ["--release", str(shop.release("1")), "--catalog", str(shop.catalog)]
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
    assert "have the owner of the policy change the rule" in told
    assert "--allow-downgrade" not in told
    rules.unlink()


def a_rollback_that_a_rule_refuses(shop: Any, capsys: Said) -> None:
    """Its plan says so, and neither verb starts Spark for it; without the rule it is carried out,
    also from the plan that was saved under it."""
    given = ["--catalog", str(shop.catalog), "--approve", f"{shop.schema}.orders.paid"]
    rules = Path("catalog_migrate.toml")
    rules.write_text('[[policy]]\nrisk = "downgrade"\naction = "refuse"\n')
    capsys.readouterr()
    assert main(["rollback", "--out", "back.json", *given]) == 5
    assert capsys.readouterr().out.startswith("FENCED OUT: ")
    for words in (["rollback", "--yes", *given], ["apply", "back.json", "--yes", *given[:2]]):
        assert main(words) == 5
        told = capsys.readouterr().err
        assert "have the owner of the policy change the rule" in told
        assert "starting Spark" not in told
    rules.unlink()
    assert verdict(shop.open().plan_rollback()).kind != "fenced"
    assert main(["apply", "back.json", "--yes", *given[:2]]) == 0
    assert shop.open().status().release == "1"
