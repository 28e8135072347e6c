"""``graph``: what depends on what, and the program of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.api.releases import release_graph
from catalog_migrate.api.starts import read_plan
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit
from catalog_migrate.errors import UsageError
from catalog_migrate.model.names import InvalidName, parse_reference

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.names import Identity
    from catalog_migrate.program.operations import Operation


class Node(NamedTuple):
    """An object and what it uses: names, each with what the use is labelled with or ""."""

    name: str
    uses: tuple[tuple[str, str], ...]


@click.command("graph")
@click.argument("name", required=False)
@click.option("--program", metavar="PLAN", type=click.Path(dir_okay=False),
              help="The steps of this plan file and their waves instead.")
@options.catalog
@options.release
@click.option("--system", is_flag=True, help="Our own built-ins (schema catalog_migrate) too.")
@options.format_("text", "dot", "mermaid", "json")
@options.out
def command(
    name: str | None, program: str | None, system: bool, format_: str, out: str | None
) -> None:
    """Print what depends on what: of the release given, else of the catalog.

    Tables, views, functions and types, and secrets, connections, sources, sinks and clusters.
    With NAME only that object, everything it needs and everything that needs it.

    With --program the steps that `apply` takes for a plan: steps of one wave go side by side, and
    a wave begins when the one before it has ended.

    \b
    Example:
      catalog-migrate graph --catalog catalog --format mermaid
      catalog-migrate graph shop.orders --release release
      catalog-migrate graph --program plan.json --format dot | dot -Tsvg > plan.svg
    """
    if program is not None:
        if name is not None or system:
            raise UsageError(
                "--program shows a whole plan", remedy="leave out NAME and --system"
            )
        emit(_PROGRAM_FORMS[format_](waves(read_plan(program).steps)), out)
        return
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


class Wave(NamedTuple):
    """Steps that go side by side, with their numbers in the plan's report."""

    title: str
    steps: tuple[tuple[int, Operation], ...]


def waves(steps: Sequence[Operation]) -> list[Wave]:
    """The steps of a plan in waves; those of a file that has none go one after the other."""
    numbered = enumerate(steps, start=1)
    grouped = groupby(numbered, key=lambda each: each[1].wave or -each[0])
    found = []
    for number, (_, group) in enumerate(grouped, start=1):
        inside = tuple(group)
        phases = dict.fromkeys(step.phase for _, step in inside if step.phase)
        found.append(Wave(f"wave {number}: {', '.join(phases)}".rstrip(": "), inside))
    return found


def _program_text(found: list[Wave]) -> str:
    lines = []
    for title, steps in found:
        lines.append(title)
        lines += [f"{number:>5} {step.symbol} {step.describe()}" for number, step in steps]
    return "".join(f"{line}\n" for line in lines) or "no steps\n"


def _program_dot(found: list[Wave]) -> str:
    """A box a wave; the arrow between two boxes ends at the first step of each."""
    lines = ["digraph program {", "  rankdir=LR; compound=true; node [shape=box];"]
    for place, (title, steps) in enumerate(found):
        lines.append(f"  subgraph cluster_{place} {{ label={_dot(title)};")
        lines += [f"    s{number} [label={_dot(_titled(number, step))}];" for number, step in steps]
        lines.append("  }")
    for place, (one, other) in enumerate(pairwise(found)):
        ends = f"[ltail=cluster_{place}, lhead=cluster_{place + 1}]"
        lines.append(f"  s{one.steps[0][0]} -> s{other.steps[0][0]} {ends};")
    return "\n".join([*lines, "}"]) + "\n"


def _program_mermaid(found: list[Wave]) -> str:
    lines = ["flowchart LR"]
    for place, (title, steps) in enumerate(found):
        lines.append(f'  subgraph w{place}["{_mermaid(title)}"]')
        lines += [f'    s{number}["{_mermaid(_titled(number, step))}"]' for number, step in steps]
        lines.append("  end")
    lines += [f"  w{place} --> w{place + 1}" for place in range(len(found) - 1)]
    return "\n".join(lines) + "\n"


def _program_json(found: list[Wave]) -> str:
    """The steps as the plan file has them, and their numbers wave by wave."""
    return as_json({
        "steps": [msgspec.to_builtins(step) for wave in found for _, step in wave.steps],
        "waves": [[number for number, _ in wave.steps] for wave in found],
    })


def _titled(number: int, step: Operation) -> str:
    """The number first: a text that begins with a plus or minus is a list to mermaid."""
    return f"{number} {step.symbol} {step.describe()}"


_PROGRAM_FORMS = {
    "text": _program_text, "dot": _program_dot, "mermaid": _program_mermaid, "json": _program_json,
}
