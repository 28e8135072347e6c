"""Rewriting a body so that it reads stand-ins."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.port import contract_reason
from catalog_migrate.engine.spark.binding import stand_in_text
from catalog_migrate.model.objects import Column

RELATIONS = {("s", "t"): "b1", ("s", "u"): "b2"}
FUNCTIONS = {("s", "f"): "b3"}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM s.t", "SELECT a FROM `b1` AS `t`"),
        ("SELECT p.a FROM S.T AS p", "SELECT p.a FROM `b1` AS p"),
        ("SELECT p.a FROM s.t p, s.u", "SELECT p.a FROM `b1` p, `b2` AS `u`"),
        ("SELECT t.a FROM s.t JOIN `s`.u ON true",
         "SELECT t.a FROM `b1` AS `t` JOIN `b2` AS `u` ON true"),
        ("SELECT s.t.a FROM s.t WHERE s.t.a > 1", "SELECT t.a FROM `b1` AS `t` WHERE t.a > 1"),
        ("SELECT s.f(a) FROM s.t", "SELECT `b3`(a) FROM `b1` AS `t`"),
        ("SELECT 's.t' FROM other.t -- s.t", "SELECT 's.t' FROM other.t -- s.t"),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", "WITH t AS (SELECT 1 AS a) SELECT a FROM t"),
        ("TABLE s.t", "TABLE `b1`"),
        ("SELECT t.a FROM s.t TABLESAMPLE (5 ROWS), s.u",
         "SELECT t.a FROM `b1` TABLESAMPLE (5 ROWS) AS `t`, `b2` AS `u`"),
        ("SELECT t.a FROM s.t TABLESAMPLE (10 PERCENT) REPEATABLE (1) WHERE t.a > 1",
         "SELECT t.a FROM `b1` TABLESAMPLE (10 PERCENT) REPEATABLE (1) AS `t` WHERE t.a > 1"),
        ("SELECT p.a FROM s.t TABLESAMPLE (5 ROWS) p",
         "SELECT p.a FROM `b1` TABLESAMPLE (5 ROWS) p"),
        ("SELECT window.a FROM s.t window", "SELECT window.a FROM `b1` window"),
        ("SELECT a FROM s.t window WHERE window.a > 1",
         "SELECT a FROM `b1` window WHERE window.a > 1"),
        ("SELECT a FROM s.t limit, s.u offset", "SELECT a FROM `b1` limit, `b2` offset"),
        ("SELECT a FROM s.t limit LIMIT 3", "SELECT a FROM `b1` limit LIMIT 3"),
        ("SELECT a FROM s.t LIMIT 3", "SELECT a FROM `b1` AS `t` LIMIT 3"),
        ("SELECT a FROM s.t OFFSET 3", "SELECT a FROM `b1` AS `t` OFFSET 3"),
        ("SELECT sum(a) OVER w FROM s.t WINDOW w AS (ORDER BY a)",
         "SELECT sum(a) OVER w FROM `b1` AS `t` WINDOW w AS (ORDER BY a)"),
        ("SELECT a FROM (SELECT a FROM s.t) q", "SELECT a FROM (SELECT a FROM `b1` AS `t`) q"),
    ],
)
def test_parents_are_replaced_by_stand_ins(sql, expected):
    """Relations and functions of the new state are replaced, aliases kept or added."""
    assert stand_in_text(sql, RELATIONS, FUNCTIONS) == expected


def test_lengths_do_not_matter_to_a_query():
    """A VARCHAR contract takes a STRING body: Spark's queries know no lengths."""
    assert contract_reason([Column("a", "VARCHAR(3)")], [Column("x", "STRING")]) is None
