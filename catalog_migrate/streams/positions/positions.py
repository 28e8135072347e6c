"""Where a query stands and where a request puts it: one survey for each kind of position.

And what stays behind. Records of a topic that a source goes away from stay unread. Of a topic that
was created again under its name a table may have rows of both: a row says the topic's name and not
its id, and the keys that a KAFKA sink gives to its rows have the id. So rows of the earlier one
must not be sent any more: a consumer would take them for rows of the new one.

A POSTGRES source has one position for all of its tables, within its slot or on a new one. A new
snapshot is asked for by its number in the record of positions; whoever starts the query takes it
(see ``streams/upstreams/table_snapshots.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import (
    Contents,
    has_records,
    has_row_keys,
    partition_codec,
    source_of,
)
from catalog_migrate.connectors.positions import START, Partition
from catalog_migrate.connectors.postgres.positions import PostgresBounds, PostgresCodec
from catalog_migrate.connectors.postgres.types import Position, lsn_text
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.errors import CatalogMigrateError, UnsafeBlocked
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import earlier_rows
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.upstream_tables import SNAPSHOT_LOADED, is_mirror
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Edit, begin, move
from catalog_migrate.streams.positions.forecast import (
    CurrentPosition,
    Forecast,
    Policy,
    Row,
    Totals,
    forecast,
    translate,
)
from catalog_migrate.streams.positions.requests import ItemRequest, lsn_target
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.upstreams.databases import SlotContents
from catalog_migrate.streams.upstreams.table_snapshots import (
    awaits_snapshot,
    has_begun,
    still_to_copy,
)
from catalog_migrate.streams.upstreams.upstream import next_records


class Survey(msgspec.Struct, frozen=True):
    """What a part comes to now: the forecast, the line to write ("" for none), the ids found.

    ``initial``: what a checkpoint without any batch is given instead of a line; ``standing`` the
    line of before. ``snapshot``: a POSTGRES source takes a new one of these tables, () of all of
    them, None: it does not.
    """

    forecast: Forecast
    line: str = ""
    initial: bytes = b""
    cluster: str = ""
    topics: Mapping[str, str] = msgspec.field(default_factory=dict)
    standing: str = START
    snapshot: tuple[str, ...] | None = None
    copied: tuple[str, ...] = ()

    def edit(self, checkpoint: Checkpoint) -> Edit | None:
        """The edit of a settled checkpoint; None when positions stay as they are."""
        if not self.line:
            return None
        if checkpoint.settled_batch() is None and self.initial:
            return begin(checkpoint, 0, self.initial)
        return move(checkpoint, 0, self.line)


NOTHING = Forecast({}, (), Totals())


class SurveyRequest(msgspec.Struct, frozen=True):
    """A part with what it is about: ``spec`` is of the definition afterwards, ``stream`` the
    committed record of before. ``now`` is in seconds and counts for durations; ``sample`` is
    whether records may be read to see if counts are exact; ``read`` is up to where each topic was
    read by an earlier definition, by the topic's id."""

    ports: Ports
    part: ItemRequest
    spec: QuerySpec
    stream: StreamRecord
    checkpoint: Checkpoint
    policy: Policy
    now: float
    sample: bool = True
    read: Mapping[str, Mapping[Partition, int]] = {}


def postgres_position(checkpoint: Checkpoint, spec: QuerySpec) -> Position | None:
    """Where a POSTGRES source reads on, also one that has taken its snapshot and has no batch."""
    position = PostgresCodec().read(checkpoint.committed_line)
    if position is not None or awaits_snapshot(spec):
        return position
    return Position.of(store_at(spec.snapshot).read(SNAPSHOT_LOADED).decode())


