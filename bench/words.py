"""The words of the house: where a room still says a thing otherwise than docs/glossary.md.

``python -m bench.words [ROOM ...] [--list] [--pin]`` prints how often, and with ``--list`` where;
``--pin`` writes the counts that ``tests/docs/test_glossary.py`` lets no room exceed.

- *names*: functions that begin with a participle or ``why_``; properties are values.
- *messages*: words of the second table of the glossary in texts that are no docstrings.
- *docstrings*: the same words in docstrings of modules and of what is public.
- *openings*: docstrings of public functions that do not begin with an imperative.
- *pages*: the same words in README, CONTRIBUTING and ``docs/``; ADRs say what was decided then.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.house import room

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PINS = ROOT / "tests" / "docs" / "words.json"

_IRREGULAR = frozenset(re.findall(
    r"\S+",
    "begun bound bought bred broken brought built caught chosen dealt done drawn driven felt found"
    " frozen given gone grown heard held hidden kept known laid left lost made meant met paid said"
    " seen sent shown sought spent spoken stolen stood sunk taken taught thought thrown told torn"
    " understood woken won worn written",
))
_NO_PARTICIPLES = frozenset({"bed", "embed", "feed", "need", "seed", "shed", "speed"})
"""Nouns and verbs that end like a participle."""

_NO_IMPERATIVES = frozenset(re.findall(
    r"\S+",
    "a all an and another any at because before both by each either every everything for from how"
    " if in its neither no none nothing of on one only one's other others out same such that the"
    " their there these they this those to two under until what when where whether which while who"
    " whom whose why with without",
))


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Use:
    """One word that the glossary has another one for."""

    kind: str
    room: str
    word: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.word}"


@cache
def avoided() -> re.Pattern[str]:
    """Return the pattern of the words that the glossary lists as not used."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Words we do not use")[2]
    cells = re.findall(r"^\| ([a-z, ]+) \|", table.partition("\n## ")[0], re.MULTILINE)
    words = {word.strip() for cell in cells if cell != "not" for word in cell.split(",")}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    joined = "|".join(word.replace(" ", r"\s+") for word in longest_first)
    return re.compile(rf"(?<![\w.`/-])(?:{joined})(?![\w`(])(?! keys?\b)", re.IGNORECASE)


def words_in(text: str) -> list[str]:
    """Return what the glossary has another word for, in small letters."""
    return [" ".join(found.lower().split()) for found in avoided().findall(text)]


def is_participle(name: str) -> bool:
    """Return whether the name of a function begins like a state, not like an act."""
    first = name.strip("_").split("_")[0]
    if first == "why":
        return True
    return first in _IRREGULAR or (first.endswith("ed") and first not in _NO_PARTICIPLES)


def is_imperative(docstring: str) -> bool:
    """Return whether the first word can be a verb in the imperative."""
    first = re.match(r"[A-Za-z']*", docstring.lstrip())
    word = first.group().lower() if first else ""
    third_person = word.endswith("s") and not word.endswith(("ss", "us", "ias", "cros"))
    return bool(word) and word not in _NO_IMPERATIVES and not third_person


def uses_in(source: str, file: str) -> Iterator[Use]:
    """Yield the uses of one module; ``file`` is relative to the package."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    # texts that are no messages: statements of their own, such as docstrings
    notes = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            # a word alone is a value, such as a state on record; a message is a sentence
            if " " in node.value.strip() or id(node) in parts:
                yield from _uses("messages", file, node.lineno, node.value)
        elif isinstance(node, _DOCUMENTED):
            yield from _uses_of_definition(node, file)


def _uses_of_definition(node: _Documented, file: str) -> Iterator[Use]:
    name = "" if isinstance(node, ast.Module) else node.name
    line = 1 if isinstance(node, ast.Module) else node.lineno
    docstring = ast.get_docstring(node) or ""
    if not name.startswith("_"):
        yield from _uses("docstrings", file, line, docstring)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return
    if is_participle(name):
        yield Use("names", room(file), "", f"{file}:{line} {name}")
    if docstring and not name.startswith("_") and not is_imperative(docstring):
        yield Use("openings", room(file), "", f"{file}:{line} {docstring.split(' ')[0]}")


def _uses(kind: str, file: str, line: int, text: str) -> Iterator[Use]:
    for word in words_in(text):
        yield Use(kind, room(file), word, f"{file}:{line}")


def pages() -> list[Path]:
    """Return the pages that are held to the glossary."""
    there = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in there if page != GLOSSARY and page.parent.name != "adr")


def uses() -> list[Use]:
    """Return all uses of the working tree."""
    found: list[Use] = []
    package = ROOT / "catalog_migrate"
    for path in sorted(package.rglob("*.py")):
        found += uses_in(path.read_text(encoding="utf-8"), path.relative_to(package).as_posix())
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            found += [Use("pages", name, word, f"{name}:{number}") for word in words_in(line)]
    return found


def counts(found: list[Use]) -> dict[str, dict[str, int]]:
    """Return by kind, and by room and word, how many there are."""
    result: dict[str, Counter[str]] = {}
    for use in found:
        key = f"{use.room}: {use.word}" if use.word else use.room
        result.setdefault(use.kind, Counter())[key] += 1
    return {kind: dict(sorted(result[kind].items())) for kind in sorted(result)}


def main(arguments: list[str] | None = None) -> None:
    """Print the counts; see the module."""
    parser = argparse.ArgumentParser(prog="bench.words")
    parser.add_argument("rooms", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--pin", action="store_true")
    options = parser.parse_args(arguments)
    found = uses()
    if options.pin:
        PINS.write_text(json.dumps(counts(found), indent=1) + "\n", encoding="utf-8")
    chosen = [use for use in found if not options.rooms or use.room in options.rooms]
    if options.list:
        print("\n".join(f"{use.kind} {use}" for use in chosen))
    totals = Counter((use.kind, use.word) for use in chosen)
    for (kind, word), number in sorted(totals.items()):
        print(f"{number:5} {kind} {word}".rstrip())


if __name__ == "__main__":
    main()
