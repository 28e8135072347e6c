"""Random decisions on the columns of a table, there and back: a value is kept or named as lost.

What the simulated engine does not compute (a USING) becomes a value that nothing else has, so a
value that was replaced and not put back is seen.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.errors import EngineFailure
from catalog_migrate.planner.plan import Plan
from tests.simulation.earlier_format import forget_column_ids
from tests.simulation.test_rollback import Place, codes

Rows = dict[int, dict[str, Any]]


class Decided:
    """A column as it is declared, with the decision of this release."""

    def __init__(self, number: int, kind: str, *, nullable: bool) -> None:
        self.name, self.kind, self.nullable = f"c{number}", kind, nullable
        self.decision = ""

    def __str__(self) -> str:
        return f"{self.name} {self.kind}{'' if self.nullable else ' NOT NULL'}{self.decision}"


class History:
    """A table that goes through random decisions, with writers between the releases."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.place = Place()
        self.numbers = iter(range(1, 1000))
        self.columns = [
            Decided(next(self.numbers), self.random.choice(("STRING", "INT", "BIGINT")),
                    nullable=self.random.random() < 0.7)
            for _ in range(3)
        ]
        self.partitioned = False
        self.changed = self.expired = False
        self.deleted: set[int] = set()
        self.seen: dict[int, Rows] = {}

    def release(self, name: str) -> None:
        """Bring in the columns as they are now, and write to them."""
        by = f" PARTITIONED BY ({self.columns[0].name})" if self.partitioned else ""
        self.place.start(
            name, f"CREATE TABLE t (id INT NOT NULL, {', '.join(map(str, self.columns))}){by};"
        )
        self.write()

    def decide(self) -> None:
        """One to three decisions of the next release."""
        for column in self.columns:
            column.decision = ""
        for column in self.random.sample(self.columns, self.random.randint(1, 3)):
            using = f" USING f{next(self.numbers)}({column.name})"
            act = self.random.choice(("tighten", "relax", "retype", "rename", "layout"))
            if act == "tighten" and column.nullable:
                column.nullable = False
                default = str(next(self.numbers))
                default = f"'none {default}'" if column.kind == "STRING" else default
                column.decision = self.random.choice((using, f" DEFAULT {default}"))
            elif act == "relax":
                column.nullable = True
            elif act == "retype":
                others = {"STRING", "INT", "BIGINT"} - {column.kind}
                column.kind = self.random.choice(sorted(others))
                column.decision = using
            elif act == "rename":
                before, column.name = column.name, f"c{next(self.numbers)}"
                column.decision = f" RENAMED FROM {before}" + self.random.choice(("", using))
            else:
                self.partitioned = not self.partitioned

    def write(self) -> None:
        """Two rows, in the columns that there are."""
        definition = self.place.state.items[
            self.place.state.mappings["relation:s.t"].item_id
        ].definition
        for _ in range(2):
            key = next(self.numbers)
            row: dict[str, Any] = {"id": key}
            for column in definition.columns[1:]:
                row[column.name] = f"0{key}" if column.type == "STRING" else key
                if column.nullable and self.random.random() < 0.5:
                    row[column.name] = None
            self.place.append("t", row)
        self.see()

    def see(self) -> None:
        self.seen[self.place.state.serial] = self.rows()

    def rows(self) -> Rows:
        return {row["id"]: row for row in self.place.read("t")}

    def disturb(self) -> None:
        """Sometimes a row is deleted, or retention takes the old shards: no copy has it all."""
        chance = self.random.random()
        if chance < 0.2:
            path = self.place.shard("t")
            newest = self.place.world.newest(path)
            self.deleted |= {row["id"] for row in newest.rows[:1]}
            self.place.world.commit(path, replace(newest, act="rewrite", rows=newest.rows[1:]))
            self.changed = True
        elif chance < 0.3:
            self.place.clock.sleep(8 * 86_400)
            release = self.place.state.release_in_force("release")
            assert release is not None
            self.place.back(self.place.state.serial)
            self.expired = True
        self.see()

    def back(self, to: int) -> bool:
        """Go back with what is asked for, and compare; False where a NULL stood in the way."""
        plan = self.place.plan(to)
        approve = tuple(one.remedy.removeprefix("--approve ") for one in plan.blocked)
        assert all(one.remedy.startswith("--approve s.t.") for one in plan.blocked), plan.blocked
        try:
            self.place.back(to, approve=approve)
        except EngineFailure as failure:
            if "NULL in the NOT NULL column" not in failure.message:
                raise
            return False
        lost = {one.column for one in plan.blocked} if self.changed or self.expired else set()
        found, then = self.rows(), self.seen[to]
        for key, row in then.items():
            if key not in self.deleted:
                for name, value in row.items():
                    assert name in lost or found[key][name] == value, (name, value, found[key])
        self.seen[to] = {key: found[key] for key in then if key in found}  # what was approved
        self.see()
        return True


