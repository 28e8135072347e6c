"""Reading what an operation skipped into the same table, exactly once, while the source goes on.

The skipped range is cut into chunks when the operation is committed, and they stay as they are:
chunk i is one append that carries (operation, i) as a transaction, so that a chunk which has
arrived is known by the table itself, whoever died meanwhile and whoever goes on. Only records of
the same topic ids are read; what expires before its chunk comes is listed, and so are records that
nobody can read, unless there is a table for dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put
from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.errors import CatalogMigrateError, LeaseLost
from catalog_migrate.operations.kinds import BACKFILLING
from catalog_migrate.streams.catalog.cluster_log import list_holds
from catalog_migrate.streams.catalog.operation_records import Chunk, backfilling, chunks_in
from catalog_migrate.streams.catalog.tables import transaction
from catalog_migrate.streams.positions.audit import count_pending
from catalog_migrate.streams.positions.plan import Row
from catalog_migrate.streams.positions.requests import CHUNK, split_of
from catalog_migrate.streams.runtime.ports import Event, Running
from catalog_migrate.streams.runtime.supervisor import LONGEST_BACK_OFF, Supervisor

_LISTED = 50
"""Records that could not be read which the operation's row lists."""


class NoteBackfill(msgspec.Struct, frozen=True):
    """Note in an operation's row how far its backfill is, and what was left out."""

    key: str
    phase: str
    left_out: tuple[str, ...]

    def apply(self, state: State) -> tuple[Edit]:
        """Return the row with it; what is listed already is not listed twice."""
        row = state.operations[self.key]
        detail = {**row.detail, "phase": self.phase}
        left = [text for name, text in sorted(row.detail.items()) if name.startswith("left out")]
        for text in self.left_out:
            if text not in left and len(left) < _LISTED:
                detail[f"left out {len(left):03d}"] = text
                left.append(text)
        return (Put("operation", self.key, msgspec.structs.replace(row, detail=detail)),)


class EndBackfill(msgspec.Struct, frozen=True):
    """End an operation that was backfilling, with what that came to."""

    key: str
    said: str

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the row at its end; nothing where it has ended."""
        row = state.operations[self.key]
        if row.state != BACKFILLING:
            return ()
        detail = {name: text for name, text in row.detail.items() if name != "phase"}
        ended = msgspec.structs.replace(row, state="done", detail={**detail, "backfill": self.said})
        return (Put("operation", self.key, ended),)


@dataclass(slots=True)
class Backfills:
    """Reads what operations of one cluster skipped, one chunk after the other.

    ``follow`` gives the newest state, ``alive`` raises once the lease is lost. :meth:`tend` works
    in a thread beside the queries, :meth:`work` in the caller's.
    """

    supervisor: Supervisor
    follow: Callable[[], State]
    alive: Callable[[], None]
    say: Callable[[str], None] = lambda _: None
    _thread: Running | None = None
    _stop: Event = field(init=False)
    _again: float = 0.0
    _failures: int = 0

    def __post_init__(self) -> None:
        self._stop = self.supervisor.ports.threads.event()

    def pending(self, state: State) -> list[str]:
        """Operations of this cluster that have chunks left and may read now, oldest first."""
        return [
            key for key, items in backfilling(state).items()
            if state.operations[key].cluster == self.supervisor.cluster
            and not any(list_holds(state, item_id) for item_id in items)
        ]

    def tend(self, state: State) -> None:
        """Go on in the background when there is anything to read."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self.supervisor.clock.monotonic() < self._again or not self.pending(state):
            return
        self._thread = self.supervisor.ports.threads.run(self._run, "backfill")

    def count(self, state: State) -> None:
        """Count what the operations of this cluster doubled and skipped, where that is known."""
        count_pending(state, self.supervisor)

    def close(self, timeout: float) -> None:
        """Begin no further chunk, and wait for the one under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            for key in self.pending(self.follow()):
                self.work(key)
            self._failures = 0
        except LeaseLost:
            return  # whoever has the lease goes on
        except Exception as error:  # noqa: BLE001 - of Spark, of the broker: it is tried again
            self._failures += 1
            pause = min(LONGEST_BACK_OFF, 2.0 ** min(self._failures, 10))
            self._again = self.supervisor.clock.monotonic() + pause
            message = error.message if isinstance(error, CatalogMigrateError) else str(error)
            self.say(f"backfill: {message}; tried again in {pause:.0f} s")

    def work(self, key: str) -> None:
        """Read the chunks of an operation that its tables lack, then end it.

        Stops between two chunks when it was closed or a hold came. Raises what Spark, the broker or
        the catalog raise; nothing is lost by that.
        """
        row = self.follow().operations[key]
        chunks = chunks_in(row)
        for number, chunk in enumerate(chunks):
            state = self.follow()
            if self._stop.is_set() or key not in self.pending(state):
                return
            if chunk.item_id not in state.items:
                self._note(key, f"chunk {number + 1} of {len(chunks)}", ["the source was dropped"])
                continue
            self._append(state, key, number, chunk, len(chunks))
        self._end(key, chunks)

    def _append(self, state: State, key: str, number: int, chunk: Chunk, total: int) -> None:
        supervisor = self.supervisor
        spec = supervisor.spec(state, chunk.item_id)
        arrived = supervisor.ports.tables.batch(spec.shard, transaction(key))
        if arrived is not None and arrived >= number:
            return
        stream = state.streams.get(chunk.item_id)
        with supervisor.ports.upstreams.contents(spec, sample=False) as contents:
            topics = dict(stream.topics) if stream is not None else {}
            ranges, lost = clip(chunk, contents, topics)
        self.alive()
        # before the append: a note that comes twice tells no lie, one that is missing does
        self._note(key, f"chunk {number + 1} of {total}", lost)
        bad = supervisor.engine.append_range(spec, ranges, app=transaction(key), version=number)
        if bad:
            scrub = spec.redactor.scrub
            self._note(key, f"chunk {number + 1} of {total}", [scrub(each) for each in bad])

    def _note(self, key: str, phase: str, texts: Sequence[str]) -> None:
        """How far it is, and what was left out, in the operation's row."""
        self.supervisor.commit(Commit("backfill", (NoteBackfill(key, phase, tuple(texts)),)))

    def _end(self, key: str, chunks: Sequence[Chunk]) -> None:
        records = records_in(chunks)
        end = EndBackfill(key, f"{records} records in {len(chunks)} chunks")
        self.supervisor.commit(Commit("done", (end,)))
        self.say(f"operation {key}: what it skipped was read")


