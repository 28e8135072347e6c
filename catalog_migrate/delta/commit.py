"""One optimistic commit: onto the newest version, and again where others came before."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TypeVar

from catalog_migrate.delta.log import OVERTAKEN
from catalog_migrate.errors import EngineFailure
from catalog_migrate.retry import retry

T = TypeVar("T")

ATTEMPTS = 20
"""Commits that may lose against other writers before a table counts as too busy."""


class Overtaken(Exception):
    """Another commit took the version that this one was made for."""


def is_overtaken(error: Exception) -> bool:
    """Return whether a commit failed for nothing but that others came first."""
    return isinstance(error, Overtaken) or (
        isinstance(error, EngineFailure) and error.condition in OVERTAKEN
    )


def commit_onto_newest(
    attempt: Callable[[], T], *, attempts: int = ATTEMPTS,
    too_busy: Callable[[], Exception] | None = None,
) -> T:
    """Return what ``attempt`` returns, which opens the table and commits onto what it finds.

    It is called again when it raises :class:`Overtaken` or an EngineFailure of a commit that others
    came before (:data:`~catalog_migrate.delta.log.OVERTAKEN`). After the last attempt ``too_busy``
    gives the error; without it the last one is raised.
    """
    try:
        return retry(
            attempt, (Overtaken, EngineFailure), repeat(0.0, attempts - 1), when=is_overtaken
        )
    except (Overtaken, EngineFailure) as error:
        if too_busy is None or not is_overtaken(error):
            raise
        raise too_busy() from error
