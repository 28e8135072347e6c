"""A rollback on real Spark and Delta, by the command line and by the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.cli.main import main
from catalog_migrate.errors import MigrationBlocked

pytestmark = pytest.mark.spark

TWO = {
    "orders": (
        "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT),"
        " remark STRING RENAMED FROM note, paid BOOLEAN);"
    ),
    "tags": None,
    "big": (
        "CREATE VIEW {s}.big (id BIGINT, remark STRING) AS"
        " SELECT id, remark FROM {s}.orders WHERE id > 1;"
    ),
    "fresh": "CREATE TABLE {s}.fresh (id BIGINT);",
}
ROWS = [(1, "007", "a"), (2, "20", None), (3, None, "c")]


@pytest.fixture
def upgraded(shop: Any) -> Any:
    """Release 1 with rows, then release 2 that copies a table and drops another."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    shop.append("tags", [("old",)])
    shop.start(shop.release("2", **TWO), approve=(f"{shop.schema}.tags",))
    return shop


def columns(shop: Any, table: str) -> list[str]:
    return [column["name"] for column in shop.open().show(f"{shop.schema}.{table}")["columns"]]


def test_there_and_back_by_the_command_line(
    upgraded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planned, refused for the one loss, approved, applied: old values whole, new rows carried."""
    shop = upgraded
    shop.append("orders", [(4, 40, "d", True)])
    catalog = ["--catalog", str(shop.catalog)]
    file = str(tmp_path / "back.json")
    before = shop.listing()
    assert main(["rollback", "--plan", *catalog]) == 3
    assert f"--approve {shop.schema}.orders.paid" in capsys.readouterr().out
    assert main(["rollback", "--yes", *catalog]) == 3
    assert main(
        ["rollback", "--out", file, "--approve", f"{shop.schema}.orders.paid", *catalog]
    ) == 0
    assert shop.listing() == before
    plan = json.loads(Path(file).read_text())
    assert (plan["base"]["release"], plan["target"]["release"]) == ("2", "1")
    capsys.readouterr()
    assert main(["apply", file, "--yes", "--format", "json", *catalog]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["outcome"], done["release"], done["rows_copied"]) == ("rolled_back", "1", 5)
    assert shop.rows("orders") == [
        Row(id=1, qty="007", note="a"), Row(id=2, qty="20", note=None),
        Row(id=3, qty=None, note="c"), Row(id=4, qty="40", note="d"),
    ]
    assert shop.rows("tags") == [Row(tag="old")]
    assert shop.rows("doubled") == [Row(id=4), Row(id=6), Row(id=8)]
    shop.append("orders", [(5, "5", "e")])
    shop.append("tags", [("new",)])
    # the old software starts as if nothing had been, the new one is fenced out
    assert shop.start(shop.release("1")).outcome == "unchanged"
    assert shop.start(shop.release("2", **TWO)).outcome == "fenced_out"
    capsys.readouterr()
    assert main(["history", "--limit", "1", *catalog]) == 0
    assert "rollback to serial" in capsys.readouterr().out
    assert main(["apply", file, "--yes", *catalog]) == 0  # applied already: nothing to do
    assert main(["rollback", "--yes", *catalog]) == 64


def test_a_rollback_is_undone_by_another(upgraded: Any) -> None:
    """Behind a rollback lies the newer release with its rows, its names and its columns."""
    shop = upgraded
    newer = shop.open().status().serial
    shop.append("orders", [(4, 40, "d", None)])
    catalog = type(shop.open()).open(shop.catalog, mode="write")
    loss = f"{shop.schema}.orders.paid"
    with pytest.raises(MigrationBlocked):
        catalog.rollback(spark=shop.spark)
    catalog.rollback(spark=shop.spark, approve=(loss,))
    shop.append("orders", [(5, "50", "e")])
    lost = (f"{shop.schema}.tags", f"{shop.schema}.orders.qty")
    report = catalog.rollback(spark=shop.spark, to=newer, approve=lost)
    assert (report.outcome, report.release) == ("rolled_back", "2")
    assert columns(shop, "orders") == ["id", "qty", "remark", "paid"]
    assert shop.rows("orders") == [
        Row(id=1, qty=7, remark="a", paid=None), Row(id=2, qty=20, remark=None, paid=None),
        Row(id=3, qty=None, remark="c", paid=None), Row(id=4, qty=40, remark="d", paid=None),
        Row(id=5, qty=50, remark="e", paid=None),
    ]
    assert shop.rows("fresh") == []
    assert shop.start(shop.release("2", **TWO)).outcome == "unchanged"
