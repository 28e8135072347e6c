"""What a connector is: the one object behind each kind of server that streams reach.

A connector has a :class:`Connector` object with the table of options of its connections and, where
it has sources or sinks, a :class:`Source` and a :class:`Sink`. Everything that is special to it
is in its folder; the rest of the package asks the object and never compares a name. A package
of its own registers one under the entry point group ``catalog_migrate.connectors``::

    [project.entry-points."catalog_migrate.connectors"]
    QUEUE = "catalog_migrate_queue:CONNECTOR"

and then ``CREATE CONNECTION c TO QUEUE (…)``, ``CREATE SOURCE s FROM QUEUE CONNECTION c (…)`` and
``CREATE SINK k FROM t INTO QUEUE CONNECTION c (…)`` work as those of our own.

**Cost.** :func:`find_connector` imports one connector, when it is used. The module of the object
holds tables and light methods alone: planning reads it, so that it must not import pyspark,
deltalake or a client library; methods import these themselves.

**Layers.** This package lies below streams and imports nothing of it. What a method is given
(:class:`~catalog_migrate.connectors.query.QuerySpec`, resolved options, frames of Spark) comes in
as a value. What of ours needs the inner works of streams is named by an import string and loaded
when it is used (:func:`pkgutil.resolve_name`).

**Failures.** A method raises ConnectionFailed (nothing answers, or no access), EngineFailure (the
act failed; ``transient=True``: it is repeated) or InvalidOptions; never the client library's own
errors, and no message holds the value of a secret: ``spec.redactor.scrub(text)`` and
``Redactor.of(resolved)`` take them out. Each call ends within its ``timeout`` in seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from catalog_migrate.connectors.positions import (
    OffsetRange,
    Partition,
    PartitionCodec,
    PositionCodec,
)
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.sections import Section, SectionName
from catalog_migrate.errors import ConnectorMissing, InvalidOptions, Problem, UnsafeBlocked
from catalog_migrate.model.connector_names import ENTRY_POINTS, OURS, find_plugin
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import Column, External, ObjectDefinition, OptionValue

if TYPE_CHECKING:
    from catalog_migrate.connectors.query import QuerySpec

Frame = Any
"""A DataFrame of Spark; this module does not import it."""

Session = Any
"""A SparkSession."""


class Identity(msgspec.Struct, frozen=True):
    """Which upstream answers, whatever its address; it is on record with a query's positions.

    ``cluster_id`` tells one server, cluster or directory from every other: another one under the
    same address stops the query instead of being read at positions that mean nothing there.
    ``topic_ids`` maps the topics (queues, …) that are there to their ids: one that was dropped and
    created again has another id. ``open_records`` lie there behind the last offset that may be read
    now, by topic, of transactions that are not ended.
    """

    connector: str
    cluster_id: str
    topic_ids: dict[str, str] = {}
    open_records: dict[str, int] = {}


class Contents(msgspec.Struct, frozen=True):
    """What upstream holds for a source with partitions (``Section.records``).

    ``cluster`` and ``topic_ids`` are as in :class:`Identity`. ``bounds`` are, per partition, the
    oldest record kept and one past the newest. ``at(moment, partitions)`` gives the first record
    at or after a moment (ms since 1970), None where none is as young. ``exact`` is false when
    offsets are not known to be records one by one; ``gaps(ranges)`` looks whether some are not
    in these ranges.
    """

    cluster: str
    topic_ids: Mapping[str, str]
    bounds: Mapping[Partition, tuple[int, int]]
    at: Callable[[int, Iterable[Partition]], Mapping[Partition, int | None]]
    exact: bool = True
    gaps: Callable[[Iterable[OffsetRange]], bool] = lambda _: False


class Access(msgspec.Struct, frozen=True):
    """What one query needs of a server: ``operation`` (READ, WRITE) on each of ``names``."""

    subject: str
    names: tuple[str, ...]
    operation: str


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that is open in a partition: its first offset, the id of its producer, and the
    ``transactional.id`` of that, "" where it may not be seen."""

    topic: str
    partition: int
    first: int | None
    producer: int
    transactional_id: str = ""


class Batch(msgspec.Struct, frozen=True):
    """One batch to write: its rows, its number, and the id of the query it belongs to."""

    frame: Frame
    number: int
    query_id: str


class BatchWriter(Protocol):
    """Writes the batches of one query; called by one thread at a time."""

    def write(self, batch: Batch) -> None:
        """Write one batch. After a crash the same number comes again with the same rows: a sink
        that keeps (query_id, number) beside its rows skips it, another one sends them again."""

    def cancel(self) -> None:
        """Break off the write under way, from another thread; it then raises."""


