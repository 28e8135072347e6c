"""CREATE: secrets, connections, sources, sinks and clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from catalog_migrate.language import clauses
from catalog_migrate.language.cursor import Cursor
from catalog_migrate.language.statements import (
    CreateCluster,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    Explainable,
)
from catalog_migrate.language.vocabulary import BASE_CONNECTION, CONNECTORS, INCLUDED
from catalog_migrate.model.external import External

Fields = dict[str, Any]
Clause = Callable[[Cursor], Fields]
"""Reads what follows the clause's first keyword and gives the fields that it sets."""


def create(cursor: Cursor) -> Explainable:
    """What follows CREATE."""
    if cursor.sees("OR", "REPLACE"):
        raise cursor.problem(
            "OR REPLACE has no meaning here",
            remedy="write ALTER to change it, or CREATE … IF NOT EXISTS",
        )
    return cursor.choose(_KINDS)(cursor)


def _secret(cursor: Cursor) -> CreateSecret:
    if_not_exists = clauses.if_not_exists(cursor)
    name = clauses.item_name(cursor, "a secret")
    cursor.need("AS")
    reference = cursor.need_string("a reference")
    return CreateSecret(
        name, reference, if_not_exists, **_in_any_order(cursor, {"COMMENT": _comment})
    )


def _cluster(cursor: Cursor) -> CreateCluster:
    if_not_exists = clauses.if_not_exists(cursor)
    return CreateCluster(clauses.item_name(cursor, "a cluster"), if_not_exists)


def _connection(cursor: Cursor) -> CreateConnection:
    if_not_exists = clauses.if_not_exists(cursor)
    name = clauses.item_name(cursor, "a connection")
    cursor.need("TO")
    connector = cursor.choose(CONNECTORS)
    options = clauses.options(cursor, base=True)
    base = options.pop(BASE_CONNECTION, None)
    external = External(
        connector=connector, connection=base if isinstance(base, str) else None, options=options
    )
    fields = _in_any_order(cursor, {"COMMENT": _comment, "WITH": _validation})
    return CreateConnection(name, external, if_not_exists, **fields)


def _source(cursor: Cursor) -> CreateSource:
    if_not_exists = clauses.if_not_exists(cursor)
    name = clauses.item_name(cursor, "a source")
    columns = clauses.columns(cursor)
    cluster = _cluster_clause(cursor)
    cursor.need("FROM")
    endpoint = _endpoint(cursor)
    fields = _in_any_order(
        cursor,
        {
            "FORMAT": _format, "INCLUDE": _include, "ON": _on_error, "COMMENT": _comment,
            "WITH": _settings,
        },
    )
    comment = fields.pop("comment", None)
    external = External(cluster=cluster, **endpoint, **fields)
    return CreateSource(name, columns, external, if_not_exists, comment)


def _sink(cursor: Cursor) -> CreateSink:
    if_not_exists = clauses.if_not_exists(cursor)
    name = clauses.item_name(cursor, "a sink")
    cluster = _cluster_clause(cursor)
    cursor.need("FROM")
    reads = clauses.item_name(cursor, "a table or source")
    cursor.need("INTO")
    endpoint = _endpoint(cursor)
    fields = _in_any_order(
        cursor, {"KEY": _key, "FORMAT": _format, "COMMENT": _comment, "WITH": _settings}
    )
    comment = fields.pop("comment", None)
    external = External(reads=reads, cluster=cluster, **endpoint, **fields)
    return CreateSink(name, external, if_not_exists, comment)


_KINDS: Mapping[str, Callable[[Cursor], Explainable]] = {
    "SECRET": _secret,
    "CONNECTION": _connection,
    "SOURCE": _source,
    "SINK": _sink,
    "CLUSTER": _cluster,
}


def _endpoint(cursor: Cursor) -> Fields:
    """``KAFKA CONNECTION c (…)``: the other side of a source or sink."""
    connector = cursor.choose(CONNECTORS)
    cursor.need("CONNECTION")
    connection = clauses.item_name(cursor, "a connection")
    return {
        "connector": connector, "connection": connection, "options": clauses.options(cursor)
    }


def _cluster_clause(cursor: Cursor) -> str | None:
    return clauses.item_name(cursor, "a cluster") if cursor.accept("IN", "CLUSTER") else None


def _in_any_order(cursor: Cursor, table: Mapping[str, Clause]) -> Fields:
    """The optional clauses up to the end of the statement, each at most once."""
    fields: Fields = {}
    left = dict(table)
    while not cursor.ended:
        token = cursor.token
        clause = cursor.may_choose(left)
        if clause is None:
            if token.kind == "word" and token.value in table:
                raise cursor.problem(
                    f"{token.value} is given twice", remedy="leave one of them out"
                )
            raise cursor.unexpected("the end of the statement")
        del left[token.value]
        fields.update(clause(cursor))
    for word in left:
        cursor.note(word)
    return fields


def _comment(cursor: Cursor) -> Fields:
    return {"comment": cursor.need_string("a comment")}


def _settings(cursor: Cursor) -> Fields:
    return {"settings": clauses.settings(cursor)}


def _validation(cursor: Cursor) -> Fields:
    return {"validate": clauses.validation(cursor)}


def _format(cursor: Cursor) -> Fields:
    if cursor.token.kind != "word":
        raise cursor.unexpected("a format such as JSON, TEXT or BYTES")
    return {"format": cursor.advance().value}


def _on_error(cursor: Cursor) -> Fields:
    cursor.need("ERROR")
    if cursor.accept("FAIL"):
        return {"dead_letters": None}
    cursor.need("INTO")
    return {"dead_letters": clauses.item_name(cursor, "a table")}


def _include(cursor: Cursor) -> Fields:
    include: dict[str, str] = {}
    while True:
        token = cursor.token
        column = cursor.choose(INCLUDED)
        if token.value in include:
            raise cursor.problem(
                f"{token.value} is included twice", token=token, remedy="leave one of them out"
            )
        if cursor.accept("AS"):
            column = cursor.need_part("the name of a column")
        include[token.value] = column
        if not cursor.accept_mark(","):
            return {"include": include}


def _key(cursor: Cursor) -> Fields:
    fields: Fields = {"key": clauses.column_names(cursor)}
    if cursor.accept("ORDER", "BY"):
        fields["order_by"] = clauses.column_names(cursor)
    return fields
