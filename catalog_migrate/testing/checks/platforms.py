"""Where a chain runs: on the simulated engine, or on a real Spark session with Delta.

The simulated one needs no JVM and takes milliseconds a release, and reads simple SELECTs only. A
view's contract is taken for what its text yields there, once all that it reads stands; so it shows
orders, ids, decisions and rows, and Spark shows the SQL.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.delta.datatypes import columns_of
from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    Registration,
    ViewSpec,
)
from catalog_migrate.errors import EngineFailure
from catalog_migrate.hook import BootstrapReport, bootstrap, rollback
from catalog_migrate.model.names import ItemName, quote_sql, split_name
from catalog_migrate.sql.references import references
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import SimulatedClock, World

if TYPE_CHECKING:
    from catalog_migrate.engine.port import BindRequest
    from catalog_migrate.policy import Policy
    from catalog_migrate.release.release import Release
    from catalog_migrate.testing.checks.chain import Row

_WAREHOUSE = "/warehouse"
_KINDS: Mapping[str, Literal["table", "view", "function"]] = {
    "table": "table", "view": "view", "function": "function", "source": "table", "log": "table",
}  # fmt: skip


class SimulatedPlatform:
    """The installation in memory; every start is a new simulated process.

    ``policy`` holds the rules of the installation, as its configuration would.
    """

    def __init__(self, *, policy: Policy | None = None) -> None:
        self.policy = policy
        self.world = World()
        self.log = MemoryLog()
        self.clock = SimulatedClock(stretch=10.0)
        self.engine: SimulatedEngine = _TrustingEngine(self.world)
        self._tokens = count()

    def start(self, release: Release, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """Start a process with a release."""
        self.engine = _TrustingEngine(self.world)
        return migrate(
            self.engine, self.log, release, warehouse=_WAREHOUSE, clock=self.clock,
            holder="checks", approve=approve, timeout=600.0, token=self._token, policy=self.policy,
        )

    def roll_back(self, serial: int, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """Roll back to a serial, in a new process."""
        self.engine = _TrustingEngine(self.world)
        return roll_back(
            self.engine, self.log, to=serial, clock=self.clock, holder="checks", approve=approve,
            timeout=600.0, token=self._token, policy=self.policy,
        )

    def _token(self) -> str:
        return f"{next(self._tokens):06d}"

    def drift(self) -> Sequence[str]:
        """Names that are not what is committed."""
        return [f"{one.name}: {one.reason}" for one in Catalog(self.log).drift(self.engine)]

    def columns(self, name: str) -> Mapping[str, str]:
        """Column name -> type, of the shard under a table's name or of a view's contract."""
        standing = self.engine.standing_columns(_relation(name))
        if standing is None:
            raise EngineFailure(f"{name} cannot be found", condition="TABLE_OR_VIEW_NOT_FOUND")
        return {column.name.lower(): column.type for column in standing}

    def rows(self, name: str) -> Sequence[Row]:
        """All rows of a table."""
        return self.engine.read(_relation(name))

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """Append rows to a table as any writer would."""
        self.world.append(self.engine.location(_relation(name)), rows)


def _relation(name: str) -> ItemName:
    schema, plain = split_name(name)
    return ItemName(schema or "default", plain)


class _TrustingEngine(SimulatedEngine):
    """The simulated engine with texts taken at their word, once what they read is there."""

    def bind(self, requests: Sequence[AnyRequest]) -> Sequence[BindResult]:
        with self._call("bind"):
            return [
                BindResult(
                    each.name, None,
                    tuple(each.view.columns) if isinstance(each, BindRequest) else None,
                )
                for each in requests
            ]

    def _require_bindable(self, view: ViewSpec) -> None:
        for schema, name in references(view.sql).relations:
            if schema is None:
                continue  # a common table expression, or an alias
            read = ItemName(schema, name)
            if self.standing_columns(read) is None:
                raise EngineFailure(
                    f"{view.name} reads {read}, which is not there",
                    condition="TABLE_OR_VIEW_NOT_FOUND",
                )


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
        schema = self.spark.table(_quote(name)).schema
        found = columns_of(json.loads(schema.json()))
        return {column.name.lower(): column.type for column in found}

    def rows(self, name: str) -> Sequence[Row]:
        """All rows of a table or view, collected."""
        found = self.spark.table(_quote(name)).collect()
        return [{key.lower(): value for key, value in row.asDict().items()} for row in found]

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """Append rows by name."""
        schema = self.spark.table(_quote(name)).schema
        values = [tuple(row.get(field.name.lower()) for field in schema) for row in rows]
        self.spark.createDataFrame(values, schema).write.insertInto(_quote(name))


def _quote(name: str) -> str:
    schema, plain = split_name(name)
    return f"{quote_sql(schema or 'default')}.{quote_sql(plain)}"
