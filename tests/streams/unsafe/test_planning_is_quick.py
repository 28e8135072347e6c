"""The dry run of a large topic asks the broker a few questions, not one a partition."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.store import create_catalog, open_log
from catalog_migrate.language.parser import parse_one
from catalog_migrate.streams.unsafe.requests import request_of

from .conftest import Stage

if TYPE_CHECKING:
    from catalog_migrate.testing.services.kafka import KafkaCluster

pytestmark = pytest.mark.services

OVERHEAD = 0.5
"""Seconds of an operation, apart from stopping and starting queries."""

PARTITIONS = 1000
LIMIT = 2.0
"""Seconds, of processor time of this process and of waiting for the broker."""


def test_a_thousand_partitions(stage: Stage) -> None:
    """Planning a position for each of 1,000 partitions takes at most 2 s; so does one by time."""
    topic = f"u{stage.number}-wide"
    stage.kafka.create_topic(topic, PARTITIONS)
    stage.kafka.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    stage.produce(topic, 7, 3)
    stage.source(topic)
    stage.started(topic, dict.fromkeys(range(PARTITIONS), 0), batches=1)
    client = stage.executor().unsafe
    found: list[float] = []
    for target in ("latest", "'timestamp 2020-01-01T00:00:00Z'"):
        actions = f"INJECT OFFSETS (TO {target}) WITH (POLICY = 'clamp')"
        statement: Any = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'r'")
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            plan = client.plan(request_of(stage.state, statement), "r")
            best = min(best, time.perf_counter() - begun)
        found.append(best)
        assert len(plan.items[0].rows) == PARTITIONS
    assert max(found) <= LIMIT, found


def test_the_operation_itself(
    tmp_path: Path, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but stop and start takes at most half a second, on a durable catalog."""
    monkeypatch.setenv("STAGE_PW", kafka.users["app"])
    log = open_log(str(tmp_path / "catalog"))
    create_catalog(log, warehouse=str(tmp_path / "warehouse"))
    stage = Stage(log, tmp_path / "warehouse", kafka)  # type: ignore[arg-type]
    topic = stage.topic("t", [20])
    stage.source(topic)
    stage.started(topic, {0: 20})
    stage.open_gate()
    seconds = []
    for _ in range(5):
        stage.unsafe("INJECT OFFSETS (TO 'shift -1')")
        act = stage.operation.unsafe
        assert act is not None
        seconds.append(act.seconds)
    assert stage.positions() == {0: 15}
    assert min(seconds) <= OVERHEAD, seconds
