"""The picture of a large catalog, against a plain sort into generations of the same graph."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import networkx

from bench.measure import Cost, Measure, paired
from catalog_migrate.report.layering import arrange
from catalog_migrate.report.report import Edge, Node, Picture
from catalog_migrate.report.svg import draw_picture

OBJECTS, USES, SCHEMAS = 10_000, 15_000, 40
ROUNDS = 9


def measures() -> Iterator[Measure]:
    """Layers and their order alone, then a whole picture of which 200 objects change."""
    drawn = random.Random(40)
    edges = sorted({
        (min(pair), max(pair))
        for pair in (drawn.sample(range(OBJECTS), 2) for _ in range(USES))
    })
    picture = Picture(
        tuple(
            Node(f"s{place % SCHEMAS}.t{place}", "view", f"s{place % SCHEMAS}",
                 "migrate" if place % 50 == 0 else "unchanged")
            for place in range(OBJECTS)
        ),
        tuple(Edge(used, user) for used, user in edges),
    )
    size = f"{OBJECTS:,} objects, {len(edges):,} uses"
    yield _measure(
        f"layers and order within them, {size}", lambda: arrange(OBJECTS, edges), edges, most=5
    )
    yield _measure(
        f"picture as SVG, {size}", lambda: draw_picture(picture), edges, most=5
    )


def _measure(
    name: str, act: Callable[[], object], edges: list[tuple[int, int]], *, most: int
) -> Measure:
    def sort() -> None:
        graph = networkx.DiGraph(edges)
        graph.add_nodes_from(range(OBJECTS))
        for _ in networkx.topological_generations(graph):
            pass

    ours, baseline = paired(lambda: _time(act), lambda: _time(sort), rounds=ROUNDS)
    return Measure(
        name, ours, "networkx: topological_generations", baseline, f"at most {most}× in CPU time",
        ours.cpu <= most * baseline.cpu,
    )


def _time(act: Callable[[], object]) -> Cost:
    before, began = time.process_time(), time.perf_counter()
    act()
    return Cost(time.perf_counter() - began, time.process_time() - before)
