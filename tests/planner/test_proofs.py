"""What may fail on a row when a table is copied, told without a look at the rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Unproven
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.proofs import TableExpression, expressions, rows_at_risk, unproven
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release


def load(text: str, name: str) -> Release:
    return load_texts([("a.sql", text)], name=name, default_schema="s")


POSITIVE = "CHECK (a > 0)"


@pytest.mark.parametrize(("old", "new", "columns", "checks"), [
    # a is rewritten by force of b, which Delta does not change in place
    ("a INT, b STRING", "a INT, b INT USING (CAST(b AS INT))", ("b",), 0),
    ("a INT NOT NULL, b STRING", "a INT NOT NULL, b INT USING (CAST(b AS INT))", ("b",), 0),
    ("a INT, b STRING", "a INT NOT NULL USING (coalesce(a, 0)), b INT USING (CAST(b AS INT))",
     ("a", "b"), 0),
    # widened without loss, as a change beside: nothing of it can fail
    ("a INT NOT NULL, b STRING", "a BIGINT NOT NULL, b INT USING (CAST(b AS INT))", ("b",), 0),
    # a column that comes is NULL in every row
    ("a INT, b STRING", "a INT, b INT USING (CAST(b AS INT)), c DATE", ("b",), 0),
    # a CHECK that stays may fail once what it reads is converted
    (f"a INT, b STRING, {POSITIVE}", f"a INT, b INT USING (CAST(b AS INT)), {POSITIVE}",
     ("b",), 1),
])
def test_columns_and_checks_that_may_fail(
    old: str, new: str, columns: tuple[str, ...], checks: int
) -> None:
    """A column that is copied as it is, or converted without loss, cannot; where something is
    converted, every CHECK may."""
    before = load(f"CREATE TABLE t ({old});", "1")
    migration = plan_migration(
        Baseline.from_release(before), load(f"CREATE TABLE t ({new});", "2"),
    )
    (target,) = migration.targets
    assert target.contents == "copy", migration.plan.blocked
    risk = rows_at_risk(target, before.objects[0].checks)
    assert (risk.columns, len(risk.checks)) == (columns, checks)
    assert bool(risk) is bool(columns or checks)


def test_a_check_that_comes_with_a_copy() -> None:
    """One that stands holds for rows that are copied as they are; a new one may fail."""
    before = load(f"CREATE TABLE t (a INT, {POSITIVE});", "1")
    after = load(f"CREATE TABLE t (a INT, {POSITIVE}, CHECK (a < 9));", "2")
    migration = plan_migration(Baseline.from_release(before), after)
    target = replace(
        migration.targets[0], contents="copy", projection=(("a", "`a`"),),
        reads=before.objects[0].columns,
    )
    risk = rows_at_risk(target, before.objects[0].checks)
    assert risk.columns == ()
    assert [each.expression for each in risk.checks] == ["a < 9"]


def test_a_default_is_proven_where_it_fills_rows() -> None:
    """Of a column that comes with a DEFAULT; not of one that stands, nor of one without any."""
    old = load("CREATE TABLE t (a INT, b INT DEFAULT 1);", "1")
    new = load("CREATE TABLE t (a INT, b INT DEFAULT 1, c INT NOT NULL DEFAULT 2);", "2")
    (target,) = plan_migration(Baseline.from_release(old), new).targets
    assert [*expressions(replace(target, decided=("a", "c")))] == [
        TableExpression("default", "c", "2", "2", "INT")
    ]


def test_what_only_spark_proves() -> None:
    """The query of a view that has one, the body of a function, the expressions of a table."""
    new = load(
        f"CREATE TABLE t (a INT, {POSITIVE}); CREATE VIEW v (a INT) AS SELECT a FROM t;"
        "CREATE FUNCTION f(x INT) RETURNS INT RETURN x;", "1",
    )
    targets = {each.definition.name: each for each in plan_migration(
        Baseline.empty(), new
    ).targets}
    without = replace(targets["v"], definition=replace(targets["v"].definition, sql=None))
    assert unproven((*targets.values(), without)) == (
        Unproven("function:s.f", "function", "its body"),
        Unproven("s.t", "table", "CHECK check_1 (a > 0)"),
        Unproven("s.v", "view", "its query"),
    )
