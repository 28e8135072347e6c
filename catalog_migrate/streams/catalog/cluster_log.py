"""The log of a cluster: what its queries were doing, appended by its runtime, read by SHOW.

One Delta table a cluster, written by delta-rs so that no Spark job is spent on it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.process import proven_dead
from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.table import load_table, options_for
from catalog_migrate.errors import CatalogWriteRefused
from catalog_migrate.model.objects import Column
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.failures import Failure, describe_place
from catalog_migrate.streams.catalog.queries import CAUSED_BY, WRAPPERS

CHECKPOINT_INTERVAL = 50
"""Commits between two Delta checkpoints of a cluster's log."""

TIDY_INTERVAL = 5 * CHECKPOINT_INTERVAL
"""Commits after which the files of a cluster's log are put together: each report adds a small one,
and each reader reads them all."""

_KEPT_HOURS = 1
"""How long files that were put together stay for those who read them."""

OPERATOR = "operator"
"""Holder of the holds that PAUSE sets, and PAUSED at creation."""

UPSTREAM = "upstream"
"""Holder of the hold that a changed upstream sets."""

FAILURE = "failure"
"""Holder of the hold on a query that failed of one cause again and again."""

OF_QUERIES = frozenset({UPSTREAM, FAILURE})
"""Holders of the holds that a runtime sets for what a query met: RESUME lifts them, and an edit of
its positions."""

FENCE = "fence"
"""Holder of the hold on a query whose earlier runtime could not be fenced out yet."""

OPERATION = "operation:"
"""What the holder of an operation's holds begins with; the operation's key follows."""

LOG_COLUMNS = (
    Column("at", "TIMESTAMP", comment="when it was written, by the runtime's clock"),
    Column("item_id", "STRING"), Column("name", "STRING"), Column("kind", "STRING"),
    Column("state", "STRING", comment="running, starting, held, backing_off, stopped"),
    Column("run_id", "STRING", comment="changes with every start of the query"),
    Column("query_id", "STRING"), Column("batch", "BIGINT"), Column("rows", "BIGINT"),
    Column("lag", "BIGINT", comment="records that are there and not read yet"),
    Column("error", "STRING", comment="the cause chain of the last failure"),
    Column("restarts", "BIGINT"), Column("runtime", "STRING", comment="host/process"),
    Column("failure", "STRING",
           comment="of that failure, as JSON: code, tries, place, remedy, statements"),
)

LONGEST = 200
"""Characters of an error in one line, at most."""

_WRAPPER = re.compile(rf"\[({'|'.join(sorted(WRAPPERS))}|_LEGACY)\b")
_GENERAL = re.compile(r"Some data may have been lost because they are not available.*? Reason: ")


def summarize_error(error: str) -> str:
    """What a chain of causes comes to, in one line: Spark's innermost error class that is more than
    a wrapper, else the innermost cause, without what every error of its class says."""
    parts = error.split(CAUSED_BY)
    telling = [part for part in parts if part.startswith("[") and not _WRAPPER.match(part)]
    text = _GENERAL.sub("", (telling or parts)[-1])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class QueryStatus(msgspec.Struct, frozen=True):
    """One row of the log; ``state`` is ``running``, ``starting``, ``held``, ``backing_off`` or
    ``stopped``. ``error`` is the cause chain, outermost first, secrets scrubbed (of a start that
    waits upstream for another process what it waits for); ``failure`` is what else is known of it,
    as JSON (see :func:`decode_failure`)."""

    item_id: str
    name: str
    kind: str
    state: str
    run_id: str | None = None
    query_id: str | None = None
    batch: int | None = None
    rows: int | None = None
    lag: int | None = None
    error: str | None = None
    restarts: int = 0
    at: str = ""
    runtime: str = ""
    failure: str | None = None


def decode_failure(status: QueryStatus) -> Failure | None:
    """The record of what a query failed of; of the log of an earlier version only its text."""
    if status.failure is not None:
        return msgspec.json.decode(status.failure, type=Failure)
    return None if status.error is None else Failure(code="", message=status.error)


