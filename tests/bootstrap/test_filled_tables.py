"""A table that is split, on real Spark: the new one is filled from the old one's rows, once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

pytestmark = pytest.mark.spark

WHOLE = (
    "CREATE TABLE {s}.customers (id BIGINT NOT NULL, name STRING, street STRING, city STRING);"
)
SPLIT = "CREATE TABLE {s}.customers (id BIGINT NOT NULL, name STRING) DROPPED (street, city);"
ADDRESSES = (
    "CREATE TABLE {s}.addresses (customer_id BIGINT NOT NULL, street STRING, city STRING)"
    " FILLED FROM (SELECT id, street, city FROM {s}.customers);"
)


def release(shop: Any, name: str, *texts: str) -> Any:
    """A release of these texts alone."""
    keys = ("orders", "tags", "big", "doubled")
    return shop.release(name, **dict(zip(keys, (*texts, "", "", ""), strict=False)))


def test_a_table_is_split(shop: Any) -> None:
    """The rows of the new table are the old one's, although its columns go in the same migration.

    The old table is sealed for the last read and open afterwards. What was filled is never filled
    again, and a fresh installation has nothing to fill it from.
    """
    shop.start(release(shop, "1", WHOLE))
    shop.append("customers", [(1, "a", "s1", "c1"), (2, "b", None, None)])
    report = shop.start(release(shop, "2", SPLIT, ADDRESSES))
    assert report.outcome == "migrated"
    filled = next(c for c in report.plan.changes if c.name == f"{shop.schema}.addresses")
    assert (filled.action, filled.contents, filled.rows) == ("create", "fill", 2)
    assert [step.describe() for step in report.plan.steps[:4]] == [
        f"fill table {shop.schema}.addresses", f"seal table {shop.schema}.customers",
        f"evolve table {shop.schema}.customers", f"unseal table {shop.schema}.customers",
    ]
    assert shop.rows("addresses") == [
        Row(customer_id=1, street="s1", city="c1"), Row(customer_id=2, street=None, city=None)
    ]
    assert shop.rows("customers") == [Row(id=1, name="a"), Row(id=2, name="b")]
    shop.append("customers", [(3, "c")])
    shop.append("addresses", [(3, "s3", "c3")])
    assert shop.start(release(shop, "2", SPLIT, ADDRESSES)).outcome == "unchanged"
    assert len(shop.rows("addresses")) == 3
    renamed = SPLIT.replace("name STRING", "label STRING RENAMED FROM name")
    shop.start(release(shop, "3", renamed, ADDRESSES))
    assert len(shop.rows("addresses")) == 3
