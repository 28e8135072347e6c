"""What is found out beside the plan's own rules: texts that do not parse, rows that are gone."""

from __future__ import annotations

import pytest

from catalog_migrate.errors import InvalidRelease, StalePlan
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.missing_data import MissingData
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.plan_validation import Proof, with_bodies, with_rows_of_now
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.proofs import TableExpression
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release

OLD = "CREATE TABLE t (a INT); CREATE TABLE u (a INT);"
GONE = MissingData("s.t", "its rows cannot be seen", "mount it")


def load(text: str, name: str) -> Release:
    return load_texts([("a.sql", text)], name=name, default_schema="s")


def migrate(old: str, new: str) -> Migration:
    """The migration between two texts."""
    return plan_migration(Baseline.from_release(load(old, "1")), load(new, "2"), approve=["s.t"])


class TestRowsOfNow:
    """A plan that was saved, and rows that are gone, or there again, when it is applied."""

    def test_nothing_is_gone(self) -> None:
        """The plan is the one that was saved."""
        plan = migrate(OLD, OLD.replace("u (a INT", "u (a INT, b INT")).plan
        assert with_rows_of_now(plan, []) is plan

    def test_rows_that_are_gone_since(self) -> None:
        """They block it."""
        plan = migrate(OLD, OLD.replace("t (a INT", "t (a INT, b INT")).plan
        blocked = with_rows_of_now(plan, [GONE])
        assert (plan.applyable, blocked.applyable) == (True, False)
        assert [(each.name, each.reason) for each in blocked.blocked] == [
            ("s.t", "its rows cannot be seen")
        ]
        assert with_rows_of_now(blocked, [GONE]) is blocked
        with pytest.raises(StalePlan) as stale:
            with_rows_of_now(blocked, [])
        assert stale.value.changes == ("the rows of s.t are there again",)

    def test_a_table_that_goes(self) -> None:
        """Its rows are given up by dropping it."""
        plan = migrate(OLD, "CREATE TABLE u (a INT);").plan
        assert with_rows_of_now(plan, [GONE]) is plan


class TestBodies:
    """Texts are read before a plan is shown, where the object changes by itself."""

    UNREADABLE = "CREATE VIEW v (a INT) AS SELECT a FROM t ORDER BY;"

    def test_of_what_changes(self) -> None:
        """A new view that no Spark parses is refused with its place."""
        release = load(OLD + self.UNREADABLE, "2")
        migration = plan_migration(Baseline.from_release(load(OLD, "1")), release)
        with pytest.raises(InvalidRelease) as refused:
            with_bodies(migration, release)
        assert [each.code for each in refused.value.problems] == ["CM0119"]

    def test_not_of_what_its_parents_change(self) -> None:
        """Of a view that is created again for its table the text was read when it came."""
        old = load(OLD + self.UNREADABLE, "1")
        new = load(OLD.replace("t (a INT", "t (a INT, b INT")
                   + self.UNREADABLE, "2")
        migration = plan_migration(Baseline.from_release(old), new)
        assert [(each.name, each.cause) for each in migration.plan.changes] == [
            ("s.t", "self"), ("s.v", "dependency")
        ]
        assert with_bodies(migration, new).plan == migration.plan


@pytest.mark.parametrize(("role", "column"), [
    ("check", None), ("default", "p"), ("generated", "p"), ("using", "p"),
])
def test_a_text_that_is_refused_names_its_column(role: str, column: str | None) -> None:
    """All but a CHECK, which is of no column."""
    expression = TableExpression(role, "p", "1 / 0", "1 / 0", "INT")  # type: ignore[arg-type]
    entry = Proof("s.t", "table", "no", expression).as_blocked("1")
    assert (entry.name, entry.code, entry.column) == ("s.t", "CM0337", column)
    assert entry.reason == f"{expression.label} (1 / 0) cannot be in force: no"
