"""Connections, sources and sinks that a release ships: CREATE statements in one canonical form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.errors import InvalidOptions, Problem, SyntaxProblem
from catalog_migrate.model.names import quote_part, split_name
from catalog_migrate.model.walks import chain
from catalog_migrate.sql.statements import USED_CONNECTIONS

if TYPE_CHECKING:
    from catalog_migrate.release.release import Place
    from catalog_migrate.sql.statements import Statement

SYNTAX = "CM0101"
TWICE = "CM0102"
NOT_BUNDLED = "CM0114"
NO_REFERENCE = "CM0117"

_RANK = {"CreateSecret": 0, "CreateCluster": 1, "CreateConnection": 2, "CreateSource": 3,
         "CreateSink": 4}


def canonical_statements(
    written: Iterable[tuple[str, Place]], *, default_schema: str | None
) -> tuple[tuple[str, ...], list[Problem]]:
    """The statements in the order in which they can be executed, and everything that is wrong.

    Names without a schema go to ``default_schema``. What can be told without a catalog is told
    here, with its place; the rest when the release is planned, against what is in the catalog.
    """
    found: dict[tuple[str, str], tuple[int, Statement, Place]] = {}
    problems: list[Problem] = []
    for text, place in written:
        statement = _parsed(text, place, problems)
        if statement is None:
            continue
        kind = type(statement).__name__
        if kind not in _RANK:
            problems.append(_problem(NOT_BUNDLED, "only CREATE can be bundled", place, text))
            continue
        named = _with_schema(statement, default_schema)
        key = kind, str(getattr(named, "name", "")).lower()
        if key in found:
            problems.append(_problem(TWICE, "this is declared twice", place, text))
            continue
        found[key] = _RANK[kind], named, place
        problems += _wrong_in_itself(named, place, text)
    if not found:
        return (), problems
    from catalog_migrate.sql.printer import render

    connections = {name: each for (kind, name), (_, each, _) in found.items()
                   if kind == "CreateConnection"}
    ordered = sorted(
        found.items(),
        key=lambda entry: (
            entry[1][0], _leads_on(entry[1][1]), _depth(entry[1][1], connections), entry[0][1],
        ),
    )
    return tuple(render(statement) for _, (_, statement, _) in ordered), problems


def _parsed(text: str, place: Place, problems: list[Problem]) -> Statement | None:
    from catalog_migrate.sql.parser import parse_one

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
    return Problem(
        code, message, file=place.file, line=place.line, column=place.column, text=_head(text)
    )


def _head(text: str) -> str:
    """How a statement begins, without any value in it: it may be a secret."""
    return re.split(r"[('\"]", text, maxsplit=1)[0].strip()


def _wrong_in_itself(statement: Statement, place: Place, text: str) -> list[Problem]:
    """What no catalog could make right: a secret's text, options and their values."""
    reference = getattr(statement, "reference", None)
    if reference is not None:
        return _no_reference(reference, place, text)
    external = getattr(statement, "external", None)
    if external is None:
        return []
    if external.tables:
        unknown_columns = _problem(
            "CM0751", f"source {statement.name} reads tables of a database, whose columns only its"  # type: ignore[union-attr]
            " server tells", place, text,
        )
        remedy = "create it by a statement behind the upgrade: catalog-migrate sql"
        return [unknown_columns._replace(remedy=remedy)]
    from catalog_migrate.connectors.options import EXCLUSIVE, MISSING, check

    section = type(statement).__name__.removeprefix("Create").lower()
    where = f"{section} {statement.name}"  # type: ignore[union-attr]
    try:
        check(
            (external.connector or "").upper(), section,  # type: ignore[arg-type]
            external.options, settings=external.settings, where=where,
        )
    except InvalidOptions as error:
        # what a base connection brings along is known with the catalog alone
        unknown = (MISSING, EXCLUSIVE) if section == "connection" and external.connection else ()
        found = error.problems or (Problem(error.code, error.message, remedy=error.remedy),)
        return [
            each._replace(
                message=f"{where}: {each.message}" if error.problems else each.message,
                file=place.file, line=place.line, column=place.column,
                text=each.text or _head(text),
            )
            for each in found if each.code not in unknown
        ]
    return []


def _no_reference(reference: str, place: Place, text: str) -> list[Problem]:
    """A secret whose text names no place where its value is kept; the text itself is not told."""
    from catalog_migrate.connectors.secrets import is_scheme, schemes

    scheme, _, rest = reference.partition(":")
    if rest and is_scheme(scheme):
        return []
    found = _problem(
        NO_REFERENCE, "this is no reference to a secret (its text is not shown, it may be one)",
        place, text,
    )
    written = " or ".join(f"'{each}:…'" for each in schemes())
    return [found._replace(
        remedy=f"write where the value is kept: {written}; values themselves are never stored",
    )]


def _with_schema(statement: Statement, default_schema: str | None) -> Statement:
    """The statement with every name of an item qualified."""
    if default_schema is None:
        return statement
    changes: dict[str, object] = {"name": _qualified(statement.name, default_schema)}  # type: ignore[union-attr]
    external = getattr(statement, "external", None)
    if external is not None:
        names = {
            field: _qualified(getattr(external, field), default_schema)
            for field in ("connection", "registry", "reads", "dead_letters", "cluster")
            if getattr(external, field) is not None
        }
        options = {
            name: msgspec.structs.replace(value, secret=_qualified(value.secret, default_schema))
            if hasattr(value, "secret")
            else _qualified(value, default_schema) if name in USED_CONNECTIONS else value
            for name, value in external.options.items()
        }
        changes["external"] = msgspec.structs.replace(external, options=options, **names)
    return msgspec.structs.replace(statement, **changes)


def _qualified(name: str, default_schema: str) -> str:
    schema, last = split_name(name)
    return f"{quote_part(schema or default_schema)}.{quote_part(last)}"


def _leads_on(statement: Statement) -> bool:
    """Whether a statement may use a connection by an option: those so used, tunnels, come first."""
    external = getattr(statement, "external", None)
    return external is not None and (external.connector or "") not in USED_CONNECTIONS


def _depth(statement: Statement, bundled: Mapping[str, Statement]) -> int:
    """How many bundled connections a connection inherits from: bases come first."""

    def base(each: Statement | None) -> str | None:
        name = getattr(getattr(each, "external", None), "connection", None)
        return name.lower() if name is not None and name.lower() in bundled else None

    first = base(statement)
    return 0 if first is None else len(chain(first, lambda name: base(bundled[name])))
