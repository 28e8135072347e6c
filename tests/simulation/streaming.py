"""Queries, tables and a broker in memory, under the real code of :mod:`catalog_migrate.streams`.

The other ports of a process are in :mod:`tests.simulation.stream_ports`.

A simulated query does with its checkpoint what Spark does (offsets, then rows, then commits, in
real small files or on a simulated object store), one step whenever its process sleeps; rows carry
(query id, batch) as Delta's transactions do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.connectors.positions import START, OffsetRange, Partition
from catalog_migrate.connectors.postgres.survey import Watch
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.postgres.watch import Watcher
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.errors import CatalogMigrateError, ConnectionFailed, EngineFailure
from catalog_migrate.model.findings import Finding
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.catalog.queries import QueryFailure, QueryProgress
from catalog_migrate.streams.catalog.upstream_tables import is_mirror
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from tests.services.checkpoints import root
from tests.simulation import databases, mirrors, stream_sinks
from tests.simulation.databases import SimulatedDatabases
from tests.simulation.server import Server

META = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}'
COMMIT = '{"nextBatchWatermarkMs":0'
WRITER = "writer"
BARRED = 2**63 - 1

ADDRESSES: Mapping[str, str] = {
    "a:9092": "one", "b:9092": "one", "lame:9092": "one", "far:9092": "two", "dead:9092": ""
}
"""Which cluster answers at an address: ``lame`` answers whoever asks, and fails every query."""


PLAIN = "hunter2 of "
"""What every secret's value begins with, the reference after it: it must appear nowhere (I9)."""


def resolve(reference: str) -> Secret:
    """The value that stands behind a reference."""
    return Secret(PLAIN + reference)


Record = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True)
class StreamTable:
    """A source's table: its rows, the id of the topic that each was read of, how many rows each
    version has (the first has none), and the newest batch by query id."""

    rows: list[Record] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=lambda: [0])
    batches: dict[str, int] = field(default_factory=dict)
    mirrored: dict[str, tuple[int, dict[str, str | None]]] = field(default_factory=dict)
    """Of a mirror: by key where the row changed last, and its values."""

    def append(
        self, rows: Sequence[Record], ids: Mapping[str, str], *, app: str, batch: int
    ) -> None:
        """One commit: rows, and the transaction that they come under."""
        self.rows += rows
        self.ids += [ids.get(topic, "") for topic, _, _ in rows]
        self.versions.append(len(self.rows))
        self.batches[app] = batch


