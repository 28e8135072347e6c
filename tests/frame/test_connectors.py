"""What is special to a connector stands in its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_migrate.model.connector_names import OURS

PACKAGE = Path(__file__).parents[2] / "catalog_migrate"

NAMED = {
    "model/connector_names.py": len(OURS),  # the table itself
    "sql/statements.py": 1,  # SSH TUNNEL, an option of connections
    "streams/catalog/statement_changes.py": 1,  # the same
}
"""How often a module outside of `connectors` says the name of a connector."""

LIBRARIES = {"confluent_kafka", "psycopg", "asyncssh", "grpc_tools", "google"}


def elsewhere() -> Iterator[tuple[str, ast.Module]]:
    """The modules outside of `connectors`, by path."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("connectors/"):
            yield name, ast.parse(path.read_text("utf-8"))


def named_in(tree: ast.AST) -> int:
    """How often a constant is the name of a connector of ours."""
    return sum(isinstance(node, ast.Constant) and node.value in OURS for node in ast.walk(tree))


def imported_in(tree: ast.AST) -> set[str]:
    """The client libraries that a module imports, at its top or within."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found & LIBRARIES


@pytest.mark.parametrize(
    ("source", "expected"),
    [("a == 'KAFKA'", 1), ("{('source', 'FILES'): 1}", 1), ("'INTO KAFKA'", 0), ("KAFKA", 0)],
)
def test_what_counts(source: str, expected: int) -> None:
    """A name by itself, wherever it stands; not a sentence with it."""
    assert named_in(ast.parse(source)) == expected


def test_no_name_is_compared_elsewhere() -> None:
    """Whoever wants to know something of a connector asks its object."""
    found = {name: count for name, tree in elsewhere() if (count := named_in(tree))}
    assert found == NAMED


def test_client_libraries_are_imported_in_the_folders() -> None:
    """A connector that is not used needs no library."""
    assert {name: found for name, tree in elsewhere() if (found := imported_in(tree))} == {}
