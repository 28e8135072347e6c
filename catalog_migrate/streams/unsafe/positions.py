"""Where a query stands and where a request puts it: one survey for each kind of position."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.streams.checkpoint.codec_delta import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec, KafkaPositions, Partition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Edit, begin, move
from catalog_migrate.streams.checkpoint.lines import START
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.unsafe.forecast import (
    CurrentPosition,
    Forecast,
    Policy,
    Row,
    Totals,
    forecast,
    translate,
)
from catalog_migrate.streams.unsafe.requests import Part


class Survey(msgspec.Struct, frozen=True):
    """What a part comes to now: the forecast, the line to write ("" for none), the ids found.

    ``initial``: what a checkpoint without any batch is given instead of a line; ``standing`` the
    line of before.
    """

    forecast: Forecast
    line: str = ""
    initial: bytes = b""
    cluster: str = ""
    topics: Mapping[str, str] = msgspec.field(default_factory=dict)
    standing: str = START

    def edit(self, checkpoint: Checkpoint) -> Edit | None:
        """The edit of a settled checkpoint; None when positions stay as they are."""
        if not self.line:
            return None
        if checkpoint.settled_batch() is None and self.initial:
            return begin(checkpoint, 0, self.initial)
        return move(checkpoint, 0, self.line)


NOTHING = Forecast({}, (), Totals())


def committed_line(checkpoint: Checkpoint) -> str:
    """The line after the newest committed batch; START without one."""
    batch = checkpoint.latest_commits
    return START if batch is None else checkpoint.entry(batch).sources[0]


def kafka_positions(checkpoint: Checkpoint) -> KafkaPositions | None:
    """The next records to read, also of a source that has its first positions but no batch."""
    codec = KafkaCodec()
    positions = codec.read(committed_line(checkpoint))
    if positions is not None:
        return positions
    file = checkpoint.source_directory(0) / "0"
    if checkpoint.latest_commits is None and file.exists():
        return codec.read_initial(file.read_bytes(), str(file))
    return None


class SurveyRequest(msgspec.Struct, frozen=True):
    """A part with what it is about: ``spec`` is of the definition afterwards, ``stream`` the
    committed record of before. ``now`` is in seconds and counts for durations; ``sample`` is
    whether records may be read to see if counts are exact; ``read`` is up to where each topic was
    read by an earlier definition, by the topic's id."""

    ports: Ports
    part: Part
    spec: QuerySpec
    stream: StreamRecord
    checkpoint: Checkpoint
    policy: Policy
    now: float
    sample: bool = True
    read: Mapping[str, Mapping[Partition, int]] = {}


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
    ("source", "KAFKA"): _kafka, ("source", "FILES"): _files,
}


def require_no_problem(name: str, found: Forecast) -> None:
    """:class:`UnsafeBlocked` with everything that is wrong with a choice."""
    if found.problems:
        raise UnsafeBlocked(
            f"{name} cannot be put there, nothing was changed", problems=found.problems,
            remedy="fix what is named; to see what there is, partition by partition: "
            "--to committed --policy allow --plan (EXPLAIN in SQL)",
        )
