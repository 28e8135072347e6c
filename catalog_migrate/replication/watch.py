"""A look at what a source depends on: is it what it was when it was looked at last?

A look is one cheap question, the fingerprint. Only when that is another one is the catalog surveyed
and compared; what a survey leaves open about partitions is decided by their rows and by the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connections.clients import Resolved
from catalog_migrate.connections.findings import Finding
from catalog_migrate.replication import server
from catalog_migrate.replication.drift import Difference, Doubt, compare, sql_name
from catalog_migrate.replication.pgoutput import find_truncates
from catalog_migrate.replication.preflight import survey_findings
from catalog_migrate.replication.sessions import (
    NEW_SNAPSHOT,
    RESET_SPLITS,
    RESUME,
    ChangesMissing,
    refusals,
)
from catalog_migrate.replication.survey import Survey, Watch, read_fingerprint, read_survey
from catalog_migrate.replication.types import Position

if TYPE_CHECKING:
    import psycopg


_CREATE = ("SHOW CREATE SOURCE {source}",)


class Watcher:
    """Looks again and again; what it has found to be well counts as recorded from then on."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def look(
        self, opened: psycopg.Connection[Any], connection: Resolved, position: Position
    ) -> str:
        """The fingerprint, when nothing that is read from ``position`` on may lack a change.

        A fingerprint that the position has was found to be well when that was reached. Of a survey
        without a fingerprint it counts as well whether changes can be read at all. Raises
        ChangesMissing.
        """
        watch, known = self.watch, self.watch.known
        fingerprint = read_fingerprint(opened, watch.publication, watch.names)
        if fingerprint == known.fingerprint:
            return fingerprint
        found = read_survey(opened, watch.publication, watch.names, known)
        if fingerprint != position.catalog or found.survey.fingerprint != fingerprint:
            differences = [
                each for each in compare(
                    known, found.survey, mirror=watch.format == "MIRROR", columns=watch.columns,
                )
                if each.doubt is None
                or _is_confirmed(opened, connection, watch, found.survey, each.table, each.doubt)
            ]
            if differences:
                raise changes_missing(differences, position)
        findings = [] if known.fingerprint else survey_findings(
            found, watch.names, watch.publication, watch.format, "source",
            opened.info.server_version,
        )
        if findings:
            raise _not_readable(findings, position)
        self.watch = msgspec.structs.replace(
            watch, recorded=msgspec.structs.replace(found.survey, names={})
        )
        return found.survey.fingerprint


def changes_missing(differences: Sequence[Difference], position: Position) -> ChangesMissing:
    """The error with every cause, and what to write."""
    by_table: dict[str, list[str]] = {}
    for each in differences:
        by_table.setdefault(each.table, []).append(each.cause)
    causes = "; ".join(f"{table}: {', and '.join(found)}" for table, found in by_table.items())
    before = "; ".join(dict.fromkeys(each.before for each in differences if each.before))
    first = f"upstream: {before}; then " if before else ""
    kinds = {each.remedy for each in differences}
    message = f"changes may be missing of {causes}"
    table = ", ".join(by_table)
    if "create" in kinds:  # a new snapshot brings no columns of another type into its tables
        return ChangesMissing(
            message, remedy=f"{first}drop the source and create it again with other tables",
            statements=_CREATE, table=table, lsn=position.lsn,
        )
    if "snapshot" in kinds:
        return ChangesMissing(
            message, remedy=f"{first}{NEW_SNAPSHOT}, or resume the source to go on"
            " without what is missing",
            statements=RESET_SPLITS, table=table, lsn=position.lsn,
        )
    return ChangesMissing(
        message, remedy=f"{first}resume the source", statements=RESUME, table=table,
        lsn=position.lsn,
    )


def _not_readable(findings: Sequence[Finding], position: Position) -> ChangesMissing:
    """The error for tables whose changes cannot be read, or not all of them."""
    return ChangesMissing(
        f"changes may be missing: {'; '.join(each.message for each in findings)}",
        remedy="upstream: " + "; ".join(dict.fromkeys(each.remedy or "" for each in findings))
        + "; then resume the source",
        statements=RESUME, lsn=position.lsn,
    )


# -- what a survey leaves open ---------------------------------------------------------------------


def _is_confirmed(
    opened: psycopg.Connection[Any], connection: Resolved, watch: Watch, found: Survey, name: str,
    doubt: Doubt,
) -> bool:
    table = found.table(name)
    assert table is not None
    if doubt.kind == "attached":
        return has_older_rows(opened, name, doubt.part.name, doubt.part.attached)
    with refusals(opened, connection):
        slot = server.read_slot(opened, watch.slot)
        if slot is None or slot.lost:
            return True
        messages = server.peek_truncates(opened, watch.slot, watch.publication, slot.log_end)
        return doubt.part.version not in find_truncates(messages, table.oid)


_OLDER = (
    "SELECT EXISTS (SELECT FROM {rows} AS r WHERE age(r.xmin) >= age(%s::text::xid) AND {where})"
)


def has_older_rows(
    opened: psycopg.Connection[Any], table: str, part: str, attached: int
) -> bool:
    """Whether a partition has rows from before the transaction that attached it.

    Read by its own name; by that of the table, within the partition's bounds, where this role may
    read no partition. True where neither can be read.
    """
    import psycopg

    row = opened.execute(
        "SELECT pg_get_partition_constraintdef(%s::text::regclass)", (sql_name(part),)
    ).fetchone()
    bounds = (row and row[0]) or "true"
    for rows, where in ((f"ONLY {sql_name(part)}", "true"), (sql_name(table), bounds)):
        with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable):
            query = _OLDER.format(rows=rows, where=where)
            found = opened.execute(query.encode(), (str(attached),)).fetchone()
            return found is None or bool(found[0])
    return True