class ClusterLog:
    """Appends status rows; thread-safe. ``path`` is the shard's absolute directory.

    ``untidy`` is whether its files are to be put together by :meth:`tidy`, which takes long on a
    large log.
    """

    untidy = False

    def __init__(self, path: str, runtime: str) -> None:
        self._path = path
        self._runtime = runtime
        self._last: dict[str, QueryStatus] = {}
        self._lock = threading.Lock()

    def write(self, statuses: Iterable[QueryStatus]) -> int:
        """Append what changed since the last call; returns the number of rows."""
        with self._lock:
            changed = [each for each in statuses if self._last.get(each.item_id) != each]
            if not changed:
                return 0
            self._append(changed)
            self._last.update({each.item_id: each for each in changed})
            return len(changed)

    def tidy(self) -> None:
        """Put the files of the log together; rows may be appended meanwhile, also by others."""
        from deltalake.exceptions import DeltaError

        self.untidy = False
        try:
            table = load_table(self._path)
            table.optimize.compact()
            table.vacuum(
                retention_hours=_KEPT_HOURS, enforce_retention_duration=False, dry_run=False
            )
        except (DeltaError, OSError):
            return  # the next time does it

    def _append(self, rows: list[QueryStatus]) -> None:
        from arro3.core import Array, DataType, Table
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        now = int(datetime.now(timezone.utc).timestamp() * 1_000_000)
        text, number = DataType.utf8(), DataType.int64()
        columns: dict[str, Any] = {
            "at": Array([now] * len(rows), type=number).cast(
                DataType.timestamp("us", tz="UTC")
            ),
            "item_id": Array([row.item_id for row in rows], type=text),
            "name": Array([row.name for row in rows], type=text),
            "kind": Array([row.kind for row in rows], type=text),
            "state": Array([row.state for row in rows], type=text),
            "run_id": Array([row.run_id for row in rows], type=text),
            "query_id": Array([row.query_id for row in rows], type=text),
            "batch": Array([row.batch for row in rows], type=number),
            "rows": Array([row.rows for row in rows], type=number),
            "lag": Array([row.lag for row in rows], type=number),
            "error": Array([row.error for row in rows], type=text),
            "restarts": Array([row.restarts for row in rows], type=number),
            "runtime": Array([self._runtime] * len(rows), type=text),
            "failure": Array([row.failure for row in rows], type=text),
        }
        data: Any = Table.from_pydict(columns)
        try:
            write_deltalake(
                self._path, data, mode="append", storage_options=options_for(self._path),
                schema_mode="merge",  # the log of an earlier version has fewer columns
                commit_properties=CommitProperties(max_commit_retries=5),
            )
            table = load_table(self._path)
            if table.version() % CHECKPOINT_INTERVAL == 0:
                table.create_checkpoint()
            if table.version() % TIDY_INTERVAL == 0:
                self.untidy = True
        except (DeltaError, OSError) as error:
            raise CatalogWriteRefused(
                f"the cluster's log at {self._path} cannot be written: {error}",
                remedy="look at disk space and permissions; queries go on meanwhile",
            ) from error


def log_path(state: State, cluster_id: str) -> str:
    """Return the directory of a cluster's log."""
    log = state.items[state.items[cluster_id].links["log"]]
    return dependencies.location(state, log.shard or "")


def latest(state: State) -> Mapping[str, QueryStatus]:
    """Return the newest status of every query, by item id, from the logs of all clusters."""

    from deltalake import QueryBuilder

    found: dict[str, QueryStatus] = {}
    clusters = [m.item_id for m in state.mappings.values() if m.kind == "cluster"]
    for cluster in clusters:
        path = log_path(state, cluster)
        if not has_log(path):
            continue
        log = load_table(path)
        failure = "failure" if any(field.name == "failure" for field in log.schema().fields) \
            else "NULL AS failure"
        table = QueryBuilder().register("log", log).execute(
            "SELECT item_id, name, kind, state, run_id, query_id, batch, rows, lag, error, "
            f"restarts, cast(at as varchar) AS at, runtime, {failure} FROM (SELECT *, row_number()"
            " OVER (PARTITION BY item_id ORDER BY at DESC) AS newest FROM log) WHERE newest = 1"
        ).read_all()
        names = table.column_names
        columns = [table.column(name).to_pylist() for name in names]
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            if row["item_id"] in state.items:
                found[row["item_id"]] = QueryStatus(**row)
    return found


def failing_queries(state: State) -> dict[str, str]:
    """What queries fail of that are tried again and again, by item id, as their runtimes said
    last."""
    return {
        item_id: status.error for item_id, status in latest(state).items()
        if status.state in ("backing_off", "starting") and status.error
    }


def list_holds(state: State, item_id: str) -> tuple[str, ...]:
    """Return why a query must not run; see :func:`hold_text`."""
    return tuple(
        hold_text(hold) for _, hold in sorted(state.holds.items()) if hold.item_id == item_id
    )


def hold_text(hold: HoldRecord) -> str:
    """``holder: reason`` of a hold, how often it was tried, where, and since when if it is known.
    """
    details = [f"{hold.tries} tries"] * (hold.tries > 1) + describe_place(hold.place)
    details += [f"since {hold.since}"] * bool(hold.since)
    return f"{hold.holder}: {hold.reason}" + (f" ({', '.join(details)})" if details else "")


def cluster_name(state: State, item_id: str) -> str:
    """Return the name of the cluster that a query belongs to."""
    return dependencies.display(state, state.items[item_id].links.get("cluster", ""))


def cluster_key(cluster_id: str) -> str:
    """Return the key of a cluster's lease."""
    return f"cluster/{cluster_id}"


def runtime_lives(state: State, cluster: str) -> bool:
    """Return whether a runtime holds the lease of a cluster and is not proven dead."""
    lease = state.leases.get(cluster_key(cluster))
    return lease is not None and bool(lease.holder) and not proven_dead(lease)


def utc_now(clock: Clock) -> str:
    """Now, in UTC and to the second (ISO 8601)."""
    now = datetime.fromtimestamp(clock.wall(), timezone.utc)
    return now.isoformat(timespec="seconds")
