"""What became of a source's tables since an earlier survey, and whether a change may be missing.

Pure: two surveys in, :class:`Difference` values out. DDL that was undone between the two has left
another transaction at the rows of the catalog that it wrote, and counts as DDL. What cannot have
lost a change is no difference. Columns that are new, missing or renamed are none either: the log
says at which change that begins (:mod:`catalog_migrate.connectors.postgres.pgoutput`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from typing import Literal

import msgspec

from catalog_migrate.connectors.postgres.survey import (
    Descendant,
    Publication,
    Survey,
    SurveyedColumn,
    SurveyedTable,
    UniqueIndex,
)
from catalog_migrate.connectors.postgres.types import NUMERIC
from catalog_migrate.model.names import quote_postgres

Remedy = Literal["snapshot", "resume", "create"]
"""What helps in the end: a new snapshot, nothing but to go on, or another source."""


class Doubt(msgspec.Struct, frozen=True):
    """What only rows or the log can decide about a partition: whether one ``attached`` had rows
    before, whether one ``emptied`` was by a TRUNCATE of its whole table."""

    kind: Literal["attached", "emptied"]
    part: Descendant


class Difference(msgspec.Struct, frozen=True):
    """A cause for which changes of a table may be missing.

    ``before`` are statements for the upstream, to be run before the ``remedy``. With a ``doubt``
    it counts only where that is confirmed.
    """

    table: str
    cause: str
    remedy: Remedy = "snapshot"
    before: str = ""
    doubt: Doubt | None = None


def compare(
    recorded: Survey, found: Survey, *, mirror: bool, columns: Mapping[str, Collection[str]],
) -> tuple[Difference, ...]:
    """Everything between two surveys that may have lost a change.

    ``mirror``: what lets rows differ counts too, though no change of them is missing. ``columns``
    are those that the source has of each table. A table that ``recorded`` lacks is passed over.
    """
    differences: list[Difference] = []
    for table in recorded.tables:
        there = found.table(table.name)
        if there is None or there.oid != table.oid:
            differences.append(
                _moved(table, there, found.names.get(table.oid), found.publication)
            )
            continue
        differences += _of_publication(table, there, found.publication)
        differences += _of_partitions(table, there, mirror=mirror)
        if mirror:
            known = {each.name for each in found.tables}
            differences += _of_children(table, there, known)
            differences += _of_key(table, there)
            differences += _of_columns(table, there, columns.get(table.name, ()))
    return tuple(differences)


def sql_name(name: str) -> str:
    """``schema.table`` as SQL takes it."""
    schema, _, table = name.partition(".")
    return f"{quote_postgres(schema)}.{quote_postgres(table)}"


def _moved(
    table: SurveyedTable, there: SurveyedTable | None, called: str | None, publication: str
) -> Difference:
    """A name that leads to no table now, or to another one."""
    if there is not None:
        add = f"ALTER PUBLICATION {quote_postgres(publication)} ADD TABLE {sql_name(table.name)}"
        now = "" if called is None else f", the one of before is {called} now"
        return Difference(
            table.name,
            f"it is another table than before: it was "
            f"{'dropped' if called is None else 'renamed'} and one of its name created{now}",
            before=add if there.published is None and there.publication is not None else "",
        )
    if called is not None:
        return Difference(
            table.name, f"it was renamed, and is {called} now", "resume",
            _renaming(called, table.name),
        )
    return Difference(
        table.name, "it was dropped", "create", f"create {table.name} again",
    )


def _renaming(called: str, name: str) -> str:
    """The statements that give a table its name back."""
    schema, _, last = name.partition(".")
    its, _, now = called.partition(".")
    statements = []
    if its != schema:
        statements.append(f"ALTER TABLE {sql_name(called)} SET SCHEMA {quote_postgres(schema)}")
    if now != last:
        statements.append(f"ALTER TABLE {sql_name(f'{schema}.{now}')} RENAME TO"
                          f" {quote_postgres(last)}")
    return "; ".join(statements)


# -- publication -----------------------------------------------------------------------------------


def _of_publication(
    table: SurveyedTable, there: SurveyedTable, name: str
) -> Iterator[Difference]:
    was, now = table.publication, there.publication
    if was is None or table.published is None:
        return  # nothing came until now
    if now is None:
        yield Difference(
            table.name, f"publication {name} is missing",
            before=f"CREATE PUBLICATION {quote_postgres(name)} FOR TABLE …",
        )
    elif now.oid != was.oid:
        yield Difference(table.name, f"publication {name} was dropped and created again")
    else:
        yield from _of_operations(table, was, now, name)
        # the first is the cause of the others
        yield from islice(chain(_of_log(table, there), _of_membership(table, there, name)), 1)


def _of_operations(
    table: SurveyedTable, was: Publication, now: Publication, name: str
) -> Iterator[Difference]:
    lost = [each for each in was.operations if each not in now.operations]
    if lost:
        yield Difference(
            table.name, f"publication {name} does not publish {', '.join(lost)} any more",
            before=f"ALTER PUBLICATION {quote_postgres(name)}"
            f" SET (publish = '{', '.join(was.operations)}')",
        )
    elif now.version != was.version and _is_same(was, now):
        yield Difference(table.name, f"publication {name} was altered, and altered back")


def _of_log(table: SurveyedTable, there: SurveyedTable) -> Iterator[Difference]:
    """What of a table's changes the server's log lacks."""
    if there.persistence == "u" != table.persistence:
        yield Difference(
            table.name, "it is unlogged: its changes are not in the log",
            before=f"ALTER TABLE {sql_name(table.name)} SET LOGGED",
        )
    elif (
        (table.toast and there.toast != table.toast) and not _are_altered(table, there)
        # PostgreSQL refuses it of a table that is published by itself
        and not any(each.kind == "table" for each in there.memberships)
    ):
        yield Difference(table.name, "it was rewritten: unlogged, and logged again")


def _of_membership(
    table: SurveyedTable, there: SurveyedTable, name: str
) -> Iterator[Difference]:
    if there.published is None:
        yield Difference(
            table.name, f"publication {name} does not hold it any more",
            before=_publishing(table, there, quote_postgres(name)),
        )
    elif there.filter != table.filter:
        now, before = (
            f"WHERE {each.filter}" if each.filter else "all rows" for each in (there, table)
        )
        yield Difference(
            table.name,
            f"publication {name} gives other rows of it than before: now {now}, before {before}",
        )
    elif not set(table.memberships) & set(there.memberships):
        yield Difference(
            table.name, f"it was dropped from publication {name} and added again, or its filter or"
            " list of columns was altered, and altered back",
        )
    elif table.links != there.links and _by_links(table, there):
        yield Difference(
            table.name, "it was attached to a table as a partition of it, or detached"
        )


def _publishing(table: SurveyedTable, there: SurveyedTable, quoted: str) -> str:
    """The statement by which a publication has a table again."""
    was, now = table.publication, there.publication
    if was is not None and now is not None and was.via_root != now.via_root:
        word = str(was.via_root).lower()
        return f"ALTER PUBLICATION {quoted} SET (publish_via_partition_root = {word})"
    return f"ALTER PUBLICATION {quoted} ADD TABLE {sql_name(table.name)}"


def _are_altered(table: SurveyedTable, there: SurveyedTable) -> bool:
    """Whether a column was added or altered, which may have rewritten the table as well."""
    before = {each.name: each.version for each in table.columns}
    return any(before.get(each.name) != each.version for each in there.columns)


def _is_same(was: Publication, now: Publication) -> bool:
    return msgspec.structs.replace(was, version=0) == msgspec.structs.replace(now, version=0)


def _by_links(table: SurveyedTable, there: SurveyedTable) -> bool:
    """Whether a table's changes came, or come now, by way of one that it is a partition of."""
    lasting = set(table.memberships) & set(there.memberships)
    own = any(each.kind != "table" or each.of == table.oid for each in lasting)
    return not own or (there.publication is not None and there.publication.via_root)


