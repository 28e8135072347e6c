"""Functions and names as Spark writes them, from a release to the session and back."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

pytestmark = pytest.mark.spark

FUNCTIONS = """
CREATE FUNCTION {s}.vat(x INT COMMENT 'net', rate INT DEFAULT 2)
  RETURNS INT LANGUAGE SQL DETERMINISTIC COMMENT 'c' CONTAINS SQL RETURN x * rate;
CREATE FUNCTION {s}.bare(x INT) RETURN IDENTIFIER('{s}.vat')(x) + 1;
CREATE FUNCTION {s}.first_ones(n INT) RETURNS TABLE (id BIGINT, note STRING) READS SQL DATA
  RETURN SELECT id, note FROM IDENTIFIER('{s}.orders') WHERE id <= n;
"""
VIEW = """
CREATE VIEW {s}.big (id BIGINT, v INT) AS
SELECT o.id, IDENTIFIER('{s}.bare')(1) AS v FROM IDENTIFIER('{s}' || '.orders') AS o
  JOIN {s}.first_ones(5) f ON f.id = o.id;
"""


def test_functions_as_spark_writes_them(shop: Any) -> None:
    """They come into force, change alone with what calls them, and a restart does nothing."""
    texts = {"functions": FUNCTIONS, "big": VIEW, "doubled": None}
    shop.start(shop.release("1", **texts))
    shop.append("orders", [(1, "2", "n"), (9, "3", None)])
    assert shop.rows("big") == [Row(id=1, v=3)]
    again = shop.start(shop.release("1", **texts))
    assert (again.outcome, again.plan.changes) == ("unchanged", ())

    texts["functions"] = FUNCTIONS.replace("DEFAULT 2", "DEFAULT 5")
    report = shop.start(shop.release("2", **texts))
    assert "function:" + shop.schema + ".vat" in {change.name for change in report.plan.changes}
    assert shop.rows("big") == [Row(id=1, v=6)]

    wider = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING, more INT);"
    report = shop.start(shop.release("3", orders=wider, **texts))
    assert report.outcome == "migrated"
    shop.forget()
    shop.start(shop.release("3", orders=wider, **texts))
    assert shop.rows("big") == [Row(id=1, v=6)]
