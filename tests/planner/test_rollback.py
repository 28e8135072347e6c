"""What a rollback makes of one table: which shards its rows come from, and what may be lost."""

from __future__ import annotations

import pytest

from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration, Segment
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.rollback import (
    CAME_BY_ADOPTION,
    IRREVERSIBLE,
    ROWS_CHANGED,
    ROWS_NOT_HELD,
    GoingBack,
    Origin,
    Source,
)
from catalog_migrate.release.release import Release

T = ("relation", "s", "t")


def release(name: str, *columns: Column) -> Release:
    table = ObjectDefinition(schema="s", kind="table", name="t", columns=columns)
    return Release(name=name, objects=(table,), manifest_hash=name, uses={T: ()}, places={})


def column(name: str, kind: str = "INT", *, null: bool = True) -> Column:
    return Column(name=name, type=kind, nullable=null)


def planned(
    then: Release, now: Release, names: dict[str, str], origin: Origin, *approve: str
) -> Migration:
    """The rollback from one release to the other; ``names`` lead from then to now."""
    return plan_migration(
        Baseline.from_release(now), then, approve=approve,
        back=GoingBack(1, {T: T}, {T: names}, {T: origin}, {T: ("decided",)}),
    )


def source(path: str, after: int | None, upto: int | None, rows: int, *held: Column,
           others: tuple[Column, ...] = ()) -> Source:
    return Source(path, after, upto, {each.name: each for each in held}, others, rows)


def codes(migration: Migration) -> list[tuple[str, str | None]]:
    return [(one.code, one.column) for one in migration.plan.blocked]


A, B, C = column("a"), column("b"), column("c")


def test_old_shard_and_what_came_since() -> None:
    """A dropped column comes from the shard of then; rows since have NULL there."""
    origin = Origin(source("p", None, 7, -1, A, B), (source("q", 2, None, 3, A),))
    migration = planned(release("1", A, B), release("2", A), {"a": "a"}, origin)
    assert migration.plan.applyable
    assert migration.plan.target.serial == 1
    (target,) = migration.targets
    assert (target.contents, target.applied) == ("copy", ("decided",))
    assert target.segments == (
        Segment("p", None, 7, (("a", "`a`"), ("b", "`b`"))),
        Segment("q", 2, None, (("a", "`a`"), ("b", "CAST(NULL AS INT)"))),
    )
    assert migration.plan.changes[0].risk == "b is NULL in rows written since"


@pytest.mark.parametrize(
    ("rows", "blocked"), [(0, []), (3, [("CM0302", "c")]), (-1, [("CM0302", "c")])]
)
def test_new_columns_matter_only_when_something_was_written(
    rows: int, blocked: list[tuple[str, str]]
) -> None:
    """The values of a later column are a loss only in rows that were written with it."""
    origin = Origin(source("p", None, 7, -1, A, B), (source("q", 2, None, rows, A, others=(C,)),))
    then, now = release("1", A, B), release("2", A, C)
    assert codes(planned(then, now, {"a": "a"}, origin)) == blocked
    approved = planned(then, now, {"a": "a"}, origin, "s.t.c").plan
    assert (approved.blocked, approved.approved) == ((), ("s.t.c",))


def test_rows_without_a_value_for_not_null() -> None:
    """They block; approved they are left out; where there are none, none may come."""
    must = column("b", null=False)
    then, now = release("1", A, must), release("2", A)

    def origin(rows: int) -> Origin:
        return Origin(source("p", None, 7, -1, A, must), (source("q", 2, None, rows, A),))

    assert codes(planned(then, now, {"a": "a"}, origin(3))) == [(ROWS_NOT_HELD, None)]
    approved = planned(then, now, {"a": "a"}, origin(3), "s.t")
    assert approved.targets[0].segments[-1] == Segment("q", 2, None, None, left_out=True)
    assert approved.plan.changes[0].risk == (
        "3 rows written since have no value for b (NOT NULL) and stay behind in the retired shard q"
    )
    none = planned(then, now, {"a": "a"}, origin(0)).targets[0].segments[-1]
    assert none == Segment("q", 2, None, None, left_out=False)


def test_rows_changed_since() -> None:
    """The present rows count; the dropped column is NULL where that is approved."""
    origin = Origin(source("p", None, 7, -1, A, B), (source("q", 2, None, -1, A),), rewritten=True)
    then, now = release("1", A, B), release("2", A)
    assert codes(planned(then, now, {"a": "a"}, origin)) == [(ROWS_CHANGED, "b")]
    migration = planned(then, now, {"a": "a"}, origin, "s.t.b")
    approved = migration.targets[0]
    assert approved.segments == ()
    assert approved.projection == (("a", "`a`"), ("b", "CAST(NULL AS INT)"))
    assert "it is NULL everywhere" in (migration.plan.changes[0].risk or "")