@dataclass(slots=True)
class StreamWorld:
    """What outlives every process: topics (records by partition) and tables by directory.

    ``addresses`` says which cluster answers where. A topic that is deleted and created again has
    another id; ``planned`` are those of a query's batches (by checkpoint, by item id, and by the
    writer of the entry on an object store). ``sent``
    has what a sink sent by table row, ``wrong`` the first row
    with a key that is not its own. ``lag`` says how many steps a sink rests after each batch,
    ``slow`` how many steps the tasks of a batch take at an address.
    """

    topics: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, StreamTable] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=lambda: dict(ADDRESSES))
    planned: dict[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    sent: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: str = ""
    lag: dict[str, int] = field(default_factory=dict)
    slow: dict[str, int] = field(default_factory=dict)
    database: Server = field(default_factory=Server)
    looked: int = 0
    """Up to where the log went when a mirror last looked at its tables, and found all well."""

    def table(self, path: str) -> StreamTable:
        """The table at a path, made when it is first asked for."""
        if path not in self.tables:
            self.tables[path] = StreamTable()
        return self.tables[path]

    def ends(self, topic: str) -> dict[Partition, int]:
        """One past the newest record of every partition; nothing of a topic that is missing."""
        return {(topic, number): count for number, count in enumerate(self.topics.get(topic, ()))}

    def topic_ids(self, cluster: str, topics: Iterable[str]) -> dict[str, str]:
        """The ids of those topics that are there."""
        return {
            topic: f"{topic} {self.again.get(topic, 0)} of {cluster}"
            for topic in topics if topic in self.topics
        }

    def remove(self, topic: str) -> None:
        """Delete a topic upstream."""
        self.topics.pop(topic, None)

    def create(self, topic: str, partitions: int) -> None:
        """Create it, again: with another id, and empty."""
        self.again[topic] = self.again.get(topic, 0) + 1
        self.topics[topic] = [0] * partitions

    def cluster_at(self, connection: Mapping[str, Any], subject: str) -> str:
        """The cluster that a connection leads to; ConnectionFailed where nothing answers."""
        cluster = self.addresses.get(str(connection["BROKER"]), "")
        if not cluster:
            # clients are known to print their whole configuration
            said = f"nothing answers (sasl.password={_plain(connection.get('SASL PASSWORD'))})"
            finding = Finding(subject, "BROKER", "error", said, "another address")
            raise ConnectionFailed(
                f"{subject}: {said}", findings=(finding,), remedy="another address"
            )
        return cluster


def _plain(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


class SimulatedQuery:
    """A source's query: reads from where its checkpoint stands, one step at a time."""

    def __init__(
        self, engine: SimulatedQueries, spec: QuerySpec, start: Position | None = None
    ) -> None:
        self.engine = engine
        self.spec = spec
        self.run_id = uuid4().hex
        self.active = True
        self.batch: int | None = None
        self.total = 0
        self.work = 0
        self._failure: QueryFailure | None = None
        self.between = True
        self._id = ""
        self._read: tuple[int, dict[Partition, int]] | None = None
        """The last batch whose position was read, and that; Spark keeps it in memory, too."""
        self._ids = engine.told.get(spec.item_id, {})
        if start is not None:
            live = mirrors.live if is_mirror(spec.external) else databases.live
            self._life = live(self, start)
        else:
            self._life = self._live() if spec.kind == "source" else stream_sinks.live(self)

    @property
    def query_id(self) -> str:
        """The id in the checkpoint's metadata, read once as Spark does."""
        if not self._id:
            self._id = Checkpoint(self.spec.checkpoint).query_id or ""
        return self._id

    def progress(self) -> QueryProgress | None:
        """The newest progress; None until the first."""
        if self.batch is None:
            return None
        return QueryProgress(self.batch, 0, self.total, "2026-01-01T00:00:00Z")

    def worked(self) -> int:
        """Steps that its tasks have taken."""
        return self.work

    def failure(self) -> QueryFailure | None:
        """Why it ended."""
        return self._failure

    def step(self) -> None:
        """One step; a step that fails ends the query."""
        if not self.active:
            return
        try:
            next(self._life)
        except CatalogMigrateError as error:
            self.active = False
            told = Redactor.of(self.spec.connection).scrub(error.message)
            condition = error.condition if isinstance(error, EngineFailure) else None
            self._failure = QueryFailure(condition or error.code, (told,), error)

    def stop(self, drain: float) -> bool:
        """End the batch under way when there is time for it, else at once."""
        self.engine.on_step("stop")
        while drain > 0 and self.active and not self.between:
            self.step()
        self.active = False
        return True

    def _live(self) -> Iterator[None]:
        spec, world, on_step = self.spec, self.engine.world, self.engine.on_step
        checkpoint = self.begin()
        topic = str(spec.external.options["TOPIC"])
        while True:
            self.reach()
            batch, begun = self.upcoming(checkpoint)
            if not begun:
                if topic not in world.topics:  # asked for some more times, as by Spark
                    yield
                    continue
                ends = world.ends(topic)
                position = self._position(checkpoint, batch - 1, topic)
                self._require_there(position, ends)
                if ends == position:
                    self.batch = max(batch - 1, 0)
                    yield
                    continue
                on_step(f"offsets {batch}")
                self.between = False
                writer = uuid4().hex
                world.planned[writer, batch] = self._ids
                write_entry(checkpoint, batch, KafkaCodec().write(ends), writer)
                for of in (spec.item_id, spec.checkpoint):
                    world.planned[of, batch] = self._ids
                yield
            self.between = False
            for _ in range(world.slow.get(str(spec.connection["BROKER"]), 0)):
                self.work += 1
                yield
            self._deliver(checkpoint, batch, topic)
            yield
            self.commit(checkpoint, batch)
            yield

    def begin(self) -> Checkpoint:
        """What every query begins with."""
        checkpoint = Checkpoint(self.spec.checkpoint)
        if is_remote(checkpoint.address):  # as Spark, which looks when it begins
            checkpoint = checkpoint.remembered()
        self.engine.on_step("query begins")
        if checkpoint.query_id is None:
            _write(checkpoint, "metadata", f'{{"id":"{uuid4()}"}}')
        return checkpoint

    def reach(self) -> None:
        """Reach the broker, or fail."""
        if str(self.spec.connection["BROKER"]) == "lame:9092":
            raise EngineFailure(
                "the broker drops every fetch", condition="FETCH_FAILED", transient=True
            )
        self.engine.world.cluster_at(self.spec.connection, str(self.spec.name))

    @staticmethod
    def upcoming(checkpoint: Checkpoint) -> tuple[int, bool]:
        """The batch to run next, and whether it was begun before and not ended."""
        latest, done = checkpoint.latest_offsets, checkpoint.latest_commits
        if latest is not None and (done is None or done < latest):
            return latest, True
        return 0 if latest is None else latest + 1, False

    def commit(self, checkpoint: Checkpoint, batch: int) -> None:
        """A batch is over."""
        self.engine.on_step(f"commits {batch}")
        _write(checkpoint, f"commits/{batch}", f"v1\n{COMMIT}{_own(checkpoint)}}}")
        self.batch = batch
        self.between = True

    def _require_there(
        self, position: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> None:
        """What Spark says of a topic that has less than was read of it."""
        lost = [each for each, offset in position.items() if offset > ends.get(each, -1)]
        if lost:
            raise EngineFailure(f"records of {lost} are gone", condition="OFFSETS_OUT_OF_RANGE")

    def _position(self, checkpoint: Checkpoint, batch: int, topic: str) -> dict[Partition, int]:
        if self._read is None or self._read[0] != batch:
            found = _written(checkpoint, batch)
            self._read = batch, {each: at for each, at in found.items() if each[0] == topic}
        return {**dict.fromkeys(self.engine.world.ends(topic), 0), **self._read[1]}

    def _deliver(self, checkpoint: Checkpoint, batch: int, topic: str) -> None:
        """The rows of a batch, once for each query id and batch, as Delta's sink does."""
        self.engine.on_step(f"rows {batch}")
        table, query_id = self.engine.world.table(self.spec.shard), self.query_id
        before = self._position(checkpoint, batch - 1, topic)
        after = self._position(checkpoint, batch, topic)
        writer = checkpoint.entry(batch).metadata.get(WRITER, "")
        # others may go on in the looks above, but not between these and the commit
        if table.batches.get(query_id, -1) >= batch:
            return
        self._require_there(after, self.engine.world.ends(topic))
        rows = [
            (name, partition, offset)
            for (name, partition), end in sorted(after.items())
            for offset in range(before.get((name, partition), 0), end)
        ]
        # of a copied checkpoint, whose owner may go on in the old one, what the item had last
        planned = self.engine.world.planned
        ids = (
            planned.get((writer, batch)) or planned.get((self.spec.checkpoint, batch))
            or planned[self.spec.item_id, batch]
        )
        table.append(rows, ids, app=query_id, batch=batch)
        self.total += len(rows)


def _written(checkpoint: Checkpoint, batch: int) -> dict[Partition, int]:
    """What a checkpoint says of the position after a batch (-1: before the first)."""
    found: dict[Partition, int] = {}
    initial = root(checkpoint) / "sources/0/0"
    if initial.is_file():  # what the query was first told, or what an operator put there
        found.update(KafkaCodec().read_initial(initial.read_bytes(), str(initial)))
    if batch < 0:
        return found
    line = checkpoint.entry(batch).sources[0]
    return found if line == START else dict(KafkaCodec().read(line) or {})


def write_entry(checkpoint: Checkpoint, batch: int, line: str, writer: str = "") -> None:
    """A query plans a batch that ends at a position; Spark's log takes no entry twice."""
    if not is_remote(checkpoint.address) and (root(checkpoint) / f"offsets/{batch}").exists():
        raise _taken(f"offsets/{batch}")
    _write(checkpoint, f"offsets/{batch}", f"v1\n{META}{_own(checkpoint, writer)}}}\n{line}")


def _own(checkpoint: Checkpoint, writer: str = "") -> str:
    """What tells a file of this query from what others write alike, as our own manager of files
    on S3 has it (``ObjectPut.java``)."""
    if not is_remote(checkpoint.address):
        return ""
    return f',"{WRITER}":"{writer or uuid4().hex}"'


def _taken(name: str) -> EngineFailure:
    return EngineFailure(
        f"{name} was written by another query", condition="CONCURRENT_STREAM_LOG_UPDATE"
    )


def _write(checkpoint: Checkpoint, name: str, text: str) -> None:
    if is_remote(checkpoint.address):
        if not checkpoint.store.put_if_absent(name, text.encode()):
            raise _taken(name)
        return
    file = root(checkpoint) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@dataclass(slots=True)
class SimulatedPreparedQuery:
    engine: SimulatedQueries
    spec: QuerySpec

    def start(self) -> SimulatedQuery:
        """Start it; it goes on when its process sleeps."""
        self.engine.on_step("start")
        query = self.engine.query(self.spec)
        self.engine.running.append(query)
        return query


class SimulatedQueries:
    """One process's engine, a :class:`catalog_migrate.streams.catalog.queries.QueryEngine`.

    ``on_step`` hears of every step of every query before its effect, and may raise. ``told`` are
    the ids of topics that its process was told last, by item id: a query reads of those.
    """

    def __init__(
        self, world: StreamWorld, on_step: Callable[[str], None],
        told: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.world = world
        self.on_step = on_step
        self.told = told
        self.databases = SimulatedDatabases(world, on_step)
        self.watcher: Callable[[Watch], Watcher] = Watcher
        self.alive: Callable[[], None] = lambda: None
        self.awaited: Mapping[str, str] = {}
        self.running: list[SimulatedQuery] = []

    def prepare(self, spec: QuerySpec) -> SimulatedPreparedQuery:
        """A plan that nothing was started of yet."""
        return SimulatedPreparedQuery(self, spec)

    def step(self) -> None:
        """Let every query of this process go on by one step."""
        self.running = [query for query in self.running if query.active]
        for query in self.running:
            query.step()

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:
        """Run the batch that is under way, and no other."""
        del timeout
        query = self.query(spec)
        checkpoint = Checkpoint(spec.checkpoint)
        while query.active and checkpoint.latest_offsets != checkpoint.latest_commits:
            query.step()
        failure = query.failure()
        if failure is not None:
            raise EngineFailure(failure.causes[0], condition=failure.condition)

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """The newest batch in the source's table; nobody can say what a topic has."""
        self.on_step("last batch")
        if spec.kind == "sink":
            return {}
        return {
            name: self.world.table(path).batches.get(query_id)
            for name, path in spec.destinations.items()
        }

    def find_open_transactions(self, *_: Any) -> tuple[()]:
        """Nobody sends in transactions."""
        return ()

    def query(self, spec: QuerySpec) -> SimulatedQuery:
        start = databases.begin(self, spec) if spec.tables else None
        return SimulatedQuery(self, spec, start)

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read records again and append them as one, once for each operation and chunk."""
        self.on_step(f"chunk {version}")
        table = self.world.table(spec.shard)
        if table.batches.get(app, -1) < version:
            rows = [
                (topic, partition, offset)
                for topic, partition, first, until in ranges for offset in range(first, until)
            ]
            if any(offset >= self.world.ends(topic).get((topic, partition), 0)
                   for topic, partition, offset in rows):
                raise EngineFailure("records are gone", condition="OFFSETS_OUT_OF_RANGE")
            table.append(rows, self.told[f"chunk of {spec.item_id}"], app=app, batch=version)
        self.on_step(f"chunk {version}.done")
        return ()
