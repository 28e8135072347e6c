"""What Spark refuses is refused by bind, and what bind lets pass takes a row: on real Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import DeltaTable, Schema

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import (
    BindRequest,
    ExpressionRequest,
    FunctionRequest,
    FunctionSpec,
    ViewSpec,
)
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", "INT"), Column("a", "STRING"), Column("st", "STRUCT<x: INT>"),
    Column("arr", "ARRAY<INT>"), Column("d", "DATE"),
)
ROW = "VALUES (5, 'x', named_struct('x', 1), array(1), DATE'2020-01-01')"
T = ItemName("q", "t")

TAKEN = [
    "id > 0", "st.x > 0", "exists(arr, x -> x > 0)", "a LIKE 'x%' OR id IS NULL", "true",
    "d <= current_date()", "id BETWEEN 1 AND 9 -- nine",
]
"""CHECKs that a row of ours meets."""
REFUSED = {
    "nope > 0": "UNRESOLVED_COLUMN",
    "id": "it gives INT, and a CHECK is BOOLEAN",
    "a": "it gives STRING, and a CHECK is BOOLEAN",
    "NULL": "it gives VOID, and a CHECK is BOOLEAN",
    "t.id > 0": "UNRESOLVED_COLUMN",
    "(SELECT 1) > 0": "it must have no subquery",
    "id IN (SELECT 1)": "it must have no subquery",
    "sum(id) > 0": "it must have no aggregate",
    "row_number() OVER (ORDER BY id) > 0": "it must have no aggregate",
    "rand() > 0": "it must be deterministic",
    "nosuch(id) > 0": "UNRESOLVED_ROUTINE",
    "q.f(id) > 0": "it calls q.f, which is not built in",
    "current_user() = a": "it calls current_user",
    "_metadata.file_path = ''": "UNRESOLVED_COLUMN",
}
OTHERS = [
    ("default", "'1'", "INT", None), ("default", "current_timestamp()", "TIMESTAMP", None),
    ("default", "'abc'", "INT", "CAST_INVALID_INPUT"), ("default", "300", "TINYINT", "OVERFLOW"),
    ("default", "opne", "STRING", "UNRESOLVED_COLUMN"),
    ("default", "array(1)", "INT", "DATATYPE_MISMATCH"),
    ("generated", "CAST(id AS STRING)", "STRING", None), ("generated", "st.x", "INT", None),
    ("generated", "id + 1", "BIGINT", "it gives INT, and the column is BIGINT: write a CAST"),
    ("generated", "current_date()", "DATE", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
    ("generated", "rand()", "DOUBLE", "it must be deterministic"),
    ("generated", "nope", "INT", "UNRESOLVED_COLUMN"),
    ("using", "CAST(a AS INT)", "INT", None), ("using", "a", "INT", None),
    ("using", "nope", "INT", "UNRESOLVED_COLUMN"), ("using", "id", "ARRAY<INT>", "DATATYPE"),
    ("using", "max(id)", "INT", "MISSING_GROUP_BY"),
]
FUNCTIONS = [
    ("ok", "x + 1", None), ("calls", "q.ok(x)", None),
    ("reads", "(SELECT max(id) FROM q.t)", None), ("bad", "x + y", "UNRESOLVED_COLUMN"),
    ("above", "q.bad(x)", "it calls q.bad, which does not bind"),
    ("lost", "(SELECT max(nope) FROM q.t)", "UNRESOLVED_COLUMN"),
    ("passing", "session_only(x)", "it calls session_only, a function of this session alone"),
]
UNNAMED = {
    "SELECT count(*) FROM {t}": "BIGINT",
    "SELECT upper(a) FROM {t}": "STRING",
    "WITH c AS (SELECT id + 1 FROM {t}) SELECT * FROM c": "INT",
    "SELECT id + 1 FROM {t} UNION ALL SELECT 1": "BIGINT",
    "SELECT CASE WHEN id > 0 THEN 'x' END FROM {t} -- end": "STRING",
    "FROM {t} SELECT (SELECT max(id) FROM {t})": "INT",
    "SELECT st.x FROM {t}": "INT",
}


@pytest.fixture
def engine(spark: Any) -> SparkEngine:
    """The engine on the run's session."""
    return SparkEngine(spark, threads=2)


def test_bind_refuses_what_no_table_can_live_under(
    engine: SparkEngine, spark: Any, tmp_path: Any
) -> None:
    """CHECKs that pass take a row on Delta, the others take none; so with all other texts."""
    spark.udf.register("session_only", lambda x: x, "int")
    checks = [*TAKEN, *REFUSED]
    asked: list[Any] = [ExpressionRequest(T, "check", c, "BOOLEAN", COLUMNS) for c in checks]
    asked += [
        ExpressionRequest(T, role, sql, type_, () if role == "default" else COLUMNS)
        for role, sql, type_, _ in OTHERS
    ]
    asked += [
        FunctionRequest(
            FunctionSpec(ItemName("q", name), (Argument("x", "INT"),), "INT", body), {T: COLUMNS}
        )
        for name, body, _ in FUNCTIONS
    ]
    words = [
        *[None] * len(TAKEN), *REFUSED.values(), *(each[3] for each in OTHERS),
        *(each[2] for each in FUNCTIONS),
    ]
    for request, result, word in zip(asked, engine.bind(asked), words, strict=True):
        said = f"{request}: {result.reason}"
        assert (result.reason is None) == (word is None), said
        assert word is None or word in result.reason, said
        assert "catalog_migrate_" not in (result.reason or ""), said
    for number, check in enumerate(checks):
        path = str(tmp_path / f"t{number}")
        DeltaTable.create(
            path, schema=Schema.from_json(json.dumps(datatypes.json_schema(COLUMNS, stored=True))),
            configuration={"delta.constraints.c": check}, raise_if_key_not_exists=False,
        )
        insert = f"INSERT INTO delta.`{path}` {ROW}"
        if check in TAKEN:
            spark.sql(insert)
        elif check not in ("id", "a"):  # Delta takes whatever is true once cast
            with pytest.raises(Exception):  # noqa: B017 - Spark's own, of many classes
                spark.sql(insert)


def test_a_view_has_the_names_of_its_contract(
    engine: SparkEngine, spark: Any
) -> None:
    """A query without aliases is bound and created, as it is by the next process."""
    schema_name = "proven_names"
    engine.ensure_schema(schema_name)
    t = f"{schema_name}.t"
    spark.sql(f"CREATE TABLE {t} (id INT, a STRING, st STRUCT<x: INT>) USING delta")
    requests = [
        BindRequest(
            ViewSpec(ItemName(schema_name, f"v{number}"), [Column("n", type_)], sql.format(t=t)),
            {ItemName(schema_name, "t"): COLUMNS[:3]},
        )
        for number, (sql, type_) in enumerate(UNNAMED.items())
    ]
    assert [each.reason for each in engine.bind(requests)] == [None] * len(requests)
    for fresh in (False, True):
        acting = SparkEngine(spark) if fresh else engine
        standing = {each.name.name: each for each in acting.observe(schema_name)}
        for request in requests:
            view = request.view
            acting.create_view(view, over=standing.get(view.name.name))
            assert spark.table(str(view.name)).columns == ["n"]
