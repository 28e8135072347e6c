"""Changes the product a little, mutant by mutant, and looks whether a test fails: ``make mutants``.

Of all mutants that there are of :data:`MODULES`, :data:`COUNT` are run: those whose key has the
smallest hash. So it is the same ones for as long as their lines are as they were, whatever is
edited beside them.

Everything is in ``build/mutants``. ``tree`` is a copy of what git knows of the working tree;
``coverage`` says which test runs which line, found out once by a run of all tests without a JVM;
``results.json`` has what each mutant came to, so that a run that was cut off goes on.

One process collects all tests (this module is its plugin) and forks for each mutant: the child
gives the function its changed code and runs the tests that run that line, until one fails. What is
changed at import, or survived an earlier run (``--again``), is written into the copy and tried by a
pytest of its own: there processes that tests start have the change, too.

``--page docs/testing.md`` writes the table there, and the survivors with what was made of them
(:data:`~bench.equivalent_mutants.EQUIVALENT`).
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from xml.etree import ElementTree

from bench.equivalent_mutants import EQUIVALENT

MODULES = (
    "planner", "operations", "migrations", "catalog", "delta", "streams/checkpoint",
    "streams/runtime/operations.py",
)
"""Which parts of the package are changed."""

COUNT, SEED = 400, "41"
LIMIT = 20.0
"""Tests of a line are run for so many seconds, by what they took before."""

UNCHANGED = "no function to change"

BUILD = Path("build/mutants")
MARKS = "not spark and not services and not crash and not jvm and not soak"
BEGIN, END = "<!-- mutants: written by make mutants -->", "<!-- end of mutants -->"

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """One change: in which file, at which line, which statement by what."""

    file: str
    line: int
    place: str
    kind: str
    before: str
    after: str
    number: int
    """Of those that are alike in one place."""

    @property
    def key(self) -> str:
        """What it is known by when lines have moved."""
        number = f" #{self.number}" * (self.number > 1)
        return f"{self.file.removeprefix('catalog_migrate/')}:{self.place}: {self}{number}"

    @property
    def rank(self) -> str:
        """By which it is drawn."""
        return hashlib.sha256(f"{SEED} {self.key}".encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.kind}: {self.before} -> {self.after}" if self.after else (
            f"{self.kind}: {self.before}"
        )


# what can be changed -----------------------------------------------------------------------------
Change = tuple[str, ast.AST, ast.AST | None]
"""Its kind, the node, and what comes in its place (None: nothing)."""


def changes_of(node: ast.AST, *, early: bool) -> Iterator[Change]:
    """The changes of one node; ``early``: a statement behind which its function goes on."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            compared = copy.deepcopy(node)
            compared.ops[0] = COMPARISONS[type(op)]()
            yield "comparison", node, compared
        case ast.BoolOp():
            joined = copy.deepcopy(node)
            joined.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield "and/or", node, joined
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, node.operand
        case ast.If() | ast.While() | ast.IfExp():
            branch = copy.copy(node)
            branch.test = ast.UnaryOp(ast.Not(), node.test)
            yield "condition", node, branch
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not _is_text(node):
            summed = copy.deepcopy(node)
            summed.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "+/-", node, summed
        case ast.Constant(value=bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int(number)):
            yield "constant", node, ast.Constant(number + 1)
        case ast.Return() if early:
            yield "no return", node, None
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield "no statement", node, None
        case ast.AugAssign() | ast.Continue() | ast.Break() | ast.Raise():
            yield "no statement", node, None
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "no statement", node, None
        case ast.Call(args=[first, second, *rest]) if not any(
            isinstance(each, ast.Starred) for each in (first, second)
        ):
            call = copy.copy(node)
            call.args = [second, first, *rest]
            yield "arguments", node, call


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def mutations(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, Change]]:
    """All mutants of a file."""
    alike: Counter[tuple[str, str, str, str]] = Counter()
    for place, node, early in _walk(tree, "", early=False):
        for kind, old, new in changes_of(node, early=early):
            before, after = _words(old), "" if new is None else _words(new)
            alike[place, kind, before, after] += 1
            number = alike[place, kind, before, after]
            line = getattr(old, "lineno", 0)
            yield Mutant(file, line, place, kind, before, after, number), (kind, old, new)


