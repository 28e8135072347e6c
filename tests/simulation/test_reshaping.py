"""Columns renamed and dropped in place on the simulated engine: sessions, refusals, crashes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import ItemRecord, SessionRecord
from catalog_migrate.catalog.sessions import remove_sessions
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import EngineFailure, NotReconciled, StalePlan
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.progress import Progress
from catalog_migrate.planner.plan import Plan
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World
from tests.decisions import Changes, commit
from tests.simulation.crashes import CrashPoint, SimulatedCrash

T = ItemName("s", "t")
FIRST = (Column("id", "INT"), Column("a", "STRING"), Column("b", "STRING"), Column("old", "INT"))
SWAPPED = (
    Column("id", "INT"), Column("a", "STRING", renamed_from="b"),
    Column("b", "STRING", renamed_from="a"), Column("new", "INT"),
)
ROWS = ({"id": 1, "a": "1a", "b": "1b", "old": 1}, {"id": 2, "a": "2a", "b": "2b", "old": 2})
AFTER = ({"id": 1, "a": "1b", "b": "1a", "new": None}, {"id": 2, "a": "2b", "b": "2a", "new": None})


def release(name: str, columns: tuple[Column, ...], dropped: tuple[str, ...] = ()) -> Release:
    """A table and a view that shows all its columns."""
    listed = ", ".join(column.name for column in columns)
    objects = (
        ObjectDefinition("s", "table", "t", columns, dropped=dropped),
        ObjectDefinition(
            "s", "view", "v", tuple(Column(c.name, c.type) for c in columns),
            depends_on=("s.t",), sql=f"SELECT {listed} FROM s.t", text_hash=listed,
            definition_hash=listed,
        ),
    )
    uses = {objects[0].identity: (), objects[1].identity: (objects[0].identity,)}
    return Release(name=name, objects=objects, manifest_hash=f"hash {name}", uses=uses, places={})


ONE, TWO = release("1", FIRST), release("2", SWAPPED, ("old",))


class Place:
    """An installation with release 1 and its rows; processes that start on it."""

    def __init__(self, *, persistent: bool = False) -> None:
        self.world, self.log, self.clock = World(), MemoryLog(), SimulatedClock(stretch=10.0)
        self.persistent = persistent
        self.tokens, self.processes = itertools.count(), itertools.count()
        self.said: list[str] = []
        self.start(ONE)
        self.world.append(self.path, ROWS)

    def start(
        self, wanted: Release, *, on_call: Callable[[str], None] | None = None,
        session: bool = False, holder: str | None = None, **said: Any,
    ) -> BootstrapReport:
        self.engine = SimulatedEngine(self.world, persistent=self.persistent, on_call=on_call)
        report = migrate(
            self.engine, self.log.attach(on_call), wanted, warehouse="/w", clock=self.clock,
            holder=holder or f"process {next(self.processes)}", timeout=600.0, session=session,
            token=lambda: f"{next(self.tokens):08d}", on_progress=self._hear, **said,
        )
        self.engine.on_call = lambda _: None
        return report

    def planned(self, wanted: Release) -> Plan:
        """The plan as it is made without looking at the tables."""
        plan = self.start(wanted, read_only=True).plan
        assert plan is not None
        return plan

    def _hear(self, progress: Progress) -> None:
        if progress.phase == "copy, not in place":
            self.said.append(progress.name)

    @property
    def state(self) -> State:
        return read_state(self.log)

    @property
    def path(self) -> str:
        (item,) = [one for one in self.state.items.values() if one.shard is not None]
        return f"/w/{item.shard}"

    def shards(self) -> dict[str, str]:
        """State of each shard that is there by its path; every directory is on record."""
        found = {f"/w/{path}": row.state for path, row in self.state.shards.items()}
        assert set(self.world.shards) <= set(found)
        return {path: state for path, state in found.items() if state != "gone"}

    def settled(self, rows: Any = AFTER) -> None:
        """Release 2 is in force and whole, with these rows, and nothing is left over."""
        state = self.state
        held = state.release_in_force()
        assert held is not None
        assert held.name == "2"
        assert (dict(state.intents), dict(state.operations), state.tombstones) == ({}, {}, ())
        shard = state.shards[self.path.removeprefix("/w/")]
        assert (shard.evolve, shard.shape, shard.state) == (False, None, "live")
        names = [column.name for column in self.world.newest(self.path).columns]
        assert names == [column.name for column in SWAPPED]
        assert sorted(self.engine.read(T), key=lambda row: row["id"]) == list(rows)
        self.engine.check_views()
        sealed = {path: self.world.newest(path).is_sealed for path in self.world.shards}
        assert sealed == {path: kept == "retired" for path, kept in self.shards().items()}


def refuse(at: int, method: str = "alter") -> Callable[[str], None]:
    """Refuses from the ``at``-th statement on, counted from 1, as Delta would."""
    seen = itertools.count(1)

    def on_call(call: str) -> None:
        if call == method and next(seen) >= at:
            raise EngineFailure("no such change", condition="DELTA_UNSUPPORTED")

    return on_call


STATEMENTS = 7
"""Mapping, a drop, three renames of a swap, an addition, a move."""


@pytest.mark.parametrize("persistent", [False, True])
def test_a_swap_a_drop_and_an_addition_keep_the_shard(persistent: bool) -> None:
    """No row is copied; old values are under the other name; the catalog is of format 3."""
    place = Place(persistent=persistent)
    path = place.path
    report = place.start(TWO)
    assert (report.outcome, report.rows_copied) == ("migrated", 0)
    assert place.path == path
    assert place.shards() == {path: "live"}
    assert place.state.setting("format_version") == "3"
    assert place.said == []
    place.settled()
    assert place.start(TWO).outcome == "unchanged"
    place.world.append(path, [{"id": 3, "a": "3a", "b": "3b", "new": 7}])
    place.settled((*AFTER, {"id": 3, "a": "3a", "b": "3b", "new": 7}))


def test_another_session_makes_it_a_copy() -> None:
    """While a process may live with the old names they stay, in the old shard; else they go."""
    place = Place()
    place.start(ONE, session=True, holder="app")
    (session,) = place.state.sessions
    report = place.start(TWO)
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    assert sorted(place.shards().values()) == ["live", "retired"]
    (said,) = place.said
    assert session in said
    assert "1 other session may live at an older serial" in said
    place.settled()


def test_a_session_that_was_taken_away_does_not_count() -> None:
    """After unlock the columns are renamed in place."""
    place = Place()
    place.start(ONE, session=True, holder="app")
    remove_sessions(place.log, before=place.state.serial + 1)
    assert place.start(TWO).rows_copied == 0
    place.settled()


def test_ones_own_session_does_not_count() -> None:
    """A process that starts again may rename its own names; its row follows."""
    place = Place()
    place.start(ONE, session=True, holder="app")
    assert place.start(TWO, session=True, holder="app").rows_copied == 0
    place.settled()
    ((_, row),) = place.state.sessions.items()
    assert (row.release, row.serial) == ("2", place.state.serial)


def test_a_session_that_comes_before_the_commit_makes_it_a_copy() -> None:
    """What prepare saw is looked at again by the commit itself."""
    place = Place()

    def on_call(call: str) -> None:
        if call == "delete_shard" and not place.state.sessions:
            changes = Changes()
            changes.put("session", "late", SessionRecord("1", place.state.serial, host="far"))
            commit(place.log, lambda _: changes, kind="session")

    report = place.start(TWO, on_call=on_call)
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    place.settled()


def test_an_unchanged_start_of_one_process_commits_nothing() -> None:
    """Its row is there; another process adds one row and nothing else."""
    place = Place()
    place.start(ONE, session=True, holder="app")
    version, writes = place.log.version(), place.world.writes
    assert place.start(ONE, session=True, holder="app").outcome == "unchanged"
    assert (place.log.version(), place.world.writes) == (version, writes)
    place.start(ONE, session=True, holder="other")
    assert (place.log.version(), place.world.writes) == (version + 1, writes)


@pytest.mark.parametrize("at", range(1, STATEMENTS + 1))
def test_what_the_shadow_table_refuses_is_copied(at: int) -> None:
    """A refusal of any statement before the commit: the same release by a copy, no shadow table
    left. That is another plan, which is reported and executed."""
    place = Place()
    before = place.planned(TWO)
    assert [step.op for step in before.steps if step.name == "s.t"] == ["evolve"]
    report = place.start(TWO, on_call=refuse(at))
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    assert report.plan is not None
    assert report.plan.plan_hash != before.plan_hash
    (table,) = [change for change in report.plan.changes if change.kind == "table"]
    assert table.contents == "copy"
    assert "an empty shadow table refused it" in table.copied_because[-1]
    assert [(one.op, one.wave) for one in report.executed if one.phase == "prepare"] == [
        (step.op, step.wave) for step in report.plan.steps if step.phase == "prepare"
    ] == [("copy", 1), ("seal", 2)]
    (said,) = place.said
    assert "an empty shadow table refused it: no such change [DELTA_UNSUPPORTED]" in said
    assert len(place.world.shards) == 2
    place.settled()


@pytest.mark.parametrize("point", ["copy_rows", "copy_rows.done"])
def test_a_copy_whose_reply_is_lost_is_made_again(point: str) -> None:
    """In the directory that is there: rows that landed go first, and none is there twice."""
    place, calls, seen = Place(), list[str](), itertools.count()

    def on_call(call: str) -> None:
        calls.append(call)
        if call == point and not next(seen):
            raise EngineFailure("connection reset", condition="IO", transient=True)

    report = place.start(release("2", (Column("id", "BIGINT"), *FIRST[1:])), on_call=on_call)
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    assert (calls.count("create_shard"), calls.count("copy_rows")) == (1, 2)
    assert calls.count("truncate_shard") == (point == "copy_rows.done")


def test_a_copy_is_not_what_was_approved() -> None:
    """An approved plan that counts on a change in place stops where that is refused, and says why;
    the old release stays, nothing is left over, and without the plan the table is copied."""
    place = Place()
    approved = place.planned(TWO)
    with pytest.raises(StalePlan) as caught:
        place.start(TWO, on_call=refuse(1), plan=approved)
    (change,) = caught.value.changes
    assert change.startswith("s.t has to be copied: an empty shadow table refused it")
    held = place.state.release_in_force()
    assert held is not None
    assert (held.name, dict(place.state.intents), len(place.world.shards)) == ("1", {}, 1)
    assert place.start(TWO, plan=approved).rows_copied == 0
    place.settled()

    other = Place()
    assert other.start(TWO, on_call=refuse(1)).rows_copied == 2


def test_a_copy_because_of_a_session_is_a_plan_of_its_own() -> None:
    """Who uses the old names keeps them, whatever was approved; the plan that is executed is
    reported."""
    place = Place()
    approved = place.planned(TWO)
    place.start(ONE, session=True, holder="app")
    report = place.start(TWO, plan=approved, holder="upgrade")
    assert (report.outcome, report.rows_copied) == ("migrated", 2)
    assert report.plan is not None
    assert report.plan.plan_hash != approved.plan_hash
    assert "other session" in report.plan.changes[0].copied_because[-1]
    place.settled()


@pytest.mark.parametrize("at", range(STATEMENTS + 1, 2 * STATEMENTS + 1))
def test_what_is_refused_after_the_commit_is_copied(at: int) -> None:
    """The shadow table took it, the shard does not, at any statement: the reconciler copies, by
    itself."""
    place = Place()
    old = place.path
    report = place.start(TWO, on_call=refuse(at))
    assert (report.outcome, place.said) == ("migrated", ["s.t", "s.t"])
    assert place.shards() == {old: "retired", place.path: "live"}
    place.settled()
    assert place.start(TWO).outcome == "unchanged"


def test_rows_appended_behind_a_half_made_change_are_copied_too() -> None:
    """Between two statements a writer appends by the names of that moment; nothing is lost."""
    place = Place()
    path, done = place.path, itertools.count(1)
    refusing = refuse(2 * STATEMENTS)

    def on_call(call: str) -> None:
        refusing(call)
        if call == "alter.done" and next(done) == 2 * STATEMENTS - 1:
            place.world.append(path, [{"id": 3, "a": "3a", "b": "3b"}])

    place.start(TWO, on_call=on_call)
    assert place.path != path
    place.settled((*AFTER, {"id": 3, "a": "3a", "b": "3b", "new": None}))


def test_a_copy_that_fails_too_is_reported_and_tried_again() -> None:
    """Exit 6 with both reasons; the next start changes the shard in place after all."""
    place = Place()
    path = place.path

    def on_call(call: str) -> None:
        refusing(call)
        if call == "copy_rows":
            raise EngineFailure("disk full", condition="OSError")

    refusing = refuse(STATEMENTS + 2)
    with pytest.raises(NotReconciled) as caught:
        place.start(TWO, on_call=on_call)
    (failure,) = caught.value.failures
    assert "no such change; the copy instead failed too: disk full" in failure.reason
    assert dict(place.state.intents) == {}
    assert not place.world.newest(path).is_sealed
    assert place.start(TWO).outcome == "resumed"
    assert place.path == path
    place.settled()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("refused", [None, 3, STATEMENTS + 3], ids=["taken", "before", "after"])
def test_every_call_may_be_the_last(persistent: bool, refused: int | None) -> None:
    """Killed at any call and started again: the columns, every row, and no directory too many.

    In place, refused by the shadow table, and refused after the commit; the second start meets no
    refusal.
    """
    for number in itertools.count(1):
        place = Place(persistent=persistent)
        point = CrashPoint(number)
        refusing = refuse(refused) if refused is not None else (lambda _: None)

        def on_call(
            call: str, point: CrashPoint = point, refusing: Callable[[str], None] = refusing
        ) -> None:
            point.on_call(call)
            refusing(call)

        try:
            place.start(TWO, on_call=on_call)
        except SimulatedCrash:
            pass
        else:
            assert number > 60
            break
        place.start(TWO)
        place.settled()


def test_a_table_under_a_stream_is_copied() -> None:
    """A reader of a Delta stream never gets over a rename: its table is not reshaped."""
    place = Place()
    (item_id,) = [key for key, item in place.state.items.items() if item.shard is not None]

    def decide(state: State) -> Changes:
        changes = Changes()
        sink = ObjectDefinition("s", "view", "v")
        for key, item in state.items.items():
            if item.shard is None:
                linked = ItemRecord(
                    owner=item.owner, global_id=item.global_id, definition=item.definition,
                    uses=item.uses, links={"reads": item_id},
                )
                changes.put("item", key, linked)
                assert linked.definition.key == sink.key
        return changes

    commit(place.log, decide, kind="test")
    assert place.start(TWO).rows_copied == 2
    assert place.said == ["s.t: s.v streams from or into it"]
    place.settled()


def test_a_process_of_this_machine_that_ended_does_not_count() -> None:
    """Its row stands, and nobody lives with it."""
    from catalog_migrate.catalog.process import this_process

    place = Place()
    own = this_process()
    changes = Changes()
    changes.put("session", "dead", SessionRecord(
        "1", 0, holder="gone", host=own.host, boot_id=own.boot_id, pid=own.pid, started="1",
    ))
    commit(place.log, lambda _: changes, kind="session")
    assert place.start(TWO).rows_copied == 0
    place.settled()


THREE = release("3", (*SWAPPED, Column("old", "STRING")))


def test_a_name_that_was_dropped_in_place_may_come_again() -> None:
    """Another column under the name has a place of its own in the files: no old value shows.

    Killed at any call of the start that adds it: a repetition drops nothing.
    """
    for number in itertools.count(1):
        place = Place()
        place.start(TWO)
        path, point = place.path, CrashPoint(number)
        try:
            place.start(THREE, on_call=point.on_call)
        except SimulatedCrash:
            place.start(THREE)
            ended = False
        else:
            ended = True
        assert place.path == path
        place.world.append(path, [{"id": 3, "a": "3a", "b": "3b", "new": 7, "old": "x"}])
        assert place.start(THREE).outcome == "unchanged"
        assert sorted(place.engine.read(T), key=lambda row: row["id"]) == [
            *({**row, "old": None} for row in AFTER),
            {"id": 3, "a": "3a", "b": "3b", "new": 7, "old": "x"},
        ]
        physical = [column.physical for column in place.world.newest(path).layout.columns]
        assert "old" not in physical
        assert len(set(physical)) == len(physical)
        if ended:
            assert number > 30
            break


def test_an_append_under_a_drop_is_kept_or_refused() -> None:
    """Before each statement a writer appends by the columns of the old release.

    What was acknowledged is there in the end; once the column is gone the append is refused.
    """
    place = Place()
    path = place.path
    accepted: list[Any] = []
    refused: list[Any] = []

    def on_call(call: str) -> None:
        if call != "alter":
            return
        key = 10 + len(accepted) + len(refused)
        try:
            place.world.append(path, [{"id": key, "a": "a", "b": "b", "old": key}])
        except EngineFailure as error:
            refused.append(error.condition)
        else:
            accepted.append(key)

    assert place.start(TWO, on_call=on_call).rows_copied == 0
    assert (place.path, len(accepted) + len(refused)) == (path, 2 * STATEMENTS)
    assert len(accepted) > STATEMENTS
    assert refused
    rows = {row["id"]: row for row in place.engine.read(T)}
    assert rows.keys() == {1, 2, *accepted}
    assert all("old" not in row for row in rows.values())
