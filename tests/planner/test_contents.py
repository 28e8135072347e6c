"""Where the rows of a changed table come from, and what is blocked for want of a word."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.errors import UsageError
from catalog_migrate.model.hashes import decision_hashes
from catalog_migrate.model.objects import Check, Column
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.planner.contents import changes_values
from catalog_migrate.planner.plan import Blocked, ColumnChange, Plan, Question, Target
from catalog_migrate.planner.planfile import plan_hash
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.report import render
from catalog_migrate.report.verdict import verdict


def move(make: Any, old: Any, new: Any, *approve: str) -> tuple[Plan, Target]:
    """The plan from a release of one table to another, and the table's target."""
    migration = plan_migration(make.baseline(old), make.release(new), approve=approve)
    return migration.plan, migration.targets[0]


def test_nullable_columns_at_the_end_evolve(make: Any) -> None:
    """Added nullable columns at the end and relaxed nullability change metadata only."""
    plan, target = move(
        make, make.table("t", "a INT NOT NULL"), make.table("t", "a INT, b STRING, c INT")
    )
    assert (target.contents, target.projection, target.action) == ("evolve", (), "migrate")
    assert plan.changes[0].contents == "evolve"
    assert plan.changes[0].columns == (
        ColumnChange("nullability", "a", old_nullable=False, new_nullable=True),
        ColumnChange("added", "b", new_type="STRING", new_nullable=True),
        ColumnChange("added", "c", new_type="INT", new_nullable=True),
    )


@pytest.mark.parametrize(
    ("columns", "projection"),
    [
        ("a INT, b VARIANT", (("a", "`a`"), ("b", "CAST(NULL AS VARIANT)"))),
        ("a INT, b ARRAY<TIMESTAMP_NTZ>",
         (("a", "`a`"), ("b", "CAST(NULL AS ARRAY<TIMESTAMP_NTZ>)"))),
        ("a INT, b TIMESTAMP_NTZ", (("a", "`a`"), ("b", "CAST(NULL AS TIMESTAMP_NTZ)"))),
        ("a BIGINT", (("a", "CAST(`a` AS BIGINT)"),)),
    ],
)
def test_what_cannot_be_done_in_place_is_copied(
    make: Any, columns: str, projection: tuple[tuple[str, str], ...]
) -> None:
    """A column that needs a table feature, a wider type: copied."""
    _, target = move(make, make.table("t"), make.table("t", columns))
    assert (target.contents, target.projection) == ("copy", projection)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a INT", "a INT, b VARCHAR(5)"),
        ("a INT", "a INT, b ARRAY<CHAR(5)>"),
        ("a TIMESTAMP_NTZ", "a TIMESTAMP_NTZ, b ARRAY<TIMESTAMP_NTZ>, c VARCHAR(5)"),
        ("a VARIANT", "a VARIANT, b VARIANT"),
        ("a VARCHAR(50)", "a VARCHAR(255)"),
        ("a VARCHAR(50) NOT, b INT", "a STRING, b INT, c INT"),
    ],
)
def test_what_metadata_alone_can_say_is_done_in_place(make: Any, old: str, new: str) -> None:
    """Texts of a length, and types whose table feature the table has: no row is copied."""
    _, target = move(make, make.table("t", old), make.table("t", new))
    assert (target.contents, target.projection) == ("evolve", ())


