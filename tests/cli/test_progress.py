"""Progress where there is no terminal."""

from __future__ import annotations

import io

import pytest

from catalog_migrate.cli.logs import Lines, describe_figures, progress
from catalog_migrate.model.progress import Progress


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


def test_a_step_whose_figures_move_on_has_a_line_every_ten_seconds() -> None:
    """A table of an hour does not fill the log."""
    moment = 0.0
    lines: list[str] = []
    step = Lines(lambda line, _: lines.append(line), lambda: moment)
    for _ in range(20):
        moment += 2.0
        step(Progress("copy rows", 0, 1, "s.t", 0, 9, int(moment) * 1024, 102_400, 60.0))
    step(Progress("copy rows", 1, 1, "s.t", 9, 9, 102_400, 102_400, 0.0))
    assert lines == [
        "copy rows 0/1 s.t: 2.0 KiB of 100.0 KiB, about 60 s left, 0 of 9 rows",
        "copy rows 0/1 s.t: 12.0 KiB of 100.0 KiB, about 60 s left, 0 of 9 rows",
        "copy rows 0/1 s.t: 22.0 KiB of 100.0 KiB, about 60 s left, 0 of 9 rows",
        "copy rows 0/1 s.t: 32.0 KiB of 100.0 KiB, about 60 s left, 0 of 9 rows",
        "copy rows 1/1 s.t: 100.0 KiB of 100.0 KiB, 9 of 9 rows",
    ]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("bind", 0, 3), ""),
        (Progress("copy rows", 1, 2, "s.t", rows=1), "1 row"),
        (Progress("copy rows", 1, 1, "s.t", 0, 0, 0, 0), ""),
        (Progress("copy rows", 0, 1, "s.t", 0, 1, 0, 3 << 30), "0 B of 3.0 GiB, 0 of 1 row"),
        (
            Progress("copy rows", 0, 1, "s.t", 0, 12_345, 1 << 30, 3 << 30, 7_500.0),
            "1.0 GiB of 3.0 GiB, about 2.1 h left, 0 of 12,345 rows",
        ),
    ],
)
def test_figures_are_told_as_far_as_they_are_known(progress: Progress, words: str) -> None:
    """Other steps have none, nor has a copy of tables without rows."""
    assert describe_figures(progress) == words


class Terminal(io.StringIO):
    """A stderr that a person watches."""

    def isatty(self) -> bool:
        return True


def test_a_bar_says_bytes_and_time_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves by bytes; 80 columns hold what is left, however long the name is."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with progress() as step:
        step(Progress("bind", 1, 2, "s.[red]t"))
        step(Progress("copy rows", 0, 3, "s." + "x" * 200, 7, 9, 3 << 30, 9 << 30, 700.0))
    shown = terminal.getvalue()
    assert "1/2  s.[red]t" in shown
    assert "0/3  3.0 GiB of 9.0 GiB, about 12 min left" in shown
