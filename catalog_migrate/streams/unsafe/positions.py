"""Where a query stands and where a request puts it: one survey for each kind of position.

And what stays behind. Records of a topic that a source goes away from stay unread. Of a topic that
was created again under its name a table may have rows of both: a row says the topic's name and not
its id, and the keys that a KAFKA sink gives to its rows have the id. So rows of the earlier one
must not be sent any more: a consumer would take them for rows of the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.codecs import (
    START,
    DeltaCodec,
    DeltaPosition,
    KafkaCodec,
    KafkaPositions,
    Partition,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.errors import UnsafeBlocked
from catalog_migrate.streams.operation_records import earlier_rows
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.specs import spec_of
from catalog_migrate.streams.unsafe.forecast import (
    CurrentPosition,
    Forecast,
    Row,
    Totals,
    forecast,
    translate,
)
from catalog_migrate.streams.unsafe.requests import Part
from catalog_migrate.streams.unsafe.slots import survey_slot
from catalog_migrate.streams.unsafe.surveys import NOTHING, Survey, SurveyRequest, committed_line
from catalog_migrate.streams.upstream import TopicContents


def kafka_positions(checkpoint: Checkpoint) -> KafkaPositions | None:
    """The next records to read, also of a source that has its first positions but no batch."""
    codec = KafkaCodec()
    positions = codec.read(committed_line(checkpoint))
    if positions is not None:
        return positions
    if checkpoint.latest_commits is not None:
        return None
    name = checkpoint.initial_offsets(0)
    try:
        return codec.read_initial(checkpoint.store.read(name), checkpoint.store.place(name))
    except FileNotFoundError:
        return None


def survey(asked: SurveyRequest) -> Survey:
    """Look at the upstream and at the checkpoint.

    Raises :class:`ConnectionFailed`, :class:`UnsafeBlocked`, :class:`EngineFailure`, and what
    reading a checkpoint raises.
    """
    kind, connector = asked.spec.kind, asked.spec.external.connector or ""
    return _SURVEYS.get((kind, connector), _sink)(asked)


def _kafka(asked: SurveyRequest) -> Survey:
    stream, choice = asked.stream, asked.part.choice(asked.policy)
    standing = CurrentPosition(kafka_positions(asked.checkpoint), stream.upstream, stream.topics)
    if not choice.chooses:  # the start compares ids, as always
        return Survey(NOTHING, standing=KafkaCodec().write(standing.positions))
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
    codec = KafkaCodec()
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
    line = committed_line(asked.checkpoint)
    return Survey(Forecast({}, (), Totals(exact=False), notes=(note,)), START, standing=line)


def _sink(asked: SurveyRequest) -> Survey:
    part, spec = asked.part, asked.spec
    if part.version is None:
        return Survey(NOTHING)
    tables, codec = asked.ports.tables, DeltaCodec()
    bounds = tables.bounds(spec.shard)
    standing = codec.read(committed_line(asked.checkpoint))
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


_SURVEYS: Mapping[tuple[str, str], Callable[[SurveyRequest], Survey]] = {
    ("source", "KAFKA"): _kafka, ("source", "FILES"): _files, ("source", "POSTGRES"): survey_slot,
}


def require_no_problem(name: str, found: Forecast) -> None:
    """:class:`UnsafeBlocked` with everything that is wrong with a choice."""
    if found.problems:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed", problems=found.problems,
            remedy="fix what is named; to see what there is, partition by partition: "
            "--to committed --policy allow --plan (EXPLAIN in SQL)",
        )


def left_unread(
    state: State, part: Part, found: Survey, *, ports: Ports
) -> tuple[int, tuple[str, ...]]:
    """How many records behind the position are no longer read, and notes on what they are.

    Asked of the definition of before; of a broker that is gone nobody can say, and that is a note.
    """
    item = state.items[part.item_id]
    stream = state.streams.get(part.item_id)
    kafka = item.definition.kind == "source" and dependencies.external_of(item).connector == "KAFKA"
    if not kafka or stream is None or not found.topics:
        return 0, ()
    gone: dict[Partition, int] = {
        partition: offset for partition, offset in (KafkaCodec().read(found.standing) or {}).items()
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
        f"{total} records of the former {topics} are unread, and nobody reads them afterwards "
        f"({listed}); where they count, let the source catch up there first",
    )


def _behind(
    gone: dict[Partition, int], contents: TopicContents, cluster: str, topics: dict[str, str]
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
    if item.definition.kind != "sink" or dependencies.external_of(item).connector != "KAFKA":
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
