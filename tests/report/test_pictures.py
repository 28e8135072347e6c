"""Graphs and programs as pictures; what the verb prints is in tests/cli."""

from __future__ import annotations

import pytest

from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import ItemKey
from catalog_migrate.program.operations import CreateName, DropName
from catalog_migrate.report.pictures import draw_graph, draw_program

ODD = ItemKey("s", "view", 'a"#\nv9 --> v1\\')
GRAPH = DependencyGraph({}, {ODD.identity: ODD})
PROGRAM = [CreateName("view", str(ODD))]


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
    steps = [DropName("view", "s.v"), CreateName("view", "s.v")]
    assert draw_program(steps, "text") == (
        "wave 1: names\n  -   1  drop view s.v\nwave 2: names\n  +   2  create view s.v\n"
    )
