"""A cursor over the tokens of one statement, which remembers what it was asked for in vain.

Whatever the grammar tries at a place and does not find is noted, so that the error at this place
lists exactly what could have stood there without a list being kept anywhere by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from catalog_migrate.errors import SyntaxProblem
from catalog_migrate.language.source import Source, is_secret, nearest_keyword, one_of
from catalog_migrate.language.tokens import Token, has_lone_surrogate

_FOUND_WIDTH = 40
_UNTOLD = "a word that is not shown"
Choice = TypeVar("Choice")


class Cursor:
    """The place reached in one statement; ``tokens`` ends with a token of kind ``end``."""

    __slots__ = ("_expected", "at", "source", "tokens")

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
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
        return all(
            self.peek(n).kind == "word" and self.peek(n).value == word
            for n, word in enumerate(words)
        )

    def sees_mark(self, *marks: str) -> bool:
        """Whether one of these signs comes next; notes nothing."""
        return self.token.kind == "mark" and self.token.text in marks

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
        """What the table has for the keyword that comes next, without taking it."""
        if self.token.kind == "word" and self.token.value in table:
            return table[self.token.value]
        for word in table:
            self.note(word)
        return None

    def may_choose(self, table: Mapping[str, Choice]) -> Choice | None:
        """Take the keyword that comes next if it is in the table; what the table has for it."""
        chosen = self.look(table)
        if chosen is not None:
            self.advance()
        return chosen

    def choose(self, table: Mapping[str, Choice]) -> Choice:
        """Take a keyword of the table or fail."""
        chosen = self.may_choose(table)
        if chosen is None:
            raise self.unexpected()
        return chosen

    def need_part(self, what: str) -> str:
        """Take one part of a name, with its case."""
        if not self.token.is_part:
            raise self.unexpected(what)
        if not self.token.part or has_lone_surrogate(self.token.part):
            raise self.problem("this is no name", remedy="write at least one whole character")
        return self.advance().part

    def need_string(self, what: str) -> str:
        """Take a string literal; what it stands for."""
        if self.token.kind != "string":
            raise self.unexpected(f"{what} in quotes")
        if has_lone_surrogate(self.token.value):
            raise self.problem(
                "this text holds half a character", remedy="write both halves of the surrogate pair"
            )
        return self.advance().value

    # -- failing -------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Remember what could stand at the cursor."""
        if what not in self._expected:
            self._expected.append(what)

    def unexpected(self, *what: str, remedy: str | None = None) -> SyntaxProblem:
        """The error for a token that cannot stand here; ``what`` adds to what was noted."""
        for entry in what:
            self.note(entry)
        token, expected = self.token, tuple(self._expected)
        found = self._found(token)
        nearest = None if found == _UNTOLD else nearest_keyword(token, expected)
        message = f"expected {one_of(expected)}, found {found}"
        if nearest is not None:
            message += f"; did you mean {nearest}?"
        return self.source.problem(
            token.start, message, expected=expected, found=found, nearest=nearest, remedy=remedy
        )

    def problem(
        self, message: str, *, token: Token | None = None, remedy: str | None = None
    ) -> SyntaxProblem:
        """The error for a token that is wrong for a reason of its own."""
        at = self.token if token is None else token
        return self.source.problem(at.start, message, found=self._found(at), remedy=remedy)

    def need_end(self) -> None:
        """Fail unless the whole statement was read."""
        if not self.ended:
            raise self.unexpected("the end of the statement")

    def _found(self, token: Token) -> str:
        if token.kind == "end":
            return "the end of the statement"
        if token.kind == "string":
            return "a text in quotes"
        if is_secret(self.tokens, self.tokens.index(token)):
            return _UNTOLD
        text = token.text
        return repr(text if len(text) <= _FOUND_WIDTH else text[:_FOUND_WIDTH] + "…")
