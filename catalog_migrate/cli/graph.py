"""``graph``: what depends on what."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.releases import release_graph
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit
from catalog_migrate.model.names import InvalidName, parse_reference

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.names import Identity


class Node(NamedTuple):
    """An object and what it uses: names, each with what the use is labelled with or ""."""

    name: str
    uses: tuple[tuple[str, str], ...]


@click.command("graph")
@click.argument("name", required=False)
@options.catalog
@options.release
@click.option("--system", is_flag=True, help="Our own built-ins (schema catalog_migrate) too.")
@options.format_("text", "dot", "mermaid", "json")
@options.out
def command(name: str | None, system: bool, format_: str, out: str | None) -> None:
    """Print what depends on what: of the release given, else of the catalog.

    Tables, views, functions and types, and secrets, connections, sources, sinks and clusters.
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
        Node(
            str(graph.key(each)),
            tuple(sorted(
                (str(graph.key(use)), _label(graph, each, use))
                for use in graph.uses(each) if use in kept
            )),
        )
        for each in kept
    )


def _label(graph: DependencyGraph, user: Identity, used: Identity) -> str:
    """The roles of an edge that its two ends do not tell."""
    return ", ".join(role for role in graph.roles(user, used) if role != graph.key(used).kind)


def as_text(found: list[Node]) -> str:
    """``name <- used, used (role)`` a line."""
    lines = []
    for name, uses in found:
        used = ", ".join(f"{use} ({label})" if label else use for use, label in uses)
        lines.append(f"{name} <- {used}\n" if used else f"{name}\n")
    return "".join(lines)


def as_dot(found: list[Node]) -> str:
    """Graphviz: an arrow points from what is used to what uses it."""
    lines = ["digraph catalog {", "  rankdir=LR;"]
    lines += [f"  {_dot(name)};" for name, _ in found]
    for name, uses in found:
        for use, label in uses:
            labelled = f" [label={_dot(label)}]" if label else ""
            lines.append(f"  {_dot(use)} -> {_dot(name)}{labelled};")
    return "\n".join([*lines, "}"]) + "\n"


def as_mermaid(found: list[Node]) -> str:
    """A mermaid flowchart, as GitHub draws it."""
    number = {name: f"n{place}" for place, (name, _) in enumerate(found)}
    lines = ["flowchart LR"]
    lines += [f'  {number[name]}["{_mermaid(name)}"]' for name, _ in found]
    for name, uses in found:
        for use, label in uses:
            labelled = f'|"{_mermaid(label)}"|' if label else ""
            lines.append(f"  {number[use]} -->{labelled} {number[name]}")
    return "\n".join(lines) + "\n"


def _as_json(found: list[Node]) -> str:
    """``roles`` has the labels of those uses that have one."""
    objects = []
    for name, uses in found:
        roles = {use: label for use, label in uses if label}
        each = {"name": name, "uses": [use for use, _ in uses]}
        objects.append({**each, "roles": roles} if roles else each)
    return as_json({"objects": objects})


def _dot(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mermaid(text: str) -> str:
    return text.replace('"', "#quot;")


_FORMS = {"text": as_text, "dot": as_dot, "mermaid": as_mermaid, "json": _as_json}
