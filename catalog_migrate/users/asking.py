"""Questions about users' texts: whatever Spark comes to, or reading a text, is an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from catalog_migrate.engine.port import FunctionSpec, QueryAnalysis, QueryRequest, UserDefinition
from catalog_migrate.errors import CatalogMigrateError, LeaseHeld, LeaseLost

T = TypeVar("T")
Analyse = Callable[[Sequence[QueryRequest]], Sequence[QueryAnalysis]]

_NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_ROUTINE", "UNRESOLVABLE_TABLE_VALUED_FUNCTION")
"""Spark's error classes of a name that is not there: that of the object, or of what it reads."""
_LONGEST = 500
"""Characters of a reason that are kept: Spark's message may hold a whole text."""


def guard(act: Callable[[], T]) -> T | str:
    """Return what ``act`` does, or why it failed: no user's object keeps a start from starting.

    Raises LeaseLost and LeaseHeld: then nothing may be done any more.
    """
    try:
        return act()
    except (LeaseLost, LeaseHeld):
        raise
    except CatalogMigrateError as error:
        return shorten(error.message)
    except Exception as error:  # noqa: BLE001 - a text of a user is no reason not to start
        return shorten(f"{type(error).__name__}: {error}")


def ask(analyse: Analyse, requests: Sequence[QueryRequest]) -> list[QueryAnalysis]:
    """Return what is found for each request; one that could not be asked has a reason alone.

    Where all of them together fail each is asked for itself: one must not hide the others.
    """
    if not requests:
        return []
    together = guard(lambda: list(analyse(requests)))
    if not isinstance(together, str):
        return together
    if len(requests) == 1:
        return [QueryAnalysis(reason=together)]
    return [answer for request in requests for answer in ask(analyse, [request])]


def shorten(reason: str | None) -> str:
    """Put a reason on one line, and cut it where it is long."""
    line = " ".join((reason or "").split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def request_stored(definition: UserDefinition) -> QueryRequest:
    """The request that has Spark read an object itself, as the catalog has it, over what is there.
    """
    return QueryRequest(definition.name, definition.query, {})


def is_dropped(definition: UserDefinition, stored: QueryAnalysis) -> bool:
    """Whether an object cannot be read because the catalog has not got it any more itself."""
    if stored.missing is None or not (stored.condition or "").startswith(_NOT_FOUND):
        return False
    parts = [part.strip("`").lower() for part in stored.missing.split(".")]
    return tuple(parts[-2:]) == definition.name.folded


def function_of(definition: UserDefinition) -> FunctionSpec:
    """Return a user's function as what calls it is bound with it."""
    return FunctionSpec(
        definition.name, definition.arguments, definition.returns, definition.sql
    )
