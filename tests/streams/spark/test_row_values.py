"""Values of rows are in no message of a failure, and in no line of stderr, unless asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.engine_failures import mute
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.objects import Column
from catalog_migrate.streams.catalog.failures import of_query
from catalog_migrate.streams.spark.running import explain, python_causes

pytestmark = [pytest.mark.spark, pytest.mark.services]

MARKER = "Marker-4711"
PAIR = (Column("id", "BIGINT"), Column("v", "STRING"))
Sql = Callable[..., list[tuple[Any, ...]]]

STATEMENTS = {
    "cast": f"SELECT CAST(v AS BIGINT) FROM VALUES ('{MARKER}') AS t(v)",
    "cast in lines": f"SELECT CAST(v AS INT) FROM VALUES ('{MARKER}\nand {MARKER}') AS t(v)",
    "timestamp": f"SELECT to_timestamp(v) FROM VALUES ('{MARKER}') AS t(v)",
    "pattern": f"SELECT to_date(v, 'yyyy-MM-dd') FROM VALUES ('{MARKER}') AS t(v)",
    "number": "SELECT CAST(v AS DECIMAL(5, 2)) FROM VALUES (CAST(4711471147 AS BIGINT)) AS t(v)",
    "overflow": "SELECT CAST(v AS INT) FROM VALUES (CAST(4711471147 AS BIGINT)) AS t(v)",
    "json": f"SELECT from_json(v, 'a INT', map('mode', 'FAILFAST')) FROM VALUES ('{MARKER}')"
            " AS t(v)",
    "key": f"SELECT map(v, 1, v, 2) FROM VALUES ('{MARKER}') AS t(v)",
    "array": "SELECT array(1)[CAST(v AS INT)] FROM VALUES (47114711) AS t(v)",
    "boolean": f"SELECT CAST(v AS BOOLEAN) FROM VALUES ('{MARKER}') AS t(v)",
    "variant": f"SELECT parse_json(v) FROM VALUES ('{MARKER}') AS t(v)",
    "binary": f"SELECT to_binary(v, 'hex') FROM VALUES ('{MARKER}') AS t(v)",
}
"""Each reads a row and fails of its value."""


def quoted(text: str) -> bool:
    """Whether a text has the value in it, or a part of it."""
    return "4711" in text


def told(work: Callable[[], object], *, show_values: bool) -> str:
    """What a failure comes to, with all of its causes."""
    with pytest.raises(Exception) as caught, mute():
        work()
    found = explain(list(python_causes(caught.value, show_values)), Redactor([]))
    failure = of_query(found, "source", "s")
    return f"{failure}"


@pytest.fixture
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing of a value comes to stdout or stderr."""
    yield
    out, err = capfd.readouterr()
    assert not quoted(out)
    assert not quoted(err)


@pytest.mark.parametrize("kind", [
    kind if kind in ("cast", "overflow", "json") else pytest.param(kind, marks=pytest.mark.soak)
    for kind in STATEMENTS
])
def test_what_spark_says_of_a_value(workshop: Any, silent: None, kind: str) -> None:
    """The error class and the types stay, the value goes."""
    frame = workshop.queries._spark.sql(STATEMENTS[kind])
    hidden = told(frame.collect, show_values=False)
    assert not quoted(hidden), hidden
    if kind in ("cast", "boolean", "overflow"):
        assert "BIGINT" in hidden or "BOOLEAN" in hidden
    assert "code='" in hidden
    # what Jackson quotes is cut off before it
    assert quoted(told(frame.collect, show_values=True)) is (kind != "json")


@pytest.mark.soak
def test_what_python_says_of_a_value(workshop: Any, silent: None) -> None:
    """Of a function that runs in a process of Python, and of what PyArrow says."""
    from pyspark.sql.functions import udf

    spark = workshop.queries._spark

    @udf("int")
    def fails(value: str) -> int:
        raise ValueError(f"no {value}")

    rows = spark.sql(f"SELECT * FROM VALUES ('{MARKER}') AS t(v)")
    for work in (
        lambda: rows.select(fails("v")).collect(),
        lambda: rows.mapInArrow(lambda batches: ([b.cast("x")] for b in batches), "v int").count(),
        lambda: int(MARKER),
        lambda: json.loads(MARKER),
        lambda: {}[MARKER],
    ):
        assert not quoted(told(work, show_values=False))


