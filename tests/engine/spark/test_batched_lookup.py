"""One look for names that are dropped in the same moment: each answer once, and while fresh."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catalog_migrate.engine.port import Registration
from catalog_migrate.engine.spark import registrations
from catalog_migrate.engine.spark.registrations import BatchedLookup
from catalog_migrate.model.names import ItemName

VIEWS = tuple(Registration(ItemName("S", f"V{number}"), "view") for number in range(3))
OTHERS = (Registration(ItemName("R", "T"), "table"), Registration(ItemName("R", "F"), "function"))
GROUP = (*VIEWS, *OTHERS)


class World:
    """What stands there, and which names were looked at."""

    def __init__(self, *standing: Registration) -> None:
        self.standing = {each.name.folded: each for each in standing}
        self.looks: list[list[str]] = []

    def look(self, names: Sequence[ItemName]) -> dict[tuple[str, str], Registration]:
        assert len({name.schema for name in names}) == 1
        self.looks.append([name.name for name in names])
        return {
            name.folded: self.standing[name.folded]
            for name in names if name.folded in self.standing
        }


def test_a_statement_for_the_names_of_each_schema() -> None:
    """All of a group are answered by them, also those that are not there."""
    world = World(*VIEWS[:2], OTHERS[0])
    look = BatchedLookup(world.look)
    found = [look.find(each.name, GROUP) for each in (*VIEWS, OTHERS[0])]
    assert found == [*VIEWS[:2], None, OTHERS[0]]
    assert world.looks == [["V0", "V1", "V2"], ["T"]]


def test_an_answer_is_given_once() -> None:
    """Who asks again, as after a failure, is looked for alone; so is one of another group."""
    world = World(*VIEWS)
    look = BatchedLookup(world.look)
    look.find(VIEWS[0].name, VIEWS)
    world.standing.clear()
    assert look.find(VIEWS[0].name, VIEWS) is None
    assert world.looks == [["V0", "V1", "V2"], ["V0"]]
    assert look.find(VIEWS[1].name, (*VIEWS[1:],)) is None
    assert world.looks[2:] == [["V1", "V2"]]


def test_an_answer_does_not_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waited too long is not used."""
    world = World(*VIEWS)
    look = BatchedLookup(world.look)
    look.find(VIEWS[0].name, VIEWS)
    world.standing.clear()
    now = registrations.time.monotonic()
    monkeypatch.setattr(registrations.time, "monotonic", lambda: now + registrations.FRESH)
    assert look.find(VIEWS[1].name, VIEWS) is None


def test_one_that_fails_is_no_answer() -> None:
    """The next of the group looks anew."""
    world = World(*VIEWS)
    look = BatchedLookup(world.look)

    def failing(names: Sequence[ItemName]) -> dict[tuple[str, str], Registration]:
        raise ValueError("broken")

    look._look = failing
    with pytest.raises(ValueError, match="broken"):
        look.find(VIEWS[0].name, VIEWS)
    look._look = world.look
    assert look.find(VIEWS[1].name, VIEWS) == VIEWS[1]
