"""From a choice of positions to numbers, and to what they double, skip and lose (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.positions import START, OffsetRange, Partition, PartitionCodec
from catalog_migrate.streams.catalog.operation_records import Totals
from catalog_migrate.streams.checkpoint.targets import (
    PartitionBounds,
    Target,
    land,
    moment_of,
    parse_target,
)
from catalog_migrate.streams.positions.plan import Row
from catalog_migrate.streams.positions.requests import (
    ItemRequest,
    Policy,
    Ties,
    partition_of,
    split_of,
)

UPPER_BOUNDS = (
    "offsets are counted, and those of transaction markers, of aborted transactions and of"
    " compacted records hold none that is read: the counts are upper bounds"
)


@dataclass
class Forecast:
    """Predicts what a part's choice of positions comes to, partition by partition.

    ``standing`` are the positions so far, None without a line, of the topics in ``stream``;
    ``now`` is in seconds and counts for durations only. ``read`` says up to where topics were read
    before that are new to the source's positions: what lies below that comes again. ``by_time``
    are targets below those that the part names. ``positions`` is the complete new line;
    ``problems`` are sentences, empty when all is well.
    """

    part: ItemRequest
    policy: Policy
    standing: Mapping[Partition, int] | None
    stream: StreamRecord
    contents: Contents
    now: float
    read: Mapping[Partition, int] = field(default_factory=dict)
    by_time: Mapping[Partition, Target] = field(default_factory=dict)
    positions: dict[Partition, int] = field(init=False, default_factory=dict)
    rows: list[Row] = field(init=False, default_factory=list)
    problems: list[str] = field(init=False, default_factory=list)
    notes: list[str] = field(init=False, default_factory=list)
    totals: Totals = field(init=False, default=Totals())
    foreign: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.foreign = _find_foreign(self.stream, self.contents)

    def predict(self) -> Forecast:
        """Count records; return itself."""
        contents, known = self.contents, self._find_known()
        chosen = self._choose(known)
        later = _ask_times(chosen, contents, self.now)
        for partition in sorted(contents.bounds):
            bounds = PartitionBounds(
                known.get(partition), *contents.bounds[partition], later.get(partition, {})
            )
            if partition in chosen:
                self._put(partition, chosen[partition], bounds)
            elif bounds.current is not None and not self.part.only:
                self._add(partition, bounds, bounds.current)
        self.rows += [
            Row(*partition, current=offset, note="no longer read")
            for partition, offset in (self.standing or {}).items()
            if partition not in self.positions and partition not in chosen
        ]
        self.rows.sort(key=lambda row: (row.topic, row.partition))
        counted = _list_counted(self.rows)
        exact = contents.exact and not contents.gaps(counted)
        if counted and not exact:
            self.notes.append(UPPER_BOUNDS)
        self.totals = Totals.of(self.rows, exact=exact)
        return self

    def _find_known(self) -> dict[Partition, int]:
        known = {
            partition: offset for partition, offset in (self.standing or {}).items()
            if partition[0] not in self.foreign and partition[0] in self.contents.topic_ids
        }
        origin = PartitionCodec().read(self.part.origin or START) or {}
        return known | {each: at for each, at in origin.items() if each[0] in self.foreign}

    def _choose(self, known: Mapping[Partition, int]) -> dict[Partition, Target]:
        part, bounds = self.part, self.contents.bounds
        reset = None if part.reset is None else tuple(map(partition_of, part.reset))
        named = {**self.by_time, **part.read_targets()}
        self.problems += [
            f"partition {split_of(partition)} does not exist: "
            f"{_describe(self.contents, partition[0])}"
            for partition in (*(reset or ()), *named) if partition not in bounds
        ]
        chosen = {} if reset is None else part.begins(reset or bounds)
        if part.everywhere is not None:
            chosen.update(dict.fromkeys(bounds, parse_target(part.everywhere)))
        chosen.update(named)
        if not part.only and reset != ():
            self._require_discovered()
            new = [each for each in sorted(bounds) if each not in chosen and each not in known]
            chosen.update(self._begin(new))
        return chosen

    def _require_discovered(self) -> None:
        missing = [
            each for each in sorted(self.standing or {})
            if each[0] in self.contents.topic_ids and each not in self.contents.bounds
        ]
        if missing:
            self.problems.append(
                f"{', '.join(map(split_of, missing))} {'is' if len(missing) == 1 else 'are'} no "
                "longer there: add RESET SPLITS, which forgets what was discovered"
            )

    def _begin(self, new: list[Partition]) -> dict[Partition, Target]:
        if any(each[0] in self.foreign for each in new):
            one = len(new) == 1
            self.problems.append(
                f"{', '.join(map(split_of, new))} of a topic that was not read before "
                f"{'has' if one else 'have'} no target: add RESET SPLITS, or name "
                f"{'it' if one else 'them'} in INJECT OFFSETS"
            )
            return {}
        if self.standing is None:
            return self.part.begins(new)
        return dict.fromkeys(new, Target("earliest", 0, "earliest"))

    def _put(self, partition: Partition, target: Target, bounds: PartitionBounds) -> None:
        offset, note = self._land(target, bounds, split_of(partition))
        if note:
            self.notes.append(f"{split_of(partition)}: {note}")
        if offset is None:
            return
        once = None if bounds.current is not None else self.read.get(partition)
        if once is not None:
            note = "; ".join(filter(None, (note, f"read before, up to {once}")))
        self._add(partition, bounds, offset, note, read=once)

    def _land(
        self, target: Target, bounds: PartitionBounds, name: str
    ) -> tuple[int | None, str]:
        """The number by policy and a note; a problem is added instead where the policy says so."""
        landing = land(target, bounds, self.now)
        if landing.offset is None:
            self.problems.append(f"{name}: {landing.beyond}")
            return None, ""
        if not landing.beyond:
            return self._clamp(landing.offset, bounds, name)
        if self.policy == "error":
            self.problems.append(
                f"{name}: {landing.beyond}; its end is {bounds.high}: write latest, or say "
                "POLICY = 'clamp' (--policy clamp)"
            )
            return None, ""
        return landing.offset, f"{landing.beyond}: put at the end, {landing.offset}"

    def _clamp(self, offset: int, bounds: PartitionBounds, name: str) -> tuple[int | None, str]:
        nearest = min(max(offset, bounds.low), bounds.high)
        if offset == nearest:
            return offset, ""
        side = "below the oldest record kept" if offset < bounds.low else "beyond the end"
        edge = bounds.low if offset < bounds.low else bounds.high
        if self.policy == "clamp":
            return nearest, f"{offset} is {side}, {edge}: clamped to {nearest}"
        if self.policy == "allow" and offset >= 0:
            return offset, f"{offset} is {side}, {edge}: the query may refuse it"
        self.problems.append(f"{name}: {offset} is {side}, {edge}")
        return None, ""

    def _add(
        self, partition: Partition, bounds: PartitionBounds, target: int, note: str = "", *,
        read: int | None = None,
    ) -> None:
        """Count what lies between: only what the broker still has is doubled or skipped."""
        low, high = bounds.low, bounds.high
        current_or_read = bounds.current if bounds.current is not None else read
        origin = current_or_read or 0

        def count(first: int, last: int) -> int:
            return max(0, min(last, high) - max(first, low))

        self.positions[partition] = target
        self.rows.append(Row(
            *partition, bounds.current, target, low, high,
            doubled=count(target, origin) if current_or_read is not None else 0,
            skipped=count(origin, target), expired=max(0, low - min(origin, target)), note=note,
        ))


def _find_foreign(stream: StreamRecord, contents: Contents) -> dict[str, str]:
    """Topics that are not those that the positions are of, and why, in words."""
    if not stream.topics:
        return {}
    if stream.upstream and stream.upstream != contents.cluster:
        why = f"the cluster was {stream.upstream} and is {contents.cluster}"
        return dict.fromkeys(contents.topic_ids, why)
    found: dict[str, str] = {}
    for topic, now in sorted(contents.topic_ids.items()):
        known = stream.topics.get(topic)
        if known is None:
            found[topic] = "was not read before"
        elif known != now:
            found[topic] = f"was created again: its id was {known} and is {now}"
    return found


def _list_counted(rows: Iterable[Row]) -> list[OffsetRange]:
    """The ranges that the counts of rows are of: what the broker has between the positions."""
    found = []
    for row in rows:
        if row.doubled or row.skipped:
            low, high, target = row.low or 0, row.high or 0, row.target or 0
            ends = (target, 0 if row.current is None else row.current)
            found.append(
                OffsetRange(row.topic, row.partition, max(min(ends), low), min(max(ends), high))
            )
    return found


def _describe(contents: Contents, topic: str) -> str:
    numbers = sorted(number for name, number in contents.bounds if name == topic)
    if not numbers:
        return f"the topics read are {', '.join(sorted(contents.topic_ids)) or 'none'}"
    return f"topic {topic} has {numbers[0]} to {numbers[-1]}"


def _ask_times(
    chosen: Mapping[Partition, Target], contents: Contents, now: float
) -> dict[Partition, dict[int, int | None]]:
    """The answers to all questions about times, one question for each moment."""
    questions: dict[int, list[Partition]] = {}
    for partition, target in chosen.items():
        moment = moment_of(target, now)
        if moment is not None and partition in contents.bounds:
            questions.setdefault(moment, []).append(partition)
    answers: dict[Partition, dict[int, int | None]] = {}
    for moment, partitions in questions.items():
        for partition, offset in contents.at(moment, partitions).items():
            answers.setdefault(partition, {})[moment] = offset
    return answers


def translate(
    times: Mapping[Partition, int], contents: Contents, ties: Ties
) -> tuple[dict[Partition, Target], list[str]]:
    """Return the targets in what the new upstream holds, and notes on what has none.

    A partition goes on after the last stored record of its own number where each new one has an old
    one, else all go on after the earliest of the last ones: no record is lost, some are doubled.
    """
    later = 1 if ties == "skip" else 0
    topics = {topic for topic, _ in times}
    by_number: dict[int, int] = {}
    for (_, number), moment in times.items():
        by_number[number] = min(moment, by_number.get(number, moment))
    numbers = {number for _, number in contents.bounds}
    own = len(topics) == 1 and len(contents.topic_ids) == 1 and numbers == set(by_number)
    earliest = min(times.values(), default=None)
    notes = []
    targets: dict[Partition, Target] = {}
    for partition in sorted(contents.bounds):
        found = by_number[partition[1]] if own else earliest
        if found is None:
            notes.append(f"{split_of(partition)}: no record was stored yet, it begins at START")
            continue
        at = found + later
        targets[partition] = Target("time", at, f"{at} ms since 1970")
    if targets and not own:
        notes.append(
            "partitions are others than before: all go on after the oldest of their last records"
        )
    return targets, notes
