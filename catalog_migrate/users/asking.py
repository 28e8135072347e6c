"""Questions about users' texts: whatever Spark comes to, or reading a text, is an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from catalog_migrate.catalog.errors import LeaseHeld, LeaseLost
from catalog_migrate.engine.port import FunctionSpec, QueryAnalysis, QueryRequest, UserDefinition
from catalog_migrate.errors import CatalogMigrateError

T = TypeVar("T")
Analyse = Callable[[Sequence[QueryRequest]], Sequence[QueryAnalysis]]

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


def function_of(definition: UserDefinition) -> FunctionSpec:
    """A user's function as what calls it is bound with it."""
    return FunctionSpec(
        definition.name, definition.arguments, definition.returns, definition.sql
    )
