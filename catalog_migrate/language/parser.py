"""Text to statements, by recursive descent over tables of keywords.

Every error is a :class:`~catalog_migrate.errors.SyntaxProblem` with its place in the whole text; a
text with an error gives no statement at all, so that nothing of it is ever carried out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from catalog_migrate.language import clauses
from catalog_migrate.language.alteration import alter
from catalog_migrate.language.creation import create
from catalog_migrate.language.cursor import Cursor
from catalog_migrate.language.recognition import is_ours
from catalog_migrate.language.source import Source
from catalog_migrate.language.statements import (
    Comment,
    Drop,
    Explain,
    Explainable,
    Pause,
    Resume,
    Show,
    ShowCreate,
    Statement,
    ValidateConnection,
)
from catalog_migrate.language.tokens import Token, Untokenisable, tokenise
from catalog_migrate.language.vocabulary import KINDS, LISTINGS, QUERY_KINDS

__all__ = ["Parsed", "is_ours", "parse", "parse_one"]


class Parsed(msgspec.Struct, frozen=True):
    """One statement, the offset at which it starts, and its text without the closing ``;``."""

    statement: Statement
    start: int
    text: str


def parse(text: str) -> tuple[Parsed, ...]:
    """All statements of a text, separated by ``;``; comments and empty statements are left out.

    Raises :class:`SyntaxProblem` for the first place that no statement can have.
    """
    source, tokens = _read(text)
    return tuple(_parsed(source, group) for group in _statements(tokens, text))


def parse_one(text: str) -> Statement:
    """The one statement of a text.

    Raises :class:`SyntaxProblem` also when there is none, or more than one.
    """
    source, tokens = _read(text)
    groups = list(_statements(tokens, text))
    if not groups:
        return _statement(Cursor(source, [_end(len(text.rstrip()))]))
    if len(groups) > 1:
        raise source.problem(
            groups[1][0].start, "only one statement can stand here",
            remedy="send the statements one by one",
        )
    return _parsed(source, groups[0]).statement


def _read(text: str) -> tuple[Source, list[Token]]:
    try:
        tokens = tokenise(text)
    except Untokenisable as error:
        quote = re.search("['\"]", text)
        masked_from = error.offset if quote is None else min(quote.start(), error.offset)
        raise Source(text).problem(
            error.offset, error.message, remedy="close it", masked_from=masked_from
        ) from error
    return Source(text, tokens), tokens


def _statements(tokens: Sequence[Token], text: str) -> Iterator[list[Token]]:
    """The tokens of each statement, closed by a token of kind ``end``."""
    group: list[Token] = []
    for token in [*tokens, _end(len(text))]:
        if token.kind != "end" and token.text != ";":
            group.append(token)
        elif group:
            yield [*group, _end(group[-1].end)]
            group = []


def _end(offset: int) -> Token:
    return Token("end", "", offset, offset, "")


def _parsed(source: Source, tokens: Sequence[Token]) -> Parsed:
    cursor = Cursor(source, tokens)
    statement = _statement(cursor)
    cursor.need_end()
    start, end = tokens[0].start, tokens[-2].end
    return Parsed(statement, start, source.text[start:end])


def _statement(cursor: Cursor) -> Statement:
    if cursor.accept("EXPLAIN"):
        return Explain(cursor.choose(_STATEMENTS)(cursor))
    return cursor.choose(_STATEMENTS)(cursor)


def _drop(cursor: Cursor) -> Drop:
    kind = cursor.choose(KINDS)
    if_exists = clauses.if_exists(cursor)
    name = clauses.item_name(cursor, f"a {kind}")
    cascade = cursor.may_choose({"RESTRICT": False, "CASCADE": True})
    return Drop(kind, name, if_exists, bool(cascade))


def _show(cursor: Cursor) -> Show | ShowCreate:
    if cursor.accept("CREATE"):
        kind = cursor.choose(KINDS)
        return ShowCreate(kind, clauses.item_name(cursor, f"a {kind}"))
    return Show(cursor.choose(LISTINGS))


def _validate(cursor: Cursor) -> ValidateConnection:
    cursor.need("CONNECTION")
    return ValidateConnection(clauses.item_name(cursor, "a connection"))


def _comment(cursor: Cursor) -> Comment:
    cursor.need("ON")
    kind = cursor.choose(KINDS)
    name = clauses.item_name(cursor, f"a {kind}")
    cursor.need("IS")
    text = None if cursor.accept("NULL") else cursor.need_string("a comment")
    return Comment(kind, name, text)


def _held(statement: type[Pause] | type[Resume]) -> Callable[[Cursor], Explainable]:
    """PAUSE and RESUME read alike."""

    def read(cursor: Cursor) -> Explainable:
        kind = cursor.choose(QUERY_KINDS)
        name = clauses.item_name(cursor, f"a {kind}")
        reason = cursor.need_string("a reason") if cursor.accept("REASON") else None
        return statement(kind, name, reason)

    return read


_STATEMENTS: Mapping[str, Callable[[Cursor], Explainable]] = {
    "CREATE": create,
    "ALTER": alter,
    "DROP": _drop,
    "SHOW": _show,
    "VALIDATE": _validate,
    "COMMENT": _comment,
    "PAUSE": _held(Pause),
    "RESUME": _held(Resume),
}
