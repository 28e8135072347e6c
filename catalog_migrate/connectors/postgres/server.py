"""A server whose changes are read: its identity, its slots, and what it refuses.

Every function takes the effective options of a POSTGRES connection. A server that does not let us
in raises :class:`~catalog_migrate.errors.ConnectionFailed`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.postgres.pgoutput import oldest_change
from catalog_migrate.connectors.postgres.sessions import (
    AGAIN,
    KEEP_MORE,
    NEW_SNAPSHOT,
    RESET_ELSEWHERE,
    RESET_SPLITS,
    replication_session,
    session,
)
from catalog_migrate.connectors.postgres.types import Position, lsn_number, lsn_text
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import (
    CatalogMigrateError,
    OtherServer,
    OtherTimeline,
    PublicationMissing,
    ReplicationFailed,
    SlotAhead,
    SlotInUse,
    SlotLost,
    SlotMissing,
)
from catalog_migrate.model.names import quote_postgres

if TYPE_CHECKING:
    import psycopg

PLUGIN = "pgoutput"
HEARTBEAT = "catalog_migrate"
"""The prefix of the messages that move an idle slot on."""

_IDENTITY = """
SELECT s.system_identifier::text,
       CASE WHEN pg_is_in_recovery() THEN c.timeline_id
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END
FROM pg_control_system() AS s, pg_control_checkpoint() AS c
"""
_SLOT = """
SELECT s.slot_name::text, s.plugin::text, s.database::text, s.active_pid,
       s.confirmed_flush_lsn::text, s.restart_lsn::text, s.wal_status, {reason}, {failover},
       current_database()::text,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_flush_lsn() END::text
FROM pg_replication_slots AS s WHERE s.slot_name = %s
"""
_AWAITED = """
SELECT h.pid, a.usename::text, a.state, extract(epoch FROM now() - a.xact_start)::float8,
       p.gid, extract(epoch FROM now() - p.prepared)::float8
FROM pg_locks AS w
JOIN pg_locks AS h ON h.locktype = 'transactionid' AND h.transactionid = w.transactionid
     AND h.granted AND h.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity AS a ON a.pid = h.pid
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = w.transactionid
WHERE w.pid = %s AND w.locktype = 'transactionid' AND NOT w.granted
"""
_LAG_TIMEOUT = 5.0
"""Seconds in which the server may look for the oldest change that is not read."""
_FIRST_LOOK, _LOOK_AGAIN = 1.0, 5.0
"""Seconds until it is looked for whom a new slot waits, and between two looks."""


class Slot(msgspec.Struct, frozen=True):
    """What the server says of a slot. ``lag`` are the bytes of log behind ``confirmed``."""

    name: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    confirmed: int | None
    restart: int | None
    wal_status: str | None
    invalidation: str | None
    failover: bool
    lag: int
    log_end: int
    """How far the server's log is written to its disk."""
    is_here: bool
    """Whether it belongs to the database of the connection."""

    @property
    def lost(self) -> bool:
        """Whether nothing can be read from it any more."""
        return self.wal_status == "lost" or bool(self.invalidation)


class SlotLag(msgspec.Struct, frozen=True):
    """What is still to be read: ``bytes`` of log, and how many ``seconds`` ago the oldest change in
    them was committed. Both are 0 where the log has no change of the publication; a slot may
    keep some of that all the same. ``seconds`` is None where there was too much to look through."""

    bytes: int
    seconds: float | None


class CreatedSlot(msgspec.Struct, frozen=True):
    """A slot just made: changes begin at ``position``, ``snapshot`` names the rows before it."""

    name: str
    position: Position
    snapshot: str


# -- which server, which place ---------------------------------------------------------------------


def identity(connection: Resolved) -> tuple[str, int]:
    """(system identifier, timeline) of the server."""
    with session(connection, timeout=5.0) as opened:
        return read_identity(opened)


def read_identity(opened: psycopg.Connection[Any]) -> tuple[str, int]:
    """The same on a session that is open."""
    row = opened.execute(_IDENTITY).fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


