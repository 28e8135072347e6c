"""A chain on real Spark and Delta: the same checks, with the SQL proven too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.testing.checks import SampleRows, SparkPlatform, run_chain


@pytest.mark.spark
def test_a_chain_keeps_every_row(
    spark: Any, shop: list[Path], schema_name: str, tmp_path: Path
) -> None:
    """Three releases up and back down: rows stay through renames, retypes and partitions."""
    platform = SparkPlatform(spark, tmp_path / "installation")
    report = run_chain(platform, shop, checks=[SampleRows(2)])
    assert [step for step in report.steps if not step.endswith(": unchanged")] == [
        "a first start to 1.0: initialized",
        "an upgrade to 1.1: migrated",
        "an upgrade to 2.0: migrated",
        f"goes with a rollback to 1.1: {schema_name}.orders.qty",
        "a rollback to 1.1: rolled_back",
        f"goes with a rollback to 1.0: {schema_name}.orders.day, {schema_name}.orders.qty",
        "a rollback to 1.0: rolled_back",
    ]
    platform.forget()
