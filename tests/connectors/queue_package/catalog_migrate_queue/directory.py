"""Queues in a directory: the client of the server, so to speak. It knows nothing of streams.

A directory of queues has an id, each queue in it a folder with an id of its own, and a partition is
a folder of numbered segments. A segment is written whole and once, by a link that fails where the
number is taken; its head says everything up to it: how far records go, the newest batch of each
query that wrote here, and which queries may not write any more.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


class NoQueues(Exception):
    """A path without queues, or a queue that is not there."""


class Fenced(Exception):
    """A query that may not write any more: another one took its place."""


@dataclass(frozen=True)
class Record:
    """One record; ``moment`` is in ms since 1970."""

    offset: int
    value: str
    key: str | None
    moment: int


@dataclass(frozen=True)
class Head:
    """What the newest segment says: one past its last record, and who wrote and may not write."""

    until: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()


class Directory:
    """A directory of queues."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    # -- what is there ---------------------------------------------------------------------------

    def identity(self) -> str:
        """Return the id; it stays when the directory is moved."""
        return self._id(self.path, f"no queues in {self.path}")

    def queue_id(self, queue: str) -> str:
        """Return the id of a queue; one that is created again has another."""
        self.identity()
        return self._id(self.path / queue, f"there is no queue {queue} in {self.path}")

    def partitions(self, queue: str) -> list[int]:
        """Return the numbers of a queue's partitions."""
        self.queue_id(queue)
        return sorted(int(each.name) for each in (self.path / queue).iterdir() if each.is_dir())

    def bounds(self, queue: str, partition: int) -> tuple[int, int]:
        """Return the oldest record kept, and one past the newest."""
        segments = self._segments(queue, partition)
        if not segments:
            return 0, 0
        first, _ = _read(segments[0])
        return first["first"], self.head(queue, partition).until

    def head(self, queue: str, partition: int) -> Head:
        """Return what the newest segment says."""
        segments = self._segments(queue, partition)
        if not segments:
            return Head()
        found, _ = _read(segments[-1])
        return Head(found["until"], found["batches"], tuple(found["fenced"]))

    def read(self, queue: str, partition: int, first: int, until: int) -> Iterator[Record]:
        """Yield the records of a range. NoQueues where it is not there whole."""
        oldest, newest = self.bounds(queue, partition)
        if first < until and not oldest <= first <= until <= newest:
            raise NoQueues(
                f"{queue}:{partition} has records {oldest} to {newest}, not {first} to {until}"
            )
        for segment in self._segments(queue, partition):
            head, lines = _read(segment)
            if head["until"] > first and head["first"] < until:
                for record in (Record(**json.loads(line)) for line in lines):
                    if first <= record.offset < until:
                        yield record

    def since(self, queue: str, partition: int, moment: int) -> int | None:
        """Return the first record at or after a moment, None where none is as young."""
        oldest, newest = self.bounds(queue, partition)
        records = self.read(queue, partition, oldest, newest)
        return next((record.offset for record in records if record.moment >= moment), None)

    # -- what changes it -------------------------------------------------------------------------

    def create(self) -> None:
        """Make the directory one of queues."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "id").write_text(uuid.uuid4().hex)

    def create_queue(self, queue: str, partitions: int = 1) -> None:
        """Add a queue without records."""
        for number in range(partitions):
            (self.path / queue / str(number)).mkdir(parents=True)
        (self.path / queue / "id").write_text(uuid.uuid4().hex)

    def append(
        self, queue: str, partition: int, records: Iterable[tuple[str | None, str]],
        *, query: str | None = None, batch: int | None = None,
    ) -> bool:
        """Add (key, value) pairs; as a batch of a query only once. Returns whether it added them.

        Raises Fenced where the query may not write any more.
        """
        pairs = list(records)
        now = time.time_ns() // 1_000_000

        def add(head: Head) -> tuple[Head, list[Record]] | None:
            batches = dict(head.batches)
            if query is not None and batch is not None:
                if query in head.fenced:
                    raise Fenced(f"query {query} may not write to queue {queue} any more")
                if batches.get(query, -1) >= batch:
                    return None
                batches[query] = batch
            added = [
                Record(head.until + number, value, key, now)
                for number, (key, value) in enumerate(pairs)
            ]
            return Head(head.until + len(added), batches, head.fenced), added

        return self._commit(queue, partition, add)

    def fence(self, queue: str, partition: int, old: str, new: str) -> int | None:
        """Let ``new`` go on where ``old`` is, which may not write any more; returns that batch."""

        def take_over(head: Head) -> tuple[Head, list[Record]]:
            batches = dict(head.batches)
            if old in batches:
                batches[new] = max(batches[old], batches.get(new, -1))
            return Head(head.until, batches, tuple(sorted({*head.fenced, old}))), []

        self._commit(queue, partition, take_over)
        return self.head(queue, partition).batches.get(old)

    def expire(self, queue: str, partition: int) -> None:
        """Take away all segments but the newest."""
        for segment in self._segments(queue, partition)[:-1]:
            segment.unlink()

    # -- segments --------------------------------------------------------------------------------

    def _id(self, folder: Path, otherwise: str) -> str:
        try:
            return (folder / "id").read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise NoQueues(otherwise) from None

    def _segments(self, queue: str, partition: int) -> list[Path]:
        folder = self.path / queue / str(partition)
        return sorted(each for each in folder.iterdir() if each.name.isdecimal())

    def _commit(
        self, queue: str, partition: int,
        change: Callable[[Head], tuple[Head, list[Record]] | None],
    ) -> bool:
        """Write what ``change`` makes of the newest head as the next segment, until no other writer
        was faster."""
        folder = self.path / queue / str(partition)
        temporary = folder / f"{uuid.uuid4().hex}.new"
        try:
            while True:
                segments = self._segments(queue, partition)
                before = self.head(queue, partition)
                changed = change(before)
                if changed is None:
                    return False
                after, records = changed
                head = {"first": before.until, **asdict(after)}
                lines = [json.dumps(each) for each in (head, *map(asdict, records))]
                temporary.write_text("\n".join(lines))
                number = int(segments[-1].name) + 1 if segments else 0
                try:
                    os.link(temporary, folder / f"{number:020d}")
                except FileExistsError:
                    continue
                return True
        finally:
            temporary.unlink(missing_ok=True)


def _read(segment: Path) -> tuple[dict[str, Any], list[str]]:
    head, *lines = segment.read_text().split("\n")
    return json.loads(head), lines
