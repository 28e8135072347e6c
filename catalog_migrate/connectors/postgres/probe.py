"""Asking a PostgreSQL server: whether it lets us in, which one it is, and whether a sink can write.

libpq hands on the server's refusal of a connection as words only; the table below maps them to
the option that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.findings import TookTooLong, code_of, failed, within
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.postgres.client import connect_postgres, quoted_table
from catalog_migrate.connectors.postgres.ledger import LEDGER
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding
from catalog_migrate.model.names import fold
from catalog_migrate.model.objects import Column

if TYPE_CHECKING:
    import psycopg

_CAUSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("password authentication failed", "no password supplied", "authentication failed"),
        "PASSWORD",
        "check USER and PASSWORD",
    ),
    (('role "', "role is not permitted"), "USER", "create the role, or write another USER"),
    (
        ("permission denied for database", "is not currently accepting connections"),
        "DATABASE",
        "GRANT CONNECT ON DATABASE … to the role of USER",
    ),
    (('database "',), "DATABASE", "create the database, or write another DATABASE"),
    (
        ("server does not support ssl",),
        "SSL MODE",
        "the server has no TLS: prefer or disable, or turn it on there",
    ),
    (
        ("certificate verify failed", "root certificate file", "could not read root certificate"),
        "SSL CERTIFICATE AUTHORITY",
        "give the certificate that signed the server's",
    ),
    (
        ("does not match host name",),
        "HOST",
        "write the name that the server's certificate is for, or take SSL MODE verify-ca",
    ),
    (
        ("requires a valid client certificate", "connection requires a valid client"),
        "SSL CERTIFICATE",
        "give SSL CERTIFICATE and SSL KEY",
    ),
    (
        ("private key", "certificate file", "key values mismatch"),
        "SSL KEY",
        "check that SSL KEY belongs to SSL CERTIFICATE",
    ),
    (
        ("no pg_hba.conf entry", "pg_hba.conf rejects"),
        "SSL MODE",
        "the server admits this user, host, database or encryption to nothing: see its pg_hba.conf",
    ),
    (
        ("could not translate host name", "failed to resolve host", "name or service not known"),
        "HOST",
        "check the host's name, from the machine where this runs",
    ),
    (("connection refused",), "PORT", "check HOST and PORT, and that the server runs"),
    (
        ("too many clients", "remaining connection slots", "too many connections"),
        "HOST",
        "the server has no connection left: close some, or raise max_connections",
    ),
    (
        ("starting up", "shutting down", "recovery mode", "not yet accepting"),
        "HOST",
        "the server starts or stops: wait",
    ),
    (("timeout expired", "timed out"), "HOST", "check HOST, PORT and firewall"),
    (("ssl error", "ssl syscall", "ssl connection"), "SSL MODE", "check SSL MODE and the port"),
)
"""(texts in the messages, lower case; the option at fault; what to do), first hit wins."""

_SERVER = """
SELECT current_setting('server_version'), pg_is_in_recovery(),
       current_setting('transaction_read_only')::boolean,
       has_database_privilege(current_database(), 'TEMP')
"""
_LEDGER = """
SELECT has_schema_privilege(n.oid, 'CREATE'), l.oid IS NOT NULL,
       l.oid IS NOT NULL AND has_table_privilege(l.oid, 'SELECT')
       AND has_table_privilege(l.oid, 'INSERT') AND has_table_privilege(l.oid, 'DELETE')
FROM pg_namespace AS n LEFT JOIN pg_class AS l ON l.relnamespace = n.oid AND l.relname = %s
WHERE n.nspname = %s
"""
_TABLE = """
SELECT c.oid, c.relkind::text, n.nspname,
       has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'UPDATE'),
       has_table_privilege(c.oid, 'SELECT')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typcategory::text,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
       a.attgenerated <> '' OR a.attidentity = 'a',
       has_column_privilege(a.attrelid, a.attnum, 'INSERT')
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT array_agg(a.attname ORDER BY a.attname)
FROM pg_index AS i
JOIN unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(number) ON true
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""

_FITS: Mapping[str, frozenset[str]] = {
    "BOOLEAN": frozenset({"bool"}),
    "TINYINT": frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"}),
    "SMALLINT": frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"}),
    "INT": frozenset({"int4", "int8", "numeric", "float8"}),
    "BIGINT": frozenset({"int8", "numeric"}),
    "FLOAT": frozenset({"float4", "float8"}),
    "DOUBLE": frozenset({"float8"}),
    "DECIMAL": frozenset({"numeric"}),
    "BINARY": frozenset({"bytea"}),
    "DATE": frozenset({"date", "timestamp", "timestamptz"}),
    "TIMESTAMP": frozenset({"timestamptz", "timestamp"}),
    "TIMESTAMP_NTZ": frozenset({"timestamp"}),
}
"""Spark's types and the PostgreSQL types that hold every value of them; text holds all."""
_NOT_FOR_TEXT = frozenset("BNDT")
"""Categories (boolean, number, date, interval) for which an arbitrary text is no value."""


