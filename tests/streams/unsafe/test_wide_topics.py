"""The dry run of a large topic asks the broker a few questions, not one a partition."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.positions.requests import request_of

from .conftest import Stage

pytestmark = pytest.mark.services

PARTITIONS = 300
QUESTIONS = 8
"""Requests for offsets that a plan may make, whatever the number of partitions."""


@pytest.mark.parametrize(
    "partitions", [PARTITIONS, pytest.param(1000, marks=pytest.mark.soak)]
)
def test_hundreds_of_partitions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """A position for each partition, by an end or by time, is asked for in batches."""
    topic = f"u{stage.number}-wide"
    stage.kafka.create_topic(topic, partitions)
    stage.kafka.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    stage.produce(topic, 7, 3)
    stage.source(topic)
    stage.started(topic, dict.fromkeys(range(partitions), 0), batches=1)
    ask = AdminClient.list_offsets
    asked: list[int] = []

    def counted(self: AdminClient, wanted: Any, **options: Any) -> Any:
        asked.append(len(wanted))
        return ask(self, wanted, **options)

    monkeypatch.setattr(AdminClient, "list_offsets", counted)
    for target in ("latest", "'timestamp 2020-01-01T00:00:00Z'"):
        asked.clear()
        actions = f"INJECT OFFSETS (TO {target}) WITH (POLICY = 'clamp')"
        statement: Any = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'r'")
        plan = stage.executor().unsafe.plan(request_of(stage.state, statement), "r")
        assert len(plan.items[0].rows) == partitions
        assert max(asked) == partitions
        assert len(asked) <= QUESTIONS
    stage.kafka.delete_topic(topic)
