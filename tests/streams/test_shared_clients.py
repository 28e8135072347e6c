"""How many clients of a broker a runtime makes to look at the topics of all of its sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.connectors.base import Access
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import UPSTREAM
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.runtime.runtime import POLL_UPSTREAM, Runtime, RuntimeOptions
from catalog_migrate.streams.upstreams.upstream import Upstream
from catalog_migrate.testing.world import SimulatedClock
from tests.simulation.stream_ports import SimulatedUpstreams, simulated_ports
from tests.simulation.stream_run import SETTING
from tests.simulation.streaming import SimulatedQueries, StreamWorld

SOURCES = 20


class CountingUpstreams(SimulatedUpstreams):
    """Each call is a client of its own."""

    def __init__(self, world: StreamWorld) -> None:
        super().__init__(world)
        self.calls: list[int] = []
        """How many queries each call was for."""

    def identify(self, spec: QuerySpec) -> Upstream:
        self.calls.append(1)
        return super().identify(spec)

    def access(
        self, connector: str, connection: Resolved, wanted: Sequence[Access], *,
        timeout: float = 10.0,
    ) -> Any:
        self.calls.append(len(wanted))
        return super().access(connector, connection, wanted, timeout=timeout)


class Clock(SimulatedClock):
    """While the runtime sleeps its queries go on, and something may happen ``after`` seconds."""

    engine: SimulatedQueries
    after: dict[float, Callable[[], None]]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.engine.step()
        for moment in [each for each in self.after if each <= self.monotonic()]:
            self.after.pop(moment)()


def test_sources_of_one_connection_share_a_client(tmp_path: Path) -> None:
    """Twenty sources on one connection cost one client at each look, two where some of them read
    aborted records too; one whose topic was created again is held, as if it had been alone."""
    log, world = MemoryLog(), StreamWorld({"t": [1], "u": [1]})
    create_catalog(log, warehouse=str(tmp_path))
    clock = Clock()
    upstreams = CountingUpstreams(world)
    ports = replace(simulated_ports(world, clock), upstreams=upstreams)
    for number in range(SOURCES - 2):
        world.topics[f"t{number}"] = [1]
    Executor(log, lambda _state, _item: None, clock, ports).run(SETTING + "".join(
        f"CREATE SOURCE s{number} (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c"
        f" (TOPIC 't{number}', ISOLATION LEVEL '{level}') FORMAT JSON;"
        for number in range(SOURCES - 2)
        for level in ("read_uncommitted" if number < 3 else "read_committed",)
    ))
    clock.engine = SimulatedQueries(world, lambda _: None, upstreams.told)
    runtime = Runtime(
        log, "main", clock.engine, ensure_shards=lambda _state, _item: None,
        reconcile=lambda _: None, clock=clock, ports=ports,
        options=RuntimeOptions(wait=1_000.0, drain=0.0, threads=1, starts_at_once=64),
    )

    def create_again() -> None:
        world.create("t7", 1)
        world.topics["t7"] = [1]  # as many records as before: its query notices nothing

    began = clock.monotonic()
    clock.after = {
        began + 2.5 * POLL_UPSTREAM: create_again,
        began + 4.5 * POLL_UPSTREAM: runtime.request_stop,
    }
    upstreams.calls.clear()
    runtime.run()
    starts, looks = upstreams.calls[:SOURCES], upstreams.calls[SOURCES:]
    assert starts == [1] * SOURCES
    assert looks == [SOURCES - 3, 3] * 4
    held = dependencies.find(read_state(log), "source", "s7").item_id
    assert [(each.item_id, each.holder) for each in read_state(log).holds.values()] == [
        (held, UPSTREAM)
    ]