@contextmanager
def postgres_session(
    resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0
) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which each statement is its own transaction and ends in time.

    Raises ConnectionFailed for a connection that does not come about, and for one that breaks.
    """
    import psycopg

    redactor = Redactor.of(resolved)
    seconds = max(2, min(5, int(timeout)))
    try:
        # Resolving a name has no time limit of its own.
        connection = within(
            timeout,
            lambda: connect_postgres(
                resolved, subject=subject, autocommit=True, connect_timeout=seconds
            ),
        )
    except TookTooLong:
        raise failed(_silent(resolved, subject)) from None
    except psycopg.Error as error:
        raise failed(_diagnose(resolved, subject, redactor.scrub(str(error)))) from None
    try:
        with connection:
            connection.execute(f"SET statement_timeout = '{seconds}s'")
            yield connection
    except psycopg.OperationalError as error:
        raise failed(
            Finding(
                subject, "HOST", "error", _one_line(redactor.scrub(str(error))),
                "check the server, then try again",
            )
        ) from None


def server_findings(
    connection: psycopg.Connection[Any], *, subject: str, temporary: bool = False
) -> tuple[Finding, ...]:
    """Whether the server takes writes, and (``temporary``) makes temporary tables for this role."""
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    version, in_recovery, read_only, may_be_temporary = row
    if in_recovery:
        return (
            Finding(
                subject, "HOST", "error", "the server is a standby and takes no writes",
                "name the primary server",
            ),
        )
    if read_only:
        return (
            Finding(
                subject, "USER", "error",
                "this role writes nothing: default_transaction_read_only is on for it",
                "ALTER ROLE … SET default_transaction_read_only = off, or the same of the database",
            ),
        )
    if temporary and not may_be_temporary:
        return (
            Finding(
                subject, "USER", "error",
                "this role may make no temporary tables, which rows are replaced through",
                "GRANT TEMPORARY ON DATABASE … to it",
            ),
        )
    message = f"connected to PostgreSQL {version}, which accepts writes"
    return (Finding(subject, None, "ok", message),)


def table_findings(
    connection: psycopg.Connection[Any], table: str, columns: Sequence[Column], key: Sequence[str],
    *, subject: str,
) -> tuple[Finding, ...]:
    """Whether a sink with these columns and KEY can write into ``table``; all problems at once."""
    import psycopg

    try:
        found = connection.execute(_TABLE, (quoted_table(table),)).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return (
            Finding(
                subject, "TABLE", "error", f"this role may not look into the schema of {table}",
                "GRANT USAGE ON SCHEMA … to the role of USER", code=FORBIDDEN,
            ),
        )
    if found is None:
        return (
            Finding(
                subject, "TABLE", "error", f"there is no table {table}",
                "create it, or write another TABLE; names in no double quotes are lower case",
                code=MISSING,
            ),
        )
    identifier, relation_kind, schema, may_insert, may_update, may_select = found
    if relation_kind not in ("r", "p"):
        return (
            Finding(
                subject, "TABLE", "error", f"{table} is no table of rows", "name a plain table"
            ),
        )
    there = connection.execute(_COLUMNS, (identifier,)).fetchall()
    findings = list(_column_findings(table, columns, there, may_insert, subject))
    if key:
        unique = [set(row[0]) for row in connection.execute(_KEYS, (identifier,)).fetchall()]
        findings += _key_findings(table, key, unique, may_update and may_select, subject)
    if not findings:
        listed = f"{len(columns)} columns" + (f" by {', '.join(key)}" if key else "")
        findings.append(Finding(subject, "TABLE", "ok", f"{table} takes rows of {listed}"))
    findings.append(_ledger_finding(connection, subject, schema))
    return tuple(findings)


def database_identity(connection: psycopg.Connection[Any]) -> str:
    """The server's system identifier and the database's oid, ``7370…/16384``."""
    row = connection.execute(
        "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())"
        " FROM pg_control_system()"
    ).fetchone()
    assert row is not None
    return f"{row[0]}/{row[1]}"


def _ledger_finding(connection: psycopg.Connection[Any], subject: str, schema: str) -> Finding:
    """Whether the ledger beside a table of ``schema`` can be used, or made."""
    row = connection.execute(_LEDGER, (LEDGER, schema)).fetchone()
    assert row is not None
    may_create, there, may_use = row
    if may_use:
        return Finding(subject, None, "ok", f"{schema}.{LEDGER} is there and can be written")
    if there:
        return Finding(
            subject, "USER", "error", f"this role may not use the table {schema}.{LEDGER}",
            f"GRANT SELECT, INSERT, DELETE ON {schema}.{LEDGER} to it", code=FORBIDDEN,
        )
    if may_create:
        return Finding(subject, None, "ok", f"{LEDGER} can be created in schema {schema}")
    return Finding(
        subject,
        "USER",
        "error",
        f"the table {LEDGER}, which makes a sink exactly once, cannot be created in schema "
        f"{schema} by this role",
        f"GRANT CREATE ON SCHEMA {schema} to it, or create the table for it once "
        "(docs/connections.md)",
    )


def _names_near(name: str, names: Collection[str]) -> list[str]:
    """The name itself where it is there, else those that differ in their case."""
    return [name] if name in names else [each for each in names if fold(each) == fold(name)]


def _type_findings(
    table: str, column: Column, row: tuple[Any, ...], subject: str
) -> Iterator[Finding]:
    if row[5]:
        yield Finding(
            subject, "TABLE", "error", f"column {row[0]} of {table} is generated there",
            "GENERATED BY DEFAULT takes values; ALWAYS takes none",
        )
    elif not fits(column.type, row[2], row[3]):
        yield Finding(
            subject, "TABLE", "error",
            f"column {row[0]} of {table} is {row[1]}, which does not hold every {column.type}",
            f"ALTER TABLE {table} ALTER COLUMN {row[0]} TYPE …",
        )


def _column_findings(
    table: str, columns: Sequence[Column], there: Sequence[tuple[Any, ...]], may_insert: bool,
    subject: str,
) -> Iterator[Finding]:
    """What keeps rows of ``columns`` from being inserted."""
    by_name = {row[0]: row for row in there}
    matched: dict[str, tuple[Any, ...]] = {}
    for column in columns:
        near = _names_near(column.name, by_name)
        if len(near) != 1:
            what = "no column" if not near else "several columns"
            yield Finding(
                subject, "TABLE", "error", f"{table} has {what} {column.name} ({column.type})",
                f"ALTER TABLE {table} ADD COLUMN …, or leave it out of what the sink reads",
            )
            continue
        matched[near[0]] = by_name[near[0]]
        yield from _type_findings(table, column, by_name[near[0]], subject)
    for name, row in by_name.items():
        if name not in matched and row[4]:
            yield Finding(
                subject,
                "TABLE",
                "error",
                f"column {name} of {table} is NOT NULL without a default, and the sink has no such "
                "column",
                f"ALTER TABLE {table} ALTER COLUMN {name} SET DEFAULT … or DROP NOT NULL",
            )
    if not may_insert and not (matched and all(row[6] for row in matched.values())):
        yield Finding(
            subject, "TABLE", "error", f"this role may not INSERT into {table}",
            f"GRANT INSERT ON {table} to the role of USER", code=FORBIDDEN,
        )


def _key_findings(
    table: str, key: Sequence[str], unique: Sequence[set[str]], may_merge: bool, subject: str,
) -> Iterator[Finding]:
    """What keeps rows from being replaced by key."""
    wanted = {fold(name) for name in key}
    if not any({fold(name) for name in each} == wanted for each in unique):
        listed = ", ".join(key)
        yield Finding(
            subject, "TABLE", "error", f"{table} has no unique index on exactly ({listed})",
            f"ALTER TABLE {table} ADD UNIQUE ({listed}), not deferrable and not partial",
        )
    if not may_merge:
        yield Finding(
            subject, "TABLE", "error", f"this role may not UPDATE and SELECT {table}",
            f"GRANT SELECT, UPDATE ON {table} to the role of USER", code=FORBIDDEN,
        )


def fits(spark_type: str, name: str, category: str) -> bool:
    """Whether a PostgreSQL type (``pg_type.typname`` and ``.typcategory``) holds all values.

    A type of a user's own, an enumeration or an array is given the benefit of the doubt.
    """
    base = re.split(r"[(<]", spark_type, maxsplit=1)[0].strip().upper()
    if name in ("text", "varchar", "bpchar", "citext"):
        return True
    if base in ("STRING", "VARCHAR", "CHAR"):
        return category not in _NOT_FOR_TEXT and name != "bytea"
    allowed = _FITS.get(base)
    if allowed is None:
        return name in ("json", "jsonb") or category not in _NOT_FOR_TEXT
    unknown = category == "U" and name not in ("json", "jsonb", "bytea", "uuid")
    return name in allowed or unknown


def _diagnose(resolved: Resolved, subject: str, text: str) -> Finding:
    lowered = text.lower()
    for words, option, remedy in _CAUSES:
        if any(word in lowered for word in words):
            return Finding(
                subject, option, "error", _one_line(text), remedy, code=code_of(text)
            )
    if not lowered.strip():
        return _silent(resolved, subject)
    return Finding(
        subject, "HOST", "error", _one_line(text),
        "check HOST, PORT and what the server's log says", code=code_of(text),
    )


def _silent(resolved: Resolved, subject: str) -> Finding:
    host = option_of(resolved, "POSTGRES", "HOST")
    port = option_of(resolved, "POSTGRES", "PORT")
    return Finding(
        subject, "HOST", "error", f"no answer from {host}:{port}", "check HOST, PORT and firewall",
    )


def _one_line(text: str) -> str:
    """psycopg repeats a message for every address that it tried."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(dict.fromkeys(lines)).removeprefix("connection failed: ")
