"""What a query names: relations, functions and types, whatever the shape of the query."""

from __future__ import annotations

import pytest

from catalog_migrate.sql.references import references, rewrite


@pytest.mark.parametrize(
    ("sql", "relations"),
    [
        ("SELECT * FROM a, s.b, `S`.`c d` x JOIN d USING (id)", "a s.b s.c d d"),
        ("SELECT t.x FROM a t LEFT JOIN (SELECT y FROM b) u ON t.x = u.y", "a b"),
        ("SELECT * FROM (a JOIN b ON TRUE), c", "a b c"),
        ("WITH q AS (SELECT * FROM a), r (x) AS (SELECT x FROM q) SELECT * FROM r, b", "a b"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "t"),
        ("WITH RECURSIVE t AS (SELECT 1 n UNION ALL SELECT n FROM t) SELECT * FROM t", ""),
        ("SELECT (WITH q AS (SELECT 1 x) SELECT x FROM q) FROM q", "q"),
        ("SELECT extract(YEAR FROM d), trim(BOTH 'x' FROM y) FROM a", "a"),
        ("SELECT a IS NOT DISTINCT FROM b FROM c", "c"),
        ("SELECT * FROM a LATERAL VIEW explode(xs) e AS x, y WHERE x > 1", "a"),
        ("SELECT * FROM range(3) r, LATERAL (SELECT * FROM b)", "b"),
        ("SELECT * FROM (VALUES (1), (2)) AS v(x), a", "a"),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM a) AND x IN (SELECT y FROM b)", "a b"),
        ("SELECT x FROM a UNION SELECT x FROM b EXCEPT SELECT x FROM c", "a b c"),
        ("SELECT * EXCEPT (a, b) FROM c", "c"),
        ("FROM a |> WHERE x > 1 |> JOIN b ON TRUE |> SELECT x, y", "a b"),
        ("TABLE a", "a"),
        ("SELECT * FROM spark_catalog.s.a, other.s.b", "s.a"),
        ("SELECT * FROM a TABLESAMPLE (3 ROWS), b VERSION AS OF 3", "a b"),
        ("SELECT sum(x) OVER (PARTITION BY y ORDER BY z), 'FROM d' FROM a -- , b", "a"),
    ],
)
def test_relations(sql: str, relations: str) -> None:
    """Relations are found; CTE names, aliases, functions and column lists are not taken for one."""
    found = {f"{schema}.{name}" if schema else name for schema, name in references(sql).relations}
    expected = {"s.c d", "a", "s.b", "d"} if "c d" in relations else set(relations.split())
    assert found == expected


def test_functions_and_types() -> None:
    """Calls and types in casts are found, with their schema where one is written."""
    found = references(
        "SELECT shop.vat(x), count(y), CAST(z AS ARRAY<shop.money>), w::s.big, "
        "CAST(a AS STRUCT<f: s.t, g s.u>) FROM q"
    )
    assert found.functions == {("shop", "vat"), (None, "count")}
    assert {name for name in found.types if name[0]} == {
        ("shop", "money"), ("s", "big"), ("s", "t"), ("s", "u")
    }


def test_rewrite_touches_names_only() -> None:
    """Rewriting replaces what is asked for and leaves every other character as it was."""
    sql = "SELECT  t.x  -- from t\nFROM t JOIN u ON t.x = u.x"
    assert rewrite(
        sql, lambda name: "s.t" if name.kind == "relation" and name.parts == ("t",) else None
    ) == "SELECT  t.x  -- from t\nFROM s.t JOIN u ON t.x = u.x"
