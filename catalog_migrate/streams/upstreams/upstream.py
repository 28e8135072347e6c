"""The port to what positions belong to: a Kafka cluster and its topics, a Postgres server.

A topic that was recreated under a running query, or a cluster of another name with a topic of the
same one, gives no error by itself, so ids are written down and compared.

The first start of a source whose CREATE names offsets of single partitions begins there. Initial
offsets after KIP-995 of Kafka Connect: there they are put down before a connector runs, and here in
the checkpoint, by the first start itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import (
    Access,
    Contents,
    Identity,
    OpenTransaction,
    find_connector,
    has_records,
    may_have_row_keys,
    partition_codec,
    require_installed,
    sink_of,
    source_of,
)
from catalog_migrate.connectors.positions import Partition, Positions
from catalog_migrate.connectors.postgres.sessions import RESET_ELSEWHERE
from catalog_migrate.connectors.query import QuerySpec, written_columns
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.validation import validate_connection, validate_query
from catalog_migrate.errors import ConnectorMissing, EngineFailure, UpstreamChanged
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import External
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.failures import NEW_TOPIC, SOURCE, Failure
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import tag_of
from catalog_migrate.streams.checkpoint.targets import (
    PartitionBounds,
    land,
    moment_of,
    start_targets,
)
from catalog_migrate.streams.upstreams.databases import preflight_of

OPEN_TRANSACTION = "OPEN_TRANSACTION"
"""The condition of a source that waits for a transaction to end."""

AWAITS_SOURCE = "AWAITS_SOURCE"
"""The condition of a sink that waits for the topic ids of its source."""


class Upstream(msgspec.Struct, frozen=True):
    """``upstream`` is the cluster's id or the server's system identifier, "" for files.

    ``open_records`` counts what lies in a Kafka source's topics behind the last stable offset,
    where it reads committed transactions only.
    """

    upstream: str = ""
    topics: Mapping[str, str] = msgspec.field(default_factory=dict)
    open_records: int = 0


class Upstreams(Protocol):
    """What streams ask of the servers that they read from and write to; writes nothing there."""

    def identify(self, spec: QuerySpec) -> Upstream:
        """Who answers a query; ConnectionFailed when nothing does."""

    def access(
        self, connector: str, connection: Resolved, wanted: Sequence[Access], *,
        timeout: float = 10.0,
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        """Who a cluster is (None: nothing answers), and whether each may do what it needs, of a
        connector that shares clients.

        ``timeout`` is in seconds; findings are by subject.
        """

    def check_connection(
        self, connector: str, connection: Resolved, *, timeout: float = 10.0
    ) -> tuple[Finding, ...]:
        """Return whether something answers at a connection, and what."""

    def check_query(self, spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
        """Return whether the own access of a source or sink works."""

    def check_schemas(self, spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
        """Whether the schema registry of a source or sink serves it; nothing where it has none."""

    def contents(
        self, spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
    ) -> AbstractContextManager[Contents]:
        """Return what the topics of a Kafka source hold, as long as the block lasts.

        ``sample``: records may be read to see whether counts are exact. Raises
        :class:`EngineFailure` for a broker that does not answer or says no,
        :class:`UnsafeBlocked` for a topic that is not there.
        """


def identify(spec: QuerySpec) -> Upstream:
    """Ask the upstream (or the destination) who it is; ConnectionFailed when nothing answers."""
    connector = find_connector(spec.external.connector)
    reads = spec.kind == "source"
    if reads and not source_of(spec.external).has_server:
        return Upstream()
    found = connector.identify(
        spec.connection, topics_of_query(spec), subject=f"{spec.kind} {spec.name}", timeout=10.0,
        reads=reads,
    )
    return Upstream(found.cluster_id, dict(found.topic_ids), sum(found.open_records.values()))


def topics_of_query(spec: QuerySpec) -> tuple[str, ...]:
    """Return the topics that a query reads or writes, whose ids are on record."""
    return find_connector(spec.external.connector).names(spec.external)


def require_same_cluster_and_topics(spec: QuerySpec, stream: StreamRecord, found: Upstream) -> None:
    """:class:`UpstreamChanged` when the ids are not those that were written down."""
    what = find_connector(spec.external.connector).upstream_word
    if stream.upstream != found.upstream and spec.tables:
        raise UpstreamChanged(
            f"{spec.kind} {spec.name} belongs to {what} {stream.upstream}, the connection now "
            f"leads to {found.upstream}: its positions mean nothing there; point the connection "
            "back, or take a new snapshot of this one",
            statements=RESET_ELSEWHERE,
        )
    if stream.upstream != found.upstream:
        raise UpstreamChanged(
            f"{spec.kind} {spec.name} belongs to {what} {stream.upstream}, the connection now "
            f"leads to {found.upstream}: its positions mean nothing there",
            remedy=f"point the connection back to the old {what}, or create another {spec.kind}; "
            "positions of your choice are an unsafe operation",
            statements=NEW_TOPIC if spec.kind == "source" else (f"SHOW CREATE SINK {SOURCE}",),
        )
    if spec.kind == "sink":
        return  # a sink has no positions in its topic
    for topic, known in stream.topics.items():
        topic_id = found.topics.get(topic)
        if topic_id is None:
            raise UpstreamChanged(
                f"topic {topic} of source {spec.name} is missing (its id was {known})",
                remedy="a topic created again under its name is another one: inject positions by "
                "an unsafe operation, or create another source",
                statements=NEW_TOPIC, topic=topic,
            )
        if known != topic_id:
            raise UpstreamChanged(
                f"topic {topic} of source {spec.name} was recreated (its id was {known} and is "
                f"{topic_id}): the positions are of the old one",
                remedy="if its records are new ones, inject positions by an unsafe operation, "
                "or create another source",
                statements=NEW_TOPIC, topic=topic,
            )


def require_there(spec: QuerySpec, found: Upstream) -> None:
    """:class:`EngineFailure` for a source whose topics are not all there: it starts later.

    Started now, it would read of a topic that comes meanwhile before its id is written down: the
    keys of those rows would have the topic's name, and one that came again would go unnoticed.
    """
    missing = [topic for topic in topics_of_query(spec) if topic not in found.topics]
    if spec.kind == "source" and missing:
        raise EngineFailure(
            f"source {spec.name} reads topics that are not there: {', '.join(missing)}",
            condition="UNKNOWN_TOPIC", transient=True,
            remedy="create them; the source is started again by itself",
        )


def require_ledger(spec: QuerySpec, checkpoint: Checkpoint) -> None:
    """Compare the checkpoint's newest committed batch with the ledger of a sink that has one.

    Raises LedgerMismatch for a server that lacks it: a lagging replica or another one.
    """
    query_id = checkpoint.query_id
    if spec.kind == "sink" and query_id is not None:
        sink_of(spec.external).require_ledger(spec, query_id, checkpoint.latest_commits)


def check_query(spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
    """Return whether the own access of a source or sink works."""
    if spec.tables:
        return preflight_of(spec)
    columns = spec.columns if spec.kind == "source" else written_columns(spec)
    return validate_query(
        spec.external.connector or "", spec.kind, spec.connection, spec.external, columns,
        timeout=timeout,
    )


def check_schemas(spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
    """As the port says; a client of registries is loaded for a query that has one."""
    if spec.registry is None:
        return ()
    from catalog_migrate.streams.upstreams import schemas

    return schemas.check_schemas(spec, timeout=timeout)


def contents(
    spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
) -> AbstractContextManager[Contents]:
    """As the port says."""
    return source_of(spec.external).survey(spec, timeout=timeout, sample=sample)


def access(
    connector: str, connection: Resolved, wanted: Sequence[Access], *, timeout: float = 10.0
) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
    """As the port says."""
    return find_connector(connector).access(connection, wanted, timeout=timeout)


class ServerUpstreams:
    """The port's implementation: each connector asks its servers."""

    identify = staticmethod(identify)
    access = staticmethod(access)
    check_connection = staticmethod(validate_connection)
    check_query = staticmethod(check_query)
    check_schemas = staticmethod(check_schemas)
    contents = staticmethod(contents)


