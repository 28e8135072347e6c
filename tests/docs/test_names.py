"""What a page names exists: links and their anchors, paths, modules, tests, functions."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FOLDERS = "catalog_migrate|tests|examples|bench|builtins|fixtures|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)")
TEST = re.compile(r"`(tests/[\w./-]+\.py)::([\w:]+)`")
MODULE = re.compile(r"(?<![\w./-])catalog_migrate(?:\.[A-Za-z_]\w*)+")

NO_MODULES = {
    "audit", "item", "operations_log", "row", "secrets", "shards", "toml", "unsafe", "user_objects",
    "unsafe_operations",
}
"""Views, headers, metrics, entry points and a file that are written like a module."""

page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def text_of(page: Path) -> str:
    """The page, with what it names."""
    return page.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link to a heading of the page may say behind ``#``."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings)


@page
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link leads to a file or directory, and to a heading of it."""
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(f"{target}#{anchor}")
    assert missing == []


@page
def test_paths_exist(page: Path) -> None:
    """Every path that starts with a folder of the checkout is a file or directory in it."""
    assert sorted(p for p in set(PATH.findall(text_of(page))) if not (ROOT / p).exists()) == []


@page
def test_tests_exist(page: Path) -> None:
    """Every ``tests/….py::name`` is a class or function of that file."""
    missing = []
    for file, names in TEST.findall(text_of(page)):
        source = (ROOT / file).read_text(encoding="utf-8")
        missing += [
            f"{file}::{name}" for name in names.split("::")
            if not re.search(rf"(def|class) {name}\b", source)
        ]
    assert missing == []


@page
def test_modules_exist(page: Path) -> None:
    """Every ``catalog_migrate.x.y`` can be imported, or is a name in what can be."""
    missing = []
    for dotted in set(MODULE.findall(text_of(page))):
        parts = dotted.split(".")
        if parts[1] not in NO_MODULES and not is_importable(parts):
            missing.append(dotted)
    assert sorted(missing) == []


def is_importable(parts: list[str]) -> bool:
    """Whether the parts are a module, or attributes behind one."""
    thing: object = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(thing, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ModuleNotFoundError:
                return False
        thing = getattr(thing, part)
    return True


@page
def test_names_are_in_their_modules(page: Path) -> None:
    """A name before a module, as in "`load` (`….py`)" or "`load` in `….py`", is defined there."""
    text = re.sub(r"\s+", " ", text_of(page))
    found = re.findall(r"`([\w.]+)` (?:in |\()`(catalog_migrate/[\w/]+\.py)`", text)
    assert [
        (name, file) for name, file in found
        if not re.search(rf"(def|class) {name.rsplit('.')[-1]}\b", (ROOT / file).read_text("utf-8"))
    ] == []


def test_the_architecture_names_functions_that_exist() -> None:
    """Every function, class or method that docs/architecture.md names is defined in the code."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    sources = [*ROOT.glob("catalog_migrate/**/*.py"), *ROOT.glob("tests/simulation/*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in sources)
    defined = set(re.findall(r"(?:def|class) (\w+)", source))
    named = {name.rsplit(".")[-1] for name in re.findall(r"`(\w*(?:_\w+|[a-z][A-Z]\w+)+)`", text)}
    data = {"big_orders", "buyer_id", "catalog_migrate", "customer_id"}
    assert sorted(named - defined - data) == []
