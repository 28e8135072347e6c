"""Objects that swap their names, pass them on in circles and chains, and renames that cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from catalog_migrate.model.hashes import decision_hashes
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.renames import match
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.planfile import encode_plan
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.report import render

many = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def items(migration: Migration) -> dict[str, str]:
    """Item ids by name, of all objects behind a migration."""
    return {target.definition.name: target.item_id for target in migration.targets}


def steps(migration: Migration) -> list[str]:
    """What is executed, in words, a wave a line."""
    waves: dict[int, list[str]] = {}
    for step in migration.plan.steps:
        waves.setdefault(step.wave, []).append(f"{step.op} {step.name}")
    return [", ".join(waves[number]) for number in sorted(waves)]


@pytest.mark.parametrize(
    ("standing", "earlier", "expected"),
    [
        ("", {"b": "a"}, {"b": "a"}),
        ("", {"b": "za"}, {"b": "z"}),
        ("ab", {"a": "b", "b": "a"}, {"a": "b", "b": "a"}),
        ("abc", {"a": "c", "b": "a", "c": "b"}, {"a": "c", "b": "a", "c": "b"}),
        ("b", {"b": "a", "c": "b"}, {"b": "a", "c": "b"}),
        # a and b were swapped, then a was called c: the two releases at once
        ("b", {"b": "a", "c": "ab"}, {"b": "a", "c": "b"}),
        # the name of another stays where nothing else takes it
        ("a", {"b": "a"}, {}),
        ("ab", {"a": "b"}, {}),
        ("ab", {"b": "ax"}, {}),
    ],
)
def test_matching(standing: str, earlier: Mapping[str, str], expected: dict[str, str]) -> None:
    """The newest earlier name counts that can be had; no name is taken from what stays."""
    assert match(set(standing), earlier) == expected


def test_swap_of_tables_that_are_unlike(make: Any) -> None:
    """Each table goes on under the other's name, with its rows and its own columns."""
    a, b = "k INT, v STRING", "k BIGINT, w DATE"
    old = [make.table("a", a), make.table("b", b), make.view("both", ["s.a", "s.b"])]
    new = [
        make.table("a", b, renamed_from="b"), make.table("b", a, renamed_from="a"),
        make.view("both", ["s.a", "s.b"]),
    ]
    baseline = make.baseline(*old)
    migration = plan_migration(baseline, make.release(*new))
    plan = migration.plan
    assert plan.blocked == ()
    assert [(c.name, c.old_name, c.action, c.item_id, c.columns) for c in plan.changes] == [
        ("s.a", "s.b", "migrate", "i2", ()), ("s.b", "s.a", "migrate", "i1", ()),
        ("s.both", None, "migrate", "i3", ()),
    ]
    assert {target.contents for target in migration.targets[:2]} == {"keep"}
    assert steps(migration) == [
        "drop s.both", "drop s.a, drop s.b", "create s.a, create s.b", "create s.both",
    ]
    text = render(plan, "text")
    for name in ("a", "b", "both"):
        assert f"s.{name}: from step" in text.split("Which names are absent")[1]
    carried_on = plan_migration(make.after(baseline, migration), make.release(*new))
    assert (carried_on.plan.is_empty, carried_on.targets) == (True, ())


def test_chain_loses_a_name_before_it_is_given(make: Any) -> None:
    """No directory has two names for a moment, though nothing else asks for an order."""
    old = [make.table("a"), make.table("b")]
    new = [make.table("b", renamed_from="a"), make.table("c", renamed_from="b")]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert items(migration) == {"b": "i1", "c": "i2"}
    assert steps(migration) == ["drop s.a, drop s.b", "create s.b, create s.c"]


def test_a_renamed_view_waits_for_nothing(make: Any) -> None:
    """A table never has two names; a view is another one under its new name, in the same wave."""
    old, new = make.view("v", ["s.t"]), make.view("w", ["s.t"], renamed_from=("v",))
    table = make.table("t")
    migration = plan_migration(make.baseline(table, old), make.release(table, new))
    assert [(step.wave, step.op, step.name) for step in migration.plan.steps] == [
        (1, "drop", "s.v"), (1, "create", "s.w"),
    ]
    again = make.table("u", renamed_from=("t",))
    migration = plan_migration(make.baseline(table), make.release(again))
    assert [(step.wave, step.op, step.name) for step in migration.plan.steps] == [
        (1, "drop", "s.t"), (2, "create", "s.u"),
    ]


def test_name_goes_to_another_kind(make: Any) -> None:
    """A table is renamed, and a view takes its name, for those who still use that."""
    old = [make.table("a")]
    new = [make.table("b", renamed_from="a"), make.view("a", ["s.b"])]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert migration.plan.blocked == ()
    assert items(migration) == {"b": "i1", "a": "i2"}
    assert steps(migration) == ["drop s.a", "create s.b", "create s.a"]


