"""Slips of those who write a release: one error each, at its place, with what to write."""

from __future__ import annotations

import pytest

from catalog_migrate.errors import InvalidRelease
from catalog_migrate.release.loader import load_texts
from catalog_migrate.sql.release_dialect import parse

SLIPS = [
    ("CREATE TABLE s.t (id INT a STRING)", 1, 26, "write , before a"),
    ("CREATE TABLE s.t (id INT NOT NULL a STRING)", 1, 35, "write , before a"),
    ("CREATE TABLE s.t (id INT)\nCREATE TABLE s.u (id INT)", 2, 1, "write ; behind"),
    ("CREATE TABLE s.t (id INTERGER)", 1, 19, "write INT"),
    ("CREATE TABLE s.t (id INT UNSIGNED)", 1, 19, "write BIGINT"),
    ("CREATE TABLE s.t (id BIGINT UNSIGNED)", 1, 19, "write DECIMAL(20,0)"),
    ("CREATE TABLE s.t (id SERIAL)", 1, 19, "write INT, and fill the column"),
    ("CREATE TABLE s.t (id INT) CLUSTERED BY (id)", 1, 27, "write CLUSTER BY"),
    ("CREATE TABLE s.t (id INT) CLUSTERED BY (id) INTO 4 BUCKETS", 1, 27, "write CLUSTER BY"),
    ("CREATE TABLE s.t (id INT) ENGINE=InnoDB", 1, 27, "leave it out"),
    ("CREATE TABLE IF NOT EXISTS s.t (id INT)", 1, 14, "leave it out"),
    ("CREATE OR REPLACE TABLE s.t (id INT)", 1, 8, "write CREATE"),
    ("CREATE TABLE s.t (id DATETIME)", 1, 19, "write TIMESTAMP"),
    ("CREATE TABLE s.t (id FLOAT8)", 1, 19, "write DOUBLE"),
    ("CREATE TABLE s.t (id VARCHAR2(5))", 1, 19, "write VARCHAR(n) or STRING"),
    ("CREATE TABLE s.t (id NUMBER(10))", 1, 19, "write DECIMAL(10,0)"),
    ("CREATE TABLE s.t (id NUMBER(10, 2))", 1, 19, "write DECIMAL(10,2)"),
    ("CREATE TABLE s.t (id TEXT)", 1, 19, "write STRING"),
    ("CREATE TABLE s.t (id INT, PRIMARY KEY (id))", 1, 27, "leave it out"),
    ("CREATE TABLE s.t (id INT, CONSTRAINT k PRIMARY KEY (id))", 1, 40, "leave it out"),
    ("CREATE TABLE s.t (id INT, FOREIGN KEY (id) REFERENCES s.u)", 1, 27, "leave it out"),
    ("CREATE TABLE s.t (id INT, UNIQUE (id))", 1, 27, "leave it out"),
    ("CREATE TABLE s.t (id INT PRIMARY KEY)", 1, 26, "leave it out"),
    ("CREATE TABLE s.t (id BIGINT GENERATED ALWAYS AS IDENTITY)", 1, 29, "leave it out"),
    ("CREATE TABLE s.t (id INT AUTO_INCREMENT)", 1, 26, "leave it out"),
    ("CREATE TABLE s.t (id INT) TBLPROPERTIES ('a' = 'b')", 1, 27, "write WITH (…)"),
    ("CREATE VIEW s.v (id INT) WITH SCHEMA EVOLUTION AS SELECT 1", 1, 26, "leave it out"),
    ('CREATE TABLE "s"."t" (id INT)', 1, 14, "backticks"),
    ("CREATE TABLE s.t ([id] INT)", 1, 19, "backticks"),
    ("CREATE TABLE s.my-table (id INT)", 1, 18, "write my_table"),
    ("CREATE TABLE s.t (my-id INT)", 1, 19, "write `my-id`"),
    ("CREATE TABLE s.t (id INT,)", 1, 26, "leave the , out"),
    ("CREATE TABLE s.t (, id INT)", 1, 19, "leave the , out"),
    ("CREATE TABLE s.t (id INT,, b INT)", 1, 26, "leave the , out"),
    ("CREATE VIEW s.v (id INT,) AS SELECT 1", 1, 25, "leave the , out"),
    ("CREATE FUNCTION s.f(x INT,) RETURN x", 1, 27, "leave the , out"),
    ("CREATE FUNCTION s.f(, x INT) RETURN x", 1, 21, "leave the , out"),
    ("CREATE TABLE s.t (id INT NOT NUL)", 1, 26, "write NOT NULL"),
    ("CREATE TABLE s.t (id INT COMMENT 'c' NOT NULLL, b INT)", 1, 38, "write NOT NULL"),
    ("CREATE TABLE s.t (id INT NOTNULL)", 1, 26, "write NOT NULL"),
    ("CREATE VIEW s.v (id INT NOTNULL) AS SELECT 1", 1, 25, "write NOT NULL"),
    ("CREATE FUNCTION s.f() RETURNS TABLE RETURN SELECT 1", 1, 31, "RETURNS TABLE (name TYPE"),
    ("CREATE FUNCTION s.f() RETURNS TABLE () RETURN SELECT 1", 1, 31, "RETURNS TABLE (name TYPE"),
    ("CREATE FUNCTION s.f(x INT) RETURNS INT AS x", 1, 44, "write RETURN and the body"),
    ("CREATE VIEW s.v (id INT) SELECT 1", 1, 26, "write AS SELECT"),
    ("CREATE VIEW s.v (id INT) TBLPROPERTIES ('a' = 'b') AS SELECT 1", 1, 26, "write WITH (…)"),
    ("CREATE VIEW s.v (id INT) WITH SCHEMA BINDING AS SELECT 1", 1, 26, "leave it out"),
    ("CREATE VIEW s.v (id INT) AS SELECT id, FROM s.other", 1, 38, "write it without the ,"),
    ("CREATE VIEW s.v (id INT) AS SELECT id,, id FROM s.other", 1, 38, "write it without the ,"),
    ("CREATE VIEW s.v (id INT) AS SELECT 1,", 1, 37, "write it without the ,"),
    ("CREATE TEMPORARY VIEW s.v AS SELECT 1", 1, 8, "leave it out"),
    ("CREATE GLOBAL TEMP VIEW s.v AS SELECT 1", 1, 8, "leave it out"),
    ("CREATE OR REPLACE VIEW s.v (id INT) AS SELECT 1", 1, 8, "write CREATE"),
    ("CREATE VIEW IF NOT EXISTS s.v (id INT) AS SELECT 1", 1, 13, "leave it out"),
    ("CREATE TABLE s.t (name STRING RENAME FROM nm)", 1, 31, "write RENAMED FROM"),
    ("CREATE TABLE s.t (a INT, name STRING DEFUALT 'x')", 1, 38, "write DEFAULT"),
    ("CREATE TABLE s.t (name STRING NOT NULL COMENT 'x')", 1, 40, "write COMMENT"),
    ("CREATE TABLE s.t (d DECIMAL(5,2) USNG CAST(d AS INT))", 1, 34, "write USING"),
    ("CREATE TABLE s.t (id INT comments STRING)", 1, 26, "write , before comments"),
    ("CREATE TABLE s.t (n STRING CHECK n <> '')", 1, 28, "write , CHECK (…)"),
    ("CREATE TABLE s.t (n STRING CHECK (n <> ''))", 1, 28, "write , CHECK (…)"),
    ("CREATE TABLE s.t (n STRING, CHECK n <> '')", 1, 29, "write CHECK (…)"),
    ("CREATE TABLE s.t (d DECIMAL(18;2))", 1, 32, "close it"),
    ("CREATE TABLE s.t (a INT[])", 1, 19, "write ARRAY<INT>"),
    ("CREATE TABLE s.t id INT", 1, 18, "write the columns in parentheses"),
    ("CREATE TABLE s.t (id INT) DROPPED legacy", 1, 35, "in parentheses: (…)"),
    ("CREATE TABLE s.t (id INT) PARTITIONED BY id", 1, 42, "in parentheses: (…)"),
    ("CREATE TABLE s.t (id INT) FILLED FROM SELECT 1", 1, 39, "a query in parentheses: (…)"),
    ("CREATE TABLE s.t (id \ufeffINT)", 1, 22, "leave it out"),
]


