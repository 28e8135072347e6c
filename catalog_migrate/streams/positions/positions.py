"""The position of a query, and the one that a request chooses: a survey for each kind of them.

And what stays behind. Records of a topic that a source goes away from stay unread. Of a topic that
was created again under its name a table may have rows of both: a row says the topic's name and not
its id, and the keys that a KAFKA sink gives to its rows have the id. So rows of the earlier one
must not be sent any more: a consumer would take them for rows of the new one.

A POSTGRES source has one position for all of its tables, within its slot or on a new one. A new
snapshot has its number in the record of positions; the start of the query takes it
(see ``streams/upstreams/table_snapshots.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from catalog_migrate.connectors.positions import START, Partition, PartitionCodec
from catalog_migrate.connectors.postgres.positions import PostgresBounds, PostgresCodec
from catalog_migrate.connectors.postgres.types import Position, lsn_text
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.errors import CatalogMigrateError, UnsafeBlocked
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import (
    Move,
    Totals,
    earlier_rows,
    read_before,
)
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.catalog.upstream_tables import SNAPSHOT_LOADED, is_mirror
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.targets import Target
from catalog_migrate.streams.positions.forecast import Forecast, translate
from catalog_migrate.streams.positions.plan import ItemPlan, Row
from catalog_migrate.streams.positions.requests import ItemRequest, Request, lsn_target
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.upstreams.databases import SlotContents
from catalog_migrate.streams.upstreams.table_snapshots import (
    awaits_snapshot,
    has_begun,
    still_to_copy,
)
from catalog_migrate.streams.upstreams.upstream import next_records


@dataclass(frozen=True)
class Survey:
    """Looks at one part of a request: at its query, and at what that reads.

    ``after`` is the state with the definitions of afterwards. ``now`` is in seconds and counts for
    durations; ``sample`` is whether records may be read to see if counts are exact.
    """

    state: State
    after: State
    request: Request
    part: ItemRequest
    ports: Ports
    now: float
    sample: bool = True

    @property
    def name(self) -> str:
        """``source schema.name``."""
        definition = self.state.items[self.part.item_id].definition
        return f"{definition.kind} {definition.item_name}"

    @cached_property
    def stream(self) -> StreamRecord:
        """The record as it is committed."""
        return self.state.streams.get(self.part.item_id) or first_stream(self.part.item_id)

    @cached_property
    def spec(self) -> QuerySpec:
        """The query by the definition of afterwards."""
        return spec_of(self.after, self.part.item_id, resolve=self.ports.resolve)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Its checkpoint."""
        return self.ports.checkpoint(self.spec.checkpoint)

    def find_read(self, contents: Contents) -> dict[Partition, int]:
        """Return up to where the topics were read by an earlier definition."""
        before = read_before(self.state, self.part.item_id)
        return {
            partition: at for topic, topic_id in contents.topic_ids.items()
            for partition, at in before.get(topic_id, {}).items() if partition[0] == topic
        }

    def stay(self, line: str = START) -> ItemPlan:
        """Return the plan of an item whose positions stay, at ``line``."""
        part, stream, item = self.part, self.stream, self.state.items[self.part.item_id]
        shard = (item.shard or "") if self.spec.kind == "source" else ""
        return ItemPlan(
            part.item_id, item.definition.kind, str(item.definition.item_name), part.keys,
            move=Move(
                part.item_id, part.before, part.links_before, line, stream.generation,
                upstream=stream.upstream, topics=dict(stream.topics), shard=shard,
                version=self.ports.tables.newest(self.spec.shard) if shard else None,
                past=bool(part.past),
            ),
        )

    def look(self) -> ItemPlan:
        """Look at the upstream and at the checkpoint.

        Raises :class:`ConnectionFailed`, :class:`UnsafeBlocked`, :class:`EngineFailure`, and what
        reading a checkpoint raises.
        """
        if self.spec.kind == "sink":
            return _survey_sink(self)
        source = source_of(self.spec.external)
        if source.section.tables:
            return _survey_slot(self)
        if source.codec is None:
            return _survey_files(self)
        if not isinstance(source.codec, PartitionCodec) and not self.part.chooses:
            return self.stay(self.checkpoint.committed_line)
        return _survey_partitions(self)


def put(item: ItemPlan, target: str, **fields: Any) -> ItemPlan:
    """Return the plan with positions that go to the line ``target`` ("": they stay), and with
    ``fields`` of its move."""
    move = item.recorded
    generation = move.generation + bool(target)
    return replace(item, move=replace(move, target=target, generation=generation, **fields))


