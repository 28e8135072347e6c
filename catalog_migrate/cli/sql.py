"""``sql``: statements on connections, sources and sinks, or one reading statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from catalog_migrate.cli.options import catalog_option, format_option, settings_of
from catalog_migrate.cli.output import as_columns, as_json, emit, note
from catalog_migrate.cli.sources import engine_on, local_spark, open_catalog, threads_of
from catalog_migrate.errors import EngineFailure, UsageError

if TYPE_CHECKING:
    from catalog_migrate.config import Settings
    from catalog_migrate.sql.tokens import Token
    from catalog_migrate.streams.execute import Result

READING = frozenset({"select", "with", "from", "values", "show", "describe", "desc", "explain"})
_MOST = 2**31 - 1
"""The most that Spark takes as a limit."""
_WRITING = ("insert", "merge", "update", "delete")


@click.command("sql")
@click.option("-c", "--command", "texts", metavar="SQL", multiple=True,
              help="The statement or statements; several -c are carried out in their order.")
@click.option("-f", "--file", "files", metavar="FILE", multiple=True,
              type=click.File("r", encoding="utf-8"),
              help="A file of statements, `-` for standard input; each is its own commit.")
@catalog_option
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1),
              metavar="N", help="Rows to print at most.")
@format_option("text", "json")
@click.option("--yes", is_flag=True, help="Begin UNSAFE operations without asking for the name.")
@click.pass_context
def command(
    ctx: click.Context, texts: tuple[str, ...], files: tuple[TextIO, ...], catalog: str | None,
    limit: int, format_: str, yes: bool,
) -> None:
    """Run statements on connections, sources, sinks, secrets and clusters (docs/statements.md),
    or one SELECT, SHOW, DESCRIBE or EXPLAIN on tables and views; INSERT and its like are refused.

    \b
    Example:
      catalog-migrate sql -c "EXPLAIN ALTER CONNECTION c SET (BROKER 'new.example.com:9092')"
      catalog-migrate sql -f streams.sql
      catalog-migrate sql -c 'SELECT count(*) FROM shop.orders' --catalog catalog
    """
    from catalog_migrate.sql.parser import is_ours

    if bool(texts) == bool(files):
        raise UsageError("give -c SQL or -f FILE", remedy="catalog-migrate sql --help")
    # on lines of their own: a text may end in a comment
    statement = "\n;\n".join(texts or [_read(file) for file in files])
    settings = settings_of(ctx, catalog=catalog)
    if is_ours(statement):
        _execute(settings, statement, format_, yes=yes)
        return
    from catalog_migrate.release.builtin import SYSTEM_SCHEMA

    only = reading(statement)
    opened = open_catalog(settings, write=True)
    with local_spark(settings) as spark:
        engine = engine_on(spark, settings)
        if SYSTEM_SCHEMA in only.lower():
            opened.make_own_views(spark, threads=threads_of(settings))
        if not engine.persistent_names:
            opened.repair(engine)
        columns, rows = _run(spark, only, limit)
    _emit_rows(columns, rows, format_)


def _read(file: TextIO) -> str:
    """The text of a file; UsageError with the place of bytes that are none."""
    try:
        return file.read()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{file.name}:{line}: byte {error.object[error.start]:#04x} is not UTF-8",
            remedy="save the file as UTF-8",
        ) from error


def _emit_rows(columns: Sequence[str], rows: Sequence[tuple[object, ...]], format_: str) -> None:
    if format_ == "json":
        emit(as_json([dict(zip(columns, map(_plain, row), strict=True)) for row in rows]))
    else:
        emit(as_columns([columns, *([_cell(value) for value in row] for row in rows)]))


def _execute(settings: Settings, statement: str, format_: str, *, yes: bool) -> None:
    """Statements of our own language: each result as soon as it is there."""
    from catalog_migrate.cli.unsafe import asking

    opened = open_catalog(settings, write=True)

    def show(result: Result) -> None:
        for line in result.notices:
            note(line)
        if result.rows is not None:
            _emit_rows(result.rows.columns, result.rows.values, format_)
        elif format_ == "json":
            emit(as_json({"summary": result.summary, "operation": result.operation,
                          "restarted": list(result.restarted), "notices": list(result.notices)}))
        else:
            emit(result.summary + "\n")

    opened.execute(
        statement, on_result=show, on_progress=note, limit=settings.number("streams.limit"),
        confirm=asking(yes=yes),
    )


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
        raise UsageError("there is more than one statement", remedy=remedy)
    opening = next((token for token in tokens if not token.is_operator("(")), tokens[0])
    if not opening.is_word(*READING):
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


def _run(spark: Any, statement: str, limit: int) -> tuple[list[str], list[tuple[object, ...]]]:
    """Column names and at most ``limit`` rows; EngineFailure with Spark's error class."""
    from catalog_migrate.engine_failures import failing

    try:
        with failing("run the statement"):  # which also keeps Spark from printing its own copy
            frame = spark.sql(statement)
            rows = frame.limit(min(limit, _MOST)).collect()
            return list(frame.columns), [tuple(row) for row in rows]
    except EngineFailure as error:
        raise EngineFailure(
            error.message, condition=error.condition, transient=error.transient,
            remedy="mend the statement; catalog-migrate show NAME lists an object's columns",
        ) from error


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def _plain(value: object) -> object:
    """A value as JSON has it; what JSON has no form for, as text."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
