"""A catalog of before there were column ids opens, migrates, and goes back to any serial."""

from __future__ import annotations

import msgspec
import pytest

from catalog_migrate.catalog.history import state_at
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_texts
from catalog_migrate.report import render
from tests.simulation.earlier_format import frozen
from tests.simulation.test_rollback import Place, Rows

K = "CREATE TABLE k (id INT NOT NULL, c STRING);"
FIVE = "CREATE TABLE t (id INT NOT NULL, b STRING, x STRING RENAMED FROM a, z INT);" + K
SIX = "CREATE TABLE t (id INT NOT NULL, b STRING, w STRING RENAMED FROM x, z INT);" + K
SERIALS = (1, 3, 4, 5, 6, 7, 8)


def back(place: Place, serial: int) -> None:
    """Go back with whatever has to be approved; at once again there is nothing to do."""
    remedies = [one.remedy for one in place.plan(serial).blocked]
    assert all(remedy.startswith("--approve s.") for remedy in remedies), remedies
    place.back(serial, approve=tuple(one.removeprefix("--approve ") for one in remedies))
    assert place.back(serial).outcome == "unchanged"


def compared(place: Place, then: dict[str, Rows]) -> None:
    """The rows that there were then are there, and have the values of then."""
    for table, rows in then.items():
        found = {row["id"]: row for row in place.rows(table)}
        assert [found[row["id"]] for row in rows] == rows


def test_the_release_in_force_starts_unchanged() -> None:
    """Until something is migrated the catalog stays of the format that older tools know."""
    place, _ = frozen()
    assert place.start("5", FIVE).outcome == "unchanged"
    assert place.state.setting("format_version") == "2"
    assert not any(item.column_ids for item in place.state.items.values())


def test_the_first_migration_numbers_the_columns() -> None:
    """Those of tables that do not change too; a renamed one keeps its number."""
    place, _ = frozen()
    place.start("6", SIX)
    state = place.state
    assert state.setting("format_version") == "3"
    ids = {
        item.definition.name: item.column_ids.ids
        for item in state.items.values() if item.column_ids is not None
    }
    assert ids == {"t": (1, 2, 3, 4), "k": (1, 2)}


def test_the_plan_says_whom_the_commit_locks_out() -> None:
    """Once, for a catalog that has a release; a new one and one of this format lock out nobody."""
    place, _ = frozen()
    release = load_texts([("all.sql", SIX)], name="6", default_schema="s")

    def plan() -> Plan:
        return plan_migration(Baseline.from_state(place.state), release).plan

    said = plan().locks_out
    assert said is not None
    assert said.startswith("The commit raises the record format of the catalog from 2 to 3. Until")
    assert said in " ".join(render(plan(), "text").split())
    assert place.plan(1).locks_out == said
    hashed = msgspec.structs.replace(plan(), locks_out=None)
    assert plan_hash(hashed) == plan().plan_hash
    place.start("5.1", FIVE.replace("z INT", "z INT COMMENT 'z'"))
    assert plan().changes
    assert plan().locks_out is None
    assert plan_migration(Baseline.empty(), release).plan.locks_out is None


def with_k(properties: str) -> str:
    """Release 6 with these properties of table k."""
    return SIX.replace("c STRING);", f"c STRING) WITH ({properties});")


PLAIN = with_k("'a' = '1', 'b' = '2'")


@pytest.mark.parametrize(("text", "needed"), [
    (PLAIN, "3"),
    (with_k("'a' = '3', 'b' = '2'"), "3"),
    (with_k("'a' = '1'"), "5"),
    (with_k("'a' = '1', 'b' = '2', 'delta.enableRowTracking' = 'true'"), "5"),
    (PLAIN + "CREATE TABLE f (id INT) FILLED FROM (SELECT id FROM k);", "5"),
    (PLAIN + "CREATE FUNCTION f(x INT) RETURN x;", "5"),
    (PLAIN + "CREATE FUNCTION f(x INT) RETURNS INT RETURN x;", "3"),
])
def test_what_older_tools_would_misread_raises_the_format(text: str, needed: str) -> None:
    """The plan says it, the commit does it, and it stays so."""
    place, _ = frozen()
    place.start("6", PLAIN)
    plan = plan_migration(
        Baseline.from_state(place.state),
        load_texts([("all.sql", text)], name="6.1", default_schema="s"),
    ).plan
    said = "The commit raises the record format of the catalog from 3 to 5."
    assert (plan.locks_out or "").startswith(said) is (needed == "5")
    assert (plan.locks_out is None) is (needed == "3")
    place.start("6.1", text)
    assert place.state.setting("format_version") == needed
    place.start("6.2", PLAIN.replace("z INT", "z INT COMMENT 'z'"), approve=("s.f",))
    assert int(place.state.setting("format_version")) >= int(needed)


def test_the_format_is_raised_no_later_than_what_needs_it() -> None:
    """While a seal outlives its commit, the catalog is of the format that knows it."""
    place, _ = frozen()
    seen: list[str] = []

    def look(_: str) -> None:
        state = place.state
        if any(intent.committed for intent in state.intents.values()):
            seen.append(state.setting("format_version"))

    place.start("6", SIX + "CREATE TABLE f (id INT) FILLED FROM (SELECT id FROM k);", on_call=look)
    assert set(seen) == {"5"}


@pytest.mark.parametrize("migrated", [False, True])
@pytest.mark.parametrize("serial", SERIALS)
def test_back_to_a_serial_without_ids(serial: int, migrated: bool) -> None:
    """Each value of then is under the column that it belonged to, at once and behind a migration
    of this version; so it is forth again, and back to every other serial."""
    place, seen = frozen()
    if migrated:
        place.start("6", SIX)
        place.append("t", {"id": 8, "b": "b8", "w": "a8", "z": 8})
    last, rows = place.state.serial, {name: place.rows(name) for name in ("t", "k")}
    if serial != last:
        back(place, serial)
        compared(place, seen[serial])
    other = SERIALS[SERIALS.index(serial) - 1]
    back(place, other)
    compared(place, {"k": seen[other]["k"]})
    back(place, last)
    compared(place, {"k": rows["k"]})


def test_what_a_rollback_brought_back_keeps_its_values() -> None:
    """Columns of a serial without ids that were dropped since have an id from that rollback on."""
    place, seen = frozen()
    back(place, 4)
    back(place, 3)
    compared(place, seen[3])
    place.append("t", {"id": 9, "x": "a9", "y": "b9", "z": 9})
    before = place.rows("t")
    place.start("7", "CREATE TABLE t (id INT NOT NULL, y STRING, v STRING RENAMED FROM x, z INT);"
                + K.replace("STRING", "STRING NOT NULL"))
    back(place, 3)
    assert place.rows("t") == before


def test_a_shard_that_was_refused_its_columns_is_read_by_the_names_it_has() -> None:
    """Behind the copy that was made instead, by the records of that version."""
    place, seen = frozen()
    assert state_at(place.log, 2).shards["s/t/000001"].evolve
    back(place, 1)
    compared(place, seen[1])
    assert {row["id"]: (row["a"], row["b"]) for row in place.rows("t")} == {
        1: ("a1", "b1"), 2: ("a2", "b2"), 3: (None, "b3"), 4: (None, "b4"), 5: ("a5", "b5"),
        6: ("a6", "b6"), 7: ("a7", "b7"),
    }
