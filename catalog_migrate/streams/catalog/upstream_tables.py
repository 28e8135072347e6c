"""What a source on PostgreSQL declares: a table of ours for each table upstream.

FORMAT CHANGES appends every change to it, FORMAT MIRROR keeps the current rows by their key. The
source's own table has a row for each transaction: between two of them the tables agree with each
other as they did upstream.

When a table upstream gets a column, ``upstream_columns = evolve`` takes it over: one commit gives
the source and its table the column, and marks the table's shard as to be evolved, as the commit of
a migration does; the next start of the query does it. Everything else is a hold with what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit
from catalog_migrate.connectors.postgres.sessions import RESET_SPLITS
from catalog_migrate.errors import (
    CatalogMigrateError,
    ChangesMissing,
    OtherServer,
    OtherTimeline,
    PublicationMissing,
    RefusedStatement,
    RowsHidden,
    SlotAhead,
    SlotLost,
    SlotMissing,
    TableChanged,
    UnfitValue,
    UnreadableMessage,
)
from catalog_migrate.model.names import fold, quote_part, split_name
from catalog_migrate.model.objects import Column, External, UpstreamColumn, UpstreamTable
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.failures import Failure, insert_name, of_error
from catalog_migrate.streams.catalog.statement_changes import Draft

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import ItemRecord
    from catalog_migrate.connectors.postgres.types import DiscoveredTable
    from catalog_migrate.sql import statements as st

TRANSACTION_COLUMNS = (
    Column("_lsn", "BIGINT", comment="where its commit stands in the log of the server"),
    Column("_transaction", "BIGINT", comment="its number there"),
    Column("_committed", "TIMESTAMP"),
    Column("changes", "BIGINT", comment="of the tables of this source"),
)
"""What the own table of a POSTGRES source holds."""

CHANGE_COLUMNS = (
    Column("_lsn", "BIGINT", comment="of the commit; of rows of the snapshot, where it was taken"),
    Column("_sequence", "INT",
           comment="place within the transaction, of the snapshot the row's number"),
    Column("_operation", "STRING", comment="snapshot, insert, update, delete, truncate"),
    Column("_transaction", "BIGINT"),
    Column("_committed", "TIMESTAMP"),
    Column("_before", "MAP<STRING, STRING>",
           comment="the row before or its key, in PostgreSQL's text; NULL when it was not sent"),
    Column("_unchanged", "ARRAY<STRING>",
           comment="large values that stayed the same and were not sent: NULL stands there"),
)
"""What FORMAT CHANGES adds to the columns of a table upstream."""

MIRROR_COLUMNS = (
    Column("_lsn", "BIGINT", comment="of the newest change of this row"),
)
"""What FORMAT MIRROR adds."""

DELETED = Column("_deleted", "TIMESTAMP", comment="when the row was deleted upstream")
"""What FORMAT MIRROR with SOFT DELETES adds beside."""


UpstreamColumns = Literal["evolve", "follow", "hold", "ignore"]
"""What becomes of a column that is added upstream, with ``follow`` of one that is gone too."""

SNAPSHOT_LOADED = "loaded.json"
"""The file beside a source's checkpoints that says where its changes begin: the rows of its
snapshot are in its tables."""


VALIDATION = "validation"
"""The folder beside a source's checkpoints where VALIDATE SOURCE keeps how far it is."""

SNAPSHOT_ATTEMPT = "attempt.json"
"""The file there that says, before rows are copied and the slot is made, who copies: from then on a
slot of its name is ours."""


def upstream_columns(external: External, default: UpstreamColumns) -> UpstreamColumns:
    """What a source does with new columns: what it says itself, else what its runtime does."""
    own = external.settings.get("UPSTREAM COLUMNS")
    return cast("UpstreamColumns", own) if own is not None else default


def is_mirror(external: External) -> bool:
    """Return whether a source keeps current rows, and not every change."""
    return (external.format or "").upper() == "MIRROR"


def keeps_deleted(external: External) -> bool:
    """Return whether a mirror keeps rows that were deleted upstream."""
    return is_mirror(external) and external.settings.get("SOFT DELETES") == "true"


def apply_discovery(
    statement: st.CreateSource, found: Sequence[DiscoveredTable]
) -> st.CreateSource:
    """The statement with what the server says of its tables; they are in the same order.

    Raises :class:`RefusedStatement` for a column of a type that we have none for.
    """
    external = statement.external
    tables = []
    for table, there in zip(external.tables, found, strict=True):
        for column in there.published:
            if column.spark_type is None:
                raise RefusedStatement(
                    f"source {statement.name}: column {column.name} of {table.name} is "
                    f"{column.type}, and there is no type for it here",
                    remedy="leave the column out of the publication (CREATE PUBLICATION … FOR "
                    "TABLE t (columns), PostgreSQL 15 and later)",
                )
        tables.append(msgspec.structs.replace(table, columns=columns_of(there), key=there.key))
    return msgspec.structs.replace(
        statement, external=msgspec.structs.replace(external, tables=tuple(tables))
    )


