"""Where a POSTGRES source stands, and where a request puts it: within its slot, or on a new one.

It has one position for all of its tables. A new snapshot is asked for by its number in the record
of positions; whoever starts the query takes it (see ``streams/table_snapshots.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog_migrate.replication.position import Position, lsn_text
from catalog_migrate.store import store_at
from catalog_migrate.streams.checkpoint.codecs import START, PostgresBounds, PostgresCodec
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.databases import SlotContents
from catalog_migrate.streams.errors import UnsafeBlocked
from catalog_migrate.streams.queries import OutputTable, QuerySpec
from catalog_migrate.streams.unsafe.forecast import Forecast, Row, Totals
from catalog_migrate.streams.unsafe.requests import lsn_target
from catalog_migrate.streams.unsafe.surveys import (
    NOTHING,
    Survey,
    SurveyRequest,
    committed_line,
)
from catalog_migrate.streams.upstream_tables import SNAPSHOT_LOADED, is_mirror


def postgres_position(checkpoint: Checkpoint, spec: QuerySpec) -> Position | None:
    """Where a POSTGRES source reads on, also one that has taken its snapshot and has no batch."""
    position = PostgresCodec().read(committed_line(checkpoint))
    if position is not None or awaits_snapshot(spec):
        return position
    return Position.of(store_at(spec.snapshot).read(SNAPSHOT_LOADED).decode())


def awaits_snapshot(spec: QuerySpec) -> bool:
    """Whether a POSTGRES source has not taken its newest snapshot yet."""
    return not store_at(spec.snapshot).exists(SNAPSHOT_LOADED)


def survey_slot(asked: SurveyRequest) -> Survey:
    """One position for all tables; a new snapshot brings another, or leaves it where it is."""
    part, spec, codec = asked.part, asked.spec, PostgresCodec()
    standing = postgres_position(asked.checkpoint, spec)
    name = f"source {spec.name}"
    if not part.chooses:
        return Survey(NOTHING, standing=codec.write(standing))
    waits = awaits_snapshot(spec)
    if waits and spec.snapshot_number == 1:
        raise UnsafeBlocked(
            f"{name} has not taken its first snapshot yet",
            remedy="start its cluster (catalog-migrate run), or RESUME it",
        )
    if part.everywhere is not None and (waits or asked.checkpoint.latest_commits is None):
        raise UnsafeBlocked(
            f"{name} has not read a change since its snapshot", remedy="let it run once before",
        )
    with asked.ports.databases.slot(spec, standing) as slot:
        if part.everywhere is not None:
            return _injected(asked, standing, slot, lsn_target(part.everywhere))
        return _snapshot_taken(asked, standing, slot, waits=waits)


def _injected(
    asked: SurveyRequest, standing: Position | None, slot: SlotContents, wanted: int | str
) -> Survey:
    """The source goes on elsewhere in the log of its server, within what its slot has."""
    spec, codec = asked.spec, PostgresCodec()
    name = f"source {spec.name}"
    here = slot.here
    if slot.problem or slot.earliest is None or here is None:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed",
            problems=[slot.problem or slot.foreign],
            remedy=f"take a new snapshot: ALTER SOURCE {spec.name} UNSAFE RESET SPLITS REASON '…'",
        )
    places = {"earliest": slot.earliest, "latest": slot.latest, "committed": here.lsn}
    lsn = places[wanted] if isinstance(wanted, str) else wanted
    notes: tuple[str, ...] = ()
    if asked.policy == "clamp" and lsn != (inside := min(max(lsn, slot.earliest), slot.latest)):
        notes += (f"{lsn_text(lsn)} is not there: clamped to {lsn_text(inside)}",)
        lsn = inside
    target = Position(lsn, slot.timeline, slot.system)
    bounds = PostgresBounds(slot.system, slot.timeline, slot.earliest, slot.latest)
    wrong = codec.check(target, bounds)
    if wrong:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed", problems=wrong,
            remedy=f"write an LSN from {lsn_text(slot.earliest)} to {lsn_text(slot.latest)}, or "
            "latest",
        )
    counts = _counted(asked, slot, here.lsn, lsn)
    back = lsn < here.lsn
    rows = tuple(
        Row(
            table.upstream.full_name, 0, here.lsn, lsn, slot.earliest, slot.latest,
            doubled=counts.get(table.upstream.full_name, 0) if back else 0,
            skipped=0 if back else counts.get(table.upstream.full_name, 0), log=True,
        )
        for table in spec.tables
    )
    if lsn != here.lsn:
        notes += (_told(spec, back=back),)
    if not counts and lsn != here.lsn:
        notes += (_unknown(here.lsn, lsn),)
    found = Forecast({}, rows, Totals.of(rows, exact=bool(counts) or lsn == here.lsn), notes=notes)
    return Survey(
        found, codec.write(target) if found.moves else "", standing=codec.write(standing),
    )


def _snapshot_taken(
    asked: SurveyRequest, standing: Position | None, slot: SlotContents, *, waits: bool
) -> Survey:
    """The tables are copied anew: all of them, and the slot is made anew, or some of them."""
    part, spec, codec = asked.part, asked.spec, PostgresCodec()
    here = slot.here
    tables = part.reset or ()
    if waits and (not spec.snapshot_tables or not tables):
        tables = ()  # one of all that was asked for and not taken is still to be taken
    elif waits:
        tables = tuple(sorted({*tables, *spec.snapshot_tables}))
    listed = [
        table for table in spec.tables if not tables or table.upstream.full_name in tables
    ]
    require_copyable(asked, listed)
    line, notes = START, [_COPIED[is_mirror(spec.external)]]
    counts: Mapping[str, int] = {}
    foreign: Mapping[str, str] = {}
    exact, cluster = True, ""
    if tables:
        problem = slot.problem or slot.foreign
        if not problem and here is not None and slot.earliest is not None:
            ahead = PostgresBounds(slot.system, slot.timeline, slot.earliest, slot.latest)
            problem = "; ".join(codec.check(here, ahead))
        if problem:
            raise UnsafeBlocked(
                f"source {spec.name} cannot read on where it is, nothing was changed",
                problems=[problem], remedy="take a snapshot of all of its tables: RESET SPLITS",
            )
        line = committed_line(asked.checkpoint)
    else:
        known, cluster = asked.stream.upstream, asked.ports.upstreams.identify(spec).upstream
        if known and known != cluster:
            foreign = {"server": f"was {known} and is {cluster}"}
        if here is not None:
            counts = _counted(asked, slot, here.lsn, slot.latest)
            exact = bool(counts) or here.lsn == slot.latest
            if not exact:
                notes.append(_unknown(here.lsn, slot.latest))
        else:
            exact = False
            notes.append(f"{slot.foreign}: which changes are passed over is not known"
                         if slot.foreign else "it waits for the snapshot that was asked for before")
        notes.append(f"slot {spec.slot} is dropped where it is there, and made anew")
        if foreign or "SLOT" in part.keys:
            notes.append(
                "the slot of before stays on its server and keeps the log there until somebody "
                "drops it (pg_drop_replication_slot)"
            )
    target = here.lsn if tables and here is not None else slot.latest
    rows = tuple(
        Row(
            table.upstream.full_name, 0, None if here is None else here.lsn, target,
            slot.earliest, slot.latest, skipped=counts.get(table.upstream.full_name, 0),
            note="copied anew", log=True,
        )
        for table in listed
    )
    return Survey(
        Forecast({}, rows, Totals.of(rows, exact=exact), notes=tuple(notes), foreign=foreign),
        line, cluster=cluster, standing=codec.write(standing), snapshot=tables,
        copied=tuple(table.upstream.full_name for table in listed),
    )


_COPIED = {
    True: "the tables become what is upstream: rows that are gone there go here too (with SOFT "
    "DELETES they are marked)",
    False: "the rows upstream are appended with _operation 'snapshot'; what stands in the tables "
    "stays",
}


def _told(spec: QuerySpec, *, back: bool) -> str:
    """What becomes of changes that come again, or do not come, in words."""
    if is_mirror(spec.external):
        return (
            "a mirror passes over changes that are older than its row" if back else
            "rows that the changes passed over are of stay as they are here until they change "
            "again; RESET SPLITS brings the tables to what is upstream"
        )
    return (
        "changes that come again stand twice in the tables; _lsn and _sequence are the same" if back
        else "the tables will lack the changes passed over"
    )


def _unknown(start: int, end: int) -> str:
    return (
        f"how many changes lie between {lsn_text(start)} and {lsn_text(end)} is not known: the slot"
        " does not have them all, its query reads from it just now, or they take too long to count"
    )


def _counted(
    asked: SurveyRequest, slot: SlotContents, one: int, other: int
) -> Mapping[str, int]:
    """The changes of each table between two LSNs; empty where nobody can say."""
    if one == other or not asked.sample:
        return {}
    return slot.counts(min(one, other), max(one, other)) or {}


def require_copyable(asked: SurveyRequest, tables: Sequence[OutputTable]) -> None:
    """:class:`UnsafeBlocked` for a column that has another type upstream than our table was made
    for."""
    spec = asked.spec
    there = asked.ports.databases.tables(
        spec.connection, [table.upstream.postgres_name for table in tables],
        publication=spec.publication,
    )
    problems = []
    for table, found in zip(tables, there, strict=True):
        known = {each.name: each for each in table.upstream.columns}
        for column in found.published:
            ours = known.get(column.name)
            if ours is not None and (ours.type_oid, ours.modifier) != (
                column.type_oid, column.modifier
            ):
                problems.append(
                    f"{column.name} of {table.upstream.full_name} is {column.type} now, and was "
                    f"taken as {ours.type}"
                )
        gone = sorted(set(table.upstream.key) - {each.name for each in found.published})
        if gone and is_mirror(spec.external):
            problems.append(f"{', '.join(gone)} of the key of {table.upstream.full_name} is gone")
    if problems:
        raise UnsafeBlocked(
            f"source {spec.name} cannot copy its tables anew into those it has", problems=problems,
            remedy=f"DROP SOURCE {spec.name} and create it again with other tables AS names",
        )
