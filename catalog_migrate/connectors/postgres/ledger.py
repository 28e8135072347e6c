"""The ledger of batches in the destination database: what makes a POSTGRES sink exactly once.

A batch's row and its data are one transaction, so a batch that is run again finds its row and is
passed over. The table is in the schema of the sink's table and serves all sinks of that schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.postgres.client import connect_postgres, quoted_table
from catalog_migrate.connectors.query import FENCE
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import LedgerMismatch, QueryFenced

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

LEDGER = "catalog_migrate_ledger"
"""The table in which a sink notes its batches, in the schema of the sink's own table."""
REFUSED = "catalog_migrate_refused"
"""Rows of a committed batch that the sink's table refused, until they are among the dead letters.
"""

_KEPT = 100
"""How many batches of a query stay in the ledger; the newest one would do."""
_FROZEN_SECONDS = 60
"""After so long without a statement the server ends our transaction: its owner is frozen."""
_FENCE_SECONDS = 15

_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
  query_id text NOT NULL,
  batch bigint NOT NULL,
  item text NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (query_id, batch)
)"""

_CREATE_REFUSED = """
CREATE TABLE IF NOT EXISTS {} (
  query_id text NOT NULL,
  batch bigint NOT NULL,
  number bigint NOT NULL,
  item text NOT NULL,
  row text NOT NULL,
  PRIMARY KEY (query_id, batch, number)
)"""


class RefusedRows(msgspec.Struct, frozen=True):
    """What a batch of a query had that the table refused, each row as the writer has put it."""

    query_id: str
    batch: int
    rows: tuple[str, ...]


class LedgerState(msgspec.Struct, frozen=True):
    """What the ledger says of a query: its newest batch (None: none yet), whether it is fenced."""

    last_batch: int | None
    fenced: bool


class Ledger:
    """The ledger beside one table, over a connection's effective options.

    ``table`` is the sink's TABLE option. Errors of the server are psycopg's, not scrubbed.
    """

    def __init__(self, connection: Resolved, table: str) -> None:
        self._resolved = connection
        self._table = quoted_table(table)

    def connect(self, query_id: str) -> Connection[Any]:
        """Return a connection for one query; its name lets :meth:`fence` find it."""
        return connect_postgres(self._resolved, application_name=_application(query_id))

    def read(self, query_id: str) -> LedgerState:
        """Return what the destination knows of a query; nothing without a table or a ledger."""
        with self.connect(query_id) as connection:
            name = self._name(connection)
            if name is None or not _exists(connection, name):
                return LedgerState(None, fenced=False)
            return _state(connection, name, query_id)

    def create(self, connection: Connection[Any], *, refused: bool = False) -> None:
        """Make the ledger, and the table for ``refused`` rows, unless they are there; commits.

        Looking first keeps a role without CREATE out of trouble where it was made for it, and the
        lock two first sinks from colliding, which IF NOT EXISTS alone does not.
        """
        with connection.transaction():
            for table, statement in ((LEDGER, _CREATE), (REFUSED, _CREATE_REFUSED))[:1 + refused]:
                name = self._require_name(connection, table)
                if _exists(connection, name):
                    continue
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (LEDGER,)
                )
                _run(connection, statement, name)

    def keep_refused(
        self, connection: Connection[Any], batch: RefusedRows, item: str
    ) -> None:
        """Keep rows of a batch in the transaction that enters it, for :meth:`read_refused`."""
        from psycopg.sql import SQL

        statement = SQL("INSERT INTO {} (query_id, batch, number, item, row)"
                        " VALUES (%s, %s, %s, %s, %s)")
        with connection.cursor() as cursor:
            cursor.executemany(
                statement.format(self._require_name(connection, REFUSED)),
                [(batch.query_id, batch.batch, number, item, row)
                 for number, row in enumerate(batch.rows)],
            )

    def read_refused(self, connection: Connection[Any], item: str) -> list[RefusedRows]:
        """Refused rows that an item has kept, of whatever query, by batch."""
        name = self._name(connection, REFUSED)
        if name is None or not _exists(connection, name):
            return []
        found = _run(
            connection, "SELECT query_id, batch, array_agg(row ORDER BY number) FROM {} WHERE item"
            " = %s GROUP BY query_id, batch ORDER BY batch", name, item,
        )
        return [RefusedRows(query, batch, tuple(rows)) for query, batch, rows in found]

    def forget_refused(self, connection: Connection[Any], batch: RefusedRows) -> None:
        """Remove the rows of a batch that are among the dead letters."""
        _run(
            connection, "DELETE FROM {} WHERE query_id = %s AND batch = %s",
            self._require_name(connection, REFUSED), batch.query_id, batch.batch,
        )

    def claim(self, connection: Connection[Any], query_id: str, batch: int, item: str) -> bool:
        """Enter a batch in the open transaction; False when the ledger has it.

        Raises :class:`QueryFenced` when another runtime took the query over.
        """
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_FROZEN_SECONDS}s'")
        _lock(connection, query_id)
        name = self._require_name(connection)
        if _state(connection, name, query_id).fenced:
            raise _fence_error(query_id, f"batch {batch} of {item} was not written")
        if not _enter(connection, name, query_id, batch, item):
            return False
        _run(
            connection, "DELETE FROM {} WHERE query_id = %s AND batch <= %s", name,
            query_id, batch - _KEPT,
        )  # fmt: skip
        return True

    def check(self, query_id: str, committed_batch: int | None) -> LedgerState:
        """Compare with the checkpoint's newest committed batch (None: none yet).

        Raises :class:`LedgerMismatch` for a server that lacks that batch (another one, or a replica
        that lags behind) or has more than the one that may be under way (the checkpoint is an
        earlier one: the batches between would be passed over), :class:`QueryFenced` for a fenced
        query.
        """
        state = self.read(query_id)
        committed = -1 if committed_batch is None else committed_batch
        known = -1 if state.last_batch is None else state.last_batch
        facts = {"query_id": query_id, "committed_batch": committed, "ledger_batch": known}
        if state.fenced:
            raise _fence_error(query_id, "it must not be started again")
        if known < committed:
            raise LedgerMismatch(
                f"the ledger beside {self._table} ends at batch {_text(known)} of query {query_id},"
                f" the checkpoint at batch {committed}: this is not the database that the sink"
                " wrote to, or it lags behind it",
                remedy="point the connection at the database that has the rows, or wait until it"
                " has caught up; a new sink starts from the beginning",
                **facts,
            )
        if known > committed + 1:
            raise LedgerMismatch(
                f"the ledger beside {self._table} ends at batch {known} of query {query_id}, the"
                f" checkpoint at batch {_text(committed)}: the batches between would be passed"
                " over",
                remedy="restore the checkpoint that belongs to this database, or create another"
                " sink",
                **facts,
            )
        return state

    def fence(self, query_id: str, item: str) -> None:
        """Keep every older runtime from writing another batch of this query.

        A transaction that is open under the query is ended by the server first: its owner may be
        frozen, and would otherwise commit when it wakes up. Afterwards no batch of it commits.
        """
        with connect_postgres(self._resolved) as connection:
            self.create(connection)
            with connection.transaction():
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
                    " pid <> pg_backend_pid() AND application_name = %s"
                    " AND usename = current_user",
                    (_application(query_id),),
                )
                connection.execute(f"SET LOCAL lock_timeout = '{_FENCE_SECONDS}s'")
                _lock(connection, query_id)
                _enter(connection, self._require_name(connection), query_id, FENCE, item)

    def _name(self, connection: Connection[Any], table: str = LEDGER) -> Composed | None:
        """The full name of the ledger, or of ``table`` beside it; None when the sink's table is not
        there."""
        from psycopg.sql import SQL, Identifier

        row = connection.execute(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass(%s)",
            (self._table,),
        ).fetchone()
        return None if row is None else SQL("{}").format(Identifier(row[0], table))

    def _require_name(self, connection: Connection[Any], table: str = LEDGER) -> Composed:
        name = self._name(connection, table)
        if name is None:
            raise LedgerMismatch(
                f"there is no table {self._table} in this database",
                remedy="create it there, or point the connection at the database that has it",
            )
        return name


def _exists(connection: Connection[Any], name: Composed) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (name.as_string(connection),)).fetchone()
    return row is not None and row[0] is not None


def _state(connection: Connection[Any], name: Composed, query_id: str) -> LedgerState:
    row = _run(
        connection,
        f"SELECT max(batch) FILTER (WHERE batch < {FENCE}), count(*) FILTER (WHERE batch = {FENCE})"
        " FROM {} WHERE query_id = %s",
        name,
        query_id,
    ).fetchone()
    assert row is not None, "an aggregate has one row"
    return LedgerState(None if row[0] is None else int(row[0]), fenced=row[1] > 0)


def _enter(
    connection: Connection[Any], name: Composed, query_id: str, batch: int, item: str
) -> bool:
    """Whether the row is new."""
    entered = _run(
        connection,
        "INSERT INTO {} (query_id, batch, item) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        name,
        query_id,
        batch,
        item,
    )
    return bool(entered.rowcount)


def _run(connection: Connection[Any], statement: str, name: Composed, *values: object) -> Any:
    """Execute a statement of this module with the ledger's name in its braces."""
    from psycopg.sql import SQL

    return connection.execute(
        SQL(statement).format(name),
        values or None,
    )


def _lock(connection: Connection[Any], query_id: str) -> None:
    """One writer a query at a time; the lock goes with the transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))", (query_id,))


def _application(query_id: str) -> str:
    """A connection's name; PostgreSQL keeps 63 bytes of it."""
    return f"catalog_migrate {query_id}"


def _fence_error(query_id: str, consequence: str) -> QueryFenced:
    return QueryFenced(
        f"query {query_id} was taken over by another runtime; {consequence}",
        remedy="nothing, while the other runtime is alive; else start this one again",
        query_id=query_id,
    )


def _text(batch: int) -> str:
    return "none" if batch < 0 else str(batch)
