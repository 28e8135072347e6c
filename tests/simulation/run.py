"""One run of an installation through starts, crashes and writers, checked after every step.

Who decides what happens is somebody else: a seed (:mod:`tests.simulation.schedule`) or a
test that draws every choice (:mod:`tests.simulation.trace`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import EngineFailure, PrepareFailed
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.testing.engine import SimulatedEngine
from tests.simulation.crashes import CrashPoint, SimulatedCrash
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import NO_FAULT, WAREHOUSE, Installation, PortFault, release_of
from tests.simulation.invariants import (
    IdentityWatch,
    InvariantBroken,
    KeyWatch,
    LogSum,
    SoundWatch,
    check_orders,
    check_reconciled,
    require,
    table_shards,
)
from tests.simulation.ledger import Ledger
from tests.simulation.record_invariants import RecordWatch, check_tables

Populating = Literal["fills", "fails", "absent"]
"""What the application's callback for derived tables does in one start."""


class Run:
    """The installation, the oracle and what was seen so far; ``random`` answers what is open."""

    def __init__(
        self, chain: Sequence[DraftedRelease], *, persistent: bool, random: Random,
        records: bool = True, fault: PortFault = NO_FAULT,
    ) -> None:
        """``records``: what every commit puts on record is compared with release and world."""
        self.random = random
        self.chain = chain
        self.releases = [release_of(draft) for draft in chain]
        self.place = Installation(persistent, fault)
        self.ledger = Ledger(chain)
        self.sound = SoundWatch()
        self.keys = KeyWatch(self.place.world, self.ledger, WAREHOUSE)
        self.watch = IdentityWatch()
        self.log_sum = LogSum()
        self.records = (
            RecordWatch(self.place.world, self.ledger, self.releases, WAREHOUSE)
            if records else None
        )
        self.tables = {
            shape.name: number for draft in chain for number, shape in draft.tables.items()
        }
        self.known_paths: list[tuple[int, str]] = []
        self.killed_at: list[str] = []
        self.starts = self.crashes = self.rows = self.rollbacks = 0
        self._looked = 0
        self._items: object = None
        self._shards: dict[str, str] = {}
        self.trace: list[str] = []

    # starts ----------------------------------------------------------------------------------
    def release_in_force(self) -> int:
        """The number of the release in force, -1 when there is none."""
        state = self.place.state()
        held = None if state is None else state.release_in_force()
        return -1 if held is None else int(held.name) - 1

    def attempt(
        self,
        number: int,
        *,
        crash_at: int | None,
        populating: Populating = "fills",
        writes: Container[int] = (),
    ) -> SimulatedEngine | None:
        """One start; None when it was killed or failed. Checks what holds at any moment.

        ``crash_at`` is the point that kills it, counted from 1, ``writes`` are the points, counted
        from 0, before which a foreign writer appends a row.
        """
        point = CrashPoint(crash_at)
        announce = point.on_call

        def on_call(call: str) -> None:
            if point.count in writes:
                self.write(1)
            announce(call)

        self.starts += 1
        populate = None
        if populating != "absent":
            populate = self.place.populate(on_call, fails=populating == "fails")
        engine: SimulatedEngine | None = None
        try:
            engine, report = self.place.start(
                self.chain[number], self.releases[number], on_call=on_call, populate=populate
            )
            line = str(report.outcome)
            require("I7", line != "followed", "followed, and there is nobody else")
        except SimulatedCrash as crashed:
            self.crashes += 1
            self.killed_at.append(point.calls[-1])
            line = str(crashed)
        except PrepareFailed as failure:
            if populating != "fails":
                raise
            line = f"failed: {failure.message}"
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
        self.log_sum.follow(self.place.log.rows)
        self.log_sum.check(state)
        self.follow(state)
        items = state.raw.get("item")
        if items is not self._items:
            self._items = items
            self._shards = table_shards(state)
            self.known_paths = [
                (self.tables[name], f"{WAREHOUSE}/{path}")
                for name, path in sorted(self._shards.items())
                if name not in self.ledger.derived
            ]
        self.sound.see(state)
        if self.records is not None:
            self.records.see(state)
        self.watch.see(state, self.tables)
        self.keys.see(state, self._shards)

    def follow(self, state: State | None = None) -> None:
        """Let the oracle hear which release is in force."""
        state = state or self.place.state()
        held = None if state is None else state.release_in_force()
        if state is not None and held is not None:
            self.ledger.put_in_force(held.name, serial=state.serial, back_to=self._went_back())

    def _went_back(self) -> int | None:
        """The serial that a commit since the last look went back to."""
        history, first = self.place.log.history, self._looked
        self._looked = len(history)
        found = (metadata.get("rollback_to") for _, metadata in history[first:])
        return next((int(serial) for serial in found if serial is not None), None)

    def approvals_back(self, draft: DraftedRelease) -> tuple[str, ...]:
        """What a rollback to a release needs: tables and columns that came later may go."""
        approve: set[str] = set()
        columns: dict[int, set[str]] = {}
        for other in self.chain:
            for number, shape in other.tables.items():
                columns.setdefault(number, set()).update(column.name for column in shape.columns)
            approve.update(
                f"{each.schema}.{each.name}" for each in other.objects
                if each.kind == "table" and other.number_of(each) not in draft.tables
            )
        for each in draft.objects:
            if each.kind == "table":
                names = columns[draft.number_of(each)]
                approve.update(f"{each.schema}.{each.name}.{name}" for name in names)
        return tuple(sorted(approve))

    # writers ---------------------------------------------------------------------------------
    def write(self, rows: int, *, must: bool = False) -> None:
        """A foreign writer appends single rows, by the paths it knows; ``must``: none refused.

        Where a table has CHECKs, some rows break them: those must be refused.
        """
        world = self.place.world
        if self.known_paths:
            self.follow()  # which columns are in force is told by the release
        for _ in range(rows if self.known_paths else 0):
            table, path = self.random.choice(self.known_paths)
            newest = world.newest(path)
            row = self.ledger.new_row(newest.columns, self.random)
            breaks = bool(newest.checks) and self.random.random() < 0.3
            if breaks:
                row[newest.columns[0].name] = -1_000
            try:
                world.append(path, [row])
            except EngineFailure as refusal:
                require("I6", breaks or not must, f"{path} is in force and refuses rows: {refusal}")
                continue
            require("I6", not breaks, f"{path} took a row against its CHECKs")
            self.ledger.acknowledge(table, row)
            self.rows += 1

    # checks ----------------------------------------------------------------------------------
    def check_plan(self, target: int, *, shuffled: bool, read_only: bool) -> None:
        """I1; I2 with the definitions ``shuffled``; I10 for a ``read_only`` start."""
        state = self.place.state()
        baseline = Baseline.empty() if state is None else Baseline.from_state(state)
        draft, release = self.chain[target], self.releases[target]
        plan = self.place.fault.plan
        migration = plan(baseline, release, approve=draft.approve)
        check_orders(baseline, release, migration)
        if shuffled:
            objects = self.random.sample(draft.objects, len(draft.objects))
            again = plan(
                baseline, replace(release, objects=tuple(objects)), approve=draft.approve
            )
            require("I2", again.plan == migration.plan, "another plan for another order")
        if state is not None and read_only:
            before = (self.place.world.writes, self.place.log.version())
            self.place.start(draft, release, read_only=True)
            after = (self.place.world.writes, self.place.log.version())
            require("I10", before == after, "a read-only start wrote something")

    def check_settled(
        self, engine: SimulatedEngine, target: int, *, again: bool, late: bool = False,
    ) -> None:
        """I6: the world is what is committed. I3, where ``again``: the same release is nothing.

        ``late``: an act may have come late, and made a shard again that is on record as gone.
        """
        state = self.place.state()
        if state is None:
            raise InvariantBroken("I6", "a start ended without a catalog")
        held = state.release_in_force()
        name = self.chain[target].name
        require("I6", held is not None and held.name == name, f"{held} is in force, not {name}")
        check_reconciled(engine, state, self.ledger, WAREHOUSE, late=late)
        check_tables(self.place.world, state, WAREHOUSE)
        if again:
            before = (self.place.world.writes, self.place.log.version())
            _, report = self.place.start(self.chain[target], self.releases[target], engine=engine)
            after = (self.place.world.writes, self.place.log.version())
            require("I3", report.outcome == "unchanged", f"again: {report.outcome}")
            require("I3", before == after, "the same release again wrote something")
