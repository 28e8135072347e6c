"""ALTER: actions on options, another connection, another name, another reference, and UNSAFE.

What may follow the name is one table for each kind of item. A further verb is one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from catalog_migrate.sql import clauses
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.cursor import Cursor
from catalog_migrate.sql.statements import CONNECTORS, KINDS, Kind, QueryKind

One = TypeVar("One")


class Target(NamedTuple):
    """What is altered: ``ALTER kind [IF EXISTS] name``."""

    kind: Kind
    name: str
    if_exists: bool


Verb = Callable[[Cursor, Target], st.Explainable]
"""Reads a statement from the verb's own keyword on."""


def alter(cursor: Cursor) -> st.Explainable:
    """What follows ALTER."""
    kind = cursor.choose(KINDS)
    if_exists = clauses.if_exists(cursor)
    target = Target(kind, clauses.item_name(cursor, f"a {kind}"), if_exists)
    verb = cursor.look(_VERBS[kind])
    if verb is not None:
        return verb(cursor, target)
    if kind == "secret" and cursor.ended:
        return st.AlterSecret(target.name, None, target.if_exists)
    raise cursor.unexpected(*(["the end of the statement"] if kind == "secret" else []))


def _reference(cursor: Cursor, target: Target) -> st.AlterSecret:
    cursor.need("AS")
    return st.AlterSecret(target.name, cursor.need_string("a reference"), target.if_exists)


def _rename(cursor: Cursor, target: Target) -> st.Rename:
    cursor.need("RENAME", "TO")
    to = clauses.item_name(cursor, f"a {target.kind}")
    return st.Rename(target.kind, target.name, to, target.if_exists)


def _connection(cursor: Cursor, target: Target) -> st.AlterConnection:
    connector = cursor.choose(CONNECTORS) if cursor.accept("AS") else None
    rotate = cursor.accept("ROTATE", "KEYS")
    more = not rotate or cursor.accept_mark(",")
    taken = _actions(cursor, _CONNECTION_ACTIONS) if more else ()
    validate = clauses.validation(cursor) if cursor.accept("WITH") else None
    return st.AlterConnection(target.name, taken, target.if_exists, connector, validate, rotate)


def _item(kind: QueryKind) -> Verb:
    unsafe = _unsafe(kind)

    def read(cursor: Cursor, target: Target) -> st.Explainable:
        if cursor.sees("SET", "CONNECTION"):
            cursor.need("SET", "CONNECTION")
            connection = clauses.item_name(cursor, "a connection")
            return st.SetConnection(kind, target.name, connection, target.if_exists)
        if cursor.sees("RESET", "SPLITS"):
            return unsafe(cursor, target)
        return st.AlterItem(kind, target.name, _actions(cursor, _ITEM_ACTIONS), target.if_exists)

    return read


def _unsafe(kind: QueryKind) -> Verb:
    def read(cursor: Cursor, target: Target) -> st.Unsafe:
        said = cursor.accept("UNSAFE")  # what is missing is told together, when it would be done
        taken = _actions(cursor, _UNSAFE_ACTIONS)
        settings = clauses.settings(cursor) if cursor.accept("WITH") else {}
        reason = cursor.need_string("a reason") if cursor.accept("REASON") else ""
        return st.Unsafe(kind, target.name, taken, reason, settings, target.if_exists, said)

    return read


def _query_verbs(kind: QueryKind) -> Mapping[str, Verb]:
    item = _item(kind)
    unsafe = _unsafe(kind)
    return {
        "SET": item, "DROP": item, "RESET": item, "RENAME": _rename, "UNSAFE": unsafe,
        "INJECT": unsafe,
    }


def _actions(cursor: Cursor, table: Mapping[str, Callable[[Cursor], One]]) -> tuple[One, ...]:
    """``SET (…), DROP (…), …``: at least one of the actions of the table."""
    found = [cursor.choose(table)(cursor)]
    while cursor.accept_mark(","):
        found.append(cursor.choose(table)(cursor))
    return tuple(found)


# -- actions ------------------------------------------------------------------------------------


def _drop(cursor: Cursor) -> st.DropOptions:
    return st.DropOptions(clauses.option_names(cursor))


def _reset(cursor: Cursor) -> st.ResetOptions:
    return st.ResetOptions(clauses.option_names(cursor))


_ITEM_ACTIONS: Mapping[str, Callable[[Cursor], st.Action]] = {
    "SET": lambda cursor: st.SetOptions(clauses.options(cursor)), "DROP": _drop, "RESET": _reset
}
"""Of sources and sinks."""

_CONNECTION_ACTIONS: Mapping[str, Callable[[Cursor], st.Action]] = {
    "SET": lambda cursor: st.SetOptions(clauses.options(cursor, base=True)),
    "DROP": _drop,
    "RESET": _reset,
}
"""Of connections, where SET may name another base with USING CONNECTION."""


def _unsafe_reset(cursor: Cursor) -> st.UnsafeAction:
    if not cursor.accept("SPLITS"):
        return _ITEM_ACTIONS["RESET"](cursor)
    if not cursor.accept_mark("("):
        return st.ResetSplits()
    splits: list[str] = []
    clauses.splits(cursor, splits.append, splits)
    return st.ResetSplits(tuple(splits))


def _inject(cursor: Cursor) -> st.UnsafeAction:
    return cursor.choose(_INJECTIONS)(cursor)


def _offsets(cursor: Cursor) -> st.InjectOffsets:
    targets: dict[str, str | None] = {}
    cursor.need_mark("(")
    if cursor.accept("TO"):
        everywhere = clauses.target(cursor)
        cursor.need_mark(")")
        return st.InjectOffsets(everywhere=everywhere)

    def one(split: str) -> None:
        cursor.accept_mark("=")
        targets[split] = None if cursor.accept("NULL") else clauses.target(cursor)

    clauses.splits(cursor, one, targets)
    return st.InjectOffsets(targets)


def _version(cursor: Cursor) -> st.InjectVersion:
    if cursor.token.kind != "number" or not cursor.token.text.isdecimal():
        raise cursor.unexpected("the number of a version")
    return st.InjectVersion(int(cursor.advance().text))


_INJECTIONS: Mapping[str, Callable[[Cursor], st.UnsafeAction]] = {
    "OFFSETS": _offsets, "VERSION": _version
}
_UNSAFE_ACTIONS: Mapping[str, Callable[[Cursor], st.UnsafeAction]] = {
    **_ITEM_ACTIONS, "RESET": _unsafe_reset, "INJECT": _inject
}

_VERBS: Mapping[Kind, Mapping[str, Verb]] = {
    "secret": {"AS": _reference, "RENAME": _rename},
    "connection": {
        "SET": _connection, "DROP": _connection, "RESET": _connection, "RENAME": _rename,
        "ROTATE KEYS": _connection, "AS": _connection,
    },
    "source": _query_verbs("source"),
    "sink": _query_verbs("sink"),
    "cluster": {"RENAME": _rename},
}