def postgres_position(checkpoint: Checkpoint, spec: QuerySpec) -> Position | None:
    """Return where a POSTGRES source reads on, also one that has a snapshot and no batch yet."""
    position = PostgresCodec().read(checkpoint.committed_line)
    if position is not None or awaits_snapshot(spec):
        return position
    return Position.of(store_at(spec.snapshot).read(SNAPSHOT_LOADED).decode())


def _survey_slot(survey: Survey) -> ItemPlan:
    """One position for all tables; a new snapshot brings another, or leaves it where it is."""
    part, spec = survey.part, survey.spec
    standing = postgres_position(survey.checkpoint, spec)
    item = survey.stay(PostgresCodec().write(standing))
    if not part.chooses:
        return item
    waits = awaits_snapshot(spec)
    if waits and spec.snapshot_number == 1 and not has_begun(spec):
        raise UnsafeBlocked(
            f"{survey.name} has not taken its first snapshot yet",
            remedy="start its cluster (catalog-migrate run), or RESUME it",
        )
    if part.everywhere is not None and (waits or survey.checkpoint.latest_commits is None):
        raise UnsafeBlocked(
            f"{survey.name} has not read a change since its snapshot",
            remedy="let it run once before",
        )
    with survey.ports.databases.slot(spec, standing) as slot:
        if part.everywhere is not None:
            return _inject(survey, item, slot, lsn_target(part.everywhere))
        tables = still_to_copy(spec, part.reset or ()) if waits else part.reset or ()
        return _copy(survey, item, slot, tables)


def _copy(
    survey: Survey, item: ItemPlan, slot: SlotContents, tables: tuple[str, ...]
) -> ItemPlan:
    listed = [
        table for table in survey.spec.tables
        if not tables or table.upstream.full_name in tables
    ]
    require_copyable(survey, listed)
    if tables:
        return _copy_some(survey, item, slot, listed, tables)
    return _copy_all(survey, item, slot, listed)


def _inject(
    survey: Survey, item: ItemPlan, slot: SlotContents, wanted: int | str
) -> ItemPlan:
    """The source goes on elsewhere in the log of its server, within what its slot has."""
    spec, codec, here = survey.spec, PostgresCodec(), slot.here
    if slot.problem or slot.earliest is None or here is None:
        raise UnsafeBlocked(
            f"{survey.name} cannot be put there, nothing was changed",
            problems=[slot.problem or slot.foreign],
            remedy=f"take a new snapshot: ALTER SOURCE {spec.name} UNSAFE RESET SPLITS REASON '…'",
        )
    places = {"earliest": slot.earliest, "latest": slot.latest, "committed": here.lsn}
    lsn = places[wanted] if isinstance(wanted, str) else wanted
    notes = []
    inside = min(max(lsn, slot.earliest), slot.latest)
    if survey.request.policy == "clamp" and lsn != inside:
        notes.append(f"{lsn_text(lsn)} is not there: clamped to {lsn_text(inside)}")
        lsn = inside
    target = Position(lsn, slot.timeline, slot.system)
    wrong = codec.check(target, _bounds(slot))
    if wrong:
        raise UnsafeBlocked(
            f"{survey.name} cannot be put there, nothing was changed", problems=wrong,
            remedy=f"write an LSN from {lsn_text(slot.earliest)} to {lsn_text(slot.latest)}, or "
            "latest",
        )
    if lsn == here.lsn:
        rows = _rows(spec.tables, slot, lsn, {})
        return replace(item, rows=rows, notes=tuple(notes))
    counts = _count_changes(survey, slot, here.lsn, lsn)
    back = lsn < here.lsn
    notes.append(_describe_effect(spec, back=back))
    if not counts:
        notes.append(_unknown(here.lsn, lsn))
    rows = _rows(spec.tables, slot, lsn, counts, back=back)
    totals = Totals.of(rows, exact=bool(counts))
    target_line = codec.write(target) if rows else ""
    return put(replace(item, rows=rows, totals=totals, notes=tuple(notes)), target_line)


def _bounds(slot: SlotContents) -> PostgresBounds:
    assert slot.earliest is not None
    return PostgresBounds(slot.system, slot.timeline, slot.earliest, slot.latest)


