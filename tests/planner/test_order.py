"""Invariants of the orders over random pairs of releases."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.planfile import encode_plan
from catalog_migrate.planner.planning import plan_migration

NAMES = [f"o{number}" for number in range(7)]
EVERYTHING = [f"s.{name}" for name in NAMES]
SHAPES = ["a INT", "a INT, b INT"]
many = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def objects(draw: st.DrawFn) -> list[ObjectDefinition]:
    """A random release: which names there are, of which kind and shape, who reads whom."""
    order = draw(st.permutations(NAMES))
    found: list[ObjectDefinition] = []
    for place, name in enumerate(order):
        if not draw(st.integers(0, 5)):
            continue
        columns = tuple(
            Column(*text.split(" "))
            for text in draw(st.sampled_from([SHAPES[0]] * 4 + SHAPES)).split(", ")
        )
        if draw(st.integers(0, 4)) == 0:
            found.append(ObjectDefinition("s", "table", name, columns))
            continue
        there = [one.name for one in found][:place]
        parents = draw(st.sets(st.sampled_from(there), max_size=3)) if there else set()
        text = f"{sorted(parents)} {draw(st.booleans())}"
        found.append(
            ObjectDefinition(
                "s", "view", name, columns, depends_on=tuple(sorted(f"s.{p}" for p in parents)),
                sql=text, text_hash=text, definition_hash=text,
            )
        )
    return found


def replay(baseline: Baseline, migration: Migration) -> None:
    """Walk the steps and assert that nothing ever misses what it reads."""
    plan = migration.plan
    old_uses = {
        str(held.definition.key): {f"s.{use[2]}" for use in held.uses}
        for held in baseline.objects.values()
    }
    new_uses = {
        str(target.definition.key): {f"s.{use[2]}" for use in target.uses}
        for target in migration.targets
    }
    standing = dict.fromkeys(old_uses, "old")
    touched = {step.name for step in plan.steps if step.op != "update"}
    for step in plan.steps:
        if step.op == "evolve":
            standing[step.name] = "new"
        elif step.op == "drop":
            assert standing.pop(step.name) == "old"
            assert not [
                name for name, form in standing.items()
                if form == "old" and step.name in old_uses[name]
            ]
        elif step.op == "create":
            assert step.name not in standing
            assert new_uses[step.name] <= standing.keys()
            standing[step.name] = "new"
        elif step.op == "redefine":
            assert standing[step.name] == "old"
            for used in new_uses[step.name]:
                assert standing[used] == "new" or used not in touched
            standing[step.name] = "new"
    assert standing.keys() == new_uses.keys()


def assert_order(names: tuple[str, ...], uses: dict[str, set[str]]) -> None:
    """``names`` is an order in which what is used, directly or not, comes first."""
    below: dict[str, set[str]] = {}

    def all_below(name: str) -> set[str]:
        if name not in below:
            below[name] = set(uses[name]).union(*(all_below(used) for used in uses[name]))
        return below[name]

    place = {name: number for number, name in enumerate(names)}
    for name in names:
        assert all(place[used] < place[name] for used in all_below(name) & place.keys())


@many
@given(objects(), objects())
def test_steps_keep_both_orders_and_nothing_misses_what_it_reads(
    make: Any, old: list[ObjectDefinition], new: list[ObjectDefinition]
) -> None:
    """I1: drops reverse OLD's topology, creates follow NEW's, steps keep both."""
    baseline = make.baseline(*old)
    migration = plan_migration(baseline, make.release(*new))
    if migration.plan.is_empty:
        return
    plan = migration.plan
    assert_order(
        plan.drops[::-1],
        {str(o.definition.key): {f"s.{u[2]}" for u in o.uses} for o in baseline.objects.values()},
    )
    assert_order(
        plan.creates,
        {str(t.definition.key): {f"s.{u[2]}" for u in t.uses} for t in migration.targets},
    )
    dropped = [step.name for step in plan.steps if step.op == "drop"]
    created = [step.name for step in plan.steps if step.op == "create"]
    stays = {  # a table whose directory stays keeps its name
        str(target.definition.key) for target in migration.targets
        if target.old == target.identity and target.definition.kind == "table"
        and target.contents in ("keep", "evolve")
    }
    copied = {  # one that is copied under its id is registered anew
        str(target.definition.key) for target in migration.targets
        if target.action == "update" and target.contents == "copy"
    }
    assert sorted(dropped) == sorted(({*plan.drops} - stays) | copied)
    assert sorted(created) == sorted(({*plan.creates} - stays) | copied)
    waves = [step.wave for step in plan.steps]
    assert waves == sorted(waves)
    assert {*waves} == {*range(1, len({*waves}) + 1)}
    replay(baseline, migration)


@many
@given(objects(), objects(), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_definitions(
    make: Any, old: list[ObjectDefinition], new: list[ObjectDefinition], random: Any
) -> None:
    """I2: the same plan, byte for byte, for any permutation."""
    plan = plan_migration(make.baseline(*old), make.release(*new)).plan
    random.shuffle(old)
    random.shuffle(new)
    again = plan_migration(make.baseline(*old), make.release(*new)).plan
    assert encode_plan(plan) == encode_plan(again)


@many
@given(objects(), objects())
def test_planning_the_applied_release_again_is_empty(
    make: Any, old: list[ObjectDefinition], new: list[ObjectDefinition]
) -> None:
    """I3: the second plan has no change and is found by hashes alone."""
    baseline = make.baseline(*old)
    migration = plan_migration(baseline, make.release(*new), approve=EVERYTHING)
    again = plan_migration(make.after(baseline, migration), make.release(*new))
    assert again.plan.is_empty
    assert again.targets == ()


@many
@given(objects(), objects(), objects())
def test_a_detour_differs_in_nothing_but_ids(
    make: Any, a: list[ObjectDefinition], b: list[ObjectDefinition], c: list[ObjectDefinition]
) -> None:
    """I4: A to B to C and A to C end in the same objects; I5: no id comes back with new columns."""
    first = make.baseline(*a)
    second = make.after(first, plan_migration(first, make.release(*b)))
    detour = make.after(second, plan_migration(second, make.release(*c)))
    direct = make.after(first, plan_migration(first, make.release(*c)))

    def end(baseline: Baseline) -> dict[Any, Any]:
        return {
            identity: (held.definition, held.hashes[:2], set(held.uses))
            for identity, held in baseline.objects.items()
        }

    assert end(detour) == end(direct)
    shapes: dict[str, str] = {}
    for state in (first, second, detour):
        for held in state.objects.values():
            assert shapes.setdefault(held.global_id, held.hashes.fingerprint) == (
                held.hashes.fingerprint
            )
        ids = [held.global_id for held in state.objects.values()]
        assert len(ids) == len(set(ids))
