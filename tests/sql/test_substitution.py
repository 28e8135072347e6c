"""Names in a text replaced by others, and the places of the new text in the old one."""

from __future__ import annotations

import pytest

from catalog_migrate.sql.references import splice
from catalog_migrate.sql.substitution import find_pieces, place_before, replace_names

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
        ("SELECT spark_catalog.s.t.a FROM spark_catalog.s.t", "SELECT t.a FROM `b1` AS `t`"),
        ("SELECT s.t.*, s.t.a.b FROM s.t", "SELECT t.*, t.a.b FROM `b1` AS `t`"),
        ("SELECT s.t.a, r.t.a FROM s.t JOIN r.t ON s.t.a = r.t.a",
         "SELECT `s.t`.a, r.t.a FROM `b1` AS `s.t` JOIN r.t ON `s.t`.a = r.t.a"),
        ("SELECT t.a FROM s.t WHERE EXISTS (SELECT 1 FROM r.t)",
         "SELECT t.a FROM `b1` AS `t` WHERE EXISTS (SELECT 1 FROM r.t)"),
        ("SELECT a FROM (SELECT a FROM s.t) q", "SELECT a FROM (SELECT a FROM `b1` AS `t`) q"),
    ],
)
def test_parents_are_replaced_by_stand_ins(sql, expected):
    """Relations and functions of the new state are replaced, aliases kept or added."""
    assert replace_names(sql, RELATIONS, FUNCTIONS) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.a FROM t", "SELECT t.a FROM `b1` AS `t`"),
        ("SELECT S.t.a FROM T", "SELECT t.a FROM `b1` AS `T`"),
        ("SELECT a FROM w, `odd one` x", "SELECT a FROM `s`.`w`, `s`.`odd one` x"),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t, u",
         "WITH t AS (SELECT 1 AS a) SELECT a FROM t, `b2` AS `u`"),
        ("SELECT a FROM identifier('w')", "SELECT a FROM `s`.`w`"),
        ("SELECT a FROM r.t, catalog.s.t", "SELECT a FROM r.t, catalog.s.t"),
        ("SELECT f(g(upper(a))) FROM u", "SELECT `b3`(`s`.`g`(upper(a))) FROM `b2` AS `u`"),
        ("SELECT extract(year FROM d), trim(BOTH 'x' FROM a) FROM t",
         "SELECT extract(year FROM d), trim(BOTH 'x' FROM a) FROM `b1` AS `t`"),
        ("SELECT a FROM range(3), (VALUES (1)) AS v (a)",
         "SELECT a FROM range(3), (VALUES (1)) AS v (a)"),
        ("FROM t |> JOIN u USING (a)", "FROM `b1` AS `t` |> JOIN `b2` AS `u` USING (a)"),
    ],
)
def test_names_without_a_schema_are_of_the_namespace(sql, expected):
    """Relations always, functions where the namespace has them; a CTE stays what it is."""
    pieces = find_pieces(sql, RELATIONS, FUNCTIONS, namespace="s", local={"f", "g"})
    assert splice(sql, pieces) == expected


def test_a_place_in_the_text_with_stand_ins_is_found_in_the_text_as_written():
    """Offsets before, within, between and behind replacements lead back to where they came from."""
    sql = "SELECT s.t.nope, u.also FROM s.t JOIN u ON s.f(x) = 1"
    pieces = find_pieces(sql, RELATIONS, FUNCTIONS, namespace="s")
    replaced = splice(sql, pieces)
    assert replaced == "SELECT t.nope, u.also FROM `b1` AS `t` JOIN `b2` AS `u` ON `b3`(x) = 1"
    found = {}
    for text in ("t.nope", "u.also", "`b1`", "`b2`", "`b3`(x)", "x", "= 1"):
        start = replaced.index(text)
        first, last = place_before(pieces, start, start + len(text))
        found[text] = sql[first:last]
    assert found == {
        "t.nope": "t.nope", "u.also": "u.also", "`b1`": "s.t", "`b2`": "u", "`b3`(x)": "s.f(x)",
        "x": "x", "= 1": "= 1",
    }