def skipped_ranges(rows: Iterable[Row]) -> list[OffsetRange]:
    """What lies between the positions of rows and is still there."""
    return [
        OffsetRange(
            row.topic, row.partition, max(row.current, row.low or 0), min(row.target, row.high or 0)
        )
        for row in rows
        if row.skipped and row.current is not None and row.target is not None
    ]


def expired_ranges(rows: Iterable[Row]) -> list[str]:
    """What lies between them and is no longer there, in words."""
    return [
        f"{split_of((row.topic, row.partition))}: {row.current} to {min(row.low, row.target) - 1}"
        for row in rows
        if row.current is not None and row.target is not None and row.low is not None
        and row.current < min(row.low, row.target)
    ]


def chunks_of(item_id: str, ranges: Iterable[OffsetRange], size: int = CHUNK) -> tuple[Chunk, ...]:
    """Cut ranges into chunks of at most ``size`` records; nothing is left out or twice."""
    chunks: list[Chunk] = []
    current: list[OffsetRange] = []
    room = size
    for topic, number, first, until in ranges:
        at = first
        while at < until:
            end = min(until, at + room)
            current.append(OffsetRange(topic, number, at, end))
            room -= end - at
            at = end
            if not room:
                chunks.append(Chunk(item_id, tuple(current)))
                current, room = [], size
    if current:
        chunks.append(Chunk(item_id, tuple(current)))
    return tuple(chunks)


def records_in(chunks: Iterable[Chunk]) -> int:
    """Records of all chunks."""
    return sum(each.until - each.first for chunk in chunks for each in chunk.places)


def clip(
    chunk: Chunk, contents: Contents, topics: Mapping[str, str]
) -> tuple[tuple[OffsetRange, ...], list[str]]:
    """What of a chunk can be read, and what cannot any more, in words."""
    kept, lost = [], []
    for topic, number, first, until in chunk.places:
        name = split_of((topic, number))
        bounds = contents.bounds.get((topic, number))
        if bounds is None or contents.topic_ids.get(topic) != topics.get(topic):
            lost.append(f"{name}: {first} to {until - 1}: the topic is another one")
            continue
        start = min(max(first, bounds[0]), until)
        if start > first:
            lost.append(f"{name}: {first} to {start - 1} have expired")
        if start < until:
            kept.append(OffsetRange(topic, number, start, until))
    return tuple(kept), lost


def skipped_note(chunks: Sequence[Chunk], expired: Sequence[str]) -> str:
    """What a backfill comes to, in words."""
    text = (
        f"BACKFILL: {records_in(chunks)} skipped records are read into the table, in {len(chunks)}"
        " chunks"
    )
    return text + (f"; expired already: {', '.join(expired)}" if expired else "")
