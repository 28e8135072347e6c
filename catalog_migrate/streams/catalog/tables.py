"""The port to the Delta tables of streams: what a table says of its writers, versions and rows.

The simulation has another one behind it. Read by delta-rs, so that no Spark job is spent on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend
from catalog_migrate.connectors.positions import Partition
from catalog_migrate.delta.files import list_added_files, rows_added, size_of
from catalog_migrate.delta.log import read_change
from catalog_migrate.delta.table import load_table, shard_version, table_size, view_table
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.errors import EngineFailure, ShardGone
from catalog_migrate.model.objects import Column
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.checkpoint.codecs import DeltaBounds, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import (
    Fence,
    delta_batch,
    delta_bounds,
    delta_fence,
    delta_target,
    has_rows_between,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.connectors.positions import OffsetRange

OWN = "catalog_migrate/unsafe/"
"""What the transactions of unsafe operations in a shard begin with; the operation's key follows."""

_FENCED = "catalog_migrate/fenced/"

AT_ONCE = 100
"""Partitions asked about in one query."""


def transaction(key: str) -> str:
    """The application id under which an operation writes into a shard."""
    return f"{OWN}{key}"


class Tables(Protocol):
    """What streams ask of the tables that they write and read, by absolute directory.

    Everything raises :class:`EngineFailure` for a table that cannot be read.
    """

    def batch(self, path: str, query_id: str) -> int | None:
        """Return the newest batch of a query that a table has; None for none or no table yet.

        For a query that was fenced out it is the newest one before the fence.
        """

    def fence(self, path: str) -> Fence:
        """Return what bars a query id from a table and gives its newest batch to its successor."""

    def newest(self, path: str) -> int | None:
        """Return the newest version of a table, None where there is none yet."""

    def bounds(self, path: str) -> DeltaBounds:
        """Return a table's id, and the versions that a reader can start from."""

    def target(self, path: str, consumed: int) -> DeltaPosition:
        """Return the position of a reader after the version ``consumed``."""

    def has_rows(self, path: str, after: int, upto: int, *, skip_changes: bool = False) -> bool:
        """Return whether a stream that has version ``after`` finds a batch up to version ``upto``.

        With ``skip_changes`` commits that remove rows are passed over whole.
        """

    def rows_added(self, path: str, first: int, upto: int) -> int:
        """Rows that the versions from ``first`` to before ``upto`` brought."""

    def rows_at(self, path: str, version: int, within: Sequence[OffsetRange] = ()) -> int:
        """Rows of one version, of all or of ranges of offsets."""

    def rows_in(
        self, path: str, wanted: Iterable[OffsetRange], version: int | None = None
    ) -> Mapping[Partition, tuple[int, int]]:
        """Rows and different offsets of each range in a version, None for the newest."""

    def foreign_commits(self, path: str, after: int, upto: int, query_id: str) -> list[str]:
        """The commits after one version, up to another, of neither the query nor an operation."""

    def count_exchanged(self, path: str, to: int, newest: int) -> tuple[int, int]:
        """Rows that go, and rows that come back, when a table is restored to version ``to``."""

    def last_times(self, path: str, topics: Collection[str]) -> dict[Partition, int]:
        """When the last stored record of each partition was written, in ms since 1970."""

    def time_spans(
        self, path: str, ranges: Sequence[OffsetRange]
    ) -> dict[Partition, tuple[str, str]]:
        """When the first and the last stored record of each range were written, as text."""


def foreign_commits(path: str, after: int, upto: int, query_id: str) -> list[str]:
    """Return the commits of versions after ``after`` that neither the query nor an operation made.

    What changes no data (compaction, vacuum, a fence) is nobody's; a change of the table's
    definition is somebody else's whoever made it, because RESTORE would take it back.
    """
    changes = [read_change(path, version) for version in range(after + 1, upto + 1)]
    own, found = {query_id}, []
    for change in changes:
        own.update(
            app.removeprefix(_FENCED) for app in change.transactions if app.startswith(_FENCED)
        )
    for change in changes:
        apps = change.transactions.keys()
        restored = any(app.startswith(OWN) for app in apps)
        ours = restored or bool(apps & own)
        moved = change.adds or change.removes
        if (moved and not ours) or (change.redefines and not restored):
            found.append(f"version {change.version} ({change.operation or 'unknown'})")
    return found


