"""Fields of structs that come, go and change, on real Spark: in place, or as a plan offers."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.errors import MigrationBlocked

pytestmark = pytest.mark.spark

FIRST = (
    "CREATE TABLE {s}.nest (id INT, t STRUCT<a: INT>, s STRUCT<a: INT, b: STRING>,"
    " l ARRAY<STRUCT<a: INT>>,"
    " m MAP<STRING, STRUCT<a: INT>>, d STRUCT<x: ARRAY<STRUCT<y: MAP<STRING, STRUCT<z: INT>>>>>);"
)
GROWN = (
    "CREATE TABLE {s}.nest (id INT, t STRUCT<a: INT>,"
    " s STRUCT<z: DATE, a: INT, b: STRING, c: STRUCT<q: INT>>,"
    " l ARRAY<STRUCT<a: INT, `is`: DOUBLE>>, m MAP<STRING, STRUCT<a: INT, c: DOUBLE>>,"
    " d STRUCT<x: ARRAY<STRUCT<y: MAP<STRING, STRUCT<z: INT, c: BIGINT>>>>>);"
)
VIEW = (
    "CREATE VIEW {s}.inner_ones (id INT, s STRUCT<a: INT, b: STRING>)"
    " AS SELECT id, s FROM {s}.nest;"
)
VIEW_GROWN = (
    "CREATE VIEW {s}.inner_ones (id INT, s STRUCT<z: DATE, a: INT, b: STRING, c: STRUCT<q: INT>>)"
    " AS SELECT id, s FROM {s}.nest;"
)
SHRUNK = (
    "CREATE TABLE {s}.nest (id INT, t STRUCT<a: INT NOT NULL, n: BIGINT NOT NULL>{4},"
    " s STRUCT<b: STRING, first: INT>{0},"
    " l ARRAY<STRUCT<a: STRING>>{1}, m MAP<STRING, STRUCT<c: DOUBLE, a: TINYINT>>{2},"
    " d STRUCT<x: ARRAY<STRUCT<y: MAP<STRING, STRUCT<c: BIGINT>>>>>{3});"
)


def release(shop: Any, name: str, table: str, view: str) -> Any:
    """A release of the nested table and its view alone."""
    return shop.release(name, orders=table, tags=None, big=view, doubled=None)


def test_fields_come_in_place_and_go_with_a_decision(shop: Any) -> None:
    """Nullable fields come without a decision and without a copy, at their place, at any depth.

    What else becomes of a field is blocked, and what the plan offers then works on the rows.
    """
    shop.start(release(shop, "1", FIRST, VIEW))
    fill = (
        f"INSERT INTO {shop.schema}.nest SELECT 1, named_struct('a', 9),"
        " named_struct('a', 1, 'b', 'x'),"
        " array(named_struct('a', 2), NULL), map('k', named_struct('a', 3)),"
        " named_struct('x', array(named_struct('y', map('k', named_struct('z', 4)))))"
        " UNION ALL SELECT 2, named_struct('a', 8), NULL, NULL, NULL, NULL"
    )
    shop.spark.sql(fill)
    old = shop.shard("nest")

    report = shop.start(release(shop, "2", GROWN, VIEW_GROWN))
    assert report.outcome == "migrated"
    assert {change.name: change.contents for change in report.plan.changes} == {
        f"{shop.schema}.nest": "evolve", f"{shop.schema}.inner_ones": "none"
    }
    assert (shop.shard("nest"), report.rows_copied) == (old, 0)
    grown = Row(z=None, a=1, b="x", c=None)
    assert shop.rows("nest") == [
        Row(
            id=1, t=Row(a=9), s=grown, l=[Row(**{"a": 2, "is": None}), None],
            m={"k": Row(a=3, c=None)}, d=Row(x=[Row(y={"k": Row(z=4, c=None)})]),
        ),
        Row(id=2, t=Row(a=8), s=None, l=None, m=None, d=None),
    ]
    assert shop.rows("inner_ones") == [Row(id=1, s=grown), Row(id=2, s=None)]

    undecided = SHRUNK.replace("{s}", shop.schema)
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release(shop, "3", undecided.format("", "", "", "", ""), ""))
    offered = {entry.column: entry.remedy for entry in caught.value.plan.blocked}
    assert list(offered) == ["t", "s", "l", "m", "d"]
    assert offered["t"] == (
        "t STRUCT<a: INT NOT NULL, n: BIGINT NOT NULL> USING IF(t IS NULL, NULL,"
        " named_struct('a', coalesce(t.`a`, <value of a>), 'n', <value of n>))"
    )
    assert offered["s"] == (
        "s STRUCT<b: STRING, first: INT> USING IF(s IS NULL, NULL,"
        " named_struct('b', s.`b`, 'first', CAST(NULL AS INT)))"
    )
    texts = [" USING " + remedy.split(" USING ")[1] for remedy in offered.values()]
    decided = undecided.format(*texts[1:], texts[0]).replace("<value of a>", "0")
    decided = decided.replace("<value of n>", "7L").replace("CAST(NULL AS INT)", "s.a")
    report = shop.start(release(shop, "3", decided, ""))
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    assert shop.rows("nest") == [
        Row(
            id=1, t=Row(a=9, n=7), s=Row(b="x", first=1), l=[Row(a="2"), None],
            m={"k": Row(c=None, a=3)}, d=Row(x=[Row(y={"k": Row(c=None)})]),
        ),
        Row(id=2, t=Row(a=8, n=7), s=None, l=None, m=None, d=None),
    ]
