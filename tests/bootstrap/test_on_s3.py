"""Catalog and rows on S3, on real Spark: a life of one installation, and what is refused there."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.delta.table import load_table, shard_version, write_rows
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.object_stores.settings import hadoop_settings
from catalog_migrate.engine.spark.session import hand_over
from catalog_migrate.errors import (
    CatalogMigrateError,
    MigrationBlocked,
    StoreFailure,
    UnsuitableSession,
    UsageError,
)
from catalog_migrate.hook import bootstrap, rollback
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.store import store_at
from catalog_migrate.store.address import Storage
from catalog_migrate.testing.starts import migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.model.progress import Progress
    from tests.services.object_store import ObjectStore
    from tests.services.spark_cluster import SparkCluster
    from tests.services.store_proxy import StoreProxy

pytestmark = [pytest.mark.spark, pytest.mark.services]

ONE = """
CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING);
CREATE TABLE {s}.buyers (id BIGINT, name STRING);
CREATE TABLE {s}.tags (tag STRING);
CREATE VIEW {s}.big (id BIGINT, note STRING) AS SELECT id, note FROM {s}.orders WHERE id > 1;
"""
TWO = """
CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING);
CREATE TABLE {s}.buyers (id BIGINT, name STRING, email STRING COMMENT 'new');
CREATE VIEW {s}.big (id BIGINT, qty INT) AS SELECT id, qty FROM {s}.orders WHERE id > 1;
"""


class Later(SystemClock):
    """Eight days from now: the retention of what was replaced is over."""

    def wall(self) -> float:
        return super().wall() + 8 * 86_400.0


class Shop:
    """One installation in a bucket of its own; ``s3a`` is how Spark is told of the rows."""

    def __init__(self, spark: SparkSession, store: ObjectStore, bucket: str, schema: str) -> None:
        self.spark = spark
        self.options = store.options
        self.schema = schema
        self.bucket = bucket
        self.catalog = f"{bucket}/catalog"
        self.warehouse = f"{bucket.replace('s3:', 's3a:')}/rows"
        self._store = store

    def release(self, name: str, text: str) -> Release:
        return load_texts([("a.sql", text.replace("{s}", self.schema))], name=name)

    def start(self, release: Release, **given: Any) -> Any:
        wanted = {"catalog": self.catalog, "storage_options": self.options, **given}
        return bootstrap(self.spark, release=release, **wanted)

    def append(self, table: str, *rows: tuple[Any, ...]) -> None:
        name = f"{self.schema}.{table}"
        frame = self.spark.createDataFrame(list(rows), self.spark.table(name).schema)
        frame.coalesce(1).write.insertInto(name)

    def append_elsewhere(self, table: str, **columns: list[Any]) -> None:
        """Append by delta-rs, as a process without Spark does."""
        from arro3.core import Array, DataType, Table

        location = self.open().show(f"{self.schema}.{table}")["location"]
        kinds = {int: DataType.int64(), str: DataType.string()}
        write_rows(
            load_table(location), Table.from_pydict({
                name: Array(values, kinds[type(values[0])]) for name, values in columns.items()
            }),
        )

    def rows(self, relation: str) -> list[tuple[Any, ...]]:
        found = self.spark.table(f"{self.schema}.{relation}").collect()
        return sorted(map(tuple, found), key=str)

    def stored(self, table: str) -> list[tuple[Any, ...]]:
        """Rows of a table as delta-rs reads them, which takes a tenth of what Spark takes."""
        from deltalake import QueryBuilder

        location = self.open().show(f"{self.schema}.{table}")["location"]
        found = QueryBuilder().register("t", load_table(location)).execute("SELECT * FROM t")
        read = found.read_all()
        return sorted(zip(*(c.to_pylist() for c in read.columns), strict=True), key=str)

    def open(self) -> Catalog:
        return Catalog.open(self.catalog, "write", storage_options=self.options)

    def files(self) -> list[str]:
        """Keys of the whole bucket."""
        listing = self._store.objects(self.bucket.removeprefix("s3://"))
        return re.findall("<Key>(.*?)</Key>", listing)


@pytest.fixture
def shop(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, schema_name: str
) -> Iterator[Shop]:
    """An empty bucket for catalog and rows."""
    yield Shop(spark_on_s3, object_store, bucket, schema_name)
    spark_on_s3.sql(f"DROP DATABASE IF EXISTS `{schema_name}` CASCADE")


def test_a_life(shop: Shop) -> None:
    """First release, rows, a release that copies, evolves in place, drops and redefines; names that
    somebody dropped are repaired; back again with the rows of both; what was replaced is removed
    when its time is over. The rows are equal throughout."""
    one, two = shop.release("1", ONE), shop.release("2", TWO)
    assert shop.start(one, warehouse=shop.warehouse).outcome == "initialized"
    shop.append("orders", (1, "007", "a"), (2, "20", None))
    shop.append_elsewhere("buyers", id=[1], name=["x"])
    shop.append_elsewhere("tags", tag=["old"])
    with pytest.raises(MigrationBlocked):
        shop.start(two)
    approved = {"approve": [f"{shop.schema}.tags"]}
    # the same place by the other spelling
    warehouse = shop.warehouse.replace("s3a:", "s3:")
    assert shop.start(two, warehouse=warehouse, **approved).rows_copied == 2
    assert shop.rows("orders") == [(1, 7, "a"), (2, 20, None)]
    assert shop.stored("buyers") == [(1, "x", None)]
    assert shop.rows("big") == [(2, 20)]

    catalog, engine = shop.open(), SparkEngine(shop.spark)
    assert catalog.plan(two).is_empty
    assert catalog.status().warehouse == shop.warehouse
    shop.spark.sql(f"DROP VIEW {shop.schema}.big")
    assert [each.kind for each in catalog.drift(engine)] == ["missing"]
    catalog.repair(engine)
    assert catalog.drift(engine) == ()

    back = rollback(
        shop.spark, catalog=shop.catalog, storage_options=shop.options,
        approve=[f"{shop.schema}.buyers.email"],
    )
    assert back.outcome == "rolled_back"
    assert shop.rows("orders") == [(1, "007", "a"), (2, "20", None)]
    assert shop.stored("buyers") == [(1, "x")]
    assert shop.stored("tags") == [("old",)]

    replaced = {path for path, each in catalog.state().shards.items() if each.state == "retired"}
    assert replaced
    migrate(
        engine, open_log(shop.catalog, Storage(shop.options)), one, warehouse=None, clock=Later(),
        holder="later",
    )
    data = [key for key in shop.files() if key.endswith(".parquet") and "_delta_log" not in key]
    assert not [key for key in data if any(path in key for path in replaced)]
    assert shop.stored("orders") == [(1, "007", "a"), (2, "20", None)]


@pytest.mark.soak
def test_a_migration_through_a_bad_network(
    spark: SparkSession, store_proxy: StoreProxy, object_store: ObjectStore, bucket: str,
    schema_name: str,
) -> None:
    """Every commit is carried out and its answer lost, every data file is refused once with "slow
    down", reading fails now and then: each row is there once, and so is each commit."""
    hand_over(spark.sparkContext, hadoop_settings(Storage(store_proxy.options)))
    shop = Shop(spark, object_store, bucket, schema_name)
    shop.options = store_proxy.options
    one, two = shop.release("1", ONE), shop.release("2", TWO)
    shop.start(one, warehouse=shop.warehouse)
    store_proxy.next("cut", conditional=True, times=-1, each=True)
    store_proxy.next("SlowDown", method="PUT", path=r"\.parquet", times=-1, each=True)
    store_proxy.next("InternalError", method="GET", path=r"\.json", times=5)
    store_proxy.next("delay", method="GET", path="list-type", times=3)
    shop.append("orders", (1, "007", "a"), (2, "20", None))
    shop.append("buyers", (1, "x"))
    done = shop.start(two, approve=[f"{shop.schema}.tags"])
    assert (done.outcome, done.rows_copied) == ("migrated", 2)
    assert store_proxy.pending == 0
    store_proxy.clear()
    assert shop.stored("orders") == [(1, 7, "a"), (2, 20, None)]
    assert shop.stored("buyers") == [(1, "x", None)]
    versions = {
        name: shard_version(shop.open().show(f"{shop.schema}.{name}")["location"])
        for name in ("orders", "buyers")
    }
    assert versions == {"orders": 1, "buyers": 2}  # made and filled; made, appended to, evolved
    commits = [each.commit_id for each in open_log(shop.catalog, Storage(shop.options)).commits()]
    assert len(commits) == len({*commits})
    spark.sql(f"DROP DATABASE IF EXISTS `{schema_name}` CASCADE")


