"""The same on a session: what Spark's analyser says now is judged as what it said."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.users.meaning import compare_plans
from catalog_migrate.users.plan_need import needs_plans
from tests.users import meaning_cases, repair_cases
from tests.users.meaning_cases import SHAPES, changes_of, outputs_of, plans_of

OPERATORS = ("Project", "Aggregate", "Distinct", "Union", "Except", "Intersect", "Sort", "WithCTE",
             "GlobalLimit", "Filter", "SubqueryAlias", "Join")
"""What an analysed plan of these queries begins with."""
SOME = 8
"""Every how many of the cases the default suite tries."""


def judge_meaning(spark, cases):
    plans = plans_of(SparkEngine(spark).analyse, cases)
    for case in cases:
        old, new = plans[str(case)]
        found = compare_plans(old, new, changes_of(case.shapes), outputs_of(case, old))
        assert {each.name: each.reason for each in found.columns} == case.columns, case
        assert found.rows == case.rows, case


def repair_texts(spark, cases):
    engine = SparkEngine(spark)
    for case in cases:
        found = repair_cases.repair(case, engine.analyse)
        assert (None if found is None else found.sql) == case.repaired, case


@pytest.mark.spark
def test_some_queries_mean_what_was_recorded(spark):
    """Plans of another version of Spark, or of Spark Connect, are read in the same way."""
    judge_meaning(spark, meaning_cases.CASES[::SOME])
    repair_texts(spark, repair_cases.CASES[:: 2 * SOME])


@pytest.mark.spark
@pytest.mark.soak
def test_all_queries_mean_what_was_recorded(spark):
    """All of them."""
    judge_meaning(spark, meaning_cases.CASES)
    repair_texts(spark, repair_cases.CASES)


@pytest.mark.spark
@pytest.mark.soak
def test_no_difference_is_found_where_no_plan_is_asked_for(spark):
    """Every query on every shapes that it binds on, its own or not: tokens pass none over."""
    queries = dict.fromkeys(case.sql for case in meaning_cases.CASES)
    cases = [meaning_cases.Case(shapes, sql) for sql in queries for shapes in SHAPES]
    plans = plans_of(SparkEngine(spark).analyse, cases)
    found = passed_over = 0
    for case in cases:
        old, new = plans[str(case)]
        if not all(plan.startswith(OPERATORS) for plan in (old, new)):
            continue  # it does not bind on these
        for by_position in (False, True):
            outputs = outputs_of(case._replace(by_position=by_position), old)
            changes = changes_of(case.shapes)
            compared = compare_plans(old, new, changes, outputs)
            needed = needs_plans(case.sql, changes, outputs)
            assert needed or not compared, (case, compared)
            found += bool(compared)
            passed_over += not needed
    assert found > 100
    assert passed_over > 100
