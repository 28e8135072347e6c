"""Graphs and programs drawn: text, SVG, a page, DOT, Mermaid, JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from catalog_migrate.errors import InvalidName, suggest
from catalog_migrate.model.names import parse_reference, quote_part
from catalog_migrate.model.objects import CLUSTER_KINDS
from catalog_migrate.model.wording import counted, one_line
from catalog_migrate.operations.steps import number_steps
from catalog_migrate.report.program import list_waves
from catalog_migrate.report.report import Edge, Node, Picture, Wave, find_sign

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.names import Identity
    from catalog_migrate.operations.steps import Step


_ABSENT_SHOWN = 3


class Uses(NamedTuple):
    """An object and what it uses: names, each with what the use is labelled with or ""."""

    name: str
    uses: tuple[tuple[str, str], ...]


Facts = Sequence[tuple[str, str]]
"""What a picture is of: labels and values, which a page shows in its head."""


def draw_graph(
    graph: DependencyGraph, format_: str, name: str | None = None, *, of: str = "",
    facts: Facts = (),
) -> str:
    """Draw what uses what in one of ``report.GRAPH_FORMATS``.

    With ``name`` only the objects that are connected with it. ``of`` says in a title what it is the
    graph of. Raises :class:`InvalidName` when nothing has that name.
    """
    part, root = _select_connected(graph, name)
    if format_ in _GRAPHS:
        return _GRAPHS[format_](_list_uses(part))
    title = one_line(f"What uses what{of}")
    picture = make_picture(part)
    if format_ == "html":
        return _lay_out_page(picture, title, facts)
    if format_ == "svg":
        from catalog_migrate.report.svg import draw_picture

        return draw_picture(picture, focus=root, title=title)
    return PICTURES[format_](picture)


def draw_program(steps: Sequence[Step], format_: str, *, facts: Facts = ()) -> str:
    """Draw the steps of a plan, wave by wave, in one of ``report.GRAPH_FORMATS``."""
    if format_ == "text":
        return _program_text(steps)
    if format_ == "json":
        return _program_json(steps)
    if format_ == "svg":
        from catalog_migrate.report.svg_program import draw_steps

        return draw_steps(steps)
    if format_ == "html":
        return _program_page(steps, facts)
    return _PROGRAMS[format_](list_waves(steps))


def make_picture(
    graph: DependencyGraph, *, before: DependencyGraph | None = None,
    kept: Collection[Identity] | None = None, actions: Mapping[Identity, str] | None = None,
) -> Picture:
    """Make the picture of a graph: its objects, sorted by name, and who uses them.

    A source or sink is in the group of its cluster, everything else in that of its schema.
    ``before`` is the graph that it comes from, ``kept`` the objects that are shown (all by
    default), and ``actions`` says what happens to each that does not stay as it is.
    """
    sides = (graph if before is None else before, graph)
    home = {node: each for each in sides for node in each if kept is None or node in kept}
    found = sorted(home, key=lambda node: str(home[node].key(node)))
    place = {node: number for number, node in enumerate(found)}
    edges: dict[tuple[int, int, str], list[bool]] = {}
    for number, each in enumerate(sides):
        for user, node in enumerate(found):
            for used in each.uses(node):
                if used in place:
                    edge = user, place[used], _label(each, node, used)
                    edges.setdefault(edge, [False, False])[number] = True
    done = actions or {}
    return Picture(
        tuple(
            Node(
                one_line(str(home[node].key(node))), home[node].key(node).kind,
                _group(home[node], node), done.get(node, "unchanged"),
                node in sides[0], node in sides[1],
            )
            for node in found
        ),
        tuple(
            Edge(used, user, one_line(label), *there)
            for (user, used, label), there in sorted(edges.items())
        ),
    )


def list_neighbours(graph: DependencyGraph, names: Iterable[Identity]) -> set[Identity]:
    """List objects with what they use directly and what uses them directly."""
    found: set[Identity] = set()
    for name in names:
        found.update((name, *graph.uses(name), *graph.users_of(name)))
    return found


def _group(graph: DependencyGraph, node: Identity) -> str:
    key = graph.key(node)
    if key.kind in CLUSTER_KINDS:
        for used in graph.uses(node):
            if graph.key(used).kind == "cluster":
                return one_line(str(graph.key(used).item_name))
    return one_line(quote_part(key.schema)) if key.schema else ""


def _select_connected(
    graph: DependencyGraph, name: str | None
) -> tuple[DependencyGraph, str | None]:
    """The part of a graph that is connected with ``name``, and that name as pictures have it."""
    if name is None:
        return graph, None
    root = parse_reference(name)
    if root not in graph:
        names = [str(graph.key(each)) for each in graph]
        raise InvalidName(
            f"nothing is called {name}",
            remedy=suggest(name, names, "see `catalog-migrate graph`", most=3),
        )
    part = graph.part({root} | graph.dependencies([root]) | graph.dependents([root]))
    return part, one_line(str(graph.key(root)))


def _list_uses(graph: DependencyGraph) -> list[Uses]:
    """All objects sorted by name with what they use."""
    return sorted(
        Uses(
            str(graph.key(each)),
            tuple(sorted((str(graph.key(use)), _label(graph, each, use))
                         for use in graph.uses(each))),
        )
        for each in graph
    )


def _label(graph: DependencyGraph, user: Identity, used: Identity) -> str:
    """The roles of an edge that its two ends do not tell."""
    return ", ".join(role for role in graph.roles(user, used) if role != graph.key(used).kind)


def _lay_out_page(picture: Picture, title: str, facts: Facts) -> str:
    """A page of a picture where nothing changes, with the table of its objects."""
    from catalog_migrate.report.page import lay_out_page
    from catalog_migrate.report.report import Report, ReportObject
    from catalog_migrate.report.verdict import Verdict

    objects = tuple(
        ReportObject(node.name, node.kind, node.group, node.action) for node in picture.nodes
    )
    count = f"{counted(len(objects), 'object')}, {counted(len(picture.edges), 'use')}"
    return lay_out_page(Report(
        title, Verdict("nothing", "", ""), count, _visible(facts), objects=objects, picture=picture
    ))


def _visible(facts: Facts) -> tuple[tuple[str, str], ...]:
    return tuple((label, one_line(value)) for label, value in facts)


def _graph_text(found: list[Uses]) -> str:
    """``name <- used, used (role)`` a line."""
    lines = []
    for name, uses in found:
        used = ", ".join(f"{use} ({label})" if label else use for use, label in uses)
        lines.append(one_line(f"{name} <- {used}" if used else name))
    return "".join(f"{line}\n" for line in lines)


def _graph_json(found: list[Uses]) -> str:
    """``roles`` has the labels of those uses that have one."""
    objects = []
    for name, uses in found:
        roles = {use: label for use, label in uses if label}
        each = {"name": name, "uses": [use for use, _ in uses]}
        objects.append({**each, "roles": roles} if roles else each)
    return _json({"objects": objects})


_GRAPHS = {"text": _graph_text, "json": _graph_json}

_DOT_SHAPES = {
    "table": "shape=box", "view": 'shape=box, style="rounded,filled"',
    "materialized_view": 'shape=box, style="rounded,filled", peripheries=2',
    "function": "shape=parallelogram", "type": "shape=hexagon", "connection": "shape=ellipse",
    "source": "shape=cds", "sink": "shape=invhouse", "secret": "shape=octagon",
    "cluster": "shape=box3d", "log": "shape=note",
}
_MERMAID_SHAPES = {
    "table": ("[", "]"), "view": ("(", ")"), "materialized_view": ("[(", ")]"),
    "function": ("[/", "/]"), "type": ("{{", "}}"), "connection": ("([", "])"),
    "source": ("[/", "\\]"), "sink": ("[\\", "/]"), "secret": ("{", "}"),
    "cluster": ("[[", "]]"), "log": (">", "]"),
}
_COLORS = {
    "+": ("create", "#116329", "#dafbe1"), "-": ("drop", "#b3131f", "#ffebe9"),
    "~": ("migrate", "#7d4e00", "#fff3c4"), "*": ("update", "#0550ae", "#ddf0ff"),
}
"""For each sign the name of its class, the colour of the border and that of the area."""

_DOT_NODE = 'node [style=filled, fillcolor="#f6f8fa", color="#818b98", fontsize=11]'


def _picture_dot(picture: Picture) -> str:
    """Graphviz: an arrow points from what is used to what uses it; a cluster a group."""
    lines = ["digraph catalog {", f"  rankdir=LR; {_DOT_NODE};"]
    for number, (group, inside) in enumerate(_group_nodes(picture)):
        lines.append(f"  subgraph cluster_{number} {{ label={_dot(group)};")
        for place in inside:
            node = picture.nodes[place]
            styles = [_DOT_SHAPES.get(node.kind, "shape=component")]
            if node.action != "unchanged":
                styles += [f"label={_dot(_name_action(node))}", *_dot_color(find_sign(node.action))]
            lines.append(f"    {_dot(node.name)} [{', '.join(styles)}];")
        lines.append("  }")
    for edge in picture.edges:
        styles = [f"label={_dot(edge.label)}"] if edge.label else []
        if edge.old != edge.new:
            styles.append("style=dashed" if edge.old else "penwidth=2.5")
        ends = (_dot(picture.nodes[end].name) for end in (edge.used, edge.user))
        lines.append(f"  {' -> '.join(ends)}{f' [{_COMMA.join(styles)}]' if styles else ''};")
    return "\n".join([*lines, "}"]) + "\n"


def _picture_mermaid(picture: Picture) -> str:
    """A mermaid flowchart, as GitHub draws it; a subgraph a group."""
    lines = ["flowchart LR"]
    for number, (group, inside) in enumerate(_group_nodes(picture)):
        lines.append(f'  subgraph g{number}["{_mermaid(group)}"]')
        for place in inside:
            node = picture.nodes[place]
            before, behind = _MERMAID_SHAPES.get(node.kind, ("[", "]"))
            lines.append(f'    n{place}{before}"{_mermaid(_name_action(node))}"{behind}')
        lines.append("  end")
    for edge in picture.edges:
        arrow = "-->" if edge.old == edge.new else "-.->" if edge.old else "==>"
        labelled = f'|"{_mermaid(edge.label)}"|' if edge.label else ""
        lines.append(f"  n{edge.used} {arrow}{labelled} n{edge.user}")
    signs = [(f"n{place}", find_sign(node.action)) for place, node in enumerate(picture.nodes)]
    return "\n".join([*lines, *_mermaid_classes(signs)]) + "\n"


PICTURES = {"dot": _picture_dot, "mermaid": _picture_mermaid}
"""How a picture is written for other tools that draw, by format."""
_COMMA = ", "


def _group_nodes(picture: Picture) -> list[tuple[str, list[int]]]:
    """The positions of the nodes group by group, in the order of their names."""
    found: dict[str, list[int]] = {}
    for place, node in enumerate(picture.nodes):
        found.setdefault(node.group, []).append(place)
    return sorted(found.items())


def _name_action(node: Node) -> str:
    """The sign behind the name: a text that begins with a plus or minus is a list to mermaid."""
    if node.action == "unchanged":
        return node.name
    return f"{node.name} ({find_sign(node.action)} {node.action})"


def _dot_color(sign: str) -> list[str]:
    if sign not in _COLORS:
        return []
    _, border, area = _COLORS[sign]
    return [f'color="{border}"', f'fillcolor="{area}"', "penwidth=2"]


def _mermaid_classes(signs: Sequence[tuple[str, str]]) -> list[str]:
    """The colours of those that have a sign: (id, sign) of each."""
    lines = []
    for sign, (name, border, area) in _COLORS.items():
        inside = ",".join(node for node, own in signs if own == sign)
        if inside:
            lines.append(f"  classDef {name} fill:{area},stroke:{border},color:#1f2328")
            lines.append(f"  class {inside} {name}")
    return lines


def _program_text(steps: Sequence[Step]) -> str:
    lines = []
    shown = number_steps(steps)
    for wave in list_waves(steps):
        lines.append(wave.title)
        lines += [one_line("  {} {}".format(*shown[number - 1])) for number, _, _ in wave.steps]
    return "".join(f"{line}\n" for line in lines) or "no steps\n"


def _program_json(steps: Sequence[Step]) -> str:
    """The steps as the plan file has them, and their numbers wave by wave."""
    return _json({
        "steps": msgspec.to_builtins(steps),
        "waves": [[number for number, _, _ in wave.steps] for wave in list_waves(steps)],
    })


def _program_dot(waves: Sequence[Wave]) -> str:
    """A box a wave; the arrow between two boxes ends at the first step of each."""
    lines = ["digraph program {", f"  rankdir=LR; compound=true; {_DOT_NODE}; node [shape=box];"]
    for place, wave in enumerate(waves):
        lines.append(f"  subgraph cluster_{place} {{ label={_dot(wave.title)};")
        for number, sign, text in wave.steps:
            styles = [f"label={_dot(_number_step(number, sign, text))}", *_dot_color(sign)]
            lines.append(f"    s{number} [{', '.join(styles)}];")
        lines.append("  }")
    for place, (one, other) in enumerate(pairwise(waves)):
        styles = [f"ltail=cluster_{place}", f"lhead=cluster_{place + 1}"]
        styles += [f"label={_dot(_absent(one))}"] * bool(one.absent)
        lines.append(f"  s{one.steps[0][0]} -> s{other.steps[0][0]} [{', '.join(styles)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _program_mermaid(waves: Sequence[Wave]) -> str:
    lines = ["flowchart LR"]
    for place, wave in enumerate(waves):
        lines.append(f'  subgraph w{place}["{_mermaid(wave.title)}"]')
        lines += [f'    s{step[0]}["{_mermaid(_number_step(*step))}"]' for step in wave.steps]
        lines.append("  end")
    for place, wave in enumerate(waves[:-1]):
        labelled = f'|"{_mermaid(_absent(wave))}"|' if wave.absent else ""
        lines.append(f"  w{place} -->{labelled} w{place + 1}")
    signs = [(f"s{number}", sign) for wave in waves for number, sign, _ in wave.steps]
    return "\n".join([*lines, *_mermaid_classes(signs)]) + "\n"


def _program_page(steps: Sequence[Step], facts: Facts) -> str:
    """A page of the waves: drawn, and as a list."""
    from catalog_migrate.report.page import lay_out_page
    from catalog_migrate.report.report import Report
    from catalog_migrate.report.svg_program import draw_steps
    from catalog_migrate.report.verdict import Verdict

    waves = list_waves(steps)
    route = f"{counted(len(steps), 'step')} in {counted(len(waves), 'wave')}"
    return lay_out_page(Report(
        "The program of a plan", Verdict("nothing", "", ""), route, _visible(facts), waves=waves
    ), drawing=draw_steps(steps))


def _absent(wave: Wave) -> str:
    """Which names are absent between a wave and the next, the first of many."""
    more = wave.more + len(wave.absent) - _ABSENT_SHOWN
    shown = [*wave.absent[:_ABSENT_SHOWN], *[f"… and {more:,} more"] * (more > 0)]
    return f"absent: {', '.join(shown)}"


def _number_step(number: int, sign: str, text: str) -> str:
    """The number first: a text that begins with a plus or minus is a list to mermaid."""
    return f"{number} {sign} {text}"


_PROGRAMS = {
    "dot": _program_dot, "mermaid": _program_mermaid,
}


def _dot(text: str) -> str:
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mermaid(text: str) -> str:
    return one_line(text).replace("#", "#35;").replace('"', "#quot;")


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
