"""The connector: options, questions, positions. Planning reads it: pyspark is not imported here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from catalog_migrate.connectors.base import (
    BatchWriter,
    Connector,
    Contents,
    Frame,
    Identity,
    Session,
    Sink,
    Source,
)
from catalog_migrate.connectors.common_options import ON_CHANGE, TRIGGER
from catalog_migrate.connectors.findings import TookTooLong, failed, within
from catalog_migrate.connectors.positions import (
    START,
    OffsetRange,
    Partition,
    PartitionCodec,
    Positions,
)
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import reveal
from catalog_migrate.connectors.sections import Section
from catalog_migrate.connectors.values import Option
from catalog_migrate.errors import ConnectionFailed, EngineFailure, LedgerMismatch, UnsafeBlocked
from catalog_migrate.model.findings import MISSING, Finding
from catalog_migrate.model.objects import Column, External, OptionValue
from catalog_migrate_queue.directory import Directory, NoQueues

if TYPE_CHECKING:
    from collections.abc import Iterable

Answer = TypeVar("Answer")

QUEUE = Option(
    "QUEUE", "topic", "The queue.", "orders", required=True, alterable=False,
    fixed_because="positions and rows are of one queue; create another source or sink", moves=True,
)

CONNECTION = Section(
    options=(
        Option(
            "PATH", "path", "The directory, which every process of the cluster sees.",
            "/data/queues", required=True, moves=True,
        ),
    ),
)

SOURCE = Section(
    options=(
        QUEUE,
        Option(
            "START", "position",
            "Where the first start begins: earliest, latest, or a time with its offset.",
            "2026-01-31T00:00:00Z", default="earliest", alterable=False,
            fixed_because="only the first start reads it; positions are kept from then on",
        ),
    ),
    settings=(TRIGGER,),
    default_format="JSON",
    formats=("JSON", "TEXT", "BYTES"),
    includes=("KEY", "PARTITION", "OFFSET", "TIMESTAMP"),
    dead_letters=True,
    records=True,
)

SINK = Section(
    options=(QUEUE,), settings=(TRIGGER, ON_CHANGE), default_format="JSON", formats=("JSON",)
)


class Queue(Connector):
    """Directories of queues."""

    name = "QUEUE"
    help = "A directory of queues that every process of the cluster sees under the same path."
    connection = CONNECTION
    upstream_word = "directory"

    def __init__(self) -> None:
        self.source = QueueSource()
        self.sink = QueueSink()

    def check(self, resolved: Resolved, *, subject: str, timeout: float) -> tuple[Finding, ...]:
        """Look whether there are queues."""
        found = _ask(resolved, subject, timeout, lambda directory: directory.identity())
        return (Finding(subject, None, "ok", f"connected to queues {found}"),)

    def client(self, resolved: Resolved, *, subject: str = "connection") -> Directory:
        """Return the directory."""
        return Directory(reveal(resolved["PATH"]))

    def identify(
        self, resolved: Resolved, names: Sequence[str] = (), *, subject: str, timeout: float,
        reads: bool = False,
    ) -> Identity:
        """Return the directory's id and those of the queues."""
        del reads

        def ask(directory: Directory) -> Identity:
            ids = {}
            for name in names:
                try:
                    ids[name] = directory.queue_id(name)
                except NoQueues:
                    continue
            return Identity(self.name, directory.identity(), ids)

        return _ask(resolved, subject, timeout, ask)

    def names(self, external: External) -> tuple[str, ...]:
        """Return the queue."""
        return (_queue(external),)

    def channels(
        self, connection: Mapping[str, OptionValue], external: External
    ) -> tuple[tuple[str, str], ...]:
        """Return the queue, so that no sink writes what its source reads."""
        return ((str(connection["PATH"]), _queue(external)),)


class QueueCodec(PartitionCodec):
    """``{"orders": {"0": 12}}``, with the blanks of Python's json: what the reader gives Spark."""

    kind = "QUEUE"

    def write(self, positions: Positions | None) -> str:
        """Return the line of positions."""
        line = super().write(positions)
        return line if line == START else json.dumps(json.loads(line))