def survey_slot(asked: SurveyRequest) -> Survey:
    """One position for all tables; a new snapshot brings another, or leaves it where it is."""
    part, spec, codec = asked.part, asked.spec, PostgresCodec()
    standing = postgres_position(asked.checkpoint, spec)
    name = f"source {spec.name}"
    if not part.chooses:
        return Survey(NOTHING, standing=codec.write(standing))
    waits = awaits_snapshot(spec)
    if waits and spec.snapshot_number == 1 and not has_begun(spec):
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
    """Take a snapshot: of all tables, and the slot is created again, or of some of them."""
    part, spec, codec = asked.part, asked.spec, PostgresCodec()
    here = slot.here
    tables = part.reset or ()
    if waits:
        tables = still_to_copy(spec, tables)
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
        line = asked.checkpoint.committed_line
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
        notes.append(f"slot {spec.slot} is dropped where it is there, and created again")
        if foreign or "SLOT" in part.keys:
            notes.append(
                "the slot of before stays on its server and keeps the log there until it is "
                "dropped (pg_drop_replication_slot)"
            )
    target = here.lsn if tables and here is not None else slot.latest
    rows = tuple(
        Row(
            table.upstream.full_name, 0, None if here is None else here.lsn, target,
            slot.earliest, slot.latest, skipped=counts.get(table.upstream.full_name, 0),
            note="copied again", log=True,
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
            f"source {spec.name} cannot copy its tables again into those it has", problems=problems,
            remedy=f"DROP SOURCE {spec.name} and create it again with other tables AS names",
        )


def survey(asked: SurveyRequest) -> Survey:
    """Look at the upstream and at the checkpoint.

    Raises :class:`ConnectionFailed`, :class:`UnsafeBlocked`, :class:`EngineFailure`, and what
    reading a checkpoint raises.
    """
    if asked.spec.kind == "sink":
        return _sink(asked)
    source = source_of(asked.spec.external)
    if source.section.tables:
        return survey_slot(asked)
    return _files(asked) if source.codec is None else _partitions(asked)


def _partitions(asked: SurveyRequest) -> Survey:
    stream, choice = asked.stream, asked.part.choice(asked.policy)
    codec = partition_codec(asked.spec.external)
    position = next_records(asked.spec.external, asked.checkpoint)
    standing = CurrentPosition(position, stream.upstream, stream.topics)
    if not choice.chooses:  # the start compares ids, as always
        return Survey(NOTHING, standing=codec.write(standing.positions))
    with asked.ports.upstreams.contents(asked.spec, sample=asked.sample) as contents:
        notes: tuple[str, ...] = ()
        if asked.part.translate is not None:
            times = asked.ports.tables.last_times(asked.spec.shard, standing.topic_ids)
            translation = translate(times, contents, asked.part.translate)
            notes = translation.notes
            choice = replace(
                choice, targets={**translation.targets, **choice.targets}, policy="clamp"
            )
        read = {
            partition: at for topic, topic_id in contents.topic_ids.items()
            for partition, at in asked.read.get(topic_id, {}).items() if partition[0] == topic
        }
        found = forecast(choice, standing, contents, now=asked.now, read=read)
        found = replace(found, notes=(*notes, *found.notes))
    moves = found.moves or bool(found.foreign) or standing.positions is None
    return Survey(
        found,
        codec.write(found.positions) if moves and not found.problems else "",
        codec.write_initial(found.positions) if not found.problems else b"",
        contents.cluster, contents.topic_ids, codec.write(standing.positions),
    )


def _files(asked: SurveyRequest) -> Survey:
    if asked.part.reset is None:
        return Survey(NOTHING)
    note = f"all files of {asked.spec.name} are listed and read again, however many rows they hold"
    line = asked.checkpoint.committed_line
    return Survey(Forecast({}, (), Totals(exact=False), notes=(note,)), START, standing=line)


def _sink(asked: SurveyRequest) -> Survey:
    part, spec = asked.part, asked.spec
    if part.version is None:
        return Survey(NOTHING)
    tables, codec = asked.ports.tables, DeltaCodec()
    bounds = tables.bounds(spec.shard)
    standing = codec.read(asked.checkpoint.committed_line)
    wanted = min(max(part.version, bounds.earliest), bounds.latest + 1)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if wanted != part.version and asked.policy == "clamp":
        notes = (f"version {part.version} is not there: clamped to {wanted}",)
    elif wanted != part.version:
        problems = (
            f"{spec.kind} {spec.name}: version {part.version} is not one of {bounds.earliest} to "
            f"{bounds.latest + 1}, which its table has",
        )
    current = None if standing is None else standing.version
    exact = standing is None or standing.consumed is not None
    row = Row(
        spec.name.name, 0, current, wanted, bounds.earliest, bounds.latest + 1,
        tables.rows_added(spec.shard, wanted, current) if current is not None else 0,
        tables.rows_added(spec.shard, current or 0, wanted), 0,
        "versions of the table; counts are rows",
    )
    found = Forecast({}, (row,), Totals.of((row,), exact=exact), problems, notes)
    line = codec.write(DeltaPosition(bounds.table_id, wanted))
    return Survey(
        found, line if row.moves and not problems else "", standing=codec.write(standing)
    )


def require_no_problem(name: str, found: Forecast) -> None:
    """:class:`UnsafeBlocked` with everything that is wrong with a choice."""
    if found.problems:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed", problems=found.problems,
            remedy="fix what is named; to see what there is, partition by partition: "
            "--to committed --policy allow --plan (EXPLAIN in SQL)",
        )