class Connector(ABC):
    """One kind of server.

    Attributes of the class or of the object:

    - ``name``: as statements call it, upper case; that of the entry point.
    - ``help``: what it is, one or two sentences.
    - ``connection``: the options of its connections.
    - ``source``, ``sink``: None where there is none; ``without_source`` and ``without_sink`` then
      say why, after a colon.
    - ``upstream_word``: what an identity is of, in messages.
    - ``shares_client``: whether :meth:`access` answers for several queries at once.
    - ``has_keys``: whether SHOW CONNECTIONS shows :meth:`public_keys`.
    - ``holds_schemas``: whether connections are schema registries, for USING SCHEMA REGISTRY.
    """

    name: ClassVar[str]
    help: ClassVar[str] = ""
    connection: ClassVar[Section]
    source: Source | None = None
    sink: Sink | None = None
    without_source: str = ""
    without_sink: str = ""
    upstream_word: str = "server"
    shares_client: bool = False
    has_keys: bool = False
    holds_schemas: bool = False

    def section(self, name: SectionName) -> Section | None:
        """Return the table of options of that name; None where it has no sources or no sinks."""
        if name == "connection":
            return self.connection
        side = self.source if name == "source" else self.sink
        return None if side is None else side.section

    @abstractmethod
    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Ask the server whether a connection's effective, resolved options lead to it.

        At least one finding; what works is one too. ``subject`` names the connection in them. May
        raise ConnectionFailed, whose findings count then. Writes nothing there.
        """

    def client(self, resolved: Resolved, *, subject: str = "connection") -> Any:
        """Return a client of the server, for those who know this connector."""
        raise NotImplementedError(f"{self.name} has no client for others")

    def identify(
        self, resolved: Resolved, names: Sequence[str] = (), *, subject: str, timeout: float,
        reads: bool = False,
    ) -> Identity:
        """Return who answers now; of ``names`` (see :meth:`names`) those that are not there are
        left out. ``reads``: a source asks, which wants ``open_records`` too.

        Every connector with sources or sinks has it. Raises ConnectionFailed when nothing answers,
        or one of the names may not be seen.
        """
        raise NotImplementedError(f"{self.name} has no sources and no sinks")

    def access(
        self, resolved: Resolved, wanted: Sequence[Access], *, timeout: float = 10.0
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        """Return who answers, and by subject whether each query may do what it needs, by one
        client for all. Only for a connector that ``shares_client``.

        The identity is None where nothing answers; it has all names that may be seen.
        """
        raise NotImplementedError(f"{self.name} shares no client")

    def names(self, external: External) -> tuple[str, ...]:
        """Return what a source or sink names upstream: the topics, queues, tables of its options.

        For a source with ``records`` they are the topics of its partitions.
        """
        del external
        return ()

    def channels(
        self, connection: Mapping[str, OptionValue], external: External
    ) -> tuple[tuple[str, str], ...]:
        """Return (server, name) of each thing that a source reads or a sink writes.

        A sink that writes what a source reads may close a circle, which is refused. () where rows
        written to this connector are never read back by it.
        """
        del connection, external
        return ()

    def find_listeners(self, connection: Mapping[str, OptionValue]) -> tuple[tuple[str, int], ...]:
        """Return the (host, port) that the server itself names to its clients, for which a tunnel
        needs the same port at its local end."""
        del connection
        return ()

    def public_keys(self, resolved: Resolved) -> tuple[str, ...]:
        """Return the public keys that SHOW CONNECTIONS shows: the one in use, the next one."""
        del resolved
        return ()

    def explain(self, options: Mapping[str, OptionValue], error: InvalidOptions) -> InvalidOptions:
        """Return the error of a CREATE CONNECTION, with what the server itself says to it."""
        del options
        return error


class _Side(ABC):
    """What sources and sinks have in common."""

    section: ClassVar[Section]

    def problems(
        self, external: External, connection: Mapping[str, OptionValue]
    ) -> Iterator[Problem]:
        """Yield what a definition is refused for beside the rules of its options (code CM0751).

        ``external`` has canonical options, ``connection`` are the effective options of the
        connection; an ALTER of either calls it too. Pure: no server is contacted.
        """
        del external, connection
        yield from ()

    @abstractmethod
    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Ask whether the query's own access works: what it names is there and may be read or
        written. ``columns`` are those that a sink writes. May raise ConnectionFailed, whose
        findings count then. Writes nothing there."""


