"""How a caller waits for the row of its operation."""

from __future__ import annotations

import pytest

from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.operations.kinds import ALTER
from catalog_migrate.streams.catalog.cluster_log import cluster_key
from catalog_migrate.streams.runtime.client import OperationClient
from catalog_migrate.testing.world import SimulatedClock
from tests.decisions import Changes, commit

KEY = "20260101T000000000000-aaaaaa"
CLUSTER = "main"


class Log(MemoryLog):
    """Counts looks at its version; the pause between two may grow as on a store."""

    longest_pause = 0.01
    looks = 0

    def version(self) -> int:
        self.looks += 1
        return super().version()


class Clock(SimulatedClock):
    """The runtime moves the row on each minute, and ends it after three."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.pauses: list[float] = []
        self.ahead = [("trial", 60.0), ("trial, started", 120.0), ("confirmed", 180.0)]

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(seconds)
        self.log.renew(cluster_key(CLUSTER), str(self.monotonic()))
        if self.ahead and self.monotonic() >= self.ahead[0][1]:
            put(self.log, self.ahead.pop(0)[0])


def put(log: MemoryLog, state: str) -> None:
    """Bring the row into a state."""
    changes, (name, _, phase) = Changes(), state.partition(", ")
    detail = {"phase": phase} if phase else {}
    changes.put("operation", KEY, OperationRecord(ALTER, name, detail, cluster=CLUSTER))
    commit(log, lambda _: changes, kind="test")


@pytest.mark.parametrize(("longest", "most"), [(1.0, 250), (0.01, 18_100)])
def test_a_caller_looks_less_often_on_a_store(longest: float, most: int) -> None:
    """From 10 ms to a second between two looks, each of them a request there, and often again as
    soon as the row moves; on a disk a look costs nothing."""
    log = Log()
    log.longest_pause = longest  # type: ignore[misc]
    create_catalog(log, warehouse="/warehouse")
    put(log, "validating")
    acquire(log, holder="runtime", clock=SimulatedClock(), key=cluster_key(CLUSTER), wait=0)
    clock, log.looks = Clock(log), 0
    ended = OperationClient(log, lambda *_: None, clock).wait(KEY, lambda *_: AssertionError())
    assert ended.row.state == "confirmed"
    assert log.looks <= most
    assert (clock.pauses[0], max(clock.pauses)) == (0.01, longest)
    assert clock.pauses.count(0.01) >= 3  # again each time that it moved
