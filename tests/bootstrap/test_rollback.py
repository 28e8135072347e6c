"""A rollback on real Spark and Delta, by the command line and by the library."""

from __future__ import annotations

import itertools
import json
import threading
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


def columns(shop: Any, table: str) -> list[str]:
    return [column["name"] for column in shop.open().show(f"{shop.schema}.{table}")["columns"]]


def test_there_and_back_and_there_again(
    shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line: planned, refused for the one loss, approved, applied; old values whole,
    new rows carried. By the library: behind that rollback lies the newer release with its rows.

    Release 2 copies a table and drops another.
    """
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    shop.append("tags", [("old",)])
    shop.start(shop.release("2", **TWO), approve=(f"{shop.schema}.tags",))
    newer = shop.open().status().serial
    shop.append("orders", [(4, 40, "d", True)])
    given = ["--catalog", str(shop.catalog)]
    file = str(tmp_path / "back.json")
    before = shop.listing()
    assert main(["rollback", "--plan", *given]) == 3
    assert f"--approve {shop.schema}.orders.paid" in capsys.readouterr().out
    assert main(["rollback", "--yes", *given]) == 3
    assert main(
        ["rollback", "--out", file, "--approve", f"{shop.schema}.orders.paid", *given]
    ) == 0
    assert shop.listing() == before
    plan = json.loads(Path(file).read_text())
    assert (plan["base"]["release"], plan["target"]["release"]) == ("2", "1")
    capsys.readouterr()
    given_for = ["--reason", " wrong figures "]
    assert main(["apply", file, "--yes", "--format", "json", *given_for, *given]) == 0
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
    assert main(["history", "--limit", "1", *given]) == 0
    assert capsys.readouterr().out.endswith(": wrong figures\n")
    assert main(["apply", file, "--yes", *given]) == 0  # applied already: nothing to do
    assert main(["rollback", "--yes", *given]) == 64
    # undone by another, by the library
    catalog = type(shop.open()).open(shop.catalog, mode="write")
    lost = (f"{shop.schema}.tags", f"{shop.schema}.orders.qty")
    with pytest.raises(MigrationBlocked):
        catalog.rollback(spark=shop.spark, to=newer)
    report = catalog.rollback(spark=shop.spark, to=newer, approve=lost, reason="right after all")
    assert next(catalog.history()).reason == f"rollback to serial {newer}: right after all"
    assert (report.outcome, report.release) == ("rolled_back", "2")
    assert columns(shop, "orders") == ["id", "qty", "remark", "paid"]
    assert shop.rows("orders") == [
        Row(id=1, qty=7, remark="a", paid=None), Row(id=2, qty=20, remark=None, paid=None),
        Row(id=3, qty=None, remark="c", paid=None), Row(id=4, qty=40, remark="d", paid=True),
        Row(id=5, qty=5, remark="e", paid=None),
    ]
    assert shop.rows("fresh") == []
    assert shop.start(shop.release("2", **TWO)).outcome == "unchanged"


class Appender(threading.Thread):
    """A delta-rs writer by path that knows the columns of release 1 only, until it is refused.

    It goes on past refusals until one comes after ``over`` was set.
    """

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self.path, self.over = path, threading.Event()
        self.accepted: list[int] = []
        self.refused: list[str] = []

    def run(self) -> None:
        import pyarrow
        from deltalake import write_deltalake

        schema = pyarrow.schema([
            pyarrow.field("id", pyarrow.int64(), nullable=False),
            pyarrow.field("qty", pyarrow.string()), pyarrow.field("note", pyarrow.string()),
        ])
        for key in itertools.count(100):
            last = self.over.is_set()
            rows = pyarrow.table({"id": [key], "qty": [str(key)], "note": ["n"]}, schema=schema)
            try:
                write_deltalake(self.path, rows, mode="append")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is loud
                self.refused.append(str(error))
                if last:
                    return
            else:
                self.accepted.append(key)


def test_a_column_dropped_in_place_under_a_writer(shop: Any) -> None:
    """No row is copied and none is lost, old columns are refused; there is no way back past it."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    shard = shop.shard("orders")
    writer = Appender(shard)
    writer.start()
    without = {
        "orders": "CREATE TABLE {s}.orders (id BIGINT NOT NULL, n STRING RENAMED FROM qty)"
        " DROPPED (note);",
        "big": "CREATE VIEW {s}.big (id BIGINT) AS SELECT id FROM {s}.orders WHERE id > 1;",
    }
    try:
        report = shop.start(shop.release("2", **without))
    finally:
        writer.over.set()
        writer.join(120)
    assert not writer.is_alive()
    assert (report.outcome, report.rows_copied, shop.shard("orders")) == ("migrated", 0, shard)
    shop.spark.sql(f"REFRESH TABLE {shop.schema}.orders")
    assert shop.rows("orders") == [
        Row(id=1, n="007"), Row(id=2, n="20"), Row(id=3, n=None),
        *(Row(id=key, n=str(key)) for key in writer.accepted),
    ]
    assert writer.refused
    catalog = type(shop.open()).open(shop.catalog, mode="write")
    table = f"{shop.schema}.orders"
    with pytest.raises(MigrationBlocked, match="dropped in place and its values with it") as caught:
        catalog.rollback(spark=shop.spark, approve=(table, f"{table}.note"))
    assert [(one.code, one.column) for one in caught.value.plan.blocked] == [("CM0340", "note")]
    assert shop.start(shop.release("2", **without)).outcome == "unchanged"
    shop.append("orders", [(4, "40")])
    assert shop.rows("orders")[3] == Row(id=4, n="40")
