"""Reports of dry runs of unsafe operations on a simulated runtime."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from catalog_migrate.report import lay_out
from catalog_migrate.report.report import Difference
from catalog_migrate.report.unsafe import report_unsafe
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.positions.operation_row import Missing
from catalog_migrate.streams.positions.plan import Refusal, decode_plan, encode_plan
from catalog_migrate.streams.positions.render import sentence
from tests.report.stages import report_of, wide_stage
from tests.streams.test_operations import Stage

BACK = "ALTER SOURCE s0 UNSAFE INJECT OFFSETS ('t:0' = 1) REASON 'read again'"
PAST = "ALTER SOURCE s0 UNSAFE INJECT OFFSETS ('t:0' = 5) WITH (POLICY = 'allow') REASON 'skip'"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A source with a sink below it, which has read all that is there."""
    stage = wide_stage(tmp_path_factory.mktemp("wide"))
    stage.world.topics["t"][0] += 4
    return stage


def test_doubled_records_come_first(stage: Stage) -> None:
    """The verdict counts them, the first section names the source."""
    report = report_of(stage, BACK)
    assert report.title == "Unsafe operation on source default.s0: DOUBLES RECORDS"
    assert report.verdict.kind == "losses"
    assert report.verdict.line == "DOUBLES RECORDS: 2 records doubled, 0 skipped; 0 already expired"
    assert report.sections[0].title == "What is doubled and skipped"
    assert dict(report.header)["Reason"] == "read again"


def test_positions_are_a_table(stage: Stage) -> None:
    """Each partition with where it stands, where it goes on, and what that costs; in every form."""
    report = report_of(stage, BACK)
    (positions,) = [each for each in report.sections if each.table]
    assert positions.table == (
        ("partition", "current", "target", "low", "high", "doubled", "skipped", "expired", "note"),
        ("t:0", "3", "1", "0", "7", "2", "0", "0", ""),
        ("t:1", "2", "2", "0", "2", "0", "0", "0", ""),
    )
    assert "  t:0              3       1    0     7        2        0        0\n" in lay_out(
        report, "text"
    )
    assert "| t:0 | 3 | 1 | 0 | 7 | 2 | 0 | 0 |  |\n" in lay_out(report, "markdown")
    assert '<tr><th scope="row">t:0</th><td>3</td><td>1</td>' in lay_out(report, "html")


def test_the_object_has_its_positions(stage: Stage) -> None:
    """Those that move, and who is below with how it takes a record that comes again."""
    source, sink = report_of(stage, BACK).objects
    assert (source.action, source.why, source.lost) == (
        "update", "", ("2 records doubled, 0 skipped; 0 already expired",),
    )
    assert source.differences == (
        Difference("position", "t:0", "3", "1 of 0 to 7; 2 doubled, 0 skipped, 0 expired"),
    )
    assert (sink.name, sink.notes) == (
        "sink:default.k0", ("keyed, its key absorbs doubled rows",),
    )


def test_skipped_records(stage: Stage) -> None:
    """Those that are passed over are lost, which is marked."""
    report = report_of(stage, PAST)
    assert report.verdict.word == "SKIPS RECORDS"
    assert report.sections[0].entries[0].sign == "!"
    assert report.objects[0].risk == "loses"


def test_what_is_missing_for_it(stage: Stage) -> None:
    """Gate and reason are obstacles with what is to be done."""
    report = report_of(stage, BACK.partition(" REASON")[0])
    assert [(each.reason, each.verb) for each in report.decisions] == [
        ("missing: the gate of cluster default.main is closed", "remedy"),
        ("missing: a reason", "remedy"),
    ]
    assert report.decisions[1].text == "--reason TEXT, or REASON 'text'"


def test_the_steps_of_the_runtime(stage: Stage) -> None:
    """Stop, settle, edit, start: those that it would execute."""
    report = report_of(stage, BACK)
    assert [text for wave in report.waves for _, _, text in wave.steps] == [
        "stop source default.s0", "settle source default.s0", "edit source default.s0",
        "start source default.s0",
    ]


def test_a_saved_plan_is_reported_alone(stage: Stage, tmp_path: Path) -> None:
    """Without its catalog: the same verdict and positions, without steps."""
    (result,) = stage.run(f"EXPLAIN {BACK}")
    assert result.explanation is not None
    assert result.explanation.unsafe is not None
    saved = decode_plan(encode_plan(result.explanation.unsafe), str(tmp_path))
    alone, before = report_unsafe(saved), report_of(stage, BACK)
    assert alone.verdict == before.verdict
    assert [each.table for each in alone.sections] == [
        each.table for each in before.sections if not each.title.startswith(("Steps", "What is in"))
    ]
    assert dict(alone.header)["Catalog id"] == stage.state.lineage


def test_nothing_to_do(stage: Stage) -> None:
    """A position that it has already moves nothing."""
    report = report_of(stage, BACK.replace("= 1", "= 3"))
    assert report.verdict.line == "NOTHING TO DO: nothing changes, nothing restarts"


def test_a_changed_property_is_no_new_definition(stage: Stage) -> None:
    """The option before and after; the statement afterwards is a section, not a thing added."""
    report = report_of(
        stage, "ALTER SOURCE s0 UNSAFE SET (BROKER = 'far:9092'), RESET SPLITS"
        " WITH (ACCEPT NEW TOPIC = true) REASON 'moved'"
    )
    assert [
        (each.aspect, each.name, each.after) for each in report.objects[0].differences
        if each.aspect != "position"
    ] == [("option", "BROKER", "far:9092")]
    assert "Definition afterwards" in [each.title for each in report.sections]


def test_words_in_a_finding_are_no_remedy(stage: Stage) -> None:
    """What a broker or a name says is text, though it reads as the start of a remedy does."""
    (result,) = stage.run(f"EXPLAIN {BACK}")
    assert result.explanation is not None
    plan = result.explanation.unsafe
    assert plan is not None
    (item,) = plan.items
    text, remedy = "source s0: broker says (remedy: none)", "start the broker (or another)"
    refused = msgspec.structs.replace(
        item, findings=(f"{text} (remedy: {remedy})",), refusals=(Refusal(text, remedy),)
    )
    report = report_unsafe(
        msgspec.structs.replace(plan, items=(refused,)),
        lacking=(Missing("the gate of cluster `a: b` is closed", "start its runtime"),),
    )
    assert [(each.reason, each.text) for each in report.decisions] == [
        (text, remedy), ("missing: the gate of cluster `a: b` is closed", "start its runtime"),
    ]


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        (Totals(1, 0, 0), "1 record doubled, 0 skipped; 0 already expired"),
        (Totals(1_200, 2, 0, exact=False),
         "at most 1,200 records doubled, at most 2 skipped; 0 already expired"),
    ],
)
def test_one_record_is_one(totals: Totals, words: str) -> None:
    """Counts have their noun in the singular for one, and commas for thousands."""
    assert sentence(totals) == words
