"""Reports of hand-made plans: exact text, verdicts, and the limit of markdown."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import msgspec
import pytest

from catalog_migrate.model.wording import describe_duration, describe_size
from catalog_migrate.operations.steps import Step
from catalog_migrate.planner.plan import (
    Base,
    Blocked,
    Change,
    ColumnChange,
    GraphObject,
    OptionChange,
    Plan,
    PlanTarget,
    Question,
    UserColumn,
    UserObject,
    Validation,
    point_of_no_return,
)
from catalog_migrate.report import lay_out, render
from catalog_migrate.report.outline import amount, outline
from catalog_migrate.report.report import Entry, Report, Section
from catalog_migrate.report.verdict import Verdict, list_failed_proofs, verdict

SNAPSHOTS = Path(__file__).parent / "snapshots"


def a_plan(
    *,
    changes: tuple[Change, ...] = (),
    blocked: tuple[Blocked, ...] = (),
    validations: tuple[Validation, ...] = (),
    questions: tuple[Question, ...] = (),
    steps: tuple[Step, ...] = (),
    unchanged: int = 3,
    bound: bool = False,
    users: tuple[UserObject, ...] | msgspec.UnsetType | None = msgspec.UNSET,
) -> Plan:
    """A plan whose summary follows from its changes."""
    summary: dict[str, int] = {"unchanged": unchanged}
    for change in changes:
        summary[change.action] = summary.get(change.action, 0) + 1
    return Plan(
        "1.0", "0.1.0", "hash", Base("catalog", "lineage", 17, "15.18"),
        PlanTarget("16.2", "manifest"), summary, changes,
        tuple(step.name for step in steps if step.op == "drop"),
        tuple(step.name for step in steps if step.op == "create"),
        steps, validations=validations, questions=questions, blocked=blocked, bound=bound,
        applyable=not blocked and all(proof.ok for proof in validations),
        point_of_no_return=point_of_no_return(changes), users=users,
    )


RETYPED = ColumnChange("retyped", "qty", old_type="INT", new_type="BIGINT")
ORDERS = Change(
    "shop.orders", "table", "migrate", cause="self", because=("shop.orders",), contents="copy",
    columns=(RETYPED, ColumnChange("removed", "flag", old_type="STRING")),
    rows=1234, bytes=5_900_000, risk="drops column flag",
)
IN_PLACE = Change(
    "shop.orders", "table", "migrate", cause="self", because=("shop.orders",), contents="evolve",
    columns=(ColumnChange("removed", "flag", old_type="STRING"),),
    rows=1234, bytes=5_900_000, risk="drops column flag",
)
DEPENDENTS = tuple(
    Change(
        f"shop.v{number}", "view", "migrate", cause="dependency",
        because=("shop.orders", f"shop.v{number}"),
    )
    for number in range(3)
)
NEW = Change("shop.new", "table", "create", because=("shop.new",))
GONE = Change("shop.gone", "table", "drop", because=("shop.gone",), rows=7, bytes=100,
              risk="drops the table and its rows")
WIDER = msgspec.structs.replace(ORDERS, columns=(RETYPED,), risk=None)
EMPTY = msgspec.structs.replace(GONE, rows=0, risk=None)
STEPS = (
    Step("build", "table", "shop.new", wave=1), Step("copy", "table", "shop.orders", wave=2),
    Step("seal", "table", "shop.orders", wave=3), Step("seal", "table", "shop.gone", wave=3),
    Step("drop", "view", "shop.v1", wave=4), Step("drop", "table", "shop.gone", wave=4),
    Step("create", "table", "shop.new", wave=4), Step("drop", "table", "shop.orders", wave=5),
    Step("create", "table", "shop.orders", wave=6), Step("create", "view", "shop.v1", wave=7),
)
LOSS = Blocked("shop.orders", "CM0302", "column flag is removed, and its values with it",
               "DROPPED (flag)", "flag")
TAKEN = Blocked("shop.new", "CM0306", "the name belongs to an object of another owner (user)",
                "rename or drop that object")
CITIES = UserObject(
    "team.cities", "view", "breaks", ("shop.orders", "team.cities"),
    condition="UNRESOLVED_COLUMN.WITH_SUGGESTION", missing="flag",
    remedy="flag is called mark from release 16.2 on",
    repaired="SELECT town,\n  mark AS flag\nFROM shop.orders",
)
ODD = UserObject(
    "team.`<b>``*x*`", "function", "breaks", ("shop.orders", "shop.v1", "team.`<b>``*x*`"),
    condition="TABLE_OR_VIEW_NOT_FOUND", missing="shop.`a & ~b~`",
)
USERS = (
    UserObject("team.same", "view", "unchanged", ("shop.orders", "team.same")),
    UserObject("team.sick", "view", "broken", ("shop.orders", "team.sick"),
               condition="UNRESOLVED_COLUMN.WITH_SUGGESTION", missing="colour"),
    UserObject("team.torn", "view", "unknown", ("shop.orders", "team.torn"),
               reason="its text cannot be read: PERMISSION_DENIED"),
    UserObject(
        "team.totals", "view", "changed", ("shop.orders", "shop.v1", "team.totals"),
        (
            UserColumn("qty", "retyped", "INT", "BIGINT"), UserColumn("n", "cast", "INT", "BIGINT"),
            UserColumn("k", "nullability", "NOT NULL", "NULL"), UserColumn("k", "moved", "1", "2"),
            UserColumn("extra", "added", "", "DATE"), UserColumn("gone", "removed", "STRING", ""),
            UserColumn("both", "meaning"),
        ),
        reason="its rows are others: NATURAL JOIN also compares extra",
    ),
    ODD, CITIES,
)
ASKED = (
    Blocked("function:team.`<b>``*x*`", "CM0338", "breaks a user's function: shop.`a & ~b~` is"
            " missing", "--approve team.`<b>``*x*`"),
    Blocked("team.cities", "CM0338", "breaks a user's view: flag is missing",
            "--approve team.cities"),
)
CASES = {
    "nothing": a_plan(unchanged=1000),
    "safe": a_plan(changes=(NEW, WIDER, *DEPENDENTS, EMPTY), steps=STEPS, bound=True,
                   validations=(Validation("shop.v1", True),)),
    "losses": a_plan(changes=(NEW, ORDERS, *DEPENDENTS, GONE), steps=STEPS, bound=True,
                     validations=(Validation("shop.v1", True),)),
    "decisions": a_plan(
        changes=(ORDERS, *DEPENDENTS), blocked=(LOSS,), steps=STEPS[1:3],
        questions=(Question("shop.orders", "shop.order", None, "RENAMED FROM order"),),
    ),
    "in_place": a_plan(
        changes=(IN_PLACE, *DEPENDENTS, GONE),
        steps=(
            Step("evolve", "table", "shop.orders", wave=1),
            Step("drop", "table", "shop.gone", wave=2),
        ),
    ),
    "users_asked": a_plan(changes=(WIDER, *DEPENDENTS), bound=True, users=USERS, blocked=ASKED),
    "users_broken": a_plan(changes=(WIDER, *DEPENDENTS), bound=True, users=USERS),
    "users_unseen": a_plan(changes=(WIDER, *DEPENDENTS), users=None),
    "blocked": a_plan(
        changes=(NEW, ORDERS), blocked=(LOSS, TAKEN),
        validations=(Validation("shop.v1", False, "[UNRESOLVED_COLUMN] flag, line 1"),),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ["txt", "md"])
def test_a_report_reads_as_its_snapshot(name: str, form: str) -> None:
    """The report of each case is, character for character, the one in snapshots/.

    UPDATE_SNAPSHOTS=1 writes them; look at the difference before committing it.
    """
    format_ = {"txt": "text", "md": "markdown"}[form]
    found = render(CASES[name], format_)
    snapshot = SNAPSHOTS / f"{name}.{form}"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        snapshot.write_text(found, encoding="utf-8")
    assert found == snapshot.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "word", "decisions"),
    [
        ("nothing", "NOTHING TO DO", 0), ("safe", "SAFE", 0), ("losses", "LOSSES DECIDED", 0),
        ("decisions", "NEEDS 1 DECISION", 1), ("blocked", "BLOCKED", 1),
        ("users_asked", "NEEDS 2 DECISIONS", 2), ("users_broken", "BREAKS 2 USERS' OBJECTS", 0),
        ("users_unseen", "SAFE", 0),
    ],
)
def test_the_first_line_is_the_verdict(name: str, word: str, decisions: int) -> None:
    """Each form starts with the verdict's word, which counts the decisions missing."""
    found = verdict(CASES[name])
    assert (found.word, found.decisions) == (word, decisions)
    assert render(CASES[name], "text").startswith(f"{word}: ")
    assert render(CASES[name], "markdown").startswith(f"**{word}**: ")


