"""The port to the PostgreSQL servers that sources read: their tables, and the slots there.

What asks a server is loaded when one is asked: a catalog without such a source costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import (
    ConnectionFailed,
    EngineFailure,
    OtherServer,
    OtherTimeline,
    ReplicationFailed,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import External
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_ATTEMPT,
    SNAPSHOT_LOADED,
    is_mirror,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint

if TYPE_CHECKING:
    from catalog_migrate.connectors.postgres.server import Slot, SlotLag
    from catalog_migrate.connectors.postgres.snapshot import Put
    from catalog_migrate.connectors.postgres.survey import Survey
    from catalog_migrate.connectors.postgres.types import DiscoveredTable, Position


class SlotContents(msgspec.Struct, frozen=True):
    """What a server says of the slot of a POSTGRES source, and of a position.

    ``earliest`` is the LSN from which the slot has the changes, None with a ``problem`` when it has
    none that can be read; ``latest`` is the end of the server's log. ``here`` is the position on
    the server's timeline; None, with why in ``foreign``, for one that its log does not have.
    ``counts`` gives the changes of each table between two LSNs, None where that is not known.
    """

    system: str
    timeline: int
    earliest: int | None
    latest: int
    here: Position | None
    counts: Callable[[int, int], Mapping[str, int] | None]
    problem: str = ""
    foreign: str = ""


class SlotState(msgspec.Struct, frozen=True):
    """What a server reports of a slot itself: None where there is none; ``most`` is the setting
    ``max_slot_wal_keep_size``, "-1" for no limit."""

    slot: Slot | None
    most: str


class Databases(Protocol):
    """What streams ask of the servers that POSTGRES sources read."""

    def tables(
        self, connection: Resolved, names: Sequence[str], *, publication: str | None = None,
        subject: str = "connection",
    ) -> tuple[DiscoveredTable, ...]:
        """Return what a PostgreSQL server says of tables, in their order; names are as in its SQL.

        Columns count as published that ``publication`` has. Raises ConnectionFailed for a server
        that does not answer and a table that is not there.
        """

    def preflight(
        self, connection: Resolved, external: External, names: Sequence[str], *, slot: str,
        new: bool = True, subject: str = "connection",
    ) -> tuple[Finding, ...]:
        """All that keeps the changes of these tables from being read; ``new``: the slot is not
        made yet. Takes 15 s at most."""

    def survey(self, spec: QuerySpec) -> Survey:
        """Return what is there of the tables of a POSTGRES source. Raises ConnectionFailed."""

    def look(self, spec: QuerySpec, position: Position | None) -> Survey:
        """Return the same, where nothing may be missing of what it reads from ``position`` on.

        That is compared with what is on record; a table of which nothing is must be one whose
        changes can be read. Raises ChangesMissing and ConnectionFailed.
        """

    def here(self, connection: Resolved) -> Position:
        """Return the server that answers, and where its log ends. Raises ConnectionFailed."""

    def copy(
        self, connection: Resolved, tables: Sequence[DiscoveredTable], put: Put, *, slot: str,
        temporary: bool, publication: str, on_progress: Callable[[str, int], None],
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Make a slot, and copy the rows of tables that stand under its snapshot.

        ``put`` gets files, the manifest behind all others; ``on_progress`` a table and its rows so
        far, ``on_wait`` which open transaction the slot waits for. ``temporary``: the slot goes
        when the rows are there. Raises ConnectionFailed, and SlotInUse where there is one of that
        name.
        """

    def lag(self, spec: QuerySpec) -> SlotLag | None:
        """How far what a POSTGRES source has committed is behind its server; None where there is
        no slot.

        Raises ConnectionFailed, and SlotInUse while a batch is read from it.
        """

    def slot_state(self, spec: QuerySpec, *, timeout: float = 10.0) -> SlotState:
        """Return whether the slot of a POSTGRES source is there, and what it keeps. Raises
        ConnectionFailed."""

    def drop_slot(
        self, connection: Resolved, name: str, *, upstream: str = "",
        confirmed_upto: int | None = None,
    ) -> bool:
        """Drop a replication slot of a PostgreSQL server; whether there was one.

        With ``confirmed_upto`` only one whose changes were confirmed up to that LSN at most. Raises
        ConnectionFailed, OtherServer where it is not ``upstream``, and SlotInUse while a process
        reads from the slot.
        """

    def slot(
        self, spec: QuerySpec, position: Position | None, *, timeout: float = 30.0
    ) -> AbstractContextManager[SlotContents]:
        """Return what a POSTGRES source's server says of its slot, as long as the block lasts.

        Raises :class:`EngineFailure` for a server that does not answer or says no.
        """


