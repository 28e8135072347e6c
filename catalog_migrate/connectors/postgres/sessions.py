"""Sessions on a server whose changes are read: one form of values, and typed refusals.

The errors, codes CM0770 to CM0783, say what to do next. :func:`marked` puts one into the text of an
exception, which is all that comes through Spark of what a reader raised; :func:`parse_failure`
takes it out again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.findings import failed
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.postgres.client import connect_postgres
from catalog_migrate.connectors.postgres.probe import postgres_session
from catalog_migrate.connectors.postgres.types import Column
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.row_values import of_postgres
from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.errors import (
    CatalogMigrateError,
    ChangesMissing,
    ConnectionFailed,
    OtherServer,
    OtherTimeline,
    PublicationMissing,
    ReplicationFailed,
    ReplicationNotAllowed,
    RowsHidden,
    SlotAhead,
    SlotInUse,
    SlotLost,
    SlotMissing,
    TableChanged,
    UnfitValue,
    UnreadableMessage,
)
from catalog_migrate.model.findings import Finding

if TYPE_CHECKING:
    import psycopg


MARK = "catalog_migrate.failure"
"""Stands before the JSON of an error in the text of an exception."""


NEW_SNAPSHOT = "take a new snapshot (UNSAFE RESET SPLITS)"
"""What helps where changes cannot be read any more, in words."""

RESET_SPLITS = (
    "ALTER SOURCE {source} UNSAFE RESET SPLITS REASON 'changes cannot be read any more'",
)
"""The statements that do it: ``statements`` of an error, with a place for the source's name."""

RESET_ELSEWHERE = (
    "ALTER SOURCE {source} UNSAFE RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
    " REASON 'another server'",
)
"""The same where the server is another one."""


RESUME = ("RESUME SOURCE {source}",)
"""Where nothing else is to be done here."""


_MARKED: tuple[type[CatalogMigrateError], ...] = (
    ConnectionFailed, ReplicationFailed, PublicationMissing, ReplicationNotAllowed, SlotInUse,
    SlotLost, SlotMissing, SlotAhead, OtherServer, OtherTimeline, TableChanged, UnreadableMessage,
    ChangesMissing, RowsHidden, UnfitValue,
)


def marked(error: CatalogMigrateError) -> str:
    """The message of an error, and behind it the error for :func:`parse_failure`, on one line."""
    data = {} if isinstance(error, ConnectionFailed) else msgspec.to_builtins(error.data)
    told = {"code": error.code, "message": error.message, "remedy": error.remedy, "data": data}
    return f"{error.code}: {error.message} {MARK} {json.dumps(told)}"


def parse_failure(text: str) -> CatalogMigrateError | None:
    """The error that a reader marked, from the text of whatever came out of Spark; else None."""
    _, mark, rest = text.rpartition(MARK + " ")
    if not mark:
        return None
    try:
        told, _ = json.JSONDecoder().raw_decode(rest)
        (kind,) = (one for one in _MARKED if one.code == told["code"])
        data = dict(told["data"])
        if kind is TableChanged:
            for name in ("old", "new"):
                data[name] = msgspec.convert(data[name], tuple[Column, ...])
        return kind(told["message"], remedy=told["remedy"], **data)
    except (ValueError, KeyError, TypeError):
        return None


AGAIN = f"{NEW_SNAPSHOT}: the changes since the last position cannot be read any more"
KEEP_MORE = (
    f"raise max_slot_wal_keep_size (or idle_replication_slot_timeout) on the server, then {AGAIN}"
)
_TEXT_FORM = (
    "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC';"
    "SET bytea_output = 'hex'; SET extra_float_digits = 1; SET client_encoding = 'UTF8';"
    "SET lc_monetary = 'C'; SET search_path = pg_catalog; SET row_security = off"
)
"""How values print, whatever the role or the database has set; and an error, not fewer rows, where
a policy applies."""


@contextmanager
def session(
    connection: Resolved, *, subject: str = "connection", timeout: float = 60.0
) -> Iterator[psycopg.Connection[Any]]:
    """A connection in which values print in one form and a statement ends within ``timeout`` s.

    Raises ConnectionFailed, and the errors of this package for what the server refuses.
    """
    with (
        postgres_session(connection, subject=subject) as opened,
        refusals(opened, connection, timeout),
    ):
        opened.execute(f"{_TEXT_FORM}; SET statement_timeout = {int(timeout * 1000)}")
        yield opened


