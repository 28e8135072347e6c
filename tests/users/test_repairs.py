"""`[users] repair`: what a start puts into the text of users' objects, and what puts it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.records import UserObjectRecord
from catalog_migrate.testing.world import UserView
from tests.decisions import Changes, commit
from tests.users.conftest import Place, release

ONE = release("1", """
CREATE TABLE s.t (id BIGINT, city STRING, size INT);
""")
TWO = release("2", """
CREATE TABLE s.t (id BIGINT, town STRING RENAMED FROM city, size INT);
""")
THREE = release("3", """
CREATE TABLE s.t (id BIGINT, size INT, city STRING RENAMED FROM town);
""")
AGAIN = release("4", """
CREATE TABLE s.t (id BIGINT, place STRING RENAMED FROM town, size INT);
""")
KEY = "relation:team.cities"
ORIGINAL, REPAIRED = "SELECT city, id FROM t", "SELECT town AS city, id FROM t"
MINE = "SELECT size AS city, id FROM t"
Due = Literal["repair", "put back"]


@pytest.fixture
def place() -> Place:
    """A metastore with release 2, which broke a view and the one above it."""
    made = Place()
    made.start(ONE)
    made.view("cities", ORIGINAL)
    made.view("above", "SELECT city FROM team.cities")
    made.start(TWO)
    return made


def leave(place: Place, due: Due | None, text: str) -> None:
    """The state behind a commit with something due, of a start that died there; and the text that
    the view has by then."""
    row = replace(
        place.record(KEY), due=due, serial=0, original=ORIGINAL, repaired=REPAIRED, repaired_at=2
    )
    changes = Changes()
    changes.put("user_object", KEY, row)
    commit(place.log, lambda _: changes, kind="test")
    put_text(place, text)


def put_text(place: Place, text: str) -> None:
    """What a user does: the view has this text."""
    names = place.world.names.relations
    held = names["team", "cities"]
    assert isinstance(held, UserView)
    names["team", "cities"] = replace(held, sql=text)


def text_of(place: Place) -> str:
    """The text that the view has."""
    held = place.world.names.relations["team", "cities"]
    assert isinstance(held, UserView)
    return held.sql


def is_kept(row: UserObjectRecord) -> bool:
    """Whether a repair is on record as made."""
    return (row.original, row.repaired, row.repaired_at, row.due) == (ORIGINAL, REPAIRED, 2, None)


@pytest.mark.parametrize(
    ("due", "text", "repair", "expected", "kept", "broken"),
    [
        ("repair", ORIGINAL, True, REPAIRED, True, False),
        ("repair", REPAIRED, True, REPAIRED, True, False),  # it was made, and the start died
        ("repair", MINE, True, MINE, False, False),  # its owner was faster
        ("repair", "SELECT nothing AS city FROM t", True, "SELECT nothing AS city FROM t", False,
         True),
        ("repair", ORIGINAL, False, ORIGINAL, False, True),
        ("put back", REPAIRED, True, REPAIRED, True, False),  # it does not bind: a line
        ("put back", ORIGINAL, True, ORIGINAL, False, True),
        ("put back", MINE, True, MINE, False, False),
    ],
)  # fmt: skip
def test_what_is_due_is_done_once(
    place: Place, due: Due, text: str, repair: bool, expected: str, kept: bool, broken: bool
) -> None:
    """A text is only replaced where it is the one that the repair was found for; what reads it
    binds again with it."""
    leave(place, due, text)
    report = place.start(TWO, repair=repair)
    assert report.outcome == "resumed"
    assert text_of(place) == expected
    assert is_kept(place.record(KEY)) is kept
    if not kept:
        assert place.record(KEY).original is None
    assert [line.partition(":")[0] for line in report.outstanding if "broken since" in line] == (
        ["view team.above", "view team.cities"] if broken else []
    )
    assert ("view team.cities could not be repaired: column city cannot be resolved" in (
        report.outstanding
    )) is (due == "put back" and kept)
    assert report.repaired == (("view team.cities",) if text == ORIGINAL != expected else ())
    assert place.start(TWO, repair=repair).outcome == "unchanged"


class Killed(BaseException):
    """The process dies here."""


def test_killed_at_every_call_of_a_repair(place: Place) -> None:
    """Wherever the start dies, the next one has the text repaired once, and its original on
    record."""

    def die_at(number: int) -> Callable[[str], None]:
        left = [number]

        def on_call(call: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(call)

        return on_call

    done = 0
    for number in range(1, 300):
        place = Place()
        place.start(ONE)
        place.view("cities", ORIGINAL)
        place.view("above", "SELECT city FROM team.cities")
        place.start(TWO)
        leave(place, "repair", ORIGINAL)
        try:
            place.start(TWO, on_call=die_at(number), repair=True)
        except Killed:
            done += 1
        else:
            break
        place.start(TWO, repair=True)
        assert (text_of(place), is_kept(place.record(KEY))) == (REPAIRED, True), number
    assert done > 10


def test_a_rollback_puts_the_original_back(place: Place) -> None:
    """Going back behind the migration that a repair belongs to undoes the repair; not without
    `repair`, and not the text of an owner who altered it since."""
    leave(place, None, REPAIRED)
    place.start(TWO, repair=True)
    assert is_kept(place.record(KEY))
    report = place.back(1, repair=True)
    assert report.outcome == "rolled_back"
    assert report.repaired == ("view team.cities (its text from before a repair)",)
    assert text_of(place) == ORIGINAL
    assert place.record(KEY).original is None
    assert report.outstanding == ()


def test_a_rollback_of_a_start_that_does_not_repair(place: Place) -> None:
    """The text stays, and the view is broken: only `repair` lets a start touch it."""
    leave(place, None, REPAIRED)
    place.start(TWO, repair=True)
    assert len(place.back(1).outstanding) == 2
    assert text_of(place) == REPAIRED


def test_a_text_that_was_altered_since(place: Place) -> None:
    """A rollback leaves it alone, and the record forgets the repair."""
    leave(place, None, REPAIRED)
    place.start(TWO, repair=True)
    put_text(place, MINE)
    place.back(1, repair=True)
    assert text_of(place) == MINE
    assert place.record(KEY).original is None


def test_a_later_release_lets_the_original_bind_again(place: Place) -> None:
    """Where the repaired text breaks and the original binds, that is the repair: the plan says so,
    and it is put back."""
    leave(place, None, REPAIRED)
    place.start(TWO, repair=True)
    report = place.start(THREE, repair=True)
    assert report.plan is not None
    entry = {each.name: each for each in report.plan.users or ()}["team.cities"]
    assert (entry.outcome, entry.repaired) == ("breaks", ORIGINAL)
    assert text_of(place) == ORIGINAL
    assert place.record(KEY).original is None
    assert report.outstanding == ()


def test_two_releases_in_a_row(place: Place) -> None:
    """A repaired text that breaks again is repaired again; killed before, the first one stays on
    record. A rollback behind both puts the text back that its owner wrote."""
    leave(place, None, REPAIRED)
    place.start(TWO, repair=True)

    def die(call: str) -> None:
        if call == "replace_text":
            raise Killed

    with pytest.raises(Killed):
        place.start(AGAIN, on_call=die, repair=True)
    assert (text_of(place), place.record(KEY).replaces) == (REPAIRED, REPAIRED)
    assert place.start(AGAIN, repair=True).outstanding == ()
    assert text_of(place) == "SELECT place AS city, id FROM t"
    row = place.record(KEY)
    assert (row.original, row.repaired, row.due, row.replaces) == (
        ORIGINAL, text_of(place), None, None
    )
    assert place.back(1, repair=True).outstanding == ()
    assert (text_of(place), place.record(KEY).original) == (ORIGINAL, None)


def test_one_that_is_altered_at_that_moment(place: Place) -> None:
    """The engine refuses to replace what is another by now: a line in the report."""
    leave(place, "repair", ORIGINAL)
    engine = place.engine()

    def alter(call: str) -> None:
        if call == "replace_text":
            put_text(place, MINE)

    engine.on_call = alter
    report = place.start(TWO, engine=engine, repair=True)
    assert report.outstanding == (
        "view team.cities could not be repaired: team.cities is another by now",
    )
    assert text_of(place) == MINE
    assert place.record(KEY).original is None
