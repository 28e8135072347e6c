"""A mirror in memory: its query, its rows, and what must hold of it in the end.

The query asks, reads and commits in the order of the real one (``postgres_changes.py``); what it
asks by (:mod:`catalog_migrate.connectors.postgres.watch`) and how it decodes is the real code. What
is merged is told by keys alone.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.connectors.postgres.pgoutput import Change, decode
from catalog_migrate.connectors.postgres.snapshot import StagedTable
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectionFailed,
    LeaseLost,
    RefusedStatement,
    SlotAhead,
    SlotMissing,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import UPSTREAM
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.surveys import watch_of
from catalog_migrate.streams.catalog.upstream_tables import snapshot_app
from catalog_migrate.streams.upstreams.table_snapshots import expected
from tests.simulation.invariants import require
from tests.simulation.stream_scenario import HARMLESS, WRITE
from tests.simulation.upstream import COLUMNS, PUBLICATION, CatalogServer, Refused

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from tests.simulation.stream_run import StreamRun
    from tests.simulation.streaming import SimulatedQuery, StreamTable

NAME = "m"
SOURCE = f"""
CREATE CONNECTION d TO POSTGRES (HOST 'db1', PORT 5432, DATABASE 'shop', USER 'u',
  PASSWORD SECRET p, SSL MODE 'disable');
CREATE SOURCE {NAME} IN CLUSTER main FROM POSTGRES CONNECTION d (PUBLICATION '{PUBLICATION}',
  TABLES (g AS rows, h AS parts)) FORMAT MIRROR;
"""


def load(
    spec: QuerySpec, ours: StreamTable, staged: StagedTable,
    files: Sequence[Sequence[dict[str, str | None]]], at: Position,
) -> None:
    """The rows of a snapshot instead of those that were there, once."""
    app = snapshot_app(spec.item_id)
    if ours.batches.get(app, 0) >= spec.snapshot_number:
        return
    table = next(each for each in spec.tables if each.upstream.full_name == staged.table)
    wanted = [each.name for each in table.upstream.columns]
    ours.append([], {}, app=app, batch=spec.snapshot_number)
    ours.mirrored = {
        _key(table, row): (at.lsn, {name: row.get(name) for name in wanted})
        for rows in files for row in rows
    }


def live(query: SimulatedQuery, start: Position) -> Iterator[None]:
    """A mirror's life behind its snapshot, a batch at a time."""
    from tests.simulation.databases import position_after
    from tests.simulation.streaming import write_entry

    spec, on_step, world = query.spec, query.engine.on_step, query.engine.world
    checkpoint = query.begin()
    watcher = query.engine.watcher(watch_of(spec))
    while True:
        server = world.database.at(spec.connection, str(spec.name))
        assert isinstance(server, CatalogServer)
        batch, begun = query.upcoming(checkpoint)
        here = server.present(position_after(checkpoint, batch - 1) or start)
        confirmed = server.slots.get(spec.slot)
        if confirmed is None:
            raise SlotMissing(f"there is no replication slot {spec.slot}")
        if confirmed > here.lsn:
            raise SlotAhead(f"replication slot {spec.slot} is at {confirmed}, past {here.lsn}")
        if not begun:
            query.batch = max(batch - 1, 0)
            end = server.here
            on_step("before the look")
            catalog = watcher.look(server, here)
            world.looked = end.lsn
            on_step(f"advance to {here}")
            if spec.slot in server.slots:
                server.slots[spec.slot] = max(here.lsn, server.slots[spec.slot])
            if end.lsn <= here.lsn:
                yield
                continue
            on_step(f"offsets {batch}")
            query.between = False
            write_entry(checkpoint, batch, watcher.mark(end, catalog).json())
            yield
        query.between = False
        planned = position_after(checkpoint, batch)
        assert planned is not None
        on_step("decode")
        changes = list(decode(
            server.messages(confirmed), start=here.lsn, end=planned.lsn, tables=expected(spec)
        ))
        on_step("behind the decoding")
        query.engine.watcher(watcher.watch).look(server, planned)
        for table in spec.tables:
            on_step(f"rows {batch} of {table.name}")
            ours = world.table(table.shard)
            if ours.batches.get(query.query_id, -1) < batch:
                ours.append([], {}, app=query.query_id, batch=batch)
                _merge(table, ours, changes)
            yield
        on_step(f"rows {batch} of transactions")
        ours = world.table(spec.shard)
        _require_not_barred(query, ours)
        if ours.batches.get(query.query_id, -1) < batch:
            ours.append([], {}, app=query.query_id, batch=batch)
        yield
        query.commit(checkpoint, batch)
        yield


