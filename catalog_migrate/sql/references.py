"""What a SQL text names: relations, functions and types, found on tokens and rewritten in place.

Working on tokens rather than on a tree keeps the text as its author wrote it, costs a fraction of
a parse, and does not refuse Spark SQL that a parser library does not know yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from catalog_migrate.sql.tokens import Token, string_value, tokenise

NameKind = Literal["relation", "function", "type"]
Name = tuple[str | None, str]
"""(schema or None, name), folded."""

_ENDS_FROM = frozenset({
    "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset",
    "window", "qualify", "union", "except", "minus", "intersect", "select",
})
_NOT_CALLS = frozenset({
    "in", "as", "on", "using", "values", "and", "or", "not", "over", "by", "when", "then", "else",
    "select", "from", "where", "join", "exists", "with", "distinct", "all", "any", "some", "case",
    "between", "like", "rlike", "ilike", "cast", "try_cast", "filter", "group", "is", "having",
})
_SET_OPERATORS = ("union", "except", "minus", "intersect")
_QUERIES = ("select", "with", "from", "table", "values", "map", "reduce")
"""The first words of a query."""
_CASTS = frozenset({"cast", "try_cast", "safe_cast"})


class References(NamedTuple):
    """Names that a text uses, folded; the schema is None where none was written.

    ``functions`` holds every call, built-in functions included: only the reader knows which names
    are the release's own. The same goes for bare names in ``types``.
    """

    relations: frozenset[Name]
    functions: frozenset[Name]
    types: frozenset[Name]


class Occurrence(NamedTuple):
    """One name in a text: its parts as written and the offsets that it spans."""

    kind: NameKind
    parts: tuple[str, ...]
    start: int
    end: int

    @property
    def name(self) -> Name | None:
        """(schema or None, name) folded; None for a name in a foreign catalog (three parts)."""
        parts = self.parts
        if len(parts) == 3 and parts[0].lower() == "spark_catalog":
            parts = parts[1:]
        if len(parts) > 2:
            return None
        schema = parts[0].lower() if len(parts) == 2 else None
        return schema, parts[-1].lower()


class _Frame:
    """What is known of one level of parentheses while the tokens go by."""

    __slots__ = (
        "awaits", "cast", "ctes", "has_query", "in_from", "in_values", "owner", "recursive",
        "started", "with_",
    )

    def __init__(self, *, awaits: bool = False, cast: bool = False, owner: str | None = None):
        self.awaits = awaits  # the next name is a relation
        self.in_from = awaits
        self.in_values = False  # in the rows of VALUES in a FROM, before its alias
        self.has_query = False
        self.started = False
        self.with_ = False  # inside the list of a WITH, before its main query
        self.recursive = False
        self.ctes: set[str] = set()
        self.cast = cast
        self.owner = owner  # the common table expression whose body this is


def references(sql: str) -> References:
    """Relations, functions and types that a query or expression names."""
    found: dict[NameKind, set[Name]] = {"relation": set(), "function": set(), "type": set()}
    for occurrence in occurrences(tokenise(sql)):
        name = occurrence.name
        if name is not None:
            found[occurrence.kind].add(name)
    return References(
        frozenset(found["relation"]), frozenset(found["function"]), frozenset(found["type"])
    )


def type_names(text: str) -> list[Occurrence]:
    """Return every name in the text of a type that may be a user's type (field names left out)."""
    tokens = tokenise(text)
    return _type_occurrences(tokens, 0, len(tokens))


def read_names(sql: str) -> tuple[list[Occurrence], bool]:
    """Return all names of a text as of :func:`occurrences`, and whether it may have no others.

    It may where these tokens are not Spark's (a string by other rules, a variable) and where only
    a session knows what a name is (names in double quotes, ``IDENTIFIER`` of an expression).
    """
    tokens = tokenise(sql)
    unread: list[int] = []
    found = occurrences(tokens, unread)
    return found, not unread


