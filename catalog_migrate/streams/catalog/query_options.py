"""The options, format and connection of a source or sink, checked against its connector."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import connector_names, find_connector
from catalog_migrate.connectors.common_options import TIMESTAMP_UNIT
from catalog_migrate.connectors.options import check, complete_options, section_of
from catalog_migrate.errors import ConnectorMissing, Problem, RefusedStatement
from catalog_migrate.model.connector_names import package_of
from catalog_migrate.model.names import split_name
from catalog_migrate.model.objects import (
    External,
    ObjectDefinition,
    OptionValue,
)
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.accepted import own_problems


def named(kind: str, name: str, **fields: object) -> ObjectDefinition:
    """Return a definition with a name as written; without a schema it goes to the default one."""
    schema, last = split_name(name)
    data = {"schema": schema or dependencies.DEFAULT_SCHEMA, "kind": kind, "name": last, **fields}
    return ObjectDefinition(**data)  # type: ignore[arg-type]


def refuse(where: str, problems: Sequence[Problem]) -> None:
    """Raise RefusedStatement with all problems, where there are any."""
    if problems:
        raise RefusedStatement(
            f"{where}: {'; '.join(each.message for each in problems)}",
            remedy="; ".join(each.remedy for each in problems if each.remedy) or None,
        )


def check_query(
    state: State, kind: QueryKind, name: str, external: External,
    before: Collection[str] | None = None,
) -> tuple[External, dict[str, str]]:
    """The external part of a source or sink with canonical options, and its connection's link.

    ``before`` are the names of the options of what is altered, None for a CREATE; see
    :func:`~catalog_migrate.connectors.options.complete_options`.
    """
    connector = require_connector(external.connector)
    where = f"{kind} {named(kind, name).item_name}"
    if external.connection is None:
        raise RefusedStatement(f"{where} names no connection", remedy="write CONNECTION c")
    connection = dependencies.find(state, "connection", external.connection)
    if connection.external.connector != connector:
        raise RefusedStatement(
            f"{where} is {connector}, {connection.text} is {connection.external.connector}",
            remedy=f"name a {connector} connection; SHOW CONNECTIONS lists them",
        )
    section_of(connector, kind, where=where)
    whole = dependencies.effective(state, connection.item_id)
    given, absent = complete_options(
        connector, kind, external.options, connection=whole.options, before=before
    )
    options, settings = check(
        connector, kind, {**given, **absent}, settings=external.settings, where=where
    )
    for option in absent:
        del options[option]
    links = {"connection": connection.item_id}
    _check_format(where, connector, kind, external)
    _check_unit(where, kind, external, options, whole.options)
    own = msgspec.structs.replace(external, connector=connector, options=options)
    require_own_rules(where, kind, own, whole.options)
    if external.registry is not None:
        registry = dependencies.find(state, "connection", external.registry)
        if not find_connector(registry.external.connector).holds_schemas:
            raise RefusedStatement(
                f"{registry.text} is {registry.external.connector}, no schema registry",
                remedy="CREATE CONNECTION r TO SCHEMA REGISTRY (URL '…'), then name it",
            )
        links[dependencies.REGISTRY] = registry.item_id
    if external.tables and not section_of(connector, kind, where=where).tables:
        raise RefusedStatement(
            f"{where}: TABLES is for sources on POSTGRES", remedy="leave it out"
        )
    return (
        msgspec.structs.replace(
            external, connector=connector, package=package_of(connector),
            options=options, settings={key: str(value) for key, value in settings.items()},
        ),
        links,
    )


def require_own_rules(
    where: str, kind: QueryKind, external: External, connection: Mapping[str, OptionValue]
) -> None:
    """Raise RefusedStatement with everything that the connector itself refuses."""
    refuse(where, own_problems(kind, external, connection))


def _check_unit(
    where: str, kind: QueryKind, external: External, options: Mapping[str, OptionValue],
    connection: Mapping[str, OptionValue],
) -> None:
    """RefusedStatement for TIMESTAMP UNIT where no number is read as a TIMESTAMP."""
    by = section_of(external.connector or "", kind).format_from
    written = connection.get(by, "json") if by else external.format
    if TIMESTAMP_UNIT in options and str(written or "JSON").upper() not in _WITH_NUMBERS:
        raise RefusedStatement(
            f"{where}: {TIMESTAMP_UNIT} is for numbers in JSON, FORMAT is {written}",
            remedy="leave it out",
        )


_WITH_NUMBERS = frozenset({"JSON", "JSON SCHEMA"})


def _check_format(where: str, connector: str, kind: QueryKind, external: External) -> None:
    """RefusedStatement for a format, or options of one, that does not go with (no) registry."""
    section = section_of(connector, kind, where=where)
    registered = section.registered_formats
    written = f"FORMAT {external.format}"
    using = "USING SCHEMA REGISTRY CONNECTION"
    if external.registry is None:
        if external.format in REGISTERED_FORMATS:
            raise RefusedStatement(
                f"{where}: {written} needs a schema registry" if external.format in registered
                else _no_format(where, connector, kind, external),
                remedy=f"write {written} {using} r" if external.format in registered
                else _remedy(registered, section.formats),
            )
        strange = [name for name in _OF_REGISTRIES if name in external.options]
        strange += ["KEY FORMAT"] * (external.key_format is not None)
        if strange:
            raise RefusedStatement(
                f"{where}: {' and '.join(strange)} is for formats of a schema registry",
                remedy=f"leave it away, or write FORMAT {' or '.join(registered)} {using} r",
            )
        return
    if external.format not in registered:
        raise RefusedStatement(
            f"{where}: {written} uses no schema registry"
            if external.format not in REGISTERED_FORMATS
            else _no_format(where, connector, kind, external),
            remedy=_remedy(registered, section.formats),
        )
    if external.key_format is not None and external.key_format not in section.key_formats:
        raise RefusedStatement(
            f"{where}: KEY FORMAT {external.key_format} is not known there",
            remedy=f"write KEY FORMAT {' or '.join(section.key_formats)}" if section.key_formats
            else "leave it away: the key of a sink is its KEY columns, as text",
        )
    if external.key_format is not None and "KEY" not in external.include:
        raise RefusedStatement(
            f"{where}: KEY FORMAT says how the key is shown, and nothing shows it",
            remedy="write INCLUDE KEY",
        )


_OF_REGISTRIES: tuple[str, ...] = ("SUBJECT STRATEGY", "RECORD NAME")


REGISTERED_FORMATS = frozenset({"AVRO", "PROTOBUF", "JSON SCHEMA"})
"""Formats whose records carry the number of a schema."""


def _no_format(where: str, connector: str, kind: QueryKind, external: External) -> str:
    return f"{where}: {connector} {kind}s have no FORMAT {external.format} in this version"


def _remedy(registered: Sequence[str], formats: Sequence[str]) -> str:
    with_registry = f"FORMAT {' or '.join(registered)} with one" if registered else ""
    without = f"FORMAT {' or '.join(formats)} without a registry" if formats else ""
    return "write " + ", or ".join(filter(None, (without, with_registry)))


def require_connector(name: str | None) -> str:
    """Return the canonical name; raise RefusedStatement where there is no such connector."""
    try:
        return find_connector(name).name
    except ConnectorMissing as error:
        raise RefusedStatement(
            f"{name} is no type of connection",
            remedy="the types: " + ", ".join(sorted(connector_names())) + "; others come with a"
            " package that has them",
        ) from error
