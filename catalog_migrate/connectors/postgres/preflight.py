"""Whether changes of tables can be read, and publishing them would break nothing upstream.

Asked before a source is created, before each start of one that failed, and of a publication that
is there as of one that is still to be made: publishing makes the server refuse UPDATE and DELETE on
tables without a key, so that a publication is never made here. Nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from catalog_migrate.connectors.findings import TookTooLong, within
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.postgres.drift import sql_name
from catalog_migrate.connectors.postgres.server import PLUGIN, Slot, read_slot
from catalog_migrate.connectors.postgres.sessions import NEW_SNAPSHOT, see_all_rows, session
from catalog_migrate.connectors.postgres.survey import (
    OPERATIONS,
    Name,
    Publication,
    Survey,
    Surveyed,
    SurveyedTable,
    full_name,
    missing_findings,
    names_of,
    read_survey,
)
from catalog_migrate.connectors.postgres.types import DiscoveredTable
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ConnectionFailed, ReplicationFailed
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding, findings_of
from catalog_migrate.model.names import quote_postgres

if TYPE_CHECKING:
    import psycopg

OLDEST = 130000
"""server_version_num of PostgreSQL 13."""
_LIMIT = 13.0
"""Seconds that all questions together may take."""
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}\Z")

_SERVER = """
SELECT current_setting('wal_level'), pg_is_in_recovery(),
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_replication),
       current_setting('server_version'), current_setting('server_encoding'),
       r.rolreplication OR r.rolsuper
       OR EXISTS (SELECT FROM pg_roles AS g WHERE g.rolname = 'rds_replication'
                  AND pg_has_role(current_user, g.oid, 'USAGE'))
FROM pg_roles AS r WHERE r.rolname = current_user
"""
_READABLE = "SELECT has_schema_privilege(%s, 'USAGE') AND has_table_privilege(%s, 'SELECT')"


def preflight(
    connection: Resolved, publication: str, slot: str, tables: Sequence[str], *,
    format: Literal["CHANGES", "MIRROR"], new: bool = False,  # noqa: A002 - the word of the statement
    subject: str = "connection",
) -> tuple[Finding, ...]:
    """Everything that keeps the changes of ``tables`` from being read, each with its remedy.

    ``tables`` are names as in SQL. With ``new`` the slot is still to be created. Where the
    publication is missing, the last finding's remedy is the statement that makes it. Takes at most
    15 s.
    """
    def ask() -> tuple[Finding, ...]:
        with session(connection, subject=subject, timeout=3.0) as opened:
            return tuple(
                _findings(opened, connection, publication, slot, tables, format, new, subject)
            )

    try:
        return within(_LIMIT, ask)
    except TookTooLong:
        return (
            Finding(
                subject, "HOST", "error", f"the server did not answer within {_LIMIT:.0f} s",
                "check the server, then try again",
            ),
        )
    except ConnectionFailed as error:
        return findings_of(error, subject)
    except ReplicationFailed as error:
        return (Finding(subject, "HOST", "error", error.message, error.remedy),)


def _is_ours(opened: psycopg.Connection[Any], pid: int) -> bool:
    """Whether a reader of a slot is the product's own, which reads for moments only."""
    row = opened.execute(
        "SELECT application_name FROM pg_stat_activity WHERE pid = %s", (pid,)
    ).fetchone()
    return row is not None and str(row[0]).startswith("catalog_migrate")


def _findings(
    opened: psycopg.Connection[Any], connection: Resolved, name: str, slot: str,
    tables: Sequence[str], format: str, new: bool, subject: str,  # noqa: A002
) -> Iterator[Finding]:
    version = opened.info.server_version
    if version < OLDEST:
        yield Finding(
            subject, "HOST", "error",
            f"the server is PostgreSQL {version // 10000}, and changes are read from 13 on",
            "upgrade the server",
        )
        return
    found = list(_server_findings(opened, connection, slot, new, subject))
    surveyed = read_survey(opened, name, names_of(tables))
    upstream = surveyed.discovered
    publication = surveyed.publication
    found += missing_findings(tables, upstream, subject)
    for table, there in zip(surveyed.survey.tables, upstream, strict=True):
        found += _reading_findings(opened, connection, table, there, new, subject)
        found += _table_findings(there, publication, format, subject, version)
        found += _inheritance_findings(table, surveyed.survey, format, subject)
    if publication is not None:
        found += _publication_findings(name, publication, surveyed, format, subject)
    elif upstream and len(upstream) == len(tables):
        found.append(_no_publication(name, upstream, version, subject))
    else:
        found.append(
            Finding(
                subject, "PUBLICATION", "error", f"there is no publication {name}",
                "check the tables first", code=MISSING,
            )
        )
    yield from found
    if all(finding.ok for finding in found):
        listed = ", ".join(table.full_name for table in upstream)
        yield Finding(subject, None, "ok", f"publication {name} gives the changes of {listed}")


