"""The port between the runtime and the engine that runs a source's or a sink's query.

And which of a query's columns are the user's and which are the product's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.delta import datatypes
from catalog_migrate.errors import CatalogMigrateError, EngineFailure
from catalog_migrate.model.names import ItemName, fold, quote_sql
from catalog_migrate.model.objects import (
    Column,
    External,
    UpstreamTable,
)

if TYPE_CHECKING:
    from catalog_migrate.connectors.kafka.offset_ranges import OffsetRange
    from catalog_migrate.connectors.postgres.survey import Survey
    from catalog_migrate.streams.catalog.tables import Tables


class OutputTable(msgspec.Struct, frozen=True):
    """A table that a POSTGRES source writes: what it takes from upstream, its columns and their
    ids, where."""

    upstream: UpstreamTable
    name: ItemName
    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    shard: str

    @property
    def mapped_columns(self) -> list[tuple[int, Column]]:
        """Our columns that upstream has, with their place there; one that a release dropped is
        left out."""
        ours = dict(zip(self.ids, self.columns, strict=True))
        return [
            (place, ours[column.column_id])
            for place, column in enumerate(self.upstream.columns) if column.column_id in ours
        ]

    @property
    def key(self) -> list[Column]:
        """Our columns of the key."""
        names = [column.name for column in self.upstream.columns]
        return [
            column for place, column in self.mapped_columns if names[place] in self.upstream.key
        ]


Resolved = Mapping[str, str | Secret]
"""Effective options of a connection by canonical name, with its secrets' values."""


SHARD = "shard"
"""What a source's own table is called among its destinations; it is written last."""

WRAPPERS: frozenset[str] = frozenset({
    "STREAM_FAILED", "TASK_WRITE_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FAILED_EXECUTE_UDF", "INTERNAL_ERROR",
})  # fmt: skip
"""Spark's error classes that only say that something inside of them failed."""

_LATE_WORKER = re.compile(r"Python worker (?:to|failed to) connect back")


def is_late_worker(error: str) -> bool:
    """Whether an error says that a process of Python did not come up in Spark's time, ten seconds
    for the offsets of a source: the machine is loaded, which is no fault of the query."""
    return _LATE_WORKER.search(error) is not None

CAUSED_BY = " / caused by: "
"""Between the texts of a chain of causes."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """Everything that one query is started from.

    ``columns`` are those of the shard: of a source what it writes (declared columns, then what
    INCLUDE shows, then ``_topic _partition _offset _timestamp`` for Kafka), of a sink what it
    reads. ``connection`` holds the connection's effective options with secrets resolved, so a
    spec must never be printed or stored. ``shard``, ``dead_letters`` and ``checkpoint`` are
    absolute directories, or addresses on an object store. ``topic_ids`` (sinks on the shard of a
    Kafka source) maps a topic's name to its id, for row keys. ``registry`` holds the options of the
    schema registry of its format like ``connection``, ``registry_name`` is that connection's.
    ``tables``, ``slot`` and ``ignores_new_columns`` are of a POSTGRES source, so are
    ``snapshot_number`` and ``snapshot_tables`` (``schema.table``; empty: all), and ``survey``, what
    its tables depended on upstream when they were looked at last.
    """

    item_id: str
    name: ItemName
    kind: Literal["source", "sink"]
    external: External
    columns: tuple[Column, ...]
    connection: Resolved = field(repr=False)
    shard: str
    checkpoint: str
    dead_letters: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    reads_stream: bool = False
    registry: Resolved | None = field(default=None, repr=False)
    registry_name: str = ""
    tables: tuple[OutputTable, ...] = ()
    slot: str = ""
    ignores_new_columns: bool = False
    snapshot_number: int = 1
    snapshot_tables: tuple[str, ...] = ()
    survey: Survey | None = field(default=None, repr=False)

    @property
    def redactor(self) -> Redactor:
        """Takes the secrets of its connections out of texts."""
        resolved = (*self.connection.values(), *(self.registry or {}).values())
        return Redactor(value for value in resolved if isinstance(value, Secret))

    @property
    def publication(self) -> str:
        """The publication that a POSTGRES source reads."""
        return str(self.external.options["PUBLICATION"])

    @property
    def snapshot(self) -> str:
        """The folder of a POSTGRES source's newest snapshot, see :meth:`snapshot_at`."""
        return self.snapshot_at(self.snapshot_number)

    def snapshot_at(self, number: int) -> str:
        """The folder of a snapshot, beside all checkpoints that the source ever has."""
        folder = self.checkpoint.rpartition("/")[0] + "/snapshot"
        return folder if number == 1 else f"{folder}-{number}"

    @property
    def destinations(self) -> Mapping[str, str]:
        """The tables that a source's query writes, by the name that a message calls them."""
        if self.kind != "source":
            return {}
        found = {SHARD: self.shard, **{str(each.name): each.shard for each in self.tables}}
        if self.dead_letters is not None:
            found["dead_letters"] = self.dead_letters
        return found


