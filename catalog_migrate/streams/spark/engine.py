"""Starts the queries of sources and sinks on Spark, and asks their tables what they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.connectors.base import BatchWriter, OpenTransaction, sink_of, source_of
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.connectors.spark_rows import append_once
from catalog_migrate.delta.table import load_table
from catalog_migrate.engine_failures import failing, mute_query_errors
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.catalog.cluster_log import summarize_error
from catalog_migrate.streams.catalog.queries import CAUSED_BY
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.spark import decoding, postgres_source, sources
from catalog_migrate.streams.spark.postgres_source import ChangesWriter
from catalog_migrate.streams.spark.registry_formats import RegistryDecoder
from catalog_migrate.streams.spark.running import (
    BatchGate,
    SortingWriter,
    SparkRunningQuery,
    explain,
    is_settled,
    python_causes,
    scrubbed,
    work_of,
)
from catalog_migrate.streams.spark.sources import query_session
from catalog_migrate.streams.upstreams import table_snapshots
from catalog_migrate.streams.upstreams.databases import ServerDatabases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from catalog_migrate.connectors.postgres.snapshot import StagedTable
    from catalog_migrate.connectors.postgres.types import Position

_LEFT_OUT = 50
"""Records that could not be read which one range tells."""


class SparkQueries:
    """The :class:`~catalog_migrate.streams.catalog.queries.QueryEngine` on a Spark session.

    Queries run in a session of their own beside the caller's, so that neither changes the other's
    settings. ``spark.redaction.regex`` belongs to the application: whoever starts it sets it.
    ``warehouse`` is where their rows and checkpoints lie; UnsuitableSession where queries of this
    session cannot. ``say`` hears what takes long.
    """

    def __init__(
        self, spark: SparkSession, warehouse: str = "", *,
        say: Callable[[str], None] | None = None, show_values: bool = False,
    ) -> None:
        self._spark = query_session(spark, warehouse)
        mute_query_errors()
        self._say = say or (lambda _: None)
        self._show_values = show_values
        self.alive: Callable[[], None] = lambda: None
        """Raises when what takes long is to be given up: the runtime stops or lost its lease."""
        self.awaited: dict[str, str] = {}

    def prepare(self, spec: QuerySpec) -> SparkPreparedQuery:
        """Have Spark make the plan of a query: most of what a start costs, before anything stops.

        Raises :class:`EngineFailure` when Spark refuses it right away, without any secret in it.
        """
        if spec.tables:  # where its changes begin is known once its snapshot is taken, at the start
            return SparkPreparedQuery(self, spec, None, ChangesWriter(spec))
        with _scrubbing(spec, self._show_values):
            frame, writer = self._build(spec)
        return SparkPreparedQuery(self, spec, frame, writer)

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:
        """Run exactly the uncommitted batch of the checkpoint; nothing when there is none.

        A destination that has the batch skips it. Raises :class:`EngineFailure` when it fails or
        takes longer than ``timeout`` seconds; it is uncommitted then as before.
        """
        checkpoint = Checkpoint(spec.checkpoint)
        if is_settled(checkpoint):
            return
        query = self.prepare(spec).start(once=True)
        if not query.wait(timeout):
            query.stop(drain=0.0)
            if not is_settled(checkpoint):
                raise EngineFailure(
                    f"the uncommitted batch of {spec.kind} {spec.name} did not end within"
                    f" {timeout:g} s",
                    condition="BATCH_TIMEOUT",
                    transient=True,
                    remedy="give it more time, or check its destination",
                )
        failure = query.failure()
        if failure is not None:
            raise EngineFailure(
                f"the uncommitted batch of {spec.kind} {spec.name} failed: {failure.causes[-1]}",
                condition=failure.condition,
            )

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read exact ranges of a Kafka source into its tables, once; see the port.

        Raises :class:`EngineFailure`, without any secret in it.
        """
        shard = local_path(spec.shard)
        left_out: tuple[str, ...] = ()
        with (
            _scrubbing(spec, self._show_values),
            failing(f"read skipped records of {spec.kind} {spec.name}"),
        ):
            # what is left of a chunk that has expired is its transaction
            frame = (
                source_of(spec.external).read_range(self._spark, spec, ranges) if ranges
                else sources.no_records(self._spark)
            )
            decoded = (
                decoding.decode(frame, spec).persist() if spec.registry is None
                else RegistryDecoder(spec).decode(frame)
            )
            try:
                if spec.dead_letters is not None:
                    bad = decoding.unreadable(decoded)
                    append_once(bad, local_path(spec.dead_letters), app, version)
                else:
                    left_out = decoding.described_unreadable(decoded, _LEFT_OUT)
                append_once(decoding.readable(decoded, spec), shard, app, version)
            finally:
                decoded.unpersist()
        return left_out

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """The newest batch that each destination of the query has: by name, None for none."""
        if spec.kind == "source":
            return {
                name: delta_transaction(self._spark, local_path(path), query_id)
                for name, path in spec.destinations.items()
            }
        sink = sink_of(spec.external)
        return {sink.ledger: sink.last_batch(spec, query_id)} if sink.ledger else {}

    def find_open_transactions(
        self, spec: QuerySpec, places: Sequence[tuple[str, int]]
    ) -> tuple[OpenTransaction, ...]:
        """What is open in partitions of a Kafka source's topics; nothing where it cannot be seen.
        """
        return source_of(spec.external).open_transactions(self._spark, spec, places)

    def _build(self, spec: QuerySpec) -> tuple[DataFrame, BatchWriter | None]:
        """What is read, and who writes its batches (None: Spark's own Delta sink)."""
        if spec.kind == "sink":
            writer = sink_of(spec.external).writer(self._spark, spec)
            return sources.shard_rows(self._spark, spec), writer
        source = source_of(spec.external)
        frame: DataFrame = source.reader(self._spark, spec)
        bad = None if spec.dead_letters is None else local_path(spec.dead_letters)
        if not source.section.records:
            if bad is not None:
                raise EngineFailure(
                    f"source {spec.name}: {spec.external.connector} has no dead letters",
                    remedy="write ON ERROR FAIL",
                )
            return frame, None
        if spec.registry is not None:
            return frame, SortingWriter(spec, bad, RegistryDecoder(spec).decode)
        if bad is not None:
            return decoding.decode(frame, spec), SortingWriter(spec, bad)
        return decoding.all_or_fail(frame, spec), None

    def _load(
        self, spec: QuerySpec, table: OutputTable, staged: StagedTable, files: Sequence[str],
        at: Position,
    ) -> None:
        # in a session of its own: the settings of a MERGE would count for whatever starts beside it
        session = query_session(self._spark)
        postgres_source.load_files(session, spec, table, staged, files, at)

    def _awaits(self, spec: QuerySpec, what: str) -> None:
        """Note what a start waits for upstream, nothing for an empty text."""
        if not what:
            self.awaited.pop(spec.item_id, None)
            return
        if spec.item_id not in self.awaited:
            self._say(f"{spec.kind} {spec.name}: {what}")
        self.awaited[spec.item_id] = what

    def begin(
        self, spec: QuerySpec, frame: DataFrame | None, writer: BatchWriter | None, *, once: bool
    ) -> SparkRunningQuery:
        """Start what was prepared; ``once`` runs one batch and ends."""
        redactor = spec.redactor
        with _scrubbing(spec, self._show_values):
            if frame is None:
                position = table_snapshots.take(
                    spec, ServerDatabases(), partial(self._load, spec), self._say,
                    lambda: self.alive(), partial(self._awaits, spec),
                )
                frame = postgres_source.change_stream(self._spark, spec, position)
            if writer is not None and spec.kind == "sink":
                sink_of(spec.external).begin(self._spark, writer)
            gate = None if writer is None else BatchGate(
                writer, lambda error: scrubbed(error, redactor, self._show_values)
            )
            stream = _stream(frame, spec, once=once)
            if gate is not None:
                query = stream.foreachBatch(gate).start()
            else:
                query = stream.format("delta").outputMode("append").start(local_path(spec.shard))
        return SparkRunningQuery(
            query,
            name=str(spec.name),
            checkpoint=Checkpoint(spec.checkpoint),
            redactor=redactor,
            gate=gate,
            # Spark puts all jobs of a run into the group of its id.
            cancel_jobs=self._spark.sparkContext.cancelJobGroup,
            count_work=partial(work_of, self._spark.sparkContext),
            show_values=self._show_values,
        )