NESTED = [
    ("STRUCT<x: INT>", "STRUCT<x: INT, y: DOUBLE>", "evolve"),
    ("STRUCT<x: INT>", "STRUCT<y: DOUBLE, x: INT>", "evolve"),
    ("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: INT, y: STRING>>", "evolve"),
    ("MAP<STRING, STRUCT<x: INT NOT NULL>>", "MAP<STRING, STRUCT<x: INT NOT NULL, y: INT>>",
     "evolve"),
    ("STRUCT<x: INT>", "STRUCT<x: INT, y: TIMESTAMP_NTZ>", "copy"),
    ("STRUCT<x: VARCHAR(3)>", "STRUCT<x: VARCHAR(3), y: INT>", "copy"),
    ("STRUCT<x: INT>", "STRUCT<x: INT, `y z`: INT>", "copy"),
    ("STRUCT<x: INT>", "STRUCT<x: BIGINT, y: INT>", "copy"),
    ("STRUCT<x: INT NOT NULL>", "STRUCT<x: BIGINT NOT NULL, y: INT>", "copy"),
    ("STRUCT<x: INT>", "STRUCT<x: INT, y: INT NOT NULL>", "blocked"),
    ("STRUCT<x: INT>", "STRUCT<x: INT NOT NULL, y: INT>", "blocked"),
    ("STRUCT<x: INT, y: INT>", "STRUCT<x: INT>", "blocked"),
    ("STRUCT<x: INT, y: INT>", "STRUCT<y: INT, x: INT>", "blocked"),
    ("STRUCT<x: INT>", "STRUCT<z: INT>", "blocked"),
    ("STRUCT<x: INT>", "STRUCT<x: STRING, y: INT>", "blocked"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "contents"), NESTED)
def test_what_becomes_of_fields(make: Any, old: str, new: str, contents: str) -> None:
    """Nullable fields come in place where Delta's ALTER TABLE adds them, else by a copy; nothing
    else goes without a decision."""
    plan, target = move(
        make, make.table("t", [Column("a", old)]), make.table("t", [Column("a", new)])
    )
    found = "blocked" if plan.blocked else target.contents
    assert (found, [entry.code for entry in plan.blocked]) == (
        contents, ["CM0301"] if contents == "blocked" else []
    )


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("a VARCHAR(50)", "a VARCHAR(49)", {}),
        ("a CHAR(5)", "a VARCHAR(50)", {}),
        ("a ARRAY<VARCHAR(5)>", "a ARRAY<VARCHAR(50)>", {}),
        ("a STRING", "a VARCHAR(50)", {}),
        ("a VARCHAR(5), b INT", "a VARCHAR(50), b INT", {"partitioned_by": ("a",)}),
        ("a VARCHAR(5)", [Column("a", "VARCHAR(50)", using="upper(a)")], {}),
        ("a TIMESTAMP_NTZ", "a TIMESTAMP_NTZ, b VARIANT", {}),
    ],
)
def test_a_text_that_needs_other_files_or_more_is_copied(
    make: Any, old: str, new: Any, more: dict[str, Any]
) -> None:
    """A shorter text, padding, a length inside another type, one that the layout or a USING is
    about, and a table feature that only another type has."""
    _, target = move(make, make.table("t", old, **more), make.table("t", new, **more), "s.t")
    assert target.contents == "copy"


def test_an_approved_text_that_is_too_long_becomes_null(make: Any) -> None:
    """A TRY_CAST would let it through, and the write would fail."""
    _, target = move(make, make.table("t", "a STRING"), make.table("t", "a VARCHAR(9)"), "s.t")
    text = "CAST(`a` AS STRING)"
    assert target.projection == (("a", f"IF(char_length({text}) <= 9, {text}, NULL)"),)


