"""Counting what a query selects, and finding stars."""

from __future__ import annotations

import pytest

from catalog_migrate.sql.references import count_select_items, has_star


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT a, f(b, c), CASE WHEN d THEN e END FROM t", 3),
        ("SELECT DISTINCT a * 2, CAST(b AS DECIMAL(1,0)) FROM t", 2),
        ("WITH q AS (SELECT 1, 2, 3) SELECT a FROM q", 1),
        ("SELECT 1", 1),
        ("SELECT count(*), a FROM t GROUP BY a, b", 2),
        ("SELECT a AS cluster, t.sort, offset, b AS window, 1 FROM t", 5),
        ("SELECT a, b CLUSTER BY a", 2),
        ("SELECT *, a FROM t", None),
        ("SELECT t.*, a FROM t", None),
        ("SELECT explode(xs) FROM t", None),
        ("FROM t SELECT a", None),
        ("VALUES (1, 2)", None),
        ("SELECT a, b UNION ALL SELECT c, d", 2),
    ],
)
def test_count(sql: str, count: int | None) -> None:
    """The main list is counted, except where only an analyser can tell."""
    assert count_select_items(sql) == count


@pytest.mark.parametrize(
    ("sql", "star"),
    [
        ("SELECT * FROM t", True), ("SELECT a, t.* FROM t", True), ("SELECT a, * FROM t", True),
        ("SELECT a FROM (SELECT * FROM t)", True), ("SELECT count(*), a * b FROM t", False),
    ],
)
def test_star(sql: str, star: bool) -> None:
    """A star in a list is told from a product and from count(*)."""
    assert has_star(sql) is star
