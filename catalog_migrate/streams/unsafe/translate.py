"""Positions of an old topic said in terms of a new one, by the time of the last stored record.

The time comes from the source's own table, so that the old cluster may be dead. It is right where
the records were copied with their timestamps (mirroring keeps them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from catalog_migrate.streams.checkpoint.codec_kafka import Partition
from catalog_migrate.streams.unsafe.forecast import split_of
from catalog_migrate.streams.unsafe.targets import Target
from catalog_migrate.streams.upstream import Held

Ties = Literal["double", "skip"]


TIES: tuple[Ties, ...] = ("double", "skip")
"""What becomes of records with the very time of the last stored one: read again, or passed over."""


class Translation(msgspec.Struct, frozen=True):
    """A target for each partition that could be translated, and what could not be."""

    targets: Mapping[Partition, Target]
    notes: tuple[str, ...]


def translate(times: Mapping[Partition, int], held: Held, ties: Ties) -> Translation:
    """The targets in what the new upstream holds.

    A partition goes on after the last stored record of its own number where each new one has an old
    one, else all go on after the earliest of the last ones: no record is lost, some are doubled.
    """
    later = 1 if ties == "skip" else 0
    topics = {topic for topic, _ in times}
    by_number: dict[int, int] = {}
    for (_, number), moment in times.items():
        by_number[number] = min(moment, by_number.get(number, moment))
    numbers = {number for _, number in held.bounds}
    own = len(topics) == 1 and len(held.topic_ids) == 1 and numbers == set(by_number)
    earliest = min(times.values(), default=None)
    notes = []
    targets: dict[Partition, Target] = {}
    for partition in sorted(held.bounds):
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
