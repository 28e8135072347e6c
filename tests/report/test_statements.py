"""Reports of EXPLAIN on a simulated runtime: verdict, options, restarts, findings, picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from catalog_migrate.model.findings import Finding
from catalog_migrate.report import lay_out
from catalog_migrate.report.report import Decision, Difference
from catalog_migrate.report.statements import report_statement
from tests.report.stages import ALTER, report_of, wide_stage
from tests.simulation.streaming import StreamWorld
from tests.streams.test_judgement import lacks
from tests.streams.test_operations import Stage


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Ten dependents; nothing that is only explained changes it."""
    return wide_stage(tmp_path_factory.mktemp("wide"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two sources that are about to start."""
    return Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))


class TestTenDependents:
    """ALTER CONNECTION under six sources and four sinks."""

    def test_the_verdict_counts_them(self, wide: Stage) -> None:
        """The first line says how many restart, the header of which catalog."""
        report = report_of(wide, ALTER)
        assert report.title == "EXPLAIN ALTER CONNECTION c: RESTARTS 10 QUERIES"
        assert report.verdict.line == (
            "RESTARTS 10 QUERIES of 10 below it: connection default.c altered"
        )
        assert report.verdict.kind == "safe"
        assert dict(report.header)["Catalog"] == "s3://lake/catalog"
        assert dict(report.header)["Serial"] == str(wide.state.serial)

    def test_what_changes_is_told_part_by_part(self, wide: Stage) -> None:
        """The option before and after, and the lines of the statement that would create it."""
        changed = report_of(wide, ALTER).objects[0]
        assert (changed.name, changed.action) == ("connection:default.c", "update")
        option, definition = changed.differences
        assert option == Difference("option", "BROKER", "a:9092", "b:9092")
        assert [line for line in definition.lines if line[0] in "+-"] == [
            "-  BROKER = 'a:9092',", "+  BROKER = 'b:9092',",
        ]

    def test_each_restart_has_its_path(self, wide: Stage) -> None:
        """From the connection to the source or sink, and how long it is stopped."""
        sink = next(
            each for each in report_of(wide, ALTER).objects if each.name == "sink:default.k3"
        )
        assert (sink.action, sink.because) == (
            "restart", ("connection:default.c", "sink:default.k3"),
        )
        assert sink.notes == (
            "its definition changes", "stopped from step 17 to step 41",
            "validation: sink default.k3, option TOPIC: fine",
        )

    def test_the_picture_has_clusters_as_groups(self, wide: Stage) -> None:
        """The connection, its secret, and ten queries of one cluster, with what happens to each."""
        picture = report_of(wide, ALTER).picture
        assert Counter((node.kind, node.group, node.action) for node in picture.nodes) == {
            ("connection", "default", "update"): 1, ("secret", "default", "unchanged"): 1,
            ("source", "default.main", "restart"): 6, ("sink", "default.main", "restart"): 4,
        }
        names = [node.name for node in picture.nodes]
        used = {
            (names[edge.used], names[edge.user]) for edge in picture.edges
            if names[edge.user] in ("sink:default.k0", "connection:default.c")
        }
        assert used == {
            ("default.s0", "sink:default.k0"), ("connection:default.c", "sink:default.k0"),
            ("secret:default.p", "connection:default.c"),
        }

    def test_waves_say_what_is_stopped(self, wide: Stage) -> None:
        """Steps that go side by side are one wave; a wave says which queries stand still after."""
        waves = report_of(wide, ALTER).waves
        assert [len(wave.steps) for wave in waves] == [11, 6, 10, 4, 6, 10, 4]
        assert [len(wave.absent) for wave in waves] == [0, 6, 10, 10, 4, 0, 0]
        assert {wave.word for wave in waves} == {"stopped"}
        assert [wave.title for wave in waves] == [
            "wave 1: validate", "wave 2: stop", "wave 3: stop, settle", "wave 4: settle",
            "wave 5: start", "wave 6: start, probe", "wave 7: probe",
        ]

    @pytest.mark.parametrize("form", ["text", "markdown", "html", "svg"])
    def test_every_form_has_it(self, wide: Stage, form: str) -> None:
        """Through the one renderer, with every name and no value of the secret."""
        made = lay_out(report_of(wide, ALTER), form, width=200)
        for number in range(4):
            assert f"default.k{number}" in made
        assert "RESTARTS 10 QUERIES" in made
        assert "SECRET" not in made or "SECRET default.p" in made

    def test_a_drop_lists_what_goes_once(self, wide: Stage) -> None:
        """CASCADE takes the dependents along; the picture shows them on the side of before."""
        report = report_of(wide, "DROP CONNECTION c CASCADE")
        assert report.verdict.line == "DROPS 11 OBJECTS: connection default.c dropped"
        assert [section.title for section in report.sections] == ["What changes"]
        assert len(report.sections[0].entries) == 11
        gone = [node for node in report.picture.nodes if node.action == "drop"]
        assert len(gone) == 11
        assert not any(node.new for node in gone)


class TestRefused:
    """What validation from here says is told before it is asked for."""

    def test_by_its_connection(self, wide: Stage) -> None:
        """Nothing answers: no query of it could be paused to get it through."""
        report = report_of(wide, "ALTER CONNECTION c SET (BROKER 'nowhere:9092')")
        assert report.verdict.word == "REFUSED BY VALIDATION"
        assert report.verdict.line.startswith(
            "REFUSED BY VALIDATION: 11 of 11 objects would not work, as seen from this process;"
        )
        assert len(report.decisions) == 11
        assert {each.verb for each in report.decisions} == {"remedy"}
        assert report.sections[0].title == "What is in the way"
        assert report.sections[0].note is None
        assert {each.risk for each in report.objects if each.action != "unchanged"} == {"blocked"}

    def test_by_one_query(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """The finding with its option, and the statement that goes on without the query."""
        lacks(monkeypatch, "b:9092", "t")
        report = report_of(stage, ALTER)
        assert report.verdict.line.startswith("REFUSED BY VALIDATION: 1 of 3 objects would not")
        finding, pause = report.decisions
        assert (finding.name, finding.code) == ("source default.s", "option TOPIC")
        assert finding.reason.startswith("there is no topic t")
        assert pause == Decision(
            "source default.s", "",
            "or go on without it: it starts on the new definition with RESUME",
            "PAUSE SOURCE default.s;", "write",
        )
        (blocked,) = [each for each in report.objects if each.risk == "blocked"]
        assert blocked.name == "default.s"
        assert blocked.decisions == (finding,)

    def test_not_for_what_was_sick_before(self, stage: Stage) -> None:
        """It restarts with the others, and the verdict counts it."""
        stage.world.topics.pop("u")
        for _ in range(30):
            stage.turn()
        report = report_of(stage, ALTER)
        assert report.verdict.kind == "safe"
        assert report.verdict.line.endswith("; 1 object did not work before either")
        shown = next(each for each in report.sections if each.title.startswith("Validation"))
        assert shown.entries[0].head.startswith(
            "sick before: source default.r, option TOPIC: there is no topic u"
        )
        assert not report.decisions


def test_a_rename_is_no_new_object(stage: Stage) -> None:
    """The name before and after; whoever uses it is shown beside it, and nothing restarts."""
    report = report_of(stage, "ALTER CONNECTION c RENAME TO d")
    renamed = report.objects[0]
    assert (renamed.name, renamed.action) == ("connection:default.d", "update")
    assert renamed.differences[0] == Difference("name", "", "default.c", "default.d")
    assert report.sections[0].entries[0].details == ("name: default.c -> default.d",)
    assert all(node.old and node.new for node in report.picture.nodes)
    assert [node.name for node in report.picture.nodes] == [
        "connection:default.d", "default.r", "default.s", "secret:default.p",
    ]


def test_each_finding_of_an_object_is_there(
    stage: Stage,
) -> None:
    """Two findings on one source are two decisions, in the report and of the object."""
    (result,) = stage.run(f"EXPLAIN {ALTER}")
    found = result.explanation
    assert found is not None
    source = next(each.item_id for each in found.effect.restarts)  # type: ignore[union-attr]
    bad = tuple(
        Finding("source default.s", option, "error", f"{option} is wrong", "fix it", source)
        for option in ("TOPIC", "FORMAT")
    )
    report = report_statement(msgspec.structs.replace(found, findings=bad))
    assert [each.code for each in report.decisions[:2]] == ["option TOPIC", "option FORMAT"]
    blocked = next(each for each in report.objects if each.risk == "blocked")
    assert blocked.decisions == report.decisions[:2]


def test_what_has_the_options_already(stage: Stage) -> None:
    """Nothing to do is said as that, with nothing else."""
    report = report_of(stage, "ALTER CONNECTION c SET (BROKER 'a:9092')")
    assert report.verdict.kind == "nothing"
    assert report.verdict.line.startswith(
        "NOTHING TO DO: connection default.c is unchanged: it already has these options"
    )
    assert (report.sections, report.waves) == ((), ())


def test_without_a_runtime(stage: Stage) -> None:
    """No steps, but when its queries will be on the new definition, and how."""
    stage.lease(holder="")
    report = report_of(stage, ALTER)
    (steps,) = [each for each in report.sections if each.part == "steps"]
    assert steps.note == (
        "No runtime of cluster default.main is alive: 2 queries will start on the new definition"
        " with the next `catalog-migrate run --cluster default.main`."
    )
    assert report.waves == ()


def test_a_statement_that_is_not_validated(stage: Stage) -> None:
    """The verdict says so; it is no refusal."""
    report = report_of(stage, f"{ALTER} WITH (VALIDATE = false)")
    assert report.verdict.kind == "unproven"
    assert report.verdict.line.endswith("; not validated, the statement says so")


@pytest.mark.parametrize(
    ("statement", "title", "word"),
    [
        ("SHOW SOURCES", "EXPLAIN SHOW SOURCES", "CHANGES NOTHING"),
        ("VALIDATE CONNECTION c", "EXPLAIN VALIDATE CONNECTION c", "CHANGES NOTHING"),
        ("PAUSE SOURCE s REASON 'x'", "EXPLAIN PAUSE SOURCE s", "ACCEPTED"),
        ("CREATE SECRET q AS 'env:Q'", "EXPLAIN CREATE SECRET q", "ACCEPTED"),
        ("COMMENT ON SOURCE s IS 'x'", "EXPLAIN COMMENT ON SOURCE s", "ACCEPTED"),
        ("ALTER SOURCE s RENAME TO z", "EXPLAIN ALTER SOURCE s RENAME TO z", "ACCEPTED"),
        ("DROP SOURCE s", "EXPLAIN DROP SOURCE s", "DROPS 1 OBJECT"),
    ],
)
def test_other_statements(stage: Stage, statement: str, title: str, word: str) -> None:
    """They are reports of the same kind, whose title holds no option and no text."""
    report = report_of(stage, statement)
    assert report.title == f"{title}: {word}"
    assert lay_out(report, "html").startswith("<!doctype html>")


HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


def test_hostile_options_and_comments(stage: Stage) -> None:
    """What stands in an option or a comment is neither markup nor a sign that steers anything."""
    for statement in (
        f"ALTER CONNECTION c SET (kafka.client.id '{HOSTILE}')",
        f"COMMENT ON SOURCE s IS '{HOSTILE}'",
    ):
        report = report_of(stage, statement)
        for form in ("text", "markdown", "html", "svg"):
            made = lay_out(report, form)
            assert "\u202e" not in made
            assert "\x1b" not in made
            if form in ("html", "svg"):
                assert "<img" not in made
