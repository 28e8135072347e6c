"""What a query means otherwise, by the plans that Spark made of it before and after a change."""

from __future__ import annotations

import pytest

from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.users.column_changes import compare_shape
from catalog_migrate.users.meaning import Comparison, compare_plans
from catalog_migrate.users.plan_need import needs_plans
from catalog_migrate.users.plan_text import read_plan
from tests.users.meaning_cases import CASES, changes_of, outputs_of
from tests.users.recorded import read_plans

STORED = read_plans()


@pytest.mark.parametrize("case", CASES, ids=str)
class TestComparison:
    def test_says_which_columns_and_rows_differ_and_why(self, case):
        """What is passed on by ``*`` is no difference; what an operator looks at is one."""
        old, new = STORED[str(case)]
        found = compare_plans(old, new, changes_of(case.shapes), outputs_of(case, old))
        assert {each.name: each.reason for each in found.columns} == case.columns
        assert found.rows == case.rows

    def test_finds_nothing_where_nothing_changes(self, case):
        """The same plan, with other ids or not, means the same."""
        old, _ = STORED[str(case)]
        other = old.replace("#", "#9")
        assert compare_plans(old, other, {}, outputs_of(case, old)) == Comparison()

    def test_is_asked_for_wherever_it_finds_something(self, case):
        """The tokens of a query say so before it is analysed."""
        old, new = STORED[str(case)]
        changes, outputs = changes_of(case.shapes), outputs_of(case, old)
        found = compare_plans(old, new, changes, outputs)
        assert needs_plans(case.sql, changes, outputs) or not found


@pytest.mark.parametrize("sql", [
    "SELECT id, city FROM shop.orders", "SELECT * FROM shop.orders",
    "SELECT o.*, c.city AS town FROM shop.orders o JOIN shop.customers c ON o.id = c.id",
    "SELECT city, count(*) AS n, max(price * 2) AS p FROM shop.orders GROUP BY city ORDER BY city",
    "WITH q AS (SELECT * FROM shop.orders) SELECT id FROM q WHERE price > 2",
    "SELECT DISTINCT city FROM shop.orders",
    "SELECT count(*) AS n, city FROM shop.orders GROUP BY 2",
])
def test_ordinary_queries_cost_no_plan(sql):
    """A column is added that a query does not name, and which nothing in it can look at."""
    change = compare_shape(
        ItemName("shop", "orders"), [Column("id", "INT"), Column("city", "STRING")],
        [Column("id", "INT"), Column("city", "STRING"), Column("added", "STRING")],
    )
    assert not needs_plans(sql, {("shop", "orders"): change}, ("id",))


def test_a_new_column_may_have_the_name_of_one_that_is_given():
    """Of two columns of one name a view takes the first, which ``*`` gives without naming it."""
    change = compare_shape(
        ItemName("shop", "orders"), [Column("id", "INT")], [Column("id", "INT"), Column("a", "INT")]
    )
    sql = "SELECT * FROM shop.orders o JOIN shop.customers c ON o.id = c.id"
    changes = {("shop", "orders"): change}
    assert needs_plans(sql, changes, ("id", "A"))
    assert not needs_plans(sql, changes, ("id", "b"))


@pytest.mark.parametrize("plan", [
    "", "no plan", "Project [a#1, ... 3 more fields]\n+- LogicalRDD [a#1], false",
    "Project [a#1\n+- LogicalRDD [a#1], false", "Project [f(a#1) AS b]\n+- LogicalRDD [a#1], false",
    "Filter exists#3 [a#1]\n+- LogicalRDD [a#1], false",
])
def test_a_plan_that_cannot_be_read_is_a_reason_to_look(plan):
    """What is in doubt counts as a change."""
    good = "Project [a#1]\n+- LogicalRDD [a#1], false"
    for pair in ((good, plan), (plan, good)):
        (reason,) = compare_plans(*pair, {}, ("a",)).rows
        assert reason.startswith("its plans cannot be compared")


