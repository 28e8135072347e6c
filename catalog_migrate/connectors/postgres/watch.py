"""A look at what a source depends on: is it what it was when it was looked at last?

A look is one cheap question, the fingerprint. Only when that is another one is the catalog surveyed
and compared; what a survey leaves open about partitions is decided by their rows and by the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from catalog_migrate.connectors.postgres import server
from catalog_migrate.connectors.postgres.drift import Difference, Doubt, compare, sql_name
from catalog_migrate.connectors.postgres.pgoutput import find_truncates
from catalog_migrate.connectors.postgres.preflight import survey_findings
from catalog_migrate.connectors.postgres.sessions import (
    NEW_SNAPSHOT,
    RESET_SPLITS,
    RESUME,
    refusals,
)
from catalog_migrate.connectors.postgres.survey import (
    Descendant,
    Name,
    Survey,
    Surveyed,
    Watch,
    full_name,
    read_fingerprint,
    read_survey,
    survey_from,
)
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ChangesMissing
from catalog_migrate.model.findings import Finding

if TYPE_CHECKING:
    import psycopg


_CARRIED = 600.0
"""Seconds in which positions have a survey that is new: it is recorded every minute."""

_CREATE = ("SHOW CREATE SOURCE {source}",)


class WatchedServer(Protocol):
    """What a look asks a server."""

    @property
    def version(self) -> int:
        """The server's number of it, as 180001."""

    def fingerprint(self, publication: str, names: Sequence[Name]) -> str:
        """One text that is another one after any DDL on the tables, undone or not."""

    def survey(self, publication: str, names: Sequence[Name], recorded: Survey) -> Surveyed:
        """What is there of the tables, as of one moment; and what those on record are called."""

    def has_older_rows(self, table: str, part: Descendant) -> bool:
        """Whether a partition has rows from before it was attached to its table."""

    def truncates(self, slot: str, publication: str) -> Iterable[bytes] | None:
        """The beginnings of transactions that a slot has, and their TRUNCATE messages; None where
        it has lost them."""


class Watcher:
    """Looks again and again; what it has found to be well counts as recorded from then on."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._after = watch.known.fingerprint
        self._found = time.monotonic()

    def mark(self, position: Position, catalog: str) -> Position:
        """The position as one that was reached while a look gave the fingerprint ``catalog``.

        It has the survey itself while that may not be on record: what becomes of it after a kill
        can be compared with no other.
        """
        recorded = self.watch.recorded
        carried = (
            self._after not in ("", catalog) and recorded.fingerprint == catalog
            and time.monotonic() - self._found < _CARRIED
        )
        return msgspec.structs.replace(
            position, catalog=catalog, survey=recorded.json() if carried else "",
            after=self._after if carried else "",
        )

    def look(self, asked: WatchedServer, position: Position) -> str:
        """The fingerprint, when nothing that is read from ``position`` on may lack a change.

        A fingerprint that the position has was found to be well when that was reached. Of a survey
        without a fingerprint it counts as well whether changes can be read at all. Raises
        ChangesMissing.
        """
        watch, known = self.watch, _known(self.watch, position)
        fingerprint = asked.fingerprint(watch.publication, watch.names)
        if fingerprint == known.fingerprint:
            return fingerprint
        found = asked.survey(watch.publication, watch.names, known)
        if fingerprint != position.catalog or found.survey.fingerprint != fingerprint:
            differences = [
                each for each in compare(
                    known, found.survey, mirror=watch.format == "MIRROR", columns=watch.columns,
                )
                if each.doubt is None
                or _is_confirmed(asked, watch, found.survey, each.table, each.doubt)
            ]
            if differences:
                raise changes_missing(differences, position, found.survey.fingerprint)
        findings = [] if known.fingerprint else survey_findings(
            found, watch.names, watch.publication, watch.format, "source",
            asked.version,
        )
        if findings:
            raise _not_readable(findings, watch.names, position, found.survey.fingerprint)
        self._found = time.monotonic()
        self.watch = msgspec.structs.replace(
            watch, recorded=msgspec.structs.replace(found.survey.with_missing(known), names={})
        )
        return found.survey.fingerprint


def _known(watch: Watch, position: Position) -> Survey:
    """What was found to be well last: what is on record, or what the position has that is newer."""
    if position.survey and position.after == watch.known.fingerprint:
        found = survey_from(position.survey)
        if found is not None and found.publication == watch.publication:
            return found
    return watch.known


def changes_missing(
    differences: Sequence[Difference], position: Position, fingerprint: str = ""
) -> ChangesMissing:
    """The error with every cause, and what to write; ``fingerprint`` is of the survey that has it.
    """
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
            statements=_CREATE, table=table, lsn=position.lsn, fingerprint=fingerprint,
        )
    if "snapshot" in kinds:
        return ChangesMissing(
            message, remedy=f"{first}{NEW_SNAPSHOT}, or resume the source to go on"
            " without what is missing",
            statements=RESET_SPLITS, table=table, lsn=position.lsn, fingerprint=fingerprint,
        )
    return ChangesMissing(
        message, remedy=f"{first}resume the source", statements=RESUME, table=table,
        lsn=position.lsn, fingerprint=fingerprint,
    )


def _not_readable(
    findings: Sequence[Finding], names: Sequence[Name], position: Position, fingerprint: str
) -> ChangesMissing:
    """The error for tables whose changes cannot be read, or not all of them."""
    said = "; ".join(each.message for each in findings)
    tables = [*map(full_name, names)]
    found = [each for each in tables if each in said] or tables
    return ChangesMissing(
        f"changes may be missing of {', '.join(found)}: {said}", table=", ".join(found),
        remedy="upstream: " + "; ".join(dict.fromkeys(each.remedy or "" for each in findings))
        + "; then resume the source",
        statements=RESUME, lsn=position.lsn, fingerprint=fingerprint,
    )


# -- what a survey leaves open ---------------------------------------------------------------------


def _is_confirmed(
    asked: WatchedServer, watch: Watch, found: Survey, name: str, doubt: Doubt
) -> bool:
    table = found.table(name)
    assert table is not None
    if doubt.kind == "attached":
        return asked.has_older_rows(name, doubt.part)
    messages = asked.truncates(watch.slot, watch.publication)
    return messages is None or doubt.part.version not in find_truncates(messages, table.oid)


class OpenServer:
    """The port's implementation over a session of PostgreSQL."""

    def __init__(self, opened: psycopg.Connection[Any], connection: Resolved) -> None:
        self._opened, self._connection = opened, connection

    @property
    def version(self) -> int:
        """As the port."""
        return self._opened.info.server_version

    def fingerprint(self, publication: str, names: Sequence[Name]) -> str:
        """As the port."""
        return read_fingerprint(self._opened, publication, names)

    def survey(self, publication: str, names: Sequence[Name], recorded: Survey) -> Surveyed:
        """As the port."""
        return read_survey(self._opened, publication, names, recorded)

    def has_older_rows(self, table: str, part: Descendant) -> bool:
        """As the port."""
        return has_older_rows(self._opened, table, part.name, part.attached)

    def truncates(self, slot: str, publication: str) -> Iterable[bytes] | None:
        """As the port."""
        with refusals(self._opened, self._connection):
            found = server.read_slot(self._opened, slot)
            if found is None or found.lost:
                return None
            return list(server.peek_truncates(self._opened, slot, publication, found.log_end))


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