def test_what_delta_says_of_a_row(workshop: Any, silent: None) -> None:
    """A CHECK and a length that a row does not keep are named, the row is not shown."""
    spark = workshop.queries._spark
    shard = workshop.shard("strict", (Column("id", "BIGINT"), Column("v", "VARCHAR(3)")))
    spark.sql(f"ALTER TABLE delta.`{shard}` ADD CONSTRAINT positive CHECK (id > 0)")
    check = told(
        lambda: spark.sql(f"INSERT INTO delta.`{shard}` VALUES (-47114711, 'x')"),
        show_values=False,
    )
    assert not quoted(check), check
    assert "positive" in check
    length = told(
        lambda: spark.sql(f"INSERT INTO delta.`{shard}` VALUES (1, '{MARKER}')"),
        show_values=False,
    )
    assert not quoted(length), length


POSTGRES = {
    "type": "CREATE TABLE t (id bigint, v int)",
    "length": "CREATE TABLE t (id bigint, v varchar(3))",
    "unique": f"CREATE TABLE t (id bigint, v text UNIQUE); INSERT INTO t VALUES (0, '{MARKER}')",
    "check": "CREATE TABLE t (id bigint, v text CHECK (length(v) < 3))",
    "trigger": "CREATE TABLE t (id bigint, v text);"
    "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'not %', NEW.v; END $$;"
    "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()",
    "foreign key": "CREATE TABLE o (v text PRIMARY KEY);"
    "CREATE TABLE t (id bigint, v text REFERENCES o)",
}
"""Tables that do not take a row."""


@pytest.mark.parametrize("kind", [
    kind if kind == "type" else pytest.param(kind, marks=pytest.mark.soak) for kind in POSTGRES
])
def test_a_sink_whose_table_refuses_a_row(
    workshop: Any, database: dict[str, Any], sql: Sql, silent: None, kind: str
) -> None:
    """PostgreSQL's own text is kept as far as it quotes nothing; place and SQLSTATE are."""
    for statement in POSTGRES[kind].split(";C"):
        sql(statement if statement.startswith("C") else f"C{statement}")
    shard = workshop.shard("pair", PAIR)
    workshop.insert(shard, f"(1, '{MARKER}')")
    spec = workshop.sink("POSTGRES", database, (shard, PAIR), {"TABLE": "t"})
    found = workshop.await_failure(workshop.start(spec))
    failure = of_query(found, "sink", "k")
    assert not quoted(str(failure)), failure
    assert not failure.passing
    if kind == "type":
        assert failure.place == {"table": "t", "column": "v"}
        assert "invalid text representation (22P02)" in failure.message
    if kind == "unique":
        assert "t_v_key" in failure.message


@pytest.mark.parametrize("written", ["csv", pytest.param("json", marks=pytest.mark.soak)])
def test_a_file_that_does_not_fit(
    workshop: Any, tmp_path: Path, silent: None, written: str
) -> None:
    """Spark quotes the record; the failure does not."""
    landing = tmp_path / "landing"
    landing.mkdir()
    text = MARKER if written == "csv" else json.dumps({"n": MARKER})
    (landing / f"one.{written}").write_text(f"{text}\n")
    spec = workshop.source(
        "FILES", {"PATH": str(landing), "FORMAT": written}, "n BIGINT", {}
    )
    found = workshop.await_failure(workshop.start(spec))
    assert not quoted(str(of_query(found, "source", "s")))


def test_a_refused_start(workshop: Any, silent: None) -> None:
    """What is refused before a query runs goes the same way; values are there when asked for."""
    spark = workshop.queries._spark
    from catalog_migrate.streams.spark.engine import _scrubbing

    spec = workshop.source("FILES", {"PATH": "/tmp", "FORMAT": "json"}, "n BIGINT", {})
    with pytest.raises(EngineFailure) as caught, _scrubbing(spec, show_values=False):
        spark.sql(STATEMENTS["cast"]).collect()
    assert not quoted(str(caught.value))
    assert "CAST_INVALID_INPUT" in str(caught.value)
    with pytest.raises(EngineFailure) as caught, _scrubbing(spec, show_values=True):
        spark.sql(STATEMENTS["cast"]).collect()
    assert quoted(str(caught.value))