def columns_of(there: DiscoveredTable) -> tuple[UpstreamColumn, ...]:
    """Return the columns of a table upstream, those of a type that we have none for as text.

    Those of a new table of ours take them, in the same order (:func:`our_columns`).
    """
    return tuple(
        UpstreamColumn(
            each.name, each.type_oid, each.modifier, each.spark_type or "STRING", column_id=number
        )
        for number, each in enumerate(there.published, 1)
    )


def with_column_ids(table: UpstreamTable, item: ItemRecord) -> UpstreamTable:
    """Return the table upstream whose columns those of the same names of ours take."""
    ids = {
        fold(column.name): number
        for column, number in zip(item.definition.columns, item.ids.ids, strict=True)
    }
    return msgspec.structs.replace(table, columns=tuple(
        msgspec.structs.replace(column, column_id=ids[fold(column.name)])
        for column in table.columns
    ))


def check_tables(name: str, external: External, schema: str) -> External:
    """The external part of a POSTGRES source with canonical names, everything about it checked.

    ``schema`` is where tables without one go. Raises :class:`RefusedStatement`.
    """
    where = f"source {name}"
    if not external.tables:
        raise RefusedStatement(
            f"{where} names no tables", remedy="write TABLES (a, b.c) among its options"
        )
    format_ = (external.format or "CHANGES").upper()
    if format_ not in ("CHANGES", "MIRROR"):
        raise RefusedStatement(
            f"{where}: FORMAT {format_} is not for tables of PostgreSQL",
            remedy="write FORMAT CHANGES or FORMAT MIRROR",
        )
    if external.include or external.dead_letters is not None:
        raise RefusedStatement(
            f"{where}: INCLUDE and ON ERROR are for records of a topic", remedy="leave them out"
        )
    tables = tuple(
        msgspec.structs.replace(each, into=_qualify(each.into, schema))
        for each in external.tables
    )
    for what, names in (
        ("table upstream", [each.name for each in tables]),
        ("table", [each.into.lower() for each in tables]),
    ):
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise RefusedStatement(
                f"{where} has the {what} {', '.join(twice)} twice",
                remedy="name each once; AS gives ours another name: TABLES (a.t, b.t AS other)",
            )
    external = msgspec.structs.replace(external, format=format_, tables=tables)
    own = _qualify(name, schema).lower()
    if own in (each.into.lower() for each in tables):
        raise RefusedStatement(
            f"{where} and one of its tables would have the same name, and the source's own table"
            " has it",
            remedy="give the table another: TABLES (t AS other), or call the source otherwise",
        )
    if format_ == "CHANGES" and external.settings.get("SOFT DELETES") == "true":
        raise RefusedStatement(
            f"{where}: SOFT DELETES is for FORMAT MIRROR; CHANGES keep every deleted row",
            remedy="leave it out",
        )
    for each in tables:
        if not each.columns:
            raise RefusedStatement(
                f"{where}: the columns of {each.name} upstream are not known",
                remedy="a POSTGRES source is created by a statement that can ask the server, and"
                " not by a release",
            )
        if is_mirror(external) and not each.key:
            raise RefusedStatement(
                f"{where}: {each.name} has no key, which FORMAT MIRROR tells its rows by",
                remedy="ALTER TABLE … ADD PRIMARY KEY upstream, or FORMAT CHANGES",
            )
    return external


def our_columns(table: UpstreamTable, external: External) -> tuple[Column, ...]:
    """Return the columns of our table for one upstream.

    Raises :class:`RefusedStatement` where one upstream has the name of one of the product's own.
    """
    own: tuple[Column, ...] = CHANGE_COLUMNS
    if is_mirror(external):
        own = (*MIRROR_COLUMNS, *((DELETED,) if keeps_deleted(external) else ()))
    names = {column.name for column in own}
    taken = sorted(column.name for column in table.columns if fold(column.name) in names)
    if taken:
        raise RefusedStatement(
            f"{table.name} has columns that are called as the product's own: {', '.join(taken)}",
            remedy="leave them out of the publication, or rename them upstream",
        )
    folded = [fold(column.name) for column in table.columns]
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if twice:
        raise RefusedStatement(
            f"{table.name} has columns that differ in case only: {', '.join(twice)}",
            remedy="leave one of them out of the publication, or rename it upstream",
        )
    keys = set(table.key) if is_mirror(external) else set()
    return (
        *(Column(each.name, each.type, nullable=each.name not in keys) for each in table.columns),
        *own,
    )


