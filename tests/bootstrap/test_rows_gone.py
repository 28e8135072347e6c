"""A warehouse that is not mounted: plan, status and start say the same, and nothing is begun."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.api import starts
from catalog_migrate.cli.main import main
from catalog_migrate.errors import CatalogMoved, EngineFailure, MigrationBlocked
from catalog_migrate.planner.plan_validation import ROWS_GONE

pytestmark = pytest.mark.spark

EXTRA = "CREATE TABLE {s}.extra (id INT);"
ROWS = [(1, "10", "a"), (2, "12", None)]


@pytest.fixture(scope="module")
def filled(opened: Any) -> Iterator[Any]:
    """The shop at release 1 with two orders: every test puts back what it takes away."""
    with opened() as shop:
        shop.start(shop.release("1"))
        shop.append("orders", ROWS)
        yield shop


def lost(refused: pytest.ExceptionInfo[MigrationBlocked]) -> list[tuple[str, str]]:
    """Names and codes of what blocks."""
    return [(entry.name, entry.code) for entry in refused.value.plan.blocked]


@pytest.mark.parametrize("forgets", [True, False], ids=["new session", "names still there"])
def test_a_table_whose_directory_is_gone(filled: Any, *, forgets: bool) -> None:
    """Neither a start without changes nor an upgrade touches anything; put back, all is well."""
    shard = Path(filled.shard("orders"))
    elsewhere = filled.home / "elsewhere"
    shard.rename(elsewhere)
    if forgets:
        filled.forget()
    before = filled.listing()
    catalog = filled.open()
    wanted = [(f"{filled.schema}.orders", ROWS_GONE)]
    for release in (filled.release("1"), filled.release("2", tags=None)):
        plan = catalog.plan(release)
        assert [(b.name, b.code) for b in plan.blocked][-1:] == wanted
        with pytest.raises(MigrationBlocked) as refused:
            filled.start(release)
        assert lost(refused)[-1:] == wanted
    report = filled.start(filled.release("1"), read_only=True)
    assert (report.outcome, report.plan.applyable) == ("planned", False)
    assert [each.name for each in catalog.status().gone] == [f"{filled.schema}.orders"]
    assert filled.listing() == before
    elsewhere.rename(shard)
    assert filled.start(filled.release("1")).outcome == "unchanged"
    assert len(filled.rows("orders")) == len(ROWS)
    assert catalog.status().gone == ()


def test_one_that_cannot_be_read_is_told_without_a_traceback(
    filled: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link that leads nowhere stands for a mount that does not answer."""
    shard = Path(filled.shard("orders"))
    (shard / "_delta_log").rename(shard / "away")
    (shard / "_delta_log").symlink_to("_delta_log")
    release = str(filled.release("1"))
    catalog = ["--catalog", str(filled.catalog)]
    assert main(["plan", "--release", release, *catalog]) == 3
    assert main(["status", *catalog]) == 0
    assert "Too many levels of symbolic links" in capsys.readouterr().out
    without = filled.release("2", orders=None, big=None, doubled=None)
    # the rows may be there all the same
    with pytest.raises(EngineFailure, match="cannot read the shard"):
        filled.start(without, approve=[f"{filled.schema}.orders"])
    assert filled.open().status().release == "1"
    (shard / "_delta_log").unlink()
    (shard / "away").rename(shard / "_delta_log")
    assert filled.start(filled.release("1")).outcome in {"unchanged", "resumed"}
    assert len(filled.rows("orders")) == len(ROWS)


