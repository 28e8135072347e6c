"""Users' objects before, in and behind a start: found, judged, on record, looked at again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog_migrate.errors import EngineFailure, MigrationBlocked
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.testing.engine import SimulatedEngine
from tests.users.conftest import Place, release

ONE = release("1", """
CREATE TABLE s.t (id BIGINT, city STRING, size INT);
CREATE TABLE s.other (id BIGINT);
""")
TWO = release("2", """
CREATE TABLE s.t (id BIGINT, town STRING RENAMED FROM city, size INT);
CREATE TABLE s.other (id BIGINT);
""")
THREE = release("3", """
CREATE TABLE s.t (id BIGINT, town STRING RENAMED FROM city, size INT);
CREATE TABLE s.other (id BIGINT, note STRING);
""")
FOUR = release("4", """
CREATE TABLE s.t (id BIGINT, size INT) DROPPED (town);
CREATE TABLE s.other (id BIGINT, note STRING, more STRING);
""")
FIVE = release("5", """
CREATE TABLE s.t (id BIGINT, size INT) DROPPED (town);
CREATE TABLE s.other (id BIGINT, note STRING, more STRING, most STRING);
""")
NO_CITY = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] column city cannot be resolved"
NO_BREAK = Policy(rules=(Rule("break_user_object", "refuse", "team.*"),))
FIRST, LATER = "2023-11-14T22:13:20+00:00", "2023-11-14T23:13:20+00:00"
LOOKS = {"schemas", "user_definitions", "relations_read", "analyse"}


def broken(name: str, since: str = FIRST, by: str = "2", reason: str = NO_CITY) -> str:
    """The line of a view that is broken."""
    return f"view team.{name}: broken since {since} by release {by}: {reason}"


@pytest.fixture
def place() -> Place:
    """A metastore with release 1 and views of users."""
    made = Place()
    made.start(ONE)
    made.view("cities", "SELECT city FROM t")
    made.view("above", "SELECT city FROM team.cities")
    made.view("ids", "SELECT id FROM s.t")
    made.view("others", "SELECT id FROM other")
    return made


def test_on_record_until_it_binds_again_or_is_dropped(place: Place) -> None:
    """A start goes on and reports what broke; each later one repeats it, until a look finds it
    bound, or missing. Nothing is written and nothing looked at where nothing changes."""
    report = place.start(TWO)
    assert report.outcome == "migrated"
    assert report.plan is not None
    assert [(each.name, each.outcome, each.because) for each in report.plan.users or ()] == [
        ("team.above", "breaks", ("s.t", "team.cities", "team.above")),
        ("team.cities", "breaks", ("s.t", "team.cities")),
        ("team.ids", "unchanged", ("s.t", "team.ids")),
    ]
    assert report.outstanding == (broken("above"), broken("cities"))
    assert {key: (row.state, row.reads) for key, row in place.state.user_objects.items()} == {
        "relation:team.above": ("broken", ("relation:team.cities",)),
        "relation:team.cities": ("broken", ("relation:s.t",)),
        "relation:team.ids": ("bound", ("relation:s.t",)),
        "relation:team.others": ("bound", ("relation:s.other",)),
    }

    calls: list[str] = []
    version = place.log.version()
    again = place.start(TWO, on_call=calls.append)
    assert (again.outcome, again.outstanding) == ("unchanged", report.outstanding)
    assert place.log.version() == version
    assert LOOKS.isdisjoint(calls)

    place.clock.sleep(3600)
    place.view("town", "SELECT town FROM t")
    assert place.start(THREE).outstanding == report.outstanding

    place.view("cities", "SELECT id AS city FROM t")
    del place.world.names.relations["team", "others"]
    gone = NO_CITY.replace("city", "town")
    assert place.start(FOUR).outstanding == (broken("town", LATER, "4", gone),)
    assert sorted(place.state.user_objects) == [
        "relation:team.above", "relation:team.cities", "relation:team.ids", "relation:team.town",
    ]


def test_a_start_that_only_looks(place: Place) -> None:
    """It says what the start would say beforehand, of those that a rule refuses too; it writes
    nothing, and looks at nothing where nothing changes."""
    calls: list[str] = []
    before = (place.world.writes, place.log.version())
    looked = place.start(TWO, read_only=True)
    assert (looked.outcome, looked.outstanding) == ("planned", ())
    refused = place.start(TWO, read_only=True, policy=NO_BREAK).plan
    assert refused is not None
    assert [entry.code for entry in refused.blocked] == ["CM0308", "CM0308"]
    assert place.start(ONE, read_only=True, on_call=calls.append).outcome == "unchanged"
    assert LOOKS.isdisjoint(calls)
    assert (place.world.writes, place.log.version()) == before
    started = place.start(TWO)
    assert None not in (looked.plan, started.plan)
    assert started.plan.users == looked.plan.users != ()  # type: ignore[union-attr]


def test_a_reader_of_what_stays(place: Place) -> None:
    """It is on record, looked at with the others, and in no plan."""
    report = place.start(TWO)
    assert report.plan is not None
    assert "team.others" not in {each.name for each in report.plan.users or ()}
    assert place.record("relation:team.others").state == "bound"
    assert place.record("relation:team.others").serial == place.state.serial


class Killed(BaseException):
    """The process dies here."""


def die_at(number: int, method: str = "") -> Callable[[str], None]:
    """A hook that lets a process die at its n-th call (of a method)."""
    left = [number]

    def on_call(call: str) -> None:
        if method in call:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(call)

    return on_call


def test_killed_at_every_call(place: Place) -> None:
    """Wherever a start dies, the next one leaves the record that it would have left."""
    expected = ((broken("above"), broken("cities")), {"relation:team.above", "relation:team.cities",
                                                      "relation:team.ids", "relation:team.others"})
    looked_again = 0
    for number in range(1, 500):
        killed = Place()
        killed.start(ONE)
        for name, sql in (
            ("cities", "SELECT city FROM t"), ("above", "SELECT city FROM team.cities"),
            ("ids", "SELECT id FROM s.t"), ("others", "SELECT id FROM other"),
        ):
            killed.view(name, sql)
        try:
            killed.start(TWO, on_call=die_at(number))
        except Killed:
            committed = killed.state.is_users_look_due
        else:
            break
        calls: list[str] = []
        report = killed.start(TWO, on_call=calls.append)
        said = tuple(line.replace(LATER[:13], FIRST[:13]) for line in report.outstanding)
        since = {line.partition(" since ")[2][:19] for line in report.outstanding}
        assert {line[:19] for line in said} == {line[:19] for line in expected[0]}, number
        assert len(since) == 1, number
        assert set(killed.state.user_objects) == expected[1], number
        assert not killed.state.is_users_look_due, number
        if committed:
            looked_again += 1
            assert report.outcome == "resumed", number
            assert "analyse" in calls, number
    assert looked_again > 5


def test_refused_by_the_policy(place: Place) -> None:
    """A rule that refuses keeps the release out, names each object, and leaves nothing behind."""
    rule = Rule("break_user_object", "refuse", "team.*")
    with pytest.raises(MigrationBlocked) as caught:
        place.start(TWO, policy=Policy(rules=(rule,)))
    assert {entry.name for entry in caught.value.plan.blocked} == {"team.above", "team.cities"}
    assert place.state.release_in_force("release").name == "1"  # type: ignore[union-attr]
    assert dict(place.state.user_objects) == {}
    allowed = Rule("break_user_object", "allow", "team.*")
    assert place.start(TWO, policy=Policy(rules=(allowed,))).outcome == "migrated"


def test_what_cannot_be_looked_at_is_a_line(place: Place) -> None:
    """No permission, a schema that cannot be listed, an analyser that fails: the start goes on."""
    place.world.unreadable.add(("team", "ids"))
    report = place.start(TWO)
    assert report.outstanding == (
        "view team.ids: not known whether it goes on: no permission to read it",
        broken("above"), broken("cities"),
    )

    def refuse(method: str) -> Callable[[str], None]:
        def on_call(call: str) -> None:
            if call == method:
                raise EngineFailure(f"{method} is refused")
        return on_call

    unlisted = place.start(THREE, engine=place.engine(refuse("schemas")))
    assert unlisted.outcome == "migrated"
    assert unlisted.outstanding == (
        "view *: not known whether it goes on: schemas is refused",
        broken("above"), broken("cities"),
        f"view team.others: unknown since {FIRST} by release 3: schemas is refused",
    )
    unanalysed = place.start(FOUR, engine=place.engine(refuse("analyse")))
    assert unanalysed.outcome == "migrated"
    assert unanalysed.outstanding == (
        "view team.above: not known whether it goes on: it reads team.cities: analyse is refused",
        "view team.cities: not known whether it goes on: analyse is refused",
        "view team.others: not known whether it goes on: analyse is refused",
        "view team.ids: not known whether it goes on: no permission to read it",
        broken("above"), broken("cities"),
        f"view team.others: unknown since {FIRST} by release 3: analyse is refused",
    )
    assert place.start(FIVE).outstanding == (
        "view team.ids: not known whether it goes on: no permission to read it",
        broken("above"), broken("cities"),
    )


@pytest.mark.parametrize("moment", ["evolve.done", "analyse.done"])
def test_dropped_or_altered_meanwhile(place: Place, moment: str) -> None:
    """What users do while a start is under way is theirs: the record says what is there then."""
    engine = place.engine()
    done: list[str] = []

    def on_call(call: str) -> None:
        if call == moment and not done:
            done.append(call)
            users = SimulatedEngine(place.world, persistent=True)
            del users._names.relations["team", "ids"]
            del users._names.relations["team", "cities"]

    engine.on_call = on_call
    report = place.start(TWO, engine=engine)
    assert done == [moment]
    assert report.outcome == "migrated"
    assert [line.partition(":")[0] for line in report.outstanding] == ["view team.above"]
    assert sorted(place.state.user_objects) == ["relation:team.above", "relation:team.others"]


def test_in_a_session(place: Place) -> None:
    """Names that end with the session are on no record: what broke is in this start's report."""
    place = Place(persistent=False)
    place.start(ONE)
    engine = place.engine()
    place.start(ONE, engine=engine)
    place.view("cities", "SELECT city FROM t", engine=engine)
    place.view("ids", "SELECT id FROM t", engine=engine)
    report = place.start(TWO, engine=engine)
    assert report.outstanding == (broken("cities"),)
    assert dict(place.state.user_objects) == {}
    assert place.start(TWO, engine=engine).outstanding == ()