def test_decisions_on_users_objects_come_last() -> None:
    """There may be thousands of them; those of the plan itself, and what failed, come first."""
    plan = a_plan(
        changes=(ORDERS,), blocked=(*ASKED, LOSS, TAKEN), users=USERS, bound=True,
        validations=(Validation("shop.v1", False, "[UNRESOLVED_COLUMN] flag, line 1"),),
    )
    assert [each.name for each in outline(plan).decisions] == [
        "shop.new", "shop.orders.flag", "shop.v1", "function:team.`<b>``*x*`", "team.cities",
    ]


def test_a_failed_proof_is_told_beside_another_obstacle_of_its_object() -> None:
    """Only its own reason counts as told, not any entry under the name."""
    taken = Blocked("shop.v", "CM0306", "the name belongs to another", "rename it")
    refused = Blocked("shop.v", "CM0330", "the view does not bind: no column a", "correct it")
    proof = Validation("shop.v", False, "no column a")
    for blocked, told in (((taken,), (proof,)), ((taken, refused), ())):
        plan = a_plan(blocked=blocked, validations=(proof,))
        assert list_failed_proofs(plan) == told
        assert "no column a" in render(plan, "text")


def test_a_rollback_without_rows_since_loses_nothing() -> None:
    """The columns that go were never written to, and it says so; what is lost is a risk."""
    target = PlanTarget("15.18", "manifest", 3)
    back = msgspec.structs.replace(
        a_plan(changes=(msgspec.structs.replace(ORDERS, risk=None),)), target=target
    )
    found = render(back, "text")
    assert found.startswith("SAFE: 1 migrated")
    assert (
        "Nothing: every row and every value is kept. No row was written since to the columns that"
    ) in found
    assert "values of column" not in found
    lossy = msgspec.structs.replace(a_plan(changes=(ORDERS,)), target=target)
    assert verdict(lossy).line == (
        "LOSSES DECIDED: 1 migrated; 3 unchanged; rows or values of 1 table are lost or converted"
    )


