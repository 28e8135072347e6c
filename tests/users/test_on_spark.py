"""The same on a session: what Spark's analyser says now is judged as what it said."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.users.meaning import compare_plans
from tests.users import meaning_cases, repair_cases
from tests.users.meaning_cases import changes_of, outputs_of, plans_of

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
