"""The port to a PostgreSQL server in memory, a query that reads it, and what must hold of that in
the end.

Our table gets ``("snapshot", number, n)`` for a row that a snapshot has copied, and ``("change", 0,
n)`` for one of the stream. What a mirror does is in :mod:`tests.simulation.mirrors`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.positions import START
from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.connectors.postgres.server import SlotLag
from catalog_migrate.connectors.postgres.snapshot import MANIFEST, Manifest, StagedTable
from catalog_migrate.connectors.postgres.survey import Survey
from catalog_migrate.connectors.postgres.types import Column, DiscoveredTable, Position
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.errors import (
    ConnectionFailed,
    LeaseLost,
    OtherTimeline,
    SlotAhead,
    SlotInUse,
    SlotMissing,
    TableChanged,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import External
from catalog_migrate.operations.kinds import UNSAFE
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import UPSTREAM
from catalog_migrate.streams.catalog.operation_records import moves_in
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.surveys import watch_of
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_ATTEMPT,
    SNAPSHOT_LOADED,
    is_mirror,
    snapshot_app,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.positions import postgres_position
from catalog_migrate.streams.upstreams.databases import SlotContents, SlotState
from catalog_migrate.streams.upstreams.table_snapshots import (
    Attempt,
    awaits_snapshot,
    expected,
    take,
)
from tests.simulation import mirrors
from tests.simulation.invariants import require
from tests.simulation.server import STEP, SYSTEM, TABLE, Server

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from tests.simulation.stream_run import StreamRun
    from tests.simulation.streaming import Record, SimulatedQueries, SimulatedQuery, StreamWorld


class SimulatedDatabases:
    """The servers of a world, as one process sees them; ``on_step`` may raise."""

    def __init__(self, world: StreamWorld, on_step: Callable[[str], None]) -> None:
        self._server, self.on_step = world.database, on_step

    def tables(
        self, connection: Mapping[str, Any], names: Sequence[str], *,
        publication: str | None = None, subject: str = "connection",
    ) -> tuple[DiscoveredTable, ...]:
        """The one table, as it is now."""
        self.on_step("tables")
        return self._server.at(connection, subject).discover(names, publication or "", subject)

    def preflight(
        self, connection: Mapping[str, Any], external: External, names: Sequence[str], *,
        slot: str, new: bool = True, subject: str = "connection",
    ) -> tuple[Finding, ...]:
        """Whether it answers, and what of its tables cannot be read."""
        del slot
        try:
            server = self._server.at(connection, subject)
        except ConnectionFailed as error:
            return tuple(error.findings)
        publication = str(external.options.get("PUBLICATION", ""))
        return server.preflight(names, publication, subject, new=new)

    def survey(self, spec: QuerySpec) -> Survey:
        """What is there of the tables."""
        server = self._server.at(spec.connection, f"source {spec.name}")
        return server.recorded(watch_of(spec))

    def look(self, spec: QuerySpec, position: Position | None) -> Survey:
        """The same, where nothing may be missing."""
        server = self._server.at(spec.connection, f"source {spec.name}")
        return server.look(watch_of(spec), position)

    def here(self, connection: Mapping[str, Any]) -> Position:
        """The end of its log."""
        self.on_step("here")
        return self._server.at(connection, "connection").here

    def copy(
        self, connection: Mapping[str, Any], tables: Sequence[DiscoveredTable],
        put: Callable[[str, bytes], None], *, slot: str, temporary: bool, publication: str,
        on_progress: Callable[[str, int], None],
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """The rows of now, beside a new slot that stands behind them."""
        del publication, on_wait
        self.on_step(f"slot {slot}")
        server = self._server.at(connection, "source")
        if slot in server.slots:
            raise SlotInUse(f"replication slot {slot} is there already")
        server.records += 1
        position = server.here
        rows = {each.full_name: server.staged(each) for each in tables}
        if not temporary:
            server.slots[slot] = position.lsn
        self.on_step("copy")
        for name, found in rows.items():
            put(f"{name}.json", json.dumps(found).encode())
            on_progress(name, len(found))
        self.on_step("manifest")
        staged = tuple(
            StagedTable(each.full_name, tuple(column.name for column in each.published),
                        len(rows[each.full_name]), (f"{each.full_name}.json",)) for each in tables
        )
        put(MANIFEST, msgspec.json.encode(Manifest(slot, position, 0, staged)))

    def drop_slot(
        self, connection: Mapping[str, Any], name: str, *, upstream: str = "",
        confirmed_upto: int | None = None,
    ) -> bool:
        """Drop it."""
        del upstream
        self.on_step(f"drop slot {name}")
        slots = self._server.at(connection, "connection").slots
        if name not in slots or (confirmed_upto is not None and slots[name] > confirmed_upto):
            return False
        del slots[name]
        return True

    def slot_state(self, spec: QuerySpec, *, timeout: float = 10.0) -> SlotState:
        """``doctor``, which no schedule plays."""
        raise AssertionError("doctor is not played")

    def lag(self, spec: QuerySpec) -> SlotLag | None:
        """How far a slot is behind; nobody knows since when."""
        confirmed = self._server.at(spec.connection, "source").slots.get(spec.slot)
        return None if confirmed is None else SlotLag(self._server.end - confirmed, 0.0)

    @contextmanager
    def slot(
        self, spec: QuerySpec, position: Position | None, *, timeout: float = 30.0
    ) -> Iterator[SlotContents]:
        """What it has of the changes."""
        del timeout
        server = self._server.at(spec.connection, f"source {spec.name}")
        earliest = server.slots.get(spec.slot)
        here, foreign = None, ""
        try:
            here = None if position is None else server.present(position)
        except OtherTimeline as error:
            foreign = error.message
        yield SlotContents(
            SYSTEM, server.timeline, earliest, server.end, here,
            server.counted,
            "" if earliest is not None else "there is no slot", foreign,
        )


def begin(engine: SimulatedQueries, spec: QuerySpec) -> Position:
    """What comes before a source's stream: the real code of snapshots, on this world."""

    def load(table: OutputTable, staged: StagedTable, files: list[str], at: Position) -> None:
        engine.on_step(f"load {spec.snapshot_number}")
        ours, app = engine.world.table(table.shard), snapshot_app(spec.item_id)
        if is_mirror(spec.external):
            mirrors.load(spec, ours, staged, [json.loads(_read(file)) for file in files], at)
        elif ours.batches.get(app, 0) < spec.snapshot_number:
            rows = [
                ("snapshot", spec.snapshot_number, n)
                for file in files for n in json.loads(_read(file))
            ]
            ours.append(rows, {}, app=app, batch=spec.snapshot_number)
        engine.on_step(f"load {spec.snapshot_number}.done")

    def alive() -> None:
        engine.on_step("alive")
        engine.alive()

    return take(spec, engine.databases, load, lambda _: None, alive)


