"""From a choice of positions to numbers, and to what they double, skip and lose (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.positions import OffsetRange, Partition
from catalog_migrate.connectors.postgres.types import lsn_text
from catalog_migrate.errors import InvalidPosition
from catalog_migrate.streams.checkpoint.targets import PartitionBounds, Target, land, moment_of

UPPER_BOUNDS = (
    "offsets are counted, and those of transaction markers, of aborted transactions and of"
    " compacted records hold none that is read: the counts are upper bounds"
)

Policy = Literal["error", "clamp", "allow"]

POLICIES: tuple[Policy, ...] = ("error", "clamp", "allow")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition: next records to read before and after, what the broker holds, what it costs.

    ``current`` is None for a partition (or a topic) that was not read yet, ``target`` for one that
    is no longer read; ``low`` and ``high`` are None when it is not there. ``expired`` counts
    records on the way that the broker no longer has. With ``log`` it is one table of a PostgreSQL
    server: ``topic`` is its name, positions are LSNs, and what is counted are changes.
    """

    topic: str
    partition: int
    current: int | None = None
    target: int | None = None
    low: int | None = None
    high: int | None = None
    doubled: int = 0
    skipped: int = 0
    expired: int = 0
    note: str = ""
    log: bool = False

    @property
    def moves(self) -> bool:
        """Whether the position is another one."""
        return self.current != self.target

    @property
    def name(self) -> str:
        """``topic:0``, or the table."""
        return self.topic if self.log else split_of((self.topic, self.partition))

    def written(self, position: int | None) -> str:
        """A position as people write it, ``-`` for none."""
        if position is None:
            return "-"
        return lsn_text(position) if self.log else str(position)

    @property
    def absent(self) -> int:
        """Of what is passed over, what is not there to be read: expired, or not written yet."""
        if self.current is None or self.target is None or self.target <= self.current:
            return 0
        end = self.target if self.high is None else min(self.high, self.target)
        return min(self.expired, self.target - self.current) + self.target - max(self.current, end)


class Totals(msgspec.Struct, frozen=True):
    """Sums over partitions (and sources); ``exact`` false means "at most"."""

    doubled: int = 0
    skipped: int = 0
    expired: int = 0
    exact: bool = True

    @classmethod
    def of(cls, rows: Iterable[Row], *, exact: bool) -> Totals:
        """The sums of rows."""
        listed = tuple(rows)
        return cls(
            sum(row.doubled for row in listed), sum(row.skipped for row in listed),
            sum(row.expired for row in listed), exact,
        )


    @classmethod
    def over(cls, parts: Iterable[Totals]) -> Totals:
        """The sums of totals; exact when all are."""
        listed = tuple(parts)
        return cls(
            sum(each.doubled for each in listed), sum(each.skipped for each in listed),
            sum(each.expired for each in listed), all(each.exact for each in listed),
        )


class CurrentPosition(msgspec.Struct, frozen=True):
    """Where a source stands: ``positions`` None without a line; ids as they were written down."""

    positions: Mapping[Partition, int] | None
    cluster: str = ""
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)

    def foreign(self, contents: Contents) -> dict[str, str]:
        """Topics that are not those that the positions are of, and why, in words."""
        if not self.topic_ids:
            return {}
        if self.cluster and self.cluster != contents.cluster:
            why = f"the cluster was {self.cluster} and is {contents.cluster}"
            return dict.fromkeys(contents.topic_ids, why)
        found: dict[str, str] = {}
        for topic, now in sorted(contents.topic_ids.items()):
            known = self.topic_ids.get(topic)
            if known is None:
                found[topic] = "was not read before"
            elif known != now:
                found[topic] = f"was created again: its id was {known} and is {now}"
        return found


class PositionChoice(msgspec.Struct, frozen=True):
    """The choice: ``reset`` None leaves discovered partitions alone, () resets all of them.

    ``targets`` go over ``everywhere``, and that over ``reset``; None as a target is ``start``, in
    ``starts`` that of single partitions.
    ``only``: partitions that no target names are no longer read (an exact line to go back to).
    ``origin``: up to where topics were read once that are not read now.
    """

    start: Target
    starts: Mapping[Partition, Target] = msgspec.field(default_factory=dict)
    reset: tuple[Partition, ...] | None = None
    everywhere: Target | None = None
    targets: Mapping[Partition, Target | None] = msgspec.field(default_factory=dict)
    policy: Policy = "error"
    only: bool = False
    origin: Mapping[Partition, int] = msgspec.field(default_factory=dict)

    def begins(self, partitions: Iterable[Partition]) -> dict[Partition, Target]:
        """Where partitions begin that were not read yet."""
        return {each: self.starts.get(each, self.start) for each in partitions}

    @property
    def chooses(self) -> bool:
        """Whether any position is chosen at all."""
        return self.reset is not None or self.everywhere is not None or bool(self.targets)


