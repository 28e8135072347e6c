"""What a report says of one object: its definition before and after, part by part."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Change, Plan
from catalog_migrate.planner.planfile import decode_plan, encode_plan
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_release
from catalog_migrate.report import render
from catalog_migrate.report.differences import (
    COMPARED,
    break_lines,
    compare_lines,
    list_changed_lines,
    list_differences,
)
from catalog_migrate.report.outline import outline
from catalog_migrate.report.report import Difference

OLD = """
CREATE TABLE s.t (a BIGINT NOT NULL, b STRING DEFAULT 'x' COMMENT 'old', c INT, d INT,
  CONSTRAINT pos CHECK (c > 0)) PARTITIONED BY (a) COMMENT 'first' WITH ('my.x' = '1');
CREATE VIEW s.v (a BIGINT) AS
SELECT a
FROM s.t
WHERE c > 0;
CREATE FUNCTION s.f(x INT) RETURNS INT RETURN x + 1;
CREATE VIEW s.w (a BIGINT) AS SELECT a FROM s.v;
"""


def plan_between(folder: Path, old: str, new: str) -> Plan:
    """The plan from one text of definitions to another, through a file as a person passes it on."""
    releases = []
    for name, text in (("1", old), ("2", new)):
        place = folder / name
        place.mkdir()
        (place / "release.toml").write_text(f'name = "{name}"\n')
        (place / "all.sql").write_text(text)
        releases.append(load_release(place))
    plan = plan_migration(Baseline.from_release(releases[0]), releases[1]).plan
    return decode_plan(encode_plan(plan))


@pytest.mark.parametrize(
    ("before", "after", "name", "expected"),
    [
        ("b STRING DEFAULT 'x' COMMENT 'old'", "b STRING DEFAULT 'y' COMMENT 'o''d'", "s.t",
         Difference("column", "b", "STRING DEFAULT 'x' COMMENT 'old'",
                    "STRING DEFAULT 'y' COMMENT 'o''d'")),
        ("c INT, d INT", "d INT, c INT", "s.t", Difference("position", "d", "4", "3")),
        ("d INT,", "e INT RENAMED FROM d,", "s.t", Difference("column", "e", "d INT", "e INT")),
        (" d INT,", " d INT, g INT GENERATED ALWAYS AS (c + 1),", "s.t",
         Difference("column", "g", None, "INT GENERATED ALWAYS AS (c + 1)")),
        ("PARTITIONED BY (a)", "CLUSTER BY (a)", "s.t", Difference("partitioning", "", "a", None)),
        ("PARTITIONED BY (a)", "CLUSTER BY (a)", "s.t", Difference("clustering", "", None, "a")),
        ("CHECK (c > 0)", "CHECK (c > 1)", "s.t", Difference("check", "pos", "c > 0", "c > 1")),
        ("COMMENT 'first'", "COMMENT 'second'", "s.t",
         Difference("comment", "", "first", "second")),
        ("'my.x' = '1'", "'my.y' = '1'", "s.t", Difference("property", "my.y", None, "1")),
        ("'my.x' = '1'", "'my.y' = '1'", "s.t", Difference("property", "my.x", "1", None)),
        ("f(x INT)", "f(x INT, y INT DEFAULT 1)", "function:s.f",
         Difference("argument", "y", None, "INT DEFAULT 1")),
        ("RETURNS INT RETURN x + 1", "RETURNS BIGINT RETURN x + 1", "function:s.f",
         Difference("returns", "", "INT", "BIGINT")),
        ("RETURN x + 1", "RETURN x + 2", "function:s.f",
         Difference("body", "", "x + 1", "x + 2", ("-x + 1", "+x + 2"))),
        ("WHERE c > 0", "WHERE c > 1", "s.v",
         Difference("query", "", "SELECT a\nFROM s.t\nWHERE c > 0",
                    "SELECT a\nFROM s.t\nWHERE c > 1",
                    (" SELECT a", " FROM s.t", "-WHERE c > 0", "+WHERE c > 1"))),
    ],
)  # fmt: skip
def test_each_part_of_a_definition_is_compared(
    tmp_path: Path, before: str, after: str, name: str, expected: Difference
) -> None:
    """What differs is there with both sides, and what the object is otherwise is not."""
    assert before in OLD
    plan = plan_between(tmp_path, OLD, OLD.replace(before, after))
    (change,) = (change for change in plan.changes if change.name == name)
    found = list_differences(change)
    assert expected in found
    assert len(found) <= 2


def test_a_dependent_has_no_difference_of_its_own(tmp_path: Path) -> None:
    """A view that is made again because a table below it changes: its definition is left out."""
    plan = plan_between(tmp_path, OLD, OLD.replace("a BIGINT NOT NULL", "a BIGINT"))
    by_name = {change.name: change for change in plan.changes}
    assert by_name["s.w"].cause == "dependency"
    assert (by_name["s.w"].before, by_name["s.w"].after) == (None, None)
    assert list_differences(by_name["s.w"]) == ()


def test_a_new_and_a_dropped_object_show_all_that_they_have(tmp_path: Path) -> None:
    """Nothing before or nothing after: each part once, with one side."""
    old = "CREATE VIEW s.v (a INT) AS SELECT 1 AS a;"
    new = "CREATE TABLE s.n (a INT NOT NULL, b INT) PARTITIONED BY (b);"
    plan = plan_between(tmp_path, old, new)
    shown = {change.name: list_differences(change) for change in plan.changes}
    assert shown["s.v"] == (
        Difference("column", "a", "INT", None), Difference("query", "", "SELECT 1 AS a", None),
    )
    assert shown["s.n"] == (
        Difference("column", "a", None, "INT NOT NULL"), Difference("column", "b", None, "INT"),
        Difference("partitioning", "", None, "b"),
    )


def test_the_text_report_says_what_changes_and_why_rows_are_copied(tmp_path: Path) -> None:
    """Each clause in a line of its own; of SQL the lines that go and come."""
    new = (
        OLD.replace("CHECK (c > 0)", "CHECK (c > 1)").replace("PARTITIONED BY (a)", "")
        .replace("DEFAULT 'x' COMMENT 'old'", "DEFAULT 'y'").replace("WHERE c > 0", "WHERE c > 1")
    )
    text = render(plan_between(tmp_path, OLD, new), "text", width=200)
    assert text.split("What will happen\n")[1].split("\n\n")[0] == """\
  * s.t (table) update
      rows are copied into a new table: the partitioning changes; CHECK pos is new, and every row has to meet it
      column b DEFAULT: 'x' -> 'y'
      column b COMMENT removed (was old)
      partitioning removed (was a)
      CHECK pos: c > 0 -> c > 1
  * s.v (view) redefine
      query: -WHERE c > 0
             +WHERE c > 1"""  # noqa: E501


def test_each_object_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of objects and what will happen show one comparison."""
    plan = plan_between(tmp_path, OLD, OLD.replace("WHERE c > 0", "WHERE c > 1"))
    compared: list[str] = []

    def compare(change: Change) -> tuple[Difference, ...]:
        compared.append(change.name)
        return list_differences(change)

    monkeypatch.setattr("catalog_migrate.report.outline.list_differences", compare)
    found = outline(plan)
    assert compared == [change.name for change in plan.changes]
    (view,) = (each for each in found.objects if each.name == "s.v")
    assert [each.aspect for each in view.differences] == ["query"]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("PARTITIONED BY (a)", "PARTITIONED BY (c)", "the partitioning changes"),
        ("PARTITIONED BY (a)", "CLUSTER BY (a)", "the clustering changes"),
        ("CHECK (c > 0)", "CHECK (c > 1)", "CHECK pos is new, and every row has to meet it"),
        (" d INT,", " d BIGINT,", "the values of column d turn from INT to BIGINT"),
        (" d INT,", " d INT NOT NULL USING coalesce(d, 0),",
         "column d becomes NOT NULL, and every row has to meet it"),
        (" d INT,", " d INT, e INT NOT NULL DEFAULT 1,", "new column e gets a value in every row"),
    ],
)  # fmt: skip
def test_a_copy_says_why(tmp_path: Path, before: str, after: str, reason: str) -> None:
    """A table that is copied names each thing that keeps it from being changed in place."""
    plan = plan_between(tmp_path, OLD, OLD.replace(before, after))
    (change,) = (change for change in plan.changes if change.name == "s.t")
    assert change.contents == "copy"
    assert reason in change.copied_because


