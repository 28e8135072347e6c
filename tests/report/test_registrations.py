"""Reports of drift: whose a name is, why it differs, what repairs it."""

from __future__ import annotations

import pytest

from catalog_migrate.api.registrations import Comparison
from catalog_migrate.errors import UsageError
from catalog_migrate.migrations.actions import Drift
from catalog_migrate.operations.steps import Executed, Step
from catalog_migrate.report import lay_out
from catalog_migrate.report.registrations import report_drift

REPAIR = "catalog-migrate drift --repair"
FOUND = (
    Drift("different", "s.v", "its definition is not the committed one", REPAIR, "view"),
    Drift("foreign", "s.t", "a table that is not ours has that name",
          "rename or drop s.t yourself; it is never replaced", "table"),
    Drift("leftover", "s.old", "nothing committed has this name", REPAIR, "view"),
    Drift("missing", "s.f", "the name is not registered", REPAIR, "function"),
)
STEPS = (
    Step("drop", "view", "s.old", wave=1), Step("drop", "view", "s.v", wave=1),
    Step("create", "function", "function:s.f", wave=2), Step("create", "view", "s.v", wave=3),
)


def test_each_name_with_its_reason() -> None:
    """The verdict counts kinds; what is not ours stands apart, with what its owner may do."""
    report = report_drift(Comparison(FOUND, 0, FOUND, STEPS), catalog="c")
    assert report.verdict.line == (
        "DRIFT: 4 names differ: 1 missing, 1 different, 1 left over, 1 not ours"
    )
    ours, others, *_, after = report.sections
    assert [(each.sign, each.head) for each in ours.entries] == [
        ("*", "s.v (view) different: its definition is not the committed one"),
        ("-", "s.old (view) leftover: nothing committed has this name"),
        ("+", "s.f (function) missing: the name is not registered"),
    ]
    assert others.entries[0].details == (
        "remedy: rename or drop s.t yourself; it is never replaced",
    )
    assert after.title == "Next"
    (decision,) = report.decisions
    assert (decision.name, decision.verb) == ("s.t", "remedy")


def test_objects_and_waves() -> None:
    """An object a name, with what the repair does to it and when it is absent."""
    report = report_drift(Comparison(FOUND, 0, FOUND, STEPS))
    assert [(each.name, each.kind, each.action, each.risk) for each in report.objects] == [
        ("s.v", "view", "redefine", "absent"), ("s.t", "table", "unchanged", "blocked"),
        ("s.old", "view", "drop", "absent"), ("function:s.f", "function", "create", ""),
    ]
    assert {each.why for each in report.objects} == {""}
    assert report.objects[0].absent == "from step 2 to step 4"
    assert [wave.absent for wave in report.waves] == [("s.v",), ("s.v",), ()]


def test_only_others() -> None:
    """Where no step repairs anything it is an obstacle, and no repair is offered."""
    report = report_drift(Comparison(FOUND[1:2], 0, FOUND[1:2]))
    assert report.verdict.kind == "blocked"
    assert [each.title for each in report.sections] == ["What is not ours"]


def test_after_a_repair() -> None:
    """What was done is told as done; what is left is counted."""
    executed = tuple(Executed.of(step, 0.0, 1.0) for step in STEPS)
    report = report_drift(Comparison(FOUND, 4, FOUND[1:2], STEPS, executed))
    assert report.verdict.line == "REPAIRED: in 4 steps; 1 left"
    assert report.sections[0].title == "What differed"
    assert "Next" not in [each.title for each in report.sections]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, "NOTHING TO DO: no names outlive the session: nothing can drift"),
        (Comparison((), 0, ()), "NOTHING TO DO: no drift: every name is what is committed"),
    ],
)
def test_nothing_to_do(found: Comparison | None, line: str) -> None:
    """Said in the first line, in every form but a picture, of which there is none."""
    report = report_drift(found)
    assert report.verdict.line == line
    for form in ("text", "markdown", "html"):
        assert lay_out(report, form)
    with pytest.raises(UsageError) as raised:
        lay_out(report, "svg")
    assert raised.value.message == "Drift: NOTHING TO DO: this report has no picture"
    assert raised.value.remedy == "use --format html"


def test_hostile_names() -> None:
    """A name of others in a shared metastore is text wherever it stands."""
    name = "s.`</script><b>\u202e\n`"
    found = (Drift("foreign", name, f"a view that is not ours: {name}", f"drop {name}", "view"),)
    report = report_drift(Comparison(found, 0, found))
    for form in ("text", "markdown", "html"):
        made = lay_out(report, form)
        assert "\u202e" not in made
        assert "<b>" not in made or form == "text"
