"""Where a partition is put: the forms of a target, and the number that each comes to.

A number is always the *next* record to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from catalog_migrate.connectors.values import BadValue, splits_of, start_of
from catalog_migrate.errors import InvalidPosition
from catalog_migrate.model.objects import External

Kind = Literal["number", "earliest", "latest", "committed", "time", "ago", "shift"]

FORMS = (
    "a number (the next record to read), earliest, latest, committed, 'timestamp "
    "2026-01-31T00:00:00Z', 'duration PT2H' or 'shift -100'"
)
_LARGEST = 2**63 - 1
_DURATION = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?\Z", re.IGNORECASE
)
_SHIFT = re.compile(r"[+-]?\d{1,18}\Z")
_SECONDS = (86_400, 3_600, 60, 1)


class Target(msgspec.Struct, frozen=True):
    """``value`` is an offset, milliseconds since 1970, milliseconds back, or a count of records."""

    kind: Kind
    value: int = 0
    text: str = ""


class PartitionBounds(msgspec.Struct, frozen=True):
    """What is known of one partition: ``current`` is None for one that has no position yet.

    ``later`` gives for a moment the first record at or after it, None when there is none.
    """

    current: int | None
    low: int
    high: int
    later: Mapping[int, int | None]


class Landing(msgspec.Struct, frozen=True):
    """The number that a target comes to; ``beyond`` says why it is only the end of the partition.

    ``offset`` None: it comes to nothing, and ``beyond`` says why.
    """

    offset: int | None
    beyond: str = ""


def parse_target(text: str) -> Target:
    """Read a target; :class:`InvalidPosition` with the forms that there are."""
    word, _, rest = text.strip().partition(" ")
    if not rest and word.isascii() and word.isdecimal() and int(word) <= _LARGEST:
        return Target("number", int(word), word)
    if not rest and re.fullmatch(r"-\d+", word):
        raise InvalidPosition(
            f"{text!r} is negative: a position is the next record to read, from 0",
            remedy="write 'shift -100' to go back by a number of records",
        )
    read = _READERS.get(word.lower())
    if read is None:
        raise InvalidPosition(f"{text!r} is no position", remedy=f"write {FORMS}")
    return read(rest.strip().strip("'"), text.strip())


def start_targets(external: External) -> tuple[Target, dict[tuple[str, int], Target]]:
    """Return the targets that START and, by (topic, partition), START OFFSETS of a source mean."""
    single = external.options.get("START OFFSETS")
    return start_target(str(external.options.get("START", "earliest"))), {
        partition: start_target(text)
        for partition, text in ({} if single is None else splits_of(str(single))).items()
    }


def start_target(start: str | None) -> Target:
    """Return the target that a START option, or one of START OFFSETS, means."""
    written = start or "earliest"
    moment = None if written.isdecimal() else start_of(written)
    if moment is None:
        return parse_target(written)
    return Target("time", round(moment.timestamp() * 1000), f"timestamp {written}")


def moment_of(target: Target, now: float) -> int | None:
    """Milliseconds since 1970 that a target asks about; None when it asks about no time.

    ``now`` is in seconds.
    """
    if target.kind == "time":
        return target.value
    return round(now * 1000) - target.value if target.kind == "ago" else None


def land(target: Target, bounds: PartitionBounds, now: float) -> Landing:
    """The number that ``target`` comes to within ``bounds``; nothing is checked against them."""
    return _LANDINGS[target.kind](target, bounds, now)


# -- reading -------------------------------------------------------------------------------------


def _bare(kind: Kind) -> Callable[[str, str], Target]:
    def read(rest: str, text: str) -> Target:
        if rest:
            raise InvalidPosition(f"{text!r} is no position", remedy=f"write {kind}, nothing else")
        return Target(kind, 0, kind)

    return read


def _time(rest: str, text: str) -> Target:
    try:
        moment = start_of(rest)
    except BadValue as error:
        raise InvalidPosition(
            f"{text!r} is no position: {error}", remedy="write 'timestamp 2026-01-31T00:00:00Z'"
        ) from error
    if moment is None:
        raise InvalidPosition(f"{text!r} is no position", remedy=f"write {rest} alone")
    return Target("time", round(moment.timestamp() * 1000), text)


def _ago(rest: str, text: str) -> Target:
    match = _DURATION.match(rest)
    if match is None or not any(match.groups()):
        raise InvalidPosition(
            f"{text!r} is no position: a duration as PT2H or P1DT30M is expected",
            remedy="write 'duration PT2H'",
        )
    seconds = sum(
        int(part or 0) * size for part, size in zip(match.groups(), _SECONDS, strict=True)
    )
    return Target("ago", seconds * 1000, text)


def _shift(rest: str, text: str) -> Target:
    if not _SHIFT.match(rest):
        raise InvalidPosition(
            f"{text!r} is no position: a whole number of records is expected",
            remedy="write 'shift -100' or 'shift 3'",
        )
    return Target("shift", int(rest), text)


_READERS: Mapping[str, Callable[[str, str], Target]] = {
    "earliest": _bare("earliest"), "latest": _bare("latest"), "committed": _bare("committed"),
    "timestamp": _time, "duration": _ago, "shift": _shift,
}


# -- landing -------------------------------------------------------------------------------------


def _standing(bounds: PartitionBounds, by: int, what: str) -> Landing:
    if bounds.current is None:
        return Landing(None, f"{what}, but nothing was read there yet")
    return Landing(bounds.current + by)


def _at(target: Target, bounds: PartitionBounds, now: float) -> Landing:
    moment = moment_of(target, now)
    assert moment is not None
    found = bounds.later.get(moment)
    if found is None:
        return Landing(bounds.high, f"no record is as young as {target.text}")
    return Landing(found)


_LANDINGS: Mapping[Kind, Callable[[Target, PartitionBounds, float], Landing]] = {
    "number": lambda target, _bounds, _now: Landing(target.value),
    "earliest": lambda _target, bounds, _now: Landing(bounds.low),
    "latest": lambda _target, bounds, _now: Landing(bounds.high),
    "committed": lambda target, bounds, _now: _standing(bounds, 0, target.text),
    "shift": lambda target, bounds, _now: _standing(bounds, target.value, target.text),
    "time": _at,
    "ago": _at,
}