@pytest.mark.parametrize(("text", "line", "column", "remedy"), SLIPS)
def test_a_slip_is_one_error_with_what_to_write(
    text: str, line: int, column: int, remedy: str
) -> None:
    """The place is the slip's, nothing else is reported, and what follows is read."""
    with pytest.raises(InvalidRelease) as caught:
        load_texts([("r.sql", f"{text};\nCREATE TABLE s.other (id INTTT);")], name="r")
    first, *others = caught.value.problems
    assert (first.line, first.column) == (line, column)
    assert remedy in (first.remedy or "")
    assert [one.text for one in others] == ["INTTT"]


FUNCTIONS = [
    "CREATE FUNCTION s.f(x INT COMMENT 'c' DEFAULT 1) RETURNS INT RETURN x",
    "CREATE FUNCTION s.f(x INT) RETURN x + 1",
    "CREATE FUNCTION s.f(x INT) RETURNS INT LANGUAGE SQL DETERMINISTIC COMMENT 'c' RETURN x",
    "CREATE FUNCTION s.f(x INT) RETURNS INT NOT DETERMINISTIC CONTAINS SQL RETURN x",
    "CREATE FUNCTION s.f() LANGUAGE SQL RETURNS TABLE (a INT) READS SQL DATA RETURN SELECT 1",
    "CREATE FUNCTION s.f(x INT) RETURNS INT SQL SECURITY DEFINER RETURN x",
]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions_are_written_as_in_spark(text: str) -> None:
    """What Spark takes is read; what it finds out from the body is not kept."""
    parsed = parse(text)
    assert parsed.problems == ()
    assert parsed.statements[0].definition.body in ("x", "x + 1", "SELECT 1")
    assert len(load_texts([("r.sql", text)], name="r").objects) == 1


