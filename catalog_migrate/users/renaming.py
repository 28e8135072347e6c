"""Columns and relations renamed in a text that stays as its author wrote it otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog_migrate.model.names import ItemName, quote_part, quote_sql
from catalog_migrate.sql.references import ENDS_LIST, list_select_items, occurrences, splice
from catalog_migrate.sql.substitution import Piece, behind_clauses, has_alias, is_whole
from catalog_migrate.sql.tokens import Token, tokenise
from catalog_migrate.users.column_changes import Key

_CLAUSES = frozenset({
    "select", "from", "where", "by", "having", "using", "values", "qualify", "limit", "view",
})  # fmt: skip


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


def pieces_of(edits: Sequence[Edit]) -> list[Piece]:
    """What the edits put into the text."""
    return [
        (edit.start, edit.end, edit.name + (f" AS {edit.alias}" if edit.alias else ""))
        for edit in sorted(edits, key=lambda each: each.start)
    ]


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
        behind.is_operator(",", ")", "|>") or behind.is_word(*ENDS_LIST)
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
    by_start = {token.start: at for at, token in enumerate(tokens)}
    by_end = {token.end: at for at, token in enumerate(tokens)}
    pieces: list[Piece] = []
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
        pieces.append((name.start, name.end, text))
        behind = behind_clauses(tokens, by_end[name.end] + 1)
        if aliased and not has_alias(tokens, behind) and not is_whole(tokens, by_start[name.start]):
            end = tokens[behind - 1].end
            pieces.append((end, end, f" AS {quote_part(name.parts[-1])}"))
    if aliased:
        for at in range(len(tokens) - 3):
            first, dot, second, other = tokens[at : at + 4]
            if first.start not in taken and first.is_name and dot.is_operator(".") and (
                second.is_name and other.is_operator(".")
            ) and (first.name.lower(), second.name.lower()) in renamed:
                pieces.append((first.start, second.start, ""))
    return splice(sql, sorted(pieces))


def name_items(sql: str, names: Mapping[int, str]) -> str | None:
    """The query with the columns at these positions called so; None where its select list does not
    say which they are."""
    tokens = tokenise(sql)
    items = list_select_items(tokens)
    if items is None:
        return None
    pieces: list[Piece] = []
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
