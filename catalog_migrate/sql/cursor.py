"""A cursor over the tokens of one statement, which remembers what it was asked for in vain.

Whatever the grammar tries at a place and does not find is noted, so that the error at this place
lists exactly what could have stood there without a list being kept anywhere by hand. Both grammars,
that of the statements and that of a release, read by it; each reports :class:`ParseError` in its
way.

An error says what cannot stand at an offset, with its place, source line and caret.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TypeVar

from catalog_migrate.errors import SyntaxProblem
from catalog_migrate.sql.tokens import LineIndex, Token, end_token, has_lone_surrogate, string_value

_SHOWN_WIDTH = 100
_LIKENESS = 0.6
_BEFORE_THE_KIND = frozenset({"EXPLAIN", "CREATE", "OR", "REPLACE", "ALTER"})


class ParseError(Exception):
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

    def problem(self, refused: ParseError, *, masked_from: int | None = None) -> SyntaxProblem:
        """Return the error for what a cursor refused.

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
        start, end = self._lines.span(offset)
        line = list(self.text[start:end])
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
    """What is unquoted behind AS in CREATE SECRET and ALTER SECRET, up to their end or to WITH
    behind the reference."""
    found: list[Token] = []
    words: list[str] = []
    is_quoted = is_over = False
    for token in tokens:
        if token.text == ";" or token.kind == "end":
            words.clear()
            is_quoted = is_over = False
        elif "AS" not in words or _first_kind(words) != "SECRET":
            words.append(token.keyword)
        elif token.is_string:
            is_quoted = True
        elif is_over or (is_quoted and token.keyword == "WITH"):
            is_over = True
        else:
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


_FOUND_WIDTH = 40
_NUMBERED = re.compile(r"\d+[A-Za-z]+\Z")
"""Names that the lexer takes for numbers with a suffix: ``2d``, ``5s``."""
_UNTOLD = "a word that is not shown"
Choice = TypeVar("Choice")


