"""The lexer: Spark SQL text into tokens with their positions; comments and blanks are left out.

Only what the two grammars and the definition hash need: words, quoted names, strings, numbers and
operators. It never fails: text that cannot be a token becomes one of kind ``error``, so that a
grammar reports it with its place. A library's lexer is not used, because the tokens go into the
definition hash, which must not change with a library's version.

Blanks, comments and hints begin and end where those of Spark's lexer (``SqlBaseLexer.g4``) do.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

TokenKind = Literal["word", "quoted", "string", "number", "operator", "variable", "error", "end"]

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+)
  | (?P<line>--(?:\\\n|[^\r\n])*)
  | (?P<hint>/\*\+)
  | (?P<block>/\*)
  | (?P<string>[rR]'[^']*'|[rR]"[^"]*"
      |[xX]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<variable>\$\{[^}]*\})
  | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?:[bB][dD]|[lLsSyYdDfF])?(?!\w))
  | (?P<word>\w+)
  | (?P<broken>['"`])
  | (?P<operator>\*/|<=>|<=|>=|<>|!=|==|\|\||::|->|=>|\|>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_AS_WRITTEN: Mapping[str | None, TokenKind] = {
    "string": "string", "number": "number", "variable": "variable"
}
_BROKEN = {"`": "a name", "'": "a string", '"': "a string"}
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")
_LINE_END = re.compile("\r\n|\r|\n")
_DOUBLED = {
    "'": re.compile(r"\\.|''", re.DOTALL),
    '"': re.compile(r'\\.|""', re.DOTALL),
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {
    "0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"
}


class Token(NamedTuple):
    """One token: ``text`` as written, ``start`` and ``end`` as offsets into the source.

    ``value`` is what the definition hash takes: a word in lower case, a quoted name without its
    backticks, of an error what is wrong, else the text.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    value: str

    @property
    def keyword(self) -> str:
        """The word in upper case, as the grammars compare it; empty for anything else."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def is_string(self) -> bool:
        """Whether this is a text in quotes; ``X'1F'`` is bytes."""
        return self.kind == "string" and self.text[0] not in "xX"

    def is_word(self, *words: str) -> bool:
        """Return whether this is one of the given keywords (lower case), not a quoted name."""
        return self.kind == "word" and self.value in words

    def is_operator(self, *texts: str) -> bool:
        """Return whether this is one of the given operators or signs of punctuation."""
        return self.kind == "operator" and self.text in texts

    @property
    def is_name(self) -> bool:
        """Whether this may stand as a part of a name."""
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """The part of a name that this token spells, with its case."""
        return self.value if self.kind == "quoted" else self.text


def end_token(offset: int) -> Token:
    """Return what a grammar sees behind the last token."""
    return Token("end", "", offset, offset, "")


def tokenise(sql: str, *, hints: bool = False) -> list[Token]:
    """Return all tokens of ``sql`` in order, without a closing ``end`` token.

    With ``hints`` the tokens of hints are among them, between the operators ``/*+`` and ``*/``.
    """
    tokens: list[Token] = []
    hint: int | None = None  # the place among the tokens where the open hint begins
    add = tokens.append
    match_at = _TOKEN.match
    position, length = 0, len(sql)
    while position < length:
        match = match_at(sql, position)
        assert match is not None  # the operator alternative takes any character
        kind, end = match.lastgroup, match.end()
        if kind == "word":
            text = match[0]
            add(Token("word", text, position, end, text.lower()))
        elif kind == "operator":
            text = match[0]
            add(Token("operator", text, position, end, text))
            if text == "*/" and hint is not None:
                if not hints:
                    del tokens[hint:]
                hint = None
        elif kind == "hint":
            if hint is None:
                hint = len(tokens)
            add(Token("operator", match[0], position, end, match[0]))
        elif kind == "quoted":
            text = match[0]
            add(Token("quoted", text, position, end, text[1:-1].replace("``", "`")))
        elif kind == "block":
            closed = _comment_end(sql, position)
            if closed is None:
                add(Token("error", sql[position:], position, length, "a comment that never ends"))
                break
            end = closed
        elif kind == "broken":
            what = _BROKEN[match[0]]
            add(Token("error", sql[position:], position, length, f"{what} that never ends"))
            break
        elif kind in _AS_WRITTEN:
            text = match[0]
            value = text.lower() if kind == "number" else text
            add(Token(_AS_WRITTEN[kind], text, position, end, value))
        position = end
    if hint is not None:
        start = tokens[hint].start
        del tokens[hint:]
        add(Token("error", sql[start:], start, length, "a hint that never ends"))
    return tokens


def split_statements(tokens: Iterable[Token]) -> list[list[Token]]:
    """The tokens of each statement, without the ``;`` between them; empty ones are left out."""
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == ";" and token.kind == "operator":
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if group]


def _comment_end(sql: str, start: int) -> int | None:
    """Where the bracketed comment at ``start`` ends; they nest, as in Spark."""
    depth, position = 0, start
    while (edge := _COMMENT_EDGE.search(sql, position)) is not None:
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
        if depth == 0:
            return position
    return None


class LineIndex:
    """Offsets of one text into (line, column), both counted from 1.

    A line ends with CR, LF or both: a ``--`` comment ends there too.
    """

    __slots__ = ("_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of the character at ``offset``."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, offset: int) -> tuple[int, int]:
        """Where the line of ``offset`` begins and ends, without its line end."""
        line = bisect_right(self._starts, offset)
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        start = self._starts[line - 1]
        return start, start + len(self._text[start:end].rstrip("\r\n"))


def escape_doubled_quotes(sql: str) -> str:
    r"""Return the text with every doubled quote in a string escaped: ``'it\'s'`` for ``'it''s'``.

    Spark 4.0 reads ``'it''s'`` as two strings side by side, ``its``, in silence; the other
    spelling is one string to every version. Nothing else changes, and no character's place does.
    """
    if "''" not in sql and '""' not in sql:
        return sql
    pieces: list[str] = []
    position = 0
    for token in tokenise(sql):
        if token.is_string and token.text[0] not in "rR":
            quote = token.text[0]
            escaped = _DOUBLED[quote].sub(_with_backslash, token.text[1:-1])
            pieces += [sql[position : token.start], quote, escaped, quote]
            position = token.end
    return "".join([*pieces, sql[position:]])


def _with_backslash(found: re.Match[str]) -> str:
    """A doubled quote as an escaped one; an escape as it is."""
    return found[0] if found[0].startswith("\\") else f"\\{found[0][0]}"


def string_value(literal: str) -> str:
    """What a string literal stands for, by Spark's rules (escapes, doubled quotes, raw strings)."""
    if literal[0] in "rR":
        return literal[2:-1]
    return _joined_surrogates(_unescaped(literal))


def _unescaped(literal: str) -> str:
    quote, inner = literal[0], literal[1:-1].replace(literal[0] * 2, literal[0])
    if "\\" not in inner:
        return inner
    # doubled quotes must not be joined behind a backslash, so undo them piece by piece
    pieces: list[str] = []
    position, raw = 0, literal[1:-1]
    for match in _ESCAPE.finditer(raw):
        pieces.append(raw[position : match.start()].replace(quote * 2, quote))
        pieces.append(_unescape(match[1]))
        position = match.end()
    pieces.append(raw[position:].replace(quote * 2, quote))
    return "".join(pieces)


def _unescape(code: str) -> str:
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)


def _joined_surrogates(value: str) -> str:
    r"""Escapes such as ``\ud83d\ude00`` spell one character in two halves, as in Java."""
    if not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def has_lone_surrogate(value: str) -> bool:
    """Return whether a value holds half a character, which no store can keep."""
    return bool(_SURROGATE.search(value))


def string_literal(value: str) -> str:
    """Return a string literal for ``value``, such that :func:`string_value` returns it."""
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + "'"