def test_an_unknown_operator_looks_at_all_that_it_gets():
    """Spark may have operators that this package does not know."""
    plan = (
        "Project [a#{0}]\n+- Fold [a#{0}]\n   +- SubqueryAlias s.t\n      +- LogicalRDD {1}, false"
    )
    old, new = plan.format(1, "[a#1]"), plan.format(3, "[a#3, b#4]")
    change = compare_shape(
        ItemName("s", "t"), [Column("a", "INT")], [Column("a", "INT"), Column("b", "INT")]
    )
    assert compare_plans(old, old, {}, ("a",)) == Comparison()
    assert compare_plans(old, new, {("s", "t"): change}, ("a",)).rows == ("Fold looks at b too",)


def test_rows_and_meaning_of_what_is_read_go_on():
    """A view over a user's view means something else where that one does."""
    columns = [Column("a", "INT"), Column("b", "INT")]
    plan = "Project [a#1, b#2]\n+- SubqueryAlias team.v\n   +- LogicalRDD [a#1, b#2], false"
    name = ItemName("team", "v")
    other = {("team", "v"): compare_shape(name, columns, columns, meaning=frozenset({"B"}))}
    (found,) = compare_plans(plan, plan, other, ("a", "b")).columns
    assert (found.name, found.position, found.reason) == (
        "b", 1, "team.v.b means something else"
    )
    other = {("team", "v"): compare_shape(name, columns, columns, rows=True)}
    assert compare_plans(plan, plan, other, ("a",)).rows == ("team.v has other rows",)
    assert needs_plans("SELECT a FROM team.v", other, ("a",))


def test_a_renamed_relation_is_the_one_that_it_was():
    """Its columns are compared by the names that they had there."""
    plan = "Project [a#1]\n+- SubqueryAlias {}\n   +- LogicalRDD [a#1], false"
    old, new = plan.format("spark_catalog.s.t"), plan.format("s.u")
    change = compare_shape(ItemName("s", "t"), [Column("a", "INT")], [Column("a", "INT")])
    assert compare_plans(old, new, {("s", "u"): change}, ("a",)) == Comparison()
    assert compare_plans(old, new, {}, ("a",)).rows == ("it reads s.u, it read s.t",)


def test_the_tree_has_inputs_and_plans_of_subqueries():
    """The plan of a subquery is a level deeper than an input; a literal may span lines."""
    root = read_plan(
        "Project [scalar-subquery#1 [] AS a#2]\n:  +- Aggregate [max(b#3) AS m#4]\n"
        ":     +- LocalRelation [b#3]\n+- Filter (b#5 = x\n+- y)\n   +- OneRowRelation\n"
    )
    assert [each.name for each in root.children] == ["Filter"]
    assert root.children[0].text == "(b#5 = x\n+- y)"
    assert [each.name for each in root.children[0].children] == ["OneRowRelation"]
    assert [each.name for each in root.subqueries] == ["Aggregate"]


def test_a_literal_of_megabytes():
    """Takes a time that grows with its length, not with the square of it."""
    plan = "Project [id#1, {} AS pad#2]\n+- SubqueryAlias s.t\n   +- Relation [id#1,a#3] parquet\n"
    old, new = (plan.format(sign * 2_000_000) for sign in "xy")
    assert not compare_plans(old, old, {})
    assert [each.name for each in compare_plans(old, new, {}).columns] == ["pad"]


def test_types_that_no_release_may_have_are_compared_by_their_spelling():
    """A user's view may have a column of such a type, and another user's view reads it."""
    old = [Column("t", "time(6)"), Column("s", "string collate UTF8_LCASE")]
    assert not compare_shape(ItemName("u", "v"), old, old)
    new = [Column("t", "TIME(6)"), Column("s", "STRING")]
    changed = compare_shape(ItemName("u", "v"), old, new)
    assert [(name, each.manner) for name, each in changed.retyped.items()] == [("s", "other")]