def occurrences(tokens: Sequence[Token], unread: list[int] | None = None) -> list[Occurrence]:
    """Return all names of relations, functions and types in the order of the text.

    ``unread`` takes the index of each token that may be a name, or a part of one, and is not read.
    """
    found: list[Occurrence] = []
    frames = [_Frame()]
    index, count = 0, len(tokens)
    while index < count:
        token = tokens[index]
        frame = frames[-1]
        if unread is not None and _is_unread(tokens, index, frame):
            unread.append(index)
        if token.kind == "operator":
            index = _operator(tokens, index, frames, found)
            continue
        if not token.is_name:
            frame.started = True
            frame.awaits = False
            index += 1
            continue
        if token.kind == "word" and (skip := _keyword(tokens, index, frame)):
            index += skip
            continue
        index = _name(tokens, index, frames, found)
    return found


def _is_unread(tokens: Sequence[Token], index: int, frame: _Frame) -> bool:
    """Whether the token at ``index`` may be a name, or hide one, that no occurrence has."""
    token = tokens[index]
    if token.kind in ("error", "variable"):
        return True
    if token.kind == "operator":
        return token.text == "\\"  # Spark's strings have ended elsewhere
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if token.kind == "string":
        return frame.awaits or (
            token.text[0] == '"' and following is not None and following.is_operator(".", "(")
        )
    return (
        token.is_word("identifier") and following is not None and following.is_operator("(")
        and _identifier_clause(tokens, index) is None
    )


def _operator(
    tokens: Sequence[Token], index: int, frames: list[_Frame], found: list[Occurrence]
) -> int:
    """Punctuation: levels open and close, a comma in FROM awaits a relation, ``::`` casts."""
    token, frame = tokens[index], frames[-1]
    if token.text == "(":
        before = tokens[index - 1] if index else None
        cast = before is not None and before.kind == "word" and before.value in _CASTS
        owner = _body_of(tokens, index) if frame.with_ else None
        awaits = frame.awaits
        frame.awaits = False
        frame.started = True
        frames.append(_Frame(awaits=awaits, cast=cast, owner=owner))
        if owner is not None and frame.recursive:
            frame.ctes.add(owner)
    elif token.text == ")":
        if len(frames) > 1:
            closed = frames.pop()
            if closed.owner is not None:
                frames[-1].ctes.add(closed.owner)
    elif token.text == ",":
        frame.awaits = frame.in_from
    elif token.text == "|>":
        frame.in_from = frame.awaits = False
    elif token.text == "::":
        end = _type_end(tokens, index + 1)
        found.extend(_type_occurrences(tokens, index + 1, end))
        return max(end, index + 1)
    return index + 1


def _body_of(tokens: Sequence[Token], index: int) -> str | None:
    """The name of the common table expression whose body opens at ``index``, else None."""
    back = index - 1
    if tokens[back].is_word("as"):
        back -= 1
    elif not (
        index + 2 < len(tokens) and tokens[index + 1].is_word(*_QUERIES)
        and not tokens[index + 2].is_operator(",", ")")
    ):
        return None  # a list of columns
    if back > 3 and tokens[back - 1].is_word("level"):
        back -= 4  # MAX RECURSION LEVEL number
    spelt = _identifier_clause(tokens, back - 3) if back > 3 else None
    if spelt is not None:
        return spelt[0][-1].lower()
    if tokens[back].is_operator(")"):
        depth = 0
        while back >= 0:
            depth += tokens[back].is_operator(")") - tokens[back].is_operator("(")
            back -= 1
            if depth == 0:
                break
    return tokens[back].name.lower() if back >= 0 and tokens[back].is_name else None


def _keyword(tokens: Sequence[Token], index: int, frame: _Frame) -> int:
    """How many tokens a keyword that steers the scan takes; 0 when the word is just a name."""
    word = tokens[index].value
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if frame.in_values and index and (word == "as" or _ends_value(tokens[index - 1])):
        frame.in_values, frame.in_from = False, True
    enter = _ENTERS.get(word)
    if enter is not None and (taken := enter(tokens, index, frame)):
        return taken
    if word in _ENDS_FROM and not (following is None or following.is_operator(".", ",", ")")):
        frame.started = True
        frame.in_from = frame.awaits = False
        if word == "select":
            frame.has_query = True
            frame.with_ = False
        return 1
    return int(word == "as" and frame.cast and following is not None)


def _ends_value(token: Token) -> bool:
    return token.is_operator(")") or token.is_string or token.kind == "number"


def _enter_from(tokens: Sequence[Token], index: int, frame: _Frame) -> int:
    distinct = index >= 2 and tokens[index - 1].is_word("distinct") and (
        tokens[index - 2].is_word("is", "not")
    )
    if (frame.has_query or not frame.started) and not distinct:
        frame.in_from = frame.awaits = frame.started = frame.has_query = True
        frame.with_ = False
    return 1