def _require_not_barred(query: SimulatedQuery, ours: StreamTable) -> None:
    from tests.simulation.streaming import BARRED

    if ours.batches.get(query.query_id) == BARRED:
        raise LeaseLost(f"query {query.query_id} is barred")


def _merge(table: OutputTable, ours: StreamTable, changes: Iterable[Change]) -> None:
    """Changes by key, but those that are older than a row."""
    names = [each.name for each in table.upstream.columns]

    def put(image: Sequence[str | None] | None, lsn: int, *, stays: bool) -> None:
        if image is None:
            return
        row = dict(zip(names, image, strict=True))
        key = _key(table, row)
        if key in ours.mirrored and ours.mirrored[key][0] > lsn:
            return
        ours.mirrored.pop(key, None)
        if stays:
            ours.mirrored[key] = lsn, row

    for change in changes:
        if change.table != table.upstream.full_name:
            continue
        if change.operation == "truncate":
            ours.mirrored = {
                key: row for key, row in ours.mirrored.items() if row[0] > change.lsn
            }
            continue
        put(change.before, change.lsn, stays=False)
        put(change.after, change.lsn, stays=True)


def _key(table: OutputTable, row: dict[str, str | None]) -> str:
    return "/".join(str(row.get(name)) for name in table.upstream.key)


# -- in the end ------------------------------------------------------------------------------------


def hold_of(state: State) -> HoldRecord | None:
    """What the mirror is held for upstream."""
    found = dependencies.find(state, "source", NAME)
    return next((
        hold for hold in state.holds.values()
        if hold.item_id == found.item_id and hold.holder == UPSTREAM
    ), None)


def check(run: StreamRun, state: State) -> None:
    """A mirror that has read all there is equals its source; one that is held says why, and what to
    do."""
    hold = hold_of(state)
    harmless = {statement for group in HARMLESS for statement in group}
    said = {text for _, text in run.scenario.ddl if not text.startswith(WRITE)}
    require("I6", hold is None or not said <= harmless, f"m is held for {sorted(said)}: {hold}")
    if hold is not None:
        require("I6", bool(hold.reason and hold.remedy and hold.statements), f"m is held: {hold}")
        require("I6", "public." in hold.reason, f"the hold names no table: {hold}")
        return
    found = dependencies.find(state, "source", NAME)
    if any(each.item_id == found.item_id for each in state.holds.values()):
        return  # an operator's
    require_equal(run, state)


def require_equal(run: StreamRun, state: State) -> None:
    """Every table has the rows of its own upstream, by the columns that both have."""
    from tests.simulation.streaming import resolve

    server = run.world.database
    assert isinstance(server, CatalogServer)
    found = dependencies.find(state, "source", NAME)
    require("I6", run.mirror_came(state), f"m has not read all: {server.end}")
    for table in spec_of(state, found.item_id, resolve=resolve).tables:
        name = table.upstream.full_name.removeprefix("public.")
        there = server.rows_of(name)
        ours = run.world.table(table.shard).mirrored.values()
        known = {each.name for each in table.upstream.columns}
        shared = sorted(known & {name for row in there for name in row})

        def told(row: dict[str, str | None], shared: Sequence[str] = shared) -> tuple[object, ...]:
            return tuple(row.get(name) for name in shared)

        upstream, mirror = Counter(map(told, there)), Counter(told(row) for _, row in ours)
        require(
            "I6", upstream == mirror,
            f"m runs and differs from {name}: upstream only {sorted(map(str, upstream - mirror))},"
            f" here only {sorted(map(str, mirror - upstream))}",
        )


