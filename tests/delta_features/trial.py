"""What is done to tables with features, each act as an installation does it, on real Spark.

One installation adopts a table of each variant and is led through releases: a column is added in
place, the tables are copied, brought back by a rollback, dropped. Each act is checked by what Spark
then reads and takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.administration.adoption import AdoptionRequest, adopt
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.table import shard_version
from catalog_migrate.hook import bootstrap
from catalog_migrate.model.names import ItemName
from catalog_migrate.release.loader import load_texts
from catalog_migrate.streams.checkpoint.delta_tables import (
    commit_batch,
    delta_batch,
    fence_delta,
)
from tests.delta_features.variants import Variant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACTS = (
    "adopt", "count", "evolve", "seal", "unseal", "stream into", "stream out of", "copy",
    "roll back", "drop",
)
APP = "catalog_migrate/trial"


class Trial:
    """One installation with a table of each variant, and a second one of each to be dropped."""

    def __init__(
        self, spark: SparkSession, home: Path, schema: str, variants: Mapping[str, Variant]
    ) -> None:
        self.spark, self.home, self.schema = spark, home, schema
        self.variants = dict(variants)
        self.tables = {name: f"t{number}" for number, name in enumerate(variants)}
        self.catalog = str(home / "catalog")
        self.rows = {name: self._make(name) for name in variants}

    # tables --------------------------------------------------------------------------------
    def path(self, name: str, kind: str = "t") -> str:
        return str(self.home / f"{kind}{self.tables[name]}")

    def _make(self, name: str) -> int:
        """Twenty rows, some of them deleted; how many are left. A copy of it is to be dropped."""
        variant, table = self.variants[name], f"delta.`{self.path(name)}`"
        self.spark.sql(f"CREATE TABLE {table} ({variant.columns}) USING delta {variant.clause}")
        self.insert(name)
        left = 20
        if variant.deletes:
            self.spark.sql(f"DELETE FROM {table} WHERE id IN (3, 5)")
            left -= 2
        for statement in variant.after:
            self.spark.sql(statement.format(t=table))
        shutil.copytree(self.path(name), self.path(name, "d"))
        return left

    def insert(self, name: str, kind: str = "t") -> None:
        """Twenty rows by path."""
        columns, query = self.variants[name].rows
        if any("RENAME COLUMN v" in each for each in self.variants[name].after) and (
            "w" in self.spark.read.format("delta").load(self.path(name, kind)).columns
        ):
            columns = columns.replace("v", "w")
        self.spark.sql(f"INSERT INTO delta.`{self.path(name, kind)}` ({columns}) {query}")

    def count(self, path: str) -> int:
        found: int = self.spark.read.format("delta").load(path).count()
        return found

    def named(self, name: str) -> str:
        return f"{self.schema}.{self.tables[name]}"

    # releases ------------------------------------------------------------------------------
    def release(self, number: int, change: Callable[[str, str], str], *, dropped: bool) -> Any:
        """A release whose columns are the variants' with a change, with or without the others."""
        texts = []
        for name, variant in self.variants.items():
            for kind in ("t",) if dropped else ("t", "d"):
                columns = ", ".join(
                    f"`{column}` {change(column, said) if kind == 't' else said}"
                    for column, said in variant.shape
                )
                if kind == "t" and change("", ""):
                    columns += f", {change('', '')}"
                table = self.tables[name] if kind == "t" else f"d{self.tables[name]}"
                checked = ("checkConstraints" in name and ", CHECK (id >= 0)") or ""
                texts.append(f"CREATE TABLE {self.schema}.{table} ({columns}{checked});")
        return load_texts([("a.sql", "\n".join(texts))], name=str(number))

    def first(self) -> Any:
        return self.release(1, lambda _, said: said, dropped=False)

    def start(self, release: Any, **options: Any) -> Any:
        return bootstrap(self.spark, release=release, catalog=self.catalog, **options)

    def planned(self, release: Any, **options: Any) -> dict[str, Any]:
        plan = Catalog.open(self.catalog).plan(release, **options)
        return {change.name: change for change in plan.changes}

    def open(self) -> Catalog:
        return Catalog.open(self.catalog, mode="write")

    # acts ----------------------------------------------------------------------------------
    def adopt_and_count(self) -> None:
        """Each table is taken over where it lies, with the rows that Spark finds in it."""
        wanted = [
            AdoptionRequest(ItemName(self.schema, table), self.path(name, kind), "path")
            for name in self.variants
            for kind in ("t", "d")
            for table in (self.tables[name] if kind == "t" else f"d{self.tables[name]}",)
        ]
        done = adopt(
            open_log(self.catalog), self.first(), wanted, warehouse=str(self.home / "warehouse")
        )
        assert {each.name: each.rows for each in done.prospects} == {
            f"{self.schema}.{mark}{self.tables[name]}": rows
            for name, rows in self.rows.items() for mark in ("", "d")
        }
        assert {each.first for each in done.prospects} == {"unchanged"}
        for name, rows in self.rows.items():
            assert self.count(self.path(name)) == rows
        self.start(self.first())

    def evolve(self) -> None:
        """A column and a comment in place; old rows and new ones are read and taken."""
        second = self.second()
        plan = self.planned(second)
        assert {change.contents for change in plan.values()} == {"evolve"}, plan
        assert self.start(second).outcome == "migrated"
        for name in self.variants:
            self.insert(name)
            self.rows[name] += 20
            frame = self.spark.read.format("delta").load(self.path(name))
            assert frame.columns[-1] == "extra"
            assert frame.where("extra IS NULL").count() == self.rows[name]

    def second(self) -> Any:
        def change(column: str, said: str) -> str:
            if not column:
                return "extra STRING COMMENT 'more'"
            return f"{said} COMMENT 'the key'" if column == "id" else said

        return self.release(2, change, dropped=False)

    def seal_and_unseal(self) -> None:
        """Behind a seal rows are read and none are taken; without it they are taken again."""
        for name in self.variants:
            path = self.path(name)
            earlier = seals.seal_properties(path)
            version = shard_version(path)
            assert version is not None
            assert seals.seal(path, follows=version, app_id=APP, epoch=1) == version + 1
            self.refused(name)
            assert self.count(path) == self.rows[name]
            seals.fence(path, APP, 2)
            seals.unseal(path, earlier, app_id=APP, epoch=2)
            self.insert(name)
            self.rows[name] += 20
            assert self.count(path) == self.rows[name]

    def refused(self, name: str, kind: str = "t") -> None:
        try:
            self.insert(name, kind)
        except Exception as error:  # noqa: BLE001 - whatever it is, by its words
            assert "CONSTRAINT" in str(error), error  # noqa: PT017
        else:
            raise AssertionError(f"{name} took rows behind its seal")

    def stream_into(self) -> None:
        """A query appends; its batch is known, carried to another id, and the old one barred."""
        for number, name in enumerate(self.variants):
            path = self.path(name)
            feed = str(self.home / f"feed{number}")
            columns, query = self.variants[name].rows
            names = columns if "RENAME" not in str(self.variants[name].after) else "id, w"
            frame = self.spark.sql(query).toDF(*names.split(", "))
            frame.write.format("delta").save(feed)
            sink = str(self.home / f"into{number}")
            running = (
                self.spark.readStream.format("delta").load(feed).writeStream.format("delta")
                .option("checkpointLocation", sink).trigger(availableNow=True).start(path)
            )
            running.awaitTermination()
            assert running.exception() is None
            self.rows[name] += 20
            assert delta_batch(path, running.id) == 0
            commit_batch(path, running.id, 1)
            assert fence_delta(path, running.id, "successor") == 1
            assert delta_batch(path, "successor") == 1
            assert self.count(path) == self.rows[name]
            self.insert(name)
            self.rows[name] += 20

    def stream_out_of(self) -> None:
        """A query reads what is there, and what comes behind a commit of ours."""
        for number, name in enumerate(self.variants):
            path, out = self.path(name), str(self.home / f"out{number}")

            def run(path: str = path, out: str = out) -> None:
                running = (
                    self.spark.readStream.format("delta").load(path).select("id")
                    .writeStream.format("delta")
                    .option("checkpointLocation", f"{out}-checkpoint")
                    .trigger(availableNow=True).start(out)
                )
                running.awaitTermination()
                assert running.exception() is None

            run()
            assert self.count(out) == self.rows[name]
            seals.fence(path, APP, 3)
            self.insert(name)
            self.rows[name] += 20
            run()
            assert self.count(out) == self.rows[name]

    def copy_and_drop(self) -> None:
        """Each table is copied, row by row as Spark reads it, and the old one is sealed; the other
        one of each is dropped and sealed."""
        third = self.third()
        gone = [f"{self.schema}.d{table}" for table in self.tables.values()]
        plan = self.planned(third, approve=gone)
        for name in self.variants:
            change = plan[self.named(name)]
            assert (change.contents, change.rows) == ("copy", self.rows[name]), name
        before = {name: self.ids(self.path(name)) for name in self.variants}
        report = self.start(third, approve=gone)
        assert (report.outcome, report.rows_copied) == ("migrated", sum(self.rows.values()))
        for name in self.variants:
            assert self.ids(self.named(name)) == before[name]
            for kind in ("t", "d"):
                assert seals.is_sealed(self.path(name, kind))
                self.refused(name, kind)
            assert self.count(self.path(name)) == self.rows[name]
            assert not self.spark.catalog.tableExists(f"{self.schema}.d{self.tables[name]}")

    def third(self) -> Any:
        def change(column: str, said: str) -> str:
            if not column:
                return "extra STRING COMMENT 'more'"
            return said.replace("BIGINT", "DECIMAL(20, 0)") if column == "id" else said

        return self.release(3, change, dropped=True)

    def ids(self, table: str) -> list[tuple[int, ...]]:
        frame = (
            self.spark.read.format("delta").load(table) if table.startswith("/")
            else self.spark.table(table)
        )
        return sorted(int(row[0]) for row in frame.select("id").collect())

    def roll_back(self) -> None:
        """The old columns with all rows, those that came after the copy included."""
        for name in self.variants:
            names = [column for column, _ in self.variants[name].shape if column not in "ng"]
            self.spark.sql(
                f"INSERT INTO {self.named(name)} ({', '.join(names)})"
                f" SELECT {', '.join(names)} FROM {self.named(name)} WHERE id = 1 LIMIT 1"
            )
            self.rows[name] += 1
        approved = [self.named(name) for name in self.variants]
        report = self.open().rollback(
            spark=self.spark, approve=[*approved, *(f"{each}.id" for each in approved)]
        )
        assert report.outcome == "rolled_back"
        for name in self.variants:
            frame = self.spark.table(self.named(name))
            assert frame.schema["id"].dataType.simpleString() == "bigint"
            assert frame.count() == self.rows[name]
            # the other one of each is there again, and takes rows
            again = f"{self.schema}.d{self.tables[name]}"
            assert self.spark.table(again).count() == self.left(name)

    def left(self, name: str) -> int:
        return 20 - 2 * self.variants[name].deletes

    def forget(self) -> None:
        """Lose every name of the session."""
        for schema in (self.schema, "catalog_migrate"):
            self.spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")


STEPS: Mapping[str, Callable[[Trial], None]] = {
    "adopt, count": Trial.adopt_and_count,
    "evolve": Trial.evolve,
    "seal, unseal": Trial.seal_and_unseal,
    "stream into": Trial.stream_into,
    "stream out of": Trial.stream_out_of,
    "copy, drop": Trial.copy_and_drop,
    "roll back": Trial.roll_back,
}