def check_position(
    opened: psycopg.Connection[Any], connection: Resolved, position: Position
) -> Position:
    """The position on the server's present timeline.

    Raises OtherServer, and OtherTimeline when that timeline left the position's before it.
    """
    system, timeline = read_identity(opened)
    if system != position.system:
        raise OtherServer(
            f"the server has the system identifier {system}, and the position belongs to"
            f" {position.system}",
            remedy="ALTER CONNECTION … to the server that was read from until now, or"
            f" {NEW_SNAPSHOT} of this one",
            system=system, expected=position.system, statements=RESET_ELSEWHERE,
        )
    if timeline == position.timeline:
        return position
    left = timeline_left(connection, position.timeline, timeline)
    if left is None or left < position.lsn:
        where = "another server's log" if left is None else f"{lsn_text(left)}"
        raise OtherTimeline(
            f"the position {position} on timeline {position.timeline} is not on timeline {timeline}"
            f" of the server, which left that timeline at {where}",
            remedy=f"changes after that place were read and are lost upstream: {NEW_SNAPSHOT}",
            timeline=timeline, left=left, statements=RESET_SPLITS,
        )
    return msgspec.structs.replace(position, timeline=timeline)


def timeline_left(connection: Resolved, old: int, new: int) -> int | None:
    """Where timeline ``new`` left ``old`` for a later one; None when it does not descend from it.
    """
    import psycopg

    if new < old:
        return None
    with replication_session(connection, timeout=5.0) as opened:
        try:
            row = opened.execute(f"TIMELINE_HISTORY {int(new)}".encode()).fetchone()
        except psycopg.errors.UndefinedFile:
            return None
    text = "" if row is None else row[1]
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    for line in text.splitlines():
        match = re.match(r"\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", line)
        if match is not None and int(match[1]) == old:
            return lsn_number(match[2])
    return None


# -- slots -----------------------------------------------------------------------------------------


def read_slot(opened: psycopg.Connection[Any], name: str) -> Slot | None:
    """The slot of that name, whosever it is; None when there is none."""
    version = opened.info.server_version
    query = _SLOT.format(
        reason="s.invalidation_reason" if version >= 170000 else "NULL",
        failover="s.failover" if version >= 170000 else "false",
    )
    row = opened.execute(query.encode(), (name,)).fetchone()
    if row is None:
        return None
    confirmed = None if row[4] is None else lsn_number(row[4])
    restart = None if row[5] is None else lsn_number(row[5])
    behind = confirmed if confirmed is not None else restart
    now = lsn_number(row[10])
    return Slot(
        name=row[0], plugin=row[1], database=row[2], active_pid=row[3], confirmed=confirmed,
        restart=restart, wal_status=row[6], invalidation=row[7], failover=bool(row[8]),
        lag=0 if behind is None else max(0, now - behind), log_end=now, is_here=row[2] == row[9],
    )


def log_end(opened: psycopg.Connection[Any]) -> int:
    """How far the server's log is written to its disk; of a standby, how far it has come."""
    row = opened.execute(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
        " ELSE pg_current_wal_flush_lsn() END::text"
    ).fetchone()
    assert row is not None
    return lsn_number(row[0])


def check_slot(slot: Slot | None, name: str, position: Position) -> Slot:
    """The slot, when the changes from ``position`` on can be read from it."""
    if slot is None:
        raise SlotMissing(
            f"there is no replication slot {name}: it was dropped, or a promotion did not bring it"
            " along", remedy=AGAIN, slot=name, statements=RESET_SPLITS,
        )
    if slot.lost:
        why = slot.invalidation or "wal_removed"
        raise SlotLost(
            f"replication slot {name} is lost ({why}): the server removed the log that it needs",
            remedy=KEEP_MORE, slot=name, reason=why, statements=RESET_SPLITS,
        )
    if slot.plugin != PLUGIN or not slot.is_here:
        raise SlotInUse(
            f"replication slot {name} is somebody else's: plugin {slot.plugin}, database"
            f" {slot.database}", remedy="name another SLOT", slot=name,
        )
    if slot.confirmed is not None and slot.confirmed > position.lsn:
        raise SlotAhead(
            f"replication slot {name} was advanced to {lsn_text(slot.confirmed)}, past the position"
            f" {position}: the changes between are not to be had",
            remedy=f"another process read from it, or an old checkpoint came back: {NEW_SNAPSHOT},"
            " or go on with what the slot has (UNSAFE INJECT OFFSETS (TO earliest)), without what"
            " lies between",
            slot=name, confirmed=slot.confirmed, position=position.lsn, statements=RESET_SPLITS,
        )
    if position.lsn > slot.log_end:
        raise OtherTimeline(
            f"the server's log ends at {lsn_text(slot.log_end)}, before the position {position}:"
            " the server was restored from an older copy",
            remedy=f"changes after that place were read and are lost upstream: {NEW_SNAPSHOT}",
            slot=name, log_end=slot.log_end, position=position.lsn, statements=RESET_SPLITS,
        )
    return slot


