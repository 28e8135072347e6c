"""A metastore of the simulation with releases and users' views in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import UserObjectRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FunctionSpec, QueryRequest, SchemaMode
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.policy import Policy
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import UserView, World
from catalog_migrate.users.settings import UserSettings
from tests.simulation.installation import SimulatedClock

OnCall = Callable[[str], None]


def release(name: str, sql: str) -> Release:
    """A release of one text."""
    return load_texts([("release.sql", sql)], name=name, default_schema="s")


@dataclass(slots=True)
class Place:
    """One installation: its world, log and clock."""

    persistent: bool = True
    world: World = field(default_factory=World)
    log: MemoryLog = field(default_factory=MemoryLog)
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    engines: list[SimulatedEngine] = field(default_factory=list)

    def engine(self, on_call: OnCall | None = None) -> SimulatedEngine:
        """A new session."""
        made = SimulatedEngine(self.world, persistent=self.persistent, on_call=on_call)
        self.engines.append(made)
        return made

    def start(
        self, brought: Release, *, engine: SimulatedEngine | None = None,
        on_call: OnCall | None = None, repair: bool = False, policy: Policy | None = None,
        approve: tuple[str, ...] = (), read_only: bool = False,
    ) -> BootstrapReport:
        """A start of the software with a release."""
        return migrate(
            engine or self.engine(on_call), self.log.attach(on_call), brought, warehouse="/w",
            clock=self.clock, holder="p", policy=policy, approve=approve, timeout=600.0,
            users=UserSettings(threads=1, repair=repair), read_only=read_only,
        )

    def back(self, to: int, *, repair: bool = False) -> BootstrapReport:
        """A rollback to a serial."""
        return roll_back(
            self.engine(), self.log, to=to, clock=self.clock, holder="p", timeout=600.0,
            users=UserSettings(threads=1, repair=repair),
        )

    def view(
        self, name: str, sql: str, mode: SchemaMode = "COMPENSATION",
        engine: SimulatedEngine | None = None,
    ) -> UserView:
        """A user's view ``team.name`` with names of the schema ``s``."""
        engine = engine or self.engine()
        key = ItemName("team", name)
        found = engine.analyse([QueryRequest(key, sql, {}, namespace="s")])[0].columns
        assert found is not None
        stored = tuple(Column(column.name, column.type) for column in found)
        made = UserView(
            key, stored, sql, None, {}, mode, tuple(c.name for c in found), namespace="s"
        )
        engine._names.schemas.add("team")
        engine._names.relations[key.folded] = made
        return made

    def function(self, name: str, argument: str, returns: str, body: str) -> None:
        """A user's function ``team.name(x argument)``."""
        engine = self.engine()
        made = FunctionSpec(ItemName("team", name), (Argument("x", argument),), returns, body)
        engine._names.schemas.add("team")
        engine._names.functions[made.name.folded] = made

    @property
    def state(self) -> State:
        """What is committed."""
        return read_state(self.log)

    def record(self, key: str) -> UserObjectRecord:
        """What is on record of a user's object."""
        return self.state.user_objects[key]
