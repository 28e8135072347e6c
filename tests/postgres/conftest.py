"""PostgreSQL's own catalog with its real rows, and what an upgrade must make of each row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.bootstrap import BootstrapReport

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


class Server:
    """One durable catalog that holds PostgreSQL's; its names are those of the session.

    ``without`` is a schema whose views the releases leave out.
    """

    def __init__(self, spark: SparkSession, home: Path, without: str | None) -> None:
        self.spark = spark
        self.home = home
        self.catalog = home / "catalog"
        self.without = without

    def start(self, version: int | Path, **options: Any) -> BootstrapReport:
        """One start with a manifest of the fixtures, or one of one's own."""
        from catalog_migrate.bootstrap import bootstrap

        path = version if isinstance(version, Path) else self.release(version)
        return bootstrap(self.spark, release=path, catalog=self.catalog, **options)

    def release(self, version: int) -> Path:
        """The manifest of a version."""
        path = FIXTURES / f"{version}.json"
        if self.without is None:
            return path
        content = json.loads(path.read_text(encoding="utf-8"))
        content["objects"] = [
            one
            for one in content["objects"]
            if (one["kind"], one["schema"]) != ("view", self.without)
        ]
        smaller = self.home / path.name
        smaller.write_text(json.dumps(content), encoding="utf-8")
        return smaller

    def open(self) -> Catalog:
        """The durable catalog, read-only."""
        return Catalog.open(self.catalog)

    def shard(self, name: str) -> str:
        """Where a table's rows are."""
        location = self.open().show(name)["location"]
        assert isinstance(location, str)
        return location

    def load(self, only: Sequence[str] | None = None) -> int:
        """Append the real rows, in turn by Spark by name and by delta-rs by path."""
        import pyarrow.parquet
        from deltalake import write_deltalake

        total = 0
        state = self.open().state()
        warehouse = state.config["warehouse"].value
        shards = {
            str(item.definition.item_name): f"{warehouse}/{item.shard}"
            for item in state.items.values()
            if item.shard is not None
        }
        for number, file in enumerate(sorted(ROWS.glob("*.parquet"))):
            if only is not None and file.stem not in only:
                continue
            if number % 8 == 0:
                self.spark.read.parquet(str(file)).write.insertInto(file.stem)
                total += pyarrow.parquet.read_metadata(file).num_rows
            else:
                rows = pyarrow.parquet.read_table(file)
                write_deltalake(shards[file.stem], rows, mode="append")
                total += rows.num_rows
        return total

    def differing(self, version: int) -> dict[str, tuple[Any, Any]]:
        """Tables whose rows are not the expected ones: (expected, found) as (count, digest).

        Rows are compared as multisets by the sum of a 64-bit hash over *all* columns of the new
        table and which of them are NULL. Empty when all is well.
        """
        queries = []
        for file in sorted(ROWS.glob("*.parquet")):
            columns = [column["name"] for column in manifest(version)[file.stem]["columns"]]
            hashed = ", ".join(f"`{column}`, `{column}` IS NULL" for column in columns)
            digest = f"count(*) AS n, sum(CAST(xxhash64({hashed}) AS DECIMAL(38,0))) AS h"
            wanted = ", ".join(expected_rows(file.stem, version))
            queries.append(
                f"SELECT '{file.stem}' AS t, 'wanted' AS side, {digest}"
                f" FROM (SELECT {wanted} FROM parquet.`{file}`)"
            )
            queries.append(f"SELECT '{file.stem}', 'found', {digest} FROM {file.stem}")
        found: dict[str, dict[str, Any]] = {}
        for row in self.spark.sql(" UNION ALL ".join(queries)).collect():
            found.setdefault(row.t, {})[row.side] = (row.n, row.h)
        assert len(found) == 39
        return {
            name: (sides["wanted"], sides["found"])
            for name, sides in found.items()
            if sides["wanted"] != sides["found"]
        }

    def forget(self) -> None:
        """Lose every name of the session."""
        for schema in SCHEMAS:
            self.spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """PostgreSQL 15's catalog, empty; the tests of a module upgrade it one after another.

    A module's ``WITHOUT`` names a schema whose views it does not need.
    """
    without = getattr(request.module, "WITHOUT", None)
    server = Server(spark, tmp_path_factory.mktemp("server"), without)
    server.forget()
    report = server.start(15)
    assert report.outcome == "initialized"
    yield server
    server.forget()