def test_decisions_fill_convert_rename_and_drop(make: Any) -> None:
    """Each decision becomes an expression over the old columns, and losses are named."""
    old = make.table("t", "a INT, b BIGINT, c STRING, old INT, x INT")
    new = make.table(
        "t",
        [
            Column("a", "INT", nullable=False, default="0"),
            Column("b", "INT", using="CAST(b % 10 AS INT)"),
            Column("note", "STRING", renamed_from=("memo", "C")),
            Column("n", "INT", nullable=False, using="a + 1"),
            Column("d", "STRING", default="'x'"),
        ],
        dropped=("old", "x"),
    )
    plan, target = move(make, old, new)
    assert plan.blocked == ()
    assert target.projection == (
        ("a", "COALESCE(`a`, CAST(0 AS INT))"),
        ("b", "CAST(b % 10 AS INT)"),
        ("note", "`c`"),
        ("n", "CAST(a + 1 AS INT)"),
        ("d", "CAST('x' AS STRING)"),
    )
    change = plan.changes[0]
    assert change.risk == (
        "NULL in a becomes 0; converts b from BIGINT to INT; drops column old; drops column x"
    )
    assert [(one.change, one.name, one.old_name) for one in change.columns] == [
        ("nullability", "a", None), ("retyped", "b", None), ("renamed", "note", "c"),
        ("added", "n", None), ("added", "d", None), ("removed", "old", None),
        ("removed", "x", None),
    ]


def test_a_using_that_keeps_the_type_replaces_values(make: Any) -> None:
    """It is a risk like any conversion: the report does not say that every value is kept."""
    plan, _ = move(
        make, make.table("t", "a INT, b INT"),
        make.table("t", [Column("a", "INT", nullable=False, using="coalesce(a, 0)"),
                         Column("c", "BIGINT", using="b * 2", renamed_from=("b",))]),
    )
    assert plan.changes[0].risk == (
        "replaces the values of a by coalesce(a, 0); converts c from INT to BIGINT"
    )
    assert verdict(plan).word == "LOSSES DECIDED"


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "STRING"])
@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("using", [None, "b + 1"])
@pytest.mark.parametrize("default", [None, "7"])
@pytest.mark.parametrize("renamed", [False, True])
def test_changed_values_are_those_with_another_expression(
    make: Any, kind: str, nullable: bool, using: str | None, default: str | None, renamed: bool
) -> None:
    """Looking back, a column's values count as changed when the copy took anything but them."""
    before = Column("b", "INT")
    after = Column(
        "n" if renamed else "b", kind, nullable=nullable, using=using, default=default,
        renamed_from=("b",) if renamed else None,
    )
    old = make.table("t", [Column("a", "INT"), before], partitioned_by=("a",))
    new = make.table("t", [Column("a", "INT"), after])
    _, target = move(make, old, new, "s.t")
    plain = ("`b`", f"CAST(`b` AS {kind})") if kind == "BIGINT" else ("`b`",)
    assert target.contents == "copy"
    assert changes_values(after, before, decision_hashes(new), ()) is (
        dict(target.projection)[after.name] not in plain
    )


def test_a_using_of_a_column_that_stays_as_it_is_is_not_run() -> None:
    """A column that had no NULLs before, and has the same type and name, is copied as it is."""
    before = Column("a", "INT", nullable=False)
    now = Column("a", "INT", nullable=False, using="a + 1")
    assert not changes_values(now, before, {}, ())
    assert changes_values(now, Column("a", "INT"), {}, ())


def test_two_columns_that_swap_their_names_are_told_as_that(make: Any) -> None:
    """One line, and no move: by their names the columns stand where they stood."""
    def told(old: str, *new: tuple[str, str | None]) -> list[str]:
        columns = [Column(n, "INT", renamed_from=None if of is None else (of,)) for n, of in new]
        plan, _ = move(make, make.table("t", old), make.table("t", columns))
        lines = render(plan, "text").split("What will happen\n")[1].split("\n\n")[0].splitlines()
        return [line.strip() for line in lines if "column" in line]

    assert told("a INT, b INT", ("a", "b"), ("b", "a")) == ["columns a and b swap their names"]
    assert told("a INT, b INT, x INT", ("x", None), ("a", "b"), ("b", "a")) == [
        "columns a and b swap their names", "column x moved",
    ]
    assert told("a INT, b INT, c INT", ("a", "b"), ("b", "c"), ("c", "a")) == [
        "column b renamed to a", "column c renamed to b", "column a renamed to c",
    ]
    assert told("a INT, b INT", ("b", "a"), ("c", "b")) == [
        "column a renamed to b", "column b renamed to c",
    ]
    assert told("a INT, b INT, c INT", ("c", None), ("b", None), ("a", None)) == [
        "column c moved", "column b moved",
    ]