def preflight_of(spec: QuerySpec) -> tuple[Finding, ...]:
    """Return whether the changes of a POSTGRES source's tables can be read."""
    new = spec.snapshot_number == 1 and not any(
        map(store_at(spec.snapshot).exists, (SNAPSHOT_ATTEMPT, SNAPSHOT_LOADED))
    )
    return preflight(
        spec.connection, spec.external, [table.upstream.postgres_name for table in spec.tables],
        slot=spec.slot, new=new, subject=f"source {spec.name}",
    )


def preflight(
    connection: Resolved, external: External, names: Sequence[str], *, slot: str,
    new: bool = True, subject: str = "connection",
) -> tuple[Finding, ...]:
    """All that keeps the changes of tables from being read; see the port."""
    from catalog_migrate.connectors.postgres.preflight import preflight as replication_preflight

    return replication_preflight(
        connection, str(external.options.get("PUBLICATION", "")), slot, list(names),
        format="MIRROR" if is_mirror(external) else "CHANGES", new=new, subject=subject,
    )


@contextmanager
def slot(
    spec: QuerySpec, position: Position | None, *, timeout: float = 30.0
) -> Iterator[SlotContents]:
    """What the server of a POSTGRES source says of its slot; see the port."""
    from catalog_migrate.connectors.postgres import pgoutput, server, sessions
    from catalog_migrate.connectors.postgres.types import Position, lsn_text

    subject = f"{spec.kind} {spec.name}"
    try:
        with sessions.session(spec.connection, subject=subject, timeout=timeout) as opened:
            system, timeline = server.read_identity(opened)
            found = server.read_slot(opened, spec.slot)
            end = server.log_end(opened) if found is None else found.log_end
            here, foreign, problem = None, "", ""
            try:
                if position is not None:
                    here = server.check_position(opened, spec.connection, position)
            except (OtherServer, OtherTimeline) as error:
                foreign = error.message
            if here is not None and here.lsn > end:
                foreign = (
                    f"the server's log ends at {lsn_text(end)}, before the position {position}"
                )
                here = None
            try:
                server.check_slot(found, spec.slot, Position(end, timeline, system))
            except ReplicationFailed as error:
                problem = error.message
            earliest = None if found is None or problem else found.confirmed

            def counts(start: int, stop: int) -> Mapping[str, int] | None:
                if earliest is None or start < earliest or stop > end:
                    return None
                wanted = {table.upstream.full_name for table in spec.tables}
                try:
                    with (
                        sessions.refusals(opened, spec.connection, timeout), opened.transaction(),
                    ):
                        messages = server.peek(opened, spec.slot, spec.publication, stop)
                        counted = pgoutput.count(messages, start=start, end=stop)
                except ReplicationFailed:  # its own query reads from it, or it takes too long
                    return None
                return {name: counted.get(name, 0) for name in sorted(wanted)}

            yield SlotContents(system, timeline, earliest, end, here, counts, problem, foreign)
    except (ConnectionFailed, ReplicationFailed) as error:
        raise EngineFailure(
            f"{subject}: {error.message}; nothing was done", condition=error.code,
            remedy=error.remedy,
        ) from error


def tables(
    connection: Resolved, names: Sequence[str], *, publication: str | None = None,
    subject: str = "connection",
) -> tuple[DiscoveredTable, ...]:
    """Return what a PostgreSQL server says of tables; see the port."""
    from catalog_migrate.connectors.postgres.survey import discover

    return discover(connection, names, publication=publication, subject=subject)