def first_positions(external: External, contents: Contents, now: float) -> Positions:
    """Where the first start of a source with START OFFSETS begins: every partition, in numbers.

    What is not named begins at START. A time without a record that young is the end, as with START.
    ``now`` is in seconds. Raises :class:`EngineFailure` with everything that is not there.
    """
    start, starts = start_targets(external)
    found: dict[Partition, int] = {}
    for partition, (low, high) in sorted(contents.bounds.items()):
        target = starts.pop(partition, start)
        moment = moment_of(target, now)
        later = {} if moment is None else {moment: contents.at(moment, [partition])[partition]}
        landed = land(target, PartitionBounds(None, low, high, later), now).offset
        assert landed is not None  # a START knows no target that hangs on a position
        found[partition] = landed
    wrong = [f"{topic}-{number} does not exist" for topic, number in starts]
    wrong += partition_codec(external).check(found, contents.bounds)
    if wrong:
        raise EngineFailure(
            f"START OFFSETS: {'; '.join(wrong)}", condition="START_OFFSETS",
            remedy="name partitions and offsets that are there; of a source that is created "
            "already: ALTER SOURCE … UNSAFE INJECT OFFSETS (…)",
        )
    return found


def expired_positions(
    spec: QuerySpec, checkpoint: Checkpoint, upstreams: Upstreams
) -> list[tuple[str, int, int, int, int]]:
    """The partitions of a Kafka source whose next record the broker cannot give any more.

    Each is (topic, partition, position, oldest record, one past the newest). Raises what
    ``contents`` raises.
    """
    positions = next_records(spec.external, checkpoint) or {}
    with upstreams.contents(spec, sample=False) as contents:
        bounds = dict(contents.bounds)
    return [
        (*partition, position, *bounds[partition])
        for partition, position in sorted(positions.items())
        if partition in bounds and not bounds[partition][0] <= position <= bounds[partition][1]
    ]