_UPSTREAM = re.compile(r"upstream: (.*?); then ")


def upstream_statements(hold: HoldRecord) -> list[str]:
    """What a remedy says to do upstream, as the operator writes it."""
    found = _UPSTREAM.match(hold.remedy)
    text = found[1] if found is not None else hold.remedy.partition(", then ")[0]
    if found is None and not text.startswith("ALTER ROLE"):
        return []
    return [written(each) for each in text.split("; ")]


def written(statement: str) -> str:
    """A statement with what its writer has to put in."""
    again = re.fullmatch(r"create (?:public\.)?(\w+)(?: again|, or .*)?", statement)
    if again is not None:
        return _create(again[1])
    plain = statement.partition(", or ")[0].rstrip(";").replace('"', "").replace("public.", "")
    if plain.startswith("CREATE PUBLICATION"):
        return "CREATE PUBLICATION p FOR TABLE g, h WITH (publish_via_partition_root = true)"
    return plain.replace("PRIMARY KEY (…)", "PRIMARY KEY (id)")


def execute(run: StreamRun, statement: str) -> None:
    """Run what an operator is told to run upstream."""
    server = run.world.database
    assert isinstance(server, CatalogServer)
    first: tuple[str, ...] = ()
    if statement.endswith("ADD PRIMARY KEY (id)"):  # which has to be unique before
        table = statement.split()[2]
        first = f"ALTER TABLE {table} REPLICA IDENTITY FULL", f"DELETE DOUBLES OF {table}"
    try:
        for each in (*first, statement):
            server.execute(each)
    except Refused as refused:
        run.trace(f"upstream refuses {statement}: {refused}")


def operator_statements(hold: HoldRecord) -> Sequence[str]:
    """The statements of a hold; where the source is to be created again, with other tables."""
    if hold.statements != (f"SHOW CREATE SOURCE default.{NAME}",):
        return hold.statements
    return statements_again()


def statements_again() -> Sequence[str]:
    """Those that create the source again with other tables."""
    again = SOURCE[SOURCE.index("CREATE SOURCE"):]
    names = (f"rows{next(_NUMBERS)}", f"parts{next(_NUMBERS)}")
    return [
        f"DROP SOURCE {NAME}", again.replace("AS rows", f"AS {names[0]}").replace(
            "AS parts", f"AS {names[1]}"
        ),
    ]


REFUSALS = (ConnectionFailed, RefusedStatement, ValidationFailed, UnsafeBlocked)
"""What an operator may be told of a statement."""


def remedies(refused: CatalogMigrateError) -> list[str]:
    """What is to be done upstream of what is refused."""
    without_key = re.search(r"public\.(\w+) has no key", refused.message)
    if without_key is not None:
        return [f"ALTER TABLE {without_key[1]} ADD PRIMARY KEY (id)"]
    if isinstance(refused, ConnectionFailed):
        missing = (_MISSING.search(each.message) for each in refused.findings)
        return [_create(each[1]) for each in missing if each is not None]
    found = (_REMEDY.search(str(each)) for each in refused.data.get("findings", ()))
    return [written(each[1]) for each in found if each is not None]


_MISSING = re.compile(r"there is no table \W*(?:public\W+)?(\w+)")
_NUMBERS = itertools.count(2)
_REMEDY = re.compile(r"(?:; |\(remedy: )((?:ALTER|CREATE|create) .*?)\)?$")


def _create(name: str) -> str:
    columns = COLUMNS + (") PARTITION BY RANGE (id" if name == "h" else "")
    return f"CREATE TABLE {name} ({columns})"
