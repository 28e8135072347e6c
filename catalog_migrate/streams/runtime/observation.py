"""What a runtime knows of itself and its queries, read beside it.

No lock is taken, no server and no JVM is asked, so that a reader cannot slow it down.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.state import State
from catalog_migrate.streams.catalog.cluster_log import OPERATION, QueryStatus, cluster_name
from catalog_migrate.streams.runtime.operations import pending

if TYPE_CHECKING:
    from catalog_migrate.streams.runtime.supervisor import Managed, Supervisor

STATES = ("running", "starting", "held", "backing_off", "stopped", "quarantined")
"""Every state of a query that a runtime reports."""

STUCK = 600.0
"""Seconds in which a runtime that carries out no operation ends a round, at least."""


class Report(msgspec.Struct, frozen=True):
    """What a runtime has reported last: when, of which state, and how its queries were."""

    at: float
    state: State
    statuses: tuple[QueryStatus, ...]


class Observable(Protocol):
    """What is looked at of a :class:`~catalog_migrate.streams.runtime.runtime.Runtime`."""

    cluster_id: str
    clock: Clock
    supervisor: Supervisor | None
    reported: Report | None
    round_at: float | None

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, or has to."""


class ObservedQuery(msgspec.Struct, frozen=True):
    """One source or sink. ``batch_at`` is when its newest batch began, ``progress_at`` when it
    looked for data last (both seconds since 1970); ``holds`` counts its holds by holder."""

    kind: str
    name: str
    cluster: str
    status: QueryStatus
    quarantined: bool = False
    batch: int | None = None
    batch_at: float | None = None
    progress_at: float | None = None
    holds: dict[str, int] = {}

    @property
    def state(self) -> str:
        """One of :data:`STATES`."""
        return "quarantined" if self.quarantined else self.status.state


class Observation(msgspec.Struct, frozen=True):
    """A runtime at one moment. ``sick`` is why it makes no progress, ``unready`` why its queries do
    not run under it yet, or no more; both are empty where all is well."""

    sick: str = ""
    unready: str = ""
    lease_age: float | None = None
    epoch: int | None = None
    reported: float | None = None
    queries: tuple[ObservedQuery, ...] = ()


def observe(runtime: Observable | None) -> Observation:
    """Return a runtime as it is now, None for one whose session still starts; for any thread."""
    if runtime is None:
        return Observation(unready="the session of Spark starts")
    supervisor, report = runtime.supervisor, runtime.reported
    lease = None if supervisor is None else supervisor.lease
    return Observation(
        _sick(runtime), _unready(runtime),
        None if lease is None else lease.age, None if lease is None else lease.epoch,
        None if report is None else report.at,
        () if report is None or supervisor is None
        else _queries(report, dict(supervisor.managed)),
    )


def _sick(runtime: Observable) -> str:
    """Why a runtime makes no progress; one that waits for the lease, or ends, is not judged."""
    if runtime.supervisor is None or runtime.stopping:
        return ""
    lease = runtime.supervisor.lease
    if not lease.is_fresh:
        return f"the lease was last renewed {lease.age:.0f} s ago"
    report = runtime.reported
    idle = 0.0 if runtime.round_at is None else runtime.clock.monotonic() - runtime.round_at
    if report is not None and idle > STUCK and not pending(report.state, runtime.cluster_id):
        return f"no round has ended for {idle:.0f} s"
    return ""


def _unready(runtime: Observable) -> str:
    if runtime.supervisor is None:
        return "it has not got the lease of its cluster yet"
    if runtime.stopping:
        return "it stops"
    if runtime.round_at is None:
        return "its first round has not ended yet"
    return _sick(runtime)


def _queries(report: Report, managed: dict[str, Managed]) -> tuple[ObservedQuery, ...]:
    state = report.state
    found = []
    for status in report.statuses:
        each, item = managed.get(status.item_id), state.items[status.item_id]
        progress = None if each is None else each.progress
        batch_at = None if each is None else each.batch_at
        holds: dict[str, int] = {}
        for hold in state.holds.values():
            if hold.item_id == status.item_id:
                holder = "operation" if hold.holder.startswith(OPERATION) else hold.holder
                holds[holder] = holds.get(holder, 0) + 1
        found.append(ObservedQuery(
            status.kind, status.name, cluster_name(state, status.item_id), status,
            item.quarantined is not None,
            status.batch, None if batch_at is None else _seconds(batch_at),
            None if progress is None else _seconds(progress.at), holds,
        ))
    return tuple(found)


def _seconds(at: str) -> float:
    """Seconds since 1970 of a moment that Spark says (``2026-01-31T02:14:07.123Z``)."""
    moment = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
