"""How many columns a query gives, told from its text where that is possible."""

from __future__ import annotations

from catalog_migrate.sql.tokens import Token, tokenise

_ENDS_LIST = frozenset({
    "from", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
    "offset", "window", "qualify", "union", "except", "minus", "intersect", "lateral",
})
_RESERVED = frozenset({"from", "where", "having", "union", "except", "intersect"})
"""Those that never name a column without backticks."""
_TAKES_BY = frozenset({"group", "order", "sort", "cluster", "distribute"})
_GENERATORS = frozenset({
    "inline", "inline_outer", "stack", "explode", "explode_outer", "posexplode",
    "posexplode_outer", "json_tuple", "parse_url_tuple", "variant_explode", "transform",
})


def count_select_items(sql: str) -> int | None:
    """The length of the main SELECT list; None where only an analyser can tell (``*``, generators).
    """
    tokens = tokenise(sql)
    start = _main_select(tokens)
    if start is None:
        return None
    depth = 0
    items = 1
    first = True
    for position in range(start, len(tokens)):
        token = tokens[position]
        if depth == 0 and first and token.is_word("distinct", "all"):
            continue
        if token.kind == "operator":
            if token.text in "([{":
                depth += 1
            elif token.text in ")]}":
                depth -= 1
                if depth < 0:
                    break
            elif token.text == "|>":
                return None
            elif depth == 0 and token.text == ",":
                items += 1
                first = True
                continue
            elif depth == 0 and token.text == "*" and (
                first or tokens[position - 1].is_operator(".")
            ):
                return None
        elif depth == 0 and token.kind == "word":
            if _ends_list(tokens, position, first=first):
                break
            if first and token.value in _GENERATORS and position + 1 < len(tokens) and (
                tokens[position + 1].is_operator("(")
            ):
                return None
        first = False
    return items


def _ends_list(tokens: list[Token], position: int, *, first: bool) -> bool:
    """Whether the word at ``position`` opens the next clause; most of these may be names too."""
    token = tokens[position]
    if token.value not in _ENDS_LIST:
        return False
    if token.value in _RESERVED:
        return True
    if first or tokens[position - 1].is_word("as") or tokens[position - 1].is_operator("."):
        return False
    if token.value in _TAKES_BY:
        return position + 1 < len(tokens) and tokens[position + 1].is_word("by")
    return True


def has_star(sql: str) -> bool:
    """Whether any SELECT list of the query holds ``*`` or ``t.*``."""
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


def _main_select(tokens: list[Token]) -> int | None:
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
