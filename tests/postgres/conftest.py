"""PostgreSQL's own catalog with its real rows, and what an upgrade must make of each row."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

    from catalog_migrate.hook import BootstrapReport

FIXTURES = Path(__file__).parents[2] / "fixtures" / "postgres_catalog"
ROWS = FIXTURES / "rows_15"
SCHEMAS = ("pg_catalog", "information_schema", "catalog_migrate")


@cache
def manifest(version: int) -> dict[str, dict[str, Any]]:
    """The objects of one manifest by name, as they stand in the file."""
    content = json.loads((FIXTURES / f"{version}.json").read_text(encoding="utf-8"))
    return {f"{one['schema']}.{one['name']}": one for one in content["objects"]}


def expected_expression(column: dict[str, Any], before: dict[str, dict[str, Any]]) -> str:
    """What a column must hold, as an expression over release 15's row, by the decisions alone."""
    old = before.get(column["name"]) or before.get(column.get("renamed_from", ""))
    if old is not None and old["type"] == column["type"]:
        return f"`{old['name']}`"
    if "using" in column:
        return f"CAST({column['using']} AS {column['type']})"
    source = "NULL" if old is None else f"`{old['name']}`"
    return f"CAST({source} AS {column['type']})"


def expected_rows(name: str, version: int) -> list[str]:
    """Every column of a table of ``version`` as an expression over release 15's parquet row."""
    before = {column["name"]: column for column in manifest(15)[name]["columns"]}
    return [
        f"{expected_expression(column, before)} AS `{column['name']}`"
        for column in manifest(version)[name]["columns"]
    ]


def changed_tables(old: int, new: int) -> set[str]:
    """Tables of both releases whose columns are not the same."""
    before, after = manifest(old), manifest(new)
    return {
        name
        for name, one in after.items()
        if one["kind"] == "table"
        and name in before
        and one["columns"] != before[name]["columns"]
    }


def multiset(rows: pyarrow.Table) -> Counter[str]:
    """The rows of a table and how often each is there."""
    return Counter(map(repr, zip(*rows.to_pydict().values(), strict=True)))


class Server:
    """One durable catalog that holds PostgreSQL's; its names are those of the session."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.catalog = home / "catalog"

    def start(self, version: int | Path, **options: Any) -> BootstrapReport:
        """One start with a manifest of the fixtures, or one of one's own."""
        from catalog_migrate.hook import bootstrap

        path = version if isinstance(version, Path) else FIXTURES / f"{version}.json"
        return bootstrap(self.spark, release=path, catalog=self.catalog, **options)

    def open(self) -> Catalog:
        """The durable catalog, read-only."""
        return Catalog.open(self.catalog)

    def shard(self, name: str) -> str:
        """Where a table's rows are."""
        location = self.open().show(name)["location"]
        assert isinstance(location, str)
        return location

    def files(self) -> dict[str, Path]:
        """Release 15's rows, a file a table."""
        return {file.stem: file for file in sorted(ROWS.glob("*.parquet"))}

    def shards(self) -> dict[str, str]:
        """Where each table's rows are."""
        state = self.open().state()
        warehouse = state.config["warehouse"].value
        return {
            str(item.definition.item_name): f"{warehouse}/{item.shard}"
            for item in state.items.values()
            if item.shard is not None
        }

    def load(self) -> int:
        """Append the real rows, in turn by Spark by name and by delta-rs by path."""
        import pyarrow.parquet
        from deltalake import write_deltalake

        total = 0
        shards = self.shards()
        for number, (name, file) in enumerate(self.files().items()):
            rows = pyarrow.parquet.read_table(file)
            if number % 20 == 0:
                self.spark.read.parquet(str(file)).write.insertInto(name)
            else:
                write_deltalake(shards[name], rows, mode="append")
            total += rows.num_rows
        return total

    def differing(self, version: int, *, by_spark: bool = False) -> set[str]:
        """Tables whose rows are not the expected ones, as multisets; empty when all is well.

        Spark computes what changed since 15 and reads it by name. A table that did not change is
        read at its shard, unless ``by_spark`` (a minute); its name must lead there.
        """
        import pyarrow.parquet
        from deltalake import DeltaTable

        shards = self.shards()
        names = self.locations()
        wrong = {name for name in self.files() if names[name] != shards[name]}
        changed = changed_tables(15, version)
        for name, file in self.files().items():
            if by_spark or name in changed:
                before = self.spark.read.schema(self.columns_of(name)).parquet(str(file))
                wanted = before.selectExpr(*expected_rows(name, version)).toArrow()
                found = self.spark.table(name).toArrow()
            else:
                wanted = pyarrow.parquet.read_table(file)
                found = DeltaTable(shards[name]).to_pyarrow_table()
            assert wanted.num_rows > 0
            if found.column_names != wanted.column_names or multiset(found) != multiset(wanted):
                wrong.add(name)
        return wrong

    def columns_of(self, name: str) -> str:
        """The columns of release 15's rows."""
        columns = manifest(15)[name]["columns"]
        return ", ".join(f"`{column['name']}` {column['type']}" for column in columns)

    def locations(self) -> dict[str, str]:
        """Where the names of the session lead."""
        found = {}
        for schema in {name.partition(".")[0] for name in self.shards()}:
            for row in self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect():
                place = re.search(r"^Location: (?:file:)?(.*)$", row.information, re.MULTILINE)
                if place is not None:
                    found[f"{row.namespace}.{row.tableName}"] = place[1]
        return found

    def forget(self) -> None:
        """Lose every name of the session."""
        for schema in SCHEMAS:
            drop_schema(self.spark, schema)


def drop_schema(spark: SparkSession, schema: str) -> None:
    """Drop a schema with all that is in it.

    The metastore of the tests has no connection pool for its listener, fails behind the drop, and
    Hive's client, which tries again, finds no schema.
    """
    from pyspark.errors import AnalysisException

    try:
        spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")
    except AnalysisException:
        if spark.catalog.databaseExists(f"`{schema}`"):
            raise


@pytest.fixture
def servers(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes catalogs at PostgreSQL 15, empty; no name is left afterwards."""
    made: list[Server] = []

    def make() -> Server:
        server = Server(spark, tmp_path)
        made.append(server)
        server.forget()
        assert server.start(15).outcome == "initialized"
        return server

    yield make
    for server in made:
        server.forget()
