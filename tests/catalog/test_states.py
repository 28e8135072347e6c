"""The crash table holds: every call of a start is its last once, and each release comes next."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.history import entries
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogNotFound, EngineFailure, NotReconciled
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World
from tests.simulation import states
from tests.simulation.crashes import CrashPoint, SimulatedCrash
from tests.simulation.states import DurableState, Found, InForce

ROOT = Path(__file__).parents[2]

TABLES = "CREATE TABLE s.t (id BIGINT NOT NULL, qty {qty}); CREATE TABLE s.u (id BIGINT{more});"
DERIVED = "CREATE TABLE s.d (id BIGINT, n {qty}) WITH (contents = 'derived');"
TEXTS = {
    "1": TABLES.format(qty="INT", more="") + DERIVED.format(qty="INT")
    + "CREATE VIEW s.v (id BIGINT) AS SELECT id FROM s.t;"
    "CREATE VIEW s.gone (id BIGINT) AS SELECT id FROM s.u;",
    "2": TABLES.format(qty="BIGINT", more=", note STRING") + DERIVED.format(qty="BIGINT")
    + "CREATE VIEW s.v (id BIGINT, qty BIGINT) AS SELECT id, qty FROM s.t;",
    "2.1": TABLES.format(qty="BIGINT", more=", note STRING") + DERIVED.format(qty="BIGINT"),
    "3": TABLES.format(qty="BIGINT", more=", note STRING, at DATE") + DERIVED.format(qty="BIGINT")
    + "CREATE VIEW s.w (id BIGINT) AS SELECT id FROM s.u;",
}
"""A chain in which 2 copies, evolves, drops, redefines and fills."""
RELEASES = {name: load_texts([("a.sql", text)], name=name) for name, text in TEXTS.items()}
ROWS = {"t": [{"id": n, "qty": n * 10} for n in range(3)], "u": [{"id": 7}]}


@dataclass
class Site:
    """One installation in memory whose names outlive a process."""

    world: World = field(default_factory=World)
    log: MemoryLog = field(default_factory=MemoryLog)
    clock: SimulatedClock = field(default_factory=lambda: SimulatedClock(stretch=10.0))
    tokens: Any = field(default_factory=count)
    processes: Any = field(default_factory=count)

    def start(
        self, name: str, *, on_call: Callable[[str], None] | None = None, fills: bool = True
    ) -> BootstrapReport:
        """A process of a release, to its end."""
        return migrate(
            SimulatedEngine(self.world, persistent=True, on_call=on_call),
            self.log.attach(on_call),
            RELEASES[name],
            warehouse="/w",
            clock=self.clock,
            holder=f"process {next(self.processes)}",
            timeout=600.0,
            populate=self.populate if fills else None,
            token=lambda: f"{next(self.tokens):06d}",
        )

    def populate(self, _: str, path: str) -> None:
        """The application's rows of a derived table."""
        self.world.append(path, [{"id": 1, "n": 1}])

    def state(self) -> State | None:
        """What is committed."""
        try:
            return read_state(self.log)
        except CatalogNotFound:
            return None

    def load(self) -> None:
        """The rows of release 1."""
        for name, rows in ROWS.items():
            self.world.append(self.path(name), rows)

    def path(self, name: str) -> str:
        """Where a table's rows are."""
        state = self.state()
        assert state is not None
        (shard,) = [i.shard for i in state.items.values() if i.definition.name == name]
        return f"/w/{shard}"

    def verify(self, name: str) -> None:
        """The world is what release ``name`` says: names, rows, seals, and no stray shard."""
        state = self.state()
        assert state is not None
        in_force = state.release_in_force()
        assert in_force is not None
        assert in_force.name == name
        assert not state.intents
        assert not state.tombstones
        assert {shard.state for shard in state.shards.values()} <= {"live", "retired", "gone"}
        kept = {f"/w/{p}" for p, shard in state.shards.items() if shard.state != "gone"}
        # the log of a shard whose data is gone stays
        assert kept <= set(self.world.shards)
        assert {p for p in set(self.world.shards) - kept if not self.world.shard(p).data_deleted} \
            == set()
        wanted = {o.name for o in RELEASES[name].objects}
        assert {entry.name.name for entry in self.world.names.relations.values()} == wanted
        for table in ("t", "u", "d"):
            newest = self.world.newest(self.path(table))
            (definition,) = [o for o in RELEASES[name].objects if o.name == table]
            assert [c.name for c in newest.columns] == [c.name for c in definition.columns]
            assert not newest.is_sealed
        for table, rows in ROWS.items():
            found = self.world.rows(self.path(table))
            assert [{k: v for k, v in row.items() if v is not None} for row in found] == rows