def test_swap_of_kinds(make: Any) -> None:
    """A table and a view of one schema swap their names."""
    old = [make.table("t"), make.view("v")]
    new = [make.table("v", renamed_from="t"), make.view("t", renamed_from="v")]
    migration = plan_migration(make.baseline(*old), make.release(*new))
    assert (migration.plan.blocked, items(migration)) == ((), {"v": "i1", "t": "i2"})


def test_swap_beside_a_change_of_columns(make: Any) -> None:
    """Columns are compared with those of the table that goes on, not with the name's."""
    old = [make.table("a", "k INT, v STRING"), make.table("b", "k INT, w DATE")]
    new = [
        make.table("a", "k BIGINT, w DATE", renamed_from="b"),
        make.table("b", [Column("k", "INT"), Column("x", "STRING", renamed_from="v")],
                   renamed_from="a"),
    ]
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert plan.blocked == ()
    assert [[(c.change, c.name) for c in change.columns] for change in plan.changes] == [
        [("retyped", "k")], [("renamed", "x")],
    ]


def test_swap_is_carried_along(make: Any) -> None:
    """Later releases keep it, with names before and behind it, and in another schema."""
    swapped = [make.table("a", renamed_from="b"), make.table("b", renamed_from="a")]
    baseline = make.baseline(make.table("a"), make.table("b"))
    then = make.after(baseline, plan_migration(baseline, make.release(*swapped)))
    held = {identity[2]: one.item_id for identity, one in then.objects.items()}
    longer = [make.table("a", renamed_from=("b", "x")), make.table("b", renamed_from=("a", "y"))]
    assert plan_migration(then, make.release(*longer)).plan.changes == ()
    third = [make.table("c", renamed_from=("a", "b")), make.table("b", renamed_from="a")]
    assert items(plan_migration(then, make.release(*third))) == {"c": held["a"], "b": held["b"]}
    assert items(plan_migration(baseline, make.release(*third))) == {"c": held["a"], "b": held["b"]}
    moved = [
        replace(
            make.table(name), schema="z",
            renamed_from=(f"z.{other}", f"s.{other}", f"s.{name}"),
        )
        for name, other in ("ab", "ba")
    ]
    assert items(plan_migration(then, make.release(*moved))) == held
    at_once = items(plan_migration(baseline, make.release(*moved)))
    assert at_once == held


def test_installation_in_which_a_swap_was_ignored(make: Any) -> None:
    """Earlier versions took a swap for no change and noted that it is done: it stays undone."""
    old = [make.table("a"), make.table("b")]
    swapped = [make.table("a", renamed_from="b"), make.table("b", renamed_from="a")]
    baseline = make.baseline(*old)
    noted = replace(baseline, objects={
        identity: replace(held, applied=tuple(decision_hashes(one).values()))
        for one in swapped for identity, held in baseline.objects.items()
        if identity == one.identity
    })
    assert plan_migration(noted, make.release(*swapped)).plan.is_empty
    without = replace(baseline, objects={  # its definitions say so as well
        one.identity: replace(baseline.objects[one.identity], definition=one) for one in swapped
    })
    migration = plan_migration(without, make.release(*swapped))
    assert (migration.plan.changes, migration.plan.blocked) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "name", "reason"),
    [
        ("table a", "table a; table b FROM a", "s.b",
         "the release still has s.a, under its own name"),
        ("table a; table b", "table b FROM a", "s.b", "s.b is in force itself, beside s.a"),
        ("table a; table b", "table a FROM b; table b", "s.a",
         "the release still has s.b, under its own name"),
        ("view a", "table b FROM a", "s.b", "s.a is a view in force"),
        ("function a", "table b FROM a", "s.b", "function:s.a is a function in force"),
        ("table a; table x", "table b FROM a y; table c FROM a z", "s.c", "s.b continues s.a"),
    ],
)
def test_rename_that_cannot_be(old: str, new: str, name: str, reason: str, make: Any) -> None:
    """An earlier name that is in force and not given is a blocked entry, never silent."""
    def parsed(text: str) -> list[ObjectDefinition]:
        found = []
        for each in text.split("; "):
            kind, called, *earlier = each.replace("FROM ", "").split(" ")
            found.append(ObjectDefinition(
                "s", kind, called, () if kind == "function" else (Column("a", "INT"),),
                sql="SELECT 1" if kind == "view" else None,
                body="1" if kind == "function" else None,
                renamed_from=tuple(earlier) or None, depends_on=(),
            ))
        return found

    plan = plan_migration(make.baseline(*parsed(old)), make.release(*parsed(new))).plan
    entry, = (each for each in plan.blocked if each.code == "CM0312")
    assert (entry.name, entry.reason.partition(" cannot be: ")[2]) == (name, reason)
    assert entry.reason.startswith("RENAMED FROM s.")
    assert not plan.applyable