def _words(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        word = "if" if isinstance(node, ast.If) else "while"
        return f"{word} {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _walk(node: ast.AST, place: str, *, early: bool) -> Iterator[tuple[str, ast.AST, bool]]:
    """Each node with the function that it is in; without annotations and what types are for."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        held = value if isinstance(value, list) else [value]
        for number, child in enumerate(held):
            if not isinstance(child, ast.AST) or _is_of_types(child):
                continue
            inner = place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{place}.{child.name}".lstrip(".")
            goes_on = early if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try) \
                else False
            if isinstance(child, ast.stmt):
                goes_on = goes_on or number + 1 < len(held)
            yield inner, child, goes_on
            yield from _walk(child, inner, early=goes_on)


def _is_of_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


class _Put(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return ast.copy_location(ast.Pass() if self.new is None else self.new, node)
        return self.generic_visit(node)


def tree_of(mutant: Mutant, text: str) -> ast.Module:
    """The module with the change in it, every other line where it was."""
    tree = ast.parse(text)
    _, old, new = next(change for each, change in mutations(mutant.file, tree) if each == mutant)
    changed = _Put(old, new).visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)


def all_mutants(root: Path) -> list[Mutant]:
    """Every mutant of the modules, the first ones to be run first."""
    files = [
        file for part in MODULES
        for file in ([root / "catalog_migrate" / part] if part.endswith(".py")
                     else sorted((root / "catalog_migrate" / part).rglob("*.py")))
    ]
    found = [
        mutant for file in files
        for mutant, _ in mutations(str(file.relative_to(root)), ast.parse(file.read_text("utf-8")))
    ]
    return sorted(found, key=lambda mutant: mutant.rank)


# which tests --------------------------------------------------------------------------------------
def copy_tree(root: Path) -> None:
    """What git knows of the working tree."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    for name in names:
        if name and Path(name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, root / name)


def find_tests(root: Path) -> None:
    """Which test runs which line, and how long each takes: one run of all, with coverage.

    What fails there, without any mutant, says nothing of one.
    """
    config = root.resolve() / "contexts.ini"
    packages = ", ".join(
        f"catalog_migrate.{part.removesuffix('.py').replace('/', '.')}" for part in MODULES
    )
    config.write_text(
        f"[run]\nsource = {packages}\ndynamic_context = test_function\n"
        f"data_file = {BUILD.resolve()}/coverage\ncore = ctrace\n"
    )
    subprocess.run(
        [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", "-m", "pytest",
         *arguments_of_pytest(), f"--junitxml={BUILD.resolve()}/times.xml"],
        cwd=root, env=environment(root), check=False,
    )


def arguments_of_pytest() -> list[str]:
    """In one process, always in the same order."""
    return ["-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header",
            "--tb=no", "--hypothesis-seed=0", "-m", MARKS]


def environment(root: Path) -> dict[str, str]:
    """Processes that tests start import the copy, too."""
    return {**os.environ, "JAVA_HOME": "/nonexistent", "PYTHONPATH": str(root.resolve()),
            "PYTHONDONTWRITEBYTECODE": "1"}


class Tests:
    """Which tests run a line, by the names that coverage has for them; its own tests first, then
    the quickest."""

    def __init__(self, build: Path) -> None:
        import coverage

        self.data = coverage.CoverageData(str(build / "coverage"))
        self.data.read()
        self.files = {
            file[file.rindex("catalog_migrate/"):]: file for file in self.data.measured_files()
        }
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.failing: set[str] = set()
        for case in ElementTree.parse(build / "times.xml").iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"
            self.seconds[name] += float(case.get("time", "0"))
            if case.find("failure") is not None or case.find("error") is not None:
                self.failing.add(name)

    def of(self, mutant: Mutant) -> list[str]:
        """Where a line runs at import only, the tests of the whole module."""
        measured = self.files.get(mutant.file)
        if measured is None:
            return []
        by_line = self.data.contexts_by_lineno(measured)
        held = {*by_line.get(mutant.line, ())} - {""}
        if not held:
            held = {context for contexts in by_line.values() for context in contexts} - {""}
        held -= self.failing
        own = f"tests.{mutant.file.split('/')[1]}."
        left, kept = LIMIT, []
        for name in sorted(held, key=lambda each: (
            self.seconds.get(each, 0.05) > 1.0, not each.startswith(own),
            self.seconds.get(each, 0.05), each,
        )):
            left -= self.seconds.get(name, 0.05)
            if left > 0:
                kept.append(name)
        return kept


# running: a child of the process that has all tests -----------------------------------------------
def pytest_runtestloop(session: Any) -> bool:
    """As pytest's plugin: run the mutants in place of the tests."""
    build = Path(os.environ["MUTANTS"])
    root = build / "tree"
    file = build / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    chosen = json.loads((build / "chosen.json").read_text())
    tests, items = Tests(build), defaultdict(list)
    for item in session.items:
        if hasattr(item, "function"):
            items[f"{item.module.__name__}.{item.function.__qualname__}"].append(item)
    functions: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for module in {mutant.file for mutant in all_mutants(root)}:
        with suppress(ImportError):
            import_module(module.removesuffix(".py").replace("/", "."))
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and "catalog_migrate" in each.__code__.co_filename:
            functions[_place_of(each.__code__)].append(each)
    gc.freeze()
    by_key = {mutant.key: mutant for mutant in all_mutants(root)}
    for key in chosen:
        mutant, began = by_key[key], time.monotonic()
        names = tests.of(mutant)
        run = [item for name in names for item in items[name]]
        killed = _fork(partial(_child, mutant, root, functions, run)) if run else ""
        if killed == UNCHANGED or (not killed and key in results):
            killed = _killed_by_a_process(mutant, root, [item.nodeid for item in run])
        results[key] = {
            "killed": killed, "tests": len(run), "seconds": round(time.monotonic() - began, 1),
        }
        file.write_text(json.dumps(results, indent=1))
    return True


def _place_of(code: CodeType) -> tuple[str, str, int]:
    name = getattr(code, "co_qualname", code.co_name)  # of Python 3.11 on
    return os.path.realpath(code.co_filename), name, code.co_firstlineno


def _fork(child: Callable[[], str]) -> str:
    """What a child says; a child that does not come to its end was killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(1800)  # of a test that waits for ever; a busy machine is not to be one
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * LIMIT), int(2 * LIMIT)))
        try:
            said = child()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it ends here
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said[:1000].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return "a test that does not end" if os.WIFSIGNALED(status) else said


def _child(
    mutant: Mutant, root: Path, functions: Mapping[tuple[str, str, int], list[FunctionType]],
    items: Sequence[Any],
) -> str:
    """The first test that fails; empty where none does."""
    file = root / mutant.file
    code = compile(tree_of(mutant, file.read_text("utf-8")), os.path.realpath(file), "exec")
    changed = False
    stack = [code]
    while stack:
        each = stack.pop()
        for function in functions.get(_place_of(each), ()):
            if function.__code__ != each:
                try:
                    function.__code__ = each
                except ValueError:  # another number of free variables
                    return UNCHANGED
                changed = True
        stack += [const for const in each.co_consts if isinstance(const, CodeType)]
    if not changed:
        return UNCHANGED
    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    items[0].config.pluginmanager.register(Listener())
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            return failed[0]
    return ""


def _killed_by_a_process(mutant: Mutant, root: Path, nodes: Sequence[str]) -> str:
    """The test that fails where the copy has the change; empty where none does."""
    file = root / mutant.file
    text = file.read_text("utf-8")
    if not nodes:
        return ""
    process = None
    try:
        file.write_text(ast.unparse(tree_of(mutant, text)), "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-rfE", *arguments_of_pytest(), *nodes],
            cwd=root, env=environment(root), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )
        out, _ = process.communicate(timeout=8 * LIMIT)
    except subprocess.TimeoutExpired:
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "a test that does not end"
    finally:
        file.write_text(text, "utf-8")
    if process.returncode in (0, 5):
        return ""
    failed = [
        line.split(" ")[1] for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))
    ]
    return failed[0] if failed else f"pytest ends with {process.returncode}"


# what comes of it -------------------------------------------------------------------------------
def page(results: Mapping[str, Mapping[str, object]], mutants: Iterable[Mutant]) -> str:
    """The table, and the survivors."""
    drawn = list(mutants)
    done = [mutant for mutant in drawn if mutant.key in results]
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    survivors = []
    for mutant in done:
        part = next(part for part in MODULES if mutant.file.startswith(f"catalog_migrate/{part}"))
        survived = not results[mutant.key]["killed"]
        verdict = "killed" if not survived else (
            "equivalent" if mutant.key in EQUIVALENT else "survived"
        )
        for row in (part.removesuffix(".py"), "all"):
            rows[row][verdict] += 1
        if survived:
            survivors.append(mutant)
    lines = [f"{len(done)} of the {len(drawn)} that were drawn have been run.", "",
             "| modules | mutants | killed | equivalent | survived | killed, of those that are not"
             " equivalent |", "|---|---|---|---|---|---|"]
    for name in (*(part.removesuffix(".py") for part in MODULES), "all"):
        counts = rows[name]
        different = counts["killed"] + counts["survived"]
        rate = f"{100 * counts['killed'] / different:.1f} %" if different else "-"
        lines.append(
            f"| {name} | {sum(counts.values())} | {counts['killed']} | {counts['equivalent']} |"
            f" {counts['survived']} | {rate} |"
        )
    if survivors:
        lines += ["", "Survivors, and why one is equivalent:", "",
                  "| where | mutant | equivalent, because |", "|---|---|---|"]
        for mutant in sorted(survivors, key=lambda each: (each.file, each.line)):
            where = f"`{mutant.file.removeprefix('catalog_migrate/')}:{mutant.line}` {mutant.place}"
            said = str(mutant).replace("|", "\\|")
            said = said if len(said) <= 160 else f"{said[:157]}..."
            lines.append(f"| {where} | `{said}` | {EQUIVALENT.get(mutant.key, '')} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a mutant survived that is not known to be equivalent."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=COUNT, help=f"how many ({COUNT})")
    parser.add_argument("--page", type=Path, help="the page in which the table is written")
    parser.add_argument("--only", help="mutants whose key has this in it")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    options = parser.parse_args(arguments)
    root = BUILD / "tree"
    copy_tree(root)
    if not (BUILD / "coverage").exists():
        find_tests(root)
    file = BUILD / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    mutants = all_mutants(root)
    print(f"{len(mutants)} mutants, of which {options.count} are run")
    mutants = mutants[: options.count]
    chosen = [
        mutant.key for mutant in mutants
        if (not options.only or options.only in mutant.key)
        and (mutant.key not in results or (options.again and not results[mutant.key]["killed"]))
    ]
    if chosen:
        (BUILD / "chosen.json").write_text(json.dumps(chosen))
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "bench.mutants", *arguments_of_pytest()],
            cwd=root, env={**environment(root), "MUTANTS": str(BUILD.resolve())}, check=False,
        )
        results = json.loads(file.read_text())
    told = page(results, mutants)
    print(told)
    if options.page is not None:
        text = options.page.read_text("utf-8")
        before, rest = text.split(BEGIN)
        options.page.write_text(f"{before}{BEGIN}\n\n{told}\n{END}{rest.split(END)[1]}", "utf-8")
    return int(any(
        not results[mutant.key]["killed"] and mutant.key not in EQUIVALENT
        for mutant in mutants if mutant.key in results
    ))


if __name__ == "__main__":
    sys.exit(main())