def test_another_warehouse_is_refused_by_the_plan_as_by_the_start(
    filled: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Spark is started, also for a plan that was saved without it."""
    release = str(filled.release("2", extra=EXTRA))
    monkeypatch.chdir(filled.home)
    made = ["--release", release, "--catalog", str(filled.catalog)]
    assert main(["plan", "--out", "plan.json", *made]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(starts, "open_spark", _no_spark)
        for words in (["plan"], ["apply", "--yes"], ["apply", "plan.json", "--yes"]):
            capsys.readouterr()
            assert main([*words, *made, "--warehouse", "other"]) == 64
            told = capsys.readouterr().err
            assert f"below {filled.catalog / 'warehouse'}, not {filled.home / 'other'}" in told
    assert main(["plan", *made, "--warehouse", str(filled.catalog / "warehouse")]) == 0
    # a copy has other rows for another reason, which is told
    shutil.copytree(filled.catalog, filled.home / "copy")
    capsys.readouterr()
    assert main(["plan", "--release", release, "--catalog", "copy",
                 "--warehouse", "copy/warehouse"]) == 0
    assert f"({CatalogMoved.code})" in capsys.readouterr().err


def _no_spark(*_: object) -> None:
    raise AssertionError("Spark was started")


def test_beside_a_lost_catalog_nobody_is_told_to_make_one(
    filled: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """plan, check, status and a read-only start say what the start says: CM0804."""
    rows = str(filled.home / "rows")
    os.rename(filled.catalog / "warehouse", rows)
    os.rename(filled.catalog, filled.home / "away")
    release = str(filled.release("1"))
    catalog = ["--catalog", str(filled.catalog)]
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__WAREHOUSE", rows)
    for words in (
        ["plan", "--release", release], ["check", release], ["status"], ["history"],
        ["check", release, "--against", "catalog:"],
        ["bootstrap", "--release", release], ["bootstrap", "--read-only", "--release", release],
    ):
        capsys.readouterr()
        assert main([*words, *catalog]) == 1
        assert "CM0804" in capsys.readouterr().err
    assert not filled.catalog.exists()
    os.rename(filled.home / "away", filled.catalog)
    os.rename(rows, filled.catalog / "warehouse")


def test_from_rows_that_are_away_to_rows_that_are_gone_for_good(
    shop: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approved plan waits for the rows, a rollback too; then they are given up."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    monkeypatch.chdir(shop.home)
    a_warehouse_that_is_not_there(shop, capsys)
    a_saved_plan_is_held_against_the_rows_of_now(shop, capsys, monkeypatch)
    a_rollback_does_not_begin_either(shop)
    for number, forgets in ((3, False), (5, True)):
        one_that_is_gone_for_good_is_given_up_by_dropping_it(shop, number, forgets=forgets)


def a_warehouse_that_is_not_there(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One entry, exit 3 from plan, check and apply of a plan that was approved before."""
    release = str(shop.release("2", extra=EXTRA))
    catalog = ["--catalog", str(shop.catalog)]
    assert main(["plan", "--release", release, "--out", "plan.json", *catalog]) == 0
    os.rename(shop.catalog / "warehouse", shop.home / "rows")
    capsys.readouterr()
    assert main(["plan", "--release", release, *catalog]) == 3
    told = capsys.readouterr().out
    assert told.startswith("BLOCKED: 1 obstacle")
    assert "the rows of 2 tables cannot be seen" in " ".join(told.split())  # wrapped by the path
    assert main(["check", release, *catalog]) == 3
    assert main(["check", release, "--against", f"catalog:{shop.catalog}"]) == 3
    assert main(["apply", "plan.json", "--release", release, "--yes", *catalog]) == 3
    assert main(["status", *catalog]) == 0
    assert "gone       " in capsys.readouterr().out
    os.rename(shop.home / "rows", shop.catalog / "warehouse")
    assert shop.start(shop.release("1")).outcome == "unchanged"


def a_saved_plan_is_held_against_the_rows_of_now(
    shop: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone since: exit 3. Made while they were gone: exit 4. Neither starts Spark."""
    release = str(shop.release("2", extra=EXTRA))
    catalog = ["--catalog", str(shop.catalog)]
    made = ["--release", release, *catalog]
    shard = Path(shop.shard("orders"))
    assert main(["plan", "--out", "good.json", *made]) == 0
    shard.rename(shop.home / "elsewhere")
    assert main(["plan", "--out", "blocked.json", *made]) == 3
    with monkeypatch.context() as patch:
        patch.setattr(starts, "open_spark", _no_spark)
        capsys.readouterr()
        for saved in ("good.json", "blocked.json"):
            assert main(["apply", saved, "--yes", *made]) == 3
            told = capsys.readouterr()
            assert told.out.count(ROWS_GONE) == 1
            assert "nothing was touched" in told.err
        (shop.home / "elsewhere").rename(shard)
        assert main(["apply", "blocked.json", "--yes", *made]) == 4
        told = capsys.readouterr().err
        assert f"the rows of {shop.schema}.orders are there again" in told
        assert "run `catalog-migrate plan` again" in told
    assert main(["apply", "good.json", "--yes", *made]) == 0
    assert len(shop.rows("orders")) == len(ROWS)
    assert main(["rollback", "--approve", f"{shop.schema}.extra", "--out", "back.json",
                 *catalog]) == 0
    shard.rename(shop.home / "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(starts, "open_spark", _no_spark)
        assert main(["apply", "back.json", "--yes", *catalog]) == 3
        # as `rollback` itself, it is not given a directory of rows that could be another one
        patch.setenv("CATALOG_MIGRATE__CATALOG__WAREHOUSE", "other")
        assert main(["apply", "back.json", "--yes", *catalog]) == 3
    (shop.home / "elsewhere").rename(shard)


def a_rollback_does_not_begin_either(shop: Any) -> None:
    """What it would bring back beside a table that is gone stays where it is."""
    shard = Path(shop.shard("orders"))
    shard.rename(shop.home / "elsewhere")
    catalog = shop.open()
    assert ROWS_GONE in {entry.code for entry in catalog.plan_rollback().blocked}
    from catalog_migrate.hook import rollback as roll_back

    with pytest.raises(MigrationBlocked) as refused:
        roll_back(shop.spark, catalog=shop.catalog)
    assert (f"{shop.schema}.orders", ROWS_GONE) in lost(refused)
    (shop.home / "elsewhere").rename(shard)


def one_that_is_gone_for_good_is_given_up_by_dropping_it(
    shop: Any, number: int, *, forgets: bool
) -> None:
    """With an approval, as any drop of a table; the next release makes it anew, empty."""
    shutil.rmtree(shop.shard("orders"))
    if forgets:
        shop.forget()
    name = f"{shop.schema}.orders"
    without = shop.release(f"{number}", orders=None, big=None, doubled=None, extra=EXTRA)
    plan = shop.open().plan(without)
    assert [(b.name, b.code) for b in plan.blocked] == [(name, "CM0305")]
    assert shop.start(without, approve=[name]).outcome == "migrated"
    assert shop.start(shop.release(f"{number + 1}", extra=EXTRA)).outcome == "migrated"
    assert shop.rows("orders") == []
    shop.append("orders", ROWS)
    assert len(shop.rows("big")) == 1
