"""Whether a text is a statement of this language or one for Spark, from its first words alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from catalog_migrate.language.vocabulary import KINDS, LISTINGS

_BLANK = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z))+")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"\w+")
_LOOKED_AT = 5
_LIKENESS = 0.85

_OBJECTS: Mapping[str, frozenset[str]] = {
    "CREATE": frozenset(KINDS),
    "ALTER": frozenset(KINDS),
    "DROP": frozenset(KINDS),
    "VALIDATE": frozenset({"CONNECTION"}),
    "PAUSE": frozenset(KINDS),
    "RESUME": frozenset(KINDS),
    "SHOW": frozenset(LISTINGS),
    "COMMENT": frozenset(KINDS),
}
_ONLY_OURS = frozenset({"VALIDATE", "PAUSE", "RESUME"})
"""First words that begin no statement of Spark."""


def is_ours(text: str) -> bool:
    """Whether the first words make the text a statement of this language.

    A misspelt object (``ALTER CONECTION``) counts as ours, so that its error comes from here and
    names the word meant; so does a text that ends before its object. Nothing else is looked at.
    """
    words = _first_words(text)
    if words[:1] == ["EXPLAIN"]:
        words = words[1:]
    if not words or words[0] not in _OBJECTS:
        return False
    verb, rest = words[0], words[1:]
    if verb in _ONLY_OURS:
        return True
    objects = _OBJECTS[verb]
    if verb == "CREATE" and rest[:2] == ["OR", "REPLACE"]:
        rest = rest[2:]
    elif verb == "SHOW" and rest[:1] == ["CREATE"]:
        rest, objects = rest[1:], frozenset(KINDS)
    elif verb == "COMMENT" and rest[:1] == ["ON"]:
        rest = rest[1:]
    return not rest or bool(difflib.get_close_matches(rest[0], objects, 1, _LIKENESS))


def _first_words(text: str) -> list[str]:
    """The words at the start, in upper case, up to the first other sign."""
    words: list[str] = []
    position = 0
    while len(words) < _LOOKED_AT:
        position = _behind_blanks(text, position)
        match = _WORD.match(text, position)
        if match is None:
            break
        words.append(match[0].upper())
        position = match.end()
        if text[position : position + 1] == ";":
            break
    return words


def _behind_blanks(text: str, position: int) -> int:
    """Where the next token starts: behind blanks and comments, which nest as in Spark."""
    while True:
        start = position
        if (blank := _BLANK.match(text, position)) is not None:
            position = blank.end()
        if text.startswith("/*", position):
            depth = 0
            for edge in _COMMENT_EDGE.finditer(text, position):
                depth += 1 if edge[0] == "/*" else -1
                if depth == 0:
                    position = edge.end()
                    break
            else:
                return len(text)
        if position == start:
            return position
