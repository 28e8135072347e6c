"""How far sinks are behind their tables: what was appended there and not yet written by them.

Read from checkpoints and from the logs of tables, so that a sink that does not run has one too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import ItemRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.edit import needs_edit
from catalog_migrate.streams.following import successor
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.show import Rows
from catalog_migrate.streams.specs import first_stream
from catalog_migrate.streams.tables import Tables
from catalog_migrate.streams.upstream import committed_line

_ONE_BY_ONE = 100
"""So many versions are looked at one by one; of more only the first and the last."""

_AT_ONCE = 8


class SinkLag(msgspec.Struct, frozen=True):
    """What a sink has still to write: ``versions`` of its table that have rows, and their rows.

    A version of which a part was written counts whole.
    """

    versions: int
    records: int


def sink_lags(
    state: State, item_ids: Collection[str], *, ports: Ports
) -> Mapping[str, SinkLag | None]:
    """The lag of each of these sinks by item id; None where it cannot be read now."""

    def one(item_id: str) -> SinkLag | None:
        try:
            return sink_lag(state, item_id, ports=ports)
        except CatalogMigrateError:
            return None

    if not item_ids:
        return {}
    with ports.threads.pool(min(_AT_ONCE, len(item_ids)), "lag") as pool:
        return dict(zip(item_ids, pool.map(one, item_ids), strict=True))


def sink_lag(state: State, item_id: str, *, ports: Ports) -> SinkLag | None:
    """How far a sink is behind; None where its table was never written, or its positions are about
    to be edited.

    A sink whose table was migrated has the rest of the old shard and what the new ones got since.
    Raises EngineFailure, CheckpointCorrupt, InvalidPosition.
    """
    stream: StreamRecord = state.streams.get(item_id) or first_stream(item_id)
    checkpoint = ports.checkpoint(dependencies.location(state, stream.checkpoint))
    if stream.edit and needs_edit(checkpoint, stream.generation):
        return None
    position: DeltaPosition | None = DeltaCodec().read(committed_line(checkpoint))
    table = state.items[state.items[item_id].links["reads"]]
    reads = stream.reads or table.shard or ""
    total = SinkLag(0, 0)
    for shard, since in _shards(state, table, reads, position):
        path = dependencies.location(state, shard)
        newest = ports.tables.newest(path)
        if newest is None:
            return None
        found = _between(ports.tables, path, since, newest)
        total = SinkLag(total.versions + found.versions, total.records + found.records)
    return total


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
            shard, position = table.shard, None  # it was filled anew
        else:
            return
        yield shard, position


def _between(
    tables: Tables, path: str, position: DeltaPosition | None, newest: int
) -> SinkLag:
    """Versions with rows, and rows, from a position to the newest version of a table."""
    if position is None or position.starting:  # all rows of the version of its first start
        version = newest if position is None else position.version
        rows = tables.rows_at(path, version)
        behind = _between(tables, path, DeltaPosition("", version + 1), newest)
        return SinkLag(behind.versions + (rows > 0), behind.records + rows)
    first = position.version
    if newest + 1 - first > _ONE_BY_ONE:
        rows = tables.rows_at(path, newest) - (tables.rows_at(path, first - 1) if first else 0)
        return SinkLag(newest + 1 - first, max(0, rows))
    brought = [tables.rows_added(path, each, each + 1) for each in range(first, newest + 1)]
    return SinkLag(sum(rows > 0 for rows in brought), sum(brought))


def with_sink_lag(state: State, rows: Rows, *, ports: Ports) -> Rows:
    """What SHOW SINKS says, with the lag of each as it is now: ``lag`` in records, and
    ``lag_versions``; NULL where it cannot be read."""
    sinks = {
        str(found.item.definition.item_name): found.item_id
        for found in dependencies.queries(state) if found.mapping.kind == "sink"
    }
    if not sinks:
        return Rows((*rows.columns, "lag_versions"), ())
    lags = sink_lags(state, list(sinks.values()), ports=ports)
    place = rows.columns.index("lag")

    def shown(row: tuple[object, ...]) -> tuple[object, ...]:
        lag = lags.get(sinks.get(str(row[0]), ""))
        records = row[place] if lag is None else lag.records
        return (*row[:place], records, *row[place + 1:], None if lag is None else lag.versions)

    return Rows((*rows.columns, "lag_versions"), tuple(map(shown, rows.values)))