@contextmanager
def refusals(
    opened: psycopg.Connection[Any], connection: Resolved, timeout: float = 60.0
) -> Iterator[None]:
    """What the server says to statements inside becomes an error of this package.

    A connection that breaks raises ConnectionFailed.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if opened.closed or opened.broken:
            text = " ".join(Redactor.of(connection).scrub(str(error)).split())
            raise failed(
                Finding("connection", "HOST", "error", text, "check the server, then try again")
            ) from None
        raise refusal(error, connection, timeout) from None


def refusal(error: psycopg.Error, connection: Resolved, timeout: float) -> ReplicationFailed:
    """Return the typed error for what a server that let us in reports of a statement."""
    import psycopg

    text = Redactor.of(connection).scrub(of_postgres(error)).strip()
    user = option_of(connection, "POSTGRES", "USER")

    def lose_slot() -> ReplicationFailed:
        return SlotLost(text, remedy=KEEP_MORE, statements=RESET_SPLITS)

    # (error of the server's, words that its text has, what it is to us); the first counts
    rules: tuple[
        tuple[type[psycopg.Error], tuple[str, ...], Callable[[], ReplicationFailed]], ...
    ] = (
        (psycopg.errors.ObjectInUse, (), lambda: SlotInUse(
            f"another process reads from the slot: {text}",
            remedy="SELECT * FROM pg_stat_activity WHERE pid = … names it; each source has its own"
            " slot: end the other reader, or name another SLOT",
            transient=True,
        )),
        (psycopg.errors.QueryCanceled, (), lambda: ReplicationFailed(
            f"the server took longer than {timeout:.0f} s and was told to stop",
            remedy="look for long transactions (pg_stat_activity), and for a standby that is away"
            " and named in synchronized_standby_slots",
            transient=True,
        )),
        (psycopg.errors.InsufficientPrivilege, ("replication",), lambda: ReplicationNotAllowed(
            f"role {user} may not read changes: {text}", remedy=f"ALTER ROLE {user} REPLICATION"
        )),
        (psycopg.errors.InsufficientPrivilege, ("row-level security",), lambda: RowsHidden(
            f"role {user} may see some rows only: {text}",
            remedy=f"{see_all_rows(user)}, then resume the source",
            statements=RESUME,
        )),
        (psycopg.errors.UndefinedObject, ("publication",), lambda: PublicationMissing(
            f"changes were made while a publication was not there: {text}",
            remedy=f"create it again where it is missing, then {AGAIN}",
            statements=RESET_SPLITS,
        )),
        (psycopg.errors.UndefinedObject, ("slot",), lambda: SlotMissing(
            text, remedy=AGAIN, statements=RESET_SPLITS
        )),
        (psycopg.errors.ObjectNotInPrerequisiteState, ("slot", "invalidated"), lose_slot),
        (psycopg.errors.ObjectNotInPrerequisiteState, ("slot", "no longer"), lose_slot),
    )
    lowered = text.lower()
    for kind, words, make in rules:
        if isinstance(error, kind) and all(word in lowered for word in words):
            return make()
    return ReplicationFailed(
        text, remedy="check the server, then try again",
        transient=isinstance(error, psycopg.OperationalError),
    )


def see_all_rows(user: str | None) -> str:
    """What lets a role read every row of a table with policies."""
    return f"ALTER ROLE {user} BYPASSRLS"


@contextmanager
def replication_session(
    connection: Resolved, *, timeout: float
) -> Iterator[psycopg.Connection[Any]]:
    """A session in which replication commands are understood."""
    import psycopg

    try:
        opened = connect_postgres(
            connection, replication="database", autocommit=True,
            options=f"-c statement_timeout={int(timeout * 1000)}",
        )
    except psycopg.OperationalError as error:
        # one that may log in without replication does
        with session(connection, timeout=5.0):
            pass
        raise _refusal_at_login(error, connection) from None
    with opened, refusals(opened, connection, timeout):
        yield opened


def _refusal_at_login(error: psycopg.Error, connection: Resolved) -> ReplicationFailed:
    """The typed error for a replication session that a server refuses, and lets others in."""
    text = " ".join(Redactor.of(connection).scrub(str(error)).split())
    user = option_of(connection, "POSTGRES", "USER")
    if "max_wal_senders" in text or "too many" in text:
        return ReplicationFailed(
            f"the server has no WAL sender left: {text}", remedy="raise max_wal_senders on it",
            transient=True,
        )
    return ReplicationNotAllowed(
        f"role {user} may not read changes: {text}",
        remedy=f"ALTER ROLE {user} REPLICATION, and let it in by pg_hba.conf (its own database)",
    )
