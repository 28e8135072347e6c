"""Tests of the house in figures: what is counted of small sources, and how the table has it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from bench import house
from bench.house import complexity, figures, listing, nesting, retrying, survey, table


@pytest.mark.parametrize(("source", "expected"), [
    ("pass", 1),
    ("if a: pass\nelif b: pass\nelse: pass", 3),
    ("x = a if b else c", 2),
    ("x = a and b and c or d", 4),
    ("for a in b: pass\nwhile c: pass", 3),
    ("x = [a for a in b if a if not a for c in a]", 5),
    ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 3),
    ("match a:\n  case 1: pass\n  case _: pass", 3),
    ("def g():\n  if a: pass", 2),
    ("with a: assert b", 1),
])
def test_complexity(source: str, expected: int) -> None:
    """A decision counts once, and those of a function inside count, too."""
    assert complexity(ast.parse(source)) == expected


@pytest.mark.parametrize(("source", "expected"), [
    ("pass", 0),
    ("if a: pass", 1),
    ("if a: pass\nelif b: pass\nelif c: pass", 1),
    ("if a: pass\nelif b:\n  for c in d: pass", 2),
    ("if a: pass\nelse:\n  if b: pass\n  pass", 2),
    ("with a:\n  try:\n    while b:\n      match c:\n        case 1: pass\n  except A: pass", 4),
    ("if a:\n  def g():\n    if b: pass", 1),
])
def test_nesting(source: str, expected: int) -> None:
    """A chain of elif is one deep, and a function inside begins at 0."""
    assert nesting(ast.parse(source)) == expected


@pytest.mark.parametrize("source", [
    "while True:\n  try: return f()\n  except A: sleep(1)",
    "while a:\n  try: f()\n  except A: continue\n  except B: return",
    "for attempt in range(3):\n  try: return f(attempt)\n  except A:\n    if attempt == 2: raise",
    "for delay in delays:\n  try: return f()\n  except A: sleep(delay)",
    "for _ in delays:\n  if a:\n    try: return f()\n    except A: pass",
])
def test_a_loop_that_retries(source: str) -> None:
    """What was tried is tried again."""
    assert list(retrying(ast.parse(source))) == [1]


@pytest.mark.parametrize("source", [
    "for item in items:\n  try: f(item)\n  except A: continue",
    "while True:\n  try: f()\n  except A: raise\n  except B: return 1",
    "while True:\n  try: f()\n  except A:\n    if a: raise\n    else: break",
    "while True:\n  for item in items:\n    try: f(item)\n    except A: pass",
    "while a:\n  sleep(1)",
    "try: f()\nexcept A: pass",
])
def test_a_loop_that_does_not(source: str) -> None:
    """It goes on to another item, leaves at an error, or has none to catch."""
    assert list(retrying(ast.parse(source))) == []


DEEP = ["def go():", *(" " * depth + "if a:" for depth in range(1, 15)), " " * 15 + "f()"]
SOURCES = {
    "planner/wide.py": (
        "class Plan:\n"
        "    def make(self, a, b, /, c, d, *e, f, g, h, i, **j):\n"
        "        'Text.'\n"
        "        return 1\n"
    ),
    "streams/deep.py": "\n".join(DEEP),
    "hook.py": "while True:\n    try: f()\n    except A: pass\n",
    "retry.py": "while True:\n    try: f()\n    except A: pass\n",
    "errors.pyi": "class A: ...\n",
}


def test_figures() -> None:
    """All of the package, and the rooms where decisions are made; retry.py may have its loop."""
    assert list(figures(survey(SOURCES)).values()) == [
        "27", "27", "5", "2", "16; 0", "1; 0", "1; 1", "1; 0", "1"
    ]


def test_two_houses_are_two_columns() -> None:
    """What a folder has is one figure where nothing changed."""
    after = {**SOURCES, "planner/wide.py": "def make(): pass\n", "hook.py": ""}
    lines = table({"before": survey(SOURCES), "after": survey(after)}).splitlines()
    assert lines[0] == "| | before | after |"
    assert lines[2] == "| lines of Python in the wheel | 27 | 21 |"
    assert "| planner | 4 → 1 | 1 | 0 | 1 → 0 | 0 |" in lines
    assert "| streams | 16 | 1 | 1 | 0 | 1 |" in lines


def test_the_worst_are_named() -> None:
    """Each with its figure, its place and its class."""
    text = listing(survey(SOURCES))
    assert "   15 streams/deep.py:1 go" in text
    assert "   10 planner/wide.py:2 Plan.make" in text
    assert text.endswith("loops that retry by hand:\n  hook.py:1")


def test_a_revision_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision has what was committed, the working tree what is edited since."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog_migrate").mkdir()
    module = tmp_path / "catalog_migrate" / "a.py"
    module.write_text("x = 1\n")
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True)
    module.write_text("x = 1\ny = 2\n")
    assert house.read_sources("HEAD") == {"a.py": "x = 1\n"}
    assert house.read_sources(".") == {"a.py": "x = 1\ny = 2\n"}
