"""A chain on the simulated engine: no JVM, milliseconds a release.

The simulated engine reads simple SELECTs only. Here a view's contract is taken for what its text
yields, once all that it reads stands; so this platform shows orders, ids, decisions and rows, and
Spark shows the SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.engine.port import BindResult, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.hook import BootstrapReport, migrate
from catalog_migrate.model.names import ItemName, split_name
from catalog_migrate.rollback import roll_back
from catalog_migrate.sql.references import references
from catalog_migrate.testing.clock import SimulatedClock
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World

if TYPE_CHECKING:
    from catalog_migrate.engine.port import BindRequest
    from catalog_migrate.policy import Policy
    from catalog_migrate.release.release import Release
    from catalog_migrate.testing.checks.check import Row

_WAREHOUSE = "/warehouse"


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
            holder="checks", approve=approve, wait=600.0, token=self._token, policy=self.policy,
        )

    def roll_back(self, serial: int, *, approve: Sequence[str] = ()) -> BootstrapReport:
        """Roll back to a serial, in a new process."""
        self.engine = _TrustingEngine(self.world)
        return roll_back(
            self.engine, self.log, to=serial, clock=self.clock, holder="checks", approve=approve,
            wait=600.0, token=self._token, policy=self.policy,
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
    """The simulated engine with views taken at their word, once what they read is there."""

    def bind(self, requests: Sequence[BindRequest]) -> Sequence[BindResult]:
        with self._call("bind"):
            return [
                BindResult(request.view.name, None, tuple(request.view.columns))
                for request in requests
            ]

    def _prove(self, view: ViewSpec) -> None:
        for schema, name in references(view.sql).relations:
            if schema is None:
                continue  # a common table expression, or an alias
            read = ItemName(schema, name)
            if self.standing_columns(read) is None:
                raise EngineFailure(
                    f"{view.name} reads {read}, which is not there",
                    condition="TABLE_OR_VIEW_NOT_FOUND",
                )