class Forecast(msgspec.Struct, frozen=True):
    """``positions`` is the complete new line; problems are sentences, empty when all is well.

    ``stays`` counts rows that go from a table and that a sink has sent: they stay where it did.
    """

    positions: Mapping[Partition, int]
    rows: tuple[Row, ...]
    totals: Totals
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    foreign: Mapping[str, str] = msgspec.field(default_factory=dict)
    stays: int = 0

    @property
    def moves(self) -> bool:
        """Whether any position is another one."""
        return any(row.moves for row in self.rows)


def partition_of(split: str) -> Partition:
    """``topic:0`` as a partition; :class:`InvalidPosition`."""
    topic, _, number = split.rpartition(":")
    if not topic or not (number.isascii() and number.isdecimal()):
        raise InvalidPosition(
            f"{split!r} is no partition", remedy="write topic and number, as 'orders:0'"
        )
    return topic, int(number)


def split_of(partition: Partition) -> str:
    """``topic:0``."""
    return f"{partition[0]}:{partition[1]}"


def forecast(
    choice: PositionChoice, standing: CurrentPosition, contents: Contents, *, now: float,
    read: Mapping[Partition, int] | None = None,
) -> Forecast:
    """What the choice comes to; ``now`` is in seconds and counts for durations only.

    ``read`` says up to where topics were read before that are new to the source's positions: what
    lies below that comes again.
    """
    foreign = standing.foreign(contents)
    known = {
        partition: offset for partition, offset in (standing.positions or {}).items()
        if partition[0] not in foreign and partition[0] in contents.topic_ids
    }
    known.update((each, at) for each, at in choice.origin.items() if each[0] in foreign)
    chosen, problems = _chosen(choice, standing, contents, known)
    later = _later(chosen, contents, now)
    rows: list[Row] = []
    positions: dict[Partition, int] = {}
    notes: list[str] = []
    for partition in sorted(contents.bounds):
        low, high = contents.bounds[partition]
        current = known.get(partition)
        if partition not in chosen:
            if current is not None and not choice.only:
                positions[partition] = current
                rows.append(_row(partition, current, current, (low, high)))
            continue
        bounds = PartitionBounds(current, low, high, later.get(partition, {}))
        landed, note = _landed(chosen[partition], bounds, choice.policy, now, partition, problems)
        if note:
            notes.append(f"{split_of(partition)}: {note}")
        if landed is not None:
            positions[partition] = landed
            once = None if current is not None else (read or {}).get(partition)
            if once is not None:
                again = f"read before, up to {once}"
                note = f"{note}; {again}" if note else again
            rows.append(_row(partition, current, landed, (low, high), note, read=once))
    rows += [
        Row(partition[0], partition[1], current=offset, note="no longer read")
        for partition, offset in sorted((standing.positions or {}).items())
        if partition not in positions and partition not in chosen
    ]
    ordered = tuple(sorted(rows, key=lambda row: (row.topic, row.partition)))
    counted = _counted(ordered)
    exact = contents.exact and not contents.gaps(counted)
    if counted and not exact:
        notes.append(UPPER_BOUNDS)
    return Forecast(
        positions, ordered, Totals.of(ordered, exact=exact), tuple(problems), tuple(notes), foreign,
    )


def _counted(rows: Iterable[Row]) -> list[OffsetRange]:
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


def _chosen(
    choice: PositionChoice, standing: CurrentPosition, contents: Contents,
    known: Mapping[Partition, int],
) -> tuple[dict[Partition, Target], list[str]]:
    """The target of each partition that gets one, and what is wrong with the choice."""
    chosen: dict[Partition, Target] = {}
    problems: list[str] = []
    for partition in (*(choice.reset or ()), *choice.targets):
        if partition not in contents.bounds:
            problems.append(
                f"partition {split_of(partition)} does not exist: "
                f"{_present(contents, partition[0])}"
            )
    if choice.reset is not None:
        chosen.update(choice.begins(choice.reset or contents.bounds))
    if choice.everywhere is not None:
        chosen.update(dict.fromkeys(contents.bounds, choice.everywhere))
    chosen.update(
        (partition, choice.begins([partition])[partition] if target is None else target)
        for partition, target in choice.targets.items()
    )
    if choice.only or choice.reset == ():
        return chosen, problems
    gone = [
        each for each in sorted(standing.positions or {})
        if each[0] in contents.topic_ids and each not in contents.bounds
    ]
    if gone:
        problems.append(
            f"{', '.join(map(split_of, gone))} {'is' if len(gone) == 1 else 'are'} no longer "
            "there: add RESET SPLITS, which forgets what was discovered"
        )
    new = [each for each in sorted(contents.bounds) if each not in chosen and each not in known]
    if new and (standing.topic_ids and any(each[0] in standing.foreign(contents) for each in new)):
        problems.append(
            f"{', '.join(map(split_of, new))} of a topic that was not read before "
            f"{'has' if len(new) == 1 else 'have'} no target: add RESET SPLITS, or name "
            f"{'it' if len(new) == 1 else 'them'} in INJECT OFFSETS"
        )
    elif standing.positions is None:
        chosen.update(choice.begins(new))
    else:
        chosen.update(dict.fromkeys(new, Target("earliest", 0, "earliest")))
    return chosen, problems


