"""Faults put into the streams on purpose: wrappers of ports, each of which breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.postgres.sessions import RESUME
from catalog_migrate.connectors.postgres.snapshot import MANIFEST, read_manifest
from catalog_migrate.connectors.postgres.survey import Survey, Surveyed, SurveyedTable
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.postgres.watch import WatchedServer, Watcher
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import ChangesMissing
from catalog_migrate.streams.catalog.operation_records import commit_in, moves_in
from catalog_migrate.streams.catalog.queries import QueryEngine
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.upstreams.upstream import Upstream, topics_of_query
from tests.simulation.databases import SimulatedDatabases
from tests.simulation.faulty import Edits, FaultyLog, change_kept
from tests.simulation.object_store import Bucket
from tests.simulation.server import STEP
from tests.simulation.streaming import PLAIN
from tests.simulation.upstream import CatalogServer


def _same(port: Any) -> Any:
    return port


@dataclass(frozen=True, slots=True)
class StreamFault:
    """What becomes of the ports and the log of each process, of a runtime's engine, and of the
    object store."""

    ports: Callable[[Ports], Ports] = _same
    engine: Callable[[QueryEngine], QueryEngine] = _same
    log: Callable[[MemoryLog], MemoryLog] = _same
    bucket: type[Bucket] = Bucket


NO_FAULT = StreamFault()


class _Wrapped:
    """A port with some of its methods replaced."""

    def __init__(self, port: Any, **methods: Callable[..., Any]) -> None:
        self._port = port
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def _tables(**methods: Callable[..., Any]) -> StreamFault:
    def wrapped(ports: Ports) -> Ports:
        return replace(ports, tables=_Wrapped(ports.tables, **methods))

    return StreamFault(wrapped)


class _Whole(Checkpoint):
    """One that never says that it is being restored."""

    @property
    def restoring(self) -> int | None:
        """Nothing is under way."""
        return None


_SEEN: set[str] = set()


class _WholeAtFirst(Ports):
    """A checkpoint is taken for whole when a process looks at it that nobody has looked at yet."""

    def checkpoint(self, path: Any) -> Checkpoint:
        """As the port's."""
        if str(path) in _SEEN:
            return super().checkpoint(path)
        _SEEN.add(str(path))
        return _Whole(path, files=self.files)


def _taken_for_whole(ports: Ports) -> Ports:
    return _WholeAtFirst(
        ports.resolve, ports.upstreams, ports.tables, ports.threads, ports.files,
        ports.cluster_log,
    )


def _told(ports: Ports) -> Ports:
    return replace(ports, resolve=lambda reference: PLAIN + reference)  # type: ignore[arg-type,return-value]


_NUMBERS = count()


def _appends_again(engine: QueryEngine) -> QueryEngine:
    def append_range(
        spec: QuerySpec, ranges: Sequence[OffsetRange], *, app: str, version: int
    ) -> tuple[str, ...]:
        return engine.append_range(spec, ranges, app=f"{app}/{next(_NUMBERS)}", version=version)

    return _Wrapped(engine, append_range=append_range)


def _told_too_early(ports: Ports) -> Ports:
    """A broker tells the id of a topic that it has yet to make."""

    def identify(spec: QuerySpec) -> Upstream:
        found = ports.upstreams.identify(spec)
        again = ports.upstreams.world.again  # type: ignore[attr-defined]
        to_come = {
            topic: f"{topic} {again.get(topic, 0) + 1} of {found.upstream}"
            for topic in topics_of_query(spec)
        }
        return changed(found, topics={**to_come, **found.topics})

    return replace(ports, upstreams=_Wrapped(ports.upstreams, identify=identify))


