"""The names in Spark's catalog: compared with what is committed, repaired, read by a statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.api.configured import (
    OnNote,
    engine_on,
    has_lasting_names,
    make_options,
    open_catalog,
    open_spark,
    unheard,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import EngineFailure, UsageError

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.migrations.actions import Drift
    from catalog_migrate.model.progress import OnProgress
    from catalog_migrate.operations.steps import Executed, Step
    from catalog_migrate.sql.tokens import Token

Rows = tuple[list[str], list[tuple[object, ...]]]
"""Names of the columns, and the rows."""

_READING = frozenset({"select", "with", "from", "values", "show", "describe", "desc", "explain"})
_WRITING = ("insert", "merge", "update", "delete")
_MOST = 2**31 - 1
"""The most that Spark takes as a limit."""
_NO_NAMES = (
    "names end with the session here (spark.metastore is not set): a new session has none, and"
    " every start registers them again"
)


class Comparison(msgspec.Struct, frozen=True):
    """Where names differed, in how many steps that was repaired, and what differs still.

    ``steps`` is the program that repairs them, ``executed`` what was executed of it, ``state`` what
    is committed.
    """

    found: tuple[Drift, ...]
    repaired: int
    left: tuple[Drift, ...]
    steps: tuple[Step, ...] = ()
    executed: tuple[Executed, ...] = ()
    state: State | None = None


def compare_registrations(
    settings: Settings, *, repair: bool = False, confirm: Callable[[int], bool] | None = None,
    on_progress: OnProgress | None = None, on_note: OnNote = unheard,
) -> Comparison | None:
    """Where the names in the configured metastore are not what is committed.

    ``repair`` fixes it, after ``confirm`` has been told how many there are; names that are not ours
    are left alone. None where names end with the session, so that nothing can differ.
    """
    from catalog_migrate.migrations.execution_context import Journal

    catalog = open_catalog(settings, write=repair)
    if not has_lasting_names(settings):
        on_note(_NO_NAMES)
        return None
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        if not engine.persistent_names:
            on_note(_NO_NAMES)
            return None
        found, steps = catalog.compare_names(engine)
        if not (repair and found and (confirm is None or confirm(len(found)))):
            return Comparison(found, 0, found, steps, state=catalog.state())
        journal = Journal()
        repaired = catalog.repair(
            engine, timeout=settings.number("bootstrap.timeout") or 0.0, on_progress=on_progress,
            journal=journal,
        )
        return Comparison(
            found, repaired, catalog.drift(engine), tuple(journal.steps), tuple(journal.executed),
            catalog.state(),
        )


def query(
    settings: Settings, statement: str, *, limit: int = 1000, on_note: OnNote = unheard
) -> Rows:
    """What one reading statement finds on the catalog's tables and views, at most ``limit`` rows.

    UsageError for a statement that does not only read, EngineFailure with Spark's error class.
    """
    from catalog_migrate.release.builtin import SYSTEM_SCHEMA

    only = reading(statement)
    catalog = open_catalog(settings, write=True)
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        if SYSTEM_SCHEMA in only.lower():
            catalog.make_own_views(spark, threads=make_options(settings).threads)
        if not engine.persistent_names:
            catalog.repair(engine)
        return collect(spark, only, limit)


def reading(statement: str) -> str:
    """``statement`` without its closing semicolon; UsageError unless it is one reading statement.

    Decided on tokens: a keyword in a comment or a string neither opens nor closes the gate.
    """
    from catalog_migrate.sql.tokens import tokenise

    remedy = "write one SELECT, SHOW, DESCRIBE, EXPLAIN or WITH statement"
    tokens = tokenise(statement)
    while tokens and tokens[-1].is_operator(";"):
        tokens.pop()
    if not tokens:
        raise UsageError("there is no statement", remedy=remedy)
    broken = next((token for token in tokens if token.kind == "error"), None)
    if broken is not None:
        raise UsageError(f"the statement cannot be read at {broken.text[:20]!r}", remedy=remedy)
    if any(token.is_operator(";") for token in tokens):
        raise UsageError(
            "there is more than one statement; only those on streams may come together",
            remedy=remedy,
        )
    opening = next((token for token in tokens if not token.is_operator("(")), tokens[0])
    if not opening.is_word(*_READING):
        raise UsageError(f"sql only reads, and this is {opening.text.upper()}", remedy=remedy)
    if opening.is_word("with", "from"):
        _refuse_writing(tokens, remedy)
    return statement[tokens[0].start:tokens[-1].end]


def _refuse_writing(tokens: Sequence[Token], remedy: str) -> None:
    """``WITH … INSERT`` and ``FROM … INSERT`` write: look at the words outside parentheses."""
    depth = 0
    for token in tokens:
        if token.is_operator("("):
            depth += 1
        elif token.is_operator(")"):
            depth -= 1
        elif depth == 0 and token.is_word(*_WRITING):
            raise UsageError(f"sql only reads, and this is {token.text.upper()}", remedy=remedy)


def collect(spark: Any, statement: str, limit: int) -> Rows:
    """Column names and at most ``limit`` rows; EngineFailure with Spark's error class."""
    from catalog_migrate.engine_failures import failing
    from catalog_migrate.sql.tokens import escape_doubled_quotes

    try:
        with failing("run the statement"):  # which also keeps Spark from printing its own copy
            frame = spark.sql(escape_doubled_quotes(statement))
            rows = frame.limit(min(limit, _MOST)).collect()
            return list(frame.columns), [tuple(row) for row in rows]
    except EngineFailure as error:
        raise EngineFailure(
            error.message, condition=error.condition, transient=error.transient,
            remedy="fix the statement; catalog-migrate show NAME lists an object's columns",
        ) from error