def start_killed_at(
    site: Site, name: str, at: int, *, fills: bool = True, refused: str = ""
) -> bool:
    """Whether the start was killed; False when it has fewer points. ``refused`` is a call of the
    engine that fails, so that the attempt is undone by its own process."""
    point = CrashPoint(at)

    def on_call(call: str) -> None:
        point.on_call(call)
        if call == refused:
            raise EngineFailure("no room", condition="OSError")

    try:
        site.start(name, on_call=on_call, fills=fills)
    except SimulatedCrash:
        return True
    except EngineFailure:
        assert refused
    return False


def in_force(state: State, old: str, new: str) -> InForce:
    """Which of the two releases is in force."""
    held = state.release_in_force()
    if held is None:
        return "none"
    return {old: "old", new: "new"}[held.name]  # type: ignore[return-value]


def scan(
    prepare: Callable[[], Site], killed: Release, old: str, *, each: bool, refused: str = ""
) -> Counter[str]:
    """Kill a start at every point; after each, a start of one release in turn, or of ``each``.
    States by name.

    Each of those starts must do what the row of the state says and leave the world whole; and a
    start of the newest release afterwards must find nothing that keeps it off.
    """
    seen: Counter[str] = Counter()
    for at in count(1):
        starts = (("same", killed.name), ("old", old), ("third", "3"))
        for who, number in starts if each else starts[at % 3 :][:1]:
            site = prepare()
            if not start_killed_at(site, killed.name, at, refused=refused):
                return seen
            state = site.state()
            if state is None:
                assert old == "none"
                seen["no catalog"] += 1
                break
            force = in_force(state, old, killed.name)
            row = states.state_of(state, force)
            found: Found = getattr(row, who)
            if found.outcome is None:
                continue
            seen[row.name] += 1
            expected = found.outcome
            before = (site.world.writes, site.log.version())
            where = f"{row.name} at point {at}: {who}"
            report = site.start(number)
            if row.name == "derived tables unfilled" and who == "same":
                assert report.unfilled == (), where
            assert report.outcome == expected, where
            if expected == "fenced_out":
                assert (site.world.writes, site.log.version()) == before, where
                site.start(killed.name)
                site.verify(killed.name)
            else:
                site.verify(number)
            site.start("3")
            site.verify("3")
    raise AssertionError("unreachable")


def loaded() -> Site:
    """Release 1 with its rows."""
    site = Site()
    site.start("1")
    site.load()
    return site


def filled() -> Site:
    """Release 2 in force."""
    site = loaded()
    site.start("2")
    return site


def unfilled() -> Site:
    """Release 2 in force, its derived table empty."""
    site = loaded()
    assert site.start("2", fills=False).unfilled == ("s.d",)
    return site


each_release = pytest.mark.parametrize(
    "each",
    [pytest.param(False, id="in turn"), pytest.param(True, marks=pytest.mark.soak, id="each")],
)
"""Which releases are started after a kill."""


@each_release
def test_every_call_of_an_upgrade_may_be_its_last(each: bool) -> None:
    """1 -> 2 killed at every point: the table has each state, each release does as it says."""
    seen = scan(loaded, RELEASES["2"], "1", each=each)
    assert set(seen) == {
        "building", "sealing", "committed, evolve pending",
        "lease of a dead process", "nothing begun", "shards retired",
    }  # fmt: skip


@each_release
def test_every_call_of_an_upgrade_that_fails_may_be_its_last(each: bool) -> None:
    """1 -> 2 whose seal is refused, killed at every point up to the end of its undoing."""
    seen = scan(loaded, RELEASES["2"], "1", each=each, refused="seal")
    assert set(seen) == {
        "abandoned", "building", "lease of a dead process", "nothing begun", "sealing",
    }  # fmt: skip


@each_release
def test_every_call_of_a_change_of_views_may_be_its_last(each: bool) -> None:
    """2 -> 2.1, where a view goes and nothing is copied: tombstones stand alone."""
    seen = scan(filled, RELEASES["2.1"], "2", each=each)
    assert set(seen) == {
        "committed, tombstones pending", "lease of a dead process", "nothing begun",
        "shards retired",
    }  # fmt: skip