class Source(_Side):
    """What sources of a connector do.

    ``section`` holds their options; with ``Section.records`` the source has partitions, and the
    methods :meth:`survey` and :meth:`read_range` are called. ``codec`` reads and writes its
    positions, None where there are none that an operator could choose (files); of one that is no
    PartitionCodec they cannot be chosen either. ``has_server``: positions belong to what
    :meth:`Connector.identify` finds, and mean nothing elsewhere; false for files, which nothing
    serves. ``watched``: the identity is read again and again while a query runs, for what gives
    no error by itself.
    """

    codec: ClassVar[PositionCodec | None] = None
    has_server: ClassVar[bool] = True
    watched: bool = False

    @abstractmethod
    def reader(self, spark: Session, spec: QuerySpec) -> Frame:
        """Return the streaming frame that a query reads.

        With ``Section.records``: columns ``key`` BINARY, ``value`` BINARY, ``topic`` STRING,
        ``partition`` INT, ``offset`` BIGINT, ``timestamp`` TIMESTAMP, which FORMAT decodes, with ON
        ERROR INTO, INCLUDE and the four columns of the place. Else the rows themselves, with
        the columns of ``spec.columns``. Where it begins without a checkpoint is up to the options;
        from then on Spark's checkpoint says it. A position that upstream no longer has must fail.
        """

    def survey(
        self, spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
    ) -> AbstractContextManager[Contents]:
        """Return what upstream holds, whose ``at`` and ``gaps`` work as long as the block lasts.

        ``sample``: records may be read to find out whether counts are exact. Raises EngineFailure
        for a server that does not answer, UnsafeBlocked for names that are not there.
        """
        raise NotImplementedError(f"{spec.external.connector} sources have no partitions")

    def open_transactions(
        self, spark: Session, spec: QuerySpec, places: Sequence[Partition]
    ) -> tuple[OpenTransaction, ...]:
        """Return what is open in partitions, () where it cannot be seen or there is no such thing:
        for the message of a source that waits for one."""
        del spark, spec, places
        return ()

    def read_range(self, spark: Session, spec: QuerySpec, ranges: Sequence[OffsetRange]) -> Frame:
        """Return the records of exact ranges as a batch, none of no range; for BACKFILL.

        A range that upstream no longer has whole fails.
        """
        raise NotImplementedError(f"{spec.external.connector} sources cannot be read by ranges")


class Sink(_Side):
    """What sinks of a connector do.

    ``ledger`` is the name of the destination in messages and records where the sink keeps there
    which batch of which query it has, in one transaction with the rows: each row then arrives once.
    "": it cannot know, rows may be sent again after a crash.
    """

    ledger: str = ""

    @abstractmethod
    def writer(self, spark: Session, spec: QuerySpec) -> BatchWriter:
        """Return what writes the query's batches. ``spec.columns`` are the rows' columns."""

    def begin(self, spark: Session, writer: BatchWriter) -> None:
        """Do what a start owes to batches that are written already, with the writer of this one."""

    @abstractmethod
    def destination(self, external: External) -> str:
        """Return what the sink writes to, as ``topic orders``."""

    def last_batch(self, spec: QuerySpec, query_id: str) -> int | None:
        """Return the newest batch that the ledger has of a query, None for none."""
        raise NotImplementedError(f"{spec.external.connector} sinks have no ledger")

    def require_ledger(self, spec: QuerySpec, query_id: str, committed: int | None) -> None:
        """Raise LedgerMismatch where the ledger lacks the checkpoint's newest batch (a replica that
        lags, another server), or has more than the one after it (an earlier checkpoint). Each start
        of a sink with a ledger does it."""

    def fence(self, spec: QuerySpec, old: str, new: str) -> int | None:
        """Bar the query id ``old`` from writing, and enter its newest batch, which is returned,
        under ``new``: a runtime that was taken for dead cannot write any more. May be repeated."""
        raise NotImplementedError(f"{spec.external.connector} sinks have no ledger")


def find_connector(name: str | None) -> Connector:
    """Return the connector of a name, as statements and definitions have it; import it if needed.

    Raises ConnectorMissing where no package that is installed has it, or the one that has it cannot
    be loaded or lacks a method.
    """
    return _find((name or "").upper())


