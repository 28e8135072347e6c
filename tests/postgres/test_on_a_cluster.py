"""The same upgrade on a Spark cluster: catalog and rows in one bucket, names in a metastore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.store.address import is_same_place
from tests.metastores.conftest import Process
from tests.services.spark_cluster import SparkCluster

from .conftest import FIXTURES, SCHEMAS, Server, changed_tables, expected_rows, manifest, multiset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.metastore import HiveMetastore
    from tests.services.object_store import ObjectStore


class OnACluster(Server):
    """A catalog in a bucket; processes with Spark on a cluster bring it from release to release.

    Their names are in a shared metastore, where ``reader``, a process of its own, finds them.
    """

    def __init__(
        self, spark: SparkSession, home: Path, bucket: str, options: dict[str, str],
        settings: dict[str, str], reader: Process,
    ) -> None:
        super().__init__(spark, home)
        self.home, self.bucket, self.options = home, bucket, options
        self.settings, self.reader = settings, reader

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
                *(
                    word for name, value in self.settings.items()
                    for word in ("--conf", f"{name}={value}")
                ),
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

    def locations(self) -> dict[str, str]:
        return {
            f"{schema}.{name}": place
            for schema in SCHEMAS[:2]
            for name, place in self.reader.do("locations", schema).items()
        }

    def differing(self, version: int, *, by_spark: bool = False) -> set[str]:
        """Tables whose rows are not the expected ones; the reader asks for one by name where it
        changed since 15, else delta-rs reads where its name leads."""
        import pyarrow.parquet
        from deltalake import DeltaTable

        shards, names, changed = self.shards(), self.locations(), changed_tables(15, version)
        assert set(names) == set(manifest(version))
        wrong = {name for name in shards if not is_same_place(names[name], shards[name])}
        for name, file in self.files().items():
            if by_spark or name in changed:
                before = self.spark.read.schema(self.columns_of(name)).parquet(str(file))
                rows = before.selectExpr(*expected_rows(name, version)).collect()
                columns = [column["name"] for column in manifest(version)[name]["columns"]]
                if self.reader.do("table", name) != [columns, sorted(map(str, map(tuple, rows)))]:
                    wrong.add(name)
                continue
            wanted = pyarrow.parquet.read_table(file)
            stored = DeltaTable(shards[name], storage_options=self.options).to_pyarrow_table()
            if stored.column_names != wanted.column_names or multiset(stored) != multiset(wanted):
                wrong.add(name)
        return wrong


@pytest.fixture
def reader(
    metastore: HiveMetastore, object_store: ObjectStore, tmp_path: Path
) -> Iterator[Process]:
    """An application that has the metastore's names; they go with it."""
    process = Process(tmp_path / "reader", metastore.address, object_store.options)
    try:
        assert process.answer() == "ready"
        yield process
        for schema in SCHEMAS:
            process.do("sql", f"DROP DATABASE IF EXISTS {schema} CASCADE")
    finally:
        process.end()


@pytest.mark.soak
def test_fifteen_to_sixteen_to_eighteen_in_a_bucket(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, metastore: HiveMetastore,
    reader: Process, tmp_path: Path,
) -> None:
    """20,817 rows are what each release says, by the metastore's names; a worker is killed in
    between."""
    with SparkCluster(tmp_path / "cluster") as cluster:
        server = OnACluster(
            spark_on_s3, tmp_path, bucket, dict(object_store.options),
            {
                "spark.master": cluster.address, "spark.executor.memory": "640m",
                "spark.cores.max": "2", "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": metastore.address,
            },
            reader,
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