def test_every_undecided_column_is_blocked_with_the_text_to_write(make: Any) -> None:
    """One entry for each undecided column, all at once."""
    plan, _ = move(
        make,
        make.table("t", "a BIGINT, b INT, gone DOUBLE"),
        make.table("t", "a INT, b INT NOT NULL, n STRING NOT NULL"),
    )
    assert plan.blocked == (
        Blocked("s.t", "CM0301",
              "a turns from BIGINT to INT, which may lose values or what they mean",
                "a INT USING CAST(a AS INT)", "a"),
        Blocked("s.t", "CM0304", "column b becomes NOT NULL and may hold NULL",
                "b INT NOT NULL USING COALESCE(b, <value for NULL>)", "b"),
        Blocked("s.t", "CM0303",
                "new column n is NOT NULL and nothing says what the rows there get",
                "n STRING NOT NULL USING <expression over the old columns>", "n"),
        Blocked("s.t", "CM0302", "column gone is removed, and its values with it",
                "DROPPED (gone)", "gone"),
    )
    assert not plan.applyable


def test_approval_of_columns_and_of_the_whole_table(make: Any) -> None:
    """Approved losses are carried out: TRY_CAST, a dropped column; a missing value cannot be."""
    old = make.table("t", "a BIGINT, b INT, gone DOUBLE")
    new = make.table("t", "a INT, b INT NOT NULL, n STRING NOT NULL")
    plan, target = move(make, old, new, "s.t.a", "s.t.GONE")
    assert [one.column for one in plan.blocked] == ["b", "n"]
    assert plan.approved == ("s.t.a", "s.t.gone")
    assert target.projection[0] == ("a", "TRY_CAST(`a` AS INT)")
    plan, target = move(make, old, new, "s.t")
    assert [one.code for one in plan.blocked] == ["CM0303"]
    assert plan.approved == ("s.t",)
    assert plan.changes[0].risk == (
        "a: values that are no INT become NULL; b: fails if a row holds NULL; drops column gone"
    )


def test_malformed_approval_is_a_usage_error(make: Any) -> None:
    """An approval that names nothing is refused before anything is planned."""
    for entry in ("t", "a.b.c.d", "s.t.", ""):
        with pytest.raises(UsageError, match="is not an approval"):
            plan_migration(make.baseline(), make.release(), approve=[entry])


def test_applied_decision_does_not_run_again(make: Any) -> None:
    """A USING that ran in an earlier release does not decide a later change of the column."""
    first = make.baseline(make.table("t", "a BIGINT"))
    narrowed = make.release(make.table("t", [Column("a", "INT", using="CAST(a AS INT)")]))
    second = make.after(first, plan_migration(first, narrowed))
    assert len(second.objects["relation", "s", "t"].applied) == 1
    again = make.release(make.table("t", [Column("a", "SMALLINT", using="CAST(a AS INT)")]))
    plan = plan_migration(second, again).plan
    assert [(one.column, one.code) for one in plan.blocked] == [("a", "CM0301")]


def test_an_applied_default_does_not_fill_a_column_that_comes_back(make: Any) -> None:
    """It is NULL in every row, which metadata alone can say."""
    filled = make.release(make.table("t", [Column("a", "INT"), Column("b", "INT", default="1")]))
    first = make.baseline(make.table("t"))
    second = make.after(first, plan_migration(first, filled))
    dropped = plan_migration(second, make.release(make.table("t")), approve=("s.t",))
    (target,) = plan_migration(make.after(second, dropped), filled).targets
    assert target.contents == "evolve"


