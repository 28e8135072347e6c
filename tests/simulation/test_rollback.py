"""Rollback on the simulated engine: every kind of change, rows written since, crashes anywhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import AllocatorRecord, ItemRecord, MappingRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import (
    EngineFailure,
    LeaseHeld,
    MigrationBlocked,
    StalePlan,
    UnknownSerial,
    UsageError,
)
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.rollback import plan_rollback, read_past
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.rollback import IRREVERSIBLE, ROWS_CHANGED, ROWS_NOT_HELD
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import SimulatedClock, World
from tests.decisions import Changes, commit

Rows = list[dict[str, Any]]


class Killed(BaseException):
    """The process ends here."""


class Place:
    """A catalog in a simulated world, and processes that start on it or roll it back."""

    def __init__(self, *, persistent: bool = True, copies: bool = False) -> None:
        """``copies``: the policy keeps the way back, so that nothing is dropped in place."""
        self.policy = Policy(rules=(Rule("drop_in_place", "refuse"),)) if copies else None
        self.world = World()
        self.log = MemoryLog()
        self.clock = SimulatedClock(stretch=10.0)
        self.persistent = persistent
        self._tokens = count()

    def _token(self) -> str:
        return f"{next(self._tokens):06d}"

    def engine(self, on_call: Callable[[str], None] | None = None) -> SimulatedEngine:
        return SimulatedEngine(self.world, persistent=self.persistent, on_call=on_call)

    def start(
        self, name: str, sql: str, *, approve: tuple[str, ...] = (),
        on_call: Callable[[str], None] | None = None,
    ) -> BootstrapReport:
        """A start of a release."""
        release = load_texts([("all.sql", sql)], name=name, default_schema="s")
        return migrate(
            self.engine(on_call), self.log.attach(on_call), release, warehouse="/warehouse",
            clock=self.clock, holder="start", approve=approve, timeout=600.0, token=self._token,
            policy=self.policy,
        )

    def back(
        self, to: int | None = None, *, approve: tuple[str, ...] = (), plan: Plan | None = None,
        on_call: Callable[[str], None] | None = None, wait: float = 600.0,
    ) -> BootstrapReport:
        """A rollback."""
        return roll_back(
            self.engine(on_call), self.log.attach(on_call), to=to, plan=plan, clock=self.clock,
            holder="rollback", approve=approve, timeout=wait, token=self._token,
            policy=self.policy,
        )

    def plan(self, to: int | None = None, *approve: str) -> Plan:
        """What a rollback would do."""
        engine, state = self.engine(), self.state
        return plan_rollback(
            self.log, read_past(self.log, to), state,
            grown=lambda path, *versions: engine.count_appended(f"/warehouse/{path}", *versions),
            sizes=lambda item: engine.shard_size(f"/warehouse/{state.items[item].shard}"),
            approve=approve, policy=self.policy,
        ).plan

    @property
    def state(self) -> State:
        return read_state(self.log)

    def shard(self, table: str) -> str:
        """Absolute path of a table's present shard."""
        row = self.state.mappings[f"relation:s.{table}"]
        return f"/warehouse/{self.state.items[row.item_id].shard}"

    def append(self, table: str, *rows: dict[str, Any]) -> None:
        self.world.append(self.shard(table), rows)

    def rows(self, table: str) -> Rows:
        """All rows by the shard's newest version, in order of their id."""
        return sorted((dict(row) for row in self.world.rows(self.shard(table))), key=_by_id)

    def read(self, table: str) -> Rows:
        """All rows as a user reads them by name."""
        return sorted(
            (dict(row) for row in self.engine().read(ItemName("s", table))), key=_by_id
        )

    def shape(self) -> dict[str, list[str]]:
        """Every name of the release with its columns."""
        state = self.state
        return {
            key: [f"{c.name} {c.type}" for c in state.items[row.item_id].definition.columns]
            for key, row in sorted(state.mappings.items()) if row.owner == "release"
        }


def _by_id(row: dict[str, Any]) -> Any:
    return row["id"]


ONE = (
    "CREATE TABLE t (id INT NOT NULL, qty STRING, note STRING);"
    "CREATE TABLE gone (id INT NOT NULL, x STRING);"
    "CREATE TABLE wide (id INT NOT NULL);"
    "CREATE TABLE same (id INT NOT NULL) COMMENT 'old';"
    "CREATE VIEW v (id INT) AS SELECT id FROM s.t;"
    "CREATE TYPE money AS DECIMAL(10,2);"
)
TWO = (
    "CREATE TABLE orders (id INT NOT NULL, qty INT USING CAST(qty AS INT),"
    " remark STRING RENAMED FROM note) RENAMED FROM t;"
    "CREATE TABLE wide (id INT NOT NULL, more STRING);"
    "CREATE TABLE same (id INT NOT NULL) COMMENT 'new';"
    "CREATE TABLE fresh (id INT NOT NULL);"
    "CREATE VIEW v (id INT, qty INT) AS SELECT id, qty FROM s.orders;"
    "CREATE TYPE money AS DECIMAL(12,2);"
)


def upgraded(*, persistent: bool = True, copies: bool = False) -> Place:
    """Release 1 with rows, then release 2 and rows written since."""
    place = Place(persistent=persistent, copies=copies)
    place.start("1", ONE)
    place.append("t", {"id": 1, "qty": "007", "note": "a"}, {"id": 2, "qty": None, "note": None})
    place.append("gone", {"id": 1, "x": "kept"})
    place.append("wide", {"id": 1})
    place.append("same", {"id": 1})
    place.start("2", TWO, approve=("s.gone",))
    return place


