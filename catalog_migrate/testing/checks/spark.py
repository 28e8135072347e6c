"""A chain on a real Spark session with Delta: what the team's customers will run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.store import open_log, read_state
from catalog_migrate.delta.datatypes import columns_of
from catalog_migrate.engine.port import Registration
from catalog_migrate.hook import BootstrapReport, bootstrap
from catalog_migrate.model.names import ItemName, quote_sql, split_name
from catalog_migrate.rollback import rollback

if TYPE_CHECKING:
    from catalog_migrate.policy import Policy
    from catalog_migrate.release.release import Release
    from catalog_migrate.testing.checks.check import Row

_KINDS: Mapping[str, Literal["table", "view", "function"]] = {
    "table": "table", "view": "view", "function": "function", "source": "table", "log": "table",
}  # fmt: skip


class SparkPlatform:
    """One installation in ``directory``, on a session that the caller made and will stop.

    A session whose names are in memory forgets those of the installation before each start, as
    the session of a new process would. ``policy`` holds the rules of the installation, as its
    configuration would.
    """

    def __init__(
        self, spark: Any, directory: str | os.PathLike[str], *, policy: Policy | None = None
    ) -> None:
        self.spark = spark
        self.policy = policy
        self.uri = os.path.join(os.path.abspath(os.fspath(directory)), "catalog")
        from catalog_migrate.engine.spark.engine import SparkEngine

        self._engine = SparkEngine(spark)

    @property
    def log(self) -> CatalogLog:
        """The durable catalog."""
        return open_log(self.uri)

    def start(self, release: Release, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """The start-up hook, in a session without names."""
        self.forget()
        return bootstrap(
            self.spark, release=release, catalog=self.uri, approve=approve, policy=self.policy
        )

    def roll_back(self, serial: int, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """``rollback --to SERIAL``, in a session without names."""
        self.forget()
        return rollback(
            self.spark, catalog=self.uri, to=serial, approve=approve, policy=self.policy
        )

    def forget(self) -> None:
        """Drop the names of this installation where they end with a process; rows stay."""
        if self._engine.persistent_names or not self.log.exists():
            return
        for mapping in read_state(self.log).mappings.values():
            kind = _KINDS.get(mapping.kind)
            if kind is not None:
                self._engine.drop(Registration(ItemName(mapping.schema, mapping.name), kind))

    def drift(self) -> Sequence[str]:
        """Names that are not what is committed."""
        found = Catalog.open(self.uri).drift(self._engine)
        return [f"{one.name}: {one.reason}" for one in found]

    def columns(self, name: str) -> Mapping[str, str]:
        """Column name -> canonical type, as Spark's analyser tells; views are analysed anew."""
        schema = self.spark.table(_quoted(name)).schema
        found = columns_of(json.loads(schema.json()))
        return {column.name.lower(): column.type for column in found}

    def rows(self, name: str) -> Sequence[Row]:
        """All rows of a table or view, collected."""
        found = self.spark.table(_quoted(name)).collect()
        return [{key.lower(): value for key, value in row.asDict().items()} for row in found]

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """Append rows by name."""
        schema = self.spark.table(_quoted(name)).schema
        values = [tuple(row.get(field.name.lower()) for field in schema) for row in rows]
        self.spark.createDataFrame(values, schema).write.insertInto(_quoted(name))


def _quoted(name: str) -> str:
    schema, plain = split_name(name)
    return f"{quote_sql(schema or 'default')}.{quote_sql(plain)}"