def snapshot_app(item_id: str) -> str:
    """The application that a table's transaction log names for the rows of a source's snapshot."""
    return f"catalog_migrate/snapshot/{item_id}"


def column_conflicts(wanted: Iterable[Column], there: Iterable[Column]) -> list[str]:
    """Return what keeps a table that is there from taking rows of those columns, in words."""
    known = {fold(column.name): column for column in there}
    found = []
    for column in wanted:
        other = known.pop(fold(column.name), None)
        if other is None:
            found.append(f"it has no column {column.name} {column.type}")
        elif other.type != column.type:
            found.append(f"its {column.name} is {other.type} and not {column.type}")
        elif column.nullable and not other.nullable:
            found.append(f"its {column.name} is NOT NULL, and NULL may come")
    found += [f"its {column.name} is NOT NULL" for column in known.values() if not column.nullable]
    return found


def _qualify(name: str, schema: str) -> str:
    own, last = split_name(name)
    return f"{quote_part(own or schema)}.{quote_part(last)}"


def role(table: UpstreamTable) -> str:
    """Return the role of the link from a source to our table for one upstream."""
    return dependencies.OUTPUT + table.name


FINAL = (
    SlotLost, SlotMissing, SlotAhead, OtherServer, OtherTimeline, PublicationMissing,
    UnreadableMessage, ChangesMissing, RowsHidden, UnfitValue,
)
"""What no waiting changes: the position is worth nothing on this server."""


def hold_of(error: CatalogMigrateError, name: str) -> Failure:
    """Why the source called ``name`` is held, what to do in words, and the statements that do it.
    """
    found = of_error(error, name)
    resume = f"RESUME SOURCE {name}"
    if not isinstance(error, TableChanged):
        return found if found.statements else msgspec.structs.replace(found, statements=(resume,))
    if found.statements:
        return found
    if _keys_unsent(error):
        return msgspec.structs.replace(
            found, statements=tuple(insert_name(each, name) for each in RESET_SPLITS),
            remedy=f"upstream: ALTER TABLE {error.table} REPLICA IDENTITY DEFAULT (or FULL), so"
            " that the server sends the key of a row that was changed; then take a new snapshot",
        )
    gone = columns_gone(error)
    if gone is None:
        return msgspec.structs.replace(
            found, statements=(f"SHOW CREATE SOURCE {name}",),
            remedy="drop the source and create it again with other tables, which takes a new"
            " snapshot (the old ones keep their rows)",
        )
    policy = "evolve" if not gone else "follow"
    kept = "; what is missing upstream stays here, NULL from then on" if gone else ""
    left_out = "; 'ignore' leaves it out" * (not gone)
    return msgspec.structs.replace(
        found, remedy=f"UPSTREAM COLUMNS = '{policy}' takes it over{kept}{left_out}",
        statements=(f"ALTER SOURCE {name} SET (UPSTREAM COLUMNS = '{policy}')", resume),
    )


def _keys_unsent(error: TableChanged) -> bool:
    """Whether columns of the key are there and no part of the replica identity any more."""
    unsent = {column.name for column in error.new if not column.key}
    return any(column.key and column.name in unsent for column in error.old)


def columns_gone(error: TableChanged) -> tuple[str, ...] | None:
    """Names of columns that went, of one that was renamed the old one; None where no policy takes
    the change over: another type, a key that is missing or no longer sent."""
    if _keys_unsent(error):
        return None
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
    return tuple(gone)


def is_taken_over(error: TableChanged, policy: UpstreamColumns) -> bool:
    """Return whether a policy takes a change over, and does not hold the source."""
    gone = columns_gone(error)
    if gone is None or policy not in ("evolve", "follow"):
        return False
    return policy == "follow" or not gone


def adopt_upstream_columns(
    state: State, item_id: str, error: TableChanged, now: Sequence[UpstreamColumn]
) -> tuple[Edit, ...]:
    """Return what takes a change of columns over; nothing where it has been already.

    Raises :class:`RefusedStatement` where a name is taken or a type has none here.
    """
    item = state.items[item_id]
    external = dependencies.external_of(item)
    table = next((each for each in external.tables if each.full_name == error.table), None)
    gone = columns_gone(error)
    if table is None or gone is None:
        return ()
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
        msgspec.structs.replace(column, until=lsn) if column.name in gone else column
        for column in table.columns if column.name not in names
    ]
    if tuple(columns) == table.columns:
        return ()
    own = {each.name for each in (*CHANGE_COLUMNS, *MIRROR_COLUMNS, DELETED)}
    draft = Draft(state)
    if target.mapping.owner == "release":
        used = {column.column_id for column in table.columns}
        free = [standing[name][1] for name in (fold(each.name) for each in ours)
                if name in standing and name not in own and standing[name][0] not in used]
        problems = column_conflicts(ours, free)
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
    return draft.updates