class _HidesTrials(FaultyLog):
    """A client does not see that somebody else's ALTER is under way."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self._own: set[str] = set()
        self._runtime = False

    def shown(self, state: State) -> Edits:
        return {} if self._runtime else {
            ("operation", key): None for key, row in state.operations.items()
            if row.kind == "alter" and row.state in ("validating", "trial") and key not in self._own
        }

    def kept(self, before: State, edits: Edits) -> Edits:
        self._own |= {key for kind, key in edits if kind == "operation"}
        self._runtime = self._runtime or any(kind == "lease" for kind, _ in edits)
        return edits


class _ForgetsFormerTopics(FaultyLog):
    """A source that goes over to another topic forgets the id of the one that it read."""

    def kept(self, before: State, edits: Edits) -> Edits:
        def forget(_: str, stream: StreamRecord) -> StreamRecord:
            return changed(stream, former={})

        return change_kept(edits, "stream", forget)


class _ForgetsImages(FaultyLog):
    """It is not seen of which topics the rows were that a source had read before a move."""

    def shown(self, state: State) -> Edits:
        edits: Edits = {}
        for key, row in state.operations.items():
            moves = tuple(changed(move, topics={}) for move in moves_in(row))
            if row.unsafe is not None and moves:
                commit = changed(commit_in(row), moves=moves)
                unsafe = changed(row.unsafe, commit=msgspec.to_builtins(commit))
                edits["operation", key] = encode_record(changed(row, unsafe=unsafe))
        return edits


class _LateSnapshots:
    """The changes of a snapshot begin behind what was committed after it."""

    def __init__(self, engine: Any) -> None:
        self._copy = engine.databases.copy
        engine.databases.copy = self.copy

    def copy(self, *arguments: Any, **options: Any) -> None:
        connection, tables, put = arguments

        def moved(name: str, data: bytes) -> None:
            if name == MANIFEST:
                manifest = read_manifest(data)
                late = changed(manifest.position, lsn=manifest.position.lsn + STEP)
                data = msgspec.json.encode(changed(manifest, position=late))
            put(name, data)

        self._copy(connection, tables, moved, **options)


def _begins_late(engine: QueryEngine) -> QueryEngine:
    _LateSnapshots(engine)
    return engine


class _Blind(Watcher):
    """It takes whatever is there for what was recorded."""

    def look(self, asked: WatchedServer, position: Position) -> str:
        return position.catalog or super().look(asked, position)


def _looks_at_starts(engine: QueryEngine) -> QueryEngine:
    engine.watcher = _Blind  # type: ignore[attr-defined]
    return engine


def _on_catalogs(alter: Callable[[CatalogServer], None]) -> Callable[[QueryEngine], QueryEngine]:
    def altered(engine: QueryEngine) -> QueryEngine:
        server = engine.world.database  # type: ignore[attr-defined]
        if isinstance(server, CatalogServer):
            alter(server)
        return engine

    return altered


def _leaves_no_trace(server: CatalogServer) -> None:
    """Rows of the catalog seem to be written once: what was undone is as before."""
    known = type(server).versions

    def versions(*asked: Any) -> Iterator[tuple[str, int, int, int]]:
        return ((*row[:3], 0) for row in known(server, *asked))

    vars(server).update(versions=versions)


def _surveys(change: Callable[[SurveyedTable], SurveyedTable]) -> StreamFault:
    """What a survey has of each table is something else."""

    def alter(server: CatalogServer) -> None:
        known = type(server).survey

        def survey(*asked: Any) -> Surveyed:
            found = known(server, *asked)
            tables = tuple(map(change, found.survey.tables))
            return found._replace(survey=changed(found.survey, tables=tables))

        vars(server).update(survey=survey)

    return StreamFault(engine=_on_catalogs(alter))


def _without_numbers(table: SurveyedTable) -> SurveyedTable:
    return changed(table, columns=tuple(changed(each, number=0) for each in table.columns))


class _GoesOn(Watcher):
    """Whatever is missing, it says to go on."""

    def look(self, asked: WatchedServer, position: Position) -> str:
        try:
            return super().look(asked, position)
        except ChangesMissing as error:
            error.data["statements"] = RESUME
            raise


class _SaysToGoOn(SimulatedDatabases):
    def look(self, spec: QuerySpec, position: Position | None) -> Survey:
        try:
            return super().look(spec, position)
        except ChangesMissing as error:
            error.data["statements"] = RESUME
            raise


def _goes_on(engine: QueryEngine) -> QueryEngine:
    engine.watcher = _GoesOn  # type: ignore[attr-defined]
    return engine


def _says_to_go_on(ports: Ports) -> Ports:
    known = ports.databases
    assert isinstance(known, SimulatedDatabases)
    return replace(ports, databases=_SaysToGoOn(ports.upstreams.world, known.on_step))  # type: ignore[attr-defined]


class _EndsListings(Bucket):
    """A listing ends with its first page."""

    def _pages(self, *where: str) -> Iterator[list[str]]:
        yield next(super()._pages(*where))


class _KnowsNoTag(Bucket):
    """A put in the place of another is carried out whatever is there, as by stores that know
    If-None-Match alone."""

    def put(self, above: str, name: str, data: bytes, *, mode: Any = None) -> None:
        super().put(above, name, data, mode="create" if mode == "create" else None)


CATALOG_FAULTS: Mapping[str, StreamFault] = {
    "a mirror is looked at when it starts only": StreamFault(engine=_looks_at_starts),
    "what was undone leaves no trace": StreamFault(engine=_on_catalogs(_leaves_no_trace)),
    "columns are known by their names": _surveys(_without_numbers),
    "a file is taken for a table": _surveys(lambda table: changed(table, oid=table.file)),
    "a hold says to go on": StreamFault(_says_to_go_on, engine=_goes_on),
}
"""Those of what a mirror knows of its source."""

FAULTS: Mapping[str, StreamFault] = {
    "a torn restore is taken over": StreamFault(_taken_for_whole),
    "nothing is barred": _tables(fence=lambda _: lambda old, new: None),
    "a secret is told": StreamFault(_told),
    "a chunk comes twice": StreamFault(engine=_appends_again),
    "an ALTER in a trial": StreamFault(log=_HidesTrials),
    "changes begin late": StreamFault(engine=_begins_late),
    "former topics are forgotten": StreamFault(log=_ForgetsFormerTopics),
    "a sink goes back over another topic": StreamFault(log=_ForgetsImages),
    "a source begins before its topic": StreamFault(_told_too_early),
    "nobody waits for sinks": _tables(has_rows=lambda *_, **__: False),
    "a listing ends with its first page": StreamFault(bucket=_EndsListings),
    "a store knows no tags": StreamFault(bucket=_KnowsNoTag),
}
"""Every fault by name."""
