"""The house in figures: how much Python the wheel has, and how tangled it is: ``make house``.

``python -m bench.house [REVISION ...] [--list]`` prints a Markdown table with a column for each
revision; ``.`` and no argument are the working tree. ``--list`` names the worst functions of the
last of them, and its loops that retry.

What is counted, over the syntax trees of ``catalog_migrate/``:

- Complexity is McCabe's: 1, and 1 more for each ``if``, ``elif``, conditional expression, loop,
  ``for`` and ``if`` of a comprehension, ``except``, ``case``, and each operand of ``and`` and
  ``or`` after the first. A function has that of the functions defined in it, too.
- Parameters are all but ``self`` and ``cls``; nesting is the deepest statement with a block
  (``if``, ``for``, ``while``, ``with``, ``try``, ``match``) in others of its function; ``elif`` is
  no deeper than its ``if``. Length is without the docstring.
- A loop retries by hand when it is the innermost loop around a ``try`` of which a handler lets it
  go on, and each round tries the same: a ``while``, a ``for`` over ``range``, ``count`` or
  ``repeat``, and one that sleeps or never reads its variable. :data:`SHARED` are the two places
  where one may.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath

PACKAGE = "catalog_migrate"

CORE = (
    "planner", "operations", "migrations", "catalog", "delta", "hook", "api",
    "program", "reconciler", "pipeline",
)
"""Where decisions are made; the last three are the former names of operations and migrations."""

APART = ("connectors", "administration", "testing")
"""Rooms that stand beside the product's centre; what it has without them is counted, too."""

SHARED = ("retry.py", "delta/commit.py")

COMPLEX, MANY, DEEP = 15, 8, 5
"""Complexity from which a function is listed, parameters above, nesting from."""

