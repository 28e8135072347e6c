"""Graphs and programs drawn: text, DOT, Mermaid, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from catalog_migrate.model.names import InvalidName, parse_reference
from catalog_migrate.model.wording import one_line
from catalog_migrate.program.operations import numbered

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.names import Identity
    from catalog_migrate.program.operations import Operation


FORMATS = ("text", "dot", "mermaid", "json")


class Node(NamedTuple):
    """An object and what it uses: names, each with what the use is labelled with or ""."""

    name: str
    uses: tuple[tuple[str, str], ...]


class Wave(NamedTuple):
    """Steps that go side by side, with their numbers in the plan's report."""

    title: str
    steps: tuple[tuple[int, Operation], ...]


def draw_graph(graph: DependencyGraph, format_: str, name: str | None = None) -> str:
    """What uses what in one of :data:`FORMATS`; with ``name`` of the objects connected with it.

    Raises :class:`InvalidName` when nothing has that name.
    """
    return _GRAPHS[format_](_nodes(graph, name))


def draw_program(steps: Sequence[Operation], format_: str) -> str:
    """The steps of a plan, wave by wave, in one of :data:`FORMATS`."""
    return _PROGRAMS[format_](_waves(steps))


def _nodes(graph: DependencyGraph, name: str | None) -> list[Node]:
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


def _graph_text(found: list[Node]) -> str:
    """``name <- used, used (role)`` a line."""
    lines = []
    for name, uses in found:
        used = ", ".join(f"{use} ({label})" if label else use for use, label in uses)
        lines.append(one_line(f"{name} <- {used}" if used else name))
    return "".join(f"{line}\n" for line in lines)


def _graph_dot(found: list[Node]) -> str:
    """Graphviz: an arrow points from what is used to what uses it."""
    lines = ["digraph catalog {", "  rankdir=LR;"]
    lines += [f"  {_dot(name)};" for name, _ in found]
    for name, uses in found:
        for use, label in uses:
            labelled = f" [label={_dot(label)}]" if label else ""
            lines.append(f"  {_dot(use)} -> {_dot(name)}{labelled};")
    return "\n".join([*lines, "}"]) + "\n"


def _graph_mermaid(found: list[Node]) -> str:
    """A mermaid flowchart, as GitHub draws it."""
    number = {name: f"n{place}" for place, (name, _) in enumerate(found)}
    lines = ["flowchart LR"]
    lines += [f'  {number[name]}["{_mermaid(name)}"]' for name, _ in found]
    for name, uses in found:
        for use, label in uses:
            labelled = f'|"{_mermaid(label)}"|' if label else ""
            lines.append(f"  {number[use]} -->{labelled} {number[name]}")
    return "\n".join(lines) + "\n"


def _graph_json(found: list[Node]) -> str:
    """``roles`` has the labels of those uses that have one."""
    objects = []
    for name, uses in found:
        roles = {use: label for use, label in uses if label}
        each = {"name": name, "uses": [use for use, _ in uses]}
        objects.append({**each, "roles": roles} if roles else each)
    return _json({"objects": objects})


_GRAPHS = {"text": _graph_text, "dot": _graph_dot, "mermaid": _graph_mermaid, "json": _graph_json}


def _waves(steps: Sequence[Operation]) -> list[Wave]:
    """The steps of a plan in waves; those of a file that has none go one after the other."""
    grouped = groupby(enumerate(steps, start=1), key=lambda each: each[1].wave or -each[0])
    found = []
    for number, (_, group) in enumerate(grouped, start=1):
        inside = tuple(group)
        phases = dict.fromkeys(step.phase for _, step in inside if step.phase)
        found.append(Wave(f"wave {number}: {', '.join(phases)}".rstrip(": "), inside))
    return found


def _program_text(found: list[Wave]) -> str:
    lines = []
    shown = numbered([step for wave in found for _, step in wave.steps])
    for title, steps in found:
        lines.append(title)
        lines += [one_line("  {} {}".format(*shown[number - 1])) for number, _ in steps]
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
    return _json({
        "steps": [msgspec.to_builtins(step) for wave in found for _, step in wave.steps],
        "waves": [[number for number, _ in wave.steps] for wave in found],
    })


def _titled(number: int, step: Operation) -> str:
    """The number first: a text that begins with a plus or minus is a list to mermaid."""
    return f"{number} {step.symbol} {step.describe()}"


_PROGRAMS = {
    "text": _program_text, "dot": _program_dot, "mermaid": _program_mermaid, "json": _program_json,
}


def _dot(text: str) -> str:
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mermaid(text: str) -> str:
    return one_line(text).replace("#", "#35;").replace('"', "#quot;")


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
