"""Which texts are statements of this language, and which are Spark's."""

from __future__ import annotations

import pytest

from catalog_migrate.sql.parser import is_ours


@pytest.mark.parametrize(
    "text",
    [
        "alter connection c set (a = 1)",
        "/* a /* b */ */ -- c\n ; Create\n\tSource s",
        "EXPLAIN DROP SINK k",
        "SHOW OPERATIONS;",
        "SHOW SOURCE s LOG",
        "EXPLAIN SHOW SINK k LOG",
        "SHOW CREATE CLUSTER main",
        "COMMENT ON SECRET s IS NULL",
        "PAUSE", "RESUME x", "VALIDATE CONNECTION",
        "CREATE OR REPLACE SOURCE s",
    ],
)
def test_ours(text: str) -> None:
    """The first words decide, behind comments and blanks and in any case."""
    assert is_ours(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "-- nothing", "/* open", "SELECT 1", "WITH source AS (SELECT 1) SELECT * FROM source",
        "SHOW TABLES", "SHOW COLUMNS IN t", "SHOW FUNCTIONS", "SHOW CREATE TABLE t", "SHOW SCHEMAS",
        "CREATE TABLE t (a INT)", "CREATE SCHEMA s", "CREATE OR REPLACE VIEW v AS SELECT 1",
        "DROP FUNCTION f", "ALTER TABLE source ADD COLUMN a INT", "COMMENT ON TABLE t IS 'x'",
        "EXPLAIN SELECT 1", "EXPLAIN EXTENDED SELECT 1", "EXPLAIN", "RESET", "'CREATE SOURCE s'",
        "`CREATE` SOURCE", "SET x = 1", "CREATE TEMPORARY VIEW v AS SELECT 1",
    ],
)
def test_not_ours(text: str) -> None:
    """Everything that Spark has a statement for goes to Spark."""
    assert not is_ours(text)


@pytest.mark.parametrize(
    "text", ["ALTER CONECTION c", "CREATE SOURCES s", "SHOW CONNECTION", "DROP CLUSTR x"]
)
def test_misspelt_objects_are_ours(text: str) -> None:
    """A slip in the object's word gets the error of this language, which names the word."""
    assert is_ours(text)


@pytest.mark.parametrize("text", ["ALTER", "CREATE", "SHOW", "SHOW CREATE", "COMMENT ON", "DROP ;"])
def test_texts_cut_off_before_the_object_are_ours(text: str) -> None:
    """What breaks off before its object gets the error of this language."""
    assert is_ours(text)