@contextmanager
def create_slot(
    connection: Resolved, name: str, *, temporary: bool = False, timeout: float = 60.0,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Iterator[CreatedSlot]:
    """A new slot; its snapshot can be read until the end of the ``with`` block.

    The server waits for the transactions that are open, at most ``timeout`` seconds; ``on_wait``
    hears again and again which one, with its process and age, and an empty text in the end. From
    PostgreSQL 17 on it is a failover slot, which standbys that synchronize slots have as well. The
    slot stays, whatever happens in the block, unless it is ``temporary``: then it ends with it.
    Raises SlotInUse when there is one of that name.
    """
    import psycopg

    with session(connection, timeout=5.0) as opened:
        version = opened.info.server_version
        system, timeline = read_identity(opened)
        # a standby refuses to have failover slots of its own
        row = opened.execute("SELECT pg_is_in_recovery()").fetchone()
        failover = version >= 170000 and not temporary and row is not None and not row[0]
    quoted = quote_postgres(name) + (" TEMPORARY" if temporary else "")
    if version >= 150000:
        more = ", FAILOVER" if failover else ""
        statement = f"CREATE_REPLICATION_SLOT {quoted} LOGICAL {PLUGIN} (SNAPSHOT 'export'{more})"
    else:
        statement = f"CREATE_REPLICATION_SLOT {quoted} LOGICAL {PLUGIN} EXPORT_SNAPSHOT"
    with replication_session(connection, timeout=timeout) as replication:
        wait = _Wait(connection, replication, timeout, on_wait)
        try:
            row = replication.execute(statement.encode()).fetchone()
        except psycopg.errors.DuplicateObject:
            raise SlotInUse(
                f"there is a replication slot {name} already",
                remedy="name another SLOT, or drop it when no process reads from it", slot=name,
            ) from None
        except psycopg.errors.QueryCanceled:
            waited = f" ({wait.said})" if wait.said else ""
            raise ReplicationFailed(
                f"a slot waits for the transactions that were open, and some were for longer than"
                f" {timeout:.0f} s{waited}",
                remedy=f"{wait.remedy or _END_TRANSACTIONS}; the slot is tried again",
                transient=True,
            ) from None
        finally:
            wait.end()
        assert row is not None
        yield CreatedSlot(row[0], Position(lsn_number(row[1]), timeline, system), row[2])


_END_TRANSACTIONS = "end them (pg_stat_activity, oldest xact_start; pg_prepared_xacts)"


class _Wait:
    """Looks for whom a session of replication waits, and cancels its command after ``timeout``
    seconds: statement_timeout does not count for commands of replication.

    ``said`` names the transaction that was waited for last, ``remedy`` what ends it; both are
    empty where none was seen.
    """

    def __init__(
        self, connection: Resolved, replication: psycopg.Connection[Any], timeout: float,
        on_wait: Callable[[str], None],
    ) -> None:
        self.said = self.remedy = ""
        self._connection, self._replication, self._on_wait = connection, replication, on_wait
        self._pid, self._timeout = replication.info.backend_pid, timeout
        self._began = time.monotonic()
        self._ended, self._lock = threading.Event(), threading.Lock()
        threading.Thread(target=self._run, name="slot waits", daemon=True).start()

    def end(self) -> None:
        """The command has ended: cancel nothing that follows."""
        with self._lock:
            self._ended.set()
            if self.said:
                self._on_wait("")

    def _run(self) -> None:
        import psycopg

        deadline = self._began + self._timeout
        pause = min(_FIRST_LOOK, self._timeout / 2)
        while not self._ended.wait(min(pause, max(0.0, deadline - time.monotonic()))):
            pause, found = _LOOK_AGAIN, self._look()
            with self._lock:
                if self._ended.is_set():
                    return
                if found is not None:
                    self.said, self.remedy = found
                    self._on_wait(f"a new slot waits for a transaction: {self.said}")
                if time.monotonic() >= deadline:
                    # tried again: the server may not answer, or the command may begin only now
                    with suppress(psycopg.Error):
                        self._replication.cancel_safe(timeout=5.0)
                    deadline = time.monotonic() + _LOOK_AGAIN

    def _look(self) -> tuple[str, str] | None:
        """Who holds what is waited for now, in words, and what ends it; None for nothing seen.

        Ages of others' transactions are for members of pg_read_all_stats; one that is waited for
        is as old as the wait at least.
        """
        try:
            with session(self._connection, timeout=2.0) as opened:
                row = opened.execute(_AWAITED, (self._pid,)).fetchone()
        except CatalogMigrateError:
            return None
        if row is None:
            return None
        pid, user, doing, age, prepared, since = row
        least = "at least " if age is None and since is None else ""
        seconds = max(0.0, age or since or time.monotonic() - self._began)
        for_ = f"open for {least}{seconds:.0f} s"
        if prepared is not None:
            return (
                f"prepared transaction {prepared}, {for_}",
                "end it: ROLLBACK PREPARED or COMMIT PREPARED in its database",
            )
        about = ", ".join(filter(None, (f"user {user}" if user else "", doing)))
        return (
            f"process {pid} of the server{f' ({about})' if about else ''}, {for_}",
            f"end it there, or SELECT pg_terminate_backend({pid})",
        )


def advance(connection: Resolved, name: str, to: int) -> None:
    """Let the server forget what was committed before ``to``; nothing when it has already.

    ``to`` must be a position whose changes are kept for good.
    """
    with session(connection) as opened:
        advance_slot(opened, name, to)


def advance_slot(opened: psycopg.Connection[Any], name: str, to: int) -> None:
    """The same on a session that is open."""
    opened.execute(
        "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots"
        " WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn",
        (lsn_text(to), name, lsn_text(to)),
    )


def drop_slot(
    connection: Resolved, name: str, *, confirmed_upto: int | None = None
) -> bool:
    """Drop a slot; return whether there was one. Raises SlotInUse while a process reads from it.

    With ``confirmed_upto`` only one whose changes were confirmed up to that LSN at most.
    """
    limit = None if confirmed_upto is None else lsn_text(confirmed_upto)
    with session(connection) as opened:
        rows = opened.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s AND (%s::pg_lsn IS NULL OR confirmed_flush_lsn <= %s::pg_lsn)",
            (name, limit, limit),
        ).fetchall()
    return bool(rows)