def _query(
    path: str, query: str, within: Sequence[OffsetRange] = (), *, version: int | None = None,
    what: str,
) -> Iterator[tuple[Any, ...]]:
    """The rows of a query on a version of a table, which it calls ``t``; None is the newest.

    ``{where}`` in it stands for ranges of offsets, so many in one query. ``what`` tells an
    EngineFailure what was being done.
    """
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    wheres = [
        " OR ".join(_condition(each) for each in within[start:start + AT_ONCE])
        for start in range(0, len(within), AT_ONCE)
    ] or ["TRUE"]
    try:
        for where in wheres:
            table = QueryBuilder().register("t", load_table(path, version=version)).execute(
                query.replace("{where}", where)
            ).read_all()
            columns = [table.column(name).to_pylist() for name in table.column_names]
            yield from zip(*columns, strict=True)
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot {what} of {path}: {error}") from error


def rows_at(path: str, version: int, within: Sequence[OffsetRange] = ()) -> int:
    """Rows of one version of a table, of all or of ranges of offsets."""
    if not within:
        known = table_size(view_table(path, version=version)).rows
        if known >= 0:
            return known
    query = "SELECT count(*) AS total FROM t WHERE {where}"
    return sum(
        total for total, in _query(path, query, within, version=version, what="count the rows")
    )


def count_exchanged(path: str, to: int, newest: int) -> tuple[int, int]:
    """Rows that go and rows that come back when a table at ``newest`` is restored to ``to``.

    Counted by files, which only lose rows; a compaction since lets both seem larger, so no more go
    than were ever appended since.
    """
    def files(version: int) -> dict[str, int]:
        return {add["path"]: max(0, size_of(add)[0]) for add in list_added_files(path, version)}

    net = rows_at(path, newest) - rows_at(path, to)
    now, then = files(newest), files(to)
    gone = sum(max(0, rows - then.get(name, 0)) for name, rows in now.items())
    gone = max(0, net, min(gone, rows_added(path, to + 1, newest + 1)))
    return gone, gone - net


def rows_in(
    path: str, wanted: Iterable[OffsetRange], version: int | None = None
) -> Mapping[Partition, tuple[int, int]]:
    """Rows and different offsets of each range in a version of a shard, read by delta-rs.

    ``version`` None is the newest.
    """
    listed = list(wanted)
    if not listed:
        return {}
    query = (
        "SELECT _topic, _partition, count(*) AS total, count(DISTINCT _offset) AS found "
        "FROM t WHERE {where} GROUP BY _topic, _partition"
    )
    return {
        (topic, number): (total, distinct)
        for topic, number, total, distinct in _query(
            path, query, listed, version=version, what="count the rows"
        )
    }


