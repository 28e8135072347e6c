"""Columns and relations renamed in a text that stays as its author wrote it otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog_migrate.model.names import ItemName, quote_part, quote_sql
from catalog_migrate.sql.references import occurrences, splice
from catalog_migrate.sql.tokens import Token, tokenise
from catalog_migrate.users.column_changes import Key

_CLAUSES = frozenset({
    "select", "from", "where", "by", "having", "using", "values", "qualify", "limit", "view",
})  # fmt: skip
_AFTER_LIST = frozenset({
    "from", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
    "offset", "window", "qualify", "union", "except", "minus", "intersect", "lateral",
})  # fmt: skip
_AFTER_RELATION = _AFTER_LIST | {
    "on", "using", "join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti",
    "pivot", "unpivot", "tablesample", "for", "version", "timestamp", "select", "set", "with",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One part of a name, from ``start`` to ``end`` in the text, and the name that comes there.

    ``alias`` is what the column goes on being called, where it is an item of a select list.
    """

    start: int
    end: int
    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a name in a text: its folded name, its place, and whether it is the whole of an
    item of a select list, which then has no other name (``depth``: the brackets around that)."""

    name: str
    start: int
    end: int
    is_item: bool
    depth: int


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits done."""
    return splice(text, [
        (edit.start, edit.end, edit.name + (f" AS {edit.alias}" if edit.alias else ""))
        for edit in sorted(edits, key=lambda each: each.start)
    ])


def place_in(edits: Sequence[Edit], start: int, end: int) -> tuple[int, int]:
    """Where in the text is what is at these offsets once the edits are done."""
    shift = 0
    for edit in sorted(edits, key=lambda each: each.start):
        if edit.start + shift >= end:
            break
        length = len(edit.name) + (len(edit.alias) + 4 if edit.alias else 0)
        if start >= edit.start + shift + length:
            shift += length - (edit.end - edit.start)
            continue
        # the name that is looked for has it as a part
        end += edit.end - edit.start - length
    return start - shift, end - shift


def parts_of(text: str) -> Iterator[Part]:
    """Every part of a name in a text, in order."""
    tokens = tokenise(text)
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.is_operator("(") - token.is_operator(")")
        if token.is_name:
            yield Part(
                token.name.lower(), token.start, token.end, _is_item(tokens, at), depth
            )


def _is_item(tokens: Sequence[Token], at: int) -> bool:
    """Whether the name that ends at an index is an item of a select list, without an alias."""
    behind = tokens[at + 1] if at + 1 < len(tokens) else None
    if behind is not None and not (
        behind.is_operator(",", ")", "|>") or behind.is_word(*_AFTER_LIST)
    ):
        return False
    while at > 1 and tokens[at - 1].is_operator("."):
        at -= 2
    before = tokens[at - 1] if at else None
    if before is None or not (
        before.is_operator(",") or before.is_word("select", "distinct", "all")
    ):
        return False
    depth = 0
    for token in reversed(tokens[:at]):
        if token.is_operator(")", "]"):
            depth += 1
        elif token.is_operator("(", "["):
            if depth == 0:
                return False
            depth -= 1
        elif depth == 0 and token.is_word(*_CLAUSES):
            return token.is_word("select")
    return False


def spell(name: str, text: str) -> str:
    """A name as it comes in the place of ``text``: quoted where that is, or where it must be."""
    return quote_sql(name) if text.startswith("`") else quote_part(name)


def rename_relations(
    sql: str, renamed: Mapping[Key, ItemName], namespace: str, *, aliased: bool
) -> str:
    """The text with relations called by their new names.

    ``aliased``: one without an alias keeps its old bare name as one, and columns that are
    qualified with its schema are qualified with that.
    """
    tokens = tokenise(sql)
    by_end = {token.end: at for at, token in enumerate(tokens)}
    pieces: list[tuple[int, int, str | None]] = []
    taken: set[int] = set()
    for name in occurrences(tokens):
        if name.kind != "relation" or name.name is None:
            continue
        schema, bare = name.name
        new = renamed.get((schema or namespace.lower(), bare))
        taken.update(range(name.start, name.end))
        if new is None:
            continue
        text = ".".join(map(quote_part, new))
        at = by_end[name.end]
        if aliased and not _has_alias(tokens, at + 1) and not _is_table_query(tokens, name.start):
            text += f" AS {quote_part(name.parts[-1])}"
        pieces.append((name.start, name.end, text))
    if aliased:
        for at in range(len(tokens) - 3):
            first, dot, second, other = tokens[at : at + 4]
            if first.start not in taken and first.is_name and dot.is_operator(".") and (
                second.is_name and other.is_operator(".")
            ) and (first.name.lower(), second.name.lower()) in renamed:
                pieces.append((first.start, second.start, ""))
    return splice(sql, sorted(pieces))


def _has_alias(tokens: Sequence[Token], at: int) -> bool:
    if at >= len(tokens) or not tokens[at].is_name:
        return False
    return tokens[at].kind == "quoted" or not tokens[at].is_word(*_AFTER_RELATION)


def _is_table_query(tokens: Sequence[Token], start: int) -> bool:
    before = [token for token in tokens if token.end <= start][-1:]
    return bool(before) and before[0].is_word("table")


def name_items(sql: str, names: Mapping[int, str]) -> str | None:
    """The query with the columns at these positions called so; None where its select list does not
    say which they are."""
    tokens = tokenise(sql)
    items = _items(tokens)
    if items is None:
        return None
    pieces: list[tuple[int, int, str | None]] = []
    for position, name in sorted(names.items()):
        if position >= len(items):
            return None
        item = items[position]
        alias = quote_part(name)
        last = item[-1]
        if len(item) > 1 and last.is_name and not last.is_word("end", "null", "true", "false") and (
            item[-2].is_name or item[-2].is_operator(")") or item[-2].kind in ("number", "string")
        ):
            pieces.append((last.start, last.end, alias))
        else:
            pieces.append((last.end, last.end, f" AS {alias}"))
    return splice(sql, pieces)


def _items(tokens: Sequence[Token]) -> list[list[Token]] | None:
    """The items of the main select list; None where there is a ``*`` or another form of a query."""
    depth = 0
    items: list[list[Token]] | None = None
    for at, token in enumerate(tokens):
        depth += token.is_operator("(", "[") - token.is_operator(")", "]")
        if items is None:
            if depth == 0 and token.is_word("from", "table", "values"):
                return None
            if depth == 0 and token.is_word("select"):
                items = [[]]
            continue
        before = tokens[at - 1]
        if depth == 0 and token.is_operator(","):
            items.append([])
        elif depth == 0 and token.is_word(*_AFTER_LIST) and items[-1] and not (
            before.is_word("as") or before.is_operator(".")
        ):
            break
        elif items == [[]] and token.is_word("distinct", "all"):
            continue
        else:
            items[-1].append(token)
    if items is None or any(not item for item in items):
        return None
    if any(item[-1].is_operator("*") for item in items) or any(
        token.is_operator("|>") for token in tokens
    ):
        return None
    return items
