from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.model.walks import chain, find_cycle, group_in_waves, measure_depths


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"))), st.data())
def test_a_circle_is_found_where_one_is_reached(
    drawn: dict[str, list[str]], data: st.DataObject
) -> None:
    """Its first node is its least and its last; each uses the next; a root leads to it."""
    uses = {name: drawn.get(name, []) for name in "abcdef"}
    roots = data.draw(st.lists(st.sampled_from("abcdef"), unique=True))

    def reach(starts: list[str]) -> set[str]:
        found: set[str] = set()
        while new := {used for each in {*starts, *found} for used in uses[each]} - found:
            found |= new
        return found

    circle = find_cycle(roots, uses.__getitem__, uses)
    reached = {*roots} | reach(roots)
    assert bool(circle) == any(node in reach([node]) for node in reached)
    if circle:
        assert {*circle} <= reached
        assert circle[0] == circle[-1] == min(circle)
        assert len({*circle}) == len(circle) - 1
        assert all(after in uses[node] for node, after in pairwise(circle))


def test_uses_of_what_is_not_known_are_left_out() -> None:
    """What does not exist is nobody's circle, and is asked for nothing."""
    assert find_cycle(["a"], {"a": ["x", "a"]}.__getitem__, ["a"]) == ["a", "a"]
    assert find_cycle(["a"], {"a": ["x"]}.__getitem__, ["a"]) == []


def test_a_node_waits_for_those_chosen_and_for_its_floor() -> None:
    """What is not chosen passes on how long is waited for what it uses."""
    uses = {"a": "", "b": "a", "c": "b", "d": "", "e": "d"}
    depths = measure_depths("abcde", uses, "ace", {"d": 3})
    assert depths == {"a": 0, "b": 1, "c": 1, "d": 3, "e": 3}
    assert group_in_waves(depths, "ace") == [["a"], ["c"], ["e"]]


def test_a_chain_ends_before_it_repeats() -> None:
    """A loop is followed once."""
    assert chain("a", {"a": "b", "b": "c", "c": "b"}.get) == ["a", "b", "c"]
    assert chain("a", {"a": None}.get) == ["a"]