# -- server and slot -------------------------------------------------------------------------------


def _server_findings(
    opened: psycopg.Connection[Any], connection: Resolved, name: str, new: bool, subject: str
) -> Iterator[Finding]:
    row = opened.execute(_SERVER).fetchone()
    assert row is not None
    level, in_recovery, most_slots, slots, most_senders, senders, version, encoding, may = row
    user = option_of(connection, "POSTGRES", "USER")
    if level != "logical":
        yield Finding(
            subject, "HOST", "error", f"wal_level is {level}, and changes are read with logical",
            "ALTER SYSTEM SET wal_level = logical, and restart the server (managed servers have a"
            " switch, as rds.logical_replication)",
        )
    if in_recovery:
        yield Finding(
            subject, "HOST", "error", "the server is a standby", "name the primary server"
        )
        return
    if encoding == "SQL_ASCII":
        yield Finding(
            subject, "DATABASE", "error",
            "the database has the encoding SQL_ASCII, whose texts are not known to be UTF-8",
            "move it into a database with the encoding UTF8",
        )
    if not may:
        yield Finding(
            subject, "USER", "error", f"role {user} may not read changes: it lacks REPLICATION",
            f"ALTER ROLE {user} REPLICATION (on Amazon RDS: GRANT rds_replication TO {user})",
            code=FORBIDDEN,
        )
    if not _SLOT_NAME.match(name):
        yield Finding(
            subject, "SLOT", "error", f"{name} is no name of a slot",
            "take at most 63 lower case letters, digits and underscores",
        )
        return
    slot = read_slot(opened, name)
    if slot is not None:
        yield _slot_finding(opened, slot, new, subject)
        return
    if slots >= most_slots:
        yield Finding(
            subject, "SLOT", "error", f"all {most_slots} replication slots are taken",
            "drop one that is unused (pg_replication_slots), or raise max_replication_slots",
        )
    if senders >= most_senders:
        yield Finding(
            subject, "HOST", "error",
            f"all {most_senders} WAL senders are taken, and a new slot needs one for a moment",
            "raise max_wal_senders on the server",
        )
    if level == "logical" and may:
        yield Finding(subject, None, "ok", f"PostgreSQL {version} sends changes to this user")


def _slot_finding(
    opened: psycopg.Connection[Any], slot: Slot, new: bool, subject: str
) -> Finding:
    name = slot.name
    if slot.plugin != PLUGIN or not slot.is_here:
        what = f"plugin {slot.plugin}" if slot.plugin else "a physical one"
        return Finding(
            subject, "SLOT", "error",
            f"slot {name} is not this source's: {what}, database {slot.database}",
            "name another SLOT",
        )
    if slot.lost:
        return Finding(
            subject, "SLOT", "error",
            f"slot {name} is lost ({slot.invalidation or 'wal_removed'}): the server removed the"
            " log that it needs",
            f"raise max_slot_wal_keep_size, then {NEW_SNAPSHOT}",
        )
    if slot.active_pid is not None and not _is_ours(opened, slot.active_pid):
        return Finding(
            subject, "SLOT", "error",
            f"slot {name} is in use by the process {slot.active_pid} of the server",
            "end that reader, or name another SLOT",
        )
    if new:
        return Finding(
            subject, "SLOT", "error", f"there is a slot {name} already",
            f"name another SLOT, or SELECT pg_drop_replication_slot('{name}') if it is unused",
        )
    return Finding(subject, None, "ok", f"slot {name} is there, {slot.lag} bytes behind")


# -- tables ----------------------------------------------------------------------------------------


