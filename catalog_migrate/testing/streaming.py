"""Queries, tables and a broker in memory, under the real code of :mod:`catalog_migrate.streams`.

A simulated query does with its checkpoint what Spark does (offsets, then rows, then commits, in
real small files), one step whenever its process sleeps; rows carry (query id, batch) as Delta's
transactions do. Threads of the code under test run at once and in place, so that a run is a
function of its scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from catalog_migrate.connections.findings import Finding
from catalog_migrate.connections.secrets import Secret
from catalog_migrate.connections.validation import Identity
from catalog_migrate.errors import CatalogMigrateError, ConnectionFailed, EngineFailure
from catalog_migrate.streams.checkpoint.codec_kafka import KafkaCodec, Partition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.checkpoint.lines import START
from catalog_migrate.streams.queries import QueryFailure, QueryProgress, QuerySpec
from catalog_migrate.streams.unsafe.forecast import Held
from catalog_migrate.streams.upstream import Upstream

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


@dataclass(slots=True)
class StreamTable:
    """A source's table: (partition, offset) of every row, and the newest batch by query id."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    batches: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class StreamWorld:
    """What outlives every process: topics (records by partition) and tables by directory."""

    topics: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, StreamTable] = field(default_factory=dict)

    def table(self, path: str) -> StreamTable:
        """The table at a path, made when it is first asked for."""
        return self.tables.setdefault(path, StreamTable())

    def ends(self, topic: str) -> dict[Partition, int]:
        """One past the newest record of every partition."""
        return {(topic, number): count for number, count in enumerate(self.topics[topic])}

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
            table.batches[old] = BARRED
            if last is not None and last != BARRED:
                table.batches[new] = last
            return None if last == BARRED else last

        return bar