class Cursor:
    """The place reached in one statement of ``text``, whose ``tokens`` get an end behind them."""

    __slots__ = ("_expected", "at", "text", "tokens")

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        end = tokens[-1].end if tokens else len(text.rstrip())
        self.tokens = (*tokens, end_token(end))
        self.at = 0
        self._expected: list[str] = []

    # -- looking -------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """The token at the cursor."""
        return self.tokens[self.at]

    def peek(self, ahead: int) -> Token:
        """Return the token ``ahead`` of the cursor; behind the last one, the end again."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def sees(self, *words: str) -> bool:
        """Return whether these keywords come next; notes nothing."""
        at = self.at
        for word in words:
            token = self.tokens[at]
            if token.kind != "word" or token.text.upper() != word:
                return False
            at += 1  # a word is never the last token: that is the end
        return True

    def sees_mark(self, *marks: str) -> bool:
        """Return whether one of these signs comes next; notes nothing."""
        return self.token.is_operator(*marks)

    @property
    def ended(self) -> bool:
        """Whether the whole statement was read."""
        return self.token.kind == "end"

    # -- taking --------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Take the token at the cursor; the end stays where it is."""
        token = self.token
        if token.kind != "end":
            self.at += 1
        self._expected.clear()
        return token

    def accept(self, *words: str) -> bool:
        """Take these keywords if the first one comes next; then the others must follow."""
        if not self.sees(words[0]):
            self.note(" ".join(words))
            return False
        self.advance()
        for word in words[1:]:
            self.need(word)
        return True

    def need(self, *words: str) -> None:
        """Take these keywords or fail."""
        if not self.accept(*words):
            raise self.unexpected()

    def accept_mark(self, mark: str) -> bool:
        """Take this sign if it comes next."""
        if self.sees_mark(mark):
            self.advance()
            return True
        self.note(f"`{mark}`")
        return False

    def need_mark(self, mark: str, *, remedy: str | None = None) -> None:
        """Take this sign or fail."""
        if not self.accept_mark(mark):
            raise self.unexpected(remedy=remedy)

    def look(self, table: Mapping[str, Choice]) -> Choice | None:
        """Return what the table has for the keywords that come next, without taking them.

        A key of several words (``SSH TUNNEL``) stands for all of them.
        """
        key = self._key(table)
        if key is not None:
            return table[key]
        for words in table:
            self.note(words)
        return None

    def may_choose(self, table: Mapping[str, Choice]) -> Choice | None:
        """Take the keywords that come next if they are in the table; what the table has for them.
        """
        chosen = self.look(table)
        key = None if chosen is None else self._key(table)
        if key is not None:
            self.need(*key.split())
        return chosen

    def choose(self, table: Mapping[str, Choice]) -> Choice:
        """Take a keyword of the table or fail."""
        chosen = self.may_choose(table)
        if chosen is None:
            raise self.unexpected()
        return chosen

    def need_part(self, what: str) -> str:
        """Take one part of a name, with its case."""
        token = self.token
        name = token.name
        if not token.is_name and not (token.kind == "number" and _NUMBERED.match(name)):
            quoted = token.text[:1] in ('"', "[") and token.kind in ("string", "operator")
            raise self.unexpected(
                what, remedy="write the name in backticks: `name`" if quoted else None
            )
        if not name or has_lone_surrogate(name):
            raise self.problem("this is no name", remedy="write at least one whole character")
        self.advance()
        return name

    def need_string(self, what: str) -> str:
        """Take a string literal; what it stands for."""
        if not self.token.is_string:
            raise self.unexpected(f"{what} in quotes")
        value = string_value(self.token.text)
        if has_lone_surrogate(value):
            raise self.problem(
                "this text holds half a character", remedy="write both halves of the surrogate pair"
            )
        self.advance()
        return value

    def taken(self, start: int) -> str:
        """Return the source text from the token at ``start`` up to the cursor."""
        return self.text[self.tokens[start].start : self.tokens[self.at - 1].end]

    # -- failing -------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Remember what could stand at the cursor."""
        if what not in self._expected:
            self._expected.append(what)

    def unexpected(self, *what: str, remedy: str | None = None) -> ParseError:
        """The error for a token that cannot stand here; ``what`` adds to what was noted."""
        for entry in what:
            self.note(entry)
        return self.expected(*self._expected, remedy=remedy)

    def expected(self, *what: str, remedy: str | None = None) -> ParseError:
        """The error for a token that cannot stand here, where ``what`` says it all."""
        token = self.token
        if token.kind == "error":
            return self.problem(token.value, remedy="close it")
        found = self._found(token)
        nearest = None if found == _UNTOLD else nearest_keyword(token, what)
        message = f"expected {one_of(what)}, found {found}"
        if nearest is not None:
            message += f"; did you mean {nearest}?"
        return ParseError(
            token.start, message, expected=what, found=found, nearest=nearest, remedy=remedy
        )

    def problem(
        self, message: str, *, token: Token | None = None, remedy: str | None = None
    ) -> ParseError:
        """Return the error for a token that is wrong for a reason of its own."""
        at = self.token if token is None else token
        return ParseError(at.start, message, found=self._found(at), remedy=remedy)

    def need_end(self) -> None:
        """Fail unless the whole statement was read."""
        if not self.ended:
            raise self.unexpected("the end of the statement")

    def _key(self, table: Mapping[str, object]) -> str | None:
        """The table's key that comes next."""
        if self.token.keyword in table:
            return self.token.keyword
        return next((key for key in table if " " in key and self.sees(*key.split())), None)

    def _found(self, token: Token) -> str:
        if token.kind == "end":
            return "the end of the statement"
        if token.kind == "string":
            return "a text in quotes"
        if is_secret(self.tokens, self.tokens.index(token)):
            return _UNTOLD
        text = token.text
        return repr(text if len(text) <= _FOUND_WIDTH else text[:_FOUND_WIDTH] + "…")