def survey_findings(
    surveyed: Surveyed, names: Sequence[Name], publication: str, format: str, subject: str,  # noqa: A002
    version: int,
) -> list[Finding]:
    """What of a survey keeps the changes of tables from being read; pure.

    ``version`` is the server's number of it. What counts for the first rows alone is left out, and
    so are columns, whose changes the log says.
    """
    there = {table.full_name for table in surveyed.discovered}
    found = [
        Finding(
            subject, "TABLES", "error", f"there is no table {full_name(name)}",
            f"create {full_name(name)}", code=MISSING,
        )
        for name in names if full_name(name) not in there
    ]
    one = surveyed.publication
    for table, discovered in zip(surveyed.survey.tables, surveyed.discovered, strict=True):
        found += _table_findings(discovered, one, format, subject, version)
        found += _inheritance_findings(table, surveyed.survey, format, subject)
    if one is not None:
        found += _publication_findings(
            publication, one, surveyed, format, subject, columns=False
        )
    elif surveyed.discovered:
        found.append(_no_publication(publication, surveyed.discovered, version, subject))
    return [each for each in found if not each.ok]


def _reading_findings(
    opened: psycopg.Connection[Any], connection: Resolved, table: SurveyedTable,
    there: DiscoveredTable, new: bool, subject: str,
) -> Iterator[Finding]:
    """What keeps the rows that are there from being read, all of them; policies where they are
    still to be read at all."""
    user = option_of(connection, "POSTGRES", "USER")
    row = opened.execute(_READABLE, (there.schema, there.sql)).fetchone()
    if row is None or not row[0]:
        yield Finding(
            subject, "TABLES", "error",
            f"this role may not read {there.full_name}, whose rows come first",
            f"GRANT USAGE ON SCHEMA {there.schema}, and SELECT ON {there.full_name}, TO {user}",
            code=FORBIDDEN,
        )
    if table.policies and new:
        yield Finding(
            subject, "TABLES", "error",
            f"row level security lets role {user} see some rows of {there.full_name} only, and all"
            " of them come first", see_all_rows(user),
        )


def _inheritance_findings(
    table: SurveyedTable, survey: Survey, format: str, subject: str  # noqa: A002
) -> Iterator[Finding]:
    """Rows that a query of a table gives, and whose changes are not its own or never come."""
    listed = {each.name for each in survey.tables}
    if table.persistence == "u":
        yield Finding(
            subject, "TABLES", "error",
            f"{table.name} is unlogged: its changes are not in the server's log",
            f"ALTER TABLE {sql_name(table.name)} SET LOGGED",
        )
    for below in table.descendants:
        if table.partitioned and (below.kind == "f" or below.persistence == "u"):
            kind = "a foreign table" if below.kind == "f" else "unlogged"
            yield Finding(
                subject, "TABLES", "error",
                f"partition {below.name} of {table.name} is {kind}: its changes are not in the"
                " server's log", "detach it, or leave the table out",
            )
        elif not table.partitioned and format == "MIRROR" and below.name not in listed:
            yield Finding(
                subject, "TABLES", "error",
                f"{below.name} inherits from {table.name}: a query of that gives its rows too, and"
                " their changes come as those of their own table",
                f"ALTER TABLE {sql_name(below.name)} NO INHERIT {sql_name(table.name)}, or name"
                " both among TABLES, which mirrors each by itself, or take FORMAT CHANGES",
            )


def _table_findings(
    table: DiscoveredTable, publication: Publication | None, format: str,  # noqa: A002
    subject: str, version: int,
) -> Iterator[Finding]:
    """What of a table breaks its changes once it is published, or keeps them from being merged."""
    # one that is still to be made publishes everything
    operations = OPERATIONS if publication is None else publication.operations
    changes_rows = "update" in operations or "delete" in operations
    yield from _key_findings(table, changes_rows, format, subject)
    if changes_rows and version >= 180000:
        yield from _generated_findings(table, publication, subject)


