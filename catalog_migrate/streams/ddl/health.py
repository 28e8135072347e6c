"""Which sources and sinks need a person: those that do not run, and those behind a limit of lag.

Read from the catalog, the logs of clusters and, for the lag, from tables and servers; no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.lease import heartbeat_age
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.process import proven_dead
from catalog_migrate.catalog.state import State
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import cluster_key, latest
from catalog_migrate.streams.catalog.rows import Rows
from catalog_migrate.streams.ddl.show import StalledQuery, list_queries, stalled_queries
from catalog_migrate.streams.runtime.lag import Lag, with_sink_lag, with_source_lag
from catalog_migrate.streams.runtime.ports import Ports

NO_RUNTIME = "no runtime"
"""The state of a query whose cluster has no runtime."""

SILENT_AFTER = 60.0
"""Seconds without a renewal after which a runtime counts as silent, at least; clocks differ."""


class Limits(msgspec.Struct, frozen=True):
    """The lag that is declared as too much; None is no limit."""

    records: float | None = None
    bytes: float | None = None
    seconds: float | None = None

    @property
    def declared(self) -> bool:
        """Whether there is any."""
        return any(each is not None for each in msgspec.structs.astuple(self))

    def exceeded(self, lag: Lag) -> tuple[str, ...]:
        """Return each limit that a lag is above, in words."""
        found = []
        for name in self.__struct_fields__:
            limit, behind = getattr(self, name), getattr(lag, name)
            if limit is not None and behind is not None and behind > limit:
                found.append(f"{behind:,} {name} behind, streams.lag_{name} is {limit:,.0f}")
        return tuple(found)


class QueryHealth(msgspec.Struct, frozen=True):
    """One source or sink. ``reasons`` are its holds, what it failed of, or the limits that it is
    behind; ``next`` is the command to go on with, where something is to do, ``remedy`` explains."""

    kind: str
    name: str
    cluster: str
    state: str
    batch: int | None
    rows: int | None
    at: str | None
    lag: Lag
    reasons: tuple[str, ...] = ()
    remedy: str | None = None
    next: str | None = None
    ok: bool = True


class RuntimeHealth(msgspec.Struct, frozen=True):
    """The runtime of a cluster; ``heartbeat`` is how many seconds ago it renewed its lease.

    ``holder`` is None where no process has the lease; ``started``: one ever had. ``silent``: it has
    the lease, and does not renew it.
    """

    cluster: str
    holder: str | None
    since: str | None
    heartbeat: float | None
    started: bool
    silent: bool
    dead: bool

    @property
    def lives(self) -> bool:
        """Whether queries of its cluster run, as far as that can be said from here."""
        return self.holder is not None and not self.silent and not self.dead


class StreamsHealth(msgspec.Struct, frozen=True):
    """All sources and sinks by kind and name, and the runtimes of their clusters."""

    queries: tuple[QueryHealth, ...] = ()
    runtimes: tuple[RuntimeHealth, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing needs a person."""
        return all(query.ok for query in self.queries)


def streams_health(
    state: State, log: CatalogLog, *, ports: Ports, now: float, limits: Limits | None = None,
    lags: bool = True, silent_after: float = SILENT_AFTER,
) -> StreamsHealth:
    """How every source and sink is at the moment ``now`` (seconds since 1970).

    Tables and servers are asked for the lag only where ``lags`` is wanted.
    """
    runtimes = {
        item_id: _runtime(state, log, item_id, now, silent_after)
        for item_id in sorted(m.item_id for m in state.mappings.values() if m.kind == "cluster")
    }
    if not any(dependencies.queries(state)):
        return StreamsHealth((), tuple(runtimes.values()))
    statuses = latest(state)
    stalled = {(each.kind, each.name): each for each in stalled_queries(state, statuses)}
    sources = list_queries(state, "source", statuses)
    sinks = list_queries(state, "sink", statuses)
    if lags:
        sources = with_source_lag(state, sources, ports=ports)
        sinks = with_sink_lag(state, sinks, ports=ports)
    clusters = {
        (found.mapping.kind, str(found.item.definition.item_name)): runtimes.get(
            found.item.links.get("cluster", "")
        )
        for found in dependencies.queries(state)
    }
    queries = [
        _query(kind, row, stalled.get((kind, str(row["name"]))),
               clusters.get((kind, str(row["name"]))), limits or Limits())
        for kind, rows in (("source", sources), ("sink", sinks)) for row in _by_column(rows)
    ]
    return StreamsHealth(tuple(queries), tuple(runtimes.values()))


def _by_column(rows: Rows) -> list[Mapping[str, object]]:
    return [dict(zip(rows.columns, values, strict=True)) for values in rows.values]


def _runtime(
    state: State, log: CatalogLog, cluster: str, now: float, silent_after: float
) -> RuntimeHealth:
    row = state.leases.get(cluster_key(cluster))
    name = dependencies.display(state, cluster)
    started = cluster in state.clusters
    if row is None or not row.holder:
        return RuntimeHealth(name, None, None, None, started, silent=False, dead=False)
    beat = heartbeat_age(log.heartbeat(cluster_key(cluster)), now)
    return RuntimeHealth(
        name, row.holder, row.since, beat, started,
        silent=beat is not None and beat > silent_after, dead=proven_dead(row),
    )


def _trouble(
    state: str, stalled: StalledQuery | None, runtime: RuntimeHealth | None
) -> tuple[str, tuple[str, ...], str | None, str | None]:
    """(state, reasons, remedy, what to run next) of a query that is on record in ``state``."""
    if stalled is not None:
        return stalled.state, stalled.reasons, stalled.remedy or None, stalled.next
    if runtime is not None and runtime.silent:
        reason = (
            f"{runtime.holder} has the cluster and has not renewed its lease for"
            f" {runtime.heartbeat:.0f} s: it is dead, or cannot reach the catalog"
        )
        return NO_RUNTIME, (reason,), None, f"catalog-migrate run --cluster {runtime.cluster}"
    return state, (), None, None


def _query(
    kind: str, row: Mapping[str, object], stalled: StalledQuery | None,
    runtime: RuntimeHealth | None, limits: Limits,
) -> QueryHealth:
    lag = msgspec.convert(
        {
            name: row.get(column) for name, column in (
                ("records", "lag"), ("versions", "lag_versions"), ("bytes", "lag_bytes"),
                ("seconds", "lag_seconds"),
            )
        },
        type=Lag, strict=False,
    )
    name = str(row["name"])
    state, reasons, remedy, next_ = _trouble(str(row["state"]), stalled, runtime)
    # a cluster that was never run has nothing that could have stopped
    unborn = state == NO_RUNTIME and (runtime is None or not runtime.started)
    behind = limits.exceeded(lag)
    if behind and next_ is None:
        next_ = f"catalog-migrate source log {name}{' --sink' * (kind == 'sink')} --since 1h"
    batch, rows = (msgspec.convert(row[each], type=int | None) for each in ("batch", "rows"))
    return QueryHealth(
        kind, name, str(row["cluster"]), state, batch, rows,
        None if row["at"] is None else str(row["at"]), lag,
        reasons=(*(each for each in reasons if each), *behind), remedy=remedy, next=next_,
        ok=not behind and (unborn or (state in ("running", "starting") and stalled is None)),
    )
