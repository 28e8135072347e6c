"""What is asked about one item of an unsafe operation, and what was found (see ``positions``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.streams.checkpoint.codecs import START, Partition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.edit import Edit, begin, move
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.unsafe.forecast import Forecast, Policy, Totals
from catalog_migrate.streams.unsafe.requests import Part


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


def committed_line(checkpoint: Checkpoint) -> str:
    """The line after the newest committed batch; START without one."""
    batch = checkpoint.latest_commits
    return START if batch is None else checkpoint.entry(batch).sources[0]


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