def last_times(path: str, topics: Collection[str]) -> dict[Partition, int]:
    """When the last stored record of each partition was written (ms), by the table of a source."""
    if not topics:
        return {}
    names = ", ".join(map(_literal, sorted(topics)))
    query = (
        "SELECT _topic, _partition, arrow_cast(_timestamp, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        " AS at FROM (SELECT _topic, _partition, _timestamp, row_number() OVER (PARTITION BY "
        f"_topic, _partition ORDER BY _offset DESC) AS newest FROM t WHERE _topic IN ({names})) "
        "WHERE newest = 1"
    )
    return {
        (topic, number): round(at.timestamp() * 1000)
        for topic, number, at in _query(path, query, what="read the times") if at is not None
    }


def time_spans(path: str, ranges: Sequence[OffsetRange]) -> dict[Partition, tuple[str, str]]:
    """When the first and the last stored record of each range were written, as text."""
    if not ranges or shard_version(path) is None:
        return {}
    query = (
        "SELECT _topic, _partition, cast(min(_timestamp) AS varchar) AS first, "
        "cast(max(_timestamp) AS varchar) AS last FROM t WHERE {where} GROUP BY _topic, _partition"
    )
    return {
        (topic, number): (first, last)
        for topic, number, first, last in _query(path, query, ranges, what="read the times")
    }


def _condition(wanted: OffsetRange) -> str:
    """The rows of a range, in SQL."""
    return (
        f"(_topic = {_literal(wanted.topic)} AND _partition = {wanted.partition} "
        f"AND _offset >= {wanted.first} AND _offset < {wanted.until})"
    )


def _literal(text: str) -> str:
    """A text in standard SQL, as DataFusion reads it: no backslash means anything."""
    return "'" + text.replace("'", "''") + "'"


class DeltaTables:
    """The port's implementation by delta-rs."""

    batch = staticmethod(delta_batch)
    fence = staticmethod(delta_fence)
    newest = staticmethod(shard_version)
    bounds = staticmethod(delta_bounds)
    target = staticmethod(delta_target)
    has_rows = staticmethod(has_rows_between)
    rows_added = staticmethod(rows_added)
    rows_at = staticmethod(rows_at)
    rows_in = staticmethod(rows_in)
    foreign_commits = staticmethod(foreign_commits)
    count_exchanged = staticmethod(count_exchanged)
    last_times = staticmethod(last_times)
    time_spans = staticmethod(time_spans)


class ShardMaker(msgspec.Struct, frozen=True):
    """Creates the shards of items through ``create`` unless ``version`` finds them.

    ``protect`` makes a shard append-only, which the tables that sinks read must be. An item whose
    query was started before must have its shard: nothing is made anew for it, lost rows are an
    error and not an empty table.
    """

    create: Callable[[ShardSpec], None]
    version: Callable[[str], int | None]
    protect: Callable[[str], object] = lambda _: None
    evolve: Callable[[str, Sequence[Column], ShardSpec], object] = lambda *_: None

    @classmethod
    def local(cls, spark: SparkSession | None = None) -> ShardMaker:
        """Through delta-rs, and Spark for what only it can do."""
        from catalog_migrate.delta.table import make_append_only, shard_version
        from catalog_migrate.engine.spark.shards import Shards

        shards = Shards(spark)
        return cls(shards.create_shard, shard_version, make_append_only, shards.evolve)

    def ensure(self, state: State, item_id: str) -> None:
        """Make the shard of an item, of the other tables that it writes and of its cluster's log.

        For a sink: see that the table which it reads only grows (unless ON CHANGE is skip).
        Raises :class:`ShardGone` when a query that was started before has
        lost one of them.
        """
        item = state.items[item_id]
        for table in dependencies.must_only_grow(state, [item_id]):
            shard = state.items[table].shard
            if shard is not None:
                self.protect(dependencies.location(state, shard))
        if item_id in state.streams:
            self._require(state, item_id)
            for table_id in dependencies.outputs(item):
                self._evolve(state, table_id)
            return
        log = item.links.get("log")
        for table_id in (*dependencies.outputs(item), *([log] if log is not None else [])):
            self.ensure(state, table_id)
        if item.shard is None:
            return
        path = dependencies.location(state, item.shard)
        if self.version(path) is None:
            self.create(_shard_spec(state, item_id, path))

    def _evolve(self, state: State, item_id: str) -> None:
        """Give a table the columns that its source has taken over from upstream."""
        shard = state.items[item_id].shard or ""
        if state.shards[shard].evolve and not of_release(state, shard):
            path = dependencies.location(state, shard)
            spec = _shard_spec(state, item_id, path)
            self.evolve(path, spec.columns, spec)

    def _require(self, state: State, item_id: str) -> None:
        """A started query writes on where it wrote: an empty table would hide what is lost."""
        item = state.items[item_id]
        for owner in (item_id, *dependencies.outputs(item)):
            kept = state.items.get(owner)
            if kept is None or kept.shard is None:
                continue
            path = dependencies.location(state, kept.shard)
            if self.version(path) is None:
                raise ShardGone(
                    f"the table of {kept.definition.kind} {kept.definition.item_name} is missing: "
                    f"there is none at {path}, and its query has written there before",
                    remedy="restore the directory from a backup; to begin with an empty table,"
                    " drop the source and create it again",
                    path=path, item_id=owner,
                )


def _shard_spec(state: State, item_id: str, path: str) -> ShardSpec:
    definition = state.items[item_id].definition
    return ShardSpec(
        path=path, columns=definition.columns, comment=definition.comment,
        stamps=marks_of(state, item_id, definition),
    )


def of_release(state: State, shard: str) -> bool:
    """Whether a shard is of a release's table, which the release's own reconciliation evolves."""
    item = state.items[state.shards[shard].item_id]
    return state.mappings[identity_text(item.definition.identity)].owner == "release"


def note_columns(state: State, item_id: str) -> tuple[Amend, ...]:
    """Return the updates by which tables have the columns that their source took over."""
    shards = [
        shard for shard in (
            state.items[each].shard or "" for each in dependencies.outputs(state.items[item_id])
        ) if state.shards[shard].evolve and not of_release(state, shard)
    ]
    return tuple(
        Amend(
            "shard", shard, {"evolve": False},
            where={"evolve": True, "global_id": state.shards[shard].global_id},
        )
        for shard in shards
    )
