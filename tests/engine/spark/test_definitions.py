"""Users' views and functions as a real Spark tells them, whatever is written in them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from catalog_migrate.engine.port import UserDefinition
from catalog_migrate.engine.spark.definitions import read_function, read_relations, read_view
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column

NAME = ItemName("team", "v")
ROW = (
    "Catalog: spark_catalog\nDatabase: team\nTable: v\nOwner: ann\nCreated By: Spark 4.2.0\n"
    "Type: VIEW\nView Text: select id\n\n from t\nView Original Text: select id\n\n from t\n"
    "View Schema Mode: TYPE EVOLUTION\nView Catalog and Namespace: spark_catalog.team\n"
    "View Query Output Columns: [`id`, `a, ``b`]\nTable Properties: [k=v]]\n"
    "Schema: root\n |-- a: long (nullable = false)\n"
    " |-- odd: name: struct (nullable = true)\n"
    " |    |-- b: array (nullable = true)\n"
    " |    |    |-- element: map (containsNull = true)\n"
    " |    |    |    |-- key: string\n"
    " |    |    |    |-- value: decimal(10,2) (valueContainsNull = true)\n"
    " |    |-- c d: integer (nullable = false)\n\n"
)


def test_a_row_of_a_listing_is_read_exactly():
    """Text, columns with nested types, the query's own names, mode and namespace."""
    nested = "STRUCT<b: ARRAY<MAP<STRING, DECIMAL(10,2)>>, `c d`: INT NOT NULL>"
    assert read_view(NAME, ROW, "spark_catalog") == UserDefinition(
        NAME, "view", "select id\n\n from t",
        (Column("a", "BIGINT", False), Column("odd: name", nested)), ("id", "a, `b"), "team",
        "TYPE EVOLUTION",
    )


@pytest.mark.parametrize(
    ("namespace", "read"),
    [
        ("spark_catalog.`odd.one`", "odd.one"), ("SPARK_CATALOG.s", "s"), ("other.team", ""),
        ("spark_catalog.a.b", ""),
    ],
)
def test_a_namespace_of_another_catalog_is_none(namespace, read):
    """Names of such a view are never the session catalog's."""
    row = ROW.replace("spark_catalog.team", namespace)
    assert read_view(NAME, row, "spark_catalog").namespace == read


def test_a_view_without_a_mode_binds_and_is_of_its_own_schema():
    """As Spark takes one from before there were modes, or Hive's."""
    lacking = ("View S", "View C", "View Q")
    row = "\n".join(line for line in ROW.split("\n") if not line.startswith(lacking))
    found = read_view(NAME, row, "spark_catalog")
    assert (found.schema_mode, found.namespace, found.outputs) == ("BINDING", "team", ())


@pytest.mark.parametrize(
    "row",
    [
        ROW.replace("Owner: ann", "Comment: x\nView Text: forged"),
        ROW.replace("select id\n", "select 'x\nSchema: root\n'\n"),
        ROW.replace("select id\n", "select 'x\nView Original Text: y'\n"),
        ROW.replace("Owner: ann", "Comment: x\nView Schema Mode: BINDING"),
        ROW.replace("`id`, ", ""),
        ROW.replace("-- a:", "-- a\\nb:"),
        ROW.replace("[`id`, `a, ``b`]", "[`id`, `a"),
    ],
)
def test_a_row_with_a_label_too_many_is_not_guessed_at(row):
    """A text, comment or name that looks like a label has the view described by itself."""
    assert read_view(NAME, row, "spark_catalog") is None


def test_a_function_is_read_from_its_description():
    """Arguments and columns with odd names, defaults and comments; a body of several lines."""
    lines = [
        "Function:      spark_catalog.team.tab",
        "Type:          TABLE",
        "Input:         x         INT                                 ",
        "               odd `n, m STRUCT<a: INT, `b c`: ARRAY<STRING>> 'it's, 'q'",
        "               d         DECIMAL(10,2)                        DEFAULT 1.5 'z'",
        "Returns:       a BIGINT",
        "               b STRING 'q\nBody: 1'",
        "Comment:       hey\nBody: 1",
        "Deterministic: true",
        "Configs:       spark.sql.ansi.enabled=true",
        "               spark.sql.session.timeZone=UTC",
        "Body:          select id\n\nBody: as a",
    ]
    assert read_function(ItemName("team", "tab"), lines, "spark_catalog") == UserDefinition(
        ItemName("team", "tab"), "function", "select id\n\nBody: as a",
        (Column("a", "BIGINT"), Column("b", "STRING", comment="q\nBody: 1")), namespace="team",
        arguments=(
            Argument("x", "INT"),
            Argument("odd `n, m", "STRUCT<a: INT, `b c`: ARRAY<STRING>>", comment="it's, 'q"),
            Argument("d", "DECIMAL(10,2)", "1.5", "z"),
        ),
    )


def test_a_function_of_a_class_is_no_sql_function():
    """It has no text that reads anything."""
    lines = ["Function: spark_catalog.team.pi", "Class: org.example.Pi", "Usage: N/A."]
    assert read_function(ItemName("team", "pi"), lines, "spark_catalog") is None