def test_every_call_of_a_first_start_may_be_its_last() -> None:
    """A first start killed at every point: there is no catalog, or the next start goes on."""

    def rowless() -> Site:
        return Site()

    seen: Counter[str] = Counter()
    for at in count(1):
        site = rowless()
        if not start_killed_at(site, "1", at):
            break
        state = site.state()
        if state is not None:
            seen[states.state_of(state, in_force(state, "0", "1")).name] += 1
        site.start("1")
        site.load()
        site.verify("1")
    assert {"catalog created", "building", "committed, reconciling"} <= set(seen)


@each_release
def test_every_call_of_a_refill_may_be_its_last(each: bool) -> None:
    """A start that fills derived tables, killed at every point."""
    seen = scan(unfilled, RELEASES["2"], "1", each=each)
    assert set(seen) == {
        "later attempt", "derived tables unfilled", "committed, reconciling", "shards retired"
    }


def test_a_step_that_is_refused_after_the_commit() -> None:
    """An ALTER that finds no room after the commit leaves a named step; each release goes on.

    One that Delta refuses does not get here: that table is copied (``test_reshaping.py``).
    """
    for who, number in (("same", "2"), ("old", "1"), ("third", "3")):
        site = loaded()

        def refuse(call: str) -> None:
            if call == "evolve":
                raise EngineFailure("no room", condition="OSError")

        with pytest.raises(NotReconciled):
            site.start("2", on_call=refuse)
        state = site.state()
        assert state is not None
        row = states.state_of(state, in_force(state, "1", "2"))
        assert row.name == "failed"
        names = [each.name for each in states.MIGRATIONS]
        assert names.index("failed") < names.index("committed, evolve pending")
        found: Found = getattr(row, who)
        assert site.start(number).outcome == found.outcome
        if who != "old":
            site.verify(number)


def test_retired_data_goes_after_the_retention() -> None:
    """The data of a replaced shard goes after seven days, its sealed log stays.

    What went is said by the report, and by the commit.
    """
    site = loaded()
    site.start("2")
    assert site.start("2").outcome == "unchanged"
    site.clock.sleep(8 * 86_400.0)
    report = site.start("2")
    assert report.outcome == "resumed"
    state = site.state()
    assert state is not None
    assert {shard.state for shard in state.shards.values()} == {"live", "gone"}
    retired = sorted(path for path, shard in state.shards.items() if shard.state == "gone")
    steps = [step for step in report.steps if step.op == "retire"]
    executed = [step for step in report.executed if step.op == "retire"]
    assert [step.name for step in steps] == [step.name for step in executed] == retired
    assert [step.id for step in steps] == [state.shards[path].item_id for path in retired]
    assert {(step.phase, step.outcome) for step in executed} == {("retention", "done")}
    (removal,) = (entry for entry in entries(site.log) if entry.verb == "remove")
    assert removal.executed == tuple(executed)
    site.verify("2")
    row = states.state_of(state, "new")
    assert row.name == "in force"
    for found, number in ((row.same, "2"), (row.old, "1"), (row.third, "3")):
        assert site.start(number).outcome == found.outcome


def test_every_call_of_a_removal_may_be_its_last() -> None:
    """What is retired has its data: that it is given up is on record before a file goes."""

    def overdue() -> Site:
        site = filled()
        site.clock.sleep(8 * 86_400.0)
        return site

    seen: Counter[str] = Counter()
    for at in count(1):
        for who, number in (("same", "2"), ("old", "1"), ("third", "3")):
            site = overdue()
            if not start_killed_at(site, "2", at):
                assert seen["retired data being removed"] >= 6
                return
            state = site.state()
            assert state is not None
            deleted = {p[len("/w/"):] for p, s in site.world.shards.items() if s.data_deleted}
            assert {state.shards[path].state for path in deleted} <= {"gone"}
            row = states.state_of(state, "new")
            if row.name == "retired data being removed":
                found: Found = getattr(row, who)
                assert site.start(number).outcome == found.outcome, f"{who} at point {at}"
            seen[row.name] += 1
            site.start("2" if who != "third" else "3")
            site.verify("2" if who != "third" else "3")
            assert not any(s.removing for s in site.state().shards.values())  # type: ignore[union-attr]


def test_the_page_is_what_the_table_says() -> None:
    """docs/states.md is printed from the table: ``make docs`` brings it up to date."""
    assert (ROOT / "docs" / "states.md").read_text(encoding="utf-8") == states.page()


@pytest.mark.parametrize(
    "row",
    [*states.MIGRATIONS, *states.AT_REST, *states.OPERATIONS, *states.INSTALLATIONS],
    ids=lambda row: row.name,
)
def test_each_row_names_tests_that_exist(row: DurableState) -> None:
    """Every row is shown by at least one test, found by file and function."""
    assert row.tests
    for test in row.tests:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in names, test