_LONGEST = 15

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = (*_LOOPS, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_ROUNDS = {"range", "count", "repeat"}
_BRANCHES = (*_LOOPS, ast.If, ast.IfExp, ast.comprehension, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True, slots=True)
class Function:
    """One function or method: where it is, and how large."""

    file: str
    line: int
    name: str
    length: int
    complexity: int
    parameters: int
    nesting: int

    @property
    def room(self) -> str:
        """The folder, or the module beside them, that it is in."""
        return room(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


@dataclass(frozen=True, slots=True)
class House:
    """What is in one tree; files are relative to the package."""

    lines: Mapping[str, int]
    functions: Sequence[Function]
    retries: Sequence[str]

    @property
    def rooms(self) -> list[str]:
        return sorted({room(file) for file in self.lines})

    def lines_outside(self, rooms: Sequence[str]) -> int:
        """Return the number of lines that are in none of ``rooms``."""
        return sum(count for file, count in self.lines.items() if room(file) not in rooms)


def room(file: str) -> str:
    return PurePosixPath(file).parts[0].removesuffix(".pyi").removesuffix(".py")


def survey(sources: Mapping[str, str]) -> House:
    """The house of these sources, by their paths in the package; a ``.pyi`` only has lines."""
    functions: list[Function] = []
    retries: list[str] = []
    for file in sorted(sources):
        if file.endswith(".py"):
            tree = ast.parse(sources[file])
            functions += _functions(file, tree)
            if file not in SHARED:
                retries += [f"{file}:{line}" for line in sorted(retrying(tree))]
    lines = {file: len(text.splitlines()) for file, text in sources.items()}
    return House(lines, functions, retries)


def read_sources(revision: str) -> dict[str, str]:
    """The package's Python at ``revision`` of git, or in the working tree for ``.``."""
    if revision == ".":
        root = Path(PACKAGE)
        return {
            file.relative_to(root).as_posix(): file.read_text()
            for file in root.rglob("*.py*") if file.suffix in (".py", ".pyi")
        }
    names = _git("ls-tree", "-r", "--name-only", revision, f"{PACKAGE}/").splitlines()
    return {
        name.removeprefix(f"{PACKAGE}/"): _git("show", f"{revision}:{name}")
        for name in names if name.endswith((".py", ".pyi"))
    }


def count_test_lines(revision: str) -> int:
    """Return the lines of Python below ``tests`` at ``revision``, or in the working tree."""
    if revision == ".":
        return sum(len(file.read_text().splitlines()) for file in Path("tests").rglob("*.py"))
    names = _git("ls-tree", "-r", "--name-only", revision, "tests/").splitlines()
    texts = _git("show", *(f"{revision}:{name}" for name in names if name.endswith(".py")))
    return len(texts.splitlines())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _functions(file: str, tree: ast.AST, outer: str = "") -> Iterator[Function]:
    for node in ast.iter_child_nodes(tree):
        name = f"{outer}{getattr(node, 'name', '')}"
        if isinstance(node, _DEFINITIONS):
            yield Function(
                file, node.lineno, name, _length(node),
                complexity(node), _parameters(node), nesting(node),
            )
        named = isinstance(node, (*_DEFINITIONS, ast.ClassDef))
        yield from _functions(file, node, f"{name}." if named else outer)


def complexity(tree: ast.AST) -> int:
    """McCabe's number of what is in ``tree``."""
    found = 1
    for node in ast.walk(tree):
        match node:
            case ast.BoolOp(values=values):
                found += len(values) - 1
            case ast.comprehension(ifs=conditions):
                found += 1 + len(conditions)
            case _ if isinstance(node, _BRANCHES):
                found += 1
    return found


def nesting(tree: ast.AST) -> int:
    """How many statements with a block are inside one another, at most."""
    return max((_depth(node) for node in _children(tree)), default=0)


def _depth(node: ast.AST) -> int:
    inside = [_depth(each) for each in _children(node)]
    deepest = max(inside, default=0)
    if not isinstance(node, _BLOCKS):
        return deepest
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        chained = _depth(node.orelse[0])
        return max(chained, 1 + max((_depth(each) for each in node.body), default=0))
    return 1 + deepest


def _children(node: ast.AST) -> Iterator[ast.AST]:
    return (each for each in ast.iter_child_nodes(node) if not isinstance(each, _DEFINITIONS))


def _inside(nodes: Iterable[ast.AST], stop: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """What is in ``nodes``, but not what is in a node of the types ``stop``."""
    for node in nodes:
        if not isinstance(node, (*stop, *_DEFINITIONS, ast.Lambda)):
            yield node
            yield from _inside(ast.iter_child_nodes(node), stop)


def retrying(tree: ast.AST) -> Iterator[int]:
    """The lines of the loops that retry by hand."""
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS) and _tries_the_same(node):
            tries = (each for each in _inside(node.body, _LOOPS) if isinstance(each, ast.Try))
            if not all(_leaves(handler.body) for each in tries for handler in each.handlers):
                yield node.lineno


def _tries_the_same(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    if isinstance(loop, ast.While):
        return True
    read = {name for statement in loop.body for name in _names(statement)}
    return (
        not read & _names(loop.target)
        or "sleep" in read
        or (isinstance(loop.iter, ast.Call) and bool(_names(loop.iter.func) & _ROUNDS))
    )


def _names(tree: ast.AST) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the loop is over after ``body``, whatever its conditions are."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, (ast.Raise, ast.Return, ast.Break)) and not any(
        isinstance(node, ast.Continue) for node in _inside(body, _LOOPS)
    )


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(node, clean=False) is not None
    return _lines(node) - (_lines(node.body[0]) if documented else 0)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each]
    return sum(each.arg not in ("self", "cls") for each in every)


MEASURES = (
    ("complexity", f"complexity >= {COMPLEX}", COMPLEX),
    ("parameters", f"more than {MANY} parameters", MANY + 1),
    ("nesting", f"nesting >= {DEEP}", DEEP),
)
"""The figure of a function, what it is called, and from where on it counts."""


def worst(functions: Iterable[Function], figure: str, least: int) -> list[Function]:
    """Those that have at least ``least``, the worst first."""
    value = attrgetter(figure)
    found = (each for each in functions if value(each) >= least)
    return sorted(found, key=lambda each: (-value(each), each.file, each.line))


def figures(house: House) -> dict[str, str]:
    """The rows of the table: what is measured, and its figure."""
    core = [function for function in house.functions if function.room in CORE]
    lengths = sorted(function.length for function in house.functions)
    rows = {
        "lines of Python in the wheel": f"{sum(house.lines.values()):,}",
        f"lines outside of {', '.join(APART)}": f"{house.lines_outside(APART):,}",
        "modules": f"{len(house.lines):,}",
        "functions": f"{len(house.functions):,}",
        "lines of the longest function; functions of more than 60": (
            f"{lengths[-1] if lengths else 0}; {sum(length > 60 for length in lengths)}"
        ),
    }
    for figure, name, least in MEASURES:
        rows[f"functions with {name}; in the core"] = (
            f"{len(worst(house.functions, figure, least))}; {len(worst(core, figure, least))}"
        )
    rows["loops that retry by hand"] = str(len(house.retries))
    return rows


def by_room(house: House) -> dict[str, list[int]]:
    """Lines, functions, and those of each of :data:`MEASURES`, of each folder and module."""
    rows: dict[str, list[int]] = {}
    for each in house.rooms:
        inside = [function for function in house.functions if function.room == each]
        rows[each] = [
            sum(count for file, count in house.lines.items() if room(file) == each), len(inside),
            *(len(worst(inside, figure, least)) for figure, _, least in MEASURES),
        ]
    return rows


def table(houses: Mapping[str, House]) -> str:
    """The figures of each house in a column, then those of its folders and modules."""
    names = list(houses)
    columns = [figures(house) for house in houses.values()]
    lines = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [
        f"| {measure} | {' | '.join(column[measure] for column in columns)} |"
        for measure in columns[0]
    ]
    heads = ["lines", "functions", *(name for _, name, _ in MEASURES)]
    lines += ["", f"| in | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    rooms = [by_room(house) for house in houses.values()]
    for each in sorted({name for found in rooms for name in found}):
        cells = zip(*(found.get(each, [0] * len(heads)) for found in rooms), strict=True)
        lines.append(f"| {each} | {' | '.join(_cell(values) for values in cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[int]) -> str:
    """One figure where all are alike, else each in its order."""
    return " → ".join(f"{value:,}" for value in (values if len(set(values)) > 1 else values[:1]))


def listing(house: House) -> str:
    """The worst functions by name, and the loops that retry."""
    lines: list[str] = []
    for figure, name, least in (*MEASURES, ("length", f"length: the {_LONGEST} longest", 0)):
        found = worst(house.functions, figure, least)[: None if least else _LONGEST]
        lines += ["", f"{name}:", *(f"  {getattr(each, figure):3} {each}" for each in found)]
    lines += ["", "loops that retry by hand:", *(f"  {place}" for place in house.retries)]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.house", description=__doc__.partition("\n")[0])
    parser.add_argument("revisions", nargs="*", help="of git; . is the working tree", default=["."])
    parser.add_argument("--list", action="store_true", help="name the worst functions, too")
    options = parser.parse_args(arguments)
    houses = {revision: survey(read_sources(revision)) for revision in options.revisions or ["."]}
    print(table({"working tree" if name == "." else name: house for name, house in houses.items()}))
    tests = " → ".join(f"{count_test_lines(revision):,}" for revision in houses)
    print(f"\nLines of tests: {tests}.")
    print(f"\nThe core is {', '.join(CORE)}.")
    if options.list:
        print(listing(list(houses.values())[-1]))


if __name__ == "__main__":
    main(sys.argv[1:])
