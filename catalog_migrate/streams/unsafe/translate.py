"""Positions of an old topic said in terms of a new one, by the time of the last stored record.

The time comes from the source's own table, so that the old cluster may be dead. It is right where
the records were copied with their timestamps (mirroring keeps them).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from catalog_migrate.errors import EngineFailure
from catalog_migrate.streams.checkpoint.codec_kafka import Partition
from catalog_migrate.streams.unsafe.forecast import Held, split_of
from catalog_migrate.streams.unsafe.targets import Target

Ties = Literal["double", "skip"]

AT_ONCE = 100
"""Partitions asked about in one query."""

TIES: tuple[Ties, ...] = ("double", "skip")
"""What becomes of records with the very time of the last stored one: read again, or passed over."""


class Stretch(msgspec.Struct, frozen=True):
    """Offsets of one partition from ``first`` to before ``last``."""

    partition: Partition
    first: int
    last: int

    @property
    def condition(self) -> str:
        """The rows of it, in SQL."""
        topic, number = self.partition
        return (
            f"(_topic = {_literal(topic)} AND _partition = {number} "
            f"AND _offset >= {self.first} AND _offset < {self.last})"
        )


class Translation(msgspec.Struct, frozen=True):
    """A target for each partition that could be translated, and what could not be."""

    targets: Mapping[Partition, Target]
    notes: tuple[str, ...]


def _literal(text: str) -> str:
    """A text in standard SQL, as DataFusion reads it: no backslash means anything."""
    return "'" + text.replace("'", "''") + "'"


def last_times(path: str, topics: Collection[str]) -> dict[Partition, int]:
    """When the last stored record of each partition was written (ms), by the table of a source."""
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    if not topics:
        return {}
    names = ", ".join(map(_literal, sorted(topics)))
    query = (
        "SELECT _topic, _partition, arrow_cast(_timestamp, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        " AS at FROM (SELECT _topic, _partition, _timestamp, row_number() OVER (PARTITION BY "
        f"_topic, _partition ORDER BY _offset DESC) AS newest FROM t WHERE _topic IN ({names})) "
        "WHERE newest = 1"
    )
    try:
        table = QueryBuilder().register("t", DeltaTable(path)).execute(query).read_all()
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot read the times of {path}: {error}") from error
    columns = [table.column(name).to_pylist() for name in table.column_names]
    return {
        (topic, number): round(at.timestamp() * 1000)
        for topic, number, at in zip(*columns, strict=True) if at is not None
    }


def time_spans(path: str, stretches: Sequence[Stretch]) -> dict[Partition, tuple[str, str]]:
    """When the first and the last stored record of each stretch were written, as text."""
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    found: dict[Partition, tuple[str, str]] = {}
    try:
        if not stretches or not DeltaTable.is_deltatable(path):
            return found
        for start in range(0, len(stretches), AT_ONCE):
            where = " OR ".join(each.condition for each in stretches[start:start + AT_ONCE])
            table = QueryBuilder().register("t", DeltaTable(path)).execute(
                "SELECT _topic, _partition, cast(min(_timestamp) AS varchar) AS first, "
                f"cast(max(_timestamp) AS varchar) AS last FROM t WHERE {where} "
                "GROUP BY _topic, _partition"
            ).read_all()
            columns = [table.column(name).to_pylist() for name in table.column_names]
            for topic, number, first, last in zip(*columns, strict=True):
                found[topic, number] = (first, last)
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot read the times of {path}: {error}") from error
    return found


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
