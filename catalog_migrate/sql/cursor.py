"""A cursor over the tokens of one statement, which remembers what it was asked for in vain.

Whatever the grammar tries at a place and does not find is noted, so that the error at this place
lists exactly what could have stood there without a list being kept anywhere by hand. Both grammars,
that of the statements and that of a release, read by it; each reports :class:`Refused` in its way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from catalog_migrate.sql.source import Refused, is_secret, nearest_keyword, one_of
from catalog_migrate.sql.tokens import Token, end_token, has_lone_surrogate, string_value

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
        """The token ``ahead`` of the cursor; behind the last one, the end again."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def sees(self, *words: str) -> bool:
        """Whether these keywords come next; notes nothing."""
        at = self.at
        for word in words:
            token = self.tokens[at]
            if token.kind != "word" or token.text.upper() != word:
                return False
            at += 1  # a word is never the last token: that is the end
        return True

    def sees_mark(self, *marks: str) -> bool:
        """Whether one of these signs comes next; notes nothing."""
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

    def need_mark(self, mark: str) -> None:
        """Take this sign or fail."""
        if not self.accept_mark(mark):
            raise self.unexpected()

    def look(self, table: Mapping[str, Choice]) -> Choice | None:
        """What the table has for the keywords that come next, without taking them.

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
            raise self.unexpected(what)
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
        """The source text from the token at ``start`` up to the cursor."""
        return self.text[self.tokens[start].start : self.tokens[self.at - 1].end]

    # -- failing -------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Remember what could stand at the cursor."""
        if what not in self._expected:
            self._expected.append(what)

    def unexpected(self, *what: str, remedy: str | None = None) -> Refused:
        """The error for a token that cannot stand here; ``what`` adds to what was noted."""
        for entry in what:
            self.note(entry)
        return self.expected(*self._expected, remedy=remedy)

    def expected(self, *what: str, remedy: str | None = None) -> Refused:
        """The error for a token that cannot stand here, where ``what`` says it all."""
        token = self.token
        if token.kind == "error":
            return self.problem(token.value, remedy="close it")
        found = self._found(token)
        nearest = None if found == _UNTOLD else nearest_keyword(token, what)
        message = f"expected {one_of(what)}, found {found}"
        if nearest is not None:
            message += f"; did you mean {nearest}?"
        return Refused(
            token.start, message, expected=what, found=found, nearest=nearest, remedy=remedy
        )

    def problem(
        self, message: str, *, token: Token | None = None, remedy: str | None = None
    ) -> Refused:
        """The error for a token that is wrong for a reason of its own."""
        at = self.token if token is None else token
        return Refused(at.start, message, found=self._found(at), remedy=remedy)

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