def test_a_function_is_read_as_it_is_stored_before_4_2():
    """Spark 4.0 and 4.1 describe it by the JSON that they keep, with the namespace of then."""
    stored = {
        "sqlFunction.inputParam": (
            "x INT COMMENT 'c', `odd, name` STRUCT<a: INT, `default`: MAP<STRING, INT>> COMMENT"
            " 'it\\'s, 1', y DECIMAL(10,2) DEFAULT least(1, 2) COMMENT 'z', w STRING DEFAULT 'a, b'"
        ),
        "sqlFunction.returnType": "a BIGINT,b STRING COMMENT 'z'", "sqlFunction.query": "SELECT 1",
        "sqlFunction.isTableFunc": "true", "catalogAndNamespace.part.0": "spark_catalog",
        "catalogAndNamespace.part.1": "default",
    }
    name = ItemName("team", "tab")

    def read(**more):
        lines = [
            "Function: spark_catalog.team.tab", "Class: sqlFunction.",
            f"Usage: {json.dumps({**stored, **more})}", "Extended Usage:\n    N/A.\n",
        ]
        return read_function(name, lines, "spark_catalog")

    assert read() == UserDefinition(
        name, "function", "SELECT 1",
        (Column("a", "BIGINT"), Column("b", "STRING", comment="z")), namespace="default",
        arguments=(
            Argument("x", "INT", comment="c"),
            Argument("odd, name", "STRUCT<a: INT, default: MAP<STRING, INT>>", comment="it's, 1"),
            Argument("y", "DECIMAL(10,2)", "least(1, 2)", "z"),
            Argument("w", "STRING", "'a, b'"),
        ),
    )
    scalar = {"sqlFunction.isTableFunc": "false", "sqlFunction.returnType": "INT"}
    assert read(**scalar, **{"sqlFunction.expression": "x"}).columns == (Column("", "INT"),)
    assert read(**{"catalogAndNamespace.part.0": "other"}).namespace == ""
    assert read(**{"sqlFunction.inputParam": ""}).arguments == ()


def test_relations_of_a_plan_are_those_of_the_catalog():
    """Tables and views in the analysed plan, not what another catalog has or the optimiser says."""
    plan = (
        "== Parsed Logical Plan ==\nSubqueryAlias spark_catalog.no.no\n"
        "== Analyzed Logical Plan ==\nid: bigint\nProject [id#1L]\n"
        "+- SubqueryAlias spark_catalog.team.v\n   +- View (`spark_catalog`.`team`.`v`, [id#1L])\n"
        "      +- SubqueryAlias spark_catalog.shop.t\n"
        "         +- Relation spark_catalog.shop.t[id#1L] parquet\n         :- SubqueryAlias o\n"
        "         :- SubqueryAlias other.shop.t\n"
        "== Optimized Logical Plan ==\nSubqueryAlias spark_catalog.no.no\n"
    )
    assert read_relations(plan, "spark_catalog") == {ItemName("team", "v"), ItemName("shop", "t")}


# -- on Spark ----------------------------------------------------------------------------------

COLUMNS = """
  *, CAST(NULL AS STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<x: DECIMAL(10, 2), `odd: name`: STRING>>>)
  AS s, map('a', array(1)) AS m, INTERVAL '1' DAY AS d, make_interval(1) AS i, parse_json('1') AS p,
  timestamp_ntz'2020-01-01' AS z, 1 AS `a, b`, NULL AS n, CAST(1 AS TINYINT) AS y,
  CAST('x' AS VARCHAR(7)) AS w, current_date() AS t
"""


