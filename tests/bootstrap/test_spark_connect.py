"""A shop on a Spark Connect server: releases, drift and a rollback, by the library and by verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.api import Catalog
from catalog_migrate.cli.main import main
from catalog_migrate.engine.spark.connect import remote_session
from catalog_migrate.errors import UnsuitableSession
from catalog_migrate.hook import bootstrap, rollback
from catalog_migrate.store.address import Storage
from tests.services.object_store import ObjectStore
from tests.services.spark_connect import SparkConnect

from .conftest import Shop

pytestmark = pytest.mark.spark

LITERAL = {
    "literal": "CREATE VIEW {s}.literal (text STRING) AS SELECT '${env:HOME}' AS text;",
}
TWO = {
    "orders": (
        "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT),"
        " remark STRING RENAMED FROM note, paid BOOLEAN);"
    ),
    "tags": "CREATE TABLE {s}.tags (label STRING RENAMED FROM tag, since DATE);",
    "big": (
        "CREATE VIEW {s}.big (id BIGINT, remark STRING) AS"
        " SELECT id, remark FROM {s}.orders WHERE id > 1;"
    ),
}
ROWS = [(1, "007", "a"), (2, "20", None), (3, None, "c")]


@pytest.fixture
def shop(spark_connect: Any, tmp_path: Path, schema_name: str) -> Shop:
    """An empty shop whose names are on the server."""
    return Shop(spark_connect, tmp_path, f"connected_{schema_name}")


def test_a_shop_is_upgraded_repaired_and_rolled_back(
    shop: Shop, connect_server: Any, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every row is there after each step, and a verb asks for neither Java nor a local session.

    Release 2 copies a table, renames a column of another in place and changes a chain of views.
    """
    given = ["--catalog", str(shop.catalog)]

    def call(*args: str) -> tuple[int, str]:
        capsys.readouterr()
        return main([*args, *given]), capsys.readouterr().out

    assert shop.start(shop.release("1", **LITERAL)).outcome == "initialized"
    shop.append("orders", ROWS)
    shop.append("tags", [("new",)])
    assert shop.rows("literal") == [Row(text="${env" + ":HOME}")]

    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setenv("CATALOG_MIGRATE__SPARK__REMOTE", connect_server.address)
    two = str(shop.release("2", **LITERAL, **TWO))
    code, out = call("plan", "--bind", "--release", two)
    assert (code, "bound: Spark's analyser accepted" in out) == (0, True)
    code, out = call("apply", "--yes", "--release", two, "--format", "json")
    assert (code, json.loads(out)["outcome"], json.loads(out)["rows_copied"]) == (0, "migrated", 3)
    assert shop.rows("orders") == [
        Row(id=1, qty=7, remark="a", paid=None), Row(id=2, qty=20, remark=None, paid=None),
        Row(id=3, qty=None, remark="c", paid=None),
    ]
    assert shop.rows("tags") == [Row(label="new", since=None)]
    assert shop.rows("doubled") == [Row(id=4), Row(id=6)]
    assert shop.start(Path(two)).outcome == "unchanged"

    for name in ("VIEW {}.big", "TABLE {}.tags"):
        shop.spark.sql("DROP " + name.format(shop.schema))
    code, out = call("drift", "--detailed-exitcode")
    assert code == 2
    assert f"{shop.schema}.big" in out
    assert f"{shop.schema}.tags" in out
    assert call("drift", "--repair", "--yes")[0] == 0
    asked = f"SELECT label FROM {shop.schema}.tags, {shop.schema}.big WHERE big.id = 2"
    code, out = call("sql", "-c", asked, "--format", "json")
    assert (code, json.loads(out)) == (0, [{"label": "new"}])

    assert rollback(
        shop.spark, catalog=shop.catalog,
        approve=[f"{shop.schema}.orders.paid", f"{shop.schema}.tags.since"],
    ).outcome == "rolled_back"
    assert shop.rows("orders") == [
        Row(id=1, qty="007", note="a"), Row(id=2, qty="20", note=None),
        Row(id=3, qty=None, note="c"),
    ]
    assert shop.rows("tags") == [Row(tag="new")]
    assert shop.rows("doubled") == [Row(id=4), Row(id=6)]

    with pytest.raises(UnsuitableSession, match="the runtime of streams needs a Spark session of"):
        Catalog.open(shop.catalog, "write").runtime(shop.spark)


@pytest.mark.soak
def test_rows_of_a_server_lie_on_an_object_store(
    object_store: ObjectStore, bucket: str, tmp_path: Path, schema_name: str
) -> None:
    """Catalog and rows in a bucket, names on the server: copied, evolved and rolled back."""
    given = {"catalog": f"{bucket}/catalog", "storage_options": object_store.options}
    storage = Storage(object_store.options)
    with (
        SparkConnect(tmp_path, storage=storage) as server,
        remote_session(server.address) as spark,
    ):
        shop = Shop(spark, tmp_path, f"connected_{schema_name}")

        def start(release: Path) -> str:
            return bootstrap(
                spark, release=release, warehouse=f"{bucket}/warehouse", **given
            ).outcome

        assert start(shop.release("1", **LITERAL)) == "initialized"
        shop.append("orders", ROWS)
        shop.append("tags", [("new",)])
        assert start(shop.release("2", **LITERAL, **TWO)) == "migrated"
        assert [row.qty for row in shop.rows("orders")] == [7, 20, None]
        assert shop.rows("tags") == [Row(label="new", since=None)]
        assert shop.rows("doubled") == [Row(id=4), Row(id=6)]
        approve = [f"{shop.schema}.orders.paid", f"{shop.schema}.tags.since"]
        assert rollback(spark, approve=approve, **given).outcome == "rolled_back"
        assert [row.qty for row in shop.rows("orders")] == ["007", "20", None]
        assert shop.rows("tags") == [Row(tag="new")]