def test_skipping_a_release_runs_its_decisions(make: Any) -> None:
    """1 to 3 directly and 1 to 2 to 3 end in the same shape with the same decisions applied."""
    one = make.baseline(make.table("t", "a BIGINT, b INT"))
    two = make.release(
        make.table("t", [Column("a", "INT", using="CAST(a AS INT)"), Column("b", "INT")])
    )
    three = make.release(
        make.table(
            "t",
            [Column("a", "INT", using="CAST(a AS INT)"), Column("c", "INT", renamed_from="b")],
        )
    )
    step = make.after(one, plan_migration(one, two))
    stepped, direct = plan_migration(step, three), plan_migration(one, three)
    assert stepped.plan.blocked == direct.plan.blocked == ()
    assert stepped.targets[0].projection == (("a", "`a`"), ("c", "`b`"))
    assert direct.targets[0].projection == (("a", "CAST(a AS INT)"), ("c", "`b`"))
    assert stepped.targets[0].applied == direct.targets[0].applied


def test_columns_in_another_order_are_moved_in_place(make: Any) -> None:
    """Only columns whose relative order changed are listed as moved."""
    plan, target = move(
        make, make.table("t", "a INT, b INT, c INT, d INT"),
        make.table("t", "d INT, a INT, b INT, c INT"),
    )
    assert plan.changes[0].columns == (ColumnChange("moved", "d"),)
    assert target.contents == "evolve"
    assert plan.point_of_no_return is None


def reshaped(make: Any, old: str, new: Any, **more: Any) -> tuple[tuple[str, str], ...]:
    """What each column continues in place, empty when the table is copied."""
    earlier = {name: more.pop(name) for name in ("was_checks",) if name in more}
    before = make.table("t", old, checks=earlier.get("was_checks", ()))
    plan, target = move(make, before, make.table("t", new, **more))
    assert plan.blocked == ()
    assert (target.contents == "evolve") is bool(target.reshape)
    assert [name for name, _ in target.projection] == [c.name for c in target.definition.columns]
    return target.reshape


def renamed(name: str, *earlier: str, type_: str = "INT") -> Column:
    return Column(name, type_, renamed_from=earlier)


def test_renames_drops_and_moves_are_made_in_place(make: Any) -> None:
    """Renamed, dropped, added in the middle and moved, all at once: the shard stays."""
    new = [renamed("key", "id"), Column("new", "INT"), Column("c", "INT")]
    assert reshaped(make, "c INT, id INT", new) == (
        ("key", "id"), ("c", "c")
    )
    assert reshaped(make, "c INT, id INT, old INT", new, dropped=("old",)) == (
        ("key", "id"), ("c", "c")
    )


def test_a_column_dropped_in_place_is_the_point_of_no_return(make: Any) -> None:
    """Decided or approved, it goes right behind the commit; the plan says so, and what that means.

    A copied table is in its old directory for a while.
    """
    old, new = make.table("t", "a INT, b INT"), make.table("t", "a INT")
    decided, target = move(make, old, make.table("t", "a INT", dropped=("b",)))
    assert (target.contents, target.reshape) == ("evolve", (("a", "a"),))
    approved = plan_migration(make.baseline(old), make.release(new), approve=("s.t.b",)).plan
    open_ = plan_migration(make.baseline(old), make.release(new)).plan
    for plan in (decided, approved, open_):
        point = plan.point_of_no_return
        assert plan.changes[0].contents == "evolve"
        assert point is not None
        assert (point.after, point.names, point.kept) == ("commit", ("s.t.b",), ())
        assert "from then on a rollback to a serial before it is refused (CM0340)" in point.meaning
    assert decided.changes[0].risk == "drops column b"
    assert [one.code for one in open_.blocked] == ["CM0302"]
    copied, _ = move(make, old, make.table("t", "a BIGINT", dropped=("b",)))
    assert copied.changes[0].contents == "copy"
    assert copied.changes[0].risk == "drops column b"
    point = copied.point_of_no_return
    assert point is not None
    assert (point.after, point.names) == ("retention", ("s.t",))