def _enter_join(_tokens: Sequence[Token], _index: int, frame: _Frame) -> int:
    frame.in_from = frame.awaits = True
    return 1


def _enter_with(tokens: Sequence[Token], index: int, frame: _Frame) -> int:
    if frame.started:
        return 0
    frame.with_ = frame.started = True
    frame.awaits = frame.in_from = False
    frame.recursive = index + 1 < len(tokens) and tokens[index + 1].is_word("recursive")
    return 2 if frame.recursive else 1


def _enter_lateral(tokens: Sequence[Token], index: int, frame: _Frame) -> int:
    if index + 1 < len(tokens) and tokens[index + 1].is_word("view"):
        frame.in_from = frame.awaits = False
        return 2
    return 1


def _enter_table(tokens: Sequence[Token], index: int, frame: _Frame) -> int:
    if not _is_table_query(tokens, index, frame):
        return 0
    frame.started = frame.awaits = True
    frame.with_ = False
    return 1


def _enter_values(_tokens: Sequence[Token], _index: int, frame: _Frame) -> int:
    if frame.started and not frame.awaits:
        return 0
    frame.started = True
    frame.in_values = frame.in_from
    frame.in_from = frame.awaits = False
    return 1


_ENTERS: Mapping[str, Callable[[Sequence[Token], int, _Frame], int]] = {
    "from": _enter_from, "join": _enter_join, "with": _enter_with, "lateral": _enter_lateral,
    "table": _enter_table, "values": _enter_values,
}
"""What a keyword changes of its level; how many tokens it takes, 0 where it is just a name."""


def _is_table_query(tokens: Sequence[Token], index: int, frame: _Frame) -> bool:
    """Whether TABLE at ``index`` makes what follows a query, or an argument of a function."""
    if index + 1 >= len(tokens):
        return False
    before = tokens[index - 1] if index else None
    if tokens[index + 1].is_operator("("):
        return before is not None and before.is_operator("(", ",", "=>") and not frame.has_query
    if not tokens[index + 1].is_name:
        return False
    if not frame.started or frame.awaits or before is None:
        return True
    if before.is_word("all", "distinct") and index > 1:
        before = tokens[index - 2]
    return before.is_word(*_SET_OPERATORS) or (frame.with_ and before.is_operator(")"))


def _name(
    tokens: Sequence[Token], index: int, frames: list[_Frame], found: list[Occurrence]
) -> int:
    """Take a dotted name; record it as a relation, a call or a type where it is one."""
    frame = frames[-1]
    frame.started = True
    if frame.cast and _is_behind_as(tokens, index):
        end = _type_end(tokens, index)
        found.extend(_type_occurrences(tokens, index, end))
        return max(end, index + 1)
    spelt = _identifier_clause(tokens, index)
    parts, end = _dotted(tokens, index) if spelt is None else spelt
    awaited, frame.awaits = frame.awaits, False
    bare = parts[0].lower() if len(parts) == 1 else None
    kind: NameKind | None = None
    if end < len(tokens) and tokens[end].is_operator("("):
        is_keyword = spelt is None and tokens[index].kind == "word" and bare in _NOT_CALLS
        is_cte = frame.with_ and bare is not None
        is_name = is_keyword or is_cte or _is_behind_as(tokens, index)
        kind = None if is_name else "function"
    elif awaited and not any(bare in level.ctes for level in frames):
        kind = "relation"
    if kind is not None:
        found.append(Occurrence(kind, parts, tokens[index].start, tokens[end - 1].end))
    return end


def _is_behind_as(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].is_word("as")


def _identifier_clause(
    tokens: Sequence[Token], index: int
) -> tuple[tuple[str, ...], int] | None:
    """The parts of the name that ``IDENTIFIER('s' || '.t').u`` spells, and the index behind it.

    None where this is no such clause, or where only a session knows what it spells.
    """
    if not tokens[index].is_word("identifier") or not (
        index + 1 < len(tokens) and tokens[index + 1].is_operator("(")
    ):
        return None
    spelt, end = _constant(tokens, index + 2)
    if spelt is None or end >= len(tokens) or not tokens[end].is_operator(")"):
        return None
    name = tokenise(spelt)
    if not name or not name[0].is_name:
        return None
    parts, behind = _dotted(name, 0)
    if behind != len(name):
        return None
    end += 1
    if end + 1 < len(tokens) and tokens[end].is_operator(".") and tokens[end + 1].is_name:
        more, end = _dotted(tokens, end + 1)
        parts += more
    return parts, end


