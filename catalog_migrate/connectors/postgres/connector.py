"""PostgreSQL as a connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.base import (
    BatchWriter,
    Connector,
    Frame,
    Identity,
    Session,
    Sink,
    Source,
)
from catalog_migrate.connectors.postgres import options
from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import Column, External

if TYPE_CHECKING:
    from catalog_migrate.connectors.postgres.ledger import Ledger
    from catalog_migrate.connectors.query import QuerySpec


class Postgres(Connector):
    """Databases: sinks write to their tables, sources read the changes of several."""

    name = "POSTGRES"
    help = "A PostgreSQL database. Sinks write to its tables, sources read their changes."
    connection = options.CONNECTION

    def __init__(self) -> None:
        self.source = PostgresSource()
        self.sink = PostgresSink()

    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Log in, and say what the server is."""
        from catalog_migrate.connectors.postgres.probe import postgres_session, server_findings

        with postgres_session(resolved, subject=subject, timeout=timeout) as session:
            return server_findings(session, subject=subject)

    def identify(
        self, resolved: Resolved, names: Sequence[str] = (), *, subject: str, timeout: float,
        reads: bool = False,
    ) -> Identity:
        """Return ``system identifier/database oid``."""
        from catalog_migrate.connectors.postgres.probe import database_identity, postgres_session

        del names, reads
        with postgres_session(resolved, subject=subject, timeout=timeout) as session:
            return Identity(self.name, database_identity(session))


class PostgresSource(Source):
    """The changes of tables, read by our own stream reader from a slot.

    A source of several tables has its own way beside the batches of others
    (:mod:`catalog_migrate.streams.upstreams.table_snapshots`): its frame is made at the start.
    """

    section = options.SOURCE
    codec = PostgresCodec()

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Find nothing: what its tables need is looked at with them (``preflight``)."""
        del resolved, external, columns, subject, timeout
        return ()

    def reader(self, spark: Session, spec: QuerySpec) -> Frame:
        """Never: where its changes begin is known once its snapshot is taken."""
        del spark
        raise EngineFailure(f"source {spec.name} has no tables", condition="NOT_SUPPORTED")


class PostgresSink(Sink):
    """A table; rows arrive once, by a ledger in the same transaction."""

    section = options.SINK
    ledger = "postgres"

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Ask whether the server takes writes, the ledger is there or can be made, the table has
        the columns, takes their types, lets us insert and, with KEY, replace."""
        from catalog_migrate.connectors.postgres.probe import (
            postgres_session,
            server_findings,
            table_findings,
        )

        with postgres_session(resolved, subject=subject, timeout=timeout) as session:
            server = server_findings(session, subject=subject, temporary=bool(external.key))
            table = str(external.options["TABLE"])
            return server + table_findings(session, table, columns, external.key, subject=subject)

    def writer(self, spark: Session, spec: QuerySpec) -> BatchWriter:
        """Return what merges the rows of a batch."""
        from catalog_migrate.connectors.postgres import sink

        del spark
        return sink.PostgresSink(spec)

    def begin(self, spark: Session, writer: Any) -> None:
        """Put rows that the table refused, and that are in the ledger, among the dead letters."""
        writer.deliver_refused(spark)

    def last_batch(self, spec: QuerySpec, query_id: str) -> int | None:
        """Ask the ledger."""
        with _failing(spec, "cannot read the ledger of"):
            return _ledger(spec).read(query_id).last_batch

    def require_ledger(self, spec: QuerySpec, query_id: str, committed: int | None) -> None:
        """Compare with the ledger."""
        with _failing(spec, "cannot read the ledger of"):
            _ledger(spec).check(query_id, committed)

    def fence(self, spec: QuerySpec, old: str, new: str) -> int | None:
        """Bar the old id in the ledger, and enter its newest batch under the new one."""
        with _failing(
            spec, "cannot fence the earlier runtime out of the database of",
            "bring the database back, then start the runtime again",
        ):
            ledger = _ledger(spec)
            ledger.fence(old, spec.item_id)
            last = ledger.read(old).last_batch
            if last is not None:
                with ledger.connect(new) as connection, connection.transaction():
                    ledger.claim(connection, new, last, spec.item_id)
            return last

    def destination(self, external: External) -> str:
        """Return the table."""
        return f"table {external.options.get('TABLE')}"


CONNECTOR = Postgres()


def _ledger(spec: QuerySpec) -> Ledger:
    from catalog_migrate.connectors.postgres.ledger import Ledger

    return Ledger(spec.connection, str(spec.external.options["TABLE"]))


@contextmanager
def _failing(spec: QuerySpec, what: str, remedy: str | None = None) -> Iterator[None]:
    """Raise EngineFailure, without secrets, for what the server raises."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise EngineFailure(
            f"{what} {spec.kind} {spec.name}: {spec.redactor.scrub(str(error).strip())}",
            condition=type(error).__name__,
            transient=isinstance(error, psycopg.OperationalError), remedy=remedy,
        ) from None