def test_tables_that_are_kept_stand_beside_columns_that_go(make: Any) -> None:
    """One plan may have both: the sooner point leads, the later one is told too."""
    old = [make.table("t", "a INT, b INT"), make.table("u", "a INT")]
    new = [make.table("t", "a INT", dropped=("b",)), make.table("u", "a BIGINT")]
    point = plan_migration(make.baseline(*old), make.release(*new)).plan.point_of_no_return
    assert point is not None
    assert (point.after, point.names, point.kept) == ("commit", ("s.t.b",), ("s.u",))


@pytest.mark.parametrize(
    ("action", "approve", "contents"),
    [
        ("refuse", (), "copy"), ("refuse", ("s.t.b",), "copy"), ("approve", (), "copy"),
        ("approve", ("s.t.b",), "evolve"), ("allow", (), "evolve"),
    ],
)
def test_a_policy_keeps_the_way_back(
    make: Any, action: str, approve: tuple[str, ...], contents: str
) -> None:
    """Where a rule does not let columns go in place, the table is copied and nothing is blocked."""
    rules = (Rule("drop_in_place", action, "s.*.b"),)
    for name, wanted in (("b", contents), ("c", "evolve")):
        migration = plan_migration(
            make.baseline(make.table("t", f"a INT, {name} INT")),
            make.release(make.table("t", "a INT", dropped=(name,))),
            approve=approve, policy=Policy(rules=rules),
        )
        assert migration.plan.applyable
        assert migration.targets[0].contents == wanted
        assert migration.targets[0].projection == (("a", "`a`"),)
        reason = f"column {name} is dropped, which the policy does not allow in place"
        assert migration.plan.changes[0].copied_because == (
            (reason,) if wanted == "copy" else ()
        )


def test_a_swap_is_a_migration_although_the_columns_look_alike(make: Any) -> None:
    """Two columns of one type exchange their names; applied once, it is not asked again."""
    new = make.table("t", [renamed("a", "b"), renamed("b", "a")])
    plan, target = move(make, make.table("t", "a INT, b INT"), new)
    assert target.reshape == (("a", "b"), ("b", "a"))
    assert target.projection == (("a", "`b`"), ("b", "`a`"))
    assert [change.change for change in plan.changes[0].columns] == ["renamed", "renamed"]
    assert plan.changes[0].new_id != plan.changes[0].old_id


def test_a_chain_of_names_moves_each_value_one_further(make: Any) -> None:
    """c was b, b was a: every value goes with its column."""
    new = [renamed("b", "a"), renamed("c", "b")]
    assert reshaped(make, "a INT, b INT", new) == (("b", "a"), ("c", "b"))


def test_a_rename_never_takes_a_name_from_a_column_that_stays(make: Any) -> None:
    """A stale decision for a name that stands is no rename: nothing is dropped by it."""
    old = make.table("t", "a INT, b INT")
    plan, target = move(make, old, make.table("t", [renamed("a", "b"), Column("b", "INT")]))
    assert plan.is_empty
    assert [(t.action, t.reshape) for t in [target]] == [(None, ())]


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("a INT, b INT", [renamed("k", "a", type_="BIGINT"), Column("b", "INT")], {}),
        ("a INT, b INT", [Column("k", "INT", renamed_from="a", using="a + 1"), Column("b", "INT")],
         {}),
        ("a INT, b INT", [renamed("k", "a"), Column("b", "INT", nullable=False, default="0")], {}),
        ("a INT, b INT", [renamed("k", "a"), Column("b", "INT"), Column("v", "VARIANT")], {}),
        ("a INT, b INT", [renamed("k", "a"), Column("b", "INT"), Column("c", "INT", default="1")],
         {}),
        ("a INT, b INT", [Column("b", "INT")],
         {"dropped": ("a",), "was_checks": (Check("c", "`A` > 0"),)}),
        ("a INT, b INT, c INT", [Column("b", "BIGINT"), Column("c", "INT")], {"dropped": ("a",)}),
        ("a INT, b INT", [Column("b", "INT"), Column("c", "INT", default="1")],
         {"dropped": ("a",)}),
    ],
    ids=["wider", "converted", "tightened", "a feature", "filled", "under a CHECK",
         "dropped beside a wider one", "dropped beside a filled one"],
)
def test_what_changes_values_or_is_held_on_to_is_copied(
    make: Any, old: str, new: Any, more: Any
) -> None:
    """Where a value changes, or Delta needs the column otherwise, the rows are copied."""
    assert reshaped(make, old, new, **more) == ()


