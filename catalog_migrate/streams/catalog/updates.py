"""What a runtime puts on record of its queries and of operations on them, as values that a commit
writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.operation_states import find_declared_state, is_open
from catalog_migrate.catalog.records import HoldRecord, OperationRecord, StreamRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Edit, Put, RaiseSerial
from catalog_migrate.connectors.postgres.survey import Survey
from catalog_migrate.connectors.postgres.types import DiscoveredTable
from catalog_migrate.errors import TableChanged
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.operations.kinds import ALTER, UNSAFE
from catalog_migrate.operations.steps import Executed
from catalog_migrate.streams.catalog import surveys
from catalog_migrate.streams.catalog.cluster_log import OF_QUERIES, OPERATION
from catalog_migrate.streams.catalog.dependencies import is_defined_as
from catalog_migrate.streams.catalog.operation_records import Move, with_act
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.statement_changes import external_hash
from catalog_migrate.streams.catalog.upstream_tables import adopt_upstream_columns, columns_of


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
        edits = adopt_upstream_columns(state, self.item_id, self.error, columns_of(self.table))
        yield from edits
        if edits and self.copied is not None and self.item_id in state.streams:
            stream = surveys.copy_again(state.streams[self.item_id], self.copied)
            yield Put("stream", self.item_id, stream)


# -- operations ------------------------------------------------------------------------------------


class MoveOperation(msgspec.Struct, frozen=True):
    """Move an operation on to a state and phase, with its holds; what else is on record stays.

    ``detail`` and ``executed`` are added to its row, ``fields`` replaced in it, and ``act`` in what
    an unsafe one says of itself.
    """

    key: str
    to: str
    phase: str = ""
    detail: Mapping[str, str] = {}
    executed: tuple[Executed, ...] = ()
    fields: Mapping[str, Any] = {}
    act: Mapping[str, Any] = {}

    def apply(self, state: State) -> Iterator[Edit]:
        """Return its row and its holds."""
        row = state.operations[self.key]
        kept = {key: text for key, text in row.detail.items() if key != "phase"}
        if self.phase:
            kept["phase"] = self.phase
        row = msgspec.structs.replace(
            row, state=self.to, detail={**kept, **self.detail},
            executed=(*row.executed, *self.executed), **self.fields,
        )
        if self.act:
            row = with_act(row, **self.act)
        yield Put("operation", self.key, row)
        yield from self._hold(state, row)

    def _hold(self, state: State, row: OperationRecord) -> Iterator[Edit]:
        """Hold the queries while the row's state says so; else lift this hold, no other's."""
        holder = f"{OPERATION}{self.key}"
        if find_declared_state(row).held:
            reason = f"{'unsafe ' * (row.kind == UNSAFE)}operation {self.key} is under way"
            for item_id in row.dependents:
                if item_id in state.items:
                    hold = HoldRecord(item_id=item_id, holder=holder, reason=reason)
                    yield Put("hold", f"{item_id}/{holder}/1", hold)
            return
        for hold_key, hold in state.holds.items():
            if hold.holder == holder:
                yield Delete("hold", hold_key)


class ForgetAlters(msgspec.Struct, frozen=True):
    """Forget all but the newest ended ALTERs; other operations stay on record."""

    keep: int

    def apply(self, state: State) -> list[Edit]:
        """Return those that go."""
        ended = sorted(
            key for key, row in state.operations.items() if row.kind == ALTER and not is_open(row)
        )
        return [Delete("operation", key) for key in ended[:-self.keep]]


class LiftHolds(msgspec.Struct, frozen=True):
    """Lift the holds of what queries met themselves."""

    item_ids: frozenset[str]

    def apply(self, state: State) -> list[Edit]:
        """Return those that go."""
        return [
            Delete("hold", key) for key, hold in state.holds.items()
            if hold.holder in OF_QUERIES and hold.item_id in self.item_ids
        ]


class Redefine(msgspec.Struct, frozen=True):
    """Give an item another definition; its present name and comment stay, they may have changed.

    With ``over`` only where that is its definition now.
    """

    item_id: str
    definition: ObjectDefinition | None
    links: Mapping[str, str]
    over: ObjectDefinition | None = None

    def apply(self, state: State) -> Iterator[Edit]:
        """Return item and mapping; nothing of one that was dropped."""
        item, definition = state.items.get(self.item_id), self.definition
        if item is None or definition is None:
            return
        if self.over is not None and not is_defined_as(state, self.item_id, self.over):
            return
        kept = msgspec.structs.replace(
            definition, schema=item.definition.schema, name=item.definition.name,
            comment=item.definition.comment,
        )
        uses = (set(item.uses) - set(item.links.values())) | set(self.links.values())
        yield RaiseSerial()
        yield Put("item", self.item_id, msgspec.structs.replace(
            item, definition=kept, links=dict(self.links), uses=tuple(sorted(uses))
        ))
        key = identity_text(kept.identity)
        yield Put("mapping", key, msgspec.structs.replace(
            state.mappings[key], definition_hash=external_hash(kept)
        ))


class MovePositions(msgspec.Struct, frozen=True):
    """Give a query other positions by an edit of its checkpoint."""

    move: Move

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return its record with the edit, and the next generation; nothing of a dropped one."""
        move = self.move
        if move.item_id not in state.items:
            return ()
        stream = state.streams.get(move.item_id) or first_stream(move.item_id)
        topics = move.topics_after or stream.topics
        known = stream.known_topics
        stream = (
            surveys.accept_hold(stream) if move.retaken is None
            else surveys.copy_again(stream, move.retaken)
        )
        return (Put("stream", move.item_id, msgspec.structs.replace(
            stream, generation=stream.generation + 1, edit=msgspec.to_builtins(move.edit),
            upstream=move.upstream_after or stream.upstream, topics=topics,
            former={topic: known[topic] for topic in known if topic not in topics},
        )),)
