"""What Spark's analyser makes of users' texts over stand-ins, and what it says of real names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.engine.port import FunctionSpec, QueryRequest
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column

pytestmark = pytest.mark.spark

S, T, U, F = "shop", ItemName("shop", "t"), ItemName("shop", "u"), ItemName("shop", "f")
PARENTS = {
    T: (Column("a", "INT", False), Column("b", "STRING"), Column("c", "STRUCT<x: INT>")),
    U: (Column("a", "INT"), Column("d", "DATE")),
    ItemName("shop", "odd"): (
        Column("t", "time(6)", False), Column("s", "string collate UTF8_LCASE"),
        Column("a", "INT", False),
    ),
}
TWICE = FunctionSpec(F, [Argument("x", "INT")], "INT", "x * 2")
LISTED = FunctionSpec(
    ItemName("shop", "listed"), [Argument("x", "INT")], [Column("y", "INT")],
    "SELECT f(t.a) FROM shop.t WHERE t.a = listed.x",
)


@pytest.fixture(scope="module")
def engine(spark):
    return SparkEngine(spark)


def request(sql: str, **more) -> QueryRequest:
    return QueryRequest(
        ItemName("theirs", "v"), sql, PARENTS, [TWICE, LISTED], namespace="shop", **more
    )


def columns(found) -> str:
    """The columns in one line, or the condition and what is missing."""
    if found.columns is None:
        return f"{found.condition} {found.missing}"
    return ", ".join(
        f"{each.name} {each.type}{'' if each.nullable else ' NOT NULL'}" for each in found.columns
    )


def test_every_form_of_a_query_is_analysed_by_columns_that_nothing_has(engine, spark):
    """Names with and without a schema, of relations and functions, and what a view cannot see.

    The session is in another schema, has a temporary view and a function called as theirs, and
    another schema has relations of the same names.
    """
    spark.sql("CREATE SCHEMA theirs")
    spark.sql("CREATE TABLE theirs.t (real TINYINT) USING json")
    spark.sql("CREATE FUNCTION theirs.f() RETURNS TINYINT RETURN 1")
    spark.range(1).createOrReplaceTempView("u")
    spark.sql("CREATE TEMPORARY FUNCTION g() RETURNS INT RETURN 1")
    expected = {
        "SELECT * FROM t": "a INT NOT NULL, b STRING, c STRUCT<x: INT>",
        "SELECT t.a, shop.t.b, spark_catalog.shop.t.c.x FROM Shop.T":
            "a INT NOT NULL, b STRING, x INT",
        "SELECT * FROM u NATURAL JOIN t": "a INT, d DATE, b STRING, c STRUCT<x: INT>",
        "SELECT t.a, r.real, theirs.t.real FROM shop.t JOIN theirs.t r JOIN theirs.t":
            "a INT NOT NULL, real TINYINT, real TINYINT",
        "SELECT shop.t.a, theirs.t.real FROM t, theirs.t": "a INT NOT NULL, real TINYINT",
        "WITH u AS (SELECT 1 AS one) SELECT * FROM u": "one INT NOT NULL",
        "SELECT f(a) AS r, theirs.f() AS s, upper(b) AS up FROM t":
            "r INT NOT NULL, s TINYINT NOT NULL, up STRING",
        "SELECT shop.f(a), a + 1 FROM t":
            "spark_catalog.shop.f(a) INT NOT NULL, (a + 1) INT NOT NULL",
        "SELECT * FROM listed(1)": "y INT NOT NULL",
        "SELECT g() FROM t": "UNRESOLVED_ROUTINE shop.g",
        "FROM t |> WHERE a > 1 |> SELECT b": "b STRING",
        "SELECT * FROM VALUES (1), (2) AS v (one), LATERAL (SELECT d FROM u WHERE u.a = v.one)":
            "one INT NOT NULL, d DATE",
        "TABLE t -- the end": "a INT NOT NULL, b STRING, c STRUCT<x: INT>",
        "SELECT a FROM t;": "a INT NOT NULL",
        "SELECT 1 AS `catalog_migrate_bind_1`": "catalog_migrate_bind_1 INT NOT NULL",
        "SELECT current_time() AS t": "t time(6) NOT NULL",
        "SELECT 'a' COLLATE UTF8_LCASE AS t": "t string collate UTF8_LCASE NOT NULL",
        "SELECT * FROM odd": "t time(6) NOT NULL, s string collate UTF8_LCASE, a INT NOT NULL",
        "SELECT a FROM no.t": "TABLE_OR_VIEW_NOT_FOUND no.t",
        "SELECT a FROM": "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION a",
        "SELECT a a a FROM t": "PARSE_SYNTAX_ERROR None",
    }
    try:
        for plan in (False, True):
            found = engine.analyse([request(sql, plan=plan) for sql in expected])
            assert dict(zip(expected, map(columns, found), strict=True)) == expected
    finally:
        spark.sql("DROP TEMPORARY FUNCTION g")
        spark.catalog.dropTempView("u")
    shown = spark.sql("SHOW TABLES").collect()  # listTables reads every table that is there
    assert "catalog_migrate" not in str([each.tableName for each in shown])


MISSING = {
    "SELECT '😀', t.nope FROM t": "t.nope",
    "SELECT shop.t.nope FROM shop.t": "t.nope",
    "SELECT `odd one`, a FROM t": "`odd one`",
    "SELECT a FROM gone": "gone",
    "SELECT a FROM shop.gone AS t JOIN u ON t.a = u.a": "shop.gone",
    "SELECT lost(a) FROM t": "lost",
    "SELECT a, shop.lost(f(a)) FROM t": "shop.lost",
    "SELECT * FROM shop.lost(1)": "shop.lost",
    "SELECT * EXCEPT (nope) FROM t": "nope",
    "SELECT * FROM t JOIN u USING (d)": "d",
    "SELECT f(a), x.* FROM t": "x",
    "SELECT c.y FROM t": "y",
    "SELECT transform(array(1), x -> x + nope) FROM t": "nope",
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.nope)": "t.nope",
    "SELECT a FROM t ORDER BY nope": "nope",
    "SELECT a FROM t -- over shop.gone\nUNION SELECT e FROM u": "e",
    "SELECT nope, nope FROM t": "nope",
}


@pytest.mark.parametrize("plan", [False, True])
def test_a_command_in_the_place_of_a_query_is_not_run(engine, spark, tmp_path, plan):
    """Through its metastore another application may store any text as a view's."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS kept")
    spark.sql(f"CREATE TABLE IF NOT EXISTS kept.t (a INT) USING delta LOCATION '{tmp_path}/t'")
    for command in (
        "DROP TABLE kept.t", "WITH x AS (SELECT 1 AS a) INSERT INTO kept.t SELECT a FROM x",
        "INSERT INTO kept.t VALUES (1)", "SELECT 1) DROP TABLE kept.t --",
        "FROM kept.t INSERT INTO kept.t SELECT a",
    ):
        (found,) = engine.analyse([request(command, plan=plan)])
        assert found.condition == "PARSE_SYNTAX_ERROR"
    assert spark.table("kept.t").count() == 0
    spark.sql("DROP SCHEMA kept CASCADE")


