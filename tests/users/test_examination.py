"""What is said of users' objects before a change, where one reads another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.plan import UserObject
from catalog_migrate.testing.world import UserView
from tests.users.conftest import Place, release

ONE = """
CREATE TABLE s.t (id BIGINT, city STRING, size INT);
CREATE TABLE s.kept (id BIGINT);
CREATE FUNCTION s.twice (x BIGINT) RETURNS BIGINT RETURN x + x;
CREATE FUNCTION s.inner_one (x BIGINT) RETURNS BIGINT RETURN x + 1;
"""
WITHOUT_FUNCTION = ONE.replace(
    "CREATE FUNCTION s.twice (x BIGINT) RETURNS BIGINT RETURN x + x;", ""
)
WIDER = ONE.replace("size INT", "size INT, more STRING")
RENAMED = ONE.replace("CREATE TABLE s.t (", "CREATE TABLE s.places (").replace(
    "size INT);", "size INT) RENAMED FROM s.t;"
)


@pytest.fixture
def place() -> Place:
    """A metastore with the first release."""
    made = Place()
    made.start(release("1", ONE))
    return made


def said(place: Place, text: str) -> dict[str, UserObject]:
    """The entries of the plan of a start with another release."""
    report = place.start(release("2", text))
    assert report.plan is not None
    assert isinstance(report.plan.users, tuple)
    return {each.name: each for each in report.plan.users}


def test_a_function_that_goes(place: Place) -> None:
    """Spark has it until the commit: what calls it, through others too, is said to break."""
    place.function("four", "BIGINT", "BIGINT", "s.twice(s.twice(x))")
    place.view("calls", "SELECT team.four(id) AS n FROM s.kept")
    found = said(place, WITHOUT_FUNCTION)
    assert (found["team.four"].outcome, found["team.four"].missing) == ("breaks", "s.twice")
    assert found["team.four"].condition == "UNRESOLVED_ROUTINE"
    assert (found["team.calls"].outcome, found["team.calls"].reason) == (
        "breaks", "it reads team.four, which breaks",
    )
    assert found["team.calls"].because == (
        "function:s.twice", "function:team.four", "team.calls",
    )
    assert {key: row.state for key, row in place.state.user_objects.items()} == {
        "function:team.four": "broken", "relation:team.calls": "broken",
    }


def test_a_table_that_is_renamed(place: Place) -> None:
    """What reads it by its old name breaks; the remedy reads it by the new one."""
    place.view("cities", "SELECT city FROM t")
    found = said(place, RENAMED)
    assert (found["team.cities"].outcome, found["team.cities"].condition) == (
        "breaks", "TABLE_OR_VIEW_NOT_FOUND",
    )
    assert found["team.cities"].because == ("s.t", "team.cities")
    assert found["team.cities"].repaired == "SELECT city FROM s.places"
    assert found["team.cities"].remedy == "rename s.t to s.places in its text"
    assert place.record("relation:team.cities").state == "broken"


def test_what_a_view_gives_afterwards_is_what_is_bound_above_it(place: Place) -> None:
    """EVOLUTION takes a new column, so the one above it does too; the default mode does not."""
    place.view("evolves", "SELECT * FROM t", "EVOLUTION")
    place.view("above", "SELECT * FROM team.evolves", "EVOLUTION")
    place.view("stays", "SELECT * FROM team.evolves")
    found = said(place, WIDER)
    assert {
        name: (each.outcome, [(c.name, c.change) for c in each.columns])
        for name, each in found.items()
    } == {
        "team.evolves": ("changed", [("more", "added")]),
        "team.above": ("changed", [("more", "added")]),
        "team.stays": ("unchanged", []),
    }
    standing = place.engine()
    for name in found:
        schema, _, own = name.partition(".")
        held = place.world.names.relations[schema, own]
        assert isinstance(held, UserView)
        given = [column.name for column in standing.read_view(held)]
        assert ("more" in given) is (name != "team.stays")


def test_one_that_is_broken_already_reads_what_keeps_its_columns(place: Place) -> None:
    """What it reads changes in its text alone: it is not said to go on, nor one in a circle."""
    view = "CREATE VIEW s.big (id BIGINT, size INT) AS SELECT id, size FROM t WHERE size > {};"
    place.start(release("1b", ONE + view.format(1)))
    place.view("good", "SELECT id FROM big")
    place.view("lost", "SELECT size FROM big")
    place.view("above", "SELECT size FROM team.lost")
    place.view("itself", "SELECT id FROM big")
    names = place.world.names.relations
    for name, text in (
        ("lost", "SELECT nothing AS size FROM big"),
        ("itself", "SELECT a.id FROM team.itself a JOIN s.big b ON a.id = b.id"),
    ):
        held = names["team", name]
        assert isinstance(held, UserView)
        names["team", name] = replace(held, sql=text)
    found = said(place, ONE + view.format(2))
    assert {name: (each.outcome, each.condition) for name, each in found.items()} == {
        "team.good": ("unchanged", None),
        "team.lost": ("broken", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        "team.above": ("broken", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        "team.itself": ("unknown", None),
    }
    assert found["team.itself"].reason == "it reads itself: team.itself -> team.itself"
    assert found["team.lost"].because == ("s.big", "team.lost")


def test_one_that_may_name_what_changes_by_an_expression(place: Place) -> None:
    """There Spark would read the columns of now for those to come: it is not known; where a name
    that can be read breaks it, it breaks, and no text is proposed."""
    place.view("spelt", "SELECT id FROM t")
    place.view("lost", "SELECT city FROM t")
    names = place.world.names.relations
    for name, text in (
        ("spelt", "SELECT id FROM t WHERE id > ${n}"), ("lost", "SELECT city FROM t WHERE ${n}"),
    ):
        held = names["team", name]
        assert isinstance(held, UserView)
        names["team", name] = replace(held, sql=text)
    found = said(place, ONE.replace("city STRING", "town STRING RENAMED FROM city"))
    assert (found["team.spelt"].outcome, found["team.spelt"].reason) == (
        "unknown",
        "its text has names that only Spark can read, so it cannot be tried on what changes",
    )
    assert (found["team.lost"].outcome, found["team.lost"].repaired) == ("breaks", None)


def test_circles_and_what_cannot_be_read(place: Place) -> None:
    """Two views that read each other, and what reads an unreadable one, are not known; the start
    goes on, and every other entry is as without them."""
    place.view("one", "SELECT city FROM t")
    place.view("two", "SELECT city FROM team.one")
    place.view("hidden", "SELECT city FROM t")
    place.view("good", "SELECT id FROM t")
    names = place.world.names.relations
    one = names["team", "one"]
    assert isinstance(one, UserView)
    text = "SELECT a.city FROM team.two a JOIN s.t b ON a.city = b.city"
    names["team", "one"] = replace(one, sql=text)
    place.world.unreadable.add(("team", "hidden"))
    found = said(place, WIDER)
    assert found["team.one"].outcome == found["team.two"].outcome == "unknown"
    assert found["team.one"].reason == "it reads itself: team.one -> team.two -> team.one"
    assert found["team.hidden"].reason == "no permission to read it"
    assert found["team.good"].outcome == "unchanged"
