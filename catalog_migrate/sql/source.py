"""Errors of a text: what cannot stand at an offset, with its place, source line and caret."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Sequence

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.sql.tokens import LineIndex, Token

_SHOWN_WIDTH = 100
_LIKENESS = 0.6
_BEFORE_THE_KIND = frozenset({"EXPLAIN", "CREATE", "OR", "REPLACE", "ALTER"})


class SyntaxProblem(CatalogMigrateError, ValueError):
    """A text that is no statement of the language, with the place and what could stand there.

    ``line`` and ``column`` count from 1; ``source_line`` is that line with what stands in quotes
    masked (it may be a password) and ``caret`` the mark to print under it. ``expected`` lists what
    could stand there, ``found`` says what does, ``nearest`` is the keyword that was likely meant.
    """

    code = "CM0700"
    exit_code = 64

    def __init__(
        self, message: str, *, line: int, column: int, source_line: str = "", caret: str = "",
        expected: Sequence[str] = (), found: str = "", nearest: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(
            message, remedy=remedy, line=line, column=column, source_line=source_line, caret=caret,
            expected=tuple(expected), found=found, nearest=nearest,
        )
        self.line = line
        self.column = column
        self.source_line = source_line
        self.caret = caret
        self.expected = tuple(expected)
        self.found = found
        self.nearest = nearest

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}\n    {self.source_line}\n    {self.caret}"
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


class Refused(Exception):
    """What cannot stand at an offset: why, what could stand there, and what does."""

    def __init__(
        self, offset: int, message: str, *, expected: Sequence[str] = (), found: str = "",
        nearest: str | None = None, remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.offset, self.message, self.remedy = offset, message, remedy
        self.expected, self.found, self.nearest = expected, found, nearest


class Source:
    """The text that is parsed; ``tokens`` are all of its tokens, needed to mask its strings."""

    __slots__ = ("_lines", "_masked", "text")

    def __init__(self, text: str, tokens: Sequence[Token] = ()) -> None:
        self.text = text
        self._lines = LineIndex(text)
        # without the quotes around them
        self._masked = [(t.start + 1, t.end - 1) for t in tokens if t.kind == "string"]
        self._masked += [(t.start, t.end) for t in _behind_as_of_secrets(tokens)]

    def problem(self, refused: Refused, *, masked_from: int | None = None) -> SyntaxProblem:
        """The error for what a cursor refused.

        Text from ``masked_from`` on is masked too: where a quote is missing, nobody can tell what
        was meant to stand in quotes.
        """
        line, column = self._lines.place(refused.offset)
        source_line, caret = self._excerpt(refused.offset, masked_from)
        return SyntaxProblem(
            f"line {line}, column {column}: {refused.message}", line=line, column=column,
            source_line=source_line, caret=caret, expected=refused.expected, found=refused.found,
            nearest=refused.nearest, remedy=refused.remedy,
        )

    def _excerpt(self, offset: int, masked_from: int | None) -> tuple[str, str]:
        """The line of ``offset``, cut to a window around it, and the caret to put under it."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        line = list(self.text[start:end].rstrip("\r"))
        spans = list(self._masked)
        if masked_from is not None:
            spans.append((masked_from + 1, len(self.text)))
        for span_start, span_end in spans:
            for at in range(max(span_start, start), min(span_end, start + len(line))):
                line[at - start] = "*"
        place = min(offset - start, len(line))
        first = max(0, min(place - _SHOWN_WIDTH // 2, len(line) - _SHOWN_WIDTH))
        shown = [_printable(char) for char in line[first : first + _SHOWN_WIDTH]]
        before = "…" * (first > 0) + "".join(shown[: place - first])
        pad = "".join("\t" if char == "\t" else " " * _width(char) for char in before)
        after = "".join(shown[place - first :]) + "…" * (first + _SHOWN_WIDTH < len(line))
        return before + after, pad + "^"


def is_secret(tokens: Sequence[Token], at: int) -> bool:
    """Whether the token at ``at`` may be a secret's value that was written without quotes."""
    return not tokens[at].is_string and tokens[at] in _behind_as_of_secrets(tokens[: at + 1])


def _behind_as_of_secrets(tokens: Sequence[Token]) -> list[Token]:
    """What stands unquoted behind AS in CREATE SECRET and ALTER SECRET, up to their end."""
    found: list[Token] = []
    words: list[str] = []
    for token in tokens:
        if token.text == ";" or token.kind == "end":
            words.clear()
        elif "AS" not in words or _first_kind(words) != "SECRET":
            words.append(token.keyword)
        elif not token.is_string:
            found.append(token)
    return found


def _first_kind(words: Sequence[str]) -> str:
    """What a statement is about: an option of a source may be a SECRET, too."""
    return next((word for word in words if word not in _BEFORE_THE_KIND), "")


def _printable(char: str) -> str:
    """Control characters would move the caret or the terminal."""
    return char if char == "\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _width(char: str) -> int:
    """Cells of a terminal that a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def nearest_keyword(found: Token, expected: Sequence[str]) -> str | None:
    """The expected keyword that the token is most like, None when it is like none of them."""
    if not found.keyword:
        return None
    first_words = {entry.split()[0]: entry for entry in expected if entry.isupper()}
    near = difflib.get_close_matches(found.keyword, list(first_words), 1, _LIKENESS)
    return first_words[near[0]] if near else None


def one_of(expected: Sequence[str]) -> str:
    """``A, B or C``."""
    if len(expected) < 2:
        return "".join(expected)
    return ", ".join(expected[:-1]) + " or " + expected[-1]
