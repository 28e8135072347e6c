"""Names changed behind our back are reported, mended, and those of others left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.api import Catalog
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.errors import UsageError

pytestmark = pytest.mark.spark

NOTED = {
    "noted": "CREATE VIEW {s}.noted (id BIGINT) AS -- why\n SELECT id FROM {s}.orders -- end\n;",
    "widened": "CREATE VIEW {s}.widened (id DECIMAL(20,0)) AS SELECT id /* all */ FROM {s}.orders",
}
"""Views that Spark stores otherwise than they are written: without comments, within casts."""


@pytest.fixture(scope="module")
def filled(opened: Any) -> Iterator[Any]:
    """The shop at release 1 with two orders, and a view of somebody else beside it.

    Every test mends what it breaks, so they share one.
    """
    with opened() as shop:
        shop.start(shop.release("1", **NOTED))
        shop.append("orders", [(1, "10", "a"), (2, "20", None)])
        shop.spark.sql(f"CREATE VIEW {shop.schema}.theirs AS SELECT 42 AS answer")
        yield shop


def drift(shop: Any) -> list[tuple[str, str]]:
    """(kind, bare name) of every drifted name of the shop's schema."""
    return [
        (entry.kind, entry.name.rsplit(".", 1)[1])
        for entry in shop.open().drift(SparkEngine(shop.spark))
        if entry.name.startswith(f"{shop.schema}.")
    ]


def repair(shop: Any) -> int:
    """Mend, and check that nothing is left and that others' names still stand."""
    steps = Catalog.open(shop.catalog, "write").repair(SparkEngine(shop.spark))
    assert drift(shop) == []
    assert shop.rows("theirs") == [Row(answer=42)]
    return steps


def test_there_is_no_drift_after_a_start(filled: Any) -> None:
    """Neither somebody else's view in our schema is drift, nor what Spark makes of our text."""
    assert drift(filled) == []
    assert repair(filled) == 0


def test_what_was_dropped_comes_back(filled: Any) -> None:
    """Dropped tables, views and functions are missing, and registered again with all their rows."""
    for kind, name in (
        ("TABLE", "orders"), ("VIEW", "big"), ("VIEW", "doubled"), ("VIEW", "widened"),
        ("FUNCTION", "twice"),
    ):  # fmt: skip
        filled.spark.sql(f"DROP {kind} {filled.schema}.{name}")
    assert sorted(drift(filled)) == [
        ("missing", name) for name in ("big", "doubled", "orders", "twice", "widened")
    ]
    assert repair(filled) == 5
    assert filled.rows("doubled") == [Row(id=4)]


def test_what_others_put_under_our_names_is_reported(filled: Any, tmp_path: Any) -> None:
    """A name of ours over another directory is somebody else's table, and CREATE OR REPLACE takes
    our stamps off a view: both are reported as foreign, never replaced.
    """
    spark, schema = filled.spark, filled.schema
    spark.sql(f"DROP TABLE {schema}.tags")
    spark.sql(f"CREATE TABLE {schema}.tags (x INT) USING delta LOCATION '{tmp_path}/elsewhere'")
    spark.sql(f"CREATE OR REPLACE VIEW {schema}.doubled AS SELECT 0L AS id")
    assert sorted(drift(filled)) == [("foreign", "doubled"), ("foreign", "tags")]
    spark.sql(f"DROP TABLE {schema}.tags")
    spark.sql(f"DROP VIEW {schema}.doubled")
    assert repair(filled) == 2
    assert spark.table(f"{schema}.tags").columns == ["tag"]
    assert filled.rows("doubled") == [Row(id=4)]


def test_a_table_pointing_at_another_shard_of_ours_is_brought_back(filled: Any) -> None:
    """A name over a retired shard of ours is reported as different and mended."""
    old = filled.shard("tags")
    filled.append("tags", [("7",)])
    filled.start(
        filled.release("2", tags="CREATE TABLE {s}.tags (tag INT USING CAST(tag AS INT));", **NOTED)
    )
    filled.spark.sql(f"DROP TABLE {filled.schema}.tags")
    filled.spark.sql(f"CREATE TABLE {filled.schema}.tags USING delta LOCATION '{old}'")
    assert drift(filled) == [("different", "tags")]
    assert repair(filled) == 2
    assert filled.rows("tags") == [Row(tag=7)]


def test_what_is_ours_and_is_not_what_was_committed_is_mended(filled: Any) -> None:
    """A view of ours with another stamp, one whose text ALTER VIEW replaced under our stamps, and a
    second name for a shard of ours that nothing committed has.
    """
    schema = filled.schema
    filled.spark.sql(
        f"ALTER VIEW {schema}.widened"
        f" SET TBLPROPERTIES ('catalog_migrate.definition' = '1:{'0' * 32}')"
    )
    filled.spark.sql(f"ALTER VIEW {schema}.doubled AS SELECT 0L AS id")
    filled.spark.sql(f"CREATE TABLE {schema}.copied USING delta LOCATION '{filled.shard('tags')}'")
    assert sorted(drift(filled)) == [
        ("different", "doubled"), ("different", "widened"), ("leftover", "copied"),
    ]  # fmt: skip
    assert repair(filled) == 3
    assert filled.rows("doubled") == [Row(id=4)]
    assert not filled.spark.catalog.tableExists(f"{schema}.copied")


def test_repair_needs_a_writable_handle(filled: Any) -> None:
    """A catalog opened read-only mends nothing."""

    with pytest.raises(UsageError, match="read-only"):
        filled.open().repair(SparkEngine(filled.spark))