def left_unread(
    state: State, part: ItemRequest, found: Survey, *, ports: Ports
) -> tuple[int, tuple[str, ...]]:
    """How many records behind the position are no longer read, and notes on what they are.

    Asked of the definition of before; of a broker that is gone nobody can say, and that is a note.
    """
    item = state.items[part.item_id]
    stream = state.streams.get(part.item_id)
    if not has_records(item.definition) or stream is None or not found.topics:
        return 0, ()
    codec = partition_codec(dependencies.external_of(item))
    gone: dict[Partition, int] = {
        partition: offset for partition, offset in (codec.read(found.standing) or {}).items()
        if partition[0] in found.forecast.foreign or partition[0] not in found.topics
    }
    if not gone:
        return 0, ()
    topics = ", ".join(sorted({topic for topic, _ in gone}))
    try:
        spec = spec_of(state, part.item_id, resolve=ports.resolve)
        with ports.upstreams.contents(spec, sample=False) as contents:
            unread = _behind(gone, contents, stream.upstream, dict(stream.topics))
    except CatalogMigrateError as error:
        return 0, (f"what the former {topics} held unread is not known: {error.message}",)
    if not unread:
        return 0, ()
    total = sum(unread.values())
    listed = ", ".join(f"{topic}:{number} {count}" for (topic, number), count in unread.items())
    return total, (
        f"{total} records of the former {topics} are unread, and are not read afterwards "
        f"({listed}); where they count, let the source catch up there first",
    )


def _behind(
    gone: dict[Partition, int], contents: Contents, cluster: str, topics: dict[str, str]
) -> dict[Partition, int]:
    """Records behind each position, of the very topics that it is of."""
    if contents.cluster != cluster:
        return {}
    found = {}
    for partition, offset in sorted(gone.items()):
        same = contents.topic_ids.get(partition[0]) == topics.get(partition[0])
        low, high = contents.bounds.get(partition, (0, 0))
        if same and high > max(low, offset):
            found[partition] = high - max(low, offset)
    return found


def sent_before(state: State, item_id: str, rows: Iterable[Row]) -> list[str]:
    """What a KAFKA sink that goes back would send under keys of other rows, in sentences.

    ``rows`` are those of its forecast: versions of the table that it reads.
    """
    item = state.items[item_id]
    source = state.items.get(item.links.get("reads", ""))
    if not has_row_keys(item.definition):
        return []
    if source is None or source.definition.kind != "source":
        return []
    targets = [row.target for row in rows if row.moves and row.target is not None]
    return [
        f"topic {topic} was created again since: the table has rows of the earlier one up to"
        f" version {version}"
        for topic, version in sorted(earlier_rows(state, item.links["reads"]).items())
        if any(target <= version for target in targets)
    ]
