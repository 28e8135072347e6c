"""Connections, sources and sinks that a release ships: CREATE statements in one canonical form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.errors import Problem, SyntaxProblem
from catalog_migrate.model.names import quote_part, split_name

if TYPE_CHECKING:
    from catalog_migrate.language.statements import Statement
    from catalog_migrate.release.release import Place

SYNTAX = "CM0101"
TWICE = "CM0102"
NOT_SHIPPABLE = "CM0114"

_RANK = {"CreateSecret": 0, "CreateCluster": 1, "CreateConnection": 2, "CreateSource": 3,
         "CreateSink": 4}


def canonical_statements(
    written: Iterable[tuple[str, Place]], *, default_schema: str | None
) -> tuple[tuple[str, ...], list[Problem]]:
    """The statements in the order in which they can be executed, and everything that is wrong.

    Names without a schema go to ``default_schema``. Options are checked when the release is
    planned, against what is in the catalog.
    """
    found: dict[tuple[str, str], tuple[int, Statement, Place]] = {}
    problems: list[Problem] = []
    for text, place in written:
        statement = _parsed(text, place, problems)
        if statement is None:
            continue
        kind = type(statement).__name__
        if kind not in _RANK:
            problems.append(_problem(NOT_SHIPPABLE, "only CREATE can be shipped", place, text))
            continue
        named = _with_schema(statement, default_schema)
        key = kind, str(getattr(named, "name", "")).lower()
        if key in found:
            problems.append(_problem(TWICE, "this is declared twice", place, text))
            continue
        found[key] = _RANK[kind], named, place
    if not found:
        return (), problems
    from catalog_migrate.language.printer import render

    ordered = sorted(
        found.items(), key=lambda entry: (entry[1][0], _depth(entry[1][1], found), entry[0][1])
    )
    return tuple(render(statement) for _, (_, statement, _) in ordered), problems


def _parsed(text: str, place: Place, problems: list[Problem]) -> Statement | None:
    from catalog_migrate.language.parser import parse_one

    try:
        return parse_one(text)
    except SyntaxProblem as error:
        first = place.line or 1
        column = error.column + (place.column or 1) - 1 if error.line == 1 else error.column
        problems.append(
            Problem(
                SYNTAX, error.message.partition(": ")[2] or error.message, file=place.file,
                line=first + error.line - 1 if place.line is not None else None,
                column=column if place.line is not None else None,
                text=error.source_line.strip(), remedy=error.remedy,
            )
        )
        return None


def _problem(code: str, message: str, place: Place, text: str) -> Problem:
    head = text.split("(", 1)[0].strip()
    return Problem(code, message, file=place.file, line=place.line, column=place.column, text=head)


def _with_schema(statement: Statement, default_schema: str | None) -> Statement:
    """The statement with every name of an item qualified."""
    if default_schema is None:
        return statement
    changes: dict[str, object] = {"name": _qualified(statement.name, default_schema)}  # type: ignore[union-attr]
    external = getattr(statement, "external", None)
    if external is not None:
        names = {
            field: _qualified(getattr(external, field), default_schema)
            for field in ("connection", "reads", "dead_letters", "cluster")
            if getattr(external, field) is not None
        }
        options = {
            name: msgspec.structs.replace(value, secret=_qualified(value.secret, default_schema))
            if hasattr(value, "secret") else value
            for name, value in external.options.items()
        }
        changes["external"] = msgspec.structs.replace(external, options=options, **names)
    return msgspec.structs.replace(statement, **changes)


def _qualified(name: str, default_schema: str) -> str:
    schema, last = split_name(name)
    return f"{quote_part(schema or default_schema)}.{quote_part(last)}"


def _depth(
    statement: Statement, found: dict[tuple[str, str], tuple[int, Statement, Place]]
) -> int:
    """How many shipped connections a connection inherits from: bases come first."""
    depth = 0
    seen: set[str] = set()
    external = getattr(statement, "external", None)
    while external is not None and external.connection is not None:
        name = external.connection.lower()
        entry = found.get(("CreateConnection", name))
        if entry is None or name in seen:
            break
        seen.add(name)
        depth += 1
        external = getattr(entry[1], "external", None)
    return depth