def test_a_table_that_another_kind_replaces_loses_its_rows() -> None:
    """Its drop and the new object have one name: the loss is the drop's."""
    view = Change("shop.gone", "view", "create", because=("shop.gone",))
    assert verdict(a_plan(changes=(GONE, view))).word == "LOSSES DECIDED"


def test_dependents_are_named() -> None:
    """Those that the first line counts are found below; of many the first ones, and how many."""
    assert "+ 3 dependents (3 views): shop.v0, shop.v1, shop.v2\n" in render(CASES["safe"], "text")
    many = tuple(msgspec.structs.replace(DEPENDENTS[0], name=f"shop.v{n}") for n in range(12))
    found = render(a_plan(changes=(IN_PLACE, *many)), "text", width=200)
    assert "+ 12 dependents (12 views): shop.v0, shop.v1, " in found
    assert "shop.v7, … and 4 more\n" in found
    assert "shop.v8" not in found


def test_a_table_changed_in_place_is_no_drop() -> None:
    """No name goes, so no name is absent."""
    steps = (Step("evolve", "table", "shop.orders"),)
    found = render(a_plan(changes=(IN_PLACE,), steps=steps), "text")
    assert (
        "  No name. 1 table is changed in place and stays registered all the time.\n"
    ) in found
    assert "  ~   1  evolve table shop.orders\n" in found


def test_a_copied_table_that_keeps_its_id_is_absent_for_a_moment() -> None:
    """A CHECK is added: the rows are copied, and the name is registered at the copy."""
    change = Change("shop.orders", "table", "update", because=("shop.orders",), contents="copy")
    steps = (
        Step("copy", "table", "shop.orders"), Step("seal", "table", "shop.orders"),
        Step("drop", "table", "shop.orders"), Step("create", "table", "shop.orders"),
    )
    found = render(a_plan(changes=(change,), steps=steps), "text")
    assert "  - shop.orders: from step 3 to step 4 (1 step)\n" in found