@pytest.mark.parametrize("words", ["LANGUAGE PYTHON", "SQL SECURITY INVOKER"])
def test_other_functions_are_refused_with_a_reason(words: str) -> None:
    """Functions in another language are no part of a release."""
    [problem] = parse(f"CREATE FUNCTION s.f(x INT) RETURNS INT {words} RETURN x").problems
    assert "write LANGUAGE SQL" in problem.remedy or "leave it out" in problem.remedy  # type: ignore[operator]


BROKEN = [
    "CREATE TABLE s.a (id INT UNIQUE);",
    "CREATE TABLE s.a (id INT);\nCREATE VIEW s.v (id INT) SELECT id FROM s.a;",
    "CREATE TABLE IF NOT EXISTS s.a (id INT);",
    "CREATE TYPE s.y AS;\nCREATE TABLE s.a (id s.y);",
    "CREATE FUNCTION s.f(x INT,) RETURNS INT RETURN x;\nCREATE TABLE s.a (id INT);",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_what_uses_a_statement_with_an_error_has_none(broken: str) -> None:
    """The object is declared as far as others are concerned: one problem, that of the slip."""
    users = """
        CREATE VIEW s.r (id INT) AS SELECT id FROM s.a JOIN s.v USING (id) WHERE s.f(id) > 0;
        CREATE TABLE s.t (id INT, y s.y);
    """
    rest = [
        "CREATE TABLE s.a (id INT);", "CREATE VIEW s.v (id INT) AS SELECT 1 AS id;",
        "CREATE TYPE s.y AS INT;", "CREATE FUNCTION s.f(x INT) RETURNS INT RETURN x;",
    ]
    declared = [one for one in rest if one.split()[2].split("(")[0] not in broken]
    with pytest.raises(InvalidRelease) as caught:
        load_texts([("a.sql", "\n".join([broken, *declared, users]))], name="1")
    assert [problem.code for problem in caught.value.problems] == ["CM0101"]