def test_what_the_rows_are_laid_out_by_is_not_dropped_in_place(make: Any) -> None:
    """A partition or clustering column, a computed one and what computes it, or all but those."""
    computed = [Column("a", "INT"), Column("b", "INT"), Column("g", "INT", generated="b + 1")]
    cases = [
        (make.table("t", "a INT, b INT", partitioned_by=("b",)),
         make.table("t", "a INT", dropped=("b",))),
        (make.table("t", "a INT, b INT", clustered_by=("a",)),
         make.table("t", "a INT", dropped=("b",), clustered_by=("a",))),
        (make.table("t", "a INT, b INT", partitioned_by=("a",)),
         make.table("t", "a INT, n INT", dropped=("b",), partitioned_by=("a",))),
        (make.table("t", computed), make.table("t", computed[:2], dropped=("g",))),
        (make.table("t", computed), make.table("t", "a INT, g INT", dropped=("b",))),
    ]
    for old, new in cases:
        plan, target = move(make, old, new)
        assert (target.contents, target.reshape) == ("copy", ())
        assert plan.point_of_no_return is not None
        assert plan.point_of_no_return.after == "retention"


@pytest.mark.parametrize(
    ("old", "new", "dropped", "checks", "reasons"),
    [
        ([Column("a", "INT"), Column("g", "INT", generated="a + 1")], [Column("a", "INT")], ("g",),
         (), ("generated column g is dropped",)),
        ([Column("a", "INT")], [renamed("k", "a")], (), (Check("c", "a > 0"),),
         ("column a is renamed to k, and a CHECK, a generated column or the partitioning uses that"
          " name",)),
    ],
)
def test_a_copy_says_what_it_is_for(
    make: Any, old: Any, new: Any, dropped: tuple[str, ...], checks: tuple[Check, ...],
    reasons: tuple[str, ...],
) -> None:
    """Each reason names the column, and no other reason is given beside it."""
    before, after = make.table("t", old, checks=checks), make.table("t", new, dropped=dropped)
    plan, _ = move(make, before, after)
    assert [(each.contents, each.copied_because) for each in plan.changes] == [("copy", reasons)]


def test_insertion_in_the_middle_moves_nothing(make: Any) -> None:
    """A new column between two others shifts positions, not the relative order."""
    plan, _ = move(make, make.table("t", "a INT, b INT"), make.table("t", "a INT, n INT, b INT"))
    assert [one.change for one in plan.changes[0].columns] == ["added"]


def test_probable_column_rename_is_a_question(make: Any) -> None:
    """One column gone and one of its type come: asked, with the text to write, and blocked."""
    plan, _ = move(
        make, make.table("t", "a INT, memo STRING"), make.table("t", "a INT, note STRING")
    )
    assert plan.questions == (
        Question("s.t", "memo", "note", "note STRING RENAMED FROM memo"),
    )
    assert [one.column for one in plan.blocked] == ["memo"]


