"""The parts that statements share: names, parenthesised options and settings, column lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog_migrate.model.connector_names import find_plugin
from catalog_migrate.model.names import quote_part, split_name
from catalog_migrate.model.objects import Column, OptionValue, SecretRef, UpstreamTable
from catalog_migrate.sql.cursor import Cursor
from catalog_migrate.sql.statements import (
    BASE_CONNECTION,
    CONNECTORS,
    RESERVED,
    SPLIT_OPTIONS,
    USED_CONNECTIONS,
    option_name,
)
from catalog_migrate.sql.tokens import Token, string_value

_CLOSERS = {"(": ")", "<": ">"}
_QUOTE_IT = "put a value of several words or with signs in quotes"
_SPLIT = "a split such as 'topic:0'"
_USING = {
    BASE_CONNECTION: BASE_CONNECTION, **{f"USING {name}": name for name in USED_CONNECTIONS}
}
Element = TypeVar("Element")


# -- names ---------------------------------------------------------------------------------------


def item_name(cursor: Cursor, what: str) -> str:
    """``schema.name`` or ``name`` in canonical form; ``what`` says what it names."""
    token = cursor.token
    if token.keyword in RESERVED:
        raise cursor.unexpected(
            f"the name of {what}", remedy=f"a name that is a keyword stands in backticks: "
            f"`{token.text}`"
        )
    parts = [cursor.need_part(f"the name of {what}")]
    if cursor.sees_mark("."):
        cursor.advance()
        parts.append(cursor.need_part(f"the name of {what}"))
    if cursor.sees_mark("."):
        raise cursor.problem("a name has two parts", remedy="write schema.name, without a catalog")
    return ".".join(map(quote_part, parts))


def connector(cursor: Cursor) -> str:
    """The name of a connector: one of ours, or a word that an installed package registers."""
    ours = cursor.may_choose(CONNECTORS)
    if ours is not None:
        return ours
    word = cursor.token.text if cursor.token.kind == "word" else ""
    if not word or find_plugin(word) is None:
        raise cursor.unexpected()
    cursor.advance()
    return word.upper()


def column_names(cursor: Cursor) -> tuple[str, ...]:
    """``(a, b)``: names of columns as written, at least one."""
    return tuple(parenthesised(cursor, lambda: cursor.need_part("the name of a column")))


# -- options -------------------------------------------------------------------------------------


def options(cursor: Cursor, *, base: bool = False) -> dict[str, OptionValue]:
    """``(OPT [=] value, OPT SECRET s, …)`` by canonical name.

    With ``base``, ``USING CONNECTION c`` may stand among them; it comes back under the key
    ``USING CONNECTION``, and ``USING SSH TUNNEL t`` as the option SSH TUNNEL. Fails at the second
    of two equal names.
    """
    found: dict[str, OptionValue] = {}

    def one() -> None:
        start = cursor.token
        value: OptionValue
        clause = _using(cursor) if base else None
        if clause is not None:
            cursor.need(*clause.split())
            name, value = _USING[clause], item_name(cursor, "a connection")
        else:
            name, value = _option(cursor)
        _refuse_repetition(cursor, name, found, start)
        found[name] = value

    parenthesised(cursor, one)
    return found


def endpoint_options(
    cursor: Cursor,
) -> tuple[dict[str, OptionValue], tuple[UpstreamTable, ...]]:
    """:func:`options`, among which ``TABLES (a, b.c AS name, …)`` may stand once."""
    found: dict[str, OptionValue] = {}
    tables: list[UpstreamTable] = []

    def one() -> None:
        start = cursor.token
        if cursor.sees("TABLES") and cursor.peek(1).is_operator("("):
            cursor.advance()
            if tables:
                raise cursor.problem(
                    "TABLES is given twice", token=start, remedy="leave one of them out"
                )
            tables.extend(parenthesised(cursor, lambda: _upstream_table(cursor)))
            return
        if cursor.sees("TABLE") and cursor.peek(1).is_operator("("):
            raise cursor.problem("TABLE names one table of a sink", remedy="write TABLES (a, b.c)")
        name, value = _option(cursor)
        _refuse_repetition(cursor, name, found, start)
        found[name] = value

    parenthesised(cursor, one)
    return found, tuple(tables)


def _upstream_table(cursor: Cursor) -> UpstreamTable:
    """``[schema.]table [AS name]``, folded as in PostgreSQL: lower case without backticks.

    Without AS our table has the upstream's name.
    """
    quoted = [cursor.peek(at).kind == "quoted" for at in (0, 2)]
    schema, name = split_name(item_name(cursor, "a table upstream"))
    if schema is None:
        quoted = [False, quoted[0]]
    parts = [
        part if as_written else part.lower()
        for part, as_written in zip((schema or "public", name), quoted, strict=True)
    ]
    into = item_name(cursor, "a table") if cursor.accept("AS") else quote_part(parts[1])
    return UpstreamTable(".".join(map(quote_part, parts)), into)


def _using(cursor: Cursor) -> str | None:
    """The words of the clause that names another connection here, None for an option."""
    for clause in _USING:
        words = clause.split()
        if cursor.sees(*words) and cursor.peek(len(words)).is_name:
            return clause
    return None


def option_names(cursor: Cursor) -> tuple[str, ...]:
    """``(OPT, OPT, …)`` as canonical names; fails at the second of two equal ones."""
    found: list[str] = []

    def one() -> None:
        start = cursor.token
        parts = [_dotted(cursor)]
        while not cursor.sees_mark(",", ")"):
            if not cursor.token.is_name:
                cursor.accept_mark(",")
                cursor.accept_mark(")")
                raise cursor.unexpected(remedy="DROP and RESET take names only, no values")
            parts.append(_dotted(cursor))
        name = option_name(" ".join(parts))
        _refuse_repetition(cursor, name, found, start)
        found.append(name)

    parenthesised(cursor, one)
    return tuple(found)


def settings(cursor: Cursor) -> dict[str, str]:
    """``(name = value, …)`` of WITH by canonical name; secrets have no place there."""
    found: dict[str, str] = {}

    def one() -> None:
        start = cursor.token
        name, value = _option(cursor)
        if isinstance(value, SecretRef):
            raise cursor.problem(f"{name} takes no secret", token=start)
        _refuse_repetition(cursor, name, found, start)
        found[name] = value

    parenthesised(cursor, one)
    return found


def validation(cursor: Cursor) -> bool:
    """``(VALIDATE [=] true | false)``: the one setting that WITH of a connection may hold."""
    cursor.need_mark("(")
    cursor.need("VALIDATE")
    cursor.accept_mark("=")
    token = cursor.token
    said = string_value(token.text).upper() if token.is_string else token.keyword
    if said not in ("TRUE", "FALSE"):
        raise cursor.unexpected("TRUE", "FALSE")
    cursor.advance()
    cursor.need_mark(")")
    return said == "TRUE"


def _option(cursor: Cursor) -> tuple[str, OptionValue]:
    """A canonical name of one or more words, and its value: text, number, word or SECRET name.

    Without ``=`` the last bare word before the next comma is the value.
    """
    parts = [_dotted(cursor)]
    while True:
        name = option_name(" ".join(parts))
        if name in SPLIT_OPTIONS and cursor.peek(cursor.sees_mark("=")).is_operator("("):
            cursor.accept_mark("=")
            return name, _targets(cursor)
        if cursor.accept_mark("="):
            return name, _value(cursor)
        if cursor.token.is_string or cursor.token.kind == "number" or cursor.sees_mark("-"):
            return name, _value(cursor)
        if _refers_to_secret(cursor) or (cursor.token.kind == "word" and _closes(cursor.peek(1))):
            return name, _value(cursor)
        if not cursor.token.is_name:
            raise cursor.unexpected("a value", "SECRET")
        parts.append(_dotted(cursor))


def _value(cursor: Cursor) -> OptionValue:
    if cursor.token.is_string:
        return cursor.need_string("a value")
    if cursor.sees("SECRET"):
        cursor.advance()
        return SecretRef(item_name(cursor, "a secret"))
    sign = cursor.advance().text if cursor.sees_mark("-") else ""
    if cursor.token.kind == "number" or (cursor.token.kind == "word" and not sign):
        value = sign + cursor.advance().text
        if not _closes(cursor.token):
            cursor.accept_mark(",")
            cursor.accept_mark(")")
            raise cursor.unexpected(remedy=_QUOTE_IT)
        return value
    raise cursor.unexpected("a number" if sign else "a value", remedy=_QUOTE_IT)


def _targets(cursor: Cursor) -> str:
    """``('topic:0' [=] target, …)`` as the text ``topic:0=target,…``."""
    found: dict[str, str | None] = {}

    def one(split: str) -> None:
        cursor.accept_mark("=")
        found[split] = target(cursor)

    cursor.need_mark("(")
    splits(cursor, one, found)
    return ",".join(f"{split}={where}" for split, where in found.items())


def splits(
    cursor: Cursor, keep: Callable[[str], None], seen: list[str] | dict[str, str | None]
) -> None:
    """Splits in quotes up to the closing parenthesis, each with what ``keep`` reads behind it."""
    while True:
        token = cursor.token
        split = cursor.need_string(_SPLIT)
        if split in seen:
            raise cursor.problem(
                f"{split} is given twice", token=token, remedy="leave one of them out"
            )
        keep(split)
        if cursor.accept_mark(")"):
            return
        cursor.need_mark(",")


def target(cursor: Cursor) -> str:
    """Return a number, a word such as ``earliest``, or a text such as ``'shift -100'``."""
    token = cursor.token
    if token.is_string:
        return cursor.need_string("a target")
    if token.kind in ("number", "word"):
        return cursor.advance().text
    raise cursor.unexpected("a number", "a target in quotes")


def _refers_to_secret(cursor: Cursor) -> bool:
    """Whether SECRET begins a reference here and is not a word of the option's own name."""
    if not cursor.sees("SECRET"):
        return False
    if not cursor.peek(1).is_name:
        return _closes(cursor.peek(1))
    after = cursor.peek(2)
    return _closes(after) or after.is_operator(".")