def test_two_decisions_are_counted_in_the_plural() -> None:
    """NEEDS 2 DECISIONS for two blocked columns."""
    assert verdict(a_plan(changes=(ORDERS,), blocked=(LOSS, LOSS))).word == "NEEDS 2 DECISIONS"


def test_a_dependent_whose_rows_move_is_not_folded() -> None:
    """Among folded dependents, a table that is copied is named with its rows."""
    root = Change("type:shop.money", "type", "update", cause="self", because=("type:shop.money",))
    table = Change("shop.t", "table", "migrate", cause="dependency",
                   because=("type:shop.money", "shop.t"), contents="copy", rows=9, bytes=10)
    view = Change("shop.v", "view", "migrate", cause="dependency",
                  because=("type:shop.money", "shop.t", "shop.v"))
    lines = render(a_plan(changes=(root, table, view)), "text").splitlines()
    at = lines.index("  * type:shop.money (type) update")
    assert lines[at + 1:at + 3] == [
        "      shop.t (table) migrate: 9 rows, 10 B (rows are copied into a new table)",
        "      + 1 dependent (1 view): shop.v",
    ]


def test_colours_are_only_added() -> None:
    """Without the escape sequences a coloured report is the plain one."""
    import re

    colored = render(CASES["decisions"], "text", color=True)
    assert colored.startswith("\x1b[33mNEEDS 1 DECISION\x1b[0m: ")
    assert re.sub(r"\x1b\[\d+m", "", colored) == render(CASES["decisions"], "text")


def test_lines_fit_the_width_and_names_stay_whole() -> None:
    """Reasons are wrapped at blanks; a name longer than the width is not broken."""
    long = "shop." + "n" * 120
    plan = a_plan(changes=(Change(long, "view", "create", because=(long,)),), blocked=(LOSS,))
    lines = render(plan, "text", width=60).splitlines()
    assert any(long in line for line in lines)
    assert all(len(line) <= 60 for line in lines if long not in line)


def test_markdown_stays_below_the_limit_and_counts_the_rest() -> None:
    """Of 5,000 changes and 5,000 decisions the largest stand there and the others are counted."""
    changes = tuple(
        Change(f"shop.table_number_{n}", "table", "migrate", cause="self", contents="copy",
               because=(f"shop.table_number_{n}",), rows=n, bytes=n, columns=(RETYPED,) * 3)
        for n in range(5000)
    )
    found = render(a_plan(changes=changes, blocked=(LOSS,) * 5000), "markdown")
    assert len(found) < 65_536
    first = found.index("shop.table\\_number\\_4999 ")
    assert first < found.index("shop.table\\_number\\_4998 ")
    assert "shop.table\\_number\\_1 " not in found
    assert found.count("- … and ") >= 2


def test_nothing_in_a_name_or_reason_becomes_markup() -> None:
    """Markdown shows hostile text as text; what a page does is in test_page.py."""
    hostile = Blocked("shop.`<b>`", "CM0306", "<script>*x*</script> [a](b)", "`x`")
    plan = a_plan(changes=(NEW,), blocked=(hostile,))
    assert "\\<script\\>\\*x\\*\\</script\\> \\[a\\](b)" in render(plan, "markdown")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5_900_000, "5.6 MiB"), (2**40, "1.0 TiB"),
     (2**50, "1024.0 TiB")],
)
def test_sizes_are_told_in_binary_units(count: int, words: str) -> None:
    """The largest unit that keeps the number at one or more."""
    assert describe_size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "about 1 s"), (89, "about 89 s"), (90, "about 2 min"), (5_399, "about 90 min"),
     (5_400, "about 1.5 h")],
)
def test_durations_are_estimates(seconds: float, words: str) -> None:
    """Never less than a second; each unit up to ninety of it."""
    assert describe_duration(seconds) == words


def test_unknown_rows_are_not_told() -> None:
    """A table of unknown size has no amount."""
    assert amount(Change("s.t", "table", "migrate", rows=-1)) == ""


