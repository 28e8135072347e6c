"""Names in a text replaced by others, with the text as its author wrote it otherwise.

A relation that is called otherwise may need its bare name as an alias, so that its columns are
still found; and what was found in the new text has a place in the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.references import Occurrence, occurrences, splice
from catalog_migrate.sql.tokens import Token, tokenise

Names = Mapping[tuple[str, str], str]
"""Folded (schema, name) -> the name that comes in its place."""
Piece = tuple[int, int, str | None]
"""Offsets into a text, and what comes in the place of what is there."""

_AFTER_RELATION = frozenset({
    "on", "using", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
    "offset", "window", "qualify", "union", "except", "minus", "intersect", "join", "inner", "left",
    "right", "full", "cross", "natural", "semi", "anti", "lateral", "pivot", "unpivot",
    "tablesample", "for", "version", "timestamp", "select", "with", "set",
})  # fmt: skip


def replace_names(sql: str, relations: Names, functions: Names) -> str:
    """Return the text with relations and functions called otherwise; lines stay where they are.

    A relation without an alias gets its bare name as one, so that ``t.x`` still resolves, and
    ``s.t.x`` becomes ``t.x``.
    """
    return splice(sql, find_pieces(sql, relations, functions))


def find_pieces(
    sql: str, relations: Names, functions: Names, *, namespace: str | None = None,
    local: Container[str] = (),
) -> list[Piece]:
    """Return what :func:`replace_names` replaces, in the order of the text.

    With a ``namespace`` names without a schema are of that: those of relations, and those of
    functions that are in ``local`` (folded). Where they are not replaced they get its name.
    Of ``relations`` and ``functions`` only those are looked up that the text names.
    """
    tokens = tokenise(sql)
    written = occurrences(tokens)
    found = [_within(name, namespace, local) for name in written]
    by_start = {token.start: index for index, token in enumerate(tokens)}
    aliases = _aliases(found, tokens, by_start)
    pieces: list[Piece] = []
    taken: set[int] = set()
    for name, as_written in zip(found, written, strict=True):
        replaced = _replacement(name, tokens, by_start, relations, functions, aliases)
        if not replaced and name is not as_written:
            replaced = [(name.start, name.end, ".".join(map(quote_sql, name.parts)))]
        pieces += replaced
        taken.update(range(name.start, name.end))
    pieces += _qualified_columns(tokens, relations, taken, aliases)
    return sorted(pieces)


def place_before(pieces: Iterable[Piece], start: int, end: int) -> tuple[int, int]:
    """Where in a text was what is at these offsets after :func:`splice` by ``pieces``.

    What lies within a replacement was the whole of what it replaces.
    """
    first, last, shift = start, end, 0
    for at, behind, text in pieces:
        length = behind - at if text is None else len(text)
        new_at, new_behind = at + shift, at + shift + length
        if start >= new_behind:
            first = start + (behind - new_behind)
        elif start >= new_at:
            first = at
        if end >= new_behind:
            last = end + (behind - new_behind)
        elif end > new_at:
            last = behind
        shift = new_behind - behind
    return first, last


def _within(name: Occurrence, namespace: str | None, local: Container[str]) -> Occurrence:
    """A name, with the schema that one without a schema is of."""
    if namespace is None or len(name.parts) > 1 or name.kind == "type":
        return name
    if name.kind == "function" and name.parts[0].lower() not in local:
        return name
    return name._replace(parts=(namespace, *name.parts))


def _aliases(
    found: Sequence[Occurrence], tokens: Sequence[Token], by_start: Mapping[int, int]
) -> dict[tuple[str, str], str]:
    """Aliases for relations that share their bare name with another one in the same text.

    ``s.t.x`` says which is meant, and only its own alias still does; a text that has ``t.x`` as
    well keeps to the bare names.
    """
    bare: dict[str, set[tuple[str, str]]] = {}
    for name in found:
        schema, relation = name.name or (None, "")
        if name.kind == "relation" and schema is not None and not has_alias(
            tokens, behind_clauses(tokens, _behind_name(tokens, by_start, name))
        ):
            bare.setdefault(relation, set()).add((schema, relation))
    shared = {each: keys for each, keys in bare.items() if len(keys) > 1}
    for alias in _qualifiers(found, tokens) if shared else ():
        shared.pop(alias, None)
    return {key: ".".join(key) for keys in shared.values() for key in keys}


def _qualifiers(found: Sequence[Occurrence], tokens: Sequence[Token]) -> Iterator[str]:
    """The first parts, folded, of dotted names that are none of what was found."""
    starts = {name.start for name in found}
    for index, token in enumerate(tokens[:-1]):
        if token.is_name and token.start not in starts and tokens[index + 1].is_operator(".") and (
            not index or not tokens[index - 1].is_operator(".")
        ):
            yield token.name.lower()


def _behind_name(
    tokens: Sequence[Token], by_start: Mapping[int, int], name: Occurrence
) -> int:
    index = by_start[name.start]
    while index < len(tokens) and tokens[index].start < name.end:
        index += 1
    return index


def _replacement(
    name: Occurrence, tokens: Sequence[Token], by_start: Mapping[int, int], relations: Names,
    functions: Names, aliases: Names,
) -> list[Piece]:
    """What comes for a name, and where it needs one its alias, behind a sample of its rows."""
    key = name.name
    if key is None or key[0] is None or name.kind == "type":
        return []
    full = key[0], key[1]
    is_function = name.kind == "function" or (full not in relations and full in functions)
    new = (functions if is_function else relations).get(full)
    if new is None:
        return []
    index = by_start[name.start]
    quoted = quote_sql(new)
    if is_function or is_whole(tokens, index):
        return [(name.start, name.end, quoted)]
    index = _behind_name(tokens, by_start, name)
    behind = behind_clauses(tokens, index)
    named = aliases.get(full, name.parts[-1])
    alias = "" if has_alias(tokens, behind) else f" AS {quote_sql(named)}"
    if behind == index or not alias:
        return [(name.start, name.end, quoted + alias)]
    end = tokens[behind - 1].end
    return [(name.start, name.end, quoted), (end, end, alias)]


def is_whole(tokens: Sequence[Token], index: int) -> bool:
    """Whether a relation is that of the query TABLE t or the argument TABLE(t): no alias goes."""
    opened = index > 1 and tokens[index - 1].is_operator("(")
    return index > 0 and tokens[index - 1 - opened].is_word("table")


def behind_clauses(tokens: Sequence[Token], index: int) -> int:
    """Where the alias of a relation is: behind its options and the sample of its rows."""
    for words in (("with",), ("tablesample", "repeatable")):
        for word in words:
            if not _is_clause(tokens, index, word):
                break
            depth, index = 1, index + 2
            while depth and index < len(tokens):
                depth += tokens[index].is_operator("(") - tokens[index].is_operator(")")
                index += 1
    return index


def _is_clause(tokens: Sequence[Token], index: int, word: str) -> bool:
    return (
        index + 1 < len(tokens) and tokens[index].is_word(word)
        and tokens[index + 1].is_operator("(")
    )


def has_alias(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the token behind a relation is its alias."""
    if index >= len(tokens):
        return False
    token = tokens[index]
    if token.kind == "quoted":
        return True
    word = token.text.lower()
    if token.kind != "word" or word not in _AFTER_RELATION:
        return token.kind == "word"
    following = [
        each.text.lower() if each.kind in ("word", "operator") else ""
        for each in tokens[index + 1 : index + 4]
    ]
    if word == "window":  # WINDOW w AS (…), and what else is so called
        return following[1:] != ["as", "("]
    if word in ("limit", "offset"):
        return not following or following[0] in _AFTER_RELATION | {",", ")"}
    return False


def _qualified_columns(
    tokens: Sequence[Token], relations: Names, taken: Collection[int], aliases: Names
) -> Iterable[Piece]:
    """``s.t.column`` where s.t is replaced, and ``spark_catalog.s.t.column``: without ``s.``."""
    for index, token in enumerate(tokens):
        if token.start in taken or not token.is_name:
            continue
        if index and tokens[index - 1].is_operator("."):
            continue
        dotted = _before_dots(tokens, index)
        if len(dotted) > 2 and dotted[0].name.lower() == "spark_catalog":
            dotted = dotted[1:]
        if len(dotted) < 2:
            continue
        schema, name = dotted[:2]
        key = schema.name.lower(), name.name.lower()
        if key not in relations:
            continue
        if key in aliases:
            yield token.start, name.end, quote_sql(aliases[key])
        else:
            yield token.start, name.start, ""


def _before_dots(tokens: Sequence[Token], index: int) -> list[Token]:
    """The names from ``index`` on that each have a dot behind them."""
    names: list[Token] = []
    while (
        index + 1 < len(tokens) and tokens[index].is_name and tokens[index + 1].is_operator(".")
    ):
        names.append(tokens[index])
        index += 2
    return names