# -- partitions and tables that inherit ------------------------------------------------------------


def _of_partitions(
    table: SurveyedTable, there: SurveyedTable, *, mirror: bool
) -> Iterator[Difference]:
    if not there.partitioned:
        return
    parts = {each.oid: each for each in there.descendants}
    known = {each.oid for each in table.descendants}
    for part in table.descendants:
        now = parts.get(part.oid)
        if now is not None:
            yield from _of_partition(table, there, part, now)
        elif mirror and part.kind != "p":
            yield Difference(
                table.name, f"its partition {part.name} was detached or dropped: no change says"
                " that its rows went",
            )
    for part in there.descendants:
        if part.oid not in known and part.kind != "p":
            yield _of_new_partition(table, part)


def _of_partition(
    table: SurveyedTable, there: SurveyedTable, part: Descendant, now: Descendant
) -> Iterator[Difference]:
    """What happened to a partition that is one still; ``part`` is it before."""
    altered = {each.version for each in there.columns}  # these rewrite partitions as well
    if now.attached != part.attached:
        if part.kind != "p":
            yield Difference(
                table.name, f"its partition {part.name} was detached, and attached again"
            )
    elif part.toast and now.toast != part.toast and not _are_altered(table, there):
        yield Difference(
            table.name, f"its partition {part.name} was rewritten: unlogged, and logged again",
        )
    elif now.file != part.file and now.emptied and now.version not in altered:
        yield Difference(
            table.name, f"its partition {part.name} was truncated: no change says that its rows"
            " went", doubt=Doubt("emptied", now),
        )