def _key_findings(
    table: DiscoveredTable, changes_rows: bool, format: str, subject: str  # noqa: A002
) -> Iterator[Finding]:
    name, quoted = table.full_name, table.sql
    identified = table.identity == "full" or (table.identity != "nothing" and table.key)
    if changes_rows and not identified:
        why = {
            "nothing": "has REPLICA IDENTITY NOTHING",
            "index": "has lost the index that is its replica identity",
        }.get(table.identity, "has no primary key")
        yield Finding(
            subject, "TABLES", "error",
            f"{name} {why}: once it is published, the server refuses UPDATE and DELETE on it",
            f"ALTER TABLE {quoted} ADD PRIMARY KEY (…), or ALTER TABLE {quoted} REPLICA IDENTITY"
            " USING INDEX … (or FULL), or publish inserts only (publish = 'insert, truncate')",
        )
    elif format == "MIRROR" and not table.key:
        yield Finding(
            subject, "TABLES", "error", f"{name} has no key, by which MIRROR keeps rows",
            f"ALTER TABLE {quoted} ADD PRIMARY KEY (…), or take FORMAT CHANGES",
        )


def _generated_findings(
    table: DiscoveredTable, publication: Publication | None, subject: str
) -> Iterator[Finding]:
    """Generated columns for which PostgreSQL 18 refuses changes: the old row would lack a column of
    the replica identity."""
    # One that is still to be made will publish those that are stored.
    hidden = [
        one for one in table.columns
        if one.generated and not one.published
        and (publication is not None or one.generated == "virtual")
    ]
    if table.identity == "full" and hidden:
        how = "take another REPLICA IDENTITY"
        if all(one.generated == "stored" for one in hidden):
            how = f"publish it, WITH (publish_generated_columns = stored), or {how}"
        yield Finding(
            subject, "TABLES", "error",
            f"{table.full_name} has REPLICA IDENTITY FULL and the generated column"
            f" {', '.join(one.name for one in hidden)}, which is not published: the server refuses"
            " UPDATE and DELETE on it", how,
        )


def _publication_findings(
    name: str, publication: Publication, surveyed: Surveyed, format: str, subject: str,  # noqa: A002
    *, columns: bool = True,
) -> Iterator[Finding]:
    named = quote_postgres(name)
    for one, table in zip(surveyed.survey.tables, surveyed.discovered, strict=True):
        if one.published is None:
            how = f"ALTER PUBLICATION {named} ADD TABLE {table.sql}"
            if table.partitioned and not publication.via_root:
                how = f"ALTER PUBLICATION {named} SET (publish_via_partition_root = true)"
            yield Finding(
                subject, "PUBLICATION", "error",
                f"publication {name} does not hold {table.full_name}", how,
            )
            continue
        if columns:
            yield from _column_findings(name, table, subject)
        if one.filter:
            yield Finding(
                subject, "PUBLICATION", "ok",
                f"publication {name} gives only rows of {table.full_name} WHERE {one.filter}: an"
                " UPDATE that moves a row in or out comes as INSERT or DELETE",
            )
    lacking = [word for word in OPERATIONS if word not in publication.operations]
    if format == "MIRROR" and lacking:
        yield Finding(
            subject, "PUBLICATION", "error",
            f"publication {name} does not publish {', '.join(lacking)}, which MIRROR needs",
            f"ALTER PUBLICATION {named} SET (publish = 'insert, update, delete, truncate')",
        )


def _column_findings(name: str, table: DiscoveredTable, subject: str) -> Iterator[Finding]:
    missing = [
        column.name for column in table.columns if not column.published and not column.generated
    ]
    if missing:
        yield Finding(
            subject, "PUBLICATION", "error",
            f"publication {name} leaves out {', '.join(missing)} of {table.full_name}",
            f"ALTER PUBLICATION {quote_postgres(name)} SET TABLE … without a list of columns",
        )


def _no_publication(
    name: str, tables: Sequence[DiscoveredTable], version: int, subject: str
) -> Finding:
    """Ends with the statement that makes the publication."""
    options = []
    if any(table.partitioned for table in tables):
        options.append("publish_via_partition_root = true")
    if version >= 180000 and any(
        table.identity == "full" and any(one.generated == "stored" for one in table.columns)
        for table in tables
    ):
        options.append("publish_generated_columns = stored")
    listed = ", ".join(table.sql for table in tables)
    more = f" WITH ({', '.join(options)})" if options else ""
    return Finding(
        subject, "PUBLICATION", "error",
        f"there is no publication {name}, and none is made here: once tables are published the"
        " server may refuse changes of them",
        f"CREATE PUBLICATION {quote_postgres(name)} FOR TABLE {listed}{more};", code=MISSING,
    )