def test_every_kind_of_change() -> None:
    """Names, columns, rows, comments and release are what they were; rows since are carried."""
    place = upgraded()
    before = Place()
    before.start("1", ONE)
    place.append("orders", {"id": 3, "qty": 30, "remark": "c"})
    place.append("same", {"id": 2})
    place.append("fresh", {"id": 9})
    plan = place.plan()
    assert plan.applyable is False
    assert [(b.name, b.column, b.remedy) for b in plan.blocked] == [
("s.fresh", None, "--approve s.fresh"), ("s.wide", "more", "--approve s.wide.more"),
    ]
    report = place.back(approve=("s.wide.more", "s.fresh"))
    assert (report.outcome, report.release, report.serial) == ("rolled_back", "1", 3)
    assert place.shape() == before.shape()
    assert place.read("t") == [
        {"id": 1, "qty": "007", "note": "a"}, {"id": 2, "qty": None, "note": None},
        {"id": 3, "qty": "30", "note": "c"},
    ]
    assert place.read("gone") == [{"id": 1, "x": "kept"}]
    assert place.read("wide") == [{"id": 1}]
    assert place.read("same") == [{"id": 1}, {"id": 2}]
    state = place.state
    assert state.items[state.mappings["relation:s.same"].item_id].definition.comment == "old"
    place.append("t", {"id": 4, "qty": "4", "note": None})
    place.append("gone", {"id": 2, "x": "new"})


def test_the_releases_do_not_flip_flop() -> None:
    """The old release starts unchanged; the one left is fenced out until it is let in again."""
    place = upgraded()
    place.back(approve=("s.wide.more", "s.fresh"))
    again = place.start("1", ONE)
    assert (again.outcome, again.serial) == ("unchanged", 3)
    assert place.start("2", TWO, approve=("s.gone",)).outcome == "fenced_out"
    entry = next(e for e in _history(place) if e.verb == "rollback")
    assert (entry.rollback_to, entry.reason, entry.release) == (1, "rollback to serial 1", "1")


def _history(place: Place) -> Any:
    from catalog_migrate.catalog.history import entries

    return entries(place.log)


def test_twice_is_refused_without_a_serial() -> None:
    """A second call without --to is refused, so that no restart goes back and forth."""
    place = upgraded()
    place.back(approve=("s.wide.more", "s.fresh"))
    with pytest.raises(UsageError, match="newest change is a rollback to serial 1"):
        place.back()
    assert place.back(1).outcome == "unchanged"
    for serial, error in ((9, UnknownSerial), (0, UsageError)):
        with pytest.raises(error):
            place.back(serial)


def test_a_rollback_is_rolled_back() -> None:
    """Going back to before a rollback brings the newer release, with the rows of both sides."""
    place = upgraded(copies=True)
    place.append("fresh", {"id": 9})
    place.append("orders", {"id": 3, "qty": 30, "remark": "c"})
    shape = place.shape()
    place.back(1, approve=("s.wide.more", "s.fresh"))
    place.append("t", {"id": 4, "qty": "40", "note": "d"})
    report = place.back(2, approve=("s.gone", "s.orders.qty"))
    assert (report.outcome, report.release) == ("rolled_back", "2")
    assert place.shape() == shape
    assert [(row["id"], row["remark"]) for row in place.read("orders")] == [
        (1, "a"), (2, None), (3, "c"), (4, "d"),
    ]
    assert place.read("fresh") == [{"id": 9}]
    assert place.start("2", TWO).outcome == "unchanged"
    back_again = place.back(3, approve=("s.wide.more", "s.fresh"))
    assert back_again.outcome == "rolled_back"
    assert [row["id"] for row in place.read("t")] == [1, 2, 3, 4]
    assert place.read("gone") == [{"id": 1, "x": "kept"}]


def test_a_release_whose_objects_are_those_in_force() -> None:
    """A rollback that changes no object brings another release in force all the same: it says so,
    and has a serial of its own that one can go back to before."""
    place = Place()
    place.start("1.0", "CREATE TABLE t (id INT NOT NULL);")
    place.append("t", {"id": 1})
    place.start("1.1", "CREATE TABLE t (id INT NOT NULL, email STRING);")
    last = "CREATE TABLE t (id INT NOT NULL) DROPPED (email);"
    assert place.start("1.2", last).serial == 3
    report = place.back(1)
    assert (report.outcome, report.release, report.serial) == ("rolled_back", "1.0", 4)
    assert place.start("1.0", "CREATE TABLE t (id INT NOT NULL);").outcome == "unchanged"
    assert place.start("1.2", last).outcome == "fenced_out"
    entry = next(entry for entry in _history(place) if entry.verb == "rollback")
    assert (entry.serial_before, entry.serial_after, entry.rollback_to) == (3, 4, 1)
    assert place.back(1).outcome == "unchanged"
    with pytest.raises(UsageError, match="newest change is a rollback to serial 1"):
        place.back()
    again = place.back(3)
    assert (again.outcome, again.release, again.serial) == ("rolled_back", "1.2", 5)
    assert place.start("1.2", last).outcome == "unchanged"
    assert place.read("t") == [{"id": 1}]