def survey(spec: QuerySpec) -> Survey:
    """Return what is there of the tables of a POSTGRES source; see the port."""
    from catalog_migrate.connectors.postgres.sessions import session
    from catalog_migrate.connectors.postgres.survey import read_survey
    from catalog_migrate.streams.catalog.surveys import watch_of

    watch = watch_of(spec)
    with session(spec.connection, timeout=5.0) as opened:
        return read_survey(opened, watch.publication, watch.names).survey


def look(spec: QuerySpec, position: Position | None) -> Survey:
    """The same, where nothing may be missing of what is read from a position on; see the port."""
    from catalog_migrate.connectors.postgres.sessions import session
    from catalog_migrate.connectors.postgres.types import Position
    from catalog_migrate.connectors.postgres.watch import OpenServer, Watcher
    from catalog_migrate.streams.catalog.surveys import watch_of

    watcher = Watcher(watch_of(spec))
    with session(spec.connection, timeout=30.0) as opened:
        asked = OpenServer(opened, spec.connection)
        watcher.look(asked, position or Position(0, 1, ""))
    return watcher.watch.recorded


def here(connection: Resolved) -> Position:
    """Return the server that answers, and where its log ends; see the port."""
    from catalog_migrate.connectors.postgres import server, sessions
    from catalog_migrate.connectors.postgres.types import Position

    with sessions.session(connection, timeout=5.0) as opened:
        system, timeline = server.read_identity(opened)
        return Position(server.log_end(opened), timeline, system)


def copy(
    connection: Resolved, tables: Sequence[DiscoveredTable], put: Put, *, slot: str,
    temporary: bool, publication: str, on_progress: Callable[[str, int], None],
    on_wait: Callable[[str], None] = lambda _: None,
) -> None:
    """Make a slot, and copy the rows of tables that stand under its snapshot; see the port."""
    from catalog_migrate.connectors.postgres.server import create_slot
    from catalog_migrate.connectors.postgres.snapshot import stage

    with create_slot(connection, slot, temporary=temporary, on_wait=on_wait) as made:
        stage(connection, made, tables, put, publication=publication, on_progress=on_progress)


def lag(spec: QuerySpec) -> SlotLag | None:
    """How far what a POSTGRES source has committed is behind its server; see the port."""
    from catalog_migrate.connectors.postgres import server

    committed = PostgresCodec().read(Checkpoint(spec.checkpoint).committed_line)
    return server.lag(spec.connection, spec.slot, spec.publication, committed)


def slot_state(spec: QuerySpec, *, timeout: float = 10.0) -> SlotState:
    """Return whether the slot of a POSTGRES source is there, and what it keeps; see the port."""
    from catalog_migrate.connectors.postgres import server, sessions

    subject = f"{spec.kind} {spec.name}"
    with sessions.session(spec.connection, subject=subject, timeout=timeout) as opened:
        row = opened.execute("SHOW max_slot_wal_keep_size").fetchone()
        return SlotState(server.read_slot(opened, spec.slot), "-1" if row is None else str(row[0]))


def drop_slot(
    connection: Resolved, name: str, *, upstream: str = "", confirmed_upto: int | None = None
) -> bool:
    """Drop a replication slot; see the port."""
    from catalog_migrate.connectors.postgres import server

    system = upstream.partition("/")[0]
    found = server.identity(connection)[0]
    if system and found != system:
        raise OtherServer(
            f"the connection leads to the server {found}, and the slot is on {system}",
            remedy="point the connection back, or drop the slot there by hand",
            system=found, expected=system,
        )
    return server.drop_slot(connection, name, confirmed_upto=confirmed_upto)


class ServerDatabases:
    """The port's implementation by PostgreSQL's own client."""

    tables = staticmethod(tables)
    preflight = staticmethod(preflight)
    survey = staticmethod(survey)
    look = staticmethod(look)
    here = staticmethod(here)
    copy = staticmethod(copy)
    lag = staticmethod(lag)
    slot_state = staticmethod(slot_state)
    drop_slot = staticmethod(drop_slot)
    slot = staticmethod(slot)