def _constant(tokens: Sequence[Token], index: int) -> tuple[str | None, int]:
    """The text that constants at ``index`` make together (side by side, by ``||`` or concat), and
    the index behind them."""
    spelt = ""
    while True:
        piece, index = _piece(tokens, index)
        if piece is None:
            return None, index
        spelt += piece
        if index >= len(tokens) or not tokens[index].is_operator("||"):
            return spelt, index
        index += 1


def _piece(tokens: Sequence[Token], index: int) -> tuple[str | None, int]:
    """The text of strings side by side, of CONCAT or of a constant in brackets."""
    strings = [*takewhile(lambda token: token.is_string, tokens[index:])]
    if strings:
        spelt = "".join(string_value(token.text) for token in strings)
        return spelt, index + len(strings)
    called = index < len(tokens) and tokens[index].is_word("concat")
    index += called
    if index >= len(tokens) or not tokens[index].is_operator("("):
        return None, index
    piece, index = _constant(tokens, index + 1)
    while called and piece is not None and index < len(tokens) and tokens[index].is_operator(","):
        more, index = _constant(tokens, index + 1)
        piece = None if more is None else piece + more
    if index >= len(tokens) or not tokens[index].is_operator(")"):
        return None, index
    return piece, index + 1


def _dotted(tokens: Sequence[Token], index: int) -> tuple[tuple[str, ...], int]:
    """The parts of the dotted name at ``index`` and the index behind it."""
    parts = [tokens[index].name]
    index += 1
    while (
        index + 1 < len(tokens) and tokens[index].is_operator(".") and tokens[index + 1].is_name
    ):
        parts.append(tokens[index + 1].name)
        index += 2
    return tuple(parts), index


def _type_end(tokens: Sequence[Token], index: int) -> int:
    """The index behind the type that starts at ``index``."""
    _, index = _dotted(tokens, index) if index < len(tokens) else ((), index)
    depth = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text in ("<", "(") and token.kind == "operator":
            depth += 1
        elif token.text in (">", ")") and token.kind == "operator":
            if depth == 0:
                break
            depth -= 1
            if depth == 0:
                return index + 1
        elif depth == 0:
            break
        index += 1
    return index


def _type_occurrences(tokens: Sequence[Token], index: int, end: int) -> list[Occurrence]:
    found: list[Occurrence] = []
    while index < end:
        token = tokens[index]
        if not token.is_name or token.is_word("not", "null", "comment"):
            index += 1
            continue
        parts, behind = _dotted(tokens, index)
        before = tokens[index - 1].text if index else ""
        following = tokens[behind] if behind < end else None
        is_field = following is not None and (
            following.is_operator(":") or (before in ("<", ",") and following.is_name
                                           and not following.is_word("not", "comment"))
        )
        if not is_field:
            found.append(Occurrence("type", parts, token.start, tokens[behind - 1].end))
        index = behind
    return found


def rewrite(sql: str, replace: Callable[[Occurrence], str | None], *, as_type: bool = False) -> str:
    """``sql`` with names replaced where ``replace`` gives a text; everything else stays.

    ``as_type``: the text is a type, not a query or expression.
    """
    names = type_names(sql) if as_type else occurrences(tokenise(sql))
    return splice(sql, ((name.start, name.end, replace(name)) for name in names))


def splice(text: str, pieces: Iterable[tuple[int, int, str | None]]) -> str:
    """``text`` with each (start, end, replacement) done, None meaning as it was; ascending."""
    result: list[str] = []
    position = 0
    for start, end, replacement in pieces:
        if replacement is not None:
            result += (text[position:start], replacement)
            position = end
    return "".join((*result, text[position:])) if result else text