@pytest.mark.spark
def test_what_users_made_is_read_as_spark_has_it(spark, schema_name, warehouse):
    """A schema of views and functions of every kind, through one listing of the engine.

    Types are those of ``spark.table``; texts with labels in them, names in double quotes, strings
    by other rules, another current schema and another mode come out as they were written.
    """
    engine = SparkEngine(spark)
    s = schema_name
    spark.sql(f"CREATE SCHEMA {s}")
    spark.sql(
        f"CREATE TABLE {s}.t (id BIGINT NOT NULL, v VARCHAR(10), c CHAR(3)) USING delta"
        f" LOCATION '{warehouse}/{s}_t'"
    )
    label = "View Original Text: x\nSchema: root\n |-- z: long (nullable = true)"
    odd = {
        "plain": f"SELECT id, v FROM {s}.t -- end",
        "types": f"SELECT {COLUMNS.strip()} FROM {s}.t",
        "labels": f"SELECT '\n{label}\n' AS `q` FROM {s}.t",
        "lines": f"SELECT id AS `a\nb` FROM\n\n{s}.t",
    }
    for name, text in odd.items():
        spark.sql(f"CREATE VIEW {s}.{name} AS {text}")
    spark.sql(
        f"CREATE VIEW {s}.named (a COMMENT 'x') COMMENT 'hello\nView Text: forged' WITH SCHEMA"
        f" BINDING AS SELECT id FROM {s}.t"
    )
    spark.sql(f"CREATE VIEW {s}.evolving WITH SCHEMA EVOLUTION AS SELECT * FROM {s}.t")
    before = spark.catalog.currentDatabase()
    spark.sql(f"USE {s}")
    spark.sql(f"CREATE VIEW {s}.bare AS SELECT id FROM t")
    spark.sql(f"USE {before}")
    texts = {
        "spark.sql.ansi.doubleQuotedIdentifiers": (
            "double", f'SELECT "id" FROM "{s}"."t"'
        ),
        "spark.sql.parser.escapedStringLiterals": (
            "raw", f"SELECT split(v, '[\\]') AS a FROM {s}.t WHERE v = '\\d'"
        ),
    }
    for setting, (name, text) in texts.items():
        spark.conf.set(setting, "true")
        try:
            spark.sql(f"CREATE VIEW {s}.{name} AS {text}")
        finally:
            spark.conf.unset(setting)
    odd |= dict(texts.values())
    spark.sql(
        f"CREATE FUNCTION {s}.plus(x INT COMMENT 'c', y INT DEFAULT 3) RETURNS INT COMMENT"
        " 'hey\nBody: 1' RETURN x + y"
    )
    spark.sql(
        f"CREATE FUNCTION {s}.rows_of(`odd name` DECIMAL(10, 2)) RETURNS TABLE (a BIGINT, b STRING"
        f" COMMENT 'z') RETURN SELECT id, v\n FROM {s}.t WHERE id > `odd name`"
    )
    spark.sql(f"CREATE FUNCTION {s}.text() RETURNS STRING RETURN 'Body: x\nBody:          y'")
    spark.sql(f"CREATE FUNCTION {s}.pi AS 'org.apache.hadoop.hive.ql.udf.UDFPI'")
    marks = "TBLPROPERTIES ('catalog_migrate.id' = 's1')"
    spark.sql(f"CREATE VIEW {s}.of_a_release {marks} AS SELECT 1")

    found = {each.name.name: each for each in engine.user_definitions(s)}
    assert {name for name, each in found.items() if each.unread} == set()
    assert sorted(found) == sorted([*odd, "named", "evolving", "bare", "plus", "rows_of", "text"])
    for name, text in odd.items():
        assert found[name].sql == text.removesuffix(" -- end"), name
    for name in (*odd, "named", "evolving", "bare"):
        stored = [
            (field.name, field.nullable) for field in spark.table(f"{s}.{name}").schema.fields
        ]
        assert [(c.name, c.nullable) for c in found[name].columns] == stored, name
    assert [column.type for column in found["types"].columns] == [
        "BIGINT", "STRING", "STRING",
        "STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<x: DECIMAL(10,2), `odd: name`: STRING>>>",
        "MAP<STRING, ARRAY<INT>>", "INTERVAL DAY", "INTERVAL", "VARIANT", "TIMESTAMP_NTZ", "INT",
        "VOID", "TINYINT", "STRING", "DATE",
    ]
    assert found["lines"].outputs == ("a\nb",)
    assert (found["named"].outputs, found["named"].columns) == (
        ("id",), (Column("a", "BIGINT", False),)
    )
    assert [found[name].schema_mode for name in ("plain", "named", "evolving")] == [
        "COMPENSATION", "BINDING", "EVOLUTION",
    ]
    assert (found["bare"].namespace, found["plain"].namespace) == (s, before)
    assert replace(found["plus"], namespace=s) == UserDefinition(
        ItemName(s, "plus"), "function", "x + y", (Column("", "INT"),), namespace=s,
        arguments=(Argument("x", "INT", comment="c"), Argument("y", "INT", "3")),
    )
    rows_of = found["rows_of"]
    assert rows_of.columns == (Column("a", "BIGINT"), Column("b", "STRING", comment="z"))
    assert rows_of.arguments == (Argument("odd name", "DECIMAL(10,2)"),)
    assert rows_of.sql == f"SELECT id, v\n FROM {s}.t WHERE id > `odd name`"
    assert found["text"].sql == "'Body: x\nBody:          y'"

    table = ItemName(s, "t")
    # before 4.2 a function of rows could not be called by its schema and name
    of_rows = ("rows_of",) if spark.version >= "4.2" else ()
    for name in ("double", "raw", "bare", *of_rows):
        assert engine.relations_read(found[name]) == [table], name
    assert engine.relations_read(found["plus"]) == []
    spark.sql(f"CREATE VIEW {s}.above AS SELECT * FROM {s}.double")
    (above,) = (each for each in engine.user_definitions(s) if each.name.name == "above")
    assert engine.relations_read(above) == [ItemName(s, "double"), table]
    # what is below goes: the plan still says what was there, unless it is the relation itself
    spark.sql(f"DROP VIEW {s}.double")
    with pytest.raises(EngineFailure) as refused:
        engine.relations_read(above)
    assert refused.value.condition == "TABLE_OR_VIEW_NOT_FOUND"
