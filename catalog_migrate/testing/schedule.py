"""One schedule: a chain of releases, writers, crashes and restarts, all drawn from one seed.

A schedule brings an installation from the first release of a chain to the last. Each start may be
killed at any call of engine or log; the next process runs the same, an older or a later release.
Foreign writers append at random calls, by path, as their own earlier look at the catalog told them.
After every start the invariants are checked (:mod:`catalog_migrate.testing.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from catalog_migrate.bootstrap import BootstrapReport, migrate
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.store import read_state
from catalog_migrate.errors import CatalogMigrateError, CatalogNotFound, EngineFailure
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.release import Release
from catalog_migrate.testing.bodies import Row
from catalog_migrate.testing.checks import (
    IdentityWatch,
    InvariantBroken,
    check_committed,
    check_orders,
    check_reconciled,
    require,
    table_shards,
)
from catalog_migrate.testing.clock import SimulatedClock
from catalog_migrate.testing.crashes import CrashPoint, SimulatedCrash
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.ledger import Ledger
from catalog_migrate.testing.releases import DraftedRelease, draft_chain
from catalog_migrate.testing.world import World

WAREHOUSE = "/warehouse"

LATEST_CRASH = 90
"""Crashes are drawn from the first so many points; a start that has fewer runs through.

A start that migrates has 60 to 120 points, its commit about half-way.
"""

LENGTHS = (2, 2, 2, 3)
"""How many releases a chain has: mostly a pair, which every longer way is made of."""


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """What a schedule did; ``trace`` has one line a start, for reading a failure."""

    seed: int
    starts: int
    crashes: int
    rows: int
    trace: tuple[str, ...]


class ScheduleFailed(AssertionError):
    """A schedule broke an invariant or ended in an error; its message replays it."""

    def __init__(self, seed: int, trace: Sequence[str], cause: object) -> None:
        super().__init__(seed, tuple(trace), str(cause))
        self.seed = seed

    def __str__(self) -> str:
        _, trace, cause = self.args
        return "\n  ".join((f"seed {self.seed}: {cause}", *trace))


def release_of(
    draft: DraftedRelease, objects: tuple[ObjectDefinition, ...] | None = None
) -> Release:
    """A draft as the loader would hand it over; ``objects`` puts them in another order."""
    return Release(
        name=draft.name,
        objects=draft.objects if objects is None else objects,
        manifest_hash=f"draft {draft.name}",
        uses={
            definition.identity: tuple(
                parse_reference(text) for text in definition.depends_on or ()
            )
            for definition in draft.objects
        },
        places={},
    )


@dataclass(slots=True)
class _Installation:
    """The world with its catalog and clock, and tokens for paths that are alike in every run."""

    persistent: bool
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
        read_only: bool = False,
    ) -> tuple[SimulatedEngine, BootstrapReport]:
        """A process that starts with a release, to its end."""
        if engine is None:
            engine = SimulatedEngine(self.world, persistent=self.persistent, on_call=on_call)
        report = migrate(
            engine, self.log.attach(on_call), release, warehouse=WAREHOUSE, clock=self.clock,
            holder=f"process {next(self.processes)}", approve=draft.approve,
            wait=600.0, token=lambda: f"{next(self.tokens):06d}", read_only=read_only,
        )  # fmt: skip
        return engine, report

    def state(self) -> State | None:
        """The committed state; None before there is a catalog."""
        try:
            return read_state(self.log)
        except CatalogNotFound:
            return None


class _Schedule:
    """One run: the installation, the oracle, and what was drawn from the seed so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 - must be repeatable, not secret
        self.chain = draft_chain(seed, self.random.choice(LENGTHS))
        self.releases = [release_of(draft) for draft in self.chain]
        self.place = _Installation(persistent=self.random.random() < 0.5)
        self.ledger = Ledger(self.chain)
        self.watch = IdentityWatch()
        self.tables = {
            shape.name: number
            for draft in self.chain
            for number, shape in draft.tables.items()
        }
        self.known_paths: list[tuple[int, str]] = []
        self.starts = self.crashes = self.rows = 0
        self.trace: list[str] = []

    # the run ---------------------------------------------------------------------------------
    def run(self) -> ScheduleReport:
        """Every release in turn, with rows written after each."""
        for target in range(len(self.chain)):
            self.reach(target)
            self.write(self.random.randint(0, 4), must=True)
        return ScheduleReport(
            self.seed, self.starts, self.crashes, self.rows, tuple(self.trace)
        )

    def reach(self, target: int) -> None:
        """Bring one release in force, through crashes, and check what it left."""
        if self.random.random() < 0.3:
            self.check_plan(target)
        choice, engine = target, None
        # most of what can go wrong needs an earlier release: the first is seldom killed
        for _ in range(self.random.choice((1, 1, 1, 2) if target else (0, 0, 0, 1))):
            engine = self.attempt(choice)
            if engine is None:
                choice = self.random.choice((target, target, self.other(target)))
        held = self.release_in_force()
        wanted = max(target, held)
        if engine is None or wanted != held or choice != wanted:
            engine = self.attempt(wanted, crash=False)
        if engine is None:
            raise InvariantBroken("I6", "a start without a crash did not end")
        self.check_settled(engine, wanted)

    def release_in_force(self) -> int:
        """The number of the release in force, -1 when there is none."""
        state = self.place.state()
        held = None if state is None else state.release_in_force()
        return -1 if held is None else int(held.name) - 1

    def other(self, target: int) -> int:
        """An older or a later release."""
        return self.random.randrange(len(self.chain)) if target else 0

    def attempt(self, number: int, *, crash: bool = True) -> SimulatedEngine | None:
        """One start; None when it was killed. Checks what holds at any moment."""
        at = self.random.randint(1, LATEST_CRASH) if crash else None
        point = CrashPoint(at)

        def on_call(call: str) -> None:
            if self.random.random() < 0.03:
                self.write(1)
            point.on_call(call)

        self.starts += 1
        engine: SimulatedEngine | None = None
        try:
            engine, report = self.place.start(
                self.chain[number], self.releases[number], on_call=on_call
            )
            line = str(report.outcome)
        except SimulatedCrash as crashed:
            self.crashes += 1
            line = str(crashed)
        if engine is not None:
            engine.on_call = lambda _: None
        self.trace.append(f"release {number + 1}: {line}")
        self.look()
        return engine

    def look(self) -> None:
        """Follow the catalog: what came in force, where tables are; check what always holds."""
        state = self.place.state()
        if state is None:
            return
        replayed = {(kind, key): value for kind, key, value in self.place.log.replay().rows}
        kept = {
            (kind, key): value for kind, held in state.raw.items() for key, value in held.items()
        }
        require("I6", kept == replayed, "the log does not sum up to the state that was committed")
        held = state.release_in_force()
        if held is not None:
            self.ledger.put_in_force(held.name)
        shards = table_shards(state)
        self.known_paths = [
            (self.tables[name], f"{WAREHOUSE}/{path}") for name, path in sorted(shards.items())
        ]
        self.watch.see(state, self.tables)
        check_committed(self.place.world, state, self.ledger, WAREHOUSE)

    # writers ---------------------------------------------------------------------------------
    def write(self, rows: int, *, must: bool = False) -> None:
        """A foreign writer appends single rows, by the paths it knows; ``must``: none refused."""
        for _ in range(rows if self.known_paths else 0):
            table, path = self.random.choice(self.known_paths)
            row = self.ledger.new_row(self.place.world.newest(path).columns, self.random)
            try:
                self.place.world.append(path, [row])
            except EngineFailure as refusal:
                require("I6", not must, f"{path} is in force and refuses rows: {refusal}")
                continue
            self.ledger.acknowledge(table, row)
            self.rows += 1

    # checks ----------------------------------------------------------------------------------
    def check_plan(self, target: int) -> None:
        """I1 and I2, and I10 for a read-only start."""
        state = self.place.state()
        baseline = Baseline.empty() if state is None else Baseline.from_state(state)
        draft, release = self.chain[target], self.releases[target]
        migration = plan_migration(baseline, release, approve=draft.approve)
        check_orders(baseline, release, migration)
        if self.random.random() < 0.5:
            shuffled = self.random.sample(draft.objects, len(draft.objects))
            again = plan_migration(
                baseline, release_of(draft, tuple(shuffled)), approve=draft.approve
            )
            require("I2", again.plan == migration.plan, "another plan for another order")
        if state is not None and self.random.random() < 0.5:
            before = (self.place.world.writes, self.place.log.version())
            self.place.start(draft, release, read_only=True)
            after = (self.place.world.writes, self.place.log.version())
            require("I10", before == after, "a read-only start wrote something")

    def check_settled(self, engine: SimulatedEngine, target: int) -> None:
        """I6 and I3: the world is what is committed, and the same release again is nothing."""
        state = self.place.state()
        if state is None:
            raise InvariantBroken("I6", "a start ended without a catalog")
        held = state.release_in_force()
        name = self.chain[target].name
        require("I6", held is not None and held.name == name, f"{held} is in force, not {name}")
        check_reconciled(engine, state, self.ledger, WAREHOUSE)
        if self.random.random() < 0.25:
            before = (self.place.world.writes, self.place.log.version())
            _, report = self.place.start(
                self.chain[target], self.releases[target], engine=engine
            )
            after = (self.place.world.writes, self.place.log.version())
            require("I3", report.outcome == "unchanged", f"again: {report.outcome}")
            require("I3", before == after, "the same release again wrote something")


