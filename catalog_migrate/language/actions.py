"""The actions on options that safe and unsafe statements share: SET (…), DROP (…), RESET (…)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from catalog_migrate.language import clauses
from catalog_migrate.language.cursor import Cursor
from catalog_migrate.language.statements import Action, DropOptions, ResetOptions, SetOptions

One = TypeVar("One")
ActionReader = Callable[[Cursor], Action]
"""Reads what follows the action's keyword."""


def _drop(cursor: Cursor) -> DropOptions:
    return DropOptions(clauses.option_names(cursor))


def _reset(cursor: Cursor) -> ResetOptions:
    return ResetOptions(clauses.option_names(cursor))


ITEM_ACTIONS: Mapping[str, ActionReader] = {
    "SET": lambda cursor: SetOptions(clauses.options(cursor)), "DROP": _drop, "RESET": _reset
}
"""Of sources and sinks."""

CONNECTION_ACTIONS: Mapping[str, ActionReader] = {
    "SET": lambda cursor: SetOptions(clauses.options(cursor, base=True)),
    "DROP": _drop,
    "RESET": _reset,
}
"""Of connections, where SET may name another base with USING CONNECTION."""


def actions(cursor: Cursor, table: Mapping[str, Callable[[Cursor], One]]) -> tuple[One, ...]:
    """``SET (…), DROP (…), …``: at least one of the actions of the table."""
    found = [cursor.choose(table)(cursor)]
    while cursor.accept_mark(","):
        found.append(cursor.choose(table)(cursor))
    return tuple(found)