def next_records(external: External, checkpoint: Checkpoint) -> Positions | None:
    """Return the next record by partition, also of a source with first positions but no batch."""
    codec = partition_codec(external)
    positions = codec.read(checkpoint.committed_line)
    if positions is not None:
        return positions
    if checkpoint.latest_commits is not None:
        return None
    name = checkpoint.initial_offsets(0)
    try:
        return codec.read_initial(checkpoint.store.read(name), checkpoint.store.place(name))
    except FileNotFoundError:
        return None


def begin_at_offsets(
    spec: QuerySpec, checkpoint: Checkpoint, upstreams: Upstreams, now: float
) -> None:
    """Write down where the first start begins, if START OFFSETS says so and nothing was read yet.

    Spark wants an offset for every partition or for none, so they are asked for here; a start that
    is cut off goes on from what was written. Raises as :func:`first_positions`.
    """
    if "START OFFSETS" not in spec.external.options or checkpoint.latest_offsets is not None:
        return
    initial = checkpoint.initial_offsets(0)
    if tag_of(checkpoint.store, initial) is not None:
        return
    with upstreams.contents(spec, sample=False) as contents:
        positions = first_positions(spec.external, contents, now)
    checkpoint.files.put(
        checkpoint.store, initial, partition_codec(spec.external).write_initial(positions), None
    )


def require_ended_transactions(
    spec: QuerySpec, checkpoint: Checkpoint, found: Upstream, upstreams: Upstreams,
    find_open: Callable[[QuerySpec, Sequence[Partition]], Sequence[OpenTransaction]],
) -> None:
    """:class:`EngineFailure` for a source that has read further than it may: it starts later.

    That is after an ALTER to read_committed, while a transaction is open of which it has records.
    Spark would take the last stable offset behind its position for lost records.
    """
    if not found.open_records:
        return
    positions = partition_codec(spec.external).read(checkpoint.planned_line)
    if positions is None:
        return
    with upstreams.contents(spec, sample=False) as contents:
        stable = {place: contents.bounds.get(place, (0, at))[1] for place, at in positions.items()}
    beyond = sorted(place for place, at in positions.items() if at > stable[place])
    if not beyond:
        return
    opened = find_open(spec, beyond)
    places = [
        f"topic {topic}, partition {number}, offset {stable[topic, number]}"
        + "".join(
            f", by producer {each.producer}" + (
                f" (transactional.id {each.transactional_id})" if each.transactional_id else ""
            )
            for each in opened if (each.topic, each.partition) == (topic, number)
        )
        for topic, number in beyond
    ]
    topic, number = beyond[0]
    raise EngineFailure(
        f"source {spec.name} has read records of a transaction that is not ended"
        f" ({OPEN_TRANSACTION}): it is open from {'; '.join(places)}",
        condition=OPEN_TRANSACTION, transient=True, topic=topic, partition=number,
        offset=stable[topic, number],
        remedy="commit or abort it: its producer does, or kafka-transactions.sh abort --topic"
        f" {topic} --partition {number} --start-offset {stable[topic, number]}, or the broker after"
        " its transaction.timeout.ms; the source is started then. Or read it as it is written:"
        f" ALTER SOURCE {spec.name} SET (ISOLATION LEVEL = 'read_uncommitted')",
        statements=(f"ALTER SOURCE {SOURCE} SET (ISOLATION LEVEL = 'read_uncommitted')",),
    )


def input_known(state: State, item_id: str) -> bool:
    """Return whether a query can start: a sink needs the topic ids of its source for its row keys.

    They are written down before the source's first batch, so no row is older than they are. A
    source whose connector is not here runs elsewhere, and may have ids until it is identified.
    """
    item = state.items[item_id]
    reads = item.links.get("reads")
    if reads is None:
        return True
    stream = state.streams.get(reads)
    if stream is not None and stream.topics:
        return True
    try:
        return not has_records(state.items[reads].definition)
    except ConnectorMissing:
        identified = stream is not None and bool(stream.upstream)
        return identified or not may_have_row_keys(item.definition)


def find_awaited_input(state: State, item_id: str) -> Failure | None:
    """Return why a sink cannot start, by :func:`input_known`; None for a query that can."""
    if input_known(state, item_id):
        return None
    source = dependencies.by_id(state, state.items[item_id].links["reads"])
    waits = Failure(
        AWAITS_SOURCE, f"it waits for {source.text}: the keys of its rows have the ids of that"
        " source's topics, which are on record once the source has started",
        remedy="it starts by itself then; see why the source has not",
        statements=("SHOW SOURCES",), passing=True,
    )
    try:
        require_installed(source.external)
    except ConnectorMissing as error:
        return replace(
            waits, message=f"{waits.message}; {error.message}", remedy=error.remedy or ""
        )
    return waits
