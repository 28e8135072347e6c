"""Graphs and programs as pictures; what the verb prints is in tests/cli."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import ItemKey
from catalog_migrate.operations.steps import Step
from catalog_migrate.report.pictures import PICTURES, draw_graph, draw_program, make_picture
from catalog_migrate.report.report import Edge, Node, Picture

ODD = ItemKey("s", "view", 'a"#\nv9 --> v1\\')
GRAPH = DependencyGraph({}, {ODD.identity: ODD})
PICTURE = Picture(
    (Node("a.t", "table", "a", "migrate"), Node("b.v", "view", "b", "create", False, True),
     Node("b.w", "newer kind", "b", "newer"), Node("function:a.f", "function", "a")),
    (Edge(0, 1, "", False, True), Edge(0, 2, "reads", True, False), Edge(3, 2)),
)
PROGRAM = [Step("create", "view", str(ODD))]


@pytest.mark.parametrize(
    ("format_", "step", "node"),
    [
        ("text", '  +   1  create view s.`a"# v9 --> v1\\`', 's.`a"# v9 --> v1\\`'),
        ("dot", '    s1 [label="1 + create view s.`a\\"# v9 --> v1\\\\`", color="#116329", '
         'fillcolor="#dafbe1", penwidth=2];',
         '    "s.`a\\"# v9 --> v1\\\\`" [shape=box, style="rounded,filled"];'),
        ("mermaid", '    s1["1 + create view s.`a#quot;#35; v9 --> v1\\`"]',
         '    n0("s.`a#quot;#35; v9 --> v1\\`")'),
    ],
)
def test_a_name_draws_nothing_of_its_own(format_: str, step: str, node: str) -> None:
    """Quotes, line feeds and what a form gives a meaning to stay inside their label."""
    assert step in draw_program(PROGRAM, format_).splitlines()
    assert node in draw_graph(GRAPH, format_).splitlines()


def test_steps_of_a_plan_of_an_older_tool_go_one_after_the_other() -> None:
    """A plan file of format 1.0 has no waves; its steps were executed in their order."""
    steps = [Step("drop", "view", "s.v"), Step("create", "view", "s.v")]
    assert draw_program(steps, "text") == (
        "wave 1: names\n  -   1  drop view s.v\nwave 2: names\n  +   2  create view s.v\n"
    )


def test_dot_has_kinds_schemas_and_sides() -> None:
    """A shape a kind, a cluster a schema, sign and colour an action, a line a side."""
    found = PICTURES["dot"](PICTURE)
    assert found == """\
digraph catalog {
  rankdir=LR; node [style=filled, fillcolor="#f6f8fa", color="#818b98", fontsize=11];
  subgraph cluster_0 { label="a";
    "a.t" [shape=box, label="a.t (~ migrate)", color="#7d4e00", fillcolor="#fff3c4", penwidth=2];
    "function:a.f" [shape=parallelogram];
  }
  subgraph cluster_1 { label="b";
    "b.v" [shape=box, style="rounded,filled", label="b.v (+ create)", color="#116329", \
fillcolor="#dafbe1", penwidth=2];
    "b.w" [shape=component, label="b.w (* newer)", color="#0550ae", fillcolor="#ddf0ff", \
penwidth=2];
  }
  "a.t" -> "b.v" [penwidth=2.5];
  "a.t" -> "b.w" [label="reads", style=dashed];
  "function:a.f" -> "b.w";
}
"""


def test_mermaid_has_kinds_schemas_and_sides() -> None:
    """The same for mermaid; the sign is behind the name, where it begins no list."""
    assert PICTURES["mermaid"](PICTURE) == """\
flowchart LR
  subgraph g0["a"]
    n0["a.t (~ migrate)"]
    n3[/"function:a.f"/]
  end
  subgraph g1["b"]
    n1("b.v (+ create)")
    n2["b.w (* newer)"]
  end
  n0 ==> n1
  n0 -.->|"reads"| n2
  n3 --> n2
  classDef create fill:#dafbe1,stroke:#116329,color:#1f2328
  class n1 create
  classDef migrate fill:#fff3c4,stroke:#7d4e00,color:#1f2328
  class n0 migrate
  classDef update fill:#ddf0ff,stroke:#0550ae,color:#1f2328
  class n2 update
