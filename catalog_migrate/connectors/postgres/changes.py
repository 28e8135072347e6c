"""Changes of PostgreSQL tables as a stream of Spark: a Python data source over a logical slot.

The position is an LSN with timeline and system identifier. A batch is read by peeking, so that it
can be read again; the slot advances only to positions that Spark has committed. The options of the
connection travel inside of the pickled class of the source, for options of a reader would stand in
plans: a class is made and registered for each call.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from catalog_migrate.connectors.postgres import server
from catalog_migrate.connectors.postgres.pgoutput import decode_batches
from catalog_migrate.connectors.postgres.sessions import (
    NEW_SNAPSHOT,
    RESET_SPLITS,
    marked,
    parse_failure,
    refusals,
    session,
)
from catalog_migrate.connectors.postgres.survey import Watch
from catalog_migrate.connectors.postgres.types import Expected, Position
from catalog_migrate.connectors.postgres.watch import OpenServer, Watcher
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Secret, reveal
from catalog_migrate.engine.spark.session import silence_py4j
from catalog_migrate.errors import CatalogMigrateError, ConnectionFailed, OtherTimeline, SlotInUse
from catalog_migrate.retry import retry, until

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SCHEMA", "changes", "parse_failure", "snapshot_files"]

SCHEMA = (
    "table STRING, lsn BIGINT, sequence INT, operation STRING, transaction BIGINT,"
    " committed TIMESTAMP, before ARRAY<STRING>, after ARRAY<STRING>, unchanged ARRAY<INT>"
)
"""Columns of the stream, as
:class:`~catalog_migrate.connectors.postgres.pgoutput.Change` has them."""

ROWS = 20_000
"""At most so many changes are handed to Spark at once."""
BYTES = 16 << 20
"""At about so many bytes fewer are."""
FOREIGN = 1 << 20
"""Bytes of log without a change of ours after which a batch moves on all the same."""
_PATIENCE = 30.0
"""Seconds in which another reader of the slot is waited for: one of ours may be about to end."""


@dataclass
class Settings:
    """What a reader needs to know, on the driver and on executors.

    ``timeout`` bounds a statement, in seconds; ``max_bytes`` the log that a batch covers;
    ``heartbeat`` is after how many idle seconds a message and a batch without rows move the slot
    on, 0 for never; without ``advance`` the slot stays where it is. ``watch`` is what is looked at
    before a batch is planned and once it is read; None for nothing.
    """

    connection: Resolved
    slot: str
    publication: str
    tables: Mapping[str, Expected]
    start: Position
    timeout: float = 120.0
    max_bytes: int = 0
    heartbeat: float = 0.0
    advance: bool = True
    watch: Watch | None = None

    def __getstate__(self) -> dict[str, Any]:
        plain = {name: reveal(value) for name, value in self.connection.items()}
        hidden = [name for name, value in self.connection.items() if isinstance(value, Secret)]
        return {**self.__dict__, "connection": plain, "hidden": hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        hidden = state.pop("hidden")
        self.__dict__.update(state)
        self.connection = {
            name: Secret(reveal(value)) if name in hidden else value
            for name, value in self.connection.items()
        }


def changes(spark: SparkSession, settings: Settings) -> DataFrame:
    """The changes of its tables from its start on, as a stream with the columns of SCHEMA.

    The start counts for the first batch, from then on the checkpoint does. A query that fails for a
    reason of the server's carries a typed error, which :func:`parse_failure` takes out of its text.
    """
    with silence_py4j():
        return spark.readStream.format(_register(spark, settings)).load()


def snapshot_files(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """The rows in files of a staged snapshot, none for no files."""
    if not files:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).parquet(*files)


def _register(spark: SparkSession, settings: Settings) -> str:
    """Register a source with these settings, in the place of an earlier one on the same slot."""
    where = "/".join(
        reveal(settings.connection.get(name) or "") for name in ("HOST", "PORT", "DATABASE")
    )
    number = hashlib.sha256(f"{where}/{settings.slot}/stream".encode()).hexdigest()[:12]
    label = f"catalog_migrate_postgres_{number}"

    class PostgresChanges(DataSource):
        @classmethod
        def name(cls) -> str:
            return label

        def schema(self) -> str:
            return SCHEMA

        def streamReader(  # noqa: N802
            self, schema: StructType  # noqa: ARG002
        ) -> DataSourceStreamReader:
            return StreamReader(settings)

    spark.dataSource.register(PostgresChanges)
    return label


class Failed(RuntimeError):
    """A typed error on its way through Spark, which hands on nothing but the text."""


class Range(InputPartition):
    """The transactions of one batch, and what is looked at once they are read."""

    def __init__(self, start: Position, end: Position, watch: Watch | None = None) -> None:
        self.start, self.end, self.watch = start, end, watch


class StreamReader(DataSourceStreamReader):
    """The stream; on the driver it keeps one session for its questions."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()
        self._session: Connection[Any] | None = None
        # PySpark before 4.2 does not say where a batch begins.
        self._reached: Position | None = None
        self._moved = time.monotonic()
        self._watcher = None if settings.watch is None else Watcher(settings.watch)
        # What was looked through and had nothing of ours.
        self._nothing: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["settings"])  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.settings.start.offset()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None  # noqa: ARG002
    ) -> dict[str, Any]:
        """Up to where the next batch reads; ``start`` when there is nothing of ours."""
        begin = Position.of(start) if start is not None else self._reached
        with _marking():
            try:
                latest = self._latest(begin)
            except ConnectionFailed:
                if self._session is None:
                    raise
                self._forget_session()
                latest = self._latest(begin)
        if latest != begin:
            self._moved = time.monotonic()
        self._reached = latest
        return latest.offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._reached = Position.of(end)
        first = Position.of(start)
        if self._reached.lsn < first.lsn:
            with _marking():
                raise OtherTimeline(
                    f"the server's log ends at {self._reached}, before the position {first}: it was"
                    " restored from an older copy",
                    remedy=f"changes after that place are lost upstream: {NEW_SNAPSHOT}",
                    statements=RESET_SPLITS,
                )
        watch = None if self._watcher is None else self._watcher.watch
        return [Range(first, self._reached, watch)] if first.lsn < self._reached.lsn else []

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return read_batches(self.settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Advance the slot. That only spares the server's disk: the next commit tries again."""
        if not self.settings.advance:
            return
        try:
            with self._asking() as opened:
                server.advance_slot(opened, self.settings.slot, Position.of(end).lsn)
        except CatalogMigrateError:
            self._forget_session()

    def stop(self) -> None:
        self._forget_session()

    def _latest(self, begin: Position | None) -> Position:
        settings = self.settings
        with self._asking() as opened:
            slot = server.read_slot(opened, settings.slot)
            if begin is None:
                # after a restart on PySpark 4.0 or 4.1: not before what the checkpoint has
                system, timeline = server.read_identity(opened)
                here = Position(0 if slot is None else slot.log_end, timeline, system)
                server.check_slot(slot, settings.slot, here)
                return here
            here = server.check_position(opened, settings.connection, begin)
            # behind the question how far the log goes: what altered the tables in it shows
            catalog = "" if self._watcher is None else self._watcher.look(
                OpenServer(opened, settings.connection), here
            )
            if slot is not None and begin == settings.start and (slot.confirmed or 0) > here.lsn:
                # Trigger.AvailableNow asks from the first offset, whatever was read since.
                return self._marked(here, slot.log_end, catalog)
            slot = server.check_slot(slot, settings.slot, here)
            if settings.advance and (slot.confirmed or 0) < here.lsn:
                # Spark asks from where the last batch that it has committed ended; it calls
                # commit() with the next batch only, which of an idle stream may be long after.
                _patiently(lambda: server.advance_slot(opened, settings.slot, here.lsn))
                slot = msgspec.structs.replace(slot, confirmed=here.lsn)
            end = slot.log_end
            if settings.max_bytes:
                end = min(end, here.lsn + settings.max_bytes)
            if end <= here.lsn or self._nothing == (here.lsn, end):
                return self._beaten(opened, here, catalog)
            if end - here.lsn > FOREIGN or _patiently(
                lambda: server.has_changes(opened, slot, settings.publication, here.lsn, end)
            ):
                return self._marked(here, end, catalog)
            self._nothing = (here.lsn, end)
            return self._beaten(opened, here, catalog)

    def _beaten(self, opened: Connection[Any], here: Position, catalog: str) -> Position:
        """Where an idle stream stands: moved on by a heartbeat when one is due."""
        settings = self.settings
        if not settings.heartbeat or time.monotonic() - self._moved < settings.heartbeat:
            return here
        server.heartbeat(opened)
        slot = server.read_slot(opened, settings.slot)
        slot = server.check_slot(slot, settings.slot, here)
        return self._marked(here, max(here.lsn, slot.log_end), catalog)

    def _marked(self, here: Position, lsn: int, catalog: str) -> Position:
        """A later position, with what is known of the tables there."""
        reached = msgspec.structs.replace(here, lsn=lsn, catalog="", survey="", after="")
        return reached if self._watcher is None else self._watcher.mark(reached, catalog)

    @contextmanager
    def _asking(self) -> Iterator[Connection[Any]]:
        settings = self.settings
        if self._session is None:
            self._session = self._stack.enter_context(
                session(settings.connection, timeout=settings.timeout)
            )
        with refusals(self._session, settings.connection, settings.timeout):
            yield self._session

    def _forget_session(self) -> None:
        self._session = None
        with suppress(CatalogMigrateError):
            self._stack.close()


def read_batches(settings: Settings, partition: Range) -> Iterator[pa.RecordBatch]:
    """The changes of a batch as Arrow, on an executor."""
    with _marking():
        opened: Connection[Any]
        with session(settings.connection, timeout=settings.timeout) as opened:
            here = server.check_position(opened, settings.connection, partition.start)
            slot = server.read_slot(opened, settings.slot)
            server.check_slot(slot, settings.slot, here)
            yield from decode_batches(
                _peek(settings, opened, partition.end.lsn), start=here.lsn,
                end=partition.end.lsn, tables=settings.tables, rows=ROWS, size=BYTES,
            )
            if partition.watch is not None:
                asked = OpenServer(opened, settings.connection)
                Watcher(partition.watch).look(asked, partition.end)


def _peek(settings: Settings, opened: Connection[Any], end: int) -> Iterator[tuple[int, bytes]]:
    """The messages, begun again while another reader has the slot."""

    def messages() -> Iterator[tuple[int, bytes]]:
        with refusals(opened, settings.connection, settings.timeout), opened.transaction():
            yield from server.peek(opened, settings.slot, settings.publication, end)

    def begin() -> tuple[list[tuple[int, bytes]], Iterator[tuple[int, bytes]]]:
        found = messages()
        return [*islice(found, 1)], found  # the server refuses before it sends anything

    first, others = retry(begin, SlotInUse, until(_PATIENCE, 0.2))
    yield from first
    yield from others


def _patiently(call: Callable[[], Any]) -> Any:
    """The result of a call, begun again while another reader has the slot."""
    return retry(call, _in_use(), until(_PATIENCE, 0.2))


def _in_use() -> type[Exception]:
    import psycopg

    return psycopg.errors.ObjectInUse


@contextmanager
def _marking() -> Iterator[None]:
    """Typed errors leave with everything about them in their text."""
    try:
        yield
    except CatalogMigrateError as error:
        raise Failed(marked(error)) from None
