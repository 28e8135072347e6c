"""A shop of four objects on real Spark, and ways to look at what a start left on disk."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from catalog_migrate.hook import BootstrapReport

ORDERS = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING);"
TAGS = "CREATE TABLE {s}.tags (tag STRING) COMMENT 'never changed by an upgrade';"
BIG = (
    "CREATE VIEW {s}.big (id BIGINT, note STRING) AS SELECT id, note FROM {s}.orders WHERE id > 1;"
)
DOUBLED = (
    "CREATE FUNCTION {s}.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;"
    "CREATE VIEW {s}.doubled (id BIGINT) AS SELECT {s}.twice(id) AS id FROM {s}.big;"
)
OBJECTS: Mapping[str, str] = {"orders": ORDERS, "tags": TAGS, "big": BIG, "doubled": DOUBLED}
"""The first release, by name; a later one replaces texts (None takes an object out)."""


class Shop:
    """One durable catalog in a directory of its own, and its names in the session."""

    def __init__(self, spark: SparkSession, home: Path, schema: str) -> None:
        self.spark = spark
        self.home = home
        self.schema = schema
        self.catalog = home / "catalog"

    def release(self, name: str, **texts: str | None) -> Path:
        """A release directory: the first release's objects with these put over them."""
        directory = self.home / f"release-{name}"
        directory.mkdir(exist_ok=True)
        for stale in directory.iterdir():
            stale.unlink()
        for key, text in {**OBJECTS, **texts}.items():
            if text is not None:
                (directory / f"{key}.sql").write_text(
                    text.replace("{s}", self.schema), encoding="utf-8"
                )
        (directory / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
        return directory

    def start(self, release: Path, **options: Any) -> BootstrapReport:
        """One start of the software."""
        from catalog_migrate.hook import bootstrap

        return bootstrap(self.spark, release=release, catalog=self.catalog, **options)

    def open(self) -> Catalog:
        """The durable catalog, read-only."""
        return Catalog.open(self.catalog)

    def append(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append by name, as the application does; an Exception of Spark's when refused."""
        name = f"{self.schema}.{table}"
        frame = self.spark.createDataFrame(list(rows), self.spark.table(name).schema)
        frame.write.insertInto(name)

    def rows(self, relation: str) -> list[Row]:
        """All rows of a relation, sorted."""
        found = self.spark.table(f"{self.schema}.{relation}").collect()
        return sorted(found, key=lambda row: [(v is not None, v) for v in row])

    def shard(self, table: str) -> str:
        """Where the durable catalog says that a table's rows are."""
        location = self.open().show(f"{self.schema}.{table}")["location"]
        assert isinstance(location, str)
        return location

    def forget(self) -> None:
        """Lose every name of the session, as a new process does."""
        for schema in (self.schema, "catalog_migrate"):
            self.spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")

    def listing(self) -> dict[str, tuple[int, int]]:
        """Every file below the catalog's directory with its size and time of change."""
        found = {}
        for directory, _, files in os.walk(self.catalog):
            for file in files:
                facts = os.stat(os.path.join(directory, file))
                found[os.path.join(directory, file)] = (facts.st_size, facts.st_mtime_ns)
            facts = os.stat(directory)
            found[directory] = (-1, facts.st_mtime_ns)
        return found


Opened = Callable[[], AbstractContextManager[Shop]]


@pytest.fixture(scope="session")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Opens empty shops; the session's names are as a new process finds them."""
    numbers = itertools.count(1)

    @contextmanager
    def open_one() -> Iterator[Shop]:
        number = next(numbers)
        shop = Shop(spark, tmp_path_factory.mktemp("shop"), f"shop{number}")
        shop.forget()
        yield shop
        shop.forget()

    return open_one


@pytest.fixture
def shop(opened: Opened) -> Iterator[Shop]:
    """An empty place for a catalog."""
    with opened() as shop:
        yield shop