"""


@pytest.mark.parametrize("form", ["dot", "mermaid"])
def test_each_kind_has_a_shape_of_its_own(form: str) -> None:
    """No two kinds look alike."""
    kinds = ("table", "view", "materialized_view", "function", "type", "connection", "source",
             "sink", "secret", "cluster", "log")
    nodes = tuple(Node("s.x", kind, "s") for kind in kinds)
    lines = PICTURES[form](Picture(nodes)).splitlines()
    shapes = [line.strip().lstrip("n0123456789") for line in lines if "s.x" in line]
    assert (len(shapes), len(set(shapes))) == (len(kinds), len(kinds))


def program(waves: int = 3) -> list[Step]:
    """A view that is dropped in the first wave and comes back in the last."""
    return [
        Step("drop", "view", "s.v", wave=1), Step("drop", "view", "s.gone", wave=1),
        *(Step("create", "view", f"s.v{wave}", wave=wave) for wave in range(2, waves)),
        Step("create", "view", "s.v", wave=waves),
    ]


def test_a_program_says_between_its_waves_what_is_absent() -> None:
    """A name that comes back is absent from its wave on; one that goes for good is dropped."""
    assert '  s1 -> s3 [ltail=cluster_0, lhead=cluster_1, label="absent: s.v"];' in draw_program(
        program(), "dot"
    ).splitlines()
    mermaid = draw_program(program(), "mermaid").splitlines()
    assert '  w0 -->|"absent: s.v"| w1' in mermaid
    assert "  class s1,s2 drop" in mermaid


def test_a_program_as_svg() -> None:
    """A column a wave, a box a step with sign, number, act and name, a bar for an absent name."""
    root = ElementTree.fromstring(draw_program(program(), "svg"))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        "The program of a plan", "step 1: drop view s.v", "step 2: drop view s.gone",
        "step 3: create view s.v2", "step 4: create view s.v",
        "s.v is absent from wave 1 to wave 3",
    ]
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:4] == ["wave 1: names", "\N{MINUS SIGN}", "1 · drop view", "s.v"]
    assert ElementTree.fromstring(draw_program([], "svg")).get("class") == "picture"


def test_a_long_program_is_drawn_in_rows() -> None:
    """Ten waves beside each other, a bar in each row that it goes through, at most 100 waves."""
    svg = draw_program(program(25), "svg")
    assert svg.count("s.v is absent from wave 1 to wave 25") == 3
    root = ElementTree.fromstring(svg)
    assert float(root.get("width", "")) < 3_000
    assert "… and 50 more waves" in draw_program(program(150), "svg")


@pytest.mark.parametrize("format_", ["svg", "html"])
def test_names_of_steps_are_text(format_: str) -> None:
    """A name with markup is shown as it is written."""
    odd = str(ItemKey("s", "view", "</script><img src=x>\u202e"))
    text = draw_program([Step("create", "view", odd)], format_)
    assert "<img" not in text
    assert "\u202e" not in text


def test_a_graph_as_a_page() -> None:
    """A file of its own with the picture, and the table of its objects."""
    page = draw_graph(GRAPH, "html", of=" in the release")
    assert "<title>What uses what in the release</title>" in page
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="picture"' in page


def test_a_source_is_in_the_group_of_its_cluster() -> None:
    """Queries of one cluster belong together, everything else to its schema."""
    cluster, source = ItemKey("default", "cluster", "main"), ItemKey("s", "source", "orders")
    graph = DependencyGraph(
        {source.identity: [cluster.identity]},
        {key.identity: key for key in (cluster, source)},
        {source.identity: {"cluster": cluster.identity}},
    )
    assert make_picture(graph) == Picture(
        (Node("cluster:default.main", "cluster", "default"),
         Node("s.orders", "source", "default.main")),
        (Edge(0, 1),),
    )
