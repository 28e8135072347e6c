"""A program as people read it: waves, and which names are absent after each."""

from __future__ import annotations

from catalog_migrate.operations.steps import Step
from catalog_migrate.report.program import describe_absences, list_waves
from catalog_migrate.report.report import Wave


def test_each_wave_says_what_is_absent_when_it_has_ended() -> None:
    """From the wave that drops a name to that which creates it; what is dropped for good is not."""
    steps = (
        Step("copy", "table", "s.t", wave=1), Step("drop", "view", "s.v", wave=2),
        Step("drop", "view", "s.gone", wave=2),
        Step("drop", "table", "s.t", wave=3),
        Step("create", "table", "s.t", wave=4),
        Step("create", "view", "s.v", wave=5),
    )
    found = list_waves(steps)
    assert [(each.title, each.absent) for each in found] == [
        ("wave 1: prepare", ()), ("wave 2: names", ("s.v",)), ("wave 3: names", ("s.v", "s.t")),
        ("wave 4: names", ("s.v",)), ("wave 5: names", ()),
    ]
    assert found[3] == Wave("wave 4: names", ((5, "+", "register table s.t"),), ("s.v",))
    assert describe_absences(steps) == {
        "s.v": "from step 2 to step 6", "s.gone": "from step 3 for good",
        "s.t": "from step 4 to step 5",
    }


def test_a_long_chain_lists_some_of_the_absent_names() -> None:
    """Each of a thousand waves takes a name away: a list of each would be half a million names."""
    steps = (
        *(Step("drop", "view", f"s.v{number}", wave=number + 1) for number in range(1000)),
        *(Step("create", "view", f"s.v{number}", wave=1001 + number) for number in range(1000)),
    )
    found = list_waves(steps)
    assert (len(found[999].absent), found[999].more) == (20, 980)
    assert [each.absent for each in found[-2:]] == [("s.v999",), ()]
