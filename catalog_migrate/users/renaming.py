"""Columns and relations renamed in a text that stays as its author wrote it otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog_migrate.model.names import ItemName, quote_part, quote_sql
from catalog_migrate.sql.references import (
    ENDS_LIST,
    Occurrence,
    list_select_items,
    occurrences,
    splice,
)
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
    """Return what the edits put into the text."""
    return [
        (edit.start, edit.end, edit.name + (f" AS {edit.alias}" if edit.alias else ""))
        for edit in sorted(edits, key=lambda each: each.start)
    ]


def parts_of(text: str) -> Iterator[Part]:
    """Yield every part of a name in a text, in order."""
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
    return before is not None and (
        before.is_operator(",") or before.is_word("select", "distinct", "all")
    ) and _is_selected(tokens, at)


def _is_selected(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause that an index is in, outside of brackets, is a select list."""
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
    """Return the text with relations called by their new names.

    ``aliased``: one without an alias keeps its old bare name as one, and columns that are
    qualified with its schema are qualified with that.
    """
    tokens = tokenise(sql)
    relations = [
        each for each in occurrences(tokens) if each.kind == "relation" and each.name is not None
    ]
    pieces: list[Piece] = []
    for each in relations:
        schema, bare = each.name or (None, "")
        new = renamed.get((schema or namespace.lower(), bare))
        if new is not None:
            pieces.append((each.start, each.end, ".".join(map(quote_part, new))))
            pieces += _alias_pieces(tokens, each) if aliased else ()
    if aliased:
        taken = {place for each in relations for place in range(each.start, each.end)}
        pieces += [piece for piece in _schema_pieces(tokens, renamed) if piece[0] not in taken]
    return splice(sql, sorted(pieces))


def _alias_pieces(tokens: Sequence[Token], name: Occurrence) -> Iterator[Piece]:
    """Give a relation without an alias its old bare name as one."""
    start = next(at for at, token in enumerate(tokens) if token.start == name.start)
    end = next(at for at, token in enumerate(tokens) if token.end == name.end)
    behind = behind_clauses(tokens, end + 1)
    if not has_alias(tokens, behind) and not is_whole(tokens, start):
        place = tokens[behind - 1].end
        yield place, place, f" AS {quote_part(name.parts[-1])}"


def _schema_pieces(tokens: Sequence[Token], renamed: Collection[Key]) -> Iterator[Piece]:
    """Take the schema off columns that are qualified with it: ``s.t.c``."""
    for first, dot, second, other in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if (
            first.is_name and dot.is_operator(".") and second.is_name and other.is_operator(".")
            and (first.name.lower(), second.name.lower()) in renamed
        ):
            yield first.start, second.start, ""


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
