"""Another text for a user's view or function, on a session that has other settings."""

from __future__ import annotations

import json

import pytest

from catalog_migrate.engine.spark.engine import SparkEngine


@pytest.mark.spark
def test_all_but_the_text_stays(spark, schema_name):
    """Comment, properties, mode, the schema of bare names, settings, arguments and results stay,
    and nothing of this session changes or gets in."""
    engine, s = SparkEngine(spark), schema_name
    spark.sql(f"CREATE SCHEMA {s}")
    spark.sql(f"CREATE VIEW {s}.base AS SELECT CAST(1 AS INT) AS id, 'x' AS note")
    before = spark.catalog.currentDatabase()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    spark.sql(f"USE {s}")
    try:
        spark.sql(
            "CREATE VIEW v COMMENT 'about' TBLPROPERTIES ('x' = 'y') WITH SCHEMA TYPE EVOLUTION"
            r" AS SELECT id, split(note, '\d') AS parts FROM base"
        )
        spark.sql(
            "CREATE FUNCTION f(x INT COMMENT 'an x', y STRING DEFAULT 'a') RETURNS TABLE (a INT"
            f" COMMENT 'an a', b STRING) COMMENT 'rows' RETURN SELECT id, y FROM {s}.base"
            " WHERE id > x"
        )
        spark.sql("CREATE FUNCTION g() RETURNS INT COMMENT 'it is' RETURN 1")
    finally:
        spark.sql(f"USE {before}")
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    spark.sql("CREATE TEMPORARY VIEW base AS SELECT 2 AS other")

    def describe(name):
        told = spark.sql(f"DESCRIBE TABLE EXTENDED {s}.{name} AS JSON").collect()[0][0]
        return json.loads(told)

    def tell(name):
        told = spark.sql(f"DESCRIBE FUNCTION EXTENDED {s}.{name}").collect()
        return [row[0] for row in told if not row[0].startswith(("Body", "Create Time", "Usage"))]

    assert spark.sql(f"SELECT {s}.g() AS n").first().n == 1  # the session knows its body now
    held = describe("v"), tell("f"), tell("g")
    found = {each.name.name: each for each in engine.user_definitions(s)}
    texts = {
        "v": r"SELECT id, split(note, '\w') AS parts FROM base",
        "f": f"SELECT id + 1, y FROM {s}.base", "g": "2",
    }
    try:
        for name, text in texts.items():
            engine.replace_text(found[name], text)
        assert spark.catalog.currentDatabase() == before
        assert spark.conf.get("spark.sql.parser.escapedStringLiterals") == "false"
    finally:
        spark.catalog.dropTempView("base")

    now = {each.name.name: each.sql for each in engine.user_definitions(s)}
    assert {name: now[name] for name in texts} == texts
    changed = describe("v")
    for key in ("view_text", "view_original_text"):
        assert changed.pop(key) == texts["v"]
        held[0].pop(key)
    assert changed == held[0]
    assert (tell("f"), tell("g")) == held[1:]
    assert spark.sql(f"SELECT size(parts) AS n FROM {s}.v").first().n == 2
    assert [tuple(row) for row in spark.sql(f"SELECT * FROM {s}.f(0)").collect()] == [(2, "a")]
    assert spark.sql(f"SELECT {s}.g() AS n").first().n == 2
