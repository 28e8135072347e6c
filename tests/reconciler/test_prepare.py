"""What Spark's analyser is asked before a commit."""

from __future__ import annotations

from catalog_migrate.engine.port import BindRequest
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.reconciler.prepare import bind_requests
from catalog_migrate.release.loader import load_texts

TEXT = """
CREATE TABLE t (a INT);
CREATE TABLE u (b INT);
CREATE FUNCTION inner_one(x INT) RETURNS INT RETURN x + (SELECT max(b) FROM s.u);
CREATE FUNCTION a_caller(x INT) RETURNS INT RETURN s.inner_one(x);
CREATE FUNCTION unused(x INT) RETURNS INT RETURN x;
CREATE VIEW v (a INT) AS SELECT s.a_caller(a) AS a FROM s.t;
"""


def test_a_view_is_bound_with_what_its_functions_call_and_read() -> None:
    """What a function calls comes before it, its tables are parents too; others stay out."""
    release = load_texts([("all.sql", TEXT)], name="1", default_schema="s")
    asked = bind_requests(plan_migration(Baseline.empty(), release))
    (request,) = [each for _, each, _ in asked if isinstance(each, BindRequest)]
    assert [str(function.name) for function in request.functions] == ["s.inner_one", "s.a_caller"]
    assert {str(name): [column.name for column in columns]
            for name, columns in request.parents.items()} == {"s.t": ["a"], "s.u": ["b"]}