_STRUCTURE = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL,"
    " 'proto_version', '1', 'publication_names', %s) WHERE get_byte(data, 0) IN (66, 84)"  # B, T
)
PEEK = (
    "SELECT {lsn}, data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, {limit},"
    " 'proto_version', '1', 'publication_names', %s)"
)
_FEW = 100
"""So many messages are enough to see whether there is a change: old servers send empty
transactions too."""
_PEEK_FEW, _PEEK_ALL = PEEK.format(lsn=0, limit=_FEW), PEEK.format(lsn="lsn", limit="NULL")
_ANY = (
    f"SELECT count(*) >= {_FEW} OR bool_or(get_byte(data, 0) NOT IN (66, 67))"  # B, C
    f" FROM ({_PEEK_FEW}) AS peeked(lsn, data)"
)
_ANY_LATER = (
    "SELECT bool_or(get_byte(data, 0) = 67 AND lsn > %s::pg_lsn)"
    f" FROM ({_PEEK_ALL}) AS peeked(lsn, data)"
)


def has_changes(
    opened: psycopg.Connection[Any], slot: Slot, publication: str, start: int, end: int
) -> bool:
    """Whether there may be a change that commits between ``start`` and ``end``.

    Quick where the slot has confirmed ``start``; else all that lies behind it is looked through.
    """
    values = (slot.name, lsn_text(end), quote_postgres(publication))
    with _publication_there(opened, publication) as check:
        if slot.confirmed is not None and slot.confirmed >= start:
            row = opened.execute(_ANY.encode(), values).fetchone()
        else:
            row = opened.execute(_ANY_LATER.encode(), (lsn_text(start), *values)).fetchone()
        check()
    assert row is not None
    return bool(row[0])


