"""The port between the runtime and the engine that runs a source's or a sink's query.

And which of a query's columns are the user's and which are the product's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from catalog_migrate.connectors.base import OpenTransaction
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import CatalogMigrateError, EngineFailure

if TYPE_CHECKING:
    from catalog_migrate.connectors.positions import OffsetRange
    from catalog_migrate.streams.catalog.tables import Tables


WRAPPERS: frozenset[str] = frozenset({
    "STREAM_FAILED", "TASK_WRITE_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FAILED_EXECUTE_UDF", "INTERNAL_ERROR",
})  # fmt: skip
"""Spark's error classes that only say that something inside of them failed."""

_LATE_WORKER = re.compile(r"Python worker (?:to|failed to) connect back")


def is_late_worker(error: str) -> bool:
    """Whether an error says that a process of Python did not come up in Spark's time, ten seconds
    for the offsets of a source: the machine is loaded, which is no fault of the query."""
    return _LATE_WORKER.search(error) is not None

CAUSED_BY = " / caused by: "
"""Between the texts of a chain of causes."""


class QueryProgress(msgspec.Struct, frozen=True):
    """The newest progress of a query: its batch, rows per batch, rows since the start, lag.

    ``lag`` counts records that are there and not read yet, None when the source cannot say.
    ``at`` is when the batch began (ISO 8601, UTC); of an ``idle`` one, when it was looked for data.
    ``batch_at`` is when the newest batch began that was no idle look, None where none was seen.
    """

    batch: int
    rows: int
    total_rows: int
    at: str
    lag: int | None = None
    idle: bool = False
    batch_at: str | None = None


class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query died: ``condition`` is Spark's error class or the innermost cause's class.

    ``causes`` goes from the outermost message to the innermost, secrets scrubbed. ``error`` is what
    our own reader of PostgreSQL raised; ``condition`` is its code then. ``remedy``, ``statements``
    and ``place`` are those of the error of ours that says most; ``passing`` is what may end by
    itself (a connection that is down).
    """

    condition: str
    causes: tuple[str, ...]
    error: CatalogMigrateError | None = None
    remedy: str = ""
    statements: tuple[str, ...] = ()
    place: dict[str, str] = {}
    passing: bool = False


class RunningQuery(Protocol):
    """A query that was started; methods may be called from any thread."""

    @property
    def query_id(self) -> str:
        """The id in the checkpoint's metadata."""

    @property
    def run_id(self) -> str:
        """Another one after each start."""

    @property
    def active(self) -> bool:
        """Whether it has not ended; says nothing about health."""

    def progress(self) -> QueryProgress | None:
        """Return the newest progress since this start; None until the first."""

    def worked(self) -> int:
        """How much its tasks have done since this start, also within a batch: tasks that ended,
        records read and written. Only its growth says anything."""

    def failure(self) -> QueryFailure | None:
        """Return why it ended; None while it runs and when it was stopped."""

    def stop(self, drain: float) -> bool:
        """Let the current batch end for at most ``drain`` seconds, then stop; whether it ended."""


class PreparedQuery(Protocol):
    """A query whose plan stands and that nothing was started of yet; it is started once."""

    def start(self) -> RunningQuery:
        """Start it; returns at once. EngineFailure when Spark refuses it right away."""


class QueryEngine(Protocol):
    """Starts queries; the Spark implementation is in :mod:`catalog_migrate.streams.spark`."""

    @property
    def awaited(self) -> Mapping[str, str]:
        """What starts wait for upstream now, in words, by item id."""

    def prepare(self, spec: QuerySpec) -> PreparedQuery:
        """Make the plan of a query, which may run as it is meanwhile; EngineFailure if refused."""

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:
        """Run exactly the one uncommitted batch of the checkpoint (``trigger(once=True)``)."""

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange], *, app: str,
        version: int,
    ) -> tuple[str, ...]:
        """Read exact ranges into a source's tables.

        One append to each, under the transaction (app, version): one that has it skips it. Records
        that cannot be read go to the dead letters, else they are left out and returned, in words.
        """

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """The newest batch that each destination of the query has: by name, None for unknown.

        The Delta transaction of each of :attr:`QuerySpec.destinations`; ``postgres``: the ledger;
        ``kafka`` cannot know: it is left out.
        """

    def find_open_transactions(
        self, spec: QuerySpec, places: Sequence[tuple[str, int]]
    ) -> tuple[OpenTransaction, ...]:
        """What is open in partitions of a Kafka source's topics; nothing where it cannot be seen.
        """


class OfflineQueries:
    """A query engine without Spark: it knows what tables have, and can start nothing."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.awaited: Mapping[str, str] = {}

    def prepare(self, spec: QuerySpec) -> PreparedQuery:
        """Never: a caller that acts alone starts nothing."""
        raise EngineFailure(f"{spec.kind} {spec.name} cannot be started without a runtime")

    def finish_batch(self, spec: QuerySpec, *, timeout: float) -> None:  # noqa: ARG002
        """A batch that only some of its tables have must be run, which needs Spark."""
        raise EngineFailure(
            f"a batch of {spec.kind} {spec.name} was under way and must be run once more, which "
            "needs Spark",
            remedy="start the cluster (catalog-migrate run), let it run, and run the command again",
        )

    def append_range(
        self, spec: QuerySpec, ranges: Sequence[OffsetRange],  # noqa: ARG002
        *, app: str, version: int,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Never: records are read by Spark."""
        raise EngineFailure(f"records of {spec.kind} {spec.name} cannot be read without Spark")

    def last_batch(self, spec: QuerySpec, query_id: str) -> Mapping[str, int | None]:
        """As the port says, read by delta-rs; nothing for what only a runtime can ask."""
        return {
            name: self._tables.batch(path, query_id) for name, path in spec.destinations.items()
        }

    def find_open_transactions(
        self, spec: QuerySpec, places: Sequence[tuple[str, int]]  # noqa: ARG002
    ) -> tuple[OpenTransaction, ...]:
        """Never: it starts nothing that could wait for one."""
        return ()
