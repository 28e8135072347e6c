"""Tokens of a text with their places, from sqlglot's tokenizer for Spark.

sqlglot's keyword table is left out: it swallows the rest of a statement behind SHOW and EXPLAIN and
joins words such as ORDER BY, while here every word is told apart by the grammar. Strings are read
from the source by the rules of :mod:`catalog_migrate.sql.tokens`, as in a release.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from catalog_migrate.sql.tokens import string_value
from catalog_migrate.sql.tokens import tokenise as tokenise_release

if TYPE_CHECKING:
    from sqlglot.tokens import Tokenizer

TokenKind = Literal["word", "quoted", "string", "number", "mark", "other", "end"]

_WORD = re.compile(r"\w+\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Token(NamedTuple):
    """One token: ``text`` as written, ``start`` and ``end`` as offsets into the source.

    ``value`` is a word in upper case, a quoted name without its backticks, what a string stands
    for, else the text. A ``mark`` is punctuation; ``other`` is what no statement may hold.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    value: str

    @property
    def is_part(self) -> bool:
        """Whether this may stand as a part of a name."""
        return self.kind in ("word", "quoted")

    @property
    def part(self) -> str:
        """The part of a name that this token spells, with its case."""
        return self.value if self.kind == "quoted" else self.text


class Untokenisable(Exception):
    """A text that breaks off inside a string, a quoted name or a comment."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


@cache
def _tokenizer_class() -> type[Tokenizer]:
    from sqlglot.dialects.spark import Spark

    class StatementTokenizer(Spark.Tokenizer):
        KEYWORDS = {}  # noqa: RUF012 - the base class declares it so
        COMMANDS = set()  # noqa: RUF012
        NUMERIC_LITERALS = {}  # noqa: RUF012 - 10s is one bare word, not a number and a type

    return StatementTokenizer


def tokenise(text: str) -> list[Token]:
    """All tokens of ``text`` in order; comments and blanks are left out.

    Raises :class:`Untokenisable` when a string, a quoted name or a comment never ends.
    """
    from sqlglot import TokenType
    from sqlglot.errors import TokenError

    kinds: dict[TokenType, TokenKind] = {
        TokenType.VAR: "word",
        TokenType.IDENTIFIER: "quoted",
        TokenType.STRING: "string",
        TokenType.RAW_STRING: "string",
        TokenType.NUMBER: "number",
    }
    try:
        raw = _tokenizer_class()(dialect="spark").tokenize(text)
    except TokenError as error:
        raise _unfinished(text) from error
    tokens: list[Token] = []
    for item in raw:
        start, end = item.start, item.end + 1
        kind = kinds.get(item.token_type)
        if kind == "string" and tokens and _doubles_a_quote(tokens[-1], text, start):
            start = tokens.pop().start
        written = text[start:end]
        if kind is None:
            kind = "mark" if len(written) == 1 else "other"
        elif kind == "word" and not _WORD.match(written):
            kind = "other"
        tokens.append(Token(kind, written, start, end, _value(kind, written, item.text)))
    return tokens


def _value(kind: TokenKind, written: str, unquoted: str) -> str:
    if kind == "word":
        return written.upper()
    if kind == "quoted":
        return unquoted
    if kind == "string":
        return _joined_surrogates(string_value(written))
    return written


def _doubles_a_quote(before: Token, text: str, start: int) -> bool:
    """Whether a string that starts here continues the one before: ``'it''s'`` is one string."""
    return (
        before.kind == "string"
        and before.end == start
        and before.text[0] == text[start]
        and text[start] in "'\""
    )


def _joined_surrogates(value: str) -> str:
    r"""Escapes such as ``\ud83d\ude00`` spell one character in two halves, as in Java."""
    if not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def has_lone_surrogate(value: str) -> bool:
    """Whether a value holds half a character, which no store can keep."""
    return bool(_SURROGATE.search(value))


def _unfinished(text: str) -> Untokenisable:
    """The place where what never ends begins; sqlglot's error does not tell."""
    for token in tokenise_release(text):
        if token.kind == "error":
            return Untokenisable(token.value, token.start)
    return Untokenisable("something that never ends", len(text))