def peek(
    opened: psycopg.Connection[Any], slot: str, publication: str, end: int
) -> Iterator[tuple[int, bytes]]:
    """The messages of transactions that commit before ``end``, for the decoder.

    Only to be read inside of a transaction. The server keeps them for as long.
    """
    cursor = opened.cursor("catalog_migrate_changes", binary=True)
    cursor.itersize = 5000
    with cursor, _publication_there(opened, publication) as check:
        query = PEEK.format(lsn=0, limit="NULL").encode()
        cursor.execute(query, (slot, lsn_text(end), quote_postgres(publication)))
        messages = iter(cursor)
        first = next(messages, None)
        # the server has decoded everything before it sends the first
        check()
        if first is not None:
            yield first
            yield from messages


def peek_truncates(
    opened: psycopg.Connection[Any], slot: str, publication: str, end: int
) -> Iterator[bytes]:
    """The beginnings of transactions that commit before ``end``, and their TRUNCATE messages."""
    rows = opened.execute(_STRUCTURE, (slot, lsn_text(end), quote_postgres(publication)))
    return (bytes(data) for (data,) in rows)


def lag(
    connection: Resolved, slot: str, publication: str, committed: Position | None = None
) -> SlotLag | None:
    """How far what is ``committed`` is behind the server; None where there is no slot, or it is
    lost.

    Without ``committed``, or where the server is another one, the slot's own position counts.
    Raises SlotInUse while a batch is read from the slot.
    """
    import psycopg

    with session(connection, timeout=_LAG_TIMEOUT) as opened:
        found = read_slot(opened, slot)
        if found is None or found.lost:
            return None
        confirmed = start = found.log_end - found.lag
        if committed is not None and read_identity(opened)[0] == committed.system:
            start = max(confirmed, committed.lsn)
        if start >= found.log_end:
            return SlotLag(0, 0.0)
        # a few messages are enough where all of them are behind the position
        limit = _FEW if start == confirmed else "NULL"
        try:
            rows = opened.execute(
                PEEK.format(lsn=0, limit=limit).encode(),
                (slot, lsn_text(found.log_end), quote_postgres(publication)),
            ).fetchall()
        except psycopg.errors.QueryCanceled:
            return SlotLag(found.log_end - start, None)
        oldest = oldest_change((bytes(data) for _, data in rows), start)
        if oldest is None:
            # more may follow behind a few messages without a change
            cut = isinstance(limit, int) and len(rows) >= limit
            return SlotLag(found.log_end - start if cut else 0, 0.0)
        now = opened.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        assert now is not None
        return SlotLag(found.log_end - start, max(0.0, now[0] - oldest / 1_000_000))


@contextmanager
def _publication_there(
    opened: psycopg.Connection[Any], publication: str
) -> Iterator[Callable[[], None]]:
    """A check that no change was passed over for want of the publication.

    Up to 17 the server refuses to decode a change that was made while the publication was not
    there, even when it is again; 18 warns, and leaves the change out.
    """
    warned: list[str] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.sqlstate == "55000":
            warned.append(diagnostic.message_primary or "")

    def check() -> None:
        if warned:
            raise PublicationMissing(
                f"changes were made while publication {publication} was not there:"
                f" {warned[0]}", remedy=f"create it again where it is missing, then {AGAIN}",
                publication=publication, statements=RESET_SPLITS,
            )

    opened.add_notice_handler(keep)
    try:
        yield check
    finally:
        opened.remove_notice_handler(keep)


def heartbeat(opened: psycopg.Connection[Any]) -> None:
    """Write a few bytes into the log, so that an idle slot has something to move on to."""
    opened.execute("SELECT pg_logical_emit_message(true, %s, '')", (HEARTBEAT,))
