"""Tests of the words: what a glossary's reader finds, and that no room comes to say it otherwise.

The counts in ``words.json`` are what is left; ``python -m bench.words --pin`` lowers them.
"""

from __future__ import annotations

import json
import re

import pytest

from bench import words
from bench.words import PINS, counts, is_imperative, is_participle, uses, uses_in, words_in

SOURCE = '''"""It is told anew."""
def evolved(table):
    """The table, whoever asks."""
    raise ValueError(f"{table} stands")

class Table:
    """A table that is gone."""
    @property
    def sealed(self):
        """Whether it is sealed."""
        return "gone"
    def _lost(self):
        """Nobody sees it."""
'''


def test_no_room_has_more_than_is_left() -> None:
    """A new name, message, docstring or page is in the words of the glossary."""
    left = json.loads(PINS.read_text(encoding="utf-8"))
    found = uses()
    more = {
        f"{kind}, {key}": f"{number}, at most {left[kind].get(key, 0)}"
        for kind, by_key in counts(found).items()
        for key, number in by_key.items() if number > left[kind].get(key, 0)
    }
    assert more == {}, "python -m bench.words ROOM --list shows where"


def test_what_is_counted() -> None:
    """Properties and single words are values; what is private has its names and no docstrings."""
    assert [(use.kind, use.word, use.place) for use in uses_in(SOURCE, "delta/a.py")] == [
        ("docstrings", "is told", "delta/a.py:1"),
        ("docstrings", "anew", "delta/a.py:1"),
        ("docstrings", "whoever", "delta/a.py:2"),
        ("names", "", "delta/a.py:2 evolved"),
        ("openings", "", "delta/a.py:2 The"),
        ("docstrings", "gone", "delta/a.py:6"),
        ("names", "", "delta/a.py:12 _lost"),
        ("messages", "stands", "delta/a.py:4"),
    ]


@pytest.mark.parametrize(("text", "found"), [
    ("Nobody is told\nof then", ["nobody", "is told", "of then"]),
    ("a foreign row; FOREIGN KEY, foreign keys", ["foreign"]),
    ("`catalog.lineage` and lineage() are names, lineage is a word", ["lineage"]),
    ("held, missing, restored", []),
])
def test_words(text: str, found: list[str]) -> None:
    """Whole words in any case, over the end of a line; names in code are none."""
    assert words_in(text) == found


@pytest.mark.parametrize(("name", "is_one"), [
    ("restore_rows", False), ("read_if_intact", False), ("need", False), ("feed_rows", False),
    ("_evolved", True), ("known", True), ("why_no_shard", True), ("quoted_table", True),
])
def test_participles(name: str, is_one: bool) -> None:
    """What begins with a participle or *why* is the name of a value."""
    assert is_participle(name) is is_one


@pytest.mark.parametrize(("text", "is_one"), [
    ("Return the rows.", True), ("Process a row.", True), ("``x`` is right.", False),
    ("The rows.", False), ("Whether it is.", False), ("Returns the rows.", False),
])
def test_imperatives(text: str, is_one: bool) -> None:
    """A first word that may be a verb, not a noun clause and not a third person."""
    assert is_imperative(text) is is_one


def test_each_word_has_one_sentence() -> None:
    """Every row of the glossary says in one sentence what the word means; none is there twice."""
    table = words.GLOSSARY.read_text(encoding="utf-8").partition("## Words we do not use")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    rows = [row for row in rows if row[0] != "word" and not row[0].startswith("-")]
    names = [name for row in rows for name in row[0].split(", ")]
    assert len(names) == len(set(names)) > 60
    assert [text for _, text in rows if not text.endswith(".") or ". " in text] == []
    assert [word for _, text in rows for word in words_in(text)] == []