def _read(file: str) -> bytes:
    """A file of a snapshot, on a disk or an object store."""
    folder, _, name = file.rpartition("/")
    return store_at(folder).read(name)


def live(query: SimulatedQuery, start: Position) -> Iterator[None]:
    """A source's life behind its snapshot, a batch of changes at a time."""
    from tests.simulation.streaming import BARRED, write_entry

    spec, on_step = query.spec, query.engine.on_step
    checkpoint = query.begin()
    while True:
        server = query.engine.world.database.at(spec.connection, str(spec.name))
        batch, begun = query.upcoming(checkpoint)
        here = server.present(position_after(checkpoint, batch - 1) or start)
        confirmed = server.slots.get(spec.slot)
        if confirmed is None:
            raise SlotMissing(f"there is no replication slot {spec.slot}")
        if confirmed > here.lsn:
            raise SlotAhead(f"replication slot {spec.slot} is at {confirmed}, past {here.lsn}")
        if not begun:
            query.batch = max(batch - 1, 0)
            on_step(f"advance to {here}")
            if spec.slot in server.slots:
                server.slots[spec.slot] = max(here.lsn, server.slots[spec.slot])
            if server.end <= here.lsn:
                yield
                continue
            on_step(f"offsets {batch}")
            query.between = False
            write_entry(checkpoint, batch, server.here.json())
            yield
        query.between = False
        end = position_after(checkpoint, batch)
        assert end is not None
        numbers = server.between(here.lsn, end.lsn)
        _require_columns(spec, server, numbers)
        (table,) = spec.tables
        for path, kind in ((table.shard, "change"), (spec.shard, "transaction")):
            on_step(f"rows {batch} of {kind}s")
            ours = query.engine.world.table(path)
            if kind == "transaction" and ours.batches.get(query.query_id) == BARRED:
                raise LeaseLost(f"query {query.query_id} is barred")
            if ours.batches.get(query.query_id, -1) < batch:
                ours.append([(kind, 0, n) for n in numbers], {}, app=query.query_id, batch=batch)
            yield
        query.commit(checkpoint, batch)
        yield