class QueryProgress(msgspec.Struct, frozen=True):
    """The newest progress of a query: its batch, rows per batch, rows since the start, lag.

    ``lag`` counts records that are there and not read yet, None when the source cannot say.
    ``at`` is when the batch began (ISO 8601, UTC); of an ``idle`` one, when it was looked for data.
    ``batch_at`` is when the newest batch began that was no idle look, None where none was seen.
    """

    batch: int
    rows: int
    total_rows: int
    at: str
    lag: int | None = None
    idle: bool = False
    batch_at: str | None = None


class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query died: ``condition`` is Spark's error class or the innermost cause's class.

    ``causes`` goes from the outermost message to the innermost, secrets scrubbed. ``error`` is what
    our own reader of PostgreSQL raised; ``condition`` is its code then. ``remedy``, ``statements``
    and ``place`` are those of the error of ours that says most; ``passing`` is what may end by
    itself (a connection that is down).
    """

    condition: str
    causes: tuple[str, ...]
    error: CatalogMigrateError | None = None
    remedy: str = ""
    statements: tuple[str, ...] = ()
    place: dict[str, str] = {}
    passing: bool = False


class RunningQuery(Protocol):
    """A query that was started; methods may be called from any thread."""

    @property
    def query_id(self) -> str:
        """The id in the checkpoint's metadata."""

    @property
    def run_id(self) -> str:
        """Another one after each start."""

    @property
    def active(self) -> bool:
        """Whether it has not ended; says nothing about health."""

    def progress(self) -> QueryProgress | None:
        """The newest progress since this start; None until the first."""

    def worked(self) -> int:
        """How much its tasks have done since this start, also within a batch: tasks that ended,
        records read and written. Only its growth says anything."""

    def failure(self) -> QueryFailure | None:
        """Why it ended; None while it runs and when it was stopped."""

    def stop(self, drain: float) -> bool:
        """Let the current batch end for at most ``drain`` seconds, then stop; whether it ended."""


class PreparedQuery(Protocol):
    """A query whose plan stands and that nothing was started of yet; it is started once."""

    def start(self) -> RunningQuery:
        """Start it; returns at once. EngineFailure when Spark refuses it right away."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that is open in a partition: its first offset, the id of its producer, and the
    ``transactional.id`` of that, "" where it may not be seen."""

    topic: str
    partition: int
    first: int | None
    producer: int
    transactional_id: str = ""


