"""Unsafe operations on a real broker: planning over a wide topic, and an operation's own time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Cost, Measure, middle, paired
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.positions.requests import request_of
from tests.services.stage import Stage

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

PARTITIONS = 1_000
ROUNDS = 5


def measures(directory: Path) -> Iterator[Measure]:
    """Both, with a broker of their own; no Spark is started."""
    from tests.services.kafka import KafkaCluster

    with KafkaCluster(directory / "unsafe-kafka", users={"app": "bench"}, acls=True) as kafka:
        os.environ["STAGE_PW"] = kafka.users["app"]
        yield _planning(_stage(directory / "wide", kafka))
        yield _operation(_stage(directory / "narrow", kafka))


def _stage(directory: Path, kafka: KafkaCluster) -> Stage:
    log = open_log(str(directory / "catalog"))
    create_catalog(log, warehouse=str(directory / "warehouse"))
    return Stage(log, directory / "warehouse", kafka)


def _planning(stage: Stage) -> Measure:
    topic = "wide"
    stage.kafka.create_topic(topic, PARTITIONS)
    stage.kafka.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    stage.source(topic)
    stage.started(topic, dict.fromkeys(range(PARTITIONS), 0), batches=1)
    actions = "INJECT OFFSETS (TO latest) WITH (POLICY = 'clamp')"
    statement: Any = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'bench'")
    client = stage.executor().unsafe

    def ours() -> Cost:
        return _timed(lambda: client.plan(request_of(stage.state, statement), "bench"))

    def bare() -> Cost:
        return _timed(lambda: stage.kafka.watermarks(topic))

    found, baseline = paired(ours, bare, rounds=ROUNDS)
    return Measure(
        f"plan an injection for {PARTITIONS:,} partitions, on a real broker", found,
        "asking for both ends of every partition", baseline, "≤ 2 s", found.wall <= 2.0,
    )


def _operation(stage: Stage) -> Measure:
    topic = stage.topic("narrow", [20])
    stage.source(topic)
    stage.started(topic, {0: 20})
    stage.open_gate()
    costs: list[Cost] = []
    for _ in range(ROUNDS):
        stage.unsafe("INJECT OFFSETS (TO 'shift -1')")
        act = stage.operation.unsafe
        assert act is not None
        costs.append(Cost(act.seconds))

    rows = [OperationRecord("bench", "done", {"number": str(n)}) for n in range(ROUNDS)]
    base = middle([_timed(lambda row=row: stage.put("operation", "bench", row)) for row in rows])  # type: ignore[misc]
    found = middle(costs)
    return Measure(
        "an unsafe operation apart from stop and start, on a durable catalog", found,
        "one commit", base, "≤ 0.5 s", found.wall <= 0.5,
    )


def _timed(act: Callable[[], object]) -> Cost:
    began, cpu = time.perf_counter(), time.process_time()
    act()
    return Cost(time.perf_counter() - began, time.process_time() - cpu)
