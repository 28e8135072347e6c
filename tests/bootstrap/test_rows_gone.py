"""A warehouse that is not mounted: plan, status and start say the same, and nothing is begun."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli import hook, rollback
from catalog_migrate.cli.main import main
from catalog_migrate.errors import CatalogMoved, EngineFailure, MigrationBlocked
from catalog_migrate.planner.proofs import ROWS_GONE

pytestmark = pytest.mark.spark

ROWS = [(1, "10", "a"), (2, "12", None)]


@pytest.fixture
def filled(shop: Any) -> Any:
    """The shop at release 1 with two orders."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    return shop


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


@pytest.mark.parametrize("forgets", [True, False], ids=["new session", "names still there"])
def test_one_that_is_gone_for_good_is_given_up_by_dropping_it(
    filled: Any, *, forgets: bool
) -> None:
    """With an approval, as any drop of a table; the next release makes it anew, empty."""
    shutil.rmtree(filled.shard("orders"))
    if forgets:
        filled.forget()
    name = f"{filled.schema}.orders"
    without = filled.release("2", orders=None, big=None, doubled=None)
    plan = filled.open().plan(without)
    assert [(b.name, b.code) for b in plan.blocked] == [(name, "CM0305")]
    assert filled.start(without, approve=[name]).outcome == "migrated"
    assert filled.start(filled.release("3")).outcome == "migrated"
    assert filled.rows("orders") == []
    filled.append("orders", ROWS)
    assert len(filled.rows("big")) == 1


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


def test_a_warehouse_that_is_not_there(
    filled: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry, exit 3 from plan, check and apply of a plan that was approved before."""
    release = str(filled.release("2", extra="CREATE TABLE {s}.extra (id INT);"))
    monkeypatch.chdir(filled.home)
    catalog = ["--catalog", str(filled.catalog)]
    assert main(["plan", "--release", release, "--out", "plan.json", *catalog]) == 0
    os.rename(filled.catalog / "warehouse", filled.home / "rows")
    capsys.readouterr()
    assert main(["plan", "--release", release, *catalog]) == 3
    told = capsys.readouterr().out
    assert told.startswith("BLOCKED: 1 obstacle")
    assert "the rows of 2 tables cannot be seen" in " ".join(told.split())  # wrapped by the path
    assert main(["check", release, *catalog]) == 3
    assert main(["check", release, "--against", f"catalog:{filled.catalog}"]) == 3
    assert main(["apply", "plan.json", "--release", release, "--yes", *catalog]) == 3
    assert main(["status", *catalog]) == 0
    assert "gone       " in capsys.readouterr().out
    os.rename(filled.home / "rows", filled.catalog / "warehouse")
    assert main(["apply", "plan.json", "--release", release, "--yes", *catalog]) == 0
    assert len(filled.rows("orders")) == len(ROWS)


def test_a_saved_plan_is_held_against_the_rows_of_now(
    filled: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone since: exit 3. Made while they were gone: exit 4. Neither starts Spark."""
    release = str(filled.release("2", extra="CREATE TABLE {s}.extra (id INT);"))
    monkeypatch.chdir(filled.home)
    catalog = ["--catalog", str(filled.catalog)]
    made = ["--release", release, *catalog]
    shard = Path(filled.shard("orders"))
    assert main(["plan", "--out", "good.json", *made]) == 0
    shard.rename(filled.home / "elsewhere")
    assert main(["plan", "--out", "blocked.json", *made]) == 3
    with monkeypatch.context() as patch:
        patch.setattr(hook, "local_spark", _no_spark)
        capsys.readouterr()
        for saved in ("good.json", "blocked.json"):
            assert main(["apply", saved, "--yes", *made]) == 3
            told = capsys.readouterr()
            assert told.out.count(ROWS_GONE) == 1
            assert "nothing was touched" in told.err
        (filled.home / "elsewhere").rename(shard)
        assert main(["apply", "blocked.json", "--yes", *made]) == 4
        told = capsys.readouterr().err
        assert f"the rows of {filled.schema}.orders are there again" in told
        assert "run `catalog-migrate plan` again" in told
    assert main(["apply", "good.json", "--yes", *made]) == 0
    assert len(filled.rows("orders")) == len(ROWS)
    assert main(["rollback", "--approve", f"{filled.schema}.extra", "--out", "back.json",
                 *catalog]) == 0
    shard.rename(filled.home / "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(rollback, "local_spark", _no_spark)
        assert main(["apply", "back.json", "--yes", *catalog]) == 3
        # as `rollback` itself, it is not given a directory of rows that could be another one
        patch.setenv("CATALOG_MIGRATE__CATALOG__WAREHOUSE", "other")
        assert main(["apply", "back.json", "--yes", *catalog]) == 3


def test_another_warehouse_is_refused_by_the_plan_as_by_the_start(
    filled: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Spark is started, also for a plan that was saved without it."""
    release = str(filled.release("2", extra="CREATE TABLE {s}.extra (id INT);"))
    monkeypatch.chdir(filled.home)
    made = ["--release", release, "--catalog", str(filled.catalog)]
    assert main(["plan", "--out", "plan.json", *made]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(hook, "local_spark", _no_spark)
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


def test_a_rollback_does_not_begin_either(filled: Any) -> None:
    """What it would bring back beside a table that is gone stays where it is."""
    filled.start(filled.release("2", extra="CREATE TABLE {s}.extra (id INT);"))
    shard = Path(filled.shard("orders"))
    shard.rename(filled.home / "elsewhere")
    catalog = filled.open()
    assert ROWS_GONE in {entry.code for entry in catalog.plan_rollback().blocked}
    from catalog_migrate.rollback import rollback as roll_back

    with pytest.raises(MigrationBlocked) as refused:
        roll_back(filled.spark, catalog=filled.catalog)
    assert (f"{filled.schema}.orders", ROWS_GONE) in lost(refused)


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