def _closes(token: Token) -> bool:
    return token.kind == "end" or token.is_operator(",", ")")


def _dotted(cursor: Cursor) -> str:
    """One word of an option's name: ``BROKER``, or with dots ``kafka.linger.ms``."""
    token = cursor.token
    parts = [cursor.need_part("the name of an option")]
    while cursor.sees_mark("."):
        cursor.advance()
        parts.append(cursor.need_part("the name of an option"))
    word = ".".join(parts)
    if not option_name(word):
        raise cursor.problem("this is no name", token=token)
    return word


def _refuse_repetition(
    cursor: Cursor, name: str, found: dict[str, OptionValue] | dict[str, str] | list[str],
    token: Token,
) -> None:
    if name in found:
        raise cursor.problem(f"{name} is given twice", token=token, remedy="leave one of them out")


def parenthesised(cursor: Cursor, element: Callable[[], Element]) -> list[Element]:
    """``(element, …)`` with at least one; ``element`` reads one and may keep it itself."""
    cursor.need_mark("(")
    elements = [element()]
    while not cursor.accept_mark(")"):
        if not cursor.accept_mark(","):
            raise cursor.unexpected()
        elements.append(element())
    return elements


# -- columns -------------------------------------------------------------------------------------


def columns(cursor: Cursor) -> tuple[Column, ...]:
    """``[(name TYPE [NOT NULL] [COMMENT 'text'], …)]``; types stay as written."""
    if not cursor.sees_mark("("):
        cursor.note("`(`")
        return ()
    return tuple(parenthesised(cursor, lambda: _column(cursor)))


