"""The ports of streams (:mod:`catalog_migrate.streams.runtime.ports`) on a simulated world.

Threads of the code under test run at once and in place, so that a run is a function of its
scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.connectors.base import Access, Contents, Identity
from catalog_migrate.connectors.positions import OffsetRange, Partition
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import ConnectionFailed, EngineFailure, InvalidPosition, UnsafeBlocked
from catalog_migrate.model.findings import MISSING, Finding
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus
from catalog_migrate.streams.checkpoint.codecs import DeltaBounds, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import Fence
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.runtime.ports import Event, Ports
from catalog_migrate.streams.upstreams.upstream import Upstream, topics_of_query
from tests.simulation.databases import SimulatedDatabases
from tests.simulation.server import SYSTEM
from tests.simulation.streaming import BARRED, StreamWorld, resolve


class SimulatedUpstreams:
    """The brokers of a world, as one process sees them.

    ``told`` are the ids of topics that were told last, by item id: what a query that starts then
    reads of.
    """

    def __init__(self, world: StreamWorld) -> None:
        self.world = world
        self.told: dict[str, Mapping[str, str]] = {}

    def identify(self, spec: QuerySpec) -> Upstream:
        """Who answers."""
        if "HOST" in spec.connection:
            self.world.database.at(spec.connection, f"{spec.kind} {spec.name}")
            return Upstream(SYSTEM)
        cluster = self.world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        ids = self.world.topic_ids(cluster, topics_of_query(spec))
        self.told[spec.item_id] = ids
        return Upstream(cluster, ids)

    def access(
        self, connector: str, connection: Resolved, wanted: Sequence[Access], *,
        timeout: float = 10.0,
    ) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
        """Whether topics are there; whoever reaches the broker may do everything."""
        del connector, timeout
        try:
            cluster = self.world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return None, {each.subject: tuple(error.findings) for each in wanted}
        ids = self.world.topic_ids(cluster, (topic for each in wanted for topic in each.names))
        for each in wanted:
            if all(topic in ids for topic in each.names):
                self.told[each.subject] = {topic: ids[topic] for topic in each.names}
        return Identity("KAFKA", cluster, ids), {
            each.subject: tuple(_there(each.subject, topic, ids) for topic in each.names)
            for each in wanted
        }

    def check_connection(
        self, connector: str, connection: Resolved, *, timeout: float = 10.0
    ) -> tuple[Finding, ...]:
        """Whether something answers."""
        del timeout
        try:
            if connector == "POSTGRES":
                self.world.database.at(connection, "connection")
            else:
                self.world.cluster_at(connection, "connection")
        except ConnectionFailed as error:
            return tuple(error.findings)
        return (Finding("connection", None, "ok", "fine"),)

    def check_query(self, spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
        """As :meth:`access` of a query alone."""
        del timeout
        if spec.tables:
            found = self.world.database
            new = spec.snapshot_number == 1
            try:
                found.at(spec.connection, f"source {spec.name}")
            except ConnectionFailed as error:
                return tuple(error.findings)
            names = [each.upstream.postgres_name for each in spec.tables]
            return found.preflight(names, spec.publication, f"source {spec.name}", new=new)
        wanted = Access(spec.kind, topics_of_query(spec), "READ")
        return self.access("KAFKA", spec.connection, [wanted])[1][spec.kind]

    def check_schemas(self, spec: QuerySpec, *, timeout: float = 10.0) -> tuple[Finding, ...]:
        """No query of a world has a schema registry."""
        del timeout
        assert spec.registry is None
        return ()

    @contextmanager
    def contents(
        self, spec: QuerySpec, *, timeout: float = 10.0, sample: bool = True
    ) -> Iterator[Contents]:
        """Every record from the first one; nobody knows when any was written."""
        del timeout, sample
        try:
            cluster = self.world.cluster_at(spec.connection, f"{spec.kind} {spec.name}")
        except ConnectionFailed as error:
            raise EngineFailure(error.message, condition=error.code) from error
        topics = topics_of_query(spec)
        ids = self.world.topic_ids(cluster, topics)
        if len(ids) < len(topics):
            raise UnsafeBlocked(f"{spec.name} reads topics that are not there", problems=topics)
        self.told[f"chunk of {spec.item_id}"] = ids
        ends = [self.world.ends(topic) for topic in topics]
        bounds = {place: (0, end) for each in ends for place, end in each.items()}
        yield Contents(cluster, ids, bounds, lambda _, places: dict.fromkeys(places))


def _there(subject: str, topic: str, ids: Mapping[str, str]) -> Finding:
    if topic in ids:
        return Finding(subject, "TOPIC", "ok", "fine", "create it")
    return Finding(
        subject, "TOPIC", "error", f"there is no topic {topic}", "create it", code=MISSING
    )


class SimulatedTables:
    """The tables of a world, which only grow."""

    def __init__(self, world: StreamWorld) -> None:
        self.world = world

    def batch(self, path: str, query_id: str) -> int | None:
        """The newest batch, before the fence if there is one."""
        batches = self.world.tables[path].batches if path in self.world.tables else {}
        found = batches.get(query_id)
        return batches.get(f"before {query_id}") if found == BARRED else found

    def fence(self, path: str) -> Fence:
        """What bars an old query id in a table and gives its newest batch to a new one."""

        def bar(old: str, new: str) -> int | None:
            last = self.batch(path, old)
            table = self.world.table(path)
            table.batches[old] = BARRED
            table.versions.append(len(table.rows))
            if last is not None:
                table.batches[f"before {old}"] = last
                table.batches[new] = max(last, table.batches.get(new, last))
            return last

        return bar

    def newest(self, path: str) -> int | None:
        """The newest version of a table, None where there is none."""
        tables = self.world.tables
        return len(tables[path].versions) - 1 if path in tables else None

    def bounds(self, path: str) -> DeltaBounds:
        """Every version from the first."""
        newest = self.newest(path)
        if newest is None:
            raise EngineFailure(f"there is no table at {path}")
        return DeltaBounds(path, 0, newest)

    def target(self, path: str, consumed: int) -> DeltaPosition:
        """The position after a version."""
        if not 0 <= consumed <= self.bounds(path).latest:
            raise InvalidPosition(f"{path} has no version {consumed}", remedy="another one")
        return DeltaPosition(path, consumed + 1)

    def has_rows(self, path: str, after: int, upto: int, *, skip_changes: bool = False) -> bool:
        """Whether versions after one, up to another, brought rows."""
        del skip_changes
        versions = self.world.table(path).versions
        return versions[upto] > versions[max(after, 0)]

    def rows_added(self, path: str, first: int, upto: int) -> int:
        """Rows that versions from ``first`` to before ``upto`` brought."""
        versions = self.world.table(path).versions
        return versions[upto - 1] - versions[max(first - 1, 0)] if upto > first else 0

    def rows_at(self, path: str, version: int, within: Sequence[OffsetRange] = ()) -> int:
        """Rows of a version."""
        if within:
            return sum(total for total, _ in self.rows_in(path, within, version).values())
        return self.world.table(path).versions[version]

    def rows_in(
        self, path: str, wanted: Iterable[OffsetRange], version: int | None = None
    ) -> Mapping[Partition, tuple[int, int]]:
        """Rows and different offsets."""
        table, listed = self.world.table(path), list(wanted)
        rows = table.rows if version is None else table.rows[: table.versions[version]]
        times: dict[Partition, Counter[int]] = {}
        for topic, number, offset in rows:
            for each in listed:
                if each.topic_partition == (topic, number) and each.first <= offset < each.until:
                    times.setdefault(each.topic_partition, Counter())[offset] += 1
        return {place: (sum(each.values()), len(each)) for place, each in times.items()}

    def foreign_commits(self, path: str, after: int, upto: int, query_id: str) -> list[str]:
        """Nobody else writes."""
        del path, after, upto, query_id
        return []

    def count_exchanged(self, path: str, to: int, newest: int) -> tuple[int, int]:
        """What was appended since goes."""
        return self.rows_at(path, newest) - self.rows_at(path, to), 0

    def last_times(self, path: str, topics: Collection[str]) -> dict[Partition, int]:
        """Rows have no times."""
        del path, topics
        return {}

    def time_spans(
        self, path: str, ranges: Sequence[OffsetRange]
    ) -> dict[Partition, tuple[str, str]]:
        """Rows have no times."""
        del path, ranges
        return {}


class _InPlace(Executor):
    """A pool in which what is submitted runs at once, and fails in its future."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed on by the future, as by a pool's
            future.set_exception(error)
        return future


