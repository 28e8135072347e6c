"""Everything at once, from a cluster that is dead, explained, said and measured; real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.positions.audit import OPERATIONS, PARTITIONS
from catalog_migrate.streams.positions.restore import undo_request

from .test_moves_by_time import store

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services
At = Callable[..., str]


def test_all_in_one(stage: Stage, at: At) -> None:
    """SET, DROP, RESET, RESET SPLITS and INJECT are one operation, and are undone as one."""
    old = at([10, 5], {0: 8, 1: 4})
    stage.run("ALTER SOURCE s SET (MAX OFFSETS PER TRIGGER = 5, TRIGGER = '2 seconds')")
    new = stage.topic("n", [6, 6])
    before = dependencies.external_of(stage.state.items[stage.id])
    key = stage.unsafe(
        f"SET (TOPIC = '{new}', kafka.client.id = 'mine'), DROP (MAX OFFSETS PER TRIGGER), "
        f"RESET (TRIGGER), RESET SPLITS, INJECT OFFSETS ('{new}:1' = 2) "
        "WITH (ACCEPT NEW TOPIC = true)"
    ).operation
    assert key is not None
    external = dependencies.external_of(stage.state.items[stage.id])
    assert external.options["TOPIC"] == new
    assert external.overrides == {"kafka.client.id": "mine"}
    assert not {"MAX OFFSETS PER TRIGGER", "TRIGGER"} & set(external.settings)
    assert stage.positions() == {0: 0, 1: 2}
    act = stage.operation.unsafe
    assert act is not None
    assert act.keys == ("MAX OFFSETS PER TRIGGER", "TOPIC", "TRIGGER", "kafka.client.id")
    assert act.reset
    assert sum(row.kind == "unsafe" for row in stage.state.operations.values()) == 1

    asked = undo_request(stage.state, key)
    stage.executor().unsafe.run(asked, "taken back", confirm=lambda _: True)
    assert dependencies.external_of(stage.state.items[stage.id]) == before
    assert stage.positions() == {0: 8, 1: 4}
    assert stage.state.streams[stage.id].topics == {old: stage.kafka.topic_id(old)}


def test_from_a_cluster_that_is_dead(stage: Stage) -> None:
    """Nobody answers at the old address: positions go over by the times in the table alone."""
    topic = stage.topic("t", [5])
    stage.source(topic)
    stage.started(topic, {0: 203})
    stage.open_gate()
    gone = msgspec.structs.replace(
        stage.state.streams[stage.id], upstream="another-cluster", topics={topic: "another-id"}
    )
    stage.put("stream", stage.id, gone)
    stage.run("ALTER CONNECTION c SET (BROKER = '127.0.0.1:1') WITH (VALIDATE = false)")
    times = [each.timestamp for each in stage.kafka.consume_all(topic)]
    shard = stage.warehouse / str(stage.state.items[stage.id].shard)
    store(shard, [(topic, 0, 200 + each, moment) for each, moment in enumerate(times[:3])])
    wanted = next(place for place, moment in enumerate(times) if moment >= times[2])
    move = f"SET (BROKER = '{stage.kafka.bootstrap}')"
    by_time = "TRANSLATE BY = 'timestamp'"
    with pytest.raises(UnsafeBlocked, match=f"topic {topic} the cluster was another-cluster"):
        stage.unsafe(f"{move} WITH ({by_time})")
    stage.unsafe(f"{move} WITH ({by_time}, ACCEPT NEW TOPIC = true)")
    assert stage.positions() == {0: wanted}
    assert stage.state.streams[stage.id].upstream == stage.cluster_id


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ("SET (kafka.client.id = 'x')", "properties that change: kafka.client.id"),
        ("DROP (MAX OFFSETS PER TRIGGER)", "properties that change: MAX OFFSETS PER TRIGGER"),
        ("RESET (MAX OFFSETS PER TRIGGER)", "properties that change: MAX OFFSETS PER TRIGGER"),
        ("RESET SPLITS", "8 records doubled"),
        ("INJECT OFFSETS (TO latest)", "2 skipped"),
        ("SET (kafka.client.id = 'x'), RESET SPLITS, INJECT OFFSETS (TO 'shift -3')",
         "3 records doubled"),
    ],
)
def test_explained(stage: Stage, at: At, actions: str, said: str) -> None:
    """EXPLAIN of each operation says what it would do, and writes nothing."""
    at([10], {0: 8})
    stage.run("ALTER SOURCE s SET (MAX OFFSETS PER TRIGGER = 5)")
    version, lines = stage.log.version(), stage.lines()
    (result,) = stage.run(f"EXPLAIN ALTER SOURCE s UNSAFE {actions}")
    assert said in result.summary
    assert "missing: a reason" in result.summary
    assert (stage.log.version(), stage.lines()) == (version, lines)


def test_said_and_measured(stage: Stage, at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is heard of an operation has its id; it is counted by kind and result when it ends."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    topic = at([10, 10], {0: 8, 1: 8})

    def confirm(_plan: Any) -> bool:
        stage.produce(topic, 0, 5)
        return True

    key = stage.unsafe("INJECT OFFSETS (TO 'shift -2')").operation
    executor = stage.executor()
    executor.confirm = confirm
    with pytest.raises(Exception, match="more than was approved"):
        executor.run(
            "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest) WITH (TOLERANCE = 1) REASON 'r'"
        )
    late = max(stage.state.operations)
    assert {line.split(":")[0] for line in stage.progress} == {
        f"operation {key}", f"operation {late}"
    }
    assert any(line.endswith("committed; it only rolls forward from here")
               for line in stage.progress if key is not None and key in line)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, *sorted((point.attributes or {}).items())): point.value  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points if metric.name in (OPERATIONS, PARTITIONS)
    }
    assert found == {
        (OPERATIONS, ("kind", "inject"), ("result", "done")): 1,
        (OPERATIONS, ("kind", "inject"), ("result", "stale")): 1,
        (PARTITIONS, ("kind", "inject")): 2,
    }


def test_without_a_query(stage: Stage, at: At) -> None:
    """A quarantined source has no query to stop: refused with why, nothing is written."""
    at([10], {0: 8})
    item = stage.state.items[stage.id]
    stage.put("item", stage.id, msgspec.structs.replace(item, quarantined="its table is gone"))
    version = stage.log.version()
    with pytest.raises(UnsafeBlocked, match="has no query, it is quarantined: its table is gone"):
        stage.unsafe("INJECT OFFSETS (TO earliest)")
    assert stage.log.version() == version