@pytest.mark.parametrize("seed", range(40))
def test_a_decision_is_undone_or_named_as_lost(seed: int) -> None:
    """Whatever USING and DEFAULT made of values, going back to any serial and forth again brings
    the rows that were there then with the very values they had. Where the old shards are gone or
    rows were changed since, a column may differ only if the plan asked for its loss."""
    decided_and_undone(History(seed))


@pytest.mark.parametrize("seed", range(24))
def test_a_decision_of_before_there_were_column_ids(seed: int) -> None:
    """The same where the first states have no ids, up to the first, second or third rollback."""
    decided_and_undone(History(seed), without_ids=1 + seed % 3)


def decided_and_undone(history: History, without_ids: int = 0) -> None:
    history.release("1")
    for number in range(2, 5):
        history.decide()
        history.release(str(number))
    last = history.place.state.serial
    for number in range(3):
        history.disturb()
        if number < without_ids:
            forget_column_ids(history.place.log)
        serials = [serial for serial in history.seen if serial != history.place.state.serial]
        if history.back(history.random.choice(serials)):
            history.write()
    if history.place.state.serial != last:
        history.back(last)


def converted(*, back_to_string: bool = False) -> Place:
    """A NULL that a release replaced, and at will a later one that allows NULL again."""
    place = Place()
    place.start("1", "CREATE TABLE t (id INT NOT NULL, c STRING);")
    place.append("t", {"id": 1, "c": None}, {"id": 2, "c": "b"})
    place.start("2", "CREATE TABLE t (id INT NOT NULL, c STRING NOT NULL USING coalesce(c, '?'));")
    if back_to_string:
        place.start("3", "CREATE TABLE t (id INT NOT NULL, c STRING);")
    return place


@pytest.mark.parametrize("back_to_string", [False, True])
def test_a_using_that_keeps_the_type_is_undone(back_to_string: bool) -> None:
    """The values of then come from the old shard, also where the columns are alike again; rows
    written since have what was written."""
    place = converted(back_to_string=back_to_string)
    place.append("t", {"id": 3, "c": "since"})
    plan = place.plan(1)
    assert [(one.action, one.contents) for one in plan.changes] == [
        ("update" if back_to_string else "migrate", "copy")
    ]
    place.back(1)
    assert place.read("t") == [
        {"id": 1, "c": None}, {"id": 2, "c": "b"}, {"id": 3, "c": "since"},
    ]


def reasons(plan: Plan) -> list[str]:
    return [one.reason for one in plan.blocked]


@pytest.mark.parametrize("back_to_string", [False, True])
def test_a_using_whose_old_shard_is_gone(back_to_string: bool) -> None:
    """Its loss is named, and approved the table stays as it is: nothing is copied."""
    place = converted(back_to_string=back_to_string)
    place.clock.sleep(8 * 86_400)
    place.back(place.state.serial)
    plan = place.plan(1)
    assert codes(plan) == [("CM0301", "c")]
    (reason,) = reasons(plan)
    assert reason.startswith(
        "the values that column c had before they were converted are missing, and the present"
        " ones stay: "
    )
    path, rows = place.shard("t"), place.read("t")
    assert place.back(1, approve=("s.t.c",)).rows_copied == 0
    assert (place.shard("t"), place.read("t")) == (path, rows)


def test_a_using_whose_rows_were_changed_since() -> None:
    """Its loss is named with the reason."""
    place = converted()
    newest = place.world.newest(place.shard("t"))
    place.world.commit(place.shard("t"), replace(newest, act="rewrite"))
    plan = place.plan(1)
    assert codes(plan) == [("CM0341", "c")]
    assert reasons(plan) == [
        "rows were changed or removed since, so the values that column c had before they were"
        " converted cannot be put back, and those of now stay"
    ]


def test_a_using_of_a_table_without_rows_changes_nothing() -> None:
    """There was no value to convert: the table stays where it is."""
    place = Place()
    place.start("1", "CREATE TABLE t (id INT NOT NULL, c STRING);")
    place.start("2", "CREATE TABLE t (id INT NOT NULL, c STRING NOT NULL USING coalesce(c, '?'));")
    place.append("t", {"id": 3, "c": "since"})
    assert [one.contents for one in place.plan(1).changes] == ["evolve"]


def test_a_column_that_was_computed_meanwhile() -> None:
    """A plain column that a release made a generated one, and another one plain again."""
    place = Place()
    table = "CREATE TABLE t (id INT NOT NULL, c INT{});".format
    place.start("1", table(""))
    place.append("t", {"id": 1, "c": 7})
    place.start("2", table(" GENERATED ALWAYS AS (id * 2)"))
    place.start("3", table(""))
    assert [one.contents for one in place.plan(1).changes] == ["copy"]
    place.back(1)
    assert place.read("t") == [{"id": 1, "c": 7}]