@pytest.mark.soak
def test_a_worker_is_killed_in_a_copy(shop: Shop, workers: SparkCluster) -> None:
    """Its tasks are done again by another one: each row is there once."""
    one, two = shop.release("1", ONE), shop.release("2", TWO)
    shop.start(one, warehouse=shop.warehouse)
    rows = shop.spark.range(2_000_000).selectExpr("id", "CAST(id AS STRING)", "repeat(id, 9)")
    rows.write.insertInto(f"{shop.schema}.orders")
    told: list[Progress] = []

    def kill() -> None:
        deadline = time.monotonic() + 120.0
        while not any(step.phase == "build" for step in told):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2.0)
        killed.extend(told)
        workers.kill_worker()

    killed: list[Progress] = []
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    done = shop.start(two, approve=[f"{shop.schema}.tags"], on_progress=told.append)
    killing.join()
    assert killed
    assert not any(step.phase == "copy rows" and step.done for step in killed)
    assert done.rows_copied == 2_000_000
    found = shop.spark.sql(
        f"SELECT count(*), count(DISTINCT id), sum(qty) FROM {shop.schema}.orders"
    ).first()
    assert found is not None
    assert tuple(found) == (2_000_000, 2_000_000, 1_999_999_000_000)


@pytest.mark.soak
def test_our_own_views(shop: Shop) -> None:
    """They come when they are asked for, are read by Spark, and starts keep them from then on."""
    one = shop.release("1", ONE)
    shop.start(one, warehouse=shop.warehouse)
    catalog = shop.open()
    assert catalog.state().release_in_force("system") is None
    assert catalog.make_own_views(shop.spark)
    assert not catalog.make_own_views(shop.spark)

    def shown() -> list[str]:
        found = shop.spark.sql(
            f"SELECT name FROM catalog_migrate.objects WHERE schema = '{shop.schema}'"
        )
        return sorted(row.name for row in found.collect())

    assert shown() == ["big", "buyers", "orders", "tags"]
    shop.spark.sql("DROP DATABASE catalog_migrate CASCADE")
    assert shop.start(one).outcome == "unchanged"
    assert shown() == ["big", "buyers", "orders", "tags"]