@pytest.mark.parametrize(
    ("copies", "note"),
    [
        ([("s.a", 2, 2048, None)], None),
        ([("s.a", 2, 2048, 4.0)],
         "1 table is copied: 2 rows, 2.0 KiB, about 4 s by the last copies of this catalog."),
        ([("s.a", 2, 2048, 4.0), ("s.b", 1, 0, 60.0)],
         "2 tables are copied: 3 rows, 2.0 KiB, about 64 s one after the other by the last copies"
         " of this catalog."),
        ([("s.a", 2, 2048, 4.0), ("s.u", 1, 5 * 1024**3, None)],
         "2 tables are copied: 3 rows, 5.0 GiB, at least about 4 s by the last copies of this"
         " catalog; no measure for s.u."),
        ([("s.a", 2, 2048, 4.0), ("s.w", 1, 1024, None), ("s.u", 1, 5 * 1024**3, None)],
         "3 tables are copied: 4 rows, 5.0 GiB, at least about 4 s by the last copies of this"
         " catalog; no measure for 2 tables, the largest s.u."),
    ],
)  # fmt: skip
def test_the_time_of_all_copies_leaves_none_out_unsaid(
    copies: list[tuple[str, int, int, float | None]], note: str | None
) -> None:
    """A sum over some of the tables is the least that it takes, and the others are counted."""
    changes = tuple(
        Change(name, "table", "update", because=(name,), contents="copy", rows=rows, bytes=held,
               seconds=seconds)
        for name, rows, held, seconds in copies
    )
    notes = {each.title: each.note for each in outline(a_plan(changes=changes)).sections}
    assert notes["What will happen"] == note


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((1, 1, 2), "3 steps in 2 waves"), ((0, 0, 0), "3 steps in 3 waves"),
     ((5,), "1 step in 1 wave")],
)  # fmt: skip
def test_the_waves_that_are_counted_are_those_that_are_shown(
    numbers: tuple[int, ...], words: str
) -> None:
    """Steps of a file that has no waves go one after the other."""
    steps = tuple(Step("drop", "view", f"s.v{at}", wave=wave) for at, wave in enumerate(numbers))
    found = outline(a_plan(changes=(NEW,), steps=steps))
    notes = {each.title: each.note for each in found.sections}
    assert (notes["Steps, in this order"] or "").startswith(f"{words}, ")
    assert f" in {len(found.waves)} wave" in words


HOSTILE = "s.a\x1b[2J\u202e\nSAFE"


@pytest.mark.parametrize(
    "found",
    [
        a_plan(changes=(Change(HOSTILE, "table", "drop", because=(HOSTILE,), rows=1),)),
        a_plan(changes=(NEW,), blocked=(Blocked(HOSTILE, "CM0302", HOSTILE, HOSTILE, HOSTILE),)),
        a_plan(changes=(NEW,), questions=(Question(HOSTILE, HOSTILE, HOSTILE, HOSTILE),)),
        a_plan(
            changes=(NEW,),
            steps=(Step("drop", "view", HOSTILE), Step("create", "view", HOSTILE)),
        ),
        msgspec.structs.replace(
            a_plan(changes=(NEW,)), graph=(GraphObject(HOSTILE, "view", None, ()),),
            target=PlanTarget(HOSTILE, "manifest"), locks_out=HOSTILE,
        ),
    ],
    ids=["change", "decision", "question", "step", "graph"],
)
def test_no_text_of_a_report_has_control_characters(found: Plan) -> None:
    """Each is one line, but for what is to be copied."""
    report = outline(found)
    texts: list[str] = []

    def collect(value: object, name: str) -> None:
        if isinstance(value, str):
            texts.append(value.replace("\n", "") if name == "text" else value)
        elif isinstance(value, tuple):
            for each in value:
                collect(each, "")
        elif isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                collect(getattr(value, field), field)

    collect(report, "")
    assert any("\\u001b" in text for text in texts)
    assert [text for text in texts if set(text) & set("\x1b\u202e\n")] == []