@cache
def _find(name: str) -> Connector:
    place = OURS.get(name)
    if place is not None:
        found: Connector = resolve_name(place)
        return found
    point = find_plugin(name)
    if point is None:
        raise ConnectorMissing(
            f"{name} is no type of connection that is installed here",
            remedy=f"the types: {', '.join(connector_names())}; or install the package that has it"
            f" (entry point {name} of {ENTRY_POINTS})",
            connector=name,
        )
    package = "" if point.dist is None else f" of {point.dist.name}"
    try:
        plugin: Connector = point.load()
    except Exception as error:
        raise ConnectorMissing(
            f"the connector {name}{package} ({point.value}) cannot be loaded:"
            f" {type(error).__name__}: {error}",
            remedy="install a version of the package that works with this one, and what it needs",
            connector=name,
        ) from error
    absent = _absent_methods(plugin) if isinstance(plugin, Connector) else ["Connector"]
    if absent:
        raise ConnectorMissing(
            f"the connector {name}{package} ({point.value}) does not implement"
            f" {', '.join(absent)}",
            remedy="install a version of the package that does; docs/connectors.md says what each"
            " is for",
            connector=name,
        )
    return plugin


def _absent_methods(found: Connector) -> list[str]:
    """What a connector must have by what it says of itself, and has from this module alone."""
    wanted: list[tuple[object, type, str]] = []
    source, sink = found.source, found.sink
    if source is not None or sink is not None:
        wanted.append((found, Connector, "identify"))
    if found.shares_client:
        wanted.append((found, Connector, "access"))
    if source is not None and source.section.records:
        wanted += ((source, Source, name) for name in ("survey", "read_range"))
    if sink is not None and sink.ledger:
        wanted += ((sink, Sink, name) for name in ("last_batch", "require_ledger", "fence"))
    absent = [
        f"{type(each).__name__}.{name}" for each, base, name in wanted
        if getattr(type(each), name) is getattr(base, name)
    ]
    if source is not None and source.section.records and source.codec is None:
        absent.append(f"{type(source).__name__}.codec")
    return absent


def find_if_installed(name: str | None) -> Connector | None:
    """Return the connector of a name, None where it is not installed: for what shows items."""
    try:
        return find_connector(name)
    except ConnectorMissing:
        return None


def source_of(external: External) -> Source:
    """Return what the sources of a definition's connector do."""
    found = require_installed(external).source
    if found is None:
        raise InvalidOptions(f"there is no {external.connector} source")
    return found


def sink_of(external: External) -> Sink:
    """Return what the sinks of a definition's connector do."""
    found = require_installed(external).sink
    if found is None:
        raise InvalidOptions(f"there is no {external.connector} sink")
    return found


def has_records(definition: ObjectDefinition) -> bool:
    """Return whether it is a source whose rows carry their place, with positions by partition.

    Raises ConnectorMissing, as what follows: of a connector that is not here it is not known.
    """
    section = _section_of(definition, "source")
    return section is not None and section.records


def has_tables(definition: ObjectDefinition) -> bool:
    """Return whether it is a source that reads several tables from one position."""
    section = _section_of(definition, "source")
    return section is not None and section.tables


def has_row_keys(definition: ObjectDefinition) -> bool:
    """Return whether it is a sink that gives each row a key, with the id of its topic."""
    section = _section_of(definition, "sink")
    return section is not None and section.row_keys


def may_have_row_keys(definition: ObjectDefinition) -> bool:
    """Return whether it has row keys, or that is not known."""
    try:
        return has_row_keys(definition)
    except ConnectorMissing:
        return True


def _section_of(definition: ObjectDefinition, kind: SectionName) -> Section | None:
    if definition.kind != kind or definition.external is None:
        return None
    return require_installed(definition.external).section(kind)


def require_installed(external: External) -> Connector:
    """Return a definition's connector; raise ConnectorMissing, with the package to install, where
    it is not here."""
    try:
        return find_connector(external.connector)
    except ConnectorMissing as error:
        if external.package is None or find_plugin(error.connector) is not None:
            raise
        raise ConnectorMissing(
            error.message, remedy=f"pip install {external.package}, for every process that runs"
            " queries, and start them again", connector=error.connector,
        ) from None


def partition_codec(external: External) -> PartitionCodec:
    """Return the codec of a source with records; raise UnsafeBlocked for one that has none."""
    codec = source_of(external).codec
    if not isinstance(codec, PartitionCodec):
        raise UnsafeBlocked(
            f"{external.connector} sources have no positions by partition: they can neither be"
            " counted nor chosen",
            remedy="create another source that begins where it should, by the options of its start",
        )
    return codec


def connector_names() -> tuple[str, ...]:
    """Return the names of our connectors; others are found by their name only."""
    return tuple(OURS)