class SimulatedQuery:
    """A source's query: reads from where its checkpoint stands, one step at a time."""

    def __init__(self, engine: SimulatedQueries, spec: QuerySpec) -> None:
        self.engine = engine
        self.spec = spec
        self.run_id = uuid4().hex
        self.active = True
        self._batch: int | None = None
        self._rows = 0
        self._failure: QueryFailure | None = None
        self._between = True
        self._id = ""
        self._read: tuple[int, dict[Partition, int]] | None = None
        """The last batch whose position was read, and that; Spark keeps it in memory, too."""
        self._life = self._live()

    @property
    def query_id(self) -> str:
        """The id in the checkpoint's metadata, read once as Spark does."""
        if not self._id:
            self._id = Checkpoint(self.spec.checkpoint).query_id or ""
        return self._id

    def progress(self) -> QueryProgress | None:
        """The newest progress; None until the first."""
        if self._batch is None:
            return None
        return QueryProgress(self._batch, 0, self._rows, "2026-01-01T00:00:00Z")

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
            self._failure = QueryFailure(error.code, (error.message,))

    def stop(self, drain: float) -> bool:
        """End the batch under way when there is time for it, else at once."""
        self.engine.on_step("stop")
        while drain > 0 and self.active and not self._between:
            self.step()
        self.active = False
        return True

    def _live(self) -> Iterator[None]:
        spec, world, on_step = self.spec, self.engine.world, self.engine.on_step
        checkpoint = Checkpoint(spec.checkpoint)
        on_step("query begins")
        if checkpoint.query_id is None:
            _write(checkpoint, "metadata", f'{{"id":"{uuid4()}"}}')
        topic = str(spec.external.options["TOPIC"])
        while True:
            if str(spec.connection["BROKER"]) == "lame:9092":
                raise EngineFailure("the broker drops every fetch", condition="FETCH_FAILED")
            world.cluster_at(spec.connection, str(spec.name))
            latest, done = checkpoint.latest_offsets, checkpoint.latest_commits
            if latest is not None and (done is None or done < latest):
                batch = latest
            else:
                batch = 0 if latest is None else latest + 1
                ends = world.ends(topic)
                if ends == self._position(checkpoint, batch - 1, topic):
                    self._batch = max(batch - 1, 0)
                    yield
                    continue
                on_step(f"offsets {batch}")
                self._between = False
                _write(
                    checkpoint, f"offsets/{batch}", f"v1\n{META}\n{KafkaCodec().write(ends)}"
                )
                yield
            self._between = False
            self._deliver(checkpoint, batch, topic)
            yield
            on_step(f"commits {batch}")
            _write(checkpoint, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
            self._batch = batch
            self._between = True
            yield

    def _position(self, checkpoint: Checkpoint, batch: int, topic: str) -> dict[Partition, int]:
        if self._read is None or self._read[0] != batch:
            self._read = batch, _written(checkpoint, batch)
        return {**dict.fromkeys(self.engine.world.ends(topic), 0), **self._read[1]}

    def _deliver(self, checkpoint: Checkpoint, batch: int, topic: str) -> None:
        """The rows of a batch, once for each query id and batch, as Delta's sink does."""
        self.engine.on_step(f"rows {batch}")
        table = self.engine.world.table(self.spec.shard)
        if table.batches.get(self.query_id, -1) >= batch:
            return
        before = self._position(checkpoint, batch - 1, topic)
        after = self._position(checkpoint, batch, topic)
        rows = [
            (partition, offset)
            for (name, partition), end in sorted(after.items())
            for offset in range(before[name, partition], end)
        ]
        table.rows += rows
        table.batches[self.query_id] = batch
        self._rows += len(rows)


def _written(checkpoint: Checkpoint, batch: int) -> dict[Partition, int]:
    """What a checkpoint says of the position after a batch (-1: before the first)."""
    found: dict[Partition, int] = {}
    initial = checkpoint.source_directory(0) / "0"
    if initial.is_file():  # what the query was first told, or what an operator put there
        found.update(KafkaCodec().read_initial(initial.read_bytes(), str(initial)))
    if batch < 0:
        return found
    line = checkpoint.entry(batch).sources[0]
    return found if line == START else {**found, **(KafkaCodec().read(line) or {})}


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
        """The newest batch in the source's table."""
        self.on_step("last batch")
        return {"shard": self.world.table(spec.shard).batches.get(query_id)}

    def append_range(
        self, spec: QuerySpec, places: Sequence[tuple[str, int, int, int]], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read records again and append them as one, once for each operation and chunk."""
        self.on_step(f"chunk {version}")
        table = self.world.table(spec.shard)
        if table.batches.get(app, -1) < version:
            table.rows += [
                (partition, offset)
                for _, partition, first, last in places for offset in range(first, last)
            ]
            table.batches[app] = version
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
        )
    }
    changes: list[tuple[Any, str, Any]] = [
        (module, "ThreadPoolExecutor", _InPlace)
        for module in modules.values() if hasattr(module, "ThreadPoolExecutor")
    ]

    def identify(spec: QuerySpec) -> Upstream:
        cluster = world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        return Upstream(cluster, {str(spec.external.options["TOPIC"]): f"id of {cluster}"})

    def access(
        connection: Mapping[str, Any], wanted: Sequence[Any], **_: Any
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        try:
            cluster = world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return None, {each.subject: tuple(error.findings) for each in wanted}
        ids = {topic: f"id of {cluster}" for each in wanted for topic in each.topics}
        fine: dict[str, tuple[Finding, ...]] = {
            each.subject: (Finding(each.subject, None, True, "fine"),) for each in wanted
        }
        return Identity("KAFKA", cluster, ids), fine

    def validate(_: str, connection: Mapping[str, Any], **__: Any) -> tuple[Finding, ...]:
        try:
            world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return tuple(error.findings)
        return (Finding("connection", None, True, "fine"),)

    @contextmanager
    def held(spec: QuerySpec, **_: Any) -> Iterator[Held]:
        cluster = world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        topic = str(spec.external.options["TOPIC"])
        bounds = {place: (0, end) for place, end in world.ends(topic).items()}
        yield Held(
            cluster, {topic: f"id of {cluster}"}, bounds, lambda _, places: dict.fromkeys(places)
        )

    def make_files(self: Files, on_step: Callable[[str], None] = on_file) -> None:
        self._on_step = on_step

    changes += [
        (modules["streams.supervisor"], "identify", identify),
        (modules["streams.runtime"], "identify", identify),
        (modules["streams.probes"], "identify", identify),
        (modules["streams.runtime"], "ClusterLog", _Quiet),
        (modules["streams.runtime"], "count_pending", lambda *_: None),
        (modules["streams.takeover"], "delta_fence", world.fence),
        (modules["streams.unsafe.positions"], "held_by_kafka", held),
        (modules["streams.unsafe.client"], "delta_batch",
         lambda path, query_id: world.table(path).batches.get(query_id)),
        (modules["streams.unsafe.backfill"], "held_by_kafka", held),
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