def _column(cursor: Cursor) -> Column:
    name = cursor.need_part("the name of a column")
    written = _type(cursor)
    nullable, comment = True, None
    if cursor.accept("NOT", "NULL"):
        nullable = False
    if cursor.accept("COMMENT"):
        comment = cursor.need_string("a comment")
    return Column(name=name, type=written, nullable=nullable, comment=comment)


def _type(cursor: Cursor) -> str:
    """The source text of a type: up to a comma, NOT NULL, COMMENT or the list's end."""
    start = cursor.at
    if not cursor.token.is_name or cursor.sees("NOT") or cursor.sees("COMMENT"):
        raise cursor.unexpected("the type of the column")
    closers: list[str] = []
    while closers or not (
        cursor.sees_mark(",", ")") or cursor.sees("NOT") or cursor.sees("COMMENT")
    ):
        if not _fits_in_type(cursor, closers):
            if closers:
                cursor.note(f"`{closers[-1]}`")
                raise cursor.unexpected()
            raise cursor.unexpected("NOT NULL", "COMMENT", "`,`", "`)`")
        if cursor.sees_mark(*_CLOSERS):
            closers.append(_CLOSERS[cursor.token.text])
        elif cursor.sees_mark(*_CLOSERS.values()):
            closers.pop()
        cursor.advance()
    return cursor.taken(start)


def _fits_in_type(cursor: Cursor, closers: list[str]) -> bool:
    if not closers:
        return cursor.token.is_name or cursor.sees_mark(".", "(", "<")
    return cursor.token.kind in ("word", "quoted", "string", "number") or cursor.sees_mark(
        ".", "(", "<", ",", ":", closers[-1]
    )
