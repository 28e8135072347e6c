"""The unsafe actions of sources and sinks: splits forgotten, positions put elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog_migrate.language import clauses
from catalog_migrate.language.actions import ITEM_ACTIONS, actions
from catalog_migrate.language.cursor import Cursor
from catalog_migrate.language.statements import (
    InjectOffsets,
    InjectVersion,
    ResetSplits,
    UnsafeAction,
)

_SPLIT = "a split such as 'topic:0'"


def unsafe_actions(cursor: Cursor) -> tuple[UnsafeAction, ...]:
    """``SET (…), RESET SPLITS, INJECT OFFSETS (…), …``: at least one."""
    return actions(cursor, _UNSAFE_ACTIONS)


def unsafe_clauses(cursor: Cursor) -> tuple[dict[str, str], str]:
    """``[WITH (…)] [REASON 'text']``: settings and the reason, without which nothing is done.

    A dry run needs none, and what is missing besides is told together with it.
    """
    settings = clauses.settings(cursor) if cursor.accept("WITH") else {}
    return settings, cursor.need_string("a reason") if cursor.accept("REASON") else ""


def _reset(cursor: Cursor) -> UnsafeAction:
    if not cursor.accept("SPLITS"):
        return ITEM_ACTIONS["RESET"](cursor)
    if not cursor.accept_mark("("):
        return ResetSplits()
    splits: list[str] = []
    _listed(cursor, splits.append, splits)
    return ResetSplits(tuple(splits))


def _inject(cursor: Cursor) -> UnsafeAction:
    return cursor.choose(_INJECTIONS)(cursor)


def _offsets(cursor: Cursor) -> InjectOffsets:
    targets: dict[str, str | None] = {}
    cursor.need_mark("(")
    if cursor.accept("TO"):
        everywhere = _target(cursor)
        cursor.need_mark(")")
        return InjectOffsets(everywhere=everywhere)

    def one(split: str) -> None:
        cursor.accept_mark("=")
        targets[split] = None if cursor.accept("NULL") else _target(cursor)

    _listed(cursor, one, targets)
    return InjectOffsets(targets)


def _listed(
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


def _target(cursor: Cursor) -> str:
    """A number, a word such as ``earliest``, or a text such as ``'shift -100'``."""
    token = cursor.token
    if token.kind == "string":
        return cursor.need_string("a target")
    if token.kind in ("number", "word"):
        return cursor.advance().text
    raise cursor.unexpected("a number", "a target in quotes")


def _version(cursor: Cursor) -> InjectVersion:
    if cursor.token.kind != "number" or not cursor.token.text.isdecimal():
        raise cursor.unexpected("the number of a version")
    return InjectVersion(int(cursor.advance().text))


_INJECTIONS: Mapping[str, Callable[[Cursor], UnsafeAction]] = {
    "OFFSETS": _offsets, "VERSION": _version
}
_UNSAFE_ACTIONS: Mapping[str, Callable[[Cursor], UnsafeAction]] = {
    **ITEM_ACTIONS, "RESET": _reset, "INJECT": _inject
}
