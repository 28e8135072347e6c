"""ALTER: actions on options, another connection, another name, another reference.

What may follow the name is one table for each kind of item. A further verb is one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from catalog_migrate.language import clauses
from catalog_migrate.language.actions import CONNECTION_ACTIONS, ITEM_ACTIONS, actions
from catalog_migrate.language.cursor import Cursor
from catalog_migrate.language.statements import (
    AlterConnection,
    AlterItem,
    AlterSecret,
    Explainable,
    Rename,
    SetConnection,
    Unsafe,
)
from catalog_migrate.language.unsafe import unsafe_actions, unsafe_clauses
from catalog_migrate.language.vocabulary import CONNECTORS, KINDS, Kind, QueryKind


class Target(NamedTuple):
    """What is altered: ``ALTER kind [IF EXISTS] name``."""

    kind: Kind
    name: str
    if_exists: bool


Verb = Callable[[Cursor, Target], Explainable]
"""Reads a statement from the verb's own keyword on."""


def alter(cursor: Cursor) -> Explainable:
    """What follows ALTER."""
    kind = cursor.choose(KINDS)
    if_exists = clauses.if_exists(cursor)
    target = Target(kind, clauses.item_name(cursor, f"a {kind}"), if_exists)
    verb = cursor.look(_VERBS[kind])
    if verb is not None:
        return verb(cursor, target)
    if kind == "secret" and cursor.ended:
        return AlterSecret(target.name, None, target.if_exists)
    raise cursor.unexpected(*(["the end of the statement"] if kind == "secret" else []))


def _reference(cursor: Cursor, target: Target) -> AlterSecret:
    cursor.need("AS")
    return AlterSecret(target.name, cursor.need_string("a reference"), target.if_exists)


def _rename(cursor: Cursor, target: Target) -> Rename:
    cursor.need("RENAME", "TO")
    to = clauses.item_name(cursor, f"a {target.kind}")
    return Rename(target.kind, target.name, to, target.if_exists)


def _connection(cursor: Cursor, target: Target) -> AlterConnection:
    connector = cursor.choose(CONNECTORS) if cursor.accept("AS") else None
    taken = actions(cursor, CONNECTION_ACTIONS)
    validate = clauses.validation(cursor) if cursor.accept("WITH") else None
    return AlterConnection(target.name, taken, target.if_exists, connector, validate)


def _item(kind: QueryKind) -> Verb:
    unsafe = _unsafe(kind)

    def read(cursor: Cursor, target: Target) -> Explainable:
        if cursor.sees("SET", "CONNECTION"):
            cursor.need("SET", "CONNECTION")
            connection = clauses.item_name(cursor, "a connection")
            return SetConnection(kind, target.name, connection, target.if_exists)
        if cursor.sees("RESET", "SPLITS"):
            return unsafe(cursor, target)
        return AlterItem(kind, target.name, actions(cursor, ITEM_ACTIONS), target.if_exists)

    return read


def _unsafe(kind: QueryKind) -> Verb:
    def read(cursor: Cursor, target: Target) -> Unsafe:
        said = cursor.accept("UNSAFE")  # what is missing is told together, when it would be done
        taken = unsafe_actions(cursor)
        settings, reason = unsafe_clauses(cursor)
        return Unsafe(kind, target.name, taken, reason, settings, target.if_exists, said)

    return read


def _query_verbs(kind: QueryKind) -> Mapping[str, Verb]:
    item = _item(kind)
    unsafe = _unsafe(kind)
    return {
        "SET": item, "DROP": item, "RESET": item, "RENAME": _rename, "UNSAFE": unsafe,
        "INJECT": unsafe,
    }


_VERBS: Mapping[Kind, Mapping[str, Verb]] = {
    "secret": {"AS": _reference, "RENAME": _rename},
    "connection": {
        "SET": _connection, "DROP": _connection, "RESET": _connection, "RENAME": _rename,
        "AS": _connection,
    },
    "source": _query_verbs("source"),
    "sink": _query_verbs("sink"),
    "cluster": {"RENAME": _rename},
}