class _Done:
    """What ran in place."""

    def is_alive(self) -> bool:
        """It never is."""
        return False

    def join(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""


class _Event:
    """Waiting for it is sleeping."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False

    def set(self) -> None:
        """It came."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it came."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep."""
        if not self._set:
            self._clock.sleep(timeout or 0.0)
        return self._set


class SimulatedThreads:
    """Everything runs in place; what is to be repeated is when :meth:`go_on` is called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: list[tuple[Callable[[], None], Event]] = []

    def pool(self, workers: int, name: str) -> Executor:
        """One that runs what it is given at once."""
        del workers, name
        return _InPlace()

    def run(self, act: Callable[[], None], name: str) -> _Done:
        """Do it."""
        del name
        act()
        return _Done()

    def repeat(self, act: Callable[[], None], seconds: float, until: Event, name: str) -> None:
        """Keep it for :meth:`go_on`."""
        del seconds, name
        self._repeated.append((act, until))

    def event(self) -> Event:
        """One that has not come."""
        return _Event(self._clock)

    def go_on(self) -> None:
        """Time has passed: do what is repeated once more."""
        for act, until in self._repeated:
            if not until.is_set():
                act()


class NoLog(ClusterLog):
    """A cluster's log, which nothing here hangs on."""

    def write(self, statuses: Iterable[QueryStatus]) -> int:
        """Say nothing."""
        del statuses
        return 0


def simulated_ports(
    world: StreamWorld, clock: Clock, *, on_file: Callable[[str], None] = lambda _: None
) -> Ports:
    """The ports of one process; ``on_file`` hears of every step that it takes on a checkpoint."""
    return Ports(
        resolve, SimulatedUpstreams(world), SimulatedTables(world), SimulatedThreads(clock),
        Files(on_file, durable=False), NoLog, SimulatedDatabases(world, lambda _: None),
    )