class QueueSource(Source):
    """Queues that are read; a position is the next record by partition."""

    section = SOURCE
    codec = QueueCodec()
    watched = True

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Look whether the queue is there."""
        del columns
        return _queue_finding(resolved, external, subject, timeout)

    def reader(self, spark: Session, spec: QuerySpec) -> Frame:
        """Return the records as they come."""
        from catalog_migrate_queue.records import stream

        start = str(spec.external.options.get("START", "earliest"))
        return stream(spark, reveal(spec.connection["PATH"]), _queue(spec.external), start)

    def read_range(self, spark: Session, spec: QuerySpec, ranges: Sequence[OffsetRange]) -> Frame:
        """Return the records of ranges."""
        from catalog_migrate_queue.records import batch

        return batch(spark, reveal(spec.connection["PATH"]), ranges)

    @contextmanager
    def survey(
        self, spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
    ) -> Iterator[Contents]:
        """Yield what the queue holds."""
        del sample
        queue, subject = _queue(spec.external), f"source {spec.name}"

        def ask(directory: Directory) -> Contents:
            return Contents(
                cluster=directory.identity(),
                topic_ids={queue: directory.queue_id(queue)},
                bounds={
                    (queue, number): directory.bounds(queue, number)
                    for number in directory.partitions(queue)
                },
                at=lambda moment, partitions: _since(directory, moment, partitions),
            )

        try:
            yield _ask(spec.connection, subject, timeout, ask)
        except ConnectionFailed as error:
            if any(finding.code == MISSING and finding.option == "QUEUE"
                   for finding in error.data["findings"]):
                raise UnsafeBlocked(
                    f"{subject} reads a queue that is not there",
                    problems=[f"there is no queue {queue}"], remedy="create it",
                ) from error
            raise EngineFailure(
                f"{error.message}; nothing was done", condition=error.code
            ) from None


class QueueSink(Sink):
    """Queues that are written; each batch is one segment, which says whose it is."""

    section = SINK
    ledger = "queue"

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Look whether the queue is there."""
        del columns
        return _queue_finding(resolved, external, subject, timeout)

    def writer(self, spark: Session, spec: QuerySpec) -> BatchWriter:
        """Return what appends the rows of a batch."""
        del spark
        from catalog_migrate_queue.records import QueueWriter

        return QueueWriter(spec, CONNECTOR.client(spec.connection), _queue(spec.external))

    def destination(self, external: External) -> str:
        """Return the queue."""
        return f"queue {external.options.get('QUEUE')}"

    def last_batch(self, spec: QuerySpec, query_id: str) -> int | None:
        """Return the newest batch of a query."""
        queue = _queue(spec.external)
        return _engine(spec, lambda directory: directory.head(queue, 0).batches.get(query_id))

    def require_ledger(self, spec: QuerySpec, query_id: str, committed: int | None) -> None:
        """Raise LedgerMismatch unless the queue is at the checkpoint's batch, or the next."""
        last = self.last_batch(spec, query_id)
        before, after = (-1 if each is None else each for each in (committed, last))
        if not before <= after <= before + 1:
            raise LedgerMismatch(
                f"sink {spec.name} is at batch {committed}, its queue at {last}",
                remedy="point the connection to the queue that it wrote to, or restore the"
                " checkpoint that belongs to it",
            )

    def fence(self, spec: QuerySpec, old: str, new: str) -> int | None:
        """Bar ``old`` from the queue."""
        queue = _queue(spec.external)
        return _engine(spec, lambda directory: directory.fence(queue, 0, old, new))


CONNECTOR = Queue()


def _queue(external: External) -> str:
    return str(external.options["QUEUE"])


def _since(
    directory: Directory, moment: int, partitions: Iterable[Partition]
) -> dict[Partition, int | None]:
    return {(queue, number): directory.since(queue, number, moment) for queue, number in partitions}


def _ask(
    resolved: Resolved, subject: str, timeout: float, question: Callable[[Directory], Answer]
) -> Answer:
    """Return the answer in time; every failure is ConnectionFailed with a finding."""
    directory = CONNECTOR.client(resolved)
    option, code, remedy = "PATH", "", "every process of the cluster must see it under this path"
    try:
        return within(timeout, lambda: question(directory))
    except TookTooLong:
        problem = f"no answer from the file system within {timeout:.0f} s"
    except NoQueues as error:
        problem, code = str(error), MISSING
        if "no queue " in problem:
            option, remedy = "QUEUE", "create it, or name another"
    except OSError as error:
        problem = f"{directory.path}: {error.strerror}"
    raise failed(Finding(subject, option, "error", problem, remedy, code=code))


def _engine(spec: QuerySpec, question: Callable[[Directory], Answer]) -> Answer:
    try:
        return _ask(spec.connection, f"{spec.kind} {spec.name}", 10.0, question)
    except ConnectionFailed as error:
        raise EngineFailure(
            error.message, condition="QUEUE", remedy=error.remedy, transient=True
        ) from None


def _queue_finding(
    resolved: Resolved, external: External, subject: str, timeout: float
) -> tuple[Finding, ...]:
    queue = _queue(external)
    found = _ask(
        resolved, subject, timeout, lambda directory: len(directory.partitions(queue))
    )
    return (Finding(subject, "QUEUE", "ok", f"queue {queue} has {found} partitions"),)
