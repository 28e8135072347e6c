"""One schedule: a chain of releases, writers, crashes and restarts, all drawn from one seed.

A schedule brings an installation from the first release of a chain to the last. Each start may be
killed at any call of engine or log; the next process runs the same, an older or a later release.
Foreign writers append at random calls, by path, as their own earlier look at the catalog told them.
The application's callback for derived tables may be absent, or fail. After every start the
invariants are checked (:mod:`tests.simulation.run`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.testing.bodies import Row
from catalog_migrate.testing.engine import SimulatedEngine
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import WAREHOUSE, Installation, release_of
from tests.simulation.invariants import InvariantBroken, require, table_shards
from tests.simulation.ledger import Ledger
from tests.simulation.releases import draft_chain
from tests.simulation.run import Populating, Run

LATEST_CRASH = 90
"""Crashes are drawn from the first so many points; a start that has fewer runs through.

A start that migrates has 60 to 120 points, its commit about half-way.
"""

LATEST_WRITE = 150
"""Writers append at points up to about this one."""

LENGTHS = (2, 2, 2, 3)
"""How many releases a chain has: mostly a pair, which every longer way is made of."""

POPULATING: tuple[Populating, ...] = ("fills", "fills", "fills", "fails", "absent")


class ScheduleReport(msgspec.Struct, frozen=True):
    """What a schedule did; ``trace`` has one line a start, for reading a failure. ``killed_at`` are
    the calls at which one was killed."""

    seed: int
    starts: int
    crashes: int
    rows: int
    trace: tuple[str, ...]
    killed_at: tuple[str, ...]


class ScheduleFailed(AssertionError):
    """A schedule broke an invariant or ended in an error; its message replays it.

    ``others`` are a line each of further ones that failed in the same run.
    """

    def __init__(self, seed: int, trace: Sequence[str], cause: object) -> None:
        super().__init__(seed, tuple(trace), str(cause))
        self.seed = seed
        self.others: tuple[str, ...] = ()

    def __str__(self) -> str:
        _, trace, cause = self.args
        return "\n  ".join((f"seed {self.seed}: {cause}", *trace))


class _Schedule:
    """One run, and what a seed says about it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        chain = draft_chain(seed, self.random.choice(LENGTHS))
        self.run = Run(chain, persistent=self.random.random() < 0.5, random=self.random)

    def run_to_end(self) -> ScheduleReport:
        """Every release in turn, with rows written after each."""
        run = self.run
        for target in range(len(run.chain)):
            self.reach(target)
            run.write(self.random.randint(0, 4), must=True)
        return ScheduleReport(
            self.seed, run.starts, run.crashes, run.rows, tuple(run.trace), tuple(run.killed_at)
        )

    def reach(self, target: int) -> None:
        """Bring one release in force, through crashes, and check what it left."""
        run, random = self.run, self.random
        if random.random() < 0.3:
            run.check_plan(target, shuffled=random.random() < 0.5, read_only=random.random() < 0.5)
        choice, engine = target, None
        # most of what can go wrong needs an earlier release: the first is seldom killed
        for _ in range(random.choice((1, 1, 1, 2) if target else (0, 0, 0, 1))):
            engine = self.attempt(choice, crash_at=random.randint(1, LATEST_CRASH))
            if engine is None:
                choice = random.choice((target, target, self.other(target)))
        held = run.release_in_force()
        wanted = max(target, held)
        if engine is None or wanted != held or choice != wanted:
            engine = self.attempt(wanted, crash_at=None)
        if engine is None:
            raise InvariantBroken("I6", "a start without a crash did not end")
        run.check_settled(engine, wanted, again=random.random() < 0.25)

    def other(self, target: int) -> int:
        """An older or a later release."""
        return self.random.randrange(len(self.run.chain)) if target else 0

    def attempt(self, number: int, *, crash_at: int | None) -> SimulatedEngine | None:
        """One start, with writers at about every 33rd point."""
        writes, point = set(), 0
        while point < LATEST_WRITE:
            point += 1 + int(self.random.expovariate(1 / 33))
            writes.add(point)
        populating = self.random.choice(POPULATING)
        if crash_at is None and populating == "fails":
            populating = "fills"
        return self.run.attempt(number, crash_at=crash_at, populating=populating, writes=writes)


def run_schedule(seed: int) -> ScheduleReport:
    """Run the schedule of a seed; ScheduleFailed says how it broke and how it came there."""
    schedule = _Schedule(seed)
    try:
        return schedule.run_to_end()
    except (InvariantBroken, CatalogMigrateError) as error:
        raise ScheduleFailed(seed, schedule.run.trace, error) from error


def compare_paths(seed: int) -> None:
    """I4: through every release and straight to the last, the ends differ in nothing but ids.

    ScheduleFailed when they do.
    """
    chain = draft_chain(seed, 4)
    try:
        first = _beginning_of(seed, chain)
        through, straight = (_end_of(first, path) for path in (chain[1:], chain[-1:]))
        require("I4", through == straight, f"{through} != {straight}")
    except (InvariantBroken, CatalogMigrateError) as error:
        trace = [f"release {draft.name}: {', '.join(draft.mutations)}" for draft in chain]
        raise ScheduleFailed(seed, trace, error) from error


def _beginning_of(seed: int, chain: Sequence[DraftedRelease]) -> Installation:
    """The first release of a chain in force, with three rows in each of its tables."""
    place = Installation(persistent=True)
    place.start(chain[0], release_of(chain[0]), populate=place.populate())
    _fill(place, Ledger(chain), Random(seed))
    return place


def _end_of(
    first: Installation, path: Sequence[DraftedRelease]
) -> tuple[list[ObjectDefinition], dict[str, tuple[Row, ...]]]:
    """Definitions and rows after a path from the first release on."""
    place = Installation(persistent=True)
    place.take_over(first)
    for draft in path:
        place.start(draft, release_of(draft), populate=place.populate())
    state = place.state()
    if state is None:
        raise InvariantBroken("I4", "no catalog came of it")
    definitions = sorted(
        (_without_decisions(item.definition) for item in state.items.values()),
        key=lambda d: str(d.key),
    )
    rows = {
        name: place.world.rows(f"{WAREHOUSE}/{shard}")
        for name, shard in sorted(table_shards(state).items())
    }
    return definitions, rows


def _without_decisions(definition: ObjectDefinition) -> ObjectDefinition:
    """What an object is: how it came to be so is the release's to say, and another on each path."""
    return msgspec.structs.replace(
        definition, renamed_from=None, dropped=(), was=None,
        columns=tuple(
            msgspec.structs.replace(column, using=None, default=None, renamed_from=None)
            for column in definition.columns
        ),
    )


def _fill(place: Installation, ledger: Ledger, random: Random) -> None:
    """Three rows in every table in force that is not derived."""
    state = place.state()
    for name, shard in sorted(table_shards(state).items()) if state is not None else ():
        if name not in ledger.derived:
            path = f"{WAREHOUSE}/{shard}"
            columns = place.world.newest(path).columns
            place.world.append(path, [ledger.new_row(columns, random) for _ in range(3)])
