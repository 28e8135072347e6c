"""Whether a query's plans have to be compared at all: by its tokens, so that hundreds of views cost
no analysis. It may ask for too many; what it lets pass, the comparison finds to be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from catalog_migrate.sql.references import occurrences
from catalog_migrate.sql.tokens import Token, string_value, tokenise
from catalog_migrate.users.column_changes import ShapeChange, ShapeChanges
from catalog_migrate.users.plan_columns import TYPE_DEPENDENT

_COLLECTS = frozenset({
    "distinct", "union", "except", "minus", "intersect", "pivot", "unpivot", "transform", "map",
    "reduce", "group", "using", "having", "qualify", "values",
})
"""Words with which columns that ``*`` takes along may be looked at."""
_ENDS_BARE = _COLLECTS | {"order", "sort", "cluster", "distribute", "natural", "lateral", "window"}
"""Words with which an item of the select list may be looked at elsewhere."""

_BEFORE_BRACKETS = frozenset({
    "over", "filter", "in", "exists", "and", "or", "not", "on", "using", "where", "when", "then",
    "else", "within", "select", "union", "except", "minus", "intersect", "all", "like", "having",
    "tablesample", "lateral", "join", "from", "is", "between", "as", "limit", "any", "some",
})
"""Words behind a relation or a bracket that are no alias."""


def needs_plans(
    sql: str, changes: ShapeChanges, outputs: Sequence[str] | None = None
) -> bool:
    """Return whether :func:`~catalog_migrate.users.meaning.compare_plans` may find a difference.

    ``sql`` reads the relations of ``changes`` and binds before and after them; ``outputs`` as
    there: None is a query whose columns are taken by position.
    """
    some = [change for change in changes.values() if change]
    if not some:
        return False
    tokens = tokenise(sql)
    return (
        not tokens or any(change.rows for change in some) or _is_unclear(tokens)
        or _names_changed(tokens, some, outputs) or _takes_changed(tokens, some, outputs)
        or _depends_on_type(tokens, {
            name: column.manner for change in some for name, column in change.retyped.items()
        })
    )


def _names_changed(
    tokens: Sequence[Token], some: Sequence[ShapeChange], outputs: Sequence[str] | None
) -> bool:
    """Whether a name is in the text that means another column, or may be given twice by ``*``."""
    names = {name for change in some for name in change.names | change.meaning}
    if any(_spelt(token) in names for token in tokens):
        return True
    return not names.isdisjoint(map(str.lower, outputs or ())) and _has_star(tokens)


def _takes_changed(
    tokens: Sequence[Token], some: Sequence[ShapeChange], outputs: Sequence[str] | None
) -> bool:
    """Whether other columns come, or in another order, where they are taken together."""
    if not any(change.names or change.moved or change.meaning for change in some):
        return False
    if _takes_all(tokens, by_position=outputs is None):
        return True
    return any(change.meaning or change.passed for change in some) and _has_star(tokens)


def _spelt(token: Token) -> str:
    """The name that a token may be, folded; of a string too: a session may take it for a name."""
    if token.is_name:
        return token.name.lower()
    return string_value(token.text).lower() if token.is_string else ""


def _is_unclear(tokens: Sequence[Token]) -> bool:
    return any(
        token.kind in ("error", "variable") or token.is_word("identifier", "recursive", "natural")
        for token in tokens
    )


def _stars(tokens: Sequence[Token]) -> list[int]:
    """Where ``*`` is, or ``t.*``, and not a product or ``count(*)``."""
    found = []
    for at, token in enumerate(tokens):
        if not token.is_operator("*") or at == 0:
            continue
        before = tokens[at - 1]
        if not (before.is_operator("(", ",", ".") or before.is_word("select", "distinct", "all")):
            continue
        if before.is_operator("(") and tokens[at - 2].is_word("count") and (
            at + 1 < len(tokens) and tokens[at + 1].is_operator(")")
        ):
            continue
        found.append(at)
    return found


def _whole_relations(tokens: Sequence[Token]) -> bool:
    """Whether all columns are taken without ``*``: TABLE t, a query that begins with FROM, pipes,
    and relations whose columns are given names by position."""
    ends = {name.end for name in occurrences(tokens) if name.kind == "relation"}
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        if token.is_operator("|>") or token.is_word("table"):
            return True
        if token.is_word("from") and (before is None or before.is_operator("(")):
            return True
        if before is not None and (before.end in ends or before.is_operator(")")) and (
            _names_columns(tokens, at)
        ):
            return True
    return False


def _names_columns(tokens: Sequence[Token], at: int) -> bool:
    """Whether ``[AS] t(`` is at an index, or the end of a common table expression's list."""
    at += tokens[at].is_word("as")
    if at >= len(tokens):
        return False
    if tokens[at].is_operator("("):
        return tokens[at - 1].is_word("as")
    return (
        tokens[at].is_name and not tokens[at].is_word(*_BEFORE_BRACKETS)
        and at + 1 < len(tokens) and tokens[at + 1].is_operator("(")
    )


def _has_star(tokens: Sequence[Token]) -> bool:
    return bool(_stars(tokens)) or _whole_relations(tokens)


def _takes_all(tokens: Sequence[Token], *, by_position: bool) -> bool:
    """Whether something may look at columns that are taken together."""
    stars = _stars(tokens)
    if not stars and not _whole_relations(tokens):
        return False
    if by_position or any(token.is_word(*_COLLECTS) for token in tokens):
        return True
    if _orders_by_place(tokens) or _whole_relations(tokens):
        return True
    return any(_is_argument(tokens, at) for at in stars)


def _orders_by_place(tokens: Sequence[Token]) -> bool:
    """Whether something is ordered by the number of a column, or by ALL."""
    if not any(token.is_word("by") for token in tokens):
        return False
    return any(
        (token.kind == "number" and at and (
            tokens[at - 1].is_word("by") or tokens[at - 1].is_operator(",")
        ))
        or token.is_word("all")
        for at, token in enumerate(tokens)
    )


def _is_argument(tokens: Sequence[Token], star: int) -> bool:
    """Whether the ``*`` at an index is in the arguments of a function."""
    depth = 0
    for at in range(star - 1, -1, -1):
        if tokens[at].is_operator(")"):
            depth += 1
        elif tokens[at].is_operator("("):
            if depth == 0:
                return at > 0 and not tokens[at + 1].is_word("select")
            depth -= 1
        elif depth == 0 and tokens[at].is_word("select"):
            return False
    return False


def _depends_on_type(tokens: Sequence[Token], manners: Mapping[str, str]) -> bool:
    """Whether a retyped column is more than passed on, where that may matter."""
    named = {name for token in tokens if (name := _spelt(token)) in manners}
    strict = any(manners[name] != "whole" for name in named)
    if any(manner == "whole" for manner in manners.values()) and any(
        token.is_word(*TYPE_DEPENDENT) for token in tokens
    ):
        return True
    if any(manner != "whole" for manner in manners.values()) and (
        _takes_all(tokens, by_position=False)
    ):
        return True
    return strict and not _only_passed_on(tokens, {n for n in named if manners[n] != "whole"})


def _only_passed_on(tokens: Sequence[Token], names: set[str]) -> bool:
    """Whether each of ``names`` is nothing but an item of the one select list of the query."""
    if sum(token.is_word("select") for token in tokens) != 1 or not tokens[0].is_word("select"):
        return False
    if any(token.is_word(*_ENDS_BARE) for token in tokens):
        return False
    spelt = Counter(map(_spelt, tokens))
    passed = [
        column for item in _select_items(tokens)
        if (column := _match_passed_column(item)) is not None and column[0] in names
    ]
    if any(alias != name and spelt[alias] > 1 for name, alias in passed):
        return False
    return len(passed) == sum(spelt[name] for name in names)


def _select_items(tokens: Sequence[Token]) -> list[list[Token]]:
    """The items of the select list that a text begins with."""
    end = next((at for at, token in enumerate(tokens) if token.is_word("from")), len(tokens))
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[1:end]:
        depth += token.is_operator("(", "[") - token.is_operator(")", "]")
        if depth == 0 and token.is_operator(","):
            items.append([])
        else:
            items[-1].append(token)
    return items


def _match_passed_column(item: Sequence[Token]) -> tuple[str, str] | None:
    """(column, alias) of an item that passes a column on: ``[[s.]t.]c [[AS] alias]``."""
    at = 0
    while at + 2 < len(item) and item[at].is_name and item[at + 1].is_operator("."):
        at += 2
    if at >= len(item) or not item[at].is_name:
        return None
    column = item[at].name.lower()
    rest = [token for token in item[at + 1 :] if not token.is_word("as")]
    if not rest:
        return column, column
    if len(rest) == 1 and rest[0].is_name:
        return column, rest[0].name.lower()
    return None