def _of_new_partition(table: SurveyedTable, part: Descendant) -> Difference:
    if part.kind == "f" or part.persistence == "u":
        kind = "a foreign table" if part.kind == "f" else "unlogged"
        return Difference(
            table.name, f"its partition {part.name} is {kind}: its changes are not in the log",
            before=f"ALTER TABLE {sql_name(table.name)} DETACH PARTITION {sql_name(part.name)}",
        )
    return Difference(
        table.name, f"partition {part.name} was attached with rows: no change brings them",
        doubt=Doubt("attached", part),
    )


def _of_children(
    table: SurveyedTable, there: SurveyedTable, known: Collection[str]
) -> Iterator[Difference]:
    if there.partitioned:
        return
    accepted = {each.oid for each in table.descendants}
    for child in there.descendants:
        if child.name not in known and child.oid not in accepted:
            yield Difference(
                there.name, f"{child.name} inherits from it: a query of it gives rows of that table"
                " too, whose changes are not its own", "resume",
                f"ALTER TABLE {sql_name(child.name)} NO INHERIT {sql_name(there.name)}",
            )


# -- key and columns -------------------------------------------------------------------------------


def _of_key(table: SurveyedTable, there: SurveyedTable) -> Iterator[Difference]:
    """The key by which a mirror keeps rows, as long as an index of it was there all the time."""
    key = frozenset(table.key)
    before = [each for each in table.unique if frozenset(each.columns) == key]
    now = [each for each in there.unique if frozenset(each.columns) == key]
    listed = ", ".join(table.key)
    own = sql_name(table.name)
    if not before:
        return
    if not now:
        yield Difference(
            table.name, f"its key ({listed}) is not unique any more: rows of one key may come",
            before=f"ALTER TABLE {own} ADD PRIMARY KEY"
            f" ({', '.join(map(quote_postgres, table.key))})",
        )
    elif not any(_is_kept(each, now, table, there) for each in before):
        yield Difference(
            table.name, f"its key ({listed}) was dropped, and added again: rows of one key may have"
            " come between",
        )


def _is_kept(
    index: UniqueIndex, now: Collection[UniqueIndex], table: SurveyedTable, there: SurveyedTable
) -> bool:
    """Whether no two rows of one key can have come though an index may be another one now.

    REINDEX CONCURRENTLY makes another index and keeps the constraint. While the index of its
    replica identity is missing, the server lets no row be taken away again, so that rows of one key
    would keep a new one from being made; as long as that is its identity, which the table's own row
    says.
    """
    if any(each.oid == index.oid or (index.constraint and each.constraint == index.constraint)
           for each in now):
        return True
    return table.identity in ("d", "i") and table.version == there.version


def _of_columns(
    table: SurveyedTable, there: SurveyedTable, wanted: Collection[str]
) -> Iterator[Difference]:
    rewritten, filled = _rewriting(table, there)
    known = {each.name: each for each in there.columns}
    for column in table.columns:
        now = known.get(column.name)
        if now is None or column.name not in wanted:
            continue
        is_filled = column.missing and not now.missing
        cause = _column_cause(column, now, rewritten - filled if is_filled else rewritten)
        if cause:
            other = now.number == column.number and _has_other_type(column, now)
            yield Difference(
                table.name, f"column {column.name} {cause}", "create" if other else "snapshot"
            )


def _rewriting(table: SurveyedTable, there: SurveyedTable) -> tuple[set[int], set[int]]:
    """The transactions that rewrote rows of a table, and those that may only have written the
    defaults of old rows."""
    parts = {each.oid: each for each in table.descendants}
    rewritten = {there.version, *there.storage} if there.file != table.file else set()
    # VACUUM FULL, and what rewrites the table for a new column, write defaults of old rows as well
    filled = {each.version for each in there.columns if each.name not in _names(table)}
    if there.toast == table.toast:
        filled |= rewritten
    rewritten |= {
        each.version for each in there.descendants
        if each.oid in parts and parts[each.oid].file != each.file
    }
    return rewritten, filled


def _names(table: SurveyedTable) -> set[str]:
    return {each.name for each in table.columns}


def _column_cause(column: SurveyedColumn, now: SurveyedColumn, rewritten: set[int]) -> str:
    """What lets values of a column differ though no change of a row says so."""
    if now.number != column.number:
        return "is another column than before: it was dropped and added again, or renamed"
    if _has_other_type(column, now):
        return f"is {now.type} now, and was {column.type}"
    if now.expression != column.expression and now.expression and column.expression:
        return "is generated by another expression"
    if any(now.labels.get(label, text) != text for label, text in column.labels.items()):
        return "has another text for a label of its enumeration"
    if now.version != column.version and now.version in rewritten:
        return "was given another type, and its values were rewritten"
    return ""


def _has_other_type(column: SurveyedColumn, now: SurveyedColumn) -> bool:
    return now.type_oid != column.type_oid or (
        now.type_oid == NUMERIC and now.modifier != column.modifier
    )
