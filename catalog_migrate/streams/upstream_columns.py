"""What becomes of a source on PostgreSQL when a table upstream gets other columns.

A column that was added is taken over by ``upstream_columns = evolve``: one commit gives the source
and its table the column, and marks the table's shard as to be evolved, as the commit of a migration
does; the next start of the query does it. Everything else is a hold with what to write.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.names import fold
from catalog_migrate.model.objects import Column, UpstreamColumn
from catalog_migrate.replication.errors import (
    OtherServer,
    OtherTimeline,
    PublicationMissing,
    SlotAhead,
    SlotLost,
    SlotMissing,
    TableChanged,
    UnreadableMessage,
)
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import Draft
from catalog_migrate.streams.errors import RefusedStatement
from catalog_migrate.streams.upstream_tables import (
    CHANGE_COLUMNS,
    DELETED,
    MIRROR_COLUMNS,
    UpstreamColumns,
    misfits,
    role,
)

FINAL = (
    SlotLost, SlotMissing, SlotAhead, OtherServer, OtherTimeline, PublicationMissing,
    UnreadableMessage,
)
"""What no waiting changes: the position is worth nothing on this server."""



def hold_reason(error: CatalogMigrateError, name: str) -> str:
    """Why a source is held, and what to write."""
    if not isinstance(error, TableChanged):
        remedy = (error.remedy or "").replace("ALTER SOURCE …", f"ALTER SOURCE {name}")
        return error.message + (f"; {remedy}" if remedy else "")
    news = news_of(error)
    if news is None:
        return (
            f"{error.message}: DROP SOURCE {name} and create it again with other tables, which"
            " takes a new snapshot (the old ones keep their rows)"
        )
    policy = "evolve" if not news.gone else "follow"
    kept = " (what is gone stays here, NULL from then on)" * bool(news.gone)
    left_out = ", or 'ignore' to leave it out" * (not news.gone)
    return (
        f"{error.message}: write ALTER SOURCE {name} SET (UPSTREAM COLUMNS = '{policy}') to take it"
        f" over{kept}{left_out}, then RESUME SOURCE {name}"
    )


class News(msgspec.Struct, frozen=True):
    """Names of columns that came and that went; one that was renamed is both."""

    came: tuple[str, ...]
    gone: tuple[str, ...]


def news_of(error: TableChanged) -> News | None:
    """What changed, None where no policy takes it over: another type, a key that is gone."""
    new = {column.name: (column.type_oid, column.modifier) for column in error.new}
    gone = []
    for column in error.old:
        form = new.pop(column.name, None)
        if form == (column.type_oid, column.modifier):
            continue
        if form is not None or column.key:
            return None
        if not column.may_be_missing(int(error.data.get("lsn", 0))):
            gone.append(column.name)
    return News(tuple(new), tuple(gone))


def is_taken_over(error: TableChanged, policy: UpstreamColumns) -> bool:
    """Whether a policy takes a change over, and does not hold the source."""
    news = news_of(error)
    if news is None or policy not in ("evolve", "follow"):
        return False
    return policy == "follow" or not news.gone


def evolved(
    state: State, item_id: str, error: TableChanged, now: Sequence[UpstreamColumn]
) -> Changes | None:
    """The commit that takes a change of columns over; None where it has been already.

    Raises :class:`RefusedStatement` where a name is taken or a type has none here.
    """
    item = state.items[item_id]
    external = dependencies.external_of(item)
    table = next((each for each in external.tables if each.full_name == error.table), None)
    news = news_of(error)
    if table is None or news is None:
        return None
    target = dependencies.by_id(state, item.links[role(table)])
    standing = {
        fold(column.name): (number, column) for number, column
        in zip(target.item.ids.ids, target.item.definition.columns, strict=True)
    }
    known = {column.name: column for column in table.columns}
    there = {column.name: column for column in now}
    columns, ours = [], []
    lsn, last = int(error.data.get("lsn", 0)), target.item.ids.last
    for column in error.new:
        mine = known.get(column.name)
        if mine is None:
            found = there.get(column.name)
            same = found is not None and found.type_oid == column.type_oid
            # of one that was dropped or retyped since, PostgreSQL's own text is kept
            spark = found.type if found is not None and same else "STRING"
            ours.append(Column(column.name, spark))
            column_id, _ = standing.get(fold(column.name), (last + len(ours), None))
            mine = UpstreamColumn(
                column.name, column.type_oid, column.modifier, spark, lsn, column_id=column_id
            )
        columns.append(mine)
    names = {column.name for column in columns}
    columns += [
        msgspec.structs.replace(column, until=lsn) if column.name in news.gone else column
        for column in table.columns if column.name not in names
    ]
    if tuple(columns) == table.columns:
        return None
    own = {each.name for each in (*CHANGE_COLUMNS, *MIRROR_COLUMNS, DELETED)}
    draft = Draft(state)
    if target.mapping.owner == "release":
        used = {column.column_id for column in table.columns}
        free = [standing[name][1] for name in (fold(each.name) for each in ours)
                if name in standing and name not in own and standing[name][0] not in used]
        problems = misfits(ours, free)
        if problems:
            raise RefusedStatement(
                f"{target.text} belongs to the release, which says what columns it has:"
                f" {'; '.join(problems)}",
                remedy=f"let the next release bring {', '.join(each.name for each in ours)}, or SET"
                " (UPSTREAM COLUMNS = 'ignore')",
            )
    else:
        clash = sorted(each.name for each in ours if fold(each.name) in own | set(standing))
        if clash:
            raise RefusedStatement(
                f"{target.text} has a column {', '.join(clash)} already",
                remedy="rename it upstream, or SET (UPSTREAM COLUMNS = 'ignore')",
            )
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