class SparkPreparedQuery(msgspec.Struct, frozen=True):
    """A query's plan, as Spark has analysed it, and who writes its batches.

    ``frame`` is None where the start makes it.
    """

    engine: SparkQueries
    spec: QuerySpec
    frame: DataFrame | None
    writer: BatchWriter | None

    def start(self, *, once: bool = False) -> SparkRunningQuery:
        """Start it; returns at once. Raises :class:`EngineFailure` without any secret in it."""
        return self.engine.begin(self.spec, self.frame, self.writer, once=once)


def _stream(frame: DataFrame, spec: QuerySpec, *, once: bool) -> DataStreamWriter:
    stream = frame.writeStream.queryName(f"{spec.kind} {spec.name}").option(
        "checkpointLocation", local_path(spec.checkpoint)
    )
    if once:
        return stream.trigger(once=True)
    return stream.trigger(processingTime=sources.trigger_interval(spec))


@contextmanager
def _scrubbing(spec: QuerySpec, show_values: bool) -> Iterator[None]:
    """What Spark refuses as :class:`EngineFailure`, without the connection's secrets, and without
    values of rows unless ``show_values``."""
    redactor = spec.redactor
    try:
        with failing(f"start the query of {spec.kind} {spec.name}"):
            yield
    except EngineFailure as error:
        told, cause = error.message, error.__cause__ or error
        if not show_values and "doing" in error.data:
            causes = explain(list(python_causes(cause, show_values)), redactor).causes
            told = f"cannot {error.data['doing']}: {summarize_error(CAUSED_BY.join(causes))}"
        clean = redactor.scrub(told)
        if clean == error.message and scrubbed(cause, redactor, show_values) is cause:
            raise
        raise EngineFailure(
            clean, condition=error.condition, transient=error.transient, remedy=error.remedy
        ) from None


def delta_transaction(spark: SparkSession, path: str, query_id: str) -> int | None:
    """Return the batch that a query wrote last into the table at ``path``; None when it wrote none.

    By delta-rs, which takes milliseconds; tables with features that it does not know (widened
    types) are opened by Spark. Raises :class:`~catalog_migrate.errors.EngineFailure` when there is
    no table.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError

    with failing(f"read the transactions of {path}"):
        try:
            found = load_table(path).transaction_version(query_id)
        except TableNotFoundError:
            raise
        except DeltaError:
            log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
            snapshot = log.forTable(spark._jsparkSession, path).unsafeVolatileSnapshot()
            entry = snapshot.transactions().get(query_id)
            return int(entry.get()) if entry.isDefined() else None
        return None if found is None else int(found)
