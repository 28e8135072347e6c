"""Tests of what changes the product a little: which mutants there are, and what is made of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench import mutants
from bench.equivalent_mutants import EQUIVALENT
from bench.mutants import Mutant, mutations, page, tree_of

FILE = "catalog_migrate/planner/x.py"


def changed(source: str) -> dict[str, str]:
    """Each mutant of a module, and what the module is with it."""
    return {
        str(mutant): ast.unparse(tree_of(mutant, source))
        for mutant, _ in mutations(FILE, ast.parse(source))
    }


@pytest.mark.parametrize(("source", "kind", "found"), [
    ("x = a < b", "comparison", "x = a <= b"),
    ("x = a is None", "comparison", "x = a is not None"),
    ("x = a and b", "and/or", "x = a or b"),
    ("x = not a", "not", "x = a"),
    ("x = b if a else c", "condition", "x = b if not a else c"),
    ("x = a + b", "+/-", "x = a - b"),
    ("x = 3", "constant", "x = 4"),
    ("x = True", "constant", "x = False"),
    ("f(a, b, c)", "arguments", "f(b, a, c)"),
    ("f(a)", "no statement", "pass"),
    ("a.b = 'c'", "no statement", "pass"),
])
def test_what_is_changed(source: str, kind: str, found: str) -> None:
    """One thing at a time, of each kind."""
    assert [
        text for mutant, text in changed(source).items() if mutant.startswith(f"{kind}: ")
    ] == [found]


def test_only_an_early_return_is_taken_away() -> None:
    """The last statement of a function says what it is for; without it every test fails."""
    source = "def f(a):\n    if a:\n        return 'b'\n    return 'c'"
    assert [text for mutant, text in changed(source).items() if mutant.startswith("no return")] == [
        "def f(a):\n    if a:\n        pass\n    return 'c'"
    ]


@pytest.mark.parametrize("source", [
    "def f(a: 'b' = c) -> Literal[3]:\n    'A text.'\n    return a",
    "if TYPE_CHECKING:\n    from a import b",
    "x = 'a' + b",
])
def test_what_is_left_alone(source: str) -> None:
    """Texts, types, and what is there for types."""
    assert changed(source) == {}


def test_a_mutant_is_known_by_its_place() -> None:
    """Not by its line: it is drawn again when lines before it come or go."""
    source = "class A:\n    def f(self):\n        return 1, 1"
    first, second = (mutant for mutant, _ in mutations(FILE, ast.parse(source)))
    assert first.key == "planner/x.py:A.f: constant: 1 -> 2"
    assert second.key == "planner/x.py:A.f: constant: 1 -> 2 #2"
    moved = [mutant for mutant, _ in mutations(FILE, ast.parse(f"import b\n\n{source}"))]
    assert [each.rank for each in moved] == [first.rank, second.rank]
    assert [each.line for each in moved] == [5, 5]


def test_the_page_tells_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module's share, the equivalent ones apart; each survivor with its place."""
    one, two, three = (
        Mutant(FILE, line, "f", "constant", "1", "2", line) for line in (1, 2, 3)
    )
    monkeypatch.setattr(mutants, "EQUIVALENT", {two.key: "It is so."})
    results = {one.key: {"killed": "a test"}, two.key: {"killed": ""}, three.key: {"killed": ""}}
    lines = page(results, (one, two, three)).splitlines()
    assert "| planner | 3 | 1 | 1 | 1 | 50.0 % |" in lines
    assert "| operations | 0 | 0 | 0 | 0 | - |" in lines
    assert lines[-2:] == [
        "| `planner/x.py:2` f | `constant: 1 -> 2` | It is so. |",
        "| `planner/x.py:3` f | `constant: 1 -> 2` |  |",
    ]


def test_equivalent_mutants_are_in_the_product() -> None:
    """Each of them is a mutant that there is, with a reason."""
    root = Path(mutants.__file__).parents[1]
    assert set(EQUIVALENT) <= {mutant.key for mutant in mutants.all_mutants(root)}
    assert all(reason.endswith(".") for reason in EQUIVALENT.values())
