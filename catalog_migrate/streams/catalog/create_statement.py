"""The statement that would create an object as it is now: connections, sources, sinks, clusters.

What an older version stored of a secret as plain text is shown as ``***``, which no statement sets.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import ItemRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import find_if_installed
from catalog_migrate.connectors.query import PLACE_COLUMNS
from catalog_migrate.model.objects import (
    CLUSTER_KINDS,
    Column,
    External,
    OptionValue,
    SecretRef,
)
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import (
    OPERATOR,
)
from catalog_migrate.streams.catalog.earlier_options import find_unstored_options
from catalog_migrate.streams.catalog.query_spec import (
    without_secrets,
)


def create_statement(
    state: State, found: dependencies.CatalogEntry, *, held: bool = False
) -> str:
    """Return the statement that would create an object as it is now, under present names.

    ``held``: with PAUSED while an operator holds it, and with what the options mean that it was
    stored without.
    """
    definition = found.item.definition
    external = present(state, found.item)
    if held and definition.kind in CLUSTER_KINDS:
        options = {**external.options, **find_unstored_options(state, found)}
        external = msgspec.structs.replace(external, options=options)
    name = str(definition.item_name)
    statement: st.Statement
    more: list[st.Statement] = []
    paused = _find_pause(state, found.item_id) if held else None
    if definition.kind == "secret":
        statement = st.CreateSecret(
            name=name, reference=external.reference or "", comment=definition.comment
        )
    elif definition.kind == "connection":
        statement = st.CreateConnection(name=name, external=external, comment=definition.comment)
    elif definition.kind == "source":
        statement = st.CreateSource(
            name=name, columns=_list_declared(definition.columns, external), external=external,
            comment=definition.comment, paused=paused,
        )
    elif definition.kind == "sink":
        statement = st.CreateSink(
            name=name, external=external, comment=definition.comment, paused=paused
        )
    else:
        statement = st.CreateCluster(name=name)
        if definition.comment:  # which its CREATE has no clause for
            more.append(st.Comment("cluster", name, definition.comment))
    overrides = _overrides(state, found)
    if overrides is not None:
        more.append(overrides)
    return "\n".join(map(render, (statement, *more)))


def _find_pause(state: State, item_id: str) -> str | None:
    """The reason for which an operator holds a source or sink; the first of several."""
    reasons = [
        hold.reason for _, hold in sorted(state.holds.items())
        if hold.item_id == item_id and hold.holder == OPERATOR
    ]
    return reasons[0] if reasons else None


def _overrides(state: State, found: dependencies.CatalogEntry) -> st.Unsafe | None:
    """The statement that puts options over those of the connection, where an item has any."""
    external = without_secrets(found.external)
    if not external.overrides:
        return None
    options: dict[str, OptionValue] = {
        name: SecretRef(dependencies.display(state, found.item.links[dependencies.OVERRIDE + name]))
        if isinstance(value, SecretRef) else value
        for name, value in external.overrides.items()
    }
    kind: QueryKind = "source" if found.mapping.kind == "source" else "sink"
    name = str(found.item.definition.item_name)
    return st.Unsafe(kind, name, (st.SetOptions(options),), "overrides its connection")


def present(state: State, item: ItemRecord) -> External:
    """Return an item's external part with the names that what it uses has now."""
    external = dependencies.external_of(item)
    links = item.links
    names: dict[str, str] = {
        role: dependencies.display(state, links[role])
        for role in ("connection", "registry", "reads", "dead_letters", "cluster") if role in links
    }
    options: dict[str, OptionValue] = {
        name: SecretRef(dependencies.display(state, links[dependencies.SECRET + name]))
        if isinstance(value, SecretRef)
        else dependencies.display(state, links[dependencies.USING + name])
        if dependencies.USING + name in links else value
        for name, value in external.options.items()
    }
    tables = tuple(
        msgspec.structs.replace(
            each, into=dependencies.display(state, links[dependencies.OUTPUT + each.name])
        )
        for each in external.tables
    )
    return msgspec.structs.replace(external, options=options, revision=1, tables=tables, **names)


def _list_declared(columns: tuple[Column, ...], external: External) -> tuple[Column, ...]:
    """The columns that the statement declared: without INCLUDE's and those of the place."""
    connector = find_if_installed(external.connector)
    section = None if connector is None else connector.section("source")
    if section is not None and section.tables:
        return ()
    records = section is None or section.records
    own = {column.name for column in PLACE_COLUMNS} if records else set()
    hidden = own | set(external.include.values())
    return tuple(column for column in columns if column.name not in hidden)
