"""Layers and the order within them, from numbers alone."""

from __future__ import annotations

import networkx
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.report.layering import arrange, generations, without_circles

EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def test_a_user_is_one_layer_behind_the_last_of_what_it_uses() -> None:
    """0 -> 1 -> 2 -> 4, 0 -> 3 -> 4: 4 waits for 2, and 3 is as early as 0 allows."""
    assert arrange(5, [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)]) == [[0], [1, 3], [2], [4]]


def test_neighbours_in_a_layer_are_those_of_neighbours() -> None:
    """Two fans whose positions alternate are drawn without a crossing: 0 has 2 and 4, 1 has 3."""
    assert arrange(6, [(0, 2), (1, 3), (0, 4), (1, 5)]) == [[0, 1], [2, 4, 3, 5]]


def test_an_old_edge_on_a_circle_counts_for_nothing() -> None:
    """A swap: 0 used 1 before and is used by it now; what is after both keeps its old edge."""
    assert without_circles(3, [(0, 1)], [(1, 0), (1, 2)]) == [(0, 1), (1, 2)]
    assert arrange(3, [(0, 1)], [(1, 0), (1, 2)]) == [[0], [1], [2]]


def test_a_circle_of_schemas_is_cut_where_it_leads_back() -> None:
    """Groups may use each other; the one that comes first by its position stays first."""
    assert arrange(3, [(0, 1), (1, 0), (1, 2), (2, 2)]) == [[0], [1], [2]]


def test_nothing_has_no_layers() -> None:
    """No box, no layer; boxes without an edge are one."""
    assert arrange(0, []) == []
    assert arrange(3, []) == [[0, 1, 2]]


@given(firm=EDGES, soft=EDGES)
def test_every_position_has_one_place_and_every_kept_edge_leads_on(
    firm: list[tuple[int, int]], soft: list[tuple[int, int]]
) -> None:
    """Whatever the circles: all positions are there once, and edges that count go to the right."""
    layers = arrange(12, firm, soft)
    assert sorted(node for layer in layers for node in layer) == list(range(12))
    number = {node: place for place, layer in enumerate(layers) for node in layer}
    for used, user in without_circles(12, firm, soft):
        assert number[used] < number[user]


@given(edges=EDGES, soft=EDGES)
def test_layers_are_the_generations_of_what_is_new(
    edges: list[tuple[int, int]], soft: list[tuple[int, int]]
) -> None:
    """Without a circle all edges of NEW count, and the layers are those that networkx finds."""
    ordered = [edge for edge in edges if edge[0] < edge[1]]
    kept = without_circles(12, ordered, soft)
    assert kept[: len(ordered)] == ordered
    graph = networkx.DiGraph(kept)
    graph.add_nodes_from(range(12))
    expected = [sorted(layer) for layer in networkx.topological_generations(graph)]
    assert generations(12, kept) == expected
    assert [sorted(layer) for layer in arrange(12, ordered, soft)] == expected