@pytest.mark.parametrize("persistent", [True, False])
def test_killed_at_every_step_of_a_rollback_that_changes_no_object(persistent: bool) -> None:
    """Whatever was done by then, the same rollback ends in the same place, one serial on."""
    for step in range(1, 200):
        place = Place(persistent=persistent)
        for name, sql in (("1", "CREATE TABLE t (id INT);"),
                          ("2", "CREATE TABLE t (id INT, a INT);"),
                          ("3", "CREATE TABLE t (id INT) DROPPED (a);")):
            place.start(name, sql)
        left = [step]

        def kill(_: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        try:
            place.back(1, on_call=kill)
        except Killed:
            report = place.back(1)
            assert report.outcome in ("rolled_back", "unchanged", "resumed")
            assert (place.state.serial, report.release) == (4, "1")
            continue
        assert step > 3
        return
    raise AssertionError("it never came to its end")


def test_nothing_before_the_first_release() -> None:
    """Right after the first release there is nothing to go back to, and it says why."""
    place = Place()
    place.start("1", "CREATE TABLE t (id INT);")
    with pytest.raises(UsageError, match="1 is the first release; there is nothing to go back to"):
        place.plan()
    with pytest.raises(UsageError, match="no release was in force at serial 0"):
        place.plan(0)


def test_over_several_migrations() -> None:
    """Rows written under each of several releases come back, each by the names it had."""
    place = Place(copies=True)
    place.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING, b STRING);")
    place.append("t", {"id": 1, "a": "a1", "b": "b1"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL, x STRING RENAMED FROM a, b STRING);")
    place.append("t", {"id": 2, "x": "a2", "b": "b2"})
    place.start("3", "CREATE TABLE t (id INT NOT NULL, y STRING RENAMED FROM x) DROPPED (b);")
    place.append("t", {"id": 3, "y": "a3"})
    place.start("4", "CREATE TABLE t (id INT NOT NULL, y STRING) PARTITIONED BY (y);")
    place.append("t", {"id": 4, "y": "a4"})
    report = place.back(1)
    assert report.outcome == "rolled_back"
    assert place.read("t") == [
        {"id": 1, "a": "a1", "b": "b1"}, {"id": 2, "a": "a2", "b": "b2"},
        {"id": 3, "a": "a3", "b": None}, {"id": 4, "a": "a4", "b": None},
    ]


def test_rows_written_after_a_rollback_keep_every_value_in_the_next() -> None:
    """Columns that had gone and came back by a rollback are the same columns again: the values
    that are written to them then are there after another rollback to the same serial."""
    place = Place()
    place.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING, b STRING);")
    place.append("t", {"id": 1, "a": "a1", "b": "b1"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL, b STRING) DROPPED (a) PARTITIONED BY (b);")
    place.append("t", {"id": 2, "b": "b2"})
    place.back(1)
    place.append("t", {"id": 3, "a": "a3", "b": "b3"})
    assert place.back(1).outcome == "unchanged"
    rows: list[dict[str, Any]] = [{"id": 1, "a": "a1", "b": "b1"}, {"id": 2, "a": None, "b": "b2"},
            {"id": 3, "a": "a3", "b": "b3"}]
    assert place.read("t") == rows
    place.back(2, approve=("s.t.a",))
    assert place.read("t") == [{"id": row["id"], "b": row["b"]} for row in rows]
    place.append("t", {"id": 4, "b": "b4"})
    place.back(1)
    assert place.read("t") == [*rows, {"id": 4, "a": None, "b": "b4"}]


def test_a_derived_table_comes_back_as_unfilled_as_it_was() -> None:
    """Its retired shard is empty because no application had filled it: the next start still may."""
    place = Place()
    place.start("1", "CREATE TABLE d (id INT) WITH (contents = 'derived');")
    assert place.start("2", "CREATE TABLE o (id INT);").outcome == "migrated"
    report = place.back(1, approve=("s.o",))
    assert (report.outcome, report.unfilled) == ("rolled_back", ("s.d",))


def test_rows_that_cannot_be_held() -> None:
    """Rows without a value for a NOT NULL column block; approved, they stay behind."""
    place = Place(copies=True)
    place.start("1", "CREATE TABLE t (id INT NOT NULL, must STRING NOT NULL);")
    place.append("t", {"id": 1, "must": "m"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL) DROPPED (must);")
    assert place.plan().applyable
    place.append("t", {"id": 2}, {"id": 3})
    plan = place.plan()
    assert [(b.code, b.reason) for b in plan.blocked] == [
        (ROWS_NOT_HELD, "2 rows written since have no value for must (NOT NULL)")
    ]
    left = place.shard("t")
    with pytest.raises(MigrationBlocked):
        place.back()
    place.append("t", {"id": 4})
    place.back(approve=("s.t",))
    assert place.read("t") == [{"id": 1, "must": "m"}]
    assert [row["id"] for row in place.world.rows(left)] == [1, 2, 3, 4]


def test_rows_written_while_it_goes_on() -> None:
    """What is appended during the rollback is carried; what cannot be held stops it."""
    place = upgraded()

    def write(call: str) -> None:
        if call == "seal" and not wrote:
            wrote.append(call)
            place.append("orders", {"id": 5, "qty": 50, "remark": "late"})

    wrote: list[str] = []
    place.back(approve=("s.wide.more", "s.fresh"), on_call=write)
    assert {"id": 5, "qty": "50", "note": "late"} in place.read("t")

    strict = Place(copies=True)
    strict.start("1", "CREATE TABLE t (id INT NOT NULL, must STRING NOT NULL);")
    strict.start("2", "CREATE TABLE t (id INT NOT NULL) DROPPED (must);")

    def intrude(call: str) -> None:
        if call == "seal" and not intruded:
            intruded.append(call)
            strict.append("t", {"id": 2})

    intruded: list[str] = []
    with pytest.raises(MigrationBlocked):
        strict.back(on_call=intrude)
    assert strict.state.release_in_force("release").name == "2"  # type: ignore[union-attr]
    strict.append("t", {"id": 3})
    assert [row["id"] for row in strict.read("t")] == [2, 3]


def test_rows_changed_since() -> None:
    """Where rows were changed since, those of now count; old values beside them need a word."""
    place = Place(copies=True)
    place.start("1", "CREATE TABLE t (id INT NOT NULL, b STRING);")
    place.append("t", {"id": 1, "b": "b1"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL) DROPPED (b);")
    shard = place.shard("t")
    newest = place.world.newest(shard)
    place.world.commit(shard, replace(newest, act="rewrite", rows=({"id": 11},)))
    assert [b.code for b in place.plan().blocked] == [ROWS_CHANGED]
    place.back(approve=("s.t.b",))
    assert place.read("t") == [{"id": 11, "b": None}]


def test_point_of_no_return() -> None:
    """Once retention has deleted what is needed, the plan is refused and says what is missing."""
    place = upgraded()
    copied = Place()
    copied.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING);")
    copied.append("t", {"id": 1, "a": "x"})
    copied.start("2", "CREATE TABLE t (id INT NOT NULL, b STRING RENAMED FROM a);")
    for each in (place, copied):
        each.clock.sleep(8 * 86_400)
    assert place.start("2", TWO, approve=("s.gone",)).outcome == "resumed"
    copied.start("2", "CREATE TABLE t (id INT NOT NULL, b STRING RENAMED FROM a);")
    blocked = place.plan(1, "s.wide.more", "s.fresh", "s.gone").blocked
    assert [(b.name, b.code) for b in blocked] == [("s.gone", IRREVERSIBLE), ("s.t", "CM0301")]
    assert all("were deleted when its retention was over" in b.reason for b in blocked)
    with pytest.raises(MigrationBlocked):
        place.back(approve=("s.wide.more", "s.fresh", "s.gone"))
    # what the present shard holds whole needs no old one
    assert copied.back().outcome == "rolled_back"
    assert copied.read("t") == [{"id": 1, "a": "x"}]


T1 = "CREATE TABLE t (id INT NOT NULL, b STRING);"
T2 = "CREATE TABLE t (id INT NOT NULL) DROPPED (b);"


def codes(plan: Plan) -> list[tuple[str, str | None]]:
    return [(one.code, one.column) for one in plan.blocked]


def test_behind_a_column_dropped_in_place() -> None:
    """Refused with nothing touched, whatever is approved; a serial after the drop is reached."""
    place = Place()
    place.start("1", T1)
    place.append("t", {"id": 1, "b": "b1"})
    report = place.start("2", T2)
    assert report.rows_copied == 0
    assert report.plan is not None
    assert report.plan.point_of_no_return is not None
    assert report.plan.point_of_no_return.names == ("s.t.b",)
    shard = place.shard("t")
    place.append("t", {"id": 2})
    three = "CREATE TABLE t (id INT NOT NULL, CHECK (id > 0)) DROPPED (b);"
    place.start("3", three)
    assert codes(place.plan(1, "s.t", "s.t.b")) == [(IRREVERSIBLE, "b")]
    with pytest.raises(MigrationBlocked, match="dropped in place and its values with it") as caught:
        place.back(1, approve=("s.t", "s.t.b"))
    assert caught.value.message.startswith("1 obstacle that no approval cures")
    assert caught.value.remedy == "do what is written below each entry"
    assert "remedy: choose a serial after the drop" in str(caught.value)
    assert place.state.intents == {}
    assert place.start("3", three).outcome == "unchanged"
    place.append("t", {"id": 3})
    place.back(2)
    assert place.read("t") == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert codes(place.plan(1, "s.t", "s.t.b")) == [(IRREVERSIBLE, "b")]
    assert place.world.newest(shard).is_sealed


def test_a_column_of_an_empty_table_comes_back() -> None:
    """Dropped in place while there was no row, it left no value behind."""
    for later in ((), ("3", T2 + "CREATE TABLE more (id INT NOT NULL);")):
        place = Place()
        place.start("1", "CREATE TABLE t (id INT NOT NULL, b STRING NOT NULL);")
        place.start("2", T2)
        if later:
            place.start(*later)
        assert place.back(1).outcome == "rolled_back"
        place.append("t", {"id": 1, "b": "b1"})
        assert place.read("t") == [{"id": 1, "b": "b1"}]


@pytest.mark.parametrize("between", [True, False])
def test_rows_written_between_a_copy_and_a_drop_in_place(between: bool) -> None:
    """The shard of then has the column, the one that followed lost it with what came meanwhile.

    So there is no way back; without such rows all comes from the shard of then.
    """
    place = Place()
    place.start("1", T1)
    place.append("t", {"id": 1, "b": "b1"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL, b STRING, CHECK (id > 0));")
    if between:
        place.append("t", {"id": 2, "b": "b2"})
    report = place.start("3", "CREATE TABLE t (id INT NOT NULL, CHECK (id > 0)) DROPPED (b);")
    assert report.rows_copied == 0
    assert codes(place.plan(2, "s.t", "s.t.b")) == [(IRREVERSIBLE, "b")]
    plan = place.plan(1, "s.t", "s.t.b")
    if between:
        assert codes(plan) == [(IRREVERSIBLE, "b")]
        assert plan.blocked[0].reason == (
            "column b was dropped in place and its values in rows written since with it"
        )
    else:
        place.back(1)
        assert place.read("t") == [{"id": 1, "b": "b1"}]


def test_a_shard_that_lost_a_column_before_it_was_replaced() -> None:
    """What was dropped in place and copied later is as far gone, and so is a table dropped later.

    A column that was added in place before the copy has values in the old shard: it is asked.
    """
    place = Place()
    place.start("1", T1)
    place.append("t", {"id": 1, "b": "b1"})
    place.start("2", T2 + "CREATE TABLE u (id INT NOT NULL);")
    place.append("u", {"id": 1})
    more = "CREATE TABLE u (id INT NOT NULL, c STRING);"
    place.start("3", T2 + more)
    place.append("u", {"id": 2, "c": "c2"})
    copied = (
        "CREATE TABLE t (id INT NOT NULL) DROPPED (b) PARTITIONED BY (id);"
        "CREATE TABLE u (id INT NOT NULL, c STRING) PARTITIONED BY (id);"
    )
    place.start("4", copied.replace("PARTITIONED BY (id)", "COMMENT 'x'"))
    place.start("5", copied)
    assert codes(place.plan(1, "s.u", "s.t", "s.t.b")) == [(IRREVERSIBLE, "b")]
    assert codes(place.plan(2)) == [("CM0302", "c")]
    place.start("6", "CREATE TABLE other (id INT NOT NULL);", approve=("s.t", "s.u"))
    assert codes(place.plan(1, "s.t", "s.t.b", "s.other")) == [(IRREVERSIBLE, "b")]
    assert codes(place.plan(2, "s.other")) == [("CM0302", "c")]
    place.back(2, approve=("s.other", "s.u.c"))
    assert place.read("t") == [{"id": 1}]
    assert place.read("u") == [{"id": 1}, {"id": 2}]


def test_a_column_dropped_in_place_and_given_again() -> None:
    """Another column under the name is not taken for the one that went."""
    place = Place()
    place.start("1", T1)
    place.append("t", {"id": 1, "b": "old"})
    place.start("2", T2)
    place.start("3", T1)
    place.append("t", {"id": 2, "b": "another"})
    assert place.read("t") == [{"id": 1, "b": None}, {"id": 2, "b": "another"}]
    assert codes(place.plan(1, "s.t.b")) == [(IRREVERSIBLE, "b")]
    place.back(2, approve=("s.t.b",))
    assert place.read("t") == [{"id": 1}, {"id": 2}]


def test_a_drop_that_was_copied_after_all() -> None:
    """Where the shadow table refuses the drop the old directory has the values, and a rollback
    finds them.

    That is another plan, which says so; the one that was made before it spoke of the commit.
    """
    place = Place()
    place.start("1", T1)
    place.append("t", {"id": 1, "b": "b1"})

    def refuse(call: str) -> None:
        if call == "alter":
            raise EngineFailure("no such change", condition="DELTA_UNSUPPORTED")

    report = place.start("2", T2, on_call=refuse)
    assert report.rows_copied == 1
    assert report.plan is not None
    assert report.plan.point_of_no_return is not None
    assert report.plan.point_of_no_return.after == "retention"
    place.append("t", {"id": 2})
    place.back(1)
    assert place.read("t") == [{"id": 1, "b": "b1"}, {"id": 2, "b": None}]


@pytest.mark.parametrize("at", range(1, 5))
def test_a_change_in_place_that_was_refused_and_copied(at: int) -> None:
    """Behind a commit whose statements the shard refused, in part or all, every row comes back.

    The old shard has the names of its moment, and they are read by those.
    """
    place = Place()
    place.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING, b STRING);")
    place.append("t", {"id": 1, "a": "a1", "b": "b1"})
    path, seen = place.shard("t"), count(1)

    def refuse(call: str) -> None:
        if call == "alter" and next(seen) >= 4 + at:  # the shadow table takes its four
            raise EngineFailure("no such change", condition="DELTA_UNSUPPORTED")

    two = (
        "CREATE TABLE t (id INT NOT NULL, x STRING RENAMED FROM a, y STRING RENAMED FROM b,"
        " z INT);"
    )
    place.start("2", two, on_call=refuse)
    assert place.shard("t") != path
    place.append("t", {"id": 2, "x": "a2", "y": "b2", "z": 1})
    place.back(1, approve=("s.t.z",))
    assert place.read("t") == [
        {"id": 1, "a": "a1", "b": "b1"}, {"id": 2, "a": "a2", "b": "b2"},
    ]
    # forth again, to the serial whose shard was refused its columns: its copy has them
    place.back(2)
    assert place.read("t") == [
        {"id": 1, "x": "a1", "y": "b1", "z": None}, {"id": 2, "x": "a2", "y": "b2", "z": 1},
    ]


def test_retention_between_plan_and_apply() -> None:
    """A plan whose shards were deleted meanwhile is not carried out by halves."""
    place = upgraded()
    plan = place.plan(None, "s.wide.more", "s.fresh")
    assert plan.applyable
    place.clock.sleep(8 * 86_400)
    with pytest.raises((StalePlan, MigrationBlocked)):
        place.back(plan=plan)
    assert place.state.release_in_force("release").name == "2"  # type: ignore[union-attr]


APART = "CREATE TABLE t (id INT NOT NULL, x STRING); CREATE TABLE u (id INT);"
WITHOUT = "CREATE TABLE u (id INT);"


def apart(again: str = APART, *, copied: bool = False) -> Place:
    """A table with rows that was dropped, and another one under its name, with rows of its own."""
    place = Place()
    place.start("1", APART)
    place.append("t", {"id": 1, "x": "then"})
    if copied:
        place.start("1.1", "CREATE TABLE t (id BIGINT NOT NULL, x STRING); " + WITHOUT)
        place.append("t", {"id": 2, "x": "copied"})
    place.start("2", WITHOUT, approve=("s.t",))
    place.start("3", again)
    return place


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("again", [APART, APART.replace("STRING", "STRING, more INT")])
def test_another_table_under_the_name(again: str, copied: bool) -> None:
    """However alike the two are: the rows of the one of then come back, beside those of the one
    that has the name by now, also when these were changed since."""
    place = apart(again, copied=copied)
    path = place.shard("t")
    place.append("t", {"id": 8, "x": "old"}, {"id": 9, "x": "now"})
    newest = place.world.newest(path)
    place.world.commit(path, replace(newest, act="rewrite", rows=newest.rows[1:]))
    report = place.back(1, approve=("s.t", "s.t.more", "s.t.id"))
    assert report.outcome == "rolled_back"
    assert place.read("t") == [
        {"id": 1, "x": "then"}, *([{"id": 2, "x": "copied"}] if copied else []),
        {"id": 9, "x": "now"},
    ]
    place.append("t", {"id": 10, "x": "after"})
    assert len(place.read("t")) == 3 + copied


def test_back_and_forth_over_another_table_under_the_name() -> None:
    """Going back to the same serial again doubles no row; undoing it takes away what it brought,
    and keeps what was written since."""
    place = apart()
    place.append("t", {"id": 9, "x": "now"})
    before = place.state.serial
    place.back(1, approve=("s.t",))
    both = [{"id": 1, "x": "then"}, {"id": 9, "x": "now"}]
    assert place.read("t") == both
    place.start("1.1", "CREATE TABLE t (id BIGINT NOT NULL, x STRING); " + WITHOUT)
    place.back(1, approve=("s.t.id",))
    assert place.read("t") == both
    place.append("t", {"id": 10, "x": "after"})
    place.back(before)
    assert place.read("t") == [{"id": 9, "x": "now"}, {"id": 10, "x": "after"}]
    place.back(1)
    assert place.read("t") == [*both, {"id": 10, "x": "after"}]


def test_rows_of_every_table_that_had_the_name() -> None:
    """Also of one that came and went between then and now."""
    place = apart()
    place.append("t", {"id": 9, "x": "between"})
    place.start("4", WITHOUT, approve=("s.t",))
    place.back(1)
    assert place.read("t") == [{"id": 1, "x": "then"}, {"id": 9, "x": "between"}]


def test_another_table_under_the_name_without_a_row_of_then() -> None:
    """Where nothing is to come back, nothing is copied."""
    place = Place()
    place.start("1", APART)
    place.start("2", WITHOUT)
    place.start("3", APART)
    place.append("t", {"id": 9, "x": "now"})
    path = place.shard("t")
    place.back(1)
    assert place.shard("t") == path
    assert place.read("t") == [{"id": 9, "x": "now"}]


def test_another_table_under_the_name_and_the_rows_of_then_are_gone() -> None:
    """After the retention it is refused, as any rollback to rows that are nowhere any more."""
    place = apart()
    place.clock.sleep(8 * 86_400.0)
    place.start("3", APART)
    plan = place.plan(1)
    assert [(b.name, b.code) for b in plan.blocked] == [("s.t", IRREVERSIBLE)]


def test_column_dropped_and_given_again() -> None:
    """A column that only bears the name of an earlier one is not taken for it."""
    place = Place(copies=True)
    place.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING);")
    place.append("t", {"id": 1, "a": "old"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL) DROPPED (a);")
    place.start("3", "CREATE TABLE t (id INT NOT NULL, a STRING);")
    place.append("t", {"id": 2, "a": "another"})
    assert [b.column for b in place.plan(1).blocked] == ["a"]
    place.back(1, approve=("s.t.a",))
    assert place.read("t") == [{"id": 1, "a": "old"}, {"id": 2, "a": None}]


@pytest.mark.parametrize("changed", [False, True])
def test_a_column_that_a_rollback_took_and_a_release_brought_again(changed: bool) -> None:
    """No release gave it up, so it is the same column: its values of then come back and those of
    since are carried; where rows were changed since, that has to be approved."""
    place = Place(copies=True)
    two = "CREATE TABLE t (id INT NOT NULL, a STRING);"
    place.start("1", "CREATE TABLE t (id INT NOT NULL);")
    place.start("2", two)
    place.append("t", {"id": 1, "a": "then"})
    before = place.state.serial
    place.back(1, approve=("s.t.a",))
    place.start("2.1", two + "CREATE VIEW v (id INT) AS SELECT id FROM s.t;")
    assert place.read("t") == [{"id": 1, "a": None}]
    place.append("t", {"id": 2, "a": "since"})
    if changed:
        newest = place.world.newest(place.shard("t"))
        place.world.commit(place.shard("t"), replace(newest, act="rewrite"))
        assert [(b.code, b.column) for b in place.plan(before).blocked] == [(ROWS_CHANGED, "a")]
    place.back(before, approve=("s.t.a",) if changed else ())
    first = None if changed else "then"
    assert place.read("t") == [{"id": 1, "a": first}, {"id": 2, "a": "since"}]


def test_a_column_brought_again_whose_old_shard_is_gone() -> None:
    """The values of then went with a rollback and its shard: going back is refused."""
    place = Place(copies=True)
    two = "CREATE TABLE t (id INT NOT NULL, a STRING);"
    place.start("1", "CREATE TABLE t (id INT NOT NULL);")
    place.start("2", two)
    place.append("t", {"id": 1, "a": "then"})
    before = place.state.serial
    place.back(1, approve=("s.t.a",))
    place.start("2.1", two)
    place.append("t", {"id": 2, "a": "since"})
    place.clock.sleep(8 * 86_400)
    place.start("2.1", two)
    assert codes(place.plan(before)) == [(IRREVERSIBLE, "a")]
    with pytest.raises(MigrationBlocked):
        place.back(before, approve=("s.t.a",))
    assert place.read("t") == [{"id": 1, "a": None}, {"id": 2, "a": "since"}]


def test_renamed_in_a_circle() -> None:
    """Tables that swapped their names get them back, each with its own rows."""
    place = Place()
    place.start("1", "CREATE TABLE a (id INT NOT NULL); CREATE TABLE b (id INT NOT NULL);")
    place.append("a", {"id": 1})
    place.append("b", {"id": 2})
    table = "CREATE TABLE {} (id INT NOT NULL)".format
    place.start("2", f"{table('c')} RENAMED FROM a; {table('b')};")
    place.start("3", f"{table('c')}; {table('a')} RENAMED FROM b;")
    place.back(1)
    assert (place.read("a"), place.read("b")) == ([{"id": 1}], [{"id": 2}])


def test_swapped_tables_there_and_back() -> None:
    """Rows go with the tables, there and back, those written since too; nothing is copied."""
    place = Place()
    like_a, like_b = "(id INT, v STRING)", "(id BIGINT, w DATE)"
    view = "CREATE VIEW both (id BIGINT) AS SELECT id FROM a UNION ALL SELECT id FROM b;"
    place.start("1", f"CREATE TABLE a {like_a}; CREATE TABLE b {like_b}; {view}")
    place.append("a", {"id": 1, "v": "of a"})
    place.append("b", {"id": 2, "w": None})
    shards = place.shard("a"), place.shard("b")
    two = (
        f"CREATE TABLE a {like_b} RENAMED FROM b; CREATE TABLE b {like_a} RENAMED FROM a; {view}"
    )
    report = place.start("2", two)
    assert (report.outcome, report.rows_copied) == ("migrated", 0)
    assert (place.shard("b"), place.shard("a")) == shards
    assert (place.read("a"), place.read("b")) == (
        [{"id": 2, "w": None}], [{"id": 1, "v": "of a"}],
    )
    place.append("b", {"id": 3, "v": "since"})
    assert place.start("2", two).outcome == "unchanged"
    assert place.start("3", f"{two} CREATE TABLE c {like_a};").outcome == "migrated"
    assert (place.shard("b"), place.shard("a")) == shards  # carried along, it does not swap back
    assert place.back(1).rows_copied == 0
    assert (place.shard("a"), place.shard("b")) == shards
    assert [row["id"] for row in place.rows("a")] == [1, 3]


def test_swap_killed_anywhere() -> None:
    """A start that is killed at any call, and one that follows, end with both tables swapped."""
    one = "CREATE TABLE a (id INT, x INT); CREATE TABLE b (id INT, x INT);"
    two = (
        "CREATE TABLE a (id INT, x INT) RENAMED FROM b;"
        " CREATE TABLE b (id INT, x INT) RENAMED FROM a;"
        " CREATE VIEW v (id INT) AS SELECT a.id FROM a JOIN b ON a.id = b.id;"
    )
    for at in count(1):
        place = Place()
        place.start("1", one)
        place.append("a", {"id": 1, "x": 1})
        place.append("b", {"id": 2, "x": 2})
        calls = count(1)

        def kill(_: str, calls: Any = calls, at: int = at) -> None:
            if next(calls) == at:
                raise Killed

        killed = True
        try:
            place.start("2", two, on_call=kill)
            killed = False
        except Killed:
            place.start("2", two)
        assert place.read("a") == [{"id": 2, "x": 2}]
        assert place.read("b") == [{"id": 1, "x": 1}]
        if not killed:
            assert at > 20
            return


@pytest.mark.parametrize("approved", [True, False])
def test_renamed_and_added_columns_go_back_in_place(approved: bool) -> None:
    """No copy: the shard stays, and the values of an added column are lost where approved."""
    place = Place()
    place.start("1", "CREATE TABLE t (id INT NOT NULL, a STRING);")
    place.append("t", {"id": 1, "a": "then"})
    shard = place.shard("t")
    renamed = "CREATE TABLE t (id INT NOT NULL, b STRING RENAMED FROM a);"
    assert place.start("2", renamed).rows_copied == 0
    place.append("t", {"id": 2, "b": "since"})
    plan = place.plan(1)
    assert ([c.contents for c in plan.changes], plan.blocked) == (["evolve"], ())
    assert not [step for step in plan.steps if step.op == "copy"]
    assert place.back(1).rows_copied == 0
    assert place.read("t") == [{"id": 1, "a": "then"}, {"id": 2, "a": "since"}]
    before = place.state.serial
    place.start("3", "CREATE TABLE t (id INT NOT NULL, a STRING, c INT);")
    place.append("t", {"id": 3, "a": "more", "c": 3})
    if not approved:
        assert codes(place.plan(before)) == [("CM0302", "c")]
        with pytest.raises(MigrationBlocked):
            place.back(before)
        return
    plan = place.plan(before, "s.t.c")
    assert plan.point_of_no_return is not None
    assert plan.point_of_no_return.names == ("s.t.c",)
    assert place.back(before, approve=("s.t.c",)).rows_copied == 0
    assert place.shard("t") == shard
    assert place.read("t") == [
        {"id": 1, "a": "then"}, {"id": 2, "a": "since"}, {"id": 3, "a": "more"},
    ]


def test_derived_tables() -> None:
    """A derived table gets the rows of its old shard, those of the new one stay behind."""
    place = Place()
    place.start("1", "CREATE TABLE d (id INT NOT NULL, a STRING) WITH (contents = 'derived');")
    place.append("d", {"id": 1, "a": "x"})
    place.start("2", "CREATE TABLE d (id INT NOT NULL, b INT) WITH (contents = 'derived');")
    place.append("d", {"id": 1, "b": 1}, {"id": 2, "b": 2})
    assert place.plan().applyable
    place.back()
    assert place.read("d") == [{"id": 1, "a": "x"}]
    assert place.start("1", "CREATE TABLE d (id INT NOT NULL, a STRING)"
                       " WITH (contents = 'derived');").outcome == "unchanged"


def test_kinds_that_changed() -> None:
    """A table that became a view is a table again, with its rows."""
    place = Place()
    table = "CREATE TABLE base (id INT NOT NULL); CREATE TABLE k (id INT NOT NULL, a STRING);"
    view = "CREATE TABLE base (id INT NOT NULL); CREATE VIEW k (id INT) AS SELECT id FROM s.base;"
    place.start("1", table)
    place.append("k", {"id": 1, "a": "x"})
    place.start("2", view, approve=("s.k",))
    place.back()
    assert place.read("k") == [{"id": 1, "a": "x"}]
    assert place.back(2, approve=("s.k",)).outcome == "rolled_back"
    assert place.state.mappings["relation:s.k"].kind == "view"


def test_users_of_a_dropped_table() -> None:
    """A user's object is left out while its table is gone, and is back with it; new ones stay."""
    place = Place()
    place.start("1", "CREATE TABLE gone (id INT NOT NULL); CREATE TABLE t (id INT NOT NULL);")
    place.append("gone", {"id": 1})

    def users(name: str, number: int, *uses: str) -> Callable[[State], Changes]:
        def decide(state: State) -> Changes:
            changes = Changes()
            changes.raise_serial()
            key = f"i{state.allocators['i'].next}"
            definition = ObjectDefinition(
                schema="s", kind="view", name=name, columns=(Column(name="id", type="INT"),),
                sql=f"SELECT id FROM s.{uses[0]}",
            )
            ids = tuple(state.mappings[f"relation:s.{use}"].item_id for use in uses)
            changes.put("item", key, ItemRecord("user", f"u{number}", definition, ids))
            changes.put("mapping", f"relation:s.{name}", MappingRecord(
                "s", "view", name, "user", key, f"u{number}", "1:a", "1:b", "1:c",
            ))
            changes.put("allocator", "i", AllocatorRecord(int(key[1:]) + 1))
            changes.put("allocator", "u", AllocatorRecord(number + 1))
            return changes

        return decide

    def quarantined(name: str) -> str | None:
        state = place.state
        return state.items[state.mappings[f"relation:s.{name}"].item_id].quarantined

    commit(place.log, users("mine", 1, "gone"), kind="statement")
    commit(place.log, users("above", 2, "mine"), kind="statement")
    two = "CREATE TABLE t (id INT NOT NULL); CREATE TABLE fresh (id INT NOT NULL);"
    place.start("2", two, approve=("s.gone",))
    assert (quarantined("mine"), quarantined("above")) == (
        "s.gone went with release 2", "s.mine went with release 2",
    )
    commit(place.log, users("later", 3, "fresh"), kind="statement")
    commit(place.log, users("other", 4, "t"), kind="statement")
    place.back(3)
    assert [quarantined(name) for name in ("mine", "above", "later", "other")] == [
        None, None, "s.fresh went with release 1", None,
    ]
    state = place.state
    mine = state.items[state.mappings["relation:s.mine"].item_id]
    assert mine.uses == (state.mappings["relation:s.gone"].item_id,)
    assert place.read("gone") == [{"id": 1}]


def test_plan_file() -> None:
    """The plan is an ordinary one: it says its serial, is bound to the catalog, applies once."""
    place = upgraded(copies=True)
    plan = place.plan(None, "s.wide.more", "s.fresh")
    assert (plan.base.release, plan.target.release, plan.target.serial) == ("2", "1", 1)
    assert place.back(plan=plan).outcome == "rolled_back"
    assert place.back(plan=plan).outcome == "unchanged"
    with pytest.raises(UsageError):
        place.back(2, plan=plan)
    place.back(2, approve=("s.gone", "s.orders.qty", "s.t.qty"))
    with pytest.raises(StalePlan):
        place.back(plan=plan)


def test_lease() -> None:
    """A rollback waits for a start that is under way, and is refused when it goes on."""
    place = upgraded()
    held = acquire(place.log, holder="a start", clock=place.clock, wait=0)
    with pytest.raises(LeaseHeld):
        place.back(approve=("s.wide.more", "s.fresh"), wait=0)
    held.release()
    assert place.back(approve=("s.wide.more", "s.fresh"), wait=0).outcome == "rolled_back"


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("persistent", [True, False])
def test_killed_anywhere(persistent: bool, every: int) -> None:
    """After a kill at any call, the next start of either release or rollback resumes or undoes."""
    at = 0
    approve = ("s.wide.more", "s.fresh")
    seen: set[str] = set()
    while True:
        at += every
        place = upgraded(persistent=persistent)
        place.append("orders", {"id": 3, "qty": 30, "remark": "c"})
        calls = 0

        def die(_: str, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Killed

        try:
            place.back(1, approve=approve, on_call=die)
        except Killed:
            place.clock.sleep(60)
            if at % 3 == 0:
                place.start("2", TWO, approve=("s.gone",))
            elif at % 3 == 1:
                place.start("1", ONE)
        report = place.back(1, approve=approve)
        seen.add(report.outcome)
        assert place.state.intents == {}
        assert place.rows("t") == [
            {"id": 1, "qty": "007", "note": "a"}, {"id": 2, "qty": None, "note": None},
            {"id": 3, "qty": "30", "note": "c"},
        ]
        assert place.rows("gone") == [{"id": 1, "x": "kept"}]
        place.append("t", {"id": 4, "qty": "4", "note": "d"})
        if calls < at:
            break
    assert at > 40
    assert seen == {"rolled_back", "unchanged", "resumed"}
