"""The one path from a release to the changed world is made of small functions and small values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "catalog_migrate"
STAGES = tuple(
    PACKAGE / "migrations" / f"{name}.py"
    for name in ("options", "plan", "rollback", "safe_commits", "start")
)
PATH = (
    *STAGES,
    PACKAGE / "hook.py",
    PACKAGE / "migrations" / "commit.py",
    PACKAGE / "migrations" / "execution_context.py",
    *(PACKAGE / "api" / f"{name}.py" for name in ("catalog", "configured", "releases", "starts")),
    PACKAGE / "cli" / "releases.py",
)
PUBLIC = {"BootstrapOptions", "BootstrapReport"}
"""What users may say as one value, and what they are told."""


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _attributes(node: ast.ClassDef) -> set[str]:
    """Declared in the class, named in its slots, or set on ``self`` anywhere in it."""
    declared = {
        each.target.id for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return declared | {
        each.attr for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name) and each.value.id == "self"
    }


@pytest.mark.parametrize("path", PATH, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_object_has_more_than_ten_attributes(path: Path) -> None:
    """Public values apart, which people read."""
    classes = [node for node in _nodes(path) if isinstance(node, ast.ClassDef)]
    found = {node.name: _attributes(node) for node in classes if node.name not in PUBLIC}
    assert {name: names for name, names in found.items() if len(names) > 10} == {}


@pytest.mark.parametrize("path", PATH, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_function_has_more_than_seven_parameters(path: Path) -> None:
    """Options travel as one value, at the public signatures as its keywords."""
    found = {}
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found[node.name] = [each.arg for each in arguments if each.arg not in ("self", "cls")]
    assert {name: names for name, names in found.items() if len(names) > 7} == {}


def test_no_stage_calls_itself() -> None:
    """A start that finds the catalog moved on is begun again by a loop."""
    found = [
        node.name for path in STAGES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            and each.func.id == node.name
            for each in ast.walk(node)
        )
    ]
    assert found == []