def position_of(state: State, item_id: str) -> Position | None:
    """Where a source stands; None before its newest snapshot is in."""
    from tests.simulation.streaming import resolve

    spec = spec_of(state, item_id, resolve=resolve)
    if awaits_snapshot(spec):
        return None
    checkpoint = Checkpoint(spec.checkpoint)
    if checkpoint.latest_commits != checkpoint.latest_offsets:
        return None
    return postgres_position(checkpoint, spec)


def check(run: StreamRun, state: State) -> None:
    """Rows of each snapshot once, and each change as often as the committed positions say."""
    from tests.simulation.streaming import resolve

    found = dependencies.find(state, "source", "g")
    server = run.world.database
    host = dependencies.find(state, "connection", "d").external.options["HOST"]
    require(
        "I6", host not in server.hosts or run.has_all_rows(state),
        f"g stands at {position_of(state, found.item_id)}, not at {server.end}",
    )
    happened = {event for _, event in run.scenario.database}
    told = [hold.reason for hold in state.holds.values()
            if hold.item_id == found.item_id and hold.holder == UPSTREAM]
    may = not happened.isdisjoint(("lose slot", "promote"))
    require("I6", may or not told, f"g is held: {told}")
    table = state.items[next(iter(dependencies.outputs(found.item)))]
    rows = Counter(run.world.table(f"{run.warehouse}/{table.shard}").rows)
    own = Counter(run.world.table(f"{run.warehouse}/{found.item.shard}").rows)
    expected: Counter[Record] = Counter()
    spec = spec_of(state, found.item_id, resolve=resolve)
    begins = {}
    for number in range(1, spec.snapshot_number + 1):
        store = store_at(spec.snapshot_at(number))
        if store.exists(SNAPSHOT_LOADED):
            begins[number] = Position.of(store.read(SNAPSHOT_LOADED).decode()).lsn
            times = sorted((n, count) for (kind, of, n), count in rows.items()
                           if (kind, of) == ("snapshot", number))
            taken = msgspec.json.decode(store.read(SNAPSHOT_ATTEMPT), type=Attempt)
            # one of some tables leaves the stream where it is
            there = server.between(0, begins[number]) if taken.slot else range(len(times))
            require("I6", times == [(n, 1) for n in there], f"snapshot {number} has {times}")
    changes = Counter(row for row in rows.elements() if row[0] == "change")
    own_changes = Counter({("change", 0, n): count for (_, _, n), count in own.items()})
    unfinished = changes - own_changes
    ahead = sum(own.values()) - sum((changes - unfinished).values())
    settled = position_of(state, found.item_id) is not None
    require("I6", not ahead, f"{ahead} transactions are told before their changes are there")
    require("I6", not (unfinished and settled), f"nobody tells the transactions {unfinished}")
    moves = sorted(
        (move for row in state.operations.values()
         if row.kind == UNSAFE and row.state == "done" for move in moves_in(row)
         if move.item_id == found.item_id and move.target),
        key=lambda move: move.generation,
    )
    if any(move.target == START for move in moves):
        return  # where each begins anew is not on record
    at = begins.get(1)
    end = position_of(state, found.item_id)
    if at is None or end is None:
        return
    codec = PostgresCodec()
    for move in moves:
        standing, target = codec.read(move.line), codec.read(move.target)
        assert target is not None
        expected.update(
            ("change", 0, n) for n in server.between(at, standing.lsn if standing else at)
        )
        at = target.lsn
    expected.update(("change", 0, n) for n in server.between(at, end.lsn))
    require(
        "I6", changes == expected,
        f"g: lost {sorted((expected - changes).items())},"
        f" doubled {sorted((changes - expected).items())}",
    )


def position_after(checkpoint: Checkpoint, batch: int) -> Position | None:
    """The position after a batch, None before the first."""
    return PostgresCodec().read(checkpoint.entry(batch).sources[0]) if batch >= 0 else None


def _require_columns(spec: QuerySpec, server: Server, numbers: Sequence[int]) -> None:
    """TableChanged for a change with other columns than the source knows."""
    columns = expected(spec)[TABLE].columns
    known = {column.name for column in columns}
    for number in numbers:
        new = [name for name in server.columns_at(number) if name not in known]
        if new:
            raise TableChanged(
                f"table {TABLE} has changed upstream", table=TABLE, old=columns,
                new=tuple(Column(name, 20) for name in server.columns_at(number)),
                lsn=STEP * (number + 1),
            )
