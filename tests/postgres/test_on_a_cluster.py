"""The same upgrade on a Spark cluster, catalog and rows in one bucket, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from tests.services.spark_cluster import SparkCluster

from .conftest import FIXTURES, Server, changed_tables, expected_rows, multiset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.object_store import ObjectStore


class OnACluster(Server):
    """A catalog in a bucket; processes with Spark on a cluster bring it from release to release."""

    def __init__(
        self, spark: SparkSession, home: Path, bucket: str, options: dict[str, str], master: str
    ) -> None:
        super().__init__(spark, home)
        self.home, self.bucket, self.options, self.master = home, bucket, options, master

    def run(self, *arguments: str) -> Any:
        """One command on the cluster; what it printed as JSON."""
        storage = {
            f"CATALOG_MIGRATE__STORAGE_OPTIONS__{name.upper()}": value
            for name, value in self.options.items()
        }
        done = subprocess.run(
            [
                sys.executable, "-m", "catalog_migrate.cli.main", *arguments, "--format", "json",
                "--catalog", f"{self.bucket}/catalog", "--warehouse", f"{self.bucket}/rows",
                "--conf", f"spark.master={self.master}",
                "--conf", "spark.executor.memory=640m", "--conf", "spark.cores.max=2",
            ],
            env={**os.environ, **storage}, cwd=self.home, capture_output=True, text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return json.loads(done.stdout)

    def open(self) -> Catalog:
        return Catalog.open(f"{self.bucket}/catalog", storage_options=self.options)

    def load(self) -> int:
        """Append the real rows by delta-rs."""
        import pyarrow.parquet
        from deltalake import write_deltalake

        total, shards = 0, self.shards()
        for name, file in self.files().items():
            rows = pyarrow.parquet.read_table(file)
            write_deltalake(shards[name], rows, mode="append", storage_options=self.options)
            total += rows.num_rows
        return total

    def differing(self, version: int, *, by_spark: bool = False) -> set[str]:
        """Tables whose rows are not the expected ones; a session of this machine reads the bucket,
        where a table changed since 15, else delta-rs does."""
        import pyarrow.parquet
        from deltalake import DeltaTable

        wrong = set()
        shards, changed = self.shards(), changed_tables(15, version)
        for name, file in self.files().items():
            if by_spark or name in changed:
                before = self.spark.read.schema(self.columns_of(name)).parquet(str(file))
                wanted = before.selectExpr(*expected_rows(name, version)).toArrow()
                found = self.spark.read.format("delta").load(shards[name]).toArrow()
            else:
                wanted = pyarrow.parquet.read_table(file)
                found = DeltaTable(
                    shards[name], storage_options=self.options
                ).to_pyarrow_table()
            if found.column_names != wanted.column_names or multiset(found) != multiset(wanted):
                wrong.add(name)
        return wrong


@pytest.mark.soak
def test_fifteen_to_sixteen_to_eighteen_in_a_bucket(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    """20,817 rows are what each release says; a worker is killed in between."""
    with SparkCluster(tmp_path / "cluster") as cluster:
        server = OnACluster(
            spark_on_s3, tmp_path, bucket, dict(object_store.options), cluster.address
        )
        first = server.run("bootstrap", "--release", str(FIXTURES / "15.json"))
        assert first["outcome"] == "initialized"
        assert cluster.applications() == 1
        assert server.load() == 20_817
        assert server.differing(15) == set()
        for number, version in enumerate((16, 18), 1):
            report = server.run("bootstrap", "--release", str(FIXTURES / f"{version}.json"))
            assert (report["outcome"], report["release"]) == ("migrated", str(version))
            assert report["rows_copied"] > 0
            assert cluster.applications() == number + 1
            assert server.differing(version) == set()
            assert server.open().status().pending == 0
            if number == 1:
                cluster.kill_worker()