def _present(contents: Contents, topic: str) -> str:
    numbers = sorted(number for name, number in contents.bounds if name == topic)
    if not numbers:
        return f"the topics read are {', '.join(sorted(contents.topic_ids)) or 'none'}"
    return f"topic {topic} has {numbers[0]} to {numbers[-1]}"


def _later(
    chosen: Mapping[Partition, Target], contents: Contents, now: float
) -> dict[Partition, dict[int, int | None]]:
    """The answers to all questions about times, one question for each moment."""
    asked: dict[int, list[Partition]] = {}
    for partition, target in chosen.items():
        moment = moment_of(target, now)
        if moment is not None and partition in contents.bounds:
            asked.setdefault(moment, []).append(partition)
    answers: dict[Partition, dict[int, int | None]] = {}
    for moment, partitions in asked.items():
        for partition, offset in contents.at(moment, partitions).items():
            answers.setdefault(partition, {})[moment] = offset
    return answers


def _landed(
    target: Target, bounds: PartitionBounds, policy: Policy, now: float, partition: Partition,
    problems: list[str],
) -> tuple[int | None, str]:
    """The number by policy and a note; a problem is added instead where the policy says so."""
    landing = land(target, bounds, now)
    name = split_of(partition)
    if landing.offset is None:
        problems.append(f"{name}: {landing.beyond}")
        return None, ""
    if landing.beyond:
        if policy == "error":
            problems.append(
                f"{name}: {landing.beyond}; its end is {bounds.high}: write latest, or say "
                "POLICY = 'clamp' (--policy clamp)"
            )
            return None, ""
        return landing.offset, f"{landing.beyond}: put at the end, {landing.offset}"
    return _within(landing.offset, bounds, policy, name, problems)


def _within(
    offset: int, bounds: PartitionBounds, policy: Policy, name: str, problems: list[str]
) -> tuple[int | None, str]:
    nearest = min(max(offset, bounds.low), bounds.high)
    if offset == nearest:
        return offset, ""
    side = "below the oldest record kept" if offset < bounds.low else "beyond the end"
    edge = bounds.low if offset < bounds.low else bounds.high
    if policy == "clamp":
        return nearest, f"{offset} is {side}, {edge}: clamped to {nearest}"
    if policy == "allow" and offset >= 0:
        return offset, f"{offset} is {side}, {edge}: the query may refuse it"
    problems.append(f"{name}: {offset} is {side}, {edge}")
    return None, ""


def _row(
    partition: Partition, current: int | None, target: int, bounds: tuple[int, int],
    note: str = "", *, read: int | None = None,
) -> Row:
    """Count what lies between: only what the broker still has is doubled or skipped."""
    low, high = bounds
    current_or_read = current if current is not None else read
    origin = current_or_read or 0

    def there(first: int, last: int) -> int:
        return max(0, min(last, high) - max(first, low))

    doubled = there(target, origin) if current_or_read is not None else 0
    return Row(
        partition[0], partition[1], current, target, low, high, doubled,
        there(origin, target), max(0, low - min(origin, target)), note,
    )


Ties = Literal["double", "skip"]


TIES: tuple[Ties, ...] = ("double", "skip")
"""What becomes of records with the very time of the last stored one: read again, or passed over."""


class Translation(msgspec.Struct, frozen=True):
    """A target for each partition that could be translated, and what could not be."""

    targets: Mapping[Partition, Target]
    notes: tuple[str, ...]


def translate(times: Mapping[Partition, int], contents: Contents, ties: Ties) -> Translation:
    """The targets in what the new upstream holds.

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
    return Translation(targets, tuple(notes))
