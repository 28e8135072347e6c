"""How far sources and sinks are behind, where their queries do not say it themselves.

Of a sink: what was appended to its table and it has not written, by its checkpoint and the table's
log, so that one that does not run has a lag too. Of a source on PostgreSQL its server is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import msgspec

from catalog_migrate.catalog.records import ItemRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.common_options import ISOLATION_LEVEL
from catalog_migrate.errors import CatalogMigrateError, SlotInUse
from catalog_migrate.retry import retry
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import QueryStatus
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.catalog.rows import Rows
from catalog_migrate.streams.catalog.tables import Tables
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.edit import needs_edit
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.shard_handover import successor

_ONE_BY_ONE = 100
"""So many versions are looked at one by one; of more only the first and the last."""

_AT_ONCE = 8

_TRIES, _PAUSE = 10, 0.2
"""How often a slot is asked about that is being read from, and the seconds between."""


class Lag(msgspec.Struct, frozen=True):
    """How far a query is behind, in what its kind can say: records (of a sink rows) and versions of
    a table that have any; bytes of the server's log, and the age of the oldest change in them.

    A version of which a sink has written a part counts whole.
    """

    records: int | None = None
    versions: int | None = None
    bytes: int | None = None
    seconds: float | None = None


def sink_lags(
    state: State, item_ids: Collection[str], *, ports: Ports
) -> Mapping[str, Lag | None]:
    """Return the lag of each of these sinks by item id; None where it cannot be read now."""

    def one(item_id: str) -> Lag | None:
        try:
            return sink_lag(state, item_id, ports=ports)
        except CatalogMigrateError:
            return None

    if not item_ids:
        return {}
    with ports.threads.pool(min(_AT_ONCE, len(item_ids)), "lag") as pool:
        return dict(zip(item_ids, pool.map(one, item_ids), strict=True))


def sink_lag(state: State, item_id: str, *, ports: Ports) -> Lag | None:
    """How far a sink is behind; None where its table was never written or is missing, or its
    positions are about to be edited.

    A sink whose table was migrated has the rest of the old shard and what the new ones got since.
    Raises EngineFailure, CheckpointCorrupt, InvalidPosition.
    """
    stream: StreamRecord = state.streams.get(item_id) or first_stream(item_id)
    checkpoint = ports.checkpoint(dependencies.location(state, stream.checkpoint))
    if stream.edit and needs_edit(checkpoint, stream.generation):
        return None
    position: DeltaPosition | None = DeltaCodec().read(checkpoint.committed_line)
    table = state.items.get(state.items[item_id].links.get("reads", ""))
    reads = stream.reads or (table.shard if table is not None else None)
    if table is None or not reads:
        return None  # an upgrade took the table away, or made a view of it
    records = versions = 0
    for shard, since in _shards(state, table, reads, position):
        path = dependencies.location(state, shard)
        newest = ports.tables.newest(path)
        if newest is None:
            return None
        found = _between(ports.tables, path, since, newest)
        records, versions = records + found[0], versions + found[1]
    return Lag(records, versions)


def _shards(
    state: State, table: ItemRecord, shard: str, position: DeltaPosition | None
) -> Iterator[tuple[str, DeltaPosition | None]]:
    """The shards from one to that of a table, each with where its reader begins in it."""
    yield shard, position
    while shard != table.shard:
        following = successor(state, shard)
        if following is not None:
            shard, position = following[0], DeltaPosition("", (following[1].version or 0) + 1)
        elif table.definition.is_derived and table.shard is not None:
            shard, position = table.shard, None  # it was filled again
        else:
            return
        yield shard, position


def _between(
    tables: Tables, path: str, position: DeltaPosition | None, newest: int
) -> tuple[int, int]:
    """Rows, and versions with rows, from a position to the newest version of a table."""
    if position is None or position.starting:  # all rows of the version of its first start
        version = newest if position is None else position.version
        rows = tables.rows_at(path, version)
        behind = _between(tables, path, DeltaPosition("", version + 1), newest)
        return rows + behind[0], (rows > 0) + behind[1]
    first = position.version
    if newest + 1 - first > _ONE_BY_ONE:
        rows = tables.rows_at(path, newest) - (tables.rows_at(path, first - 1) if first else 0)
        return max(0, rows), newest + 1 - first
    brought = [tables.rows_added(path, each, each + 1) for each in range(first, newest + 1)]
    return sum(brought), sum(rows > 0 for rows in brought)


def measure_unreported(
    state: State, statuses: Iterable[QueryStatus], *, ports: Ports
) -> dict[str, Lag]:
    """Return the lag of queries whose status does not say it, by item id, one after another.

    Left out is what cannot be read now, and a source on PostgreSQL while a batch is read from its
    slot: it is not waited for.
    """
    found: dict[str, Lag] = {}
    for status in statuses:
        item = state.items[status.item_id]
        try:
            if status.kind == "sink" and status.lag is None:
                lag = sink_lag(state, status.item_id, ports=ports)
            elif dependencies.external_of(item).tables and status.item_id in state.streams:
                lag = slot_lag(state, status.item_id, ports=ports)
            else:
                continue
        except CatalogMigrateError:
            continue
        if lag is not None:
            found[status.item_id] = lag
    return found


def slot_lag(state: State, item_id: str, *, ports: Ports) -> Lag | None:
    """How far a source on PostgreSQL is behind its server; None where it has no slot.

    Raises ConnectionFailed, UnresolvedSecret, and SlotInUse while a batch is read from the slot.
    """
    lag = ports.databases.lag(spec_of(state, item_id, resolve=ports.resolve))
    if lag is None:
        return None
    return Lag(
        bytes=lag.bytes, seconds=None if lag.seconds is None else round(lag.seconds, 1)
    )


def with_source_lag(state: State, rows: Rows, *, ports: Ports) -> Rows:
    """Add to what SHOW SOURCES reports what only the servers know, asked now; NULL where one does
    not answer.

    Bytes and seconds that slots are behind, and the records that a Kafka source which is behind
    cannot read before a transaction ends.
    """
    started = [found for found in dependencies.queries(state) if found.item_id in state.streams]
    slots = [found for found in started if found.external.tables]
    committed = [
        found for found in started
        if found.external.options.get(ISOLATION_LEVEL) == "read_committed"
    ]
    place = rows.columns.index("lag")
    behind = {str(row[0]): row[place] for row in rows.values}

    def ask(found: dependencies.CatalogEntry) -> tuple[int | None, float | None]:
        try:  # a slot is in use while a batch is being read
            lag = retry(
                lambda: slot_lag(state, found.item_id, ports=ports), SlotInUse,
                repeat(_PAUSE, _TRIES - 1),
            )
        except CatalogMigrateError:
            return None, None
        return (None, None) if lag is None else (lag.bytes, lag.seconds)

    def waiting(found: dependencies.CatalogEntry) -> tuple[int | None]:
        lag = behind.get(str(found.item.definition.item_name))
        if not lag:
            return (lag if isinstance(lag, int) else None,)
        try:
            spec = spec_of(state, found.item_id, resolve=ports.resolve)
            return (ports.upstreams.identify(spec).open_records,)
        except CatalogMigrateError:
            return (None,)

    rows = _with_columns(rows, ("lag_bytes", "lag_seconds"), slots, ask, ports)
    return _with_columns(rows, ("open_records",), committed, waiting, ports)


def _with_columns(
    rows: Rows, names: tuple[str, ...], asked: Sequence[dependencies.CatalogEntry],
    ask: Callable[[dependencies.CatalogEntry], tuple[object, ...]], ports: Ports,
) -> Rows:
    """Rows with columns more, unless there is nothing to ask."""
    if not asked:
        return rows
    with ports.threads.pool(min(_AT_ONCE, len(asked)), "lag") as pool:
        answers = dict(zip(
            (str(found.item.definition.item_name) for found in asked), pool.map(ask, asked),
            strict=True,
        ))
    nothing = (None,) * len(names)
    return Rows(
        (*rows.columns, *names),
        tuple((*row, *answers.get(str(row[0]), nothing)) for row in rows.values),
    )


def with_sink_lag(state: State, rows: Rows, *, ports: Ports) -> Rows:
    """Return what SHOW SINKS says, with the lag of each as it is now: ``lag`` in records, and
    ``lag_versions``; NULL where it cannot be read."""
    sinks = {
        str(found.item.definition.item_name): found.item_id
        for found in dependencies.queries(state) if found.mapping.kind == "sink"
    }
    if not sinks:
        return Rows((*rows.columns, "lag_versions"), ())
    lags = sink_lags(state, list(sinks.values()), ports=ports)
    place = rows.columns.index("lag")

    def show_row(row: tuple[object, ...]) -> tuple[object, ...]:
        lag = lags.get(sinks.get(str(row[0]), ""))
        records = row[place] if lag is None else lag.records
        return (*row[:place], records, *row[place + 1:], None if lag is None else lag.versions)

    return Rows((*rows.columns, "lag_versions"), tuple(map(show_row, rows.values)))