def _no_such_bucket(shop: Shop) -> dict[str, Any]:
    return {"warehouse": "s3a://no-such-bucket/rows"}


def _no_such_endpoint(shop: Shop) -> dict[str, Any]:
    options = {**shop.options, "aws_endpoint_url": "http://127.0.0.1:1", "max_retries": "0"}
    return {"warehouse": shop.warehouse, "storage_options": options}


def _a_table(shop: Shop) -> dict[str, Any]:
    store = store_at(f"{shop.bucket}/rows", Storage(shop.options))
    store.put_if_absent(f"_delta_log/{0:020d}.json", b"{}\n")
    return {"warehouse": shop.warehouse}


def _no_jar(shop: Shop) -> dict[str, Any]:
    return {
        "warehouse": f"gs://{shop.bucket.removeprefix('s3://')}/rows", "untried_stores": ["gs"]
    }


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        (_no_such_bucket, StoreFailure, "s3a://no-such-bucket/rows"),
        (_no_such_endpoint, StoreFailure, "/catalog"),
        (_a_table, UsageError, "/rows: it is a Delta table itself"),
        (_no_jar, UnsuitableSession, "it has no file system for gs://"),
    ],
)
def test_what_is_refused_before_anything_is_written(
    shop: Shop, given: Callable[[Shop], dict[str, Any]], error: type[CatalogMigrateError], told: str
) -> None:
    """A typed error that names the address, and no option."""
    arguments = given(shop)
    before = shop.files()
    with pytest.raises(error, match=re.escape(told)) as found:
        shop.start(shop.release("1", ONE), **arguments)
    assert "MARKED" not in f"{found.value}{found.value.__cause__!r}"
    assert shop.files() == before