def run_schedule(seed: int) -> ScheduleReport:
    """Run the schedule of a seed; ScheduleFailed says how it broke and how it came there."""
    schedule = _Schedule(seed)
    try:
        return schedule.run()
    except (InvariantBroken, CatalogMigrateError) as error:
        raise ScheduleFailed(seed, schedule.trace, error) from error


def compare_paths(seed: int) -> None:
    """I4: through every release and straight to the last, the ends differ in nothing but ids.

    ScheduleFailed when they do.
    """
    chain = draft_chain(seed, 4)
    try:
        through, straight = (_end_of(seed, chain, path) for path in (chain, (chain[0], chain[-1])))
        require("I4", through == straight, f"{through} != {straight}")
    except (InvariantBroken, CatalogMigrateError) as error:
        trace = [f"release {draft.name}: {', '.join(draft.mutations)}" for draft in chain]
        raise ScheduleFailed(seed, trace, error) from error


def _end_of(
    seed: int, chain: Sequence[DraftedRelease], path: Sequence[DraftedRelease]
) -> tuple[list[ObjectDefinition], dict[str, tuple[Row, ...]]]:
    """Definitions and rows after a path, with three rows in each table of its first release."""
    place, ledger = _Installation(persistent=True), Ledger(chain)
    random = Random(seed)  # noqa: S311 - must be repeatable, not secret
    engine: SimulatedEngine | None = None
    for draft in path:
        engine, _ = place.start(draft, release_of(draft))
        if draft is chain[0]:
            _fill(place, ledger, random)
    state = place.state()
    if engine is None or state is None:
        raise InvariantBroken("I4", "no catalog came of it")
    definitions = sorted(
        (item.definition for item in state.items.values()), key=lambda d: str(d.key)
    )
    rows = {
        name: place.world.rows(f"{WAREHOUSE}/{shard}")
        for name, shard in sorted(table_shards(state).items())
    }
    return definitions, rows


def _fill(place: _Installation, ledger: Ledger, random: Random) -> None:
    """Three rows in every table in force."""
    state = place.state()
    for _, shard in sorted(table_shards(state).items()) if state is not None else ():
        path = f"{WAREHOUSE}/{shard}"
        columns = place.world.newest(path).columns
        place.world.append(path, [ledger.new_row(columns, random) for _ in range(3)])