def _rows(
    tables: Sequence[OutputTable], slot: SlotContents, target: int, counts: Mapping[str, int], *,
    back: bool = False, note: str = "",
) -> tuple[Row, ...]:
    here = None if slot.here is None else slot.here.lsn
    names = [table.upstream.full_name for table in tables]
    return tuple(
        Row(
            name, 0, here, target, slot.earliest, slot.latest, doubled=count if back else 0,
            skipped=0 if back else count, note=note, log=True,
        )
        for name, count in ((each, counts.get(each, 0)) for each in names)
    )


def _copy_some(
    survey: Survey, item: ItemPlan, slot: SlotContents, listed: Sequence[OutputTable],
    tables: tuple[str, ...],
) -> ItemPlan:
    here, problem = slot.here, slot.problem or slot.foreign
    if not problem and here is not None and slot.earliest is not None:
        problem = "; ".join(PostgresCodec().check(here, _bounds(slot)))
    if problem:
        raise UnsafeBlocked(
            f"{survey.name} cannot read on where it is, nothing was changed",
            problems=[problem], remedy="take a snapshot of all of its tables: RESET SPLITS",
        )
    rows = _rows(listed, slot, slot.latest if here is None else here.lsn, {}, note=_AGAIN)
    item = replace(
        item, rows=rows, notes=(_COPIED[is_mirror(survey.spec.external)],),
        snapshot=tuple(row.topic for row in rows),
    )
    return put(item, survey.checkpoint.committed_line, retaken=tables)


def _copy_all(
    survey: Survey, item: ItemPlan, slot: SlotContents, listed: Sequence[OutputTable]
) -> ItemPlan:
    spec, here, known = survey.spec, slot.here, survey.stream.upstream
    cluster = survey.ports.upstreams.identify(spec).upstream
    foreign = {}
    if known and known != cluster:
        foreign = {"server": f"was {known} and is {cluster}"}
    notes = [_COPIED[is_mirror(spec.external)]]
    counts: Mapping[str, int] = {}
    exact = False
    if here is not None:
        counts = _count_changes(survey, slot, here.lsn, slot.latest)
        exact = bool(counts) or here.lsn == slot.latest
        if not exact:
            notes.append(_unknown(here.lsn, slot.latest))
    else:
        notes.append(f"{slot.foreign}: which changes are passed over is not known"
                     if slot.foreign else "it waits for the snapshot that was asked for before")
    notes.append(f"slot {spec.slot} is dropped where it is there, and created again")
    if foreign or "SLOT" in survey.part.keys:
        notes.append(
            "the slot of before stays on its server and keeps the log there until it is "
            "dropped (pg_drop_replication_slot)"
        )
    rows = _rows(listed, slot, slot.latest, counts, note=_AGAIN)
    item = replace(
        item, rows=rows, totals=Totals.of(rows, exact=exact), notes=tuple(notes), foreign=foreign,
        snapshot=tuple(row.topic for row in rows),
    )
    return put(item, START, upstream_after=cluster, retaken=())


_AGAIN = "copied again"

_COPIED = {
    True: "the tables become what is upstream: rows that are gone there go here too (with SOFT "
    "DELETES they are marked)",
    False: "the rows upstream are appended with _operation 'snapshot'; what stands in the tables "
    "stays",
}


def _describe_effect(spec: QuerySpec, *, back: bool) -> str:
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


def _count_changes(
    survey: Survey, slot: SlotContents, one: int, other: int
) -> Mapping[str, int]:
    """The changes of each table between two LSNs; empty where that is not known."""
    if one == other or not survey.sample:
        return {}
    return slot.counts(min(one, other), max(one, other)) or {}