def whole_relation(sql: str) -> tuple[str, str] | None:
    """The relation that a query takes every row of, once: folded (schema, name).

    None where that is not plain from the text: it selects columns from one relation, and that is
    all that it does.
    """
    tokens = tokenise(sql)
    found = occurrences(tokens)
    if [name.kind for name in found] != ["relation"] or not tokens[0].is_word("select"):
        return None
    schema, bare = found[0].name or (None, "")
    if schema is None or tokens[1].is_word("distinct"):
        return None
    before = (token.text for token in tokens if token.end <= found[0].start)
    behind = [token for token in tokens if token.start >= found[0].end]
    plain = {"(", "|>"}.isdisjoint(before)
    return (schema, bare) if plain and _is_alias(behind) else None


def _is_alias(tokens: Sequence[Token]) -> bool:
    """Whether there is an alias, or nothing."""
    return all(token.is_name for token in tokens) and (
        sum(not token.is_word("as") for token in tokens) < 2
    )


# -- how many columns a query gives ----------------------------------------------------------------

ENDS_LIST = frozenset({
    "from", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
    "offset", "window", "qualify", "union", "except", "minus", "intersect", "lateral",
})
"""Words behind a SELECT list; most of them may be names too."""
_RESERVED = frozenset({"from", "where", "having", "union", "except", "intersect"})
"""Those that never name a column without backticks."""
TAKES_BY = frozenset({"group", "order", "sort", "cluster", "distribute"})
"""Those of them that BY follows."""
_GENERATORS = frozenset({
    "inline", "inline_outer", "stack", "explode", "explode_outer", "posexplode",
    "posexplode_outer", "json_tuple", "parse_url_tuple", "variant_explode", "transform",
})


_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


def count_select_items(sql: str) -> int | None:
    """The length of the main SELECT list; None where only an analyser can tell (``*``, generators)
    and where a comma is too much.
    """
    items = list_select_items(tokenise(sql))
    if items is None or any(
        item[0].kind == "word" and item[0].value in _GENERATORS
        and len(item) > 1 and item[1].is_operator("(")
        for item in items
    ):
        return None
    return len(items)


def list_select_items(tokens: Sequence[Token]) -> list[list[Token]] | None:
    """The tokens of each item of the main SELECT list; None where it has a ``*``, in other forms
    of a query, and where a comma is too much.
    """
    start = _main_select(tokens)
    depth = 0
    items: list[list[Token]] = [[]]
    for position in range(len(tokens) if start is None else start, len(tokens)):
        token, item = tokens[position], items[-1]
        sign = token.text if token.kind == "operator" else ""
        if sign == "|>" or (sign == "*" and depth == 0 and (not item or item[-1].text == ".")):
            return None
        if depth == 0:
            if sign == ",":
                items.append([])
                continue
            if not item and token.is_word("distinct", "all"):
                continue
            if sign in _CLOSING or (
                token.kind == "word" and _ends_list(tokens, position, first=not item)
            ):
                break
        depth += (sign in _OPENING) - (sign in _CLOSING)
        item.append(token)
    return items if all(items) else None


def _ends_list(tokens: Sequence[Token], position: int, *, first: bool) -> bool:
    """Whether the word at ``position`` opens the next clause; most of these may be names too."""
    token = tokens[position]
    if token.value not in ENDS_LIST:
        return False
    if token.value in _RESERVED:
        return True
    if first or tokens[position - 1].is_word("as") or tokens[position - 1].is_operator("."):
        return False
    if token.value in TAKES_BY:
        return position + 1 < len(tokens) and tokens[position + 1].is_word("by")
    return True


def has_star(sql: str) -> bool:
    """Return whether any SELECT list of the query holds ``*`` or ``t.*``."""
    tokens = tokenise(sql)
    for position, token in enumerate(tokens):
        if not token.is_operator("*") or position == 0:
            continue
        before = tokens[position - 1]
        if before.is_operator(".") or before.is_word("select", "distinct", "all"):
            return True
        if before.is_operator(",") and (
            position + 1 == len(tokens) or tokens[position + 1].is_operator(",")
            or tokens[position + 1].is_word("from", "except")
        ):
            return True
    return False


def _main_select(tokens: Sequence[Token]) -> int | None:
    """The index behind the first SELECT outside parentheses; None for other forms of queries."""
    depth = 0
    for position, token in enumerate(tokens):
        if token.is_operator("("):
            depth += 1
        elif token.is_operator(")"):
            depth -= 1
        elif depth == 0 and token.is_word("from", "table", "values"):
            return None
        elif depth == 0 and token.is_word("select"):
            return position + 1
    return None
