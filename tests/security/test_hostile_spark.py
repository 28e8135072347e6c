"""Hostile columns, comments and properties on real Spark, through an upgrade with a copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.hook import bootstrap
from catalog_migrate.model.names import quote_sql
from catalog_migrate.release.loader import load_texts
from catalog_migrate.sql.tokens import string_literal

pytestmark = pytest.mark.spark

NAMES = (
    "a`b", "o'quote", 'dq"x', "back\\slash", "..", "../x", "-rf", "--x", "/*", "%s",
    "select", "\u0430dmin", "admin", "日本", "🙂", "x" * 255, "`) AS SELECT 1 --",
    "${env:HOME}", "${spark.sql.warehouse.dir}",
)


def test_an_upgrade_with_hostile_names(spark: Any, tmp_path: Path, schema_name: str) -> None:
    """Columns, comments and properties are in Spark as the release says; rows survive the copy."""
    s = schema_name

    def release(number: str, kind: str) -> Any:
        columns = ", ".join(
            f"{quote_sql(name)} {kind} COMMENT {string_literal(name)}" for name in NAMES
        )
        listed = ", ".join(map(quote_sql, NAMES))
        typed = ", ".join(f"{quote_sql(name)} {kind}" for name in NAMES)
        every = "".join(NAMES)
        sql = (
            f"CREATE TABLE {s}.t ({columns}) COMMENT {string_literal(every)};"
            f"CREATE VIEW {s}.v ({typed}) COMMENT {string_literal(every)}"
            f" AS SELECT {listed} FROM {s}.t;"
            f"CREATE VIEW {s}.w (home STRING) AS SELECT {s}.home('${{env:HOME}}') AS home;"
            f"CREATE FUNCTION {s}.home (x STRING) RETURNS STRING"
            " RETURN concat(x, ' is not ', '${env:HOME}');"
        )
        return load_texts([("r.sql", sql)], name=number)

    schemas = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    start = {"catalog": tmp_path / "catalog", "warehouse": tmp_path / "rows"}
    bootstrap(spark, release=release("1", "INT"), **start)
    numbers = ", ".join(str(number) for number in range(len(NAMES)))
    spark.sql(f"INSERT INTO {s}.t VALUES ({numbers})")
    report = bootstrap(spark, release=release("2", "BIGINT"), **start)
    assert (report.outcome, report.rows_copied) == ("migrated", 1)
    for name in ("t", "v"):
        frame = spark.table(f"{s}.{name}")
        assert frame.columns == list(NAMES)
        assert [tuple(row) for row in frame.collect()] == [tuple(range(len(NAMES)))]
    fields = spark.table(f"{s}.t").schema.fields
    assert [field.metadata["comment"] for field in fields] == list(NAMES)
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {s}.v").collect()}
    assert told["Comment"] == "".join(NAMES)
    tables = spark.sql(f"SHOW TABLES IN {s}").collect()
    assert {row["tableName"] for row in tables if not row["isTemporary"]} == {"t", "v", "w"}
    # a variable is put in nowhere, although this session puts them in for others
    assert spark.conf.get("spark.sql.variable.substitute") == "true"
    assert spark.sql("SELECT '${env:HOME}'").first()[0] == os.environ["HOME"]
    (row,) = spark.table(f"{s}.w").collect()
    assert row[0] == " is not ".join(2 * ["${env" + ":HOME}"])
    after = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    assert after - schemas <= {s, "catalog_migrate"}