def test_the_proof_counts_views_alone() -> None:
    """A table's name that somebody else holds is no view that was refused."""
    held = Blocked("shop.new", "CM0331", "a table of others holds the name", "rename it")
    name = Validation("shop.new", False, held.reason)
    for proofs, line in (
        ((name,), "bound: nothing to try with Spark's analyser."),
        ((name, Validation("shop.v1", True)),
         "bound: Spark's analyser accepted 1 and refused 0 of the views, functions and"
         " expressions."),
        ((Validation("shop.v1", False, "[X]"), Validation("shop.v2", True)),
         "bound: Spark's analyser accepted 1 and refused 1 of the views, functions and"
         " expressions."),
    ):
        plan = a_plan(changes=(NEW,), blocked=(held,), validations=proofs, bound=True)
        (proof,) = (part for part in outline(plan).sections if part.title == "Validation")
        assert proof.note == line


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (OptionChange("delta.enableRowTracking", "drop", old="true"),
         "property delta.enableRowTracking: drop (UNSET leaves the table feature rowTracking)"),
        (OptionChange("delta.enableRowTracking", "drop", old="false"),
         "property delta.enableRowTracking: drop"),
        (OptionChange("delta.feature.typeWidening", "drop", old="supported"),
         "property delta.feature.typeWidening: drop (UNSET leaves the table feature typeWidening)"),
        (OptionChange("delta.columnMapping.mode", "set", new="name"),
         "property delta.columnMapping.mode: set to name (brings the table feature columnMapping)"),
        (OptionChange("my.own", "drop", old="x"), "property my.own: drop"),
    ],
)  # fmt: skip
def test_features_of_properties_are_named(option: OptionChange, line: str) -> None:
    """What a property brings comes with it, and stays in the protocol when the property goes."""
    changed = Change(
        "shop.orders", "table", "update", because=("shop.orders",), contents="keep",
        options=(option,),
    )
    text = render(a_plan(changes=(changed,)), "text")
    assert [each.strip() for each in text.splitlines() if "property " in each] == [line]
    # a table that is copied into a new one has only the features that it is made with
    copied = msgspec.structs.replace(changed, contents="copy")
    lines = [each.strip() for each in render(a_plan(changes=(copied,)), "text").splitlines()]
    assert [each for each in lines if "property " in each] == [line.partition(" (UNSET")[0]]


def test_many_users_objects_stay_readable() -> None:
    """The first of each outcome, and of the decisions on them, are there; the others are counted.

    A page has five hundred of those. A text of megabytes is cut, and nothing of it is lost in JSON.
    """
    long = "SELECT " + ",\n ".join(f"c{number}" for number in range(500_000))
    users = tuple(
        UserObject(
            f"team.v{number:04}", "view", "breaks" if number < 1000 else "changed",
            ("shop.orders", f"team.v{number:04}"),
            tuple(UserColumn(f"c{place}", "meaning") for place in range(50)),
            missing="flag", repaired=long if not number else None,
        )
        for number in range(2000)
    )
    asked = tuple(
        Blocked(user.name, "CM0338", "breaks a user's view", f"--approve {user.name}")
        for user in users[:1000]
    )
    plan = a_plan(changes=(ORDERS,), users=users, blocked=(*asked, LOSS))
    text = render(plan, "text")
    assert text.startswith("NEEDS 1001 DECISIONS: 1 migrated; 3 unchanged; users' objects: 1,000")
    assert text.count("(view) breaks: flag is missing\n") == 30
    assert text.count("(view) changes\n") == 30
    assert "  … and 1,940 more (--format json lists all)\n" in text
    assert "  ? shop.orders.flag: column flag is removed" in text
    assert text.count("write: --approve team.v") == 30
    assert "  … and 970 more (--format json lists all)\n" in text
    assert "      … and 38 columns more\n" in text
    assert "             … (--format json has all of it)\n" in text
    assert len(text) < 60_000
    assert len(render(plan, "markdown")) < 65_536
    page = render(plan, "html")
    assert page.count("(view) breaks: flag is missing") + page.count("(view) changes") == 560
    assert len(page) < 1_000_000
    assert json.loads(render(plan, "json"))["users"][0]["repaired"] == long


@pytest.mark.parametrize(
    ("users", "note"),
    [
        (msgspec.UNSET, None),
        ((), "No view or function of a user reads what changes."),
        (USERS[:1], "1 of users' views and functions reads what changes: 1 goes on untouched."),
        (USERS[2:3], "No view or function of a user that could be looked at reads what changes."
                     " 1 could not be looked at."),
        (USERS[5:], "1 of users' views and functions reads what changes: 1 breaks."),
        (None, "Not looked at: plan --bind does, and every start before its commit."),
    ],
)
def test_the_section_says_whether_users_were_looked_at(
    users: tuple[UserObject, ...] | msgspec.UnsetType | None, note: str | None
) -> None:
    """Nothing where there is no catalog that could have any; none found is said."""
    plan = a_plan(changes=(ORDERS,), users=users)
    found = {part.title: part.note for part in outline(plan).sections}
    assert found.get("Users' objects") == note


