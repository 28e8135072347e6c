"""What becomes of a source on PostgreSQL when a table upstream gets other columns.

A column that was added is taken over by ``upstream_columns = evolve``: one commit gives the source
and its table the column, and marks the table's shard as to be evolved, as the commit of a migration
does; the next start of the query does it. Everything else is a hold with what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.external import UpstreamColumn, UpstreamTable
from catalog_migrate.model.names import fold
from catalog_migrate.model.objects import Column
from catalog_migrate.replication.errors import (
    OtherServer,
    OtherTimeline,
    SlotAhead,
    SlotLost,
    SlotMissing,
    TableChanged,
)
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import Draft
from catalog_migrate.streams.errors import RefusedStatement
from catalog_migrate.streams.upstream_tables import CHANGE_COLUMNS, DELETED, MIRROR_COLUMNS, role

FINAL = (SlotLost, SlotMissing, SlotAhead, OtherServer, OtherTimeline)
"""What no waiting changes: the position is worth nothing on this server."""

Discover = Callable[[UpstreamTable], Sequence[UpstreamColumn]]
"""The columns that a table upstream has now."""


def hold_reason(error: CatalogMigrateError, name: str) -> str:
    """Why a source is held, and what to write."""
    if isinstance(error, TableChanged):
        if added(error):
            return (
                f"{error.message}: write ALTER SOURCE {name} SET (UPSTREAM COLUMNS = 'evolve') to"
                f" take it over, or 'ignore' to leave it out, then RESUME SOURCE {name}"
            )
        return (
            f"{error.message}: rename or retype it back upstream and RESUME SOURCE {name}, or DROP"
            f" SOURCE {name} and create it again with other tables (the old ones keep their rows)"
        )
    return error.message + (f"; {error.remedy}" if error.remedy else "")


def added(error: TableChanged) -> tuple[str, ...]:
    """The names of columns that came, empty when anything else changed."""
    old = {column.name: (column.type_oid, column.modifier) for column in error.old}
    new = {column.name: (column.type_oid, column.modifier) for column in error.new}
    if any(new.get(name) != form for name, form in old.items()):
        return ()
    return tuple(name for name in new if name not in old)


def evolved(state: State, item_id: str, error: TableChanged, discover: Discover) -> Changes | None:
    """The commit that takes new columns over; None where they are there already.

    Raises :class:`RefusedStatement` where a name is taken or a type has none here.
    """
    item = state.items[item_id]
    external = dependencies.external_of(item)
    table = next((each for each in external.tables if each.full_name == error.table), None)
    if table is None or not added(error):
        return None
    known = {column.name: column for column in table.columns}
    there = {column.name: column for column in discover(table)}
    columns, ours = [], []
    for column in error.new:
        mine = known.get(column.name)
        if mine is None:
            now = there.get(column.name)
            same = now is not None and now.type_oid == column.type_oid
            # of one that was dropped or retyped since, PostgreSQL's own text is kept
            spark = now.type if now is not None and same else "STRING"
            mine = UpstreamColumn(column.name, column.type_oid, column.modifier, spark)
            ours.append(Column(column.name, spark))
        columns.append(mine)
    if not ours:
        return None
    target = dependencies.by_id(state, item.links[role(table)])
    if target.mapping.owner == "release":
        raise RefusedStatement(
            f"{target.text} belongs to the release, which says what columns it has",
            remedy="let the next release bring the column, or SET (UPSTREAM COLUMNS = 'ignore')",
        )
    own = {each.name for each in (*CHANGE_COLUMNS, *MIRROR_COLUMNS, DELETED)}
    standing = {fold(column.name) for column in target.item.definition.columns}
    clash = sorted(each.name for each in ours if fold(each.name) in own | standing)
    if clash:
        raise RefusedStatement(
            f"{target.text} has a column {', '.join(clash)} already",
            remedy="rename it upstream, or SET (UPSTREAM COLUMNS = 'ignore')",
        )
    draft = Draft(state)
    draft.redefine(target, msgspec.structs.replace(
        target.item.definition, columns=(*target.item.definition.columns, *ours)
    ))
    tables = tuple(
        msgspec.structs.replace(each, columns=tuple(columns)) if each is table else each
        for each in external.tables
    )
    draft.redefine(
        dependencies.by_id(state, item_id),
        dependencies.redefine(item, msgspec.structs.replace(external, tables=tables)),
    )
    return draft.changes
