"""What the definition hash is made of: a text without what Spark takes no notice of.

Left out are blanks and comments; folded are keywords, and the names of functions and relations,
which Spark looks up without case. Everything else is kept as written: the case of an alias or of a
field can be read in a value (``to_json(struct(id AS userId))``), that of a column in the name of a
result. A hint decides the plan, so it counts.

Nearly every keyword of Spark is a name too (``SELECT end FROM t``). A word is folded only where it
can be nothing but the keyword; where that is hard to see it keeps its case, and a text that differs
in nothing else counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.references import Name, Occurrence, occurrences
from catalog_migrate.sql.tokens import Token, end_token, tokenise

_BEHIND_ALIAS = frozenset({
    "from", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset",
    "window", "qualify", "union", "except", "minus", "intersect", "join", "inner", "left", "right",
    "full", "cross", "natural", "semi", "anti", "on", "using", "lateral", "pivot", "unpivot",
    "tablesample", "as", "then", "when", "else", "end",
})
"""Words that may follow an alias: before one of them a keyword may be an alias itself."""
_BETWEEN_OPERANDS = frozenset({
    "and", "or", "in", "like", "ilike", "rlike", "between", "from", "where", "having", "on",
    "limit", "as", "over", "join",
})
_FOLLOWED_BY = {
    "is": frozenset({"not", "null", "true", "false", "unknown", "distinct"}),
    "group": frozenset({"by"}),
    "order": frozenset({"by"}),
    "partition": frozenset({"by"}),
    "left": frozenset({"join", "outer", "semi", "anti"}),
    "right": frozenset({"join", "outer"}),
    "full": frozenset({"join", "outer"}),
    "inner": frozenset({"join"}),
    "cross": frozenset({"join"}),
    "outer": frozenset({"join"}),
    "union": frozenset({"all", "distinct", "select"}),
    "except": frozenset({"all", "distinct", "select"}),
    "intersect": frozenset({"all", "distinct", "select"}),
    "lateral": frozenset({"view"}),
}
_BEHIND = {
    "by": frozenset({"group", "order", "partition"}),
    "view": frozenset({"lateral"}),
    "when": frozenset({"case"}),
}
_SET_WORDS = frozenset({"union", "except", "intersect"})
_LITERALS = frozenset({"null", "true", "false"})
_CASTS = frozenset({"cast", "try_cast"})
_PRIMITIVES = frozenset({
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "timestamp_ltz", "variant",
})
_PLACES = frozenset({
    "delta", "parquet", "orc", "csv", "json", "text", "avro", "xml", "binaryfile", "iceberg",
})
"""Formats: what follows them in FROM is a path, whose case counts."""


def normalised_tokens(sql: str) -> tuple[str, ...]:
    """The tokens of a text that Spark reads alike only if they are the same.

    A relation becomes one token, folded and quoted, so that ``s.t`` and `` `s`.`T` `` are the same.
    """
    return tuple(_normalised(tokenise(sql, hints=True)))


def _normalised(tokens: Sequence[Token]) -> Iterator[str]:
    plain = list(_without_hints(tokens))
    names = {name.start: name for name in occurrences(plain) if name.kind != "type"}
    words = _Words(plain)
    at = 0
    hint = False
    folded_to = 0
    for token in tokens:
        if _is(token, "/*+"):
            hint = True
        if hint:
            yield token.text
            hint = not _is(token, "*/")
            continue
        name = names.get(token.start)
        if token.start < folded_to:
            pass  # a part of a relation's name
        elif name is not None and name.kind == "relation" and (key := _looked_up(name)):
            yield ".".join(f"`{part}`" for part in key if part)
            folded_to = name.end
            words.before, words.behind_operand = "", True
        else:
            yield words.fold(at, name)
        at += 1


def _without_hints(tokens: Sequence[Token]) -> Iterator[Token]:
    hint = False
    for token in tokens:
        hint = hint or _is(token, "/*+")
        if not hint:
            yield token
        elif _is(token, "*/"):
            hint = False


def _is(token: Token, text: str) -> bool:
    return token.kind == "operator" and token.text == text


def _is_word(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.value in words


def _looked_up(name: Occurrence) -> Name | None:
    """The folded name of a relation of a catalog; None for a path, whose case counts."""
    parts = name.parts
    key = (None, parts[0].lower()) if len(parts) == 1 else (
        (parts[0].lower(), parts[1].lower()) if len(parts) == 2 else name.name
    )
    plain = key is not None and key[0] not in _PLACES and all(
        part.isascii() and part.replace("_", "a").isalnum() for part in name.parts
    )
    return key if plain else None


class _Frame:
    """One level of parentheses: the word before it, how many CASEs are open in it."""

    __slots__ = ("cases", "opener")

    def __init__(self, opener: str) -> None:
        self.opener = opener
        self.cases = 0


class _Words:
    """Goes over the tokens once, and knows at each whether an operand has just ended."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.frames = [_Frame("")]
        self.behind_operand = False
        self.function_to = 0  # where the name of a function ends
        self.before = ""  # the keyword before, if it is one; an operator's text

    def fold(self, at: int, name: Occurrence | None) -> str:
        """The text that stands for the token at ``at``; call it for each of them in order."""
        token = self.tokens[at]
        if token.kind == "word":
            return self._word(at, token, name)
        before, self.before = self.before, ""
        if token.kind == "operator":
            self._operator(at, token)
            return token.text
        if name is not None and name.kind == "function" and not self.behind_operand:
            self.function_to = name.end
        self.behind_operand = True
        if token.kind == "quoted":
            folded = token.start < self.function_to and before != "as"
            return quote_sql(token.value.lower() if folded else token.value)
        return token.value

    def _operator(self, at: int, token: Token) -> None:
        self.before = token.text
        self.behind_operand = token.text in (")", "]", "?") or (
            token.text == "*" and not self.behind_operand  # all columns, no product
        )
        if token.text == "(":
            word = self.tokens[at - 1] if at else None
            self.frames.append(_Frame(word.value if word and word.kind == "word" else ""))
        elif token.text == ")" and len(self.frames) > 1:
            self.frames.pop()

    def _word(self, at: int, token: Token, name: Occurrence | None) -> str:
        keyword = self._is_keyword(at, token)
        before, behind_operand = self.before, self.behind_operand
        self.before = token.value if keyword or token.value == "return" else ""
        self.behind_operand = not self.before or token.value in (*_LITERALS, "end")
        if keyword:
            return token.value
        if name is not None and name.kind == "function" and not behind_operand and before != "as":
            self.function_to = name.end
        if token.start < self.function_to or self._is_type(at, token, before):
            return token.value
        return token.text

    def _is_type(self, at: int, token: Token, before: str) -> bool:
        """Whether this is a plain type of a cast; the names of fields keep their case."""
        return token.value in _PRIMITIVES and (
            before == "::"
            or (before == "as" and self.frames[-1].opener in _CASTS
                and self._following(at).text in (")", "("))
        )

    def _following(self, at: int) -> Token:
        return self.tokens[at + 1] if at + 1 < len(self.tokens) else end_token(0)

    def _is_keyword(self, at: int, token: Token) -> bool:
        word, following = token.value, self._following(at)
        if following.text in (".", ":", "->", "=>") or self.before in (".", ":"):
            return False
        if self.before == "as":  # an alias, but for a cast's type, which is no keyword either
            return False
        begins = following.kind in ("quoted", "number", "string") or following.text == "(" or (
            following.kind == "word" and following.value not in _BEHIND_ALIAS
        )
        if self.behind_operand:
            return self._is_between(word, following, begins)
        if word in _BEHIND:
            return self.before in _BEHIND[word]
        if word in ("partition", "order", "with"):
            return self._opens_list(at, word, following)
        return word in _LITERALS or self._opens_operand(at, word, following, begins)

    def _is_between(self, word: str, following: Token, begins: bool) -> bool:
        """Whether a word behind an operand is no alias of it."""
        frame = self.frames[-1]
        if frame.cases and word in ("when", "then", "else", "end"):
            frame.cases -= word == "end"
            return True
        if word in _FOLLOWED_BY:
            return following.kind == "word" and following.value in _FOLLOWED_BY[word]
        if word == "not":
            return _is_word(following, "in", "like", "ilike", "rlike", "between")
        if word == "using":
            return following.text == "("
        if word == "select":
            return self.before == ")" and (begins or following.text == "*")
        return word in _BETWEEN_OPERANDS and (
            begins or following.text in ("-", "+", "~")
            or (word in ("and", "or") and _is_word(following, "case", "not"))
        )

    def _opens_operand(self, at: int, word: str, following: Token, begins: bool) -> bool:
        """Whether a word that could be an operand itself stands before one."""
        if word == "select":
            return (begins or following.text in ("*", "-", "+")) and (
                self.before in ("", "(", "|>", "all", "distinct", "return", *_SET_WORDS)
            )
        if word == "case":
            if (begins or _is_word(following, "when")) and self._is_closed(at):
                self.frames[-1].cases += 1
                return True
            return False
        if word in ("all", "distinct"):
            return begins and self.before in ("select", "(", *_SET_WORDS)
        if word in ("join", "outer", "semi", "anti"):
            return begins or _is_word(following, "join")
        return begins and word in ("not", "exists", *_CASTS)

    def _opens_list(self, at: int, word: str, following: Token) -> bool:
        """Whether what OVER ( has, or common table expressions, follow."""
        third = self.tokens[at + 2] if at + 2 < len(self.tokens) else end_token(0)
        if word == "with":
            return following.kind in ("word", "quoted") and self.before in ("", "(", "return") and (
                _is_word(third, "as") or _is(third, "(")
            )
        return _is_word(following, "by") and self.before == "(" and third.kind != "end" and (
            third.text not in (",", ")")
        )

    def _is_closed(self, at: int) -> bool:
        """Whether WHEN, THEN and END follow a CASE on its own level."""
        depth = 0
        wanted = ["end", "then", "when"]
        for token in self.tokens[at + 1 :]:
            if token.text in ("(", "[", "{"):
                depth += 1
            elif token.text in (")", "]", "}"):
                depth -= 1
                if depth < 0:
                    break
            elif depth == 0 and _is_word(token, wanted[-1]):
                wanted.pop()
                if not wanted:
                    return True
        return False
