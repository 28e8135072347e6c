"""An installation in memory: its world, catalog and clock, and processes that start on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.state import State
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.build_tables import Populate
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy
from catalog_migrate.release.release import Release
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import SimulatedClock, World
from catalog_migrate.users.settings import UserSettings
from tests.simulation.draft import DraftedRelease
from tests.simulation.ledger import derived_rows

WAREHOUSE = "/warehouse"


class PopulateFailed(Exception):
    """What the application's callback raises where a schedule wants it to fail."""


def release_of(draft: DraftedRelease) -> Release:
    """A draft as the loader would hand it over."""
    return Release(
        name=draft.name,
        objects=draft.objects,
        manifest_hash=f"draft {draft.name}",
        uses={
            definition.identity: tuple(
                parse_reference(text) for text in definition.depends_on or ()
            )
            for definition in draft.objects
        },
        places={},
    )


def reordered(release: Release, objects: tuple[ObjectDefinition, ...]) -> Release:
    """The same release as another process reads it: its objects in another order.

    Hashes of definitions do not hang on that, and are shared.
    """
    other = replace(release, objects=objects)
    object.__setattr__(other, "facts", release.facts)
    return other


@dataclass(frozen=True, slots=True)
class PortFault:
    """What processes are started with, any of it with a fault put in on purpose.

    ``settings`` go over those of a start; without ``sessions`` no process says that it lives on;
    ``plan`` is what plans are checked by, beside the processes.
    """

    engine: type[SimulatedEngine] = SimulatedEngine
    log: Callable[[MemoryLog], MemoryLog] = lambda log: log
    streams: type[MigratedStreams] = MigratedStreams
    settings: Mapping[str, Any] = field(default_factory=dict)
    sessions: bool = True
    plan: Callable[..., Migration] = plan_migration


NO_FAULT = PortFault()


@dataclass(slots=True)
class Installation:
    """The world with its catalog and clock, and tokens for paths that are alike in every run.

    ``persistent`` says whether names outlive a process.
    """

    persistent: bool
    fault: PortFault = NO_FAULT
    world: World = field(default_factory=World)
    log: MemoryLog = field(default_factory=MemoryLog)
    clock: SimulatedClock = field(default_factory=lambda: SimulatedClock(stretch=10.0))
    tokens: Iterator[int] = field(default_factory=count)
    processes: Iterator[int] = field(default_factory=count)

    def start(
        self,
        draft: DraftedRelease,
        release: Release,
        *,
        on_call: Callable[[str], None] | None = None,
        engine: SimulatedEngine | None = None,
        populate: Populate | None = None,
        read_only: bool = False,
        log: CatalogLog | None = None,
        clock: Clock | None = None,
        holder: str | None = None,
        policy: Policy | None = None,
        session: bool = False,
        repairs: bool = False,
    ) -> tuple[SimulatedEngine, BootstrapReport]:
        """A process that starts with a release, to its end; with a log and clock of its own."""
        if engine is None:
            engine = self.fault.engine(
                self.world, persistent=self.persistent, on_call=on_call
            )
        report = migrate(
            engine, self.fault.log(self.log.attach(on_call)) if log is None else log, release,
            warehouse=WAREHOUSE, clock=clock or self.clock,
            holder=holder or f"process {next(self.processes)}", approve=draft.approve,
            populate=populate, timeout=600.0, token=self.token, read_only=read_only,
            session=session and self.fault.sessions, streams=self.fault.streams(),
            users=UserSettings(threads=1, repair=repairs),
            **{"policy": policy, **self.fault.settings},
        )  # fmt: skip
        return engine, report

    def back(
        self, to: int | None, *, engine: SimulatedEngine, log: CatalogLog, clock: Clock,
        holder: str, approve: Collection[str], repairs: bool = False,
    ) -> BootstrapReport:
        """A process that an operator starts to go back to a serial, to its end."""
        return roll_back(
            engine, log, to=to, clock=clock, holder=holder, approve=approve, timeout=600.0,
            token=self.token, streams=self.fault.streams(),
            users=UserSettings(threads=1, repair=repairs), **self.fault.settings,
        )

    def token(self) -> str:
        """A part of a path that no other attempt uses."""
        return f"{next(self.tokens):06d}"

    def take_over(self, other: Installation) -> None:
        """Begin with what another installation has at this moment."""
        self.world.copy_from(other.world)
        self.log.copy_from(other.log)
        at = next(other.tokens), next(other.processes)
        other.tokens, other.processes = count(at[0]), count(at[1])
        self.tokens, self.processes = count(at[0]), count(at[1])

    def populate(
        self, on_call: Callable[[str], None] | None = None, *, fails: bool = False
    ) -> Populate:
        """The application's callback; it may die or fail between two rows."""

        def fill(_: str, path: str) -> None:
            for row in derived_rows(self.world.newest(path).columns):
                self.world.append(path, [row])
                if on_call is not None:
                    on_call("populate")
                if fails:
                    raise PopulateFailed

        return fill

    def state(self) -> State | None:
        """The committed state; None before there is a catalog."""
        return self.log.state
