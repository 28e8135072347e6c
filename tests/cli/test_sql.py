"""What the sql verb lets through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.api.registrations import collect, reading
from catalog_migrate.engine_failures import mute_query_errors
from catalog_migrate.errors import EngineFailure, UsageError


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1", " select a from s.t ; ", "(SELECT 1) UNION (SELECT 2)", "SHOW TABLES IN s",
        "DESCRIBE EXTENDED s.t", "EXPLAIN SELECT 1", "/* DROP */ SELECT 'DELETE; it'",
        "WITH x AS (SELECT insert FROM t) SELECT * FROM x", "VALUES (1)", "FROM t SELECT a",
    ],
)
def test_reading_statements_pass_as_they_are(statement: str) -> None:
    """Whatever only reads goes to Spark without its closing semicolon."""
    found = reading(statement)
    assert found in statement
    assert not found.endswith(";")


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DROP TABLE s.t", "DROP"), ("insert into s.t values (1)", "INSERT"),
        ("-- SELECT\nDELETE FROM s.t", "DELETE"), ("CREATE VIEW v AS SELECT 1", "CREATE"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT"),
        ("FROM t INSERT OVERWRITE u SELECT *", "INSERT"), ("SET a = 1", "SET"),
        ("BEGIN DROP TABLE t", "BEGIN"), ("`SELECT`", "`SELECT`"),
        ("SELECT 1; DROP TABLE t", "more than one"), ("", "no statement"),
        (" ; ", "no statement"), ("SELECT 'open", "cannot be read"),
    ],
)
def test_anything_else_is_refused(statement: str, word: str) -> None:
    """Writing, several statements, none, and text that is no SQL are usage errors."""
    with pytest.raises(UsageError) as caught:
        reading(statement)
    assert word in caught.value.message
    assert caught.value.exit_code == 64


def test_what_spark_refuses_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark's own copy of an error, with the stack of the JVM, is not printed beside ours."""
    pytest.importorskip("pyspark")
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    class Refusing:
        """A session whose parser refuses, as PySpark does: it logs the error and raises it."""

        def sql(self, statement: str) -> None:
            said = f"[UNRESOLVED_COLUMN] {statement}. SQLSTATE: 42703\n'Project ['nope]"
            PySparkLogger.getLogger("SQLQueryContextLogger").error("%s\n\tat org.apache", said)
            raise AnalysisException(said)

    mute_query_errors()
    with pytest.raises(EngineFailure) as refused:
        collect(Refusing(), "SELECT nope", 10)
    assert refused.value.message == "cannot run the statement: [UNRESOLVED_COLUMN] SELECT nope."
    assert refused.value.condition == "UNRESOLVED_COLUMN"
    assert "show NAME" in (refused.value.remedy or "")
    assert capfd.readouterr().err == ""


def test_how_long_spark_takes_to_start_is_said_first(tmp_path: Path) -> None:
    """The line stands before Java is looked for, and whatever comes of that."""
    (tmp_path / "catalog_migrate.toml").write_text('[catalog]\nuri = "c"\n')
    program = str(Path(sys.executable).with_name("catalog-migrate"))
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "none")}
    for line in (["init", "--empty"], ["sql", "-c", "SELECT 1"]):
        told = subprocess.run(
            [program, *line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
    first, failure, *_ = told.stderr.splitlines()
    assert first.endswith("starting Spark, 8 to 10 s")
    assert "JAVA_HOME" in failure
    assert told.returncode == 1