BASE = source("p", None, 7, -1, A, B)
SHARD = "its rows come from the retired shard of the earlier state"


@pytest.mark.parametrize(
    ("then", "origin", "reasons"),
    [
        ((A, B), Origin(BASE, (source("q", 2, None, 3, A),)), (SHARD,)),
        ((column("a", "STRING"),), Origin(source("p", None, 7, -1, column("a", "STRING"))),
         (SHARD,)),
        ((A, B), Origin(BASE, (source("q", 2, None, -1, A),), rewritten=True),
         ("the table was copied since the earlier state, and going back copies it too",)),
        ((column("a", "STRING"),), Origin(), ("the values of column a turn from INT to STRING",)),
        ((), Origin(), ()),
    ],
)
def test_a_copy_back_says_why(
    then: tuple[Column, ...], origin: Origin, reasons: tuple[str, ...]
) -> None:
    """Rows that come from an earlier shard are the reason, not what differs between the shapes."""
    now = release("2", A, *(() if then else (C,)))
    (change,) = planned(release("1", *(then or (A,))), now, {"a": "a"}, origin, "s.t").plan.changes
    assert (change.contents, change.copied_because) == ("copy" if reasons else "evolve", reasons)


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        (Origin(), "dropped in place"),
        (Origin(source("p", None, 7, -1, A, B), gone="the files of p were deleted"), "of p were"),
    ],
)
def test_past_the_point_of_no_return(origin: Origin, reason: str) -> None:
    """What no shard holds any more is refused, and no approval helps."""
    migration = planned(
        release("1", A, B), release("2", A), {"a": "a"}, origin, "s.t", "s.t.b"
    )
    assert codes(migration) == [(IRREVERSIBLE, "b")]
    assert reason in migration.plan.blocked[0].reason
    assert not migration.plan.applyable


def test_the_shard_of_then_may_have_lost_a_column_in_place() -> None:
    """Dropped there before it was replaced, a column is refused, unless there never was a row."""
    then, now = release("1", A, B), release("2", A)

    def origin(rows: int, *, rewritten: bool = False) -> Origin:
        base = Source("p", None, 7, {"a": A}, (), rows, frozenset({"b"}))
        return Origin(base, (source("q", 2, None, 3, A),), rewritten=rewritten)

    for rows, rewritten in ((-1, False), (4, False), (4, True)):
        held = planned(then, now, {"a": "a"}, origin(rows, rewritten=rewritten), "s.t", "s.t.b")
        assert codes(held) == [(IRREVERSIBLE, "b")]
    empty = planned(then, now, {"a": "a"}, origin(0))
    assert empty.plan.applyable
    assert [each.projection for each in empty.targets[0].segments] == [
        (("a", "`a`"), ("b", "CAST(NULL AS INT)")),
    ] * 2


def test_a_later_column_of_the_shard_of_then_is_a_loss() -> None:
    """Added in place before the shard was replaced: its values there go with it, so it is asked."""
    then, now = release("1", A), release("2", A, C)
    for rows, wanted in ((-1, [("CM0302", "c")]), (4, [("CM0302", "c")]), (0, [])):
        base = Source("p", None, 7, {"a": A}, (C,), rows)
        origin = Origin(base, (source("q", 2, None, 0, A, others=(C,)),))
        assert codes(planned(then, now, {"a": "a"}, origin)) == wanted
        assert codes(planned(then, now, {"a": "a"}, origin, "s.t.c")) == []


def test_a_field_that_the_shard_of_then_got_later_is_a_loss() -> None:
    """Its values there go with it, so it is asked; a type that is still that of then is not."""
    then, grown = column("b", "STRUCT<x: INT>"), column("b", "STRUCT<x: INT, y: INT>")
    for held, wanted in ((grown, [("CM0301", "b")]), (then, [])):
        origin = Origin(Source("p", None, 7, {"b": held}, (), 4))
        migration = planned(release("1", then), release("2", grown), {"b": "b"}, origin)
        assert codes(migration) == wanted


