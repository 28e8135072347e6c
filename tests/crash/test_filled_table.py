"""A migration that fills a table from another is killed with SIGKILL; the next one finishes it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from .victims import OwnJvm, Victims

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash]

FIRST = "CREATE TABLE split.customers (id BIGINT NOT NULL, name STRING, street STRING);"
SECOND = (
    "CREATE TABLE split.customers (id BIGINT NOT NULL, name STRING) DROPPED (street);"
    "CREATE TABLE split.addresses (id BIGINT NOT NULL, street STRING)"
    " FILLED FROM (SELECT id, street FROM split.customers);"
)

KILLS = (
    ("fill_rows", 1, "during"), ("seal", 1, "after"), ("append migrate", 1, "before"),
    ("append migrate", 1, "after"), ("evolve", 1, "after"), ("unseal", 1, "after"),
)  # fmt: skip
"""Where it dies: half filled, sealed, on both sides of the commit, and while it finishes."""

ALWAYS = (KILLS[1], KILLS[3])


@pytest.fixture
def victims(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Victims, OwnJvm]]:
    """Processes to be killed, and the JVM that they may work in."""
    jvm = OwnJvm(spark)
    yield Victims(tmp_path / "spark"), jvm
    jvm.close()


@pytest.mark.parametrize(
    "kills", [pytest.param(ALWAYS, id="two"), pytest.param(KILLS, id="all", marks=pytest.mark.soak)]
)
def test_a_split_that_is_killed_is_taken_to_its_end(
    spark: SparkSession, victims: tuple[Victims, OwnJvm], tmp_path: Path,
    kills: tuple[tuple[str, int, str], ...],
) -> None:
    """Each row of the old table is in both new ones, once, and both take rows again.

    So is the one that is written between the kill and the next start, where that is taken.
    """
    from catalog_migrate.hook import bootstrap

    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps([["fill_rows", 1, 0.4]]))
    for name, text in (("1", FIRST), ("2", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.sql").write_text(text)

    def start(name: str, catalog: Path) -> Any:
        return bootstrap(spark, release=tmp_path / name, catalog=catalog, session=False)

    for number, fatal in enumerate(kills):
        catalog = tmp_path / f"catalog{number}"
        forget(spark)
        start("1", catalog)
        spark.sql("INSERT INTO split.customers VALUES (1, 'a', 's1'), (2, 'b', NULL)")
        written = [(1, "a", "s1"), (2, "b", None)]
        task = {
            "catalog": str(catalog), "release": str(tmp_path / "2"),
            "calls": str(calls), "fatal": fatal, "repair": False,
        }
        code, _, wrong = victims[0].run(task, None if fatal[2] == "during" else victims[1])
        assert code == -signal.SIGKILL, (fatal, wrong)
        spark.catalog.clearCache()
        row = (3, "c", "s3")
        try:
            shard = shard_of(catalog)
            spark.sql(f"INSERT INTO delta.`{shard}` VALUES (3, 'c', 's3')")
            written.append(row)
        except Exception:  # noqa: BLE001 - sealed, or without the column by now
            pass
        forget(spark)
        report = start("2", catalog)
        assert report.outcome in ("migrated", "resumed"), fatal
        assert sorted(spark.table("split.customers").collect()) == [
            Row(id=one, name=name) for one, name, _ in written
        ], fatal
        assert sorted(spark.table("split.addresses").collect()) == [
            Row(id=one, street=street) for one, _, street in written
        ], fatal
        spark.sql("INSERT INTO split.customers VALUES (9, 'z')")
        spark.sql("INSERT INTO split.addresses VALUES (9, 's9')")
        assert start("2", catalog).outcome == "unchanged"


def shard_of(catalog: Path) -> str:
    """Where the rows of the customers are."""
    from catalog_migrate.api import Catalog

    location = Catalog.open(catalog).show("split.customers")["location"]
    assert isinstance(location, str)
    return location


def forget(spark: SparkSession) -> None:
    """Lose every name, as a new process does."""
    for schema in ("split", "catalog_migrate"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
