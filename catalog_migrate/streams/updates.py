"""What a runtime puts on record of its queries, as values that a commit writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import HoldRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put
from catalog_migrate.errors import TableChanged
from catalog_migrate.replication.survey import Survey
from catalog_migrate.replication.types import DiscoveredTable
from catalog_migrate.streams import surveys
from catalog_migrate.streams.upstream_tables import columns_of, evolved


class Hold(msgspec.Struct, frozen=True):
    """Hold a query; the hold of before gets the new reason, and stays where it has that."""

    record: HoldRecord

    @property
    def key(self) -> str:
        """The key of the one hold that its holder has on the query."""
        return f"{self.record.item_id}/{self.record.holder}/1"

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the hold, unless its query was dropped."""
        known = state.holds.get(self.key)
        if self.record.item_id not in state.items or (
            known is not None and known.reason == self.record.reason
        ):
            return ()
        return (Put("hold", self.key, self.record),)


class RecordUpstream(msgspec.Struct, frozen=True):
    """Record what a query is on; what else is on record of it since then stays.

    ``stream`` is its record where there is none yet, ``reads`` the shard that a sink begins with.
    """

    item_id: str
    stream: StreamRecord
    upstream: str
    topics: Mapping[str, str]
    reads: str

    def on(self, stream: StreamRecord) -> StreamRecord:
        """Return a record with it."""
        return msgspec.structs.replace(
            stream, upstream=self.upstream, topics={**stream.topics, **self.topics},
            reads=stream.reads or self.reads,
        )

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the query's record with it, unless it was dropped."""
        if self.item_id not in state.items:
            return ()
        known = state.streams.get(self.item_id) or self.stream
        return (Put("stream", self.item_id, self.on(known)),)


class RecordHoldSurvey(msgspec.Struct, frozen=True):
    """Record what a source is about to be held for; None where the server did not give it."""

    item_id: str
    found: Survey | None

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the source's record with it."""
        stream = state.streams.get(self.item_id)
        if stream is None:
            return ()
        return (Put("stream", self.item_id, surveys.with_hold(stream, self.found)),)


class TakeOverColumns(msgspec.Struct, frozen=True):
    """Give a source's table the columns that its table upstream has now.

    ``copied`` are the tables that are copied again for that, None for none.
    """

    item_id: str
    error: TableChanged
    table: DiscoveredTable
    copied: Collection[str] | None

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the new definition; nothing where it has been taken over already."""
        edits = evolved(state, self.item_id, self.error, columns_of(self.table))
        yield from edits
        if edits and self.copied is not None and self.item_id in state.streams:
            stream = surveys.copy_again(state.streams[self.item_id], self.copied)
            yield Put("stream", self.item_id, stream)
