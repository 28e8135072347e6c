"""Edges between objects are walked in one place only; what must start at once does without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.testing.engine import SimulatedEngine
from tests.cli.test_main import bring_in_force, manifest
from tests.reconciler.test_order import Place

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


def _run_without_networkx(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; sys.modules['networkx'] = None\n"
        "from catalog_migrate.cli.main import main; main(sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=PACKAGE.parent, capture_output=True,
        text=True, check=False,
    )


def test_looking_at_a_catalog_asks_for_no_graph(tmp_path: Path) -> None:
    """`--version`, `status`, `show` and a plan without a change run where networkx is missing."""
    release = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    bring_in_force(tmp_path, release)
    again = manifest(tmp_path / "again.json", "again", [("a", "INT")])
    at = ("--catalog", str(tmp_path / "c"))
    for arguments in (
        ("--version",), ("status", *at), ("show", "s.t", *at), ("plan", "--release", again, *at),
    ):
        done = _run_without_networkx(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    assert "networkx" in _run_without_networkx("graph", *at).stderr


def test_a_start_that_changes_nothing_asks_for_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the names are there already, nor in a session that only gets its names."""
    place = Place()
    text = "CREATE TABLE t (a INT); CREATE VIEW v (a INT) AS SELECT a FROM s.t;"
    place.start(text, "1")

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a graph was made")

    monkeypatch.setattr(DependencyGraph, "__init__", refuse)
    assert place.start(text, "1").names == 0
    place.recorder.engine = SimulatedEngine(place.recorder.world, persistent=False)
    assert place.start(text, "1").names == 2
    with pytest.raises(AssertionError, match="a graph was made"):
        place.start(text + "CREATE VIEW w (a INT) AS SELECT a FROM s.v;", "2")