def test_what_may_not_have_readers_was_not_overlooked() -> None:
    """A plan that only creates says nothing of users; one that goes back names the rollback."""
    titles = [part.title for part in outline(a_plan(changes=(NEW,), users=None)).sections]
    assert "Users' objects" not in titles
    back = msgspec.structs.replace(
        a_plan(changes=(WIDER,), users=None), target=PlanTarget("15.18", "manifest", 3)
    )
    note = "Not looked at: rollback --bind does, and every rollback before its commit."
    assert note in render(back, "text")


def test_a_schema_that_cannot_be_listed_is_named() -> None:
    """It is no view: the plan says what could not be looked at, and is judged all the same."""
    schema = UserObject("team", "view", "unknown", reason="it cannot be listed")
    everything = UserObject("every schema", "view", "unknown", reason="no answer")
    plan = a_plan(changes=(WIDER,), users=(schema, everything, CITIES), blocked=ASKED[1:])
    text = render(plan, "text")
    assert "  ? every schema could not be looked at: no answer\n" in text
    assert "  ? team could not be looked at: it cannot be listed\n" in text
    assert text.startswith("NEEDS 1 DECISION: 1 migrated; 3 unchanged; users' objects: 1 breaks,")


@pytest.mark.parametrize(
    ("outcomes", "line"),
    [
        (["unchanged", "broken"], "SAFE: 1 migrated; 3 unchanged"),
        (["changed"], "SAFE: 1 migrated; 3 unchanged; users' objects: 1 changes"),
        (["unknown", "changed"],
         "SAFE, NOT PROVEN: 1 migrated; 3 unchanged; users' objects: 1 changes, 1 unknown"),
        (["breaks", "unknown"],
         "BREAKS 1 USER'S OBJECT: 1 migrated; 3 unchanged; users' objects: 1 breaks, 1 unknown"),
        (["breaks", "breaks"],
         "BREAKS 2 USERS' OBJECTS: 1 migrated; 3 unchanged; users' objects: 2 break"),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_a_users_object_is_not_safe(outcomes: list[str], line: str) -> None:
    """The first line counts what breaks, changes or could not be looked at."""
    users = tuple(
        msgspec.structs.replace(CITIES, name=f"team.v{number}", outcome=outcome)
        for number, outcome in enumerate(outcomes)
    )
    assert verdict(a_plan(changes=(WIDER,), users=users)).line == line


def test_a_text_to_copy_is_code_whatever_is_in_it() -> None:
    """Names with backticks in backticks, and a text of several lines, are never markup."""
    found = render(CASES["users_asked"], "markdown")
    assert "  - write: ``` --approve team.`<b>``*x*` ```\n" in found
    assert "  - write: `ALTER VIEW team.cities AS SELECT town,`\n  - `  mark AS flag`\n" in found
    assert "a \\& \\~b\\~" in found


def test_only_what_is_to_be_copied_is_a_text_to_copy() -> None:
    """A line with ``write: `` in it is a line, and one of SQL stays whole, with its blanks."""
    line, sql = "column c COMMENT: overwrite: x -> y", "query: +-- time of write: UTC"
    entry = Entry("shop.v", "~", (line,), (sql, "       +       a"), "DROPPED (a)\n  b")
    report = Report(
        "t", Verdict("safe", "SAFE", "SAFE"), "r", sections=(Section("What", (entry,)),)
    )
    assert lay_out(report, "text").splitlines()[3:] == [
        "What", "  ~ shop.v", f"      {line}", f"      {sql}", "             +       a",
        "      write: DROPPED (a)", "               b",
    ]
    assert lay_out(report, "markdown").splitlines()[-6:] == [
        "- `~` shop.v", "  - column c COMMENT: overwrite: x -\\> y", f"  - `{sql}`",
        "  - `       +       a`", "  - write: `DROPPED (a)`", "  - `  b`",
    ]
    page = lay_out(report, "html")
    assert page.count('<div class="copyable">') == 1
    assert f"<li>{html.escape(line)}</li>" in page
    assert f'<pre class="details">{sql}\n       +       a</pre>' in page
    assert "<pre>DROPPED (a)\n  b</pre>" in page
