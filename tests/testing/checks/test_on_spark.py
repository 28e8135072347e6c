"""A chain on real Spark and Delta: the same checks, with the SQL proven too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.testing.checks import ChainReport, SampleRows, SparkPlatform, run_chain


@pytest.mark.spark
def test_a_pair_keeps_every_row(
    spark: Any, shop: list[Path], schema_name: str, tmp_path: Path
) -> None:
    """Up and back down: rows stay through a rename, a retype and partitions."""
    platform = SparkPlatform(spark, tmp_path / "installation")
    report = run_chain(platform, [shop[0], shop[2]], checks=[SampleRows(2)])
    assert steps(report) == [
        "a first start to 1.0: initialized",
        "an upgrade to 2.0: migrated",
        f"goes with a rollback to 1.0: {schema_name}.orders.qty, {schema_name}.orders.day",
        "a rollback to 1.0: rolled_back",
    ]
    platform.forget()


@pytest.mark.soak
@pytest.mark.spark
def test_a_chain_keeps_every_row(
    spark: Any, shop: list[Path], schema_name: str, tmp_path: Path
) -> None:
    """The same through three releases, a release at a time."""
    platform = SparkPlatform(spark, tmp_path / "installation")
    report = run_chain(platform, shop, checks=[SampleRows(2)])
    assert steps(report) == [
        "a first start to 1.0: initialized",
        "an upgrade to 1.1: migrated",
        "an upgrade to 2.0: migrated",
        f"goes with a rollback to 1.1: {schema_name}.orders.qty",
        "a rollback to 1.1: rolled_back",
        f"goes with a rollback to 1.0: {schema_name}.orders.day, {schema_name}.orders.qty",
        "a rollback to 1.0: rolled_back",
    ]
    platform.forget()


def steps(report: ChainReport) -> list[str]:
    """What was done, without the restarts that found nothing to do."""
    return [step for step in report.steps if not step.endswith(": unchanged")]
