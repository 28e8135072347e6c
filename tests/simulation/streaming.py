"""Queries, tables and a broker in memory, under the real code of :mod:`catalog_migrate.streams`.

A simulated query does with its checkpoint what Spark does (offsets, then rows, then commits, in
real small files), one step whenever its process sleeps; rows carry (query id, batch) as Delta's
transactions do. Threads of the code under test run at once and in place, so that a run is a
function of its scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from catalog_migrate.connections.findings import Finding
from catalog_migrate.connections.secrets import Redactor, Secret
from catalog_migrate.connections.validation import Identity
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectionFailed,
    EngineFailure,
    UnsafeBlocked,
)
from catalog_migrate.streams.checkpoint.codec_delta import DeltaBounds
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec, Partition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.checkpoint.lines import START
from catalog_migrate.streams.queries import QueryFailure, QueryProgress, QuerySpec
from catalog_migrate.streams.unsafe.forecast import Held
from catalog_migrate.streams.upstream import Upstream, topics_of_query
from tests.simulation import stream_sinks

META = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
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

    A topic that is deleted and created again has another id. ``told`` are the ids that a query was
    last told when it was about to start (by item id), ``planned`` those of its batches (by
    checkpoint, and by item id); ``sent`` has what a sink sent by table row, ``wrong`` the first row
    with a key that is not its own. ``lag`` says how many steps a sink rests after each batch,
    ``slow`` how many steps the tasks of a batch take at an address.
    """

    topics: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, StreamTable] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    told: dict[str, Mapping[str, str]] = field(default_factory=dict)
    planned: dict[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    sent: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: str = ""
    lag: dict[str, int] = field(default_factory=dict)
    slow: dict[str, int] = field(default_factory=dict)

    def table(self, path: str) -> StreamTable:
        """The table at a path, made when it is first asked for."""
        if path not in self.tables:
            self.tables[path] = StreamTable()
            Path(path, "_delta_log").mkdir(parents=True, exist_ok=True)
        return self.tables[path]

    def ends(self, topic: str) -> dict[Partition, int]:
        """One past the newest record of every partition; nothing of a topic that is gone."""
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

    def has_rows(self, path: str, after: int, upto: int, **_: object) -> bool:
        """Whether versions after one, up to another, brought rows."""
        versions = self.table(path).versions
        return versions[upto] > versions[max(after, 0)]

    def rows_added(self, path: str, first: int, upto: int) -> int:
        """Rows that versions from ``first`` to before ``upto`` brought."""
        versions = self.table(path).versions
        return versions[upto - 1] - versions[max(first - 1, 0)] if upto > first else 0

    def newest(self, path: str) -> int | None:
        """The newest version of a table, None where there is none."""
        return len(self.tables[path].versions) - 1 if path in self.tables else None

    def cluster_at(self, connection: Mapping[str, Any], subject: str) -> str:
        """The cluster that a connection leads to; ConnectionFailed where nothing answers."""
        cluster = ADDRESSES.get(str(connection["BROKER"]), "")
        if not cluster:
            # clients are known to print their whole configuration
            said = f"nothing answers (sasl.password={_plain(connection.get('SASL PASSWORD'))})"
            finding = Finding(subject, "BROKER", False, said, "another address")
            raise ConnectionFailed(
                f"{subject}: {said}", findings=(finding,), remedy="another address"
            )
        return cluster

    def fence(self, path: str) -> Callable[[str, str], int | None]:
        """What bars an old query id in a table and gives its newest batch to a new one."""

        def bar(old: str, new: str) -> int | None:
            table = self.table(path)
            last = table.batches.get(old)
            if last == BARRED:  # once more, for another successor
                last = table.batches.get(f"before {old}")
            table.batches[old] = BARRED
            table.versions.append(len(table.rows))
            if last is not None:
                table.batches[f"before {old}"] = last
                table.batches[new] = max(last, table.batches.get(new, last))
            return last

        return bar


class SimulatedQuery:
    """A source's query: reads from where its checkpoint stands, one step at a time."""

    def __init__(self, engine: SimulatedQueries, spec: QuerySpec) -> None:
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
        self._ids = engine.world.told.get(spec.item_id, {})
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
            self._failure = QueryFailure(error.code, (told,))

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
                write_entry(checkpoint, batch, KafkaCodec().write(ends))
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
        self.engine.on_step("query begins")
        if checkpoint.query_id is None:
            _write(checkpoint, "metadata", f'{{"id":"{uuid4()}"}}')
        return checkpoint

    def reach(self) -> None:
        """Reach the broker, or fail."""
        if str(self.spec.connection["BROKER"]) == "lame:9092":
            raise EngineFailure("the broker drops every fetch", condition="FETCH_FAILED")
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
        _write(checkpoint, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
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
        table = self.engine.world.table(self.spec.shard)
        if table.batches.get(self.query_id, -1) >= batch:
            return
        before = self._position(checkpoint, batch - 1, topic)
        after = self._position(checkpoint, batch, topic)
        self._require_there(after, self.engine.world.ends(topic))
        rows = [
            (name, partition, offset)
            for (name, partition), end in sorted(after.items())
            for offset in range(before.get((name, partition), 0), end)
        ]
        # of a copied checkpoint, whose owner may go on in the old one, what the item had last
        planned = self.engine.world.planned
        ids = planned.get((self.spec.checkpoint, batch)) or planned[self.spec.item_id, batch]
        table.append(rows, ids, app=self.query_id, batch=batch)
        self.total += len(rows)


def _written(checkpoint: Checkpoint, batch: int) -> dict[Partition, int]:
    """What a checkpoint says of the position after a batch (-1: before the first)."""
    found: dict[Partition, int] = {}
    initial = checkpoint.source_directory(0) / "0"
    if initial.is_file():  # what the query was first told, or what an operator put there
        found.update(KafkaCodec().read_initial(initial.read_bytes(), str(initial)))
    if batch < 0:
        return found
    line = checkpoint.entry(batch).sources[0]
    return found if line == START else dict(KafkaCodec().read(line) or {})


def write_entry(checkpoint: Checkpoint, batch: int, line: str) -> None:
    """A query plans a batch that ends at a position."""
    _write(checkpoint, f"offsets/{batch}", f"v1\n{META}\n{line}")


def _write(checkpoint: Checkpoint, name: str, text: str) -> None:
    file = checkpoint.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@dataclass(slots=True)
class _Prepared:
    engine: SimulatedQueries
    spec: QuerySpec

    def start(self) -> SimulatedQuery:
        """Start it."""
        return self.engine.start(self.spec)


class SimulatedQueries:
    """One process's engine: implements :class:`catalog_migrate.streams.queries.QueryEngine`.

    ``on_step`` hears of every step of every query before its effect, and may raise.
    """

    def __init__(self, world: StreamWorld, on_step: Callable[[str], None]) -> None:
        self.world = world
        self.on_step = on_step
        self.running: list[SimulatedQuery] = []

    def prepare(self, spec: QuerySpec) -> _Prepared:
        """A plan that nothing was started of yet."""
        return _Prepared(self, spec)

    def start(self, spec: QuerySpec) -> SimulatedQuery:
        """Start a query; it goes on when its process sleeps."""
        self.on_step("start")
        query = SimulatedQuery(self, spec)
        self.running.append(query)
        return query

    def step(self) -> None:
        """Let every query of this process go on by one step."""
        self.running = [query for query in self.running if query.active]
        for query in self.running:
            query.step()

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:
        """Run the batch that is under way, and no other."""
        del timeout
        query = SimulatedQuery(self, spec)
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
        return {"shard": self.world.table(spec.shard).batches.get(query_id)}

    def append_range(
        self, spec: QuerySpec, places: Sequence[tuple[str, int, int, int]], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read records again and append them as one, once for each operation and chunk."""
        self.on_step(f"chunk {version}")
        table = self.world.table(spec.shard)
        if table.batches.get(app, -1) < version:
            rows = [
                (topic, partition, offset)
                for topic, partition, first, last in places for offset in range(first, last)
            ]
            if any(offset >= self.world.ends(topic).get((topic, partition), 0)
                   for topic, partition, offset in rows):
                raise EngineFailure("records are gone", condition="OFFSETS_OUT_OF_RANGE")
            table.append(rows, self.world.told[f"chunk of {spec.item_id}"], app=app, batch=version)
        self.on_step(f"chunk {version}.done")
        return ()


def _plain(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


class _InPlace:
    """Stands for a pool of threads: what is submitted runs at once, and fails in its future."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> _InPlace:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, act: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        """Run it."""
        future: Future[Any] = Future()
        try:
            future.set_result(act(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - handed on by the future, as by a pool's
            future.set_exception(error)
        return future

    def map(self, act: Callable[..., Any], *items: Any) -> Iterator[Any]:
        """Run it for each."""
        return iter([act(*each) for each in zip(*items, strict=False)])

    def shutdown(self, **_: object) -> None:
        """Nothing runs."""


class _ThreadInPlace:
    """Stands for a thread: what it is to do is done when it is started."""

    def __init__(self, *, target: Callable[[], None], **_: object) -> None:
        self._target = target

    def start(self) -> None:
        """Do it."""
        self._target()

    def is_alive(self) -> bool:
        """It never is."""
        return False

    def join(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""


class _Quiet:
    """Stands for a cluster's log, which is a table of progress that nothing here hangs on."""

    def __init__(self, *_: object) -> None:
        pass

    def write(self, _: object) -> None:
        """Say nothing."""


@contextmanager
def simulated_streams(world: StreamWorld, on_file: Callable[[str], None]) -> Iterator[None]:
    """Put the world in the place of brokers, tables, threads and slow disks, for a while.

    ``on_file`` hears of every step that our own code takes on a checkpoint, before its effect.
    """
    modules = {
        name: import_module(f"catalog_migrate.{name}")
        for name in (
            "streams.operations", "streams.supervisor", "streams.probes", "streams.runtime",
            "streams.takeover", "streams.unsafe.positions", "streams.unsafe.client",
            "streams.checkpoint.files", "connections.validation", "streams.unsafe.backfill",
            "streams.unsafe.planning", "streams.following", "streams.unsafe.former",
        )
    }
    changes: list[tuple[Any, str, Any]] = [
        (module, "ThreadPoolExecutor", _InPlace)
        for module in modules.values() if hasattr(module, "ThreadPoolExecutor")
    ]

    def identify(spec: QuerySpec) -> Upstream:
        cluster = world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        return Upstream(cluster, world.topic_ids(cluster, topics_of_query(spec)))

    def identify_for_start(spec: QuerySpec) -> Upstream:
        found = identify(spec)
        world.told[spec.item_id] = dict(found.topics)
        return found

    def probe_queries(*asked: Any, **named: Any) -> tuple[Any, dict[str, Upstream]]:
        verdicts, found = modules["streams.probes"].probe_queries(*asked, **named)
        world.told.update((item_id, dict(each.topics)) for item_id, each in found.items())
        return verdicts, found

    def access(
        connection: Mapping[str, Any], wanted: Sequence[Any], **_: Any
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        try:
            cluster = world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return None, {each.subject: tuple(error.findings) for each in wanted}
        ids = world.topic_ids(cluster, (topic for each in wanted for topic in each.topics))
        findings: dict[str, tuple[Finding, ...]] = {
            each.subject: tuple(
                Finding(each.subject, None, topic in ids, "fine" if topic in ids else "no topic")
                for topic in each.topics
            )
            for each in wanted
        }
        return Identity("KAFKA", cluster, ids), findings

    def validate(_: str, connection: Mapping[str, Any], **__: Any) -> tuple[Finding, ...]:
        try:
            world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return tuple(error.findings)
        return (Finding("connection", None, True, "fine"),)

    @contextmanager
    def held(spec: QuerySpec, **_: Any) -> Iterator[Held]:
        cluster = world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        topics = topics_of_query(spec)
        ids = world.topic_ids(cluster, topics)
        if len(ids) < len(topics):
            raise UnsafeBlocked(f"{spec.name} reads topics that are not there", problems=topics)
        bounds = {place: (0, end) for topic in topics for place, end in world.ends(topic).items()}
        yield Held(cluster, ids, bounds, lambda _, places: dict.fromkeys(places))

    @contextmanager
    def held_for_chunk(spec: QuerySpec, **_: Any) -> Iterator[Held]:
        with held(spec) as found:
            world.told[f"chunk of {spec.item_id}"] = dict(found.topic_ids)
            yield found

    def bounds_of(path: str) -> DeltaBounds:
        return DeltaBounds(path, 0, world.newest(path) or 0)

    def make_files(self: Files, on_step: Callable[[str], None] = on_file) -> None:
        self._on_step = on_step

    changes += [
        (modules["streams.supervisor"], "identify", identify_for_start),
        (modules["streams.operations"], "probe_queries", probe_queries),
        (modules["streams.runtime"], "identify", identify),
        (modules["streams.probes"], "identify", identify),
        (modules["streams.runtime"], "ClusterLog", _Quiet),
        (modules["streams.runtime"], "count_pending", lambda *_: None),
        (modules["streams.takeover"], "delta_fence", world.fence),
        (modules["streams.unsafe.positions"], "held_by_kafka", held),
        (modules["streams.unsafe.former"], "held_by_kafka", held),
        (modules["streams.unsafe.client"], "delta_batch",
         lambda path, query_id: world.table(path).batches.get(query_id)),
        (modules["streams.unsafe.backfill"], "held_by_kafka", held_for_chunk),
        (modules["streams.unsafe.planning"], "delta_bounds", bounds_of),
        (modules["streams.unsafe.positions"], "delta_bounds", bounds_of),
        (modules["streams.unsafe.positions"], "rows_added", world.rows_added),
        (modules["streams.unsafe.planning"], "has_rows_between", world.has_rows),
        (modules["streams.unsafe.planning"], "newest_version", world.newest),
        (modules["streams.unsafe.planning"], "_staying", lambda *_: ()),
        (modules["streams.following"], "has_rows_between", world.has_rows),
        (modules["streams.unsafe.backfill"], "delta_batch",
         lambda path, app: world.table(path).batches.get(app)),
        (modules["streams.unsafe.backfill"], "threading",
         SimpleNamespace(Thread=_ThreadInPlace, Event=Event)),
        (modules["streams.checkpoint.files"], "_sync", lambda _: None),
        (modules["streams.checkpoint.files"], "sync_directory", lambda _: None),
        (modules["connections.validation"], "kafka_access", access),
        (modules["connections.validation"], "validate_connection", validate),
        (Files, "__init__", make_files),
    ]  # fmt: skip
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