CLUSTERED = (
    "the table is clustered, so its columns are not renamed, dropped or moved in place, nor added"
    " before others"
)
UNMAPPED = (
    "delta.columnMapping.mode is none, without which columns are not renamed, dropped or moved in"
    " place, nor added before others"
)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a INT, d INT) CLUSTER BY (a)", "a INT, e INT RENAMED FROM d) CLUSTER BY (a)", CLUSTERED),
        ("a INT, d INT) CLUSTER BY (a)", "a INT, n INT, d INT) CLUSTER BY (a)", CLUSTERED),
        ("a INT, d INT) CLUSTER BY (a)", "b INT RENAMED FROM a, d INT) CLUSTER BY (b)",
         "clustering column a is renamed to b"),
        ("a INT, d INT) PARTITIONED BY (a)", "b INT RENAMED FROM a, d INT) PARTITIONED BY (b)",
         "partitioning column a is renamed to b"),
        ("a INT, d INT) WITH ('delta.columnMapping.mode' = 'none')",
         "d INT, a INT) WITH ('delta.columnMapping.mode' = 'none')", UNMAPPED),
        ("a INT)", "a INT, v VARIANT)",
         "the type of new column v needs a table feature that the table does not have"),
        ("a INT, g INT GENERATED ALWAYS AS (a + 1))",
         "a INT, h INT GENERATED ALWAYS AS (a + 1) RENAMED FROM g)",
         "generated column g is renamed to h"),
        ("a INT, g INT GENERATED ALWAYS AS (a + 1))", "a INT, g INT GENERATED ALWAYS AS (a + 2))",
         "how column g is generated changes"),
        ("a INT)", "a INT, g INT GENERATED ALWAYS AS (a + 1))", "generated column g is new"),
        ("a INT, d INT, CONSTRAINT pos CHECK (a > 0))",
         "b INT RENAMED FROM a, d INT, CONSTRAINT pos CHECK (b > 0))",
         "CHECK pos is new, and every row has to meet it"),
        ("a INT, d INT, CONSTRAINT pos CHECK (a > d))",
         "a INT, n INT RENAMED FROM d USING d + 1, CONSTRAINT pos CHECK (a > d))",
         "the values of column n are replaced"),
        ("a INT, d INT, CONSTRAINT pos CHECK (d > 0))", "a INT)",
         "column d is dropped, and a CHECK, a generated column or the partitioning uses that name"),
        ("a INT, d INT) PARTITIONED BY (a)", "a INT, n INT) PARTITIONED BY (a)",
         "only partition columns would stay"),
        ("a VARCHAR(5), d INT)", "d INT, a VARCHAR(9))",
         "the type of column a changes, which is done in place only where no column is renamed,"
         " dropped or moved, nor added before others"),
    ],
)  # fmt: skip
def test_a_copy_says_the_one_thing_that_needs_it(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    """Nothing is a reason that does not hold: no value changes where a name does."""
    plan = plan_between(tmp_path, f"CREATE TABLE s.t ({old};", f"CREATE TABLE s.t ({new};")
    assert [(change.contents, change.copied_because) for change in plan.changes] == [
        ("copy", (reason,))
    ]


LONG = "SELECT 1;\n" * (COMPARED // 10 + 1)


@pytest.mark.parametrize(
    ("before", "after", "lines", "told"),
    [
        (LONG, LONG + "x", (), ["query: too long to be compared"]),
        (None, "a\nb", (), ["query: +a", "       +b"]),
        ("a", None, (), ["query: -a"]),
        ("", "a", ("+a",), ["query: +a"]),
        ("a\nb", "a\r\nb\n", ("… only the ends of lines differ",),
         ["query: … only the ends of lines differ"]),
        ("a\nb", "a\nc", (" a", "-b", "+c"), ["query: -b", "       +c"]),
    ],
    ids=["long", "new", "dropped", "empty before", "ends", "changed"],
)  # fmt: skip
def test_a_text_is_too_long_only_where_it_is_long(
    before: str | None, after: str | None, lines: tuple[str, ...], told: list[str]
) -> None:
    """A text that is absent on one side, and one whose line ends differ, are told as such."""
    assert compare_lines(before, after) == lines
    assert list_changed_lines([Difference("query", "", before, after, lines)]) == told


def test_a_table_that_gains_a_filling_shows_it(tmp_path: Path) -> None:
    """The query is new on a table that is not: each line of it comes."""
    old = "CREATE TABLE s.a (x INT); CREATE TABLE s.t (x INT);"
    new = old.replace("s.t (x INT)", "s.t (x INT, y INT) FILLED FROM (SELECT x, 1 FROM s.a)")
    text = render(plan_between(tmp_path, old, new), "text", width=200)
    assert "too long" not in text
    assert "filled from: +SELECT x, 1 FROM s.a" in text


def test_equal_lines_between_changes_are_left_out() -> None:
    """Two lines round each change are kept."""
    old = [f"line {number}" for number in range(20)]
    new = ["other", *old[1:18], "last", *old[19:]]
    assert compare_lines("\n".join(old), "\n".join(new)) == (
        "-line 0", "+other", " line 1", " line 2", "…", " line 16", " line 17", "-line 18", "+last",
        " line 19",
    )


def test_the_report_has_every_object_and_who_uses_what(tmp_path: Path) -> None:
    """Objects with an action come first; the picture has OLD and NEW, told apart by their sides."""
    new = OLD.replace("WHERE c > 0", "WHERE c > 1").replace(
        "CREATE VIEW s.w (a BIGINT) AS SELECT a FROM s.v;",
        "CREATE VIEW s.x (a BIGINT) AS SELECT a FROM s.t;",
    )
    report = outline(plan_between(tmp_path, OLD, new))
    assert [(each.name, each.action) for each in report.objects] == [
        ("s.w", "drop"), ("s.v", "redefine"), ("s.x", "create"), ("function:s.f", "unchanged"),
        ("s.t", "unchanged"),
    ]
    nodes = report.picture.nodes
    assert [(each.name, each.action, each.old, each.new) for each in nodes] == [
        ("function:s.f", "unchanged", True, True), ("s.t", "unchanged", True, True),
        ("s.v", "redefine", True, True), ("s.w", "drop", True, False),
        ("s.x", "create", False, True),
    ]
    assert [
        (nodes[each.used].name, nodes[each.user].name, each.old, each.new)
        for each in report.picture.edges
    ] == [
        ("s.t", "s.v", True, True), ("s.t", "s.x", False, True), ("s.v", "s.w", True, False),
    ]


def test_the_header_says_what_the_report_is_of(tmp_path: Path) -> None:
    """Releases, hash and tool; of a comparison of two releases there is no catalog to name."""
    plan = plan_between(tmp_path, OLD, OLD.replace("c > 0", "c > 1"))
    assert outline(plan).header == (
        ("Release", "1 → 2"), ("Plan hash", plan.plan_hash),
        ("Made with", f"catalog-migrate {plan.tool_version}"),
    )


def test_one_long_line_of_sql_is_compared_clause_by_clause() -> None:
    """What differs is shown, not the beginning of two lines that both go on for pages."""
    columns = [f"CAST(NULL AS STRING) AS column_{number}" for number in range(40)]
    old = f"SELECT {', '.join(columns)} FROM s.t WHERE note = 'a, FROM b' AND c > 0"
    new = old.replace("column_20,", "column_20, CAST(NULL AS INT) AS added,")
    new = new.replace("c > 0", "c > 1")
    assert [line for line in compare_lines(old, new) if line[:1] in "+-"] == [
        "+CAST(NULL AS INT) AS added,", "-AND c > 0", "+AND c > 1",
    ]
    short = "SELECT a, b FROM s.t WHERE c > 0"
    assert break_lines(short) == [short]
    assert "WHERE note = 'a, FROM b'" in break_lines(old)
    assert " ".join(break_lines(old)) == old


def test_blanks_in_a_long_line_are_a_difference() -> None:
    """Breaking a line drops blanks: where nothing else differs, the lines are compared whole."""
    old = f"SELECT {', '.join(f'column_{number}' for number in range(40))} FROM s.t"
    new = old.replace(" FROM", "  FROM")
    assert compare_lines(old, new) == (f"-{old}", f"+{new}")


def test_a_probable_rename_comes_before_what_it_decides(tmp_path: Path) -> None:
    """One line answers both decisions; a question about nothing that is asked does not say so."""
    old = "CREATE TABLE s.t (a INT, b INT NOT NULL);"
    plan = plan_between(tmp_path, old, "CREATE TABLE s.t (a INT, c INT NOT NULL);")
    titles = [section.title for section in outline(plan).sections]
    questions = outline(plan).sections[titles.index("Probable renames, not guessed")]
    assert titles.index("Probable renames, not guessed") + 1 == titles.index("How to decide")
    note = "If one is meant, its line also decides what is asked about both names."
    assert questions.note == note
    undecided = msgspec.structs.replace(plan, blocked=())
    (questions,) = (
        each for each in outline(undecided).sections if each.title.startswith("Probable")
    )
    assert questions.note is None
