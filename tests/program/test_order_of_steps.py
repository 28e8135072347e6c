"""The order of drops, creates and redefines, against one that is found by trying."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_migrate.errors import DependencyCycle
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.operations.order import order_creates, order_steps, order_waves


def _graph(uses: dict[int, set[int]]) -> DependencyGraph:
    keys = {name: ItemKey("s", "view", f"o{name}") for name in uses}
    return DependencyGraph(
        {keys[name].identity: [keys[used].identity for used in uses[name]] for name in uses},
        {key.identity: key for key in keys.values()},
    )


@st.composite
def graphs(draw: st.DrawFn) -> DependencyGraph:
    """Up to seven views, each of which reads some of those that were drawn before it."""
    names = draw(st.permutations(range(7)))[: draw(st.integers(0, 7))]
    return _graph({
        name: draw(st.sets(st.sampled_from(names[:place]), max_size=3)) if place else set()
        for place, name in enumerate(names)
    })


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """OLD and NEW, and what becomes of each of their names."""
    old, new = draw(graphs()), draw(graphs())
    found: dict[str, Any] = {"drops": {*old} - {*new}, "creates": {*new} - {*old}}
    found["redefines"] = set()
    for name in sorted({*old} & {*new}):
        act = draw(st.sampled_from(["stay", "stay", "both", "redefine", "redefine"]))
        if act == "both":
            found["drops"].add(name)
            found["creates"].add(name)
        elif act == "redefine":
            found["redefines"].add(name)
    return {"old": old, "new": new, **found}


def list_precedence(
    old: DependencyGraph, new: DependencyGraph, acts: dict[Identity, set[str]]
) -> set[tuple[tuple[str, Identity], tuple[str, Identity]]]:
    """Every pair of steps of which the first comes before the second, by the rules alone."""
    steps = {(act, name) for name, each in acts.items() for act in each}
    below_old = {name: old.dependencies([name]) for name in old}
    below_new = {name: new.dependencies([name]) for name in new}
    pairs = set()
    for first, second in itertools.permutations(steps, 2):
        match first[0], second[0]:
            case "drop", "drop":
                before = second[1] in below_old[first[1]]
            case "drop", "create":
                before = first[1] == second[1]
            case "redefine", "drop":
                before = second[1] in old.uses(first[1]) and second[1] not in new.uses(first[1])
            case ("create" | "redefine"), "redefine":
                before = first[1] in new.uses(second[1]) or (
                    first[0] == "create" and first[1] in below_new[second[1]]
                )
            case "create", "create":
                before = first[1] in below_new[second[1]]
            case _:
                before = False
        if before:
            pairs.add((first, second))
    return pairs


def sort_by_hand(
    steps: set[tuple[str, Identity]],
    pairs: set[tuple[tuple[str, Identity], tuple[str, Identity]]],
) -> list[set[tuple[str, Identity]]]:
    """The waves: again and again all steps for which nothing is left to wait for."""
    waves, left = [], set(steps)
    while left:
        wave = {step for step in left if not any(b == step and a in left for a, b in pairs)}
        assert wave, "a circle"
        waves.append(wave)
        left -= wave
    return waves


@settings(max_examples=300, deadline=None)
@given(changes())
def test_waves_are_those_that_the_rules_alone_lead_to(change: dict[str, Any]) -> None:
    """As found by trying: no step waits for less, or for more, than the rules of the order say."""
    waves = order_waves(**change)
    acts: dict[Identity, set[str]] = {}
    for act, name in itertools.chain(*waves):
        acts.setdefault(name, set()).add(act)
    steps = {(act, name) for name, each in acts.items() for act in each}
    expected = sort_by_hand(steps, list_precedence(change["old"], change["new"], acts))
    assert [set(wave) for wave in waves] == expected
    asked = {
        *(("drop", name) for name in change["drops"]),
        *(("create", name) for name in change["creates"]),
        *(("redefine", name) for name in change["redefines"]),
    }
    recreated = {name for act, name in steps - asked}
    assert recreated >= {name for _, name in asked - steps}
    assert steps - asked == {(act, name) for act in ("drop", "create") for name in recreated}
    old, new = change["old"], change["new"]
    for name in recreated - {*change["redefines"]}:  # because it reads one, before and after
        assert recreated & {*old.uses(name)} & {*new.uses(name)}


@settings(max_examples=300, deadline=None)
@given(changes())
def test_drops_and_creates_are_ordered_as_the_waves_are(change: dict[str, Any]) -> None:
    """Both orders have the same steps; what is dropped and created instead of redefined is told."""
    order = order_steps(**change)
    waves = order_waves(**change)
    place = {step: number for number, wave in enumerate(waves) for step in wave}
    assert {("drop", name) for name in order.drops} == {each for each in place if each[0] == "drop"}
    assert {("create", name) for name in order.creates} == {
        each for each in place if each[0] == "create"
    }
    assert order.recreated == {*order.creates} - {*change["creates"]}
    pairs = list_precedence(change["old"], change["new"], {
        name: {act for act, each in place if each == name} for _, name in place
    })
    for names, act in ((order.drops, "drop"), (order.creates, "create")):
        assert not [pair for pair in itertools.combinations(names, 2) if (
            (act, pair[1]), (act, pair[0])
        ) in pairs]


@settings(max_examples=200, deadline=None)
@given(graphs(), st.data())
def test_a_sessions_names_come_in_the_order_of_the_graph(
    graph: DependencyGraph, data: st.DataObject
) -> None:
    """Without the graph library the waves are the same."""
    creates = data.draw(st.sets(st.sampled_from(sorted(graph)))) if len(graph) else set()
    uses = {name: graph.uses(name) for name in graph}
    keys = {name: graph.key(name) for name in graph}
    assert order_creates(uses, keys, creates) == order_waves(
        DependencyGraph(), graph, drops=(), creates=creates, redefines=()
    )


def test_a_circle_among_a_sessions_names_is_named() -> None:
    """The error is that of the graph, with the path."""
    keys = {("relation", "s", name): ItemKey("s", "view", name) for name in "ab"}
    first, second = keys
    with pytest.raises(DependencyCycle, match=r"circle: s\.a -> s\.b -> s\.a"):
        order_creates({first: [second], second: [first]}, keys, keys)


def test_only_what_is_on_a_circle_is_dropped_and_created() -> None:
    """``o3`` is redefined before ``o1`` goes, and behind ``o2``, which waits until that is back;
    ``o0`` has nothing to do with it."""
    name = {number: ("relation", "s", f"o{number}") for number in range(4)}
    order = order_steps(
        _graph({0: set(), 1: set(), 3: {1}}), _graph({0: set(), 1: set(), 2: {1}, 3: {2}}),
        drops={name[1]}, creates={name[1], name[2]}, redefines={name[0], name[3]},
    )
    assert order.drops == (name[3], name[1])
    assert order.creates == (name[1], name[2], name[3])
    assert order.recreated == {name[3]}
