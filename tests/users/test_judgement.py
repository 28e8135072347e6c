"""What becomes of a user's view or function by what Spark's analyser makes of its text."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.port import QueryAnalysis, UserDefinition
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.planner.plan import UserColumn
from catalog_migrate.users.judgement import judge, judge_unmoved

NAME = ItemName("theirs", "v")
MODES = ("COMPENSATION", "BINDING", "TYPE EVOLUTION", "EVOLUTION")
NO_UP_CAST, INCOMPATIBLE = "CANNOT_UP_CAST_DATATYPE", "INCOMPATIBLE_VIEW_SCHEMA_CHANGE"
NO_CAST = "DATATYPE_MISMATCH.CAST_{}_SUGGESTION"


def columns(text: str) -> tuple[Column, ...]:
    """``a INT NOT NULL; b STRING``."""
    found = []
    for each in filter(None, text.split("; ")):
        name, _, type_ = each.partition(" ")
        found.append(
            Column(name, type_.removesuffix(" NOT NULL"), not type_.endswith(" NOT NULL"))
        )
    return tuple(found)


def view(stored: str, mode: str, outputs: str = "") -> UserDefinition:
    names = tuple(outputs.split()) or tuple(each.name for each in columns(stored))
    return UserDefinition(NAME, "view", "…", columns(stored), names, "theirs", mode)


def told(definition: UserDefinition, old: str, new: str) -> str:
    """The outcome in one line."""
    found = judge(definition, QueryAnalysis(columns(old)), QueryAnalysis(columns(new)))
    changes = [
        f"{each.name} {each.change} {each.old}>{each.new}".removesuffix(" >")
        for each in found.columns
    ]
    if found.output is not None:
        assert found.condition is None
        return ", ".join([found.outcome, *changes])
    return f"{found.outcome}, {found.condition} {found.missing or ''}".rstrip()


OLD = "a INT; b STRING NOT NULL"
CASES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("the same", OLD, ("unchanged",) * 4),
    ("other case", "A INT; B STRING NOT NULL", ("unchanged",) * 4),
    ("one more", f"{OLD}; c DATE", ("unchanged",) * 3 + ("changed, c added >DATE",)),
    ("one less", "a INT", (f"breaks, {INCOMPATIBLE} b",) * 3
     + ("changed, b removed STRING>",)),
    ("another order", "b STRING NOT NULL; a INT", ("unchanged",) * 3
     + ("changed, b moved 2>1, a moved 1>2",)),
    ("renamed", "x INT; b STRING NOT NULL", (f"breaks, {INCOMPATIBLE} a",) * 3
     + ("changed, a removed INT>, x added >INT",)),
    ("wider", "a BIGINT; b STRING NOT NULL", (
        "changed, a cast INT>BIGINT", f"breaks, {NO_UP_CAST}",
        "changed, a retyped INT>BIGINT", "changed, a retyped INT>BIGINT")),
    ("narrower", "a SMALLINT; b STRING NOT NULL", (
        "changed, a cast INT>SMALLINT", "changed, a cast INT>SMALLINT",
        "changed, a retyped INT>SMALLINT", "changed, a retyped INT>SMALLINT")),
    ("a text", "a STRING NOT NULL; b STRING NOT NULL", (
        "changed, a cast INT>STRING", f"breaks, {NO_UP_CAST}",
        "changed, a retyped INT>STRING, a nullability NULL>NOT NULL",
        "changed, a retyped INT>STRING, a nullability NULL>NOT NULL")),
    ("no cast", "a DATE; b STRING NOT NULL", (
        f"breaks, {NO_CAST.format('WITH_FUNC')}", f"breaks, {NO_UP_CAST}",
        "changed, a retyped INT>DATE", "changed, a retyped INT>DATE")),
    ("no cast at all", "a ARRAY<INT>; b STRING NOT NULL", (
        f"breaks, {NO_CAST.format('WITHOUT')}", f"breaks, {NO_UP_CAST}",
        "changed, a retyped INT>ARRAY<INT>", "changed, a retyped INT>ARRAY<INT>")),
    ("twice", "a INT; b STRING NOT NULL; A INT",
     (f"breaks, {INCOMPATIBLE} a",) * 3 + ("breaks, COLUMN_ALREADY_EXISTS",)),
    ("may be NULL", "a INT; b STRING",
     ("changed, b nullability NOT NULL>NULL",) * 4),
    ("a type of a later Spark", "a TIME(6); b STRING NOT NULL", (
        f"breaks, {NO_CAST.format('WITHOUT')}", f"breaks, {NO_UP_CAST}",
        "changed, a retyped INT>TIME(6)", "changed, a retyped INT>TIME(6)")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("new", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_view_follows_its_schema_mode(new, expected):
    """By name, then by what the mode makes of the type; one after the other in MODES."""
    assert tuple(told(view(OLD, mode), OLD, new) for mode in MODES) == expected


def test_a_column_is_taken_by_its_name_and_place_among_those_of_that_name():
    """A view with a list of columns may take two of one name; both have to be there."""
    theirs = view("x INT; y STRING; z DATE", "COMPENSATION", "k k d")
    old = "k INT; k STRING; d DATE"
    assert told(theirs, old, "d DATE; k INT; K STRING") == "unchanged"
    assert told(theirs, old, "k STRING; d DATE; k INT") == (
        "changed, x cast INT>STRING, y cast STRING>INT"
    )
    assert told(theirs, old, "k INT; d DATE") == f"breaks, {INCOMPATIBLE} k"
    assert told(theirs, old, "k INT; k STRING; k INT; d DATE") == f"breaks, {INCOMPATIBLE} k"


def test_a_view_that_is_stale_already_is_judged_by_what_changes():
    """What Spark hides today is no news; a type that comes back is."""
    stale = view("a INT; b STRING", "COMPENSATION")
    assert told(stale, "a BIGINT; b STRING", "a BIGINT; b STRING") == "unchanged"
    assert told(stale, "a BIGINT; b STRING", "a INT; b STRING") == "changed, a cast INT>INT"
    bound = view("a INT", "BINDING")
    assert told(bound, "a BIGINT", "a STRING") == f"broken, {NO_UP_CAST}"
    found = judge(bound, QueryAnalysis(columns("a BIGINT")), QueryAnalysis(columns("a INT")))
    assert (found.outcome, found.columns, found.output) == ("changed", (), columns("a INT"))
    assert found.reason == "it cannot be read now, and can be afterwards"


REFUSED = QueryAnalysis(condition="INVALID_CONF_VALUE", reason="its configuration")
CORRUPT = QueryAnalysis(reason="its properties")
READABLE = QueryAnalysis(columns("a INT"))


@pytest.mark.parametrize(
    ("old", "new", "stored", "outcome", "reason"),
    [
        ("a INT", "a INT", READABLE, "unchanged", None),
        ("a INT", "a INT", REFUSED, "unknown", "its text binds, and it cannot be read: its con"),
        ("a INT", "a INT", CORRUPT, "unknown", "its text binds, and it cannot be read: its prop"),
        ("a INT", "a BIGINT", CORRUPT, "unknown", "its text binds, and it cannot be read: its pr"),
        ("a INT", "b INT", READABLE, "breaks", "its query gives 0 columns a"),
        ("a INT", "b INT", REFUSED, "broken", "its query gives 0 columns a"),
        ("a INT", "b INT", CORRUPT, "breaks", "its query gives 0 columns a"),
        ("b INT", "b INT", CORRUPT, "broken", "its query gives 0 columns a"),
        ("b INT", "a INT", REFUSED, "changed", "it cannot be read now, and can be afterwards"),
    ],
)  # fmt: skip
def test_what_is_stored_beside_a_text_may_keep_it_from_being_read(
    old, new, stored, outcome, reason
):
    """Edited by hand, or by another tool: never said to go on where Spark cannot read it now."""
    theirs = view("a INT", "COMPENSATION")
    found = judge(theirs, QueryAnalysis(columns(old)), QueryAnalysis(columns(new)), stored)
    assert found.outcome == outcome
    assert (found.reason or "").startswith(reason or "")
    assert (found.output is None) is (outcome in ("unknown", "breaks", "broken"))


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        (READABLE, "unchanged"),
        (REFUSED, "broken"),
        (CORRUPT, "unknown"),
        (QueryAnalysis(condition="TABLE_OR_VIEW_NOT_FOUND", missing="`s`.`t`"), "broken"),
        (QueryAnalysis(condition="TABLE_OR_VIEW_NOT_FOUND", missing="`theirs`.`v`"), "unknown"),
    ],
)  # fmt: skip
def test_one_that_reads_nothing_with_other_columns_is_what_it_was(stored, outcome):
    """Spark says whether it can be read; one that another session dropped is not known."""
    found = judge_unmoved(view("a INT", "COMPENSATION"), stored)
    assert (found.outcome, found.condition) == (
        outcome, stored.condition if outcome == "broken" else None
    )


def test_a_cast_may_give_null():
    """As Spark has it: a text that is no number fails, and counts as one that may be NULL."""
    theirs = view("a INT NOT NULL", "COMPENSATION")
    found = judge(
        theirs, QueryAnalysis(columns("a INT NOT NULL")),
        QueryAnalysis(columns("a STRING NOT NULL")),
    )
    assert found.output == columns("a INT")
    assert found.columns == (
        UserColumn("a", "cast", "INT", "STRING"),
        UserColumn("a", "nullability", "NOT NULL", "NULL"),
    )


def test_lengths_of_texts_are_no_types_of_a_view():
    """A query knows no VARCHAR, a stored view does; collations are texts too."""
    assert told(view("a VARCHAR(3)", "BINDING"), "a STRING", "a STRING") == "unchanged"
    collated = "a string collate UTF8_LCASE"
    assert told(view(collated, "BINDING"), collated, collated) == "unchanged"
    assert told(view("a TIME(6)", "BINDING"), "a time(6)", "a time(6)") == "unchanged"


def test_a_function_returns_what_it_says():
    """Values are cast; columns of a query are taken by position, and those behind left out."""
    scalar = UserDefinition(NAME, "function", "…", [Column("", "INT")])
    assert told(scalar, " INT", " BIGINT") == "changed,  cast INT>BIGINT"
    assert told(scalar, " INT", " INT NOT NULL") == "unchanged"
    assert told(scalar, " INT", " DATE") == f"breaks, {NO_CAST.format('WITH_FUNC')}"
    rows = UserDefinition(NAME, "function", "…", columns("k INT; v STRING"))
    assert told(rows, "a INT; b STRING", "x INT; y STRING; z DATE") == "unchanged"
    assert told(rows, "a INT; b STRING", "b STRING; a INT") == (
        "changed, k cast INT>STRING, v cast STRING>INT"
    )
    assert told(rows, "a INT; b STRING", "a INT") == "breaks, COLUMN_ORDINAL_OUT_OF_BOUNDS"


def test_what_does_not_analyse_breaks_or_was_broken():
    """With Spark's error class and the missing name."""
    theirs = view(OLD, "BINDING")
    fine = QueryAnalysis(columns(OLD))
    bad = QueryAnalysis(condition="UNRESOLVED_COLUMN", reason="no b", missing="t.b", place=(7, 10))
    found = judge(theirs, fine, bad)
    assert (found.outcome, found.condition, found.missing, found.reason, found.output) == (
        "breaks", "UNRESOLVED_COLUMN", "t.b", "no b", None
    )
    assert judge(theirs, bad, bad).outcome == "broken"
    assert judge(theirs, bad, fine).outcome == "changed"


def test_what_could_not_be_tried_is_unknown():
    """Whichever of the two analyses it was, and where the text could not be read."""
    theirs = view(OLD, "BINDING")
    fine, untried = QueryAnalysis(columns(OLD)), QueryAnalysis(reason="the metastore is away")
    for pair in ((fine, untried), (untried, fine), (untried, untried)):
        found = judge(theirs, *pair)
        assert (found.outcome, found.reason) == ("unknown", "the metastore is away")
    unread = UserDefinition(NAME, "view", unread="no permission")
    assert judge(unread, fine, fine).outcome == "unknown"
    assert judge(unread, fine, fine).reason == "no permission"
