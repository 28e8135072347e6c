"""The dry run of a large topic asks the broker a few questions, not one a partition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.language.parser import parse_one
from catalog_migrate.streams.unsafe.requests import request_of

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services

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