def test_the_only_column_gone_is_asked_about_wherever_the_new_one_is(make: Any) -> None:
    """Their names may be unlike and their places other ones; of two that came neither is meant."""
    old = make.table("t", "a INT, memo STRING, b INT")
    plan, _ = move(make, old, make.table("t", "a INT, b INT, xyz STRING"))
    assert plan.questions == (Question("s.t", "memo", "xyz", "xyz STRING RENAMED FROM memo"),)
    plan, _ = move(make, old, make.table("t", "a INT, b INT, xyz STRING, zyx STRING"))
    assert plan.questions == ()


def test_a_table_to_be_mapped_by_name_can_be_copied_instead(make: Any) -> None:
    """Delta's ALTER maps its columns by name, and may be refused: the plan has what a copy takes.
    Other properties it needs no ALTER for."""
    mapped, told = {"delta.columnMapping.mode": "name"}, {"x": "1"}
    _, target = move(make, make.table("t"), make.table("t", properties=mapped))
    assert (target.contents, target.projection) == ("evolve", (("a", "`a`"),))
    _, target = move(make, make.table("t"), make.table("t", properties=told))
    assert (target.contents, target.projection) == ("evolve", ())


def test_table_reached_by_a_change_keeps_its_shard(make: Any) -> None:
    """A table that only got a new id through what it uses takes its shard over untouched."""
    old = [make.table("a"), make.table("t", depends_on=("s.a",))]
    migration = plan_migration(
        make.baseline(*old), make.release(make.table("a", "a INT, b INT"), old[1])
    )
    target = migration.targets[1]
    assert (target.action, target.contents, target.old) == (
        "migrate", "keep", ("relation", "s", "t"),
    )
    assert migration.plan.changes[1].contents == "none"


def test_derived_table_is_filled_again_and_never_blocked(make: Any) -> None:
    """A migrated derived table needs no decision: the application fills it."""
    plan, target = move(
        make, make.table("t", "a BIGINT", contents="derived"),
        make.table("t", "b INT NOT NULL", contents="derived"),
    )
    assert (target.contents, plan.blocked, plan.changes[0].contents) == ("derived", (), "derived")


@pytest.mark.parametrize(
    ("more", "contents"),
    [
        ({"partitioned_by": ("a",)}, "copy"),
        ({"clustered_by": ("a",)}, "copy"),
        ({"checks": (Check("c", "a > 0"),)}, "copy"),
        ({"properties": {"x": "1"}}, "evolve"),
        ({"comment": "c"}, "evolve"),
    ],
)
def test_storage_changes_are_updates_with_the_id_kept(
    make: Any, more: dict[str, Any], contents: str
) -> None:
    """Layout and new checks copy, properties and comments change in place; the id stays."""
    plan, target = move(
        make, make.table("t", "a INT, b INT"), make.table("t", "a INT, b INT", **more)
    )
    assert (target.action, target.contents, target.global_id) == ("update", contents, "s1")
    assert target.projection == ((("a", "`a`"), ("b", "`b`")) if contents == "copy" else ())
    assert (plan.drops, plan.creates, plan.blocked) == ((), (), ())


def test_removed_check_is_taken_away_in_place(make: Any) -> None:
    """A check that goes can fail on no row."""
    _, target = move(make, make.table("t", checks=(Check("c", "a > 0"),)), make.table("t"))
    assert target.contents == "evolve"


def test_rows_and_bytes_come_from_the_catalog(make: Any) -> None:
    """Sizes are asked by ItemId and shown for a table whose rows move."""
    asked: list[str] = []

    def sizes(item_id: str) -> TableSize:
        asked.append(item_id)
        return TableSize(7, 900, 3, 1.5)

    plan = plan_migration(
        make.baseline(make.table("t")), make.release(make.table("t", "a BIGINT")), sizes=sizes
    ).plan
    assert asked == ["i1"]
    change = plan.changes[0]
    assert (change.rows, change.bytes, change.files, change.seconds) == (7, 900, 3, 1.5)
    assert plan_hash(plan) == plan_hash(
        plan_migration(
            make.baseline(make.table("t")), make.release(make.table("t", "a BIGINT"))
        ).plan
    )
