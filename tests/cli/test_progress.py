"""Progress where there is no terminal."""

from __future__ import annotations

from catalog_migrate.cli.logs import Lines
from catalog_migrate.reconciler.execution_context import Progress


def test_lines_are_few_but_the_first_and_the_last_of_a_phase_are_there() -> None:
    """A phase starts and ends with a line; between them one every two seconds at most."""
    moment = 0.0
    lines: list[str] = []
    step = Lines(lambda line, _: lines.append(line), lambda: moment)
    for done in range(1, 11):
        moment += 0.5
        step(Progress("copy", done, 10, f"s.t{done}"))
    step(Progress("commit", 0, 0))
    assert lines == [
        "copy 1/10 s.t1", "copy 5/10 s.t5", "copy 9/10 s.t9", "copy 10/10 s.t10", "commit",
    ]
