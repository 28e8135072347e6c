"""Every act of an installation on tables with Delta's features, and the page that says which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.delta_features.page import PAGE, RECORDED, page
from tests.delta_features.trial import ACTS, STEPS, Trial
from tests.delta_features.variants import VARIANTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ("deletionVectors", "clustering", "rowTracking", "inCommitTimestamp", "typeWidening")


def led(spark: SparkSession, home: Path, schema: str, *names: str) -> None:
    """Take every step with tables of these variants in one installation."""
    trial = Trial(spark, home, schema, {name: VARIANTS[name] for name in names})
    try:
        for act in STEPS.values():
            act(trial)
    finally:
        trial.forget()


@pytest.mark.spark
def test_tables_of_five_features_live_through_releases(
    spark: SparkSession, tmp_path: Path, schema_name: str
) -> None:
    """Adopted, counted, changed in place, sealed and unsealed, streamed into and out of, copied,
    dropped, rolled back: every row that Spark reads is there, and no other."""
    led(spark, tmp_path, schema_name, *SAMPLE)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_of_each_feature_lives_through_releases(
    spark: SparkSession, tmp_path: Path, schema_name: str, name: str
) -> None:
    """The same for each variant that Spark can make here."""
    led(spark, tmp_path, schema_name, name)
    assert json.loads(RECORDED.read_text("utf-8"))[name] == [*_acts()]


def _acts() -> list[str]:
    return [each for acts in STEPS for each in acts.split(", ")]


def test_the_page_says_what_was_found() -> None:
    """Of each variant and each act, in the words of ``make delta-features``."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert list(recorded) == list(VARIANTS)
    assert [name for name, acts in recorded.items() if acts != [*_acts()]] == []
    assert sorted(ACTS) == sorted(_acts())
    assert PAGE.read_text("utf-8") == page(recorded)