class QueryEngine(Protocol):
    """Starts queries; the Spark implementation is in :mod:`catalog_migrate.streams.spark`."""

    @property
    def awaited(self) -> Mapping[str, str]:
        """What starts wait for upstream now, in words, by item id."""

    def prepare(self, spec: QuerySpec) -> PreparedQuery:
        """Make the plan of a query, which may run as it is meanwhile; EngineFailure if refused."""

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:
        """Run exactly the one uncommitted batch of the checkpoint (``trigger(once=True)``)."""

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read exact ranges into a source's tables.

        One append to each, under the transaction (app, version): one that has it skips it. Records
        that cannot be read go to the dead letters, else they are left out and returned, in words.
        """

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """The newest batch that each destination of the query has: by name, None for unknown.

        The Delta transaction of each of :attr:`QuerySpec.destinations`; ``postgres``: the ledger;
        ``kafka`` cannot know: it is left out.
        """

    def find_open_transactions(
        self, spec: QuerySpec, places: Sequence[tuple[str, int]]
    ) -> tuple[OpenTransaction, ...]:
        """What is open in partitions of a Kafka source's topics; nothing where it cannot be seen.
        """


TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
POSITION = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
"""What every row of a Kafka source carries: where in the topic it came from."""


def declared_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """A source's columns that come out of the record itself, not from INCLUDE or its position."""
    own = {fold(name) for name in spec.external.include.values()}
    if spec.external.connector == "KAFKA":
        own |= set(POSITION)
    return tuple(column for column in spec.columns if fold(column.name) not in own)


def written_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """The columns that a sink writes: all, but positions only where KEY or ORDER BY names them."""
    if not reads_kafka_source(spec):
        return spec.columns
    named = {fold(name) for name in (*spec.external.key, *spec.external.order_by)}
    return tuple(
        column
        for column in spec.columns
        if fold(column.name) not in POSITION or fold(column.name) in named
    )


def reads_kafka_source(spec: QuerySpec) -> bool:
    """Whether a sink reads the shard of a Kafka source, whose rows have positions."""
    return bool(spec.topic_ids) or (
        spec.reads_stream and any(column.name == TOPIC for column in spec.columns)
    )


def find_columns(columns: Iterable[Column], names: Iterable[str], *, where: str) -> list[Column]:
    """The columns of those names, in the order of the names.

    Raises :class:`EngineFailure` for a name that is none of them.
    """
    by_name = {fold(column.name): column for column in columns}
    try:
        return [by_name[fold(name)] for name in names]
    except KeyError as missing:
        raise EngineFailure(
            f"{where} has no column {missing.args[0]}",
            condition="UNRESOLVED_COLUMN",
            remedy="its columns: " + ", ".join(column.name for column in by_name.values()),
        ) from missing


def ddl(column: Column) -> str:
    """A column as a query sees it (CHAR and VARCHAR are strings to it), for a DDL schema."""
    return f"{quote_sql(column.name)} {datatypes.without_lengths(column.type)}"


class OfflineQueries:
    """A query engine without Spark: it knows what tables have, and can start nothing."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.awaited: Mapping[str, str] = {}

    def prepare(self, spec: QuerySpec) -> PreparedQuery:
        """Never: whoever acts alone starts nothing."""
        raise EngineFailure(f"{spec.kind} {spec.name} cannot be started without a runtime")

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:  # noqa: ARG002
        """A batch that only some of its tables have must be run, which needs Spark."""
        raise EngineFailure(
            f"a batch of {spec.kind} {spec.name} was under way and must be run once more, which "
            "needs Spark",
            remedy="start the cluster (catalog-migrate run), let it run, and run the command again",
        )

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange],  # noqa: ARG002
        *, app: str, version: int,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Never: records are read by Spark."""
        raise EngineFailure(f"records of {spec.kind} {spec.name} cannot be read without Spark")

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """As the port says, read by delta-rs; nothing for what only a runtime can ask."""
        return {
            name: self._tables.batch(path, query_id) for name, path in spec.destinations.items()
        }

    def find_open_transactions(
        self, spec: QuerySpec, places: Sequence[tuple[str, int]]  # noqa: ARG002
    ) -> tuple[OpenTransaction, ...]:
        """Never: it starts nothing that could wait for one."""
        return ()


KAFKA_COLUMNS = tuple(
    Column(name, type_)
    for name, type_ in zip(POSITION, ("STRING", "INT", "BIGINT", "TIMESTAMP"), strict=True)
)
"""What every shard of a Kafka source holds beside the declared columns."""


DEAD_LETTER_COLUMNS = (
    *KAFKA_COLUMNS, Column("key", "BINARY"), Column("value", "BINARY"), Column("error", "STRING"),
)
"""What the table of ON ERROR INTO holds: the records that a source could not read."""
