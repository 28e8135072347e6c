"""Asks for operations on running queries, and waits for them.

Operations are executed by the runtime of their cluster, or by the caller when there is none: a row
is the same for both. A caller takes the lease of a cluster that has no runtime, and ends what can
be ended without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.commits import commit
from catalog_migrate.catalog.lease import HEARTBEAT, Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.operation_states import find_declared_state, is_open, phase_of
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.requirements import Requirement
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import (
    CatalogMigrateError,
    LeaseHeld,
)
from catalog_migrate.streams.catalog.cluster_log import (
    cluster_key,
    runtime_lives,
)
from catalog_migrate.streams.catalog.queries import OfflineQueries, QueryEngine
from catalog_migrate.streams.catalog.requirements import ask_for
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.runner import Runner
from catalog_migrate.streams.runtime.supervisor import Supervisor

TRIAL_LIMIT = 60.0
"""Seconds that restarted queries have to become healthy before they are rolled back."""


SILENCE = 3 * HEARTBEAT
"""Seconds without a heartbeat after which a caller no longer waits for a runtime's work."""


_POLL = 0.01
"""Seconds from the first look at a row that is waited for to the second one."""


_LISTEN = 1.0
"""Seconds between two looks for a runtime's heartbeat, which cost more than one for a commit."""


class Ended(msgspec.Struct, frozen=True):
    """An operation that was carried out; ``alone``: by the caller that waited for it."""

    state: State
    row: OperationRecord
    alone: bool = False


OnFence = Callable[[Lease], None]
"""What is done about a holder of the lease that is not proven dead."""


Unfinished = Callable[[State, str], CatalogMigrateError]
"""The error of an operation that no process carries on now, by the newest state and why."""


@dataclass(slots=True)
class OperationClient:
    """Asks for operations on one catalog, and waits for them.

    ``make_shards`` creates the tables of new items (state, item id). ``limit`` is the time limit
    of a trial in seconds, ``on_progress`` gets what is waited for, in words.
    """

    log: CatalogLog
    make_shards: Callable[[State, str], None]
    clock: Clock = field(default_factory=SystemClock)
    ports: Ports = field(default_factory=Ports)
    limit: float = TRIAL_LIMIT
    on_progress: Callable[[str], None] = lambda _: None

    def ask(
        self, row: OperationRecord, key: str, kind: str, reason: str | None,
        *requirements: Requirement,
    ) -> None:
        """Write an operation's first row, as
        :func:`~catalog_migrate.streams.catalog.requirements.ask_for` has it."""
        commit(self.log, ask_for(row, key, kind, reason, requirements))

    def wait(self, key: str, unfinished: Unfinished) -> Ended:
        """Wait until an operation has ended; Ctrl-C leaves it going on.

        Raises ``unfinished`` where its runtime has ended or is silent and it cannot be ended from
        here.
        """

        def fence(_: Lease) -> None:
            raise unfinished(
                read_state(self.log), "its runtime does not answer, and is not proven dead"
            )

        heard = self.clock.monotonic()
        said, beat, listened = "", "", heard - _LISTEN
        state, pause = read_state(self.log), _POLL
        while True:
            if self.log.version() != state.version:
                state, pause = read_state(self.log), _POLL
            row = state.operations[key]
            if not is_open(row):
                return Ended(state, row)
            doing = phase_of(row) or row.state
            if doing != said:
                said = doing
                self.on_progress(f"operation {key}: {doing}")
            now = self.clock.monotonic()
            if now >= listened + _LISTEN:
                listened, lease_key = now, cluster_key(row.cluster)
                current = f"{state.leases.get(lease_key)} {self.log.heartbeat(lease_key)}"
                if current != beat:
                    beat, heard = current, now
            if not runtime_lives(state, row.cluster):
                state = read_state(self.log)  # it may have ended the operation first
                row = state.operations[key]
                if is_open(row) and not runtime_lives(state, row.cluster):
                    if not find_declared_state(row).alone:
                        raise unfinished(state, "its runtime ended in the middle")
                    after = self.end_here(row.cluster, fence)
                    if after is not None:
                        return Ended(after, after.operations[key], alone=True)
            elif now - heard > SILENCE:
                silent = f"nothing was heard of its runtime for {SILENCE:.0f} s, which is not"
                raise unfinished(state, f"{silent} proven dead")
            self.clock.sleep(pause)
            pause = min(1.5 * pause, self.log.longest_pause)

    def end_here(self, cluster: str, fence: OnFence) -> State | None:
        """End what needs no Spark of a cluster's operations, the state afterwards; None when a
        runtime has the cluster.

        What another process had begun and not committed is over; what was committed is finished.
        """
        try:
            with self.alone(cluster, OfflineQueries(self.ports.tables), fence) as supervisor:
                runner = Runner(
                    supervisor, lambda: read_state(self.log), supervisor.lease.ensure,
                    self.on_progress,
                )
                for key, row in runner.pending(read_state(self.log)):
                    if find_declared_state(row).alone:
                        runner.carry_out(key, inherited=row.state != "requested")
                return read_state(self.log)
        except LeaseHeld:
            return None

    @contextmanager
    def alone(self, cluster: str, engine: QueryEngine, fence: OnFence) -> Iterator[Supervisor]:
        """Act in the place of a cluster's runtime, under its lease; nothing is waited for.

        Raises :class:`LeaseHeld` where a runtime lives, and what ``fence`` raises where one is
        silent and not proven dead.
        """
        lease = acquire(
            self.log, holder="statement", clock=self.clock, key=cluster_key(cluster), wait=0,
            fence=fence,
        )
        with lease.keep():
            yield Supervisor(
                log=self.log, lease=lease, engine=engine, clock=self.clock, cluster=cluster,
                ensure_shards=self.make_shards, ports=self.ports,
            )


def operation_key(clock: Clock) -> str:
    """Return a key that sorts by time: newer operations come last."""
    stamp = datetime.fromtimestamp(clock.wall(), timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    return f"{stamp}-{uuid4().hex[:6]}"