@pytest.mark.parametrize(
    "history",
    [
        [["a"], ["b<a"], ["b<a", "a"]],
        [["a", "b"], ["a<b", "b<a"], ["c<a,b", "b<a"], ["c<a,b", "b<a", "a"]],
        [["a", "b"], ["b<a", "c<b"], ["c<b", "d<b,a"]],
        [["a"], ["b<a"], ["c<b,a"]],
        [["a", "b", "c"], ["a<c", "b<a", "c<b"], ["a<c", "b<a", "c<b", "d"]],
    ],
)
def test_cumulative_releases(history: Sequence[Sequence[str]], make: Any) -> None:
    """What was applied asks for nothing later, whatever takes an earlier name again."""
    def release(objects: Sequence[str]) -> Any:
        found = []
        for each in objects:
            name, _, earlier = each.partition("<")
            names = tuple(earlier.split(",")) if earlier else None
            found.append(make.table(name, renamed_from=names))
        return make.release(*found)

    baseline = Baseline.empty()
    for objects in history:
        migration = plan_migration(baseline, release(objects))
        assert migration.plan.blocked == ()
        baseline = make.after(baseline, migration)
        assert plan_migration(baseline, release(objects)).plan.is_empty


NAMES = [f"o{number}" for number in range(6)]


@st.composite
def histories(draw: st.DrawFn) -> list[dict[int, str]]:
    """Two releases of the same objects: what each number is called in it."""
    first = dict(enumerate(NAMES))
    second = dict(enumerate(draw(st.permutations([*NAMES, "n1", "n2"]))[: len(NAMES)]))
    return [first, second]


def drawn(
    draw: Any, make: Any, called: Mapping[int, str], earlier: Mapping[int, Sequence[str]]
) -> list[ObjectDefinition]:
    """A release of tables and views over the numbers below them, under these names."""
    found = []
    for number, name in called.items():
        names = tuple(earlier.get(number, ())) or None
        parents = sorted(other for other in called if other < number and draw[number, other])
        if number < 2 or not parents:
            found.append(make.table(name, f"k INT, c{number} INT", renamed_from=names))
            continue
        uses = [f"s.{called[other]}" for other in parents]
        found.append(make.view(name, uses, f"c{number} INT", renamed_from=names))
    return found


@many
@given(histories(), st.data())
def test_rows_follow_ids_through_permuted_names(
    make: Any, history: list[dict[int, str]], data: st.DataObject
) -> None:
    """I1 to I4 for any permutation of names over any graph; an item keeps its number's columns."""
    edges = {
        (number, other): data.draw(st.booleans()) for number in range(6) for other in range(number)
    }
    first, second = history
    earlier = {
        number: [first[number]] for number in first if first[number] != second[number]
    }
    baseline = make.baseline(*drawn(edges, make, first, {}))
    new = drawn(edges, make, second, earlier)
    migration = plan_migration(baseline, make.release(*new))
    plan = migration.plan
    assert plan.blocked == ()
    if not earlier:
        assert plan.is_empty
        return
    held = {identity[2]: one.item_id for identity, one in baseline.objects.items()}
    assert items(migration) == {second[number]: held[first[number]] for number in first}

    again = data.draw(st.permutations(new))
    assert encode_plan(plan_migration(baseline, make.release(*again)).plan) == encode_plan(plan)

    located = {str(one.definition.key): one.item_id for one in baseline.objects.values()}
    for step in plan.steps:
        if step.op == "drop":
            del located[step.name]
        elif step.op == "create":
            # a table has one name at a time; a view has no rows to be confused
            assert step.kind != "table" or step.id not in located.values()
            assert step.name not in located
            located[step.name] = step.id
    assert located == {f"s.{second[number]}": held[first[number]] for number in first}

    then = make.after(baseline, migration)
    assert plan_migration(then, make.release(*new)).plan.is_empty
    third = {number: f"z{number}" if number == 0 else name for number, name in second.items()}
    last = drawn(edges, make, third, {**earlier, 0: [second[0], first[0]]})
    skipped, direct = (
        plan_migration(start, make.release(*last)) for start in (then, baseline)
    )
    assert skipped.plan.blocked == direct.plan.blocked == ()
    assert items(skipped) == items(direct)


def test_long_chain(make: Any) -> None:
    """Two thousand tables pass their names on; no recursion is that deep."""
    old = [make.table(f"t{number}") for number in range(2000)]
    new = [
        make.table(f"t{number + 1}", renamed_from=f"t{number}") for number in range(2000)
    ]
    baseline = make.baseline(*old)
    held = {identity[2]: one.item_id for identity, one in baseline.objects.items()}
    found = items(plan_migration(baseline, make.release(*new)))
    assert found == {f"t{number + 1}": held[f"t{number}"] for number in range(2000)}
