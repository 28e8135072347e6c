"""Edges between objects are walked in one module only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "catalog_migrate"
THE_GRAPH = PACKAGE / "model" / "graph.py"
EDGES = frozenset({
    "uses", "used_by", "links", "depends_on", "users_of", "dependents", "dependencies",
})  # fmt: skip
"""Attributes and functions that lead from an object to those beside it in the graph."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def walks(source: str) -> Iterator[str]:
    """Functions that go along edges themselves: in a ``while`` loop, or by calling themselves.

    A loop over the uses of one object is no walk. What a ``while`` loop asks for in a function
    counts wherever in the function the edges were collected.
    """
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, Function) or not _names(function) & EDGES:
            continue
        loops = any(isinstance(node, ast.While) for node in ast.walk(function))
        if loops or function.name in _called(function):
            yield function.name


def _names(tree: ast.AST) -> set[str]:
    """Attributes that are read, and functions that are called by their bare names."""
    return _called(tree) | {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }


def _called(tree: ast.AST) -> set[str]:
    return {
        node.func.id for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_no_other_module_walks_over_edges() -> None:
    """Order, fan-out and paths come from DependencyGraph, so that all of them agree."""
    found = [
        f"{path.relative_to(PACKAGE)}: {name}" for path in sorted(PACKAGE.rglob("*.py"))
        if path != THE_GRAPH for name in walks(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(state, root):\n"
        "    pending = [root]\n"
        "    while pending:\n"
        "        pending += state.items[pending.pop()].uses\n",
        "def f(state, root):\n"
        "    users = {item.links['reads']: key for key, item in state.items.items()}\n"
        "    while root in users:\n"
        "        root = users[root]\n",
        "def f(state, item, seen):\n"
        "    for user in users_of(state, item):\n"
        "        f(state, user, seen)\n",
        "def f(state):\n"
        "    again = True\n"
        "    while again:\n"
        "        again = any(item.uses for item in state.items.values())\n",
    ],
)  # fmt: skip
def test_a_walk_is_recognised(source: str) -> None:
    """By a work list, along a chain, by recursion, and until nothing changes any more."""
    assert list(walks(source)) == ["f"]


@pytest.mark.parametrize(
    "source",
    [
        "def f(item):\n    return [use for use in item.uses if use]\n",
        "def f(lines):\n    while lines:\n        lines.pop()\n",
        "def f(graph, root):\n    return graph.dependents([root])\n",
    ],
)
def test_a_look_at_the_neighbours_is_no_walk(source: str) -> None:
    """Nor is a loop over something else, or a question to the graph."""
    assert list(walks(source)) == []