def test_the_missing_name_is_found_in_the_text_as_written(engine):
    """Whatever clause it is in, and whatever of the text stand-ins took the place of."""
    gone = {**PARENTS, ItemName("shop", "gone"): None, ItemName("shop", "lost"): None}
    found = engine.analyse([replace(request(sql), parents=gone) for sql in MISSING])
    places = {
        sql: None if each.place is None else sql[slice(*each.place)]
        for sql, each in zip(MISSING, found, strict=True)
    }
    assert places == MISSING
    named = {sql: each.missing for sql, each in zip(MISSING, found, strict=True)}
    assert named == {
        **MISSING, "SELECT a FROM gone": "shop.gone", "SELECT lost(a) FROM t": "shop.lost"
    }
    assert not [each.reason for each in found if "catalog_migrate" in each.reason]


def test_a_function_is_analysed_by_its_body(engine):
    """Arguments are outer references of queries in it, and columns come before them."""
    arguments = [Argument("x", "INT"), Argument("a", "STRING")]
    expected = {
        ("(SELECT max(b) FROM t WHERE t.a = x)", True): " STRING",
        ("v.x + 1", True): " INT",
        ("(SELECT max(a) FROM t)", True): " INT",
        ("f(x)", True): " INT",
        ("nope", True): "UNRESOLVED_COLUMN.WITH_SUGGESTION nope",
        ("SELECT t.a, v.a AS text FROM t WHERE t.a = v.x", False): "a INT NOT NULL, text STRING",
        ("SELECT * FROM u", False): "a INT, d DATE",
    }
    found = engine.analyse([
        request(sql, arguments=arguments, scalar=scalar) for sql, scalar in expected
    ])
    assert dict(zip(expected, map(columns, found), strict=True)) == expected
    without = engine.analyse([request("(SELECT max(d) FROM u)", scalar=True)])
    assert [columns(each) for each in without] == [" DATE"]
    assert [each.place for each in found if each.place] == [(0, 4)]


def test_what_calls_a_function_that_does_not_bind_has_its_fault(engine):
    """As Spark has it when the caller is read."""
    broken = replace(TWICE, body="x + (SELECT nope FROM shop.t)")
    asked = [replace(request("SELECT f(a) FROM t"), functions=[broken]), request("SELECT 1 AS a")]
    found = engine.analyse(asked)
    assert found[0].condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert found[0].reason.startswith("it calls shop.f, which does not bind: [UNRESOLVED_COLUMN")
    assert "catalog_migrate" not in found[0].reason
    assert columns(found[1]) == "a INT NOT NULL"


def test_a_plan_has_every_column_and_the_real_names(engine, spark):
    """It names what is read as Spark's own plans do; relations of the same columns are told apart.

    The session's settings are as before.
    """
    wide = tuple(Column(f"c{number}", "INT") for number in range(40))
    parents = {T: wide, U: wide}
    sql = "SELECT t.c0, u.c1 FROM shop.t JOIN shop.u ON t.c39 = u.c39"
    asked = QueryRequest(ItemName("theirs", "v"), sql, parents, plan=True)
    before = spark.conf.get("spark.sql.debug.maxToStringFields")
    (found,) = engine.analyse([asked])
    lines = [line.strip(" :+-") for line in found.plan.splitlines()]
    assert [line for line in lines if line.startswith("SubqueryAlias")] == [
        "SubqueryAlias t", "SubqueryAlias spark_catalog.shop.t",
        "SubqueryAlias u", "SubqueryAlias spark_catalog.shop.u",
    ]
    assert "catalog_migrate" not in found.plan
    assert "more fields" not in found.plan
    assert "c38#" in found.plan
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == before
    spark.conf.set("spark.sql.debug.maxToStringFields", "7")
    engine.analyse([asked])
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == "7"
    spark.conf.unset("spark.sql.debug.maxToStringFields")