def require_copyable(survey: Survey, tables: Sequence[OutputTable]) -> None:
    """:class:`UnsafeBlocked` for a column that has another type upstream than our table was made
    for."""
    spec = survey.spec
    there = survey.ports.databases.tables(
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


def _survey_partitions(survey: Survey) -> ItemPlan:
    part, stream, external = survey.part, survey.stream, survey.spec.external
    codec, standing = partition_codec(external), next_records(external, survey.checkpoint)
    item = survey.stay(codec.write(standing))
    if not part.chooses:  # the start compares ids, as always
        return item
    with survey.ports.upstreams.contents(survey.spec, sample=survey.sample) as contents:
        by_time: dict[Partition, Target] = {}
        notes: list[str] = []
        policy = survey.request.policy
        if part.translate is not None:
            times = survey.ports.tables.last_times(survey.spec.shard, stream.topics)
            by_time, notes = translate(times, contents, part.translate)
            policy = "clamp"
        found = Forecast(
            part, policy, standing, stream, contents, survey.now, survey.find_read(contents),
            by_time,
        ).predict()
    initial = b"" if found.problems else codec.write_initial(found.positions)
    if not found.problems and not initial and survey.checkpoint.latest_offsets is None:
        found.problems.append(
            f"source {survey.spec.name} has read nothing yet, and {external.connector} sources "
            "take no first positions: let it read a batch"
        )
    item = replace(
        item, rows=tuple(found.rows), totals=found.totals, notes=(*notes, *found.notes),
        foreign=found.foreign, topics=dict(contents.topic_ids), problems=tuple(found.problems),
    )
    moves = item.moves or bool(found.foreign) or standing is None
    line = codec.write(found.positions) if moves and not found.problems else ""
    item = replace(item, initial=initial)
    return put(item, line, upstream_after=contents.cluster, topics_after=item.topics)


def _survey_files(survey: Survey) -> ItemPlan:
    if survey.part.reset is None:
        return survey.stay()
    note = f"all files of {survey.spec.name} are listed and read again, however many rows they hold"
    item = replace(
        survey.stay(survey.checkpoint.committed_line), totals=Totals(exact=False), notes=(note,)
    )
    return put(item, START)


def _survey_sink(survey: Survey) -> ItemPlan:
    part, spec = survey.part, survey.spec
    if part.version is None:
        return survey.stay()
    tables, codec = survey.ports.tables, DeltaCodec()
    bounds = tables.bounds(spec.shard)
    standing = codec.read(survey.checkpoint.committed_line)
    wanted = min(max(part.version, bounds.earliest), bounds.latest + 1)
    item = survey.stay(codec.write(standing))
    if wanted != part.version and survey.request.policy == "clamp":
        note = f"version {part.version} is not there: clamped to {wanted}"
        item = replace(item, notes=(note,))
    elif wanted != part.version:
        problem = (
            f"{spec.kind} {spec.name}: version {part.version} is not one of {bounds.earliest} to "
            f"{bounds.latest + 1}, which its table has"
        )
        item = replace(item, problems=(problem,))
    current = None if standing is None else standing.version
    exact = standing is None or standing.consumed is not None
    row = Row(
        spec.name.name, 0, current, wanted, bounds.earliest, bounds.latest + 1,
        tables.rows_added(spec.shard, wanted, current) if current is not None else 0,
        tables.rows_added(spec.shard, current or 0, wanted), 0,
        "versions of the table; counts are rows",
    )
    item = replace(item, rows=(row,), totals=Totals.of((row,), exact=exact))
    line = codec.write(DeltaPosition(bounds.table_id, wanted))
    return put(item, line if row.moves and not item.problems else "")


def require_no_problem(name: str, item: ItemPlan) -> None:
    """Raise :class:`UnsafeBlocked` with everything that is wrong with a choice."""
    if item.problems:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed", problems=item.problems,
            remedy="fix what is named; to see what there is, partition by partition: "
            "--to committed --policy allow --plan (EXPLAIN in SQL)",
        )


def left_unread(state: State, item: ItemPlan, *, ports: Ports) -> tuple[int, tuple[str, ...]]:
    """Count the records behind the position that are no longer read, with notes on them.

    The present definition says where they are; of a broker that is missing it is not known, and
    that is a note.
    """
    there, stream = state.items[item.item_id], state.streams.get(item.item_id)
    if not has_records(there.definition) or stream is None or not item.topics:
        return 0, ()
    codec = partition_codec(dependencies.external_of(there))
    left: dict[Partition, int] = {
        partition: offset
        for partition, offset in (codec.read(item.recorded.line) or {}).items()
        if partition[0] in item.foreign or partition[0] not in item.topics
    }
    if not left:
        return 0, ()
    topics = ", ".join(sorted({topic for topic, _ in left}))
    try:
        spec = spec_of(state, item.item_id, resolve=ports.resolve)
        with ports.upstreams.contents(spec, sample=False) as contents:
            unread = _behind(left, contents, stream.upstream, dict(stream.topics))
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
    left: dict[Partition, int], contents: Contents, cluster: str, topics: dict[str, str]
) -> dict[Partition, int]:
    """Records behind each position, of the very topics that it is of."""
    if contents.cluster != cluster:
        return {}
    found = {}
    for partition, offset in sorted(left.items()):
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
