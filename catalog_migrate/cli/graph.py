"""``graph``: what depends on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.releases import release_graph
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit
from catalog_migrate.model.names import InvalidName, parse_reference

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph

Node = tuple[str, tuple[str, ...]]
"""A name and the names that it uses."""


@click.command("graph")
@click.argument("name", required=False)
@options.catalog
@options.release
@click.option("--system", is_flag=True, help="Our own built-ins (schema catalog_migrate) too.")
@options.format_("text", "dot", "mermaid", "json")
@options.out
def command(name: str | None, system: bool, format_: str, out: str | None) -> None:
    """Print what depends on what: of the release given, else of the catalog.

    With NAME only that object, everything it needs and everything that needs it.

    \b
    Example:
      catalog-migrate graph --catalog catalog --format mermaid
      catalog-migrate graph shop.orders --release release
    """
    settings = options.settings()
    graph = (
        open_catalog(settings).graph(system=system) if options.given("release.path") is None
        else release_graph(settings)
    )
    emit(_FORMS[format_](nodes(graph, name)), out)


def nodes(graph: DependencyGraph, name: str | None) -> list[Node]:
    """All objects sorted by name with what they use; with ``name`` those connected with it."""
    kept = set(graph)
    if name is not None:
        root = parse_reference(name)
        if root not in graph:
            raise InvalidName(f"nothing is called {name}", remedy="see `catalog-migrate graph`")
        kept = {root} | graph.dependencies([root]) | graph.dependents([root])
    return sorted(
        (
            str(graph.key(each)),
            tuple(sorted(str(graph.key(use)) for use in graph.uses(each) if use in kept)),
        )
        for each in kept
    )


def as_text(found: list[Node]) -> str:
    """``name <- used, used`` a line."""
    return "".join(f"{name}{' <- ' + ', '.join(uses) if uses else ''}\n" for name, uses in found)


def as_dot(found: list[Node]) -> str:
    """Graphviz: an arrow points from what is used to what uses it."""
    lines = ["digraph catalog {", "  rankdir=LR;"]
    lines += [f"  {_dot(name)};" for name, _ in found]
    lines += [f"  {_dot(use)} -> {_dot(name)};" for name, uses in found for use in uses]
    return "\n".join([*lines, "}"]) + "\n"


def as_mermaid(found: list[Node]) -> str:
    """A mermaid flowchart, as GitHub draws it."""
    number = {name: f"n{place}" for place, (name, _) in enumerate(found)}
    lines = ["flowchart LR"]
    lines += [
        f'  {number[name]}["{name.replace(chr(34), "#quot;")}"]' for name, _ in found
    ]
    lines += [f"  {number[use]} --> {number[name]}" for name, uses in found for use in uses]
    return "\n".join(lines) + "\n"


def _as_json(found: list[Node]) -> str:
    return as_json({"objects": [{"name": name, "uses": uses} for name, uses in found]})


def _dot(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


_FORMS = {"text": as_text, "dot": as_dot, "mermaid": as_mermaid, "json": _as_json}