@pytest.mark.parametrize(
    ("dropped", "rows", "blocked"),
    [("b", 3, [(IRREVERSIBLE, "b")]), ("b", -1, [(IRREVERSIBLE, "b")]), ("b", 0, []), ("", 3, [])],
)
def test_rows_since_that_lost_a_column_in_place(
    dropped: str, rows: int, blocked: list[tuple[str, str]]
) -> None:
    """What they had there is nowhere any more, and no approval helps.

    Where the later shard never had the column, or nothing was written, there is nothing to miss.
    """
    tail = Source("q", 2, None, {"a": A}, (), rows, frozenset({dropped} - {""}))
    origin = Origin(source("p", None, 7, -1, A, B), (tail,))
    then, now = release("1", A, B), release("2", A)
    migration = planned(then, now, {"a": "a"}, origin, "s.t", "s.t.b")
    assert codes(migration) == blocked
    changed = Origin(source("p", None, 7, -1, A, B), (tail,), rewritten=True)
    assert codes(planned(then, now, {"a": "a"}, changed, "s.t.b")) == (
        [(IRREVERSIBLE, "b")] if dropped else []
    )
    if not blocked:
        assert migration.targets[0].segments[-1].projection == (
            ("a", "`a`"), ("b", "CAST(NULL AS INT)"),
        )
    must = release("1", A, column("b", null=False))
    base = source("p", None, 7, -1, A, column("b", null=False))
    assert (IRREVERSIBLE, "b") not in blocked or codes(
        planned(must, now, {"a": "a"}, Origin(base, (tail,)), "s.t", "s.t.b")
    ) == blocked


def test_a_table_without_rows_misses_no_value() -> None:
    """A column dropped in place of an empty table comes back; of any other it does not."""
    for rows, wanted in ((0, []), (1, [(IRREVERSIBLE, "b")]), (-1, [(IRREVERSIBLE, "b")])):
        migration = plan_migration(
            Baseline.from_release(release("2", A)), release("1", A, column("b", null=False)),
            sizes=lambda _, rows=rows: TableSize(rows, 0),  # type: ignore[misc]
            back=GoingBack(1, {T: T}, {T: {"a": "a"}}, {T: Origin()}, {T: ()}),
        )
        assert codes(migration) == wanted


def test_a_derived_table_whose_old_shard_lost_a_column_is_filled_again() -> None:
    """The application makes its rows, so nothing is out of reach."""
    then = ObjectDefinition("s", "table", "t", (A, B), contents="derived")
    derived = Release(name="1", objects=(then,), manifest_hash="1", uses={T: ()}, places={})
    base = Source("p", None, 7, {"a": A}, (), -1, frozenset({"b"}))
    origin = Origin(base, (source("q", 2, None, 3, A),))
    migration = planned(derived, release("2", A), {"a": "a"}, origin)
    assert (migration.targets[0].contents, codes(migration)) == ("derived", [])


def test_a_renamed_column_needs_no_old_shard() -> None:
    """What the present shard holds whole is copied back from it alone, updates and all."""
    origin = Origin(source("p", None, 7, -1, A), (source("q", 2, None, -1, B),), rewritten=True)
    migration = planned(release("1", A), release("2", B), {"a": "b"}, origin)
    (target,) = migration.targets
    assert (target.segments, target.projection) == ((), (("a", "`b`"),))
    assert migration.plan.applyable


def test_a_column_that_only_bears_the_name() -> None:
    """Equal shapes are no proof: a column dropped and given again is another one."""
    origin = Origin(source("p", None, 7, -1, A, B), (source("q", 2, None, 0, A, others=(B,)),))
    same = release("1", A, B)
    assert planned(same, release("2", A, B), {"a": "a", "b": "b"}, Origin()).plan.is_empty
    other = planned(same, release("2", A, B), {"a": "a"}, origin)
    assert [change.action for change in other.plan.changes] == ["migrate"]
    assert other.targets[0].segments[0].path == "p"


def test_conversions_back() -> None:
    """A value that fits is cast, one that may not is a loss to approve; only of rows since."""
    text, number = column("a", "STRING"), column("a", "INT")
    lossless = planned(
        release("1", text), release("2", number), {"a": "a"},
        Origin(source("p", None, 7, -1, text), (source("q", 2, None, 3, number),)),
    )
    assert lossless.targets[0].segments[-1].projection == (("a", "CAST(`a` AS STRING)"),)
    lossy = (release("1", number), release("2", text), {"a": "a"},
             Origin(source("p", None, 7, -1, number), (source("q", 2, None, 3, text),)))
    assert codes(planned(*lossy)) == [("CM0301", "a")]
    approved = planned(*lossy, "s.t.a").targets[0].segments[-1]
    assert approved.projection == (("a", "TRY_CAST(`a` AS INT)"),)


def test_behind_an_adoption() -> None:
    """A table that was adopted since is not dropped because we go back; no approval helps."""
    then = Release(name="1", objects=(), manifest_hash="1", uses={}, places={})
    for adopted in (frozenset({T}), frozenset[Identity]()):
        migration = plan_migration(
            Baseline.from_release(release("2", A)), then, approve=("s.t",),
            back=GoingBack(1, adopted=adopted),
        )
        assert codes(migration) == ([(CAME_BY_ADOPTION, None)] if adopted else [])
