"""The dry run of a large topic asks the broker a few questions, not one a partition."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from catalog_migrate.language.parser import parse_one
from catalog_migrate.streams.unsafe.requests import request_of

from .conftest import Stage

pytestmark = pytest.mark.services

PARTITIONS = 1000
QUESTIONS = 8
"""Requests for offsets that a plan may make, whatever the number of partitions."""


@pytest.mark.parametrize("target", ["latest", "'timestamp 2020-01-01T00:00:00Z'"])
def test_a_thousand_partitions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """A position for each of 1,000 partitions, by an end or by time, is asked for in batches."""
    topic = f"u{stage.number}-wide"
    stage.kafka.create_topic(topic, PARTITIONS)
    stage.kafka.allow("app", topic, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    stage.produce(topic, 7, 3)
    stage.source(topic)
    stage.started(topic, dict.fromkeys(range(PARTITIONS), 0), batches=1)
    asked: list[int] = []
    ask = AdminClient.list_offsets

    def counted(self: AdminClient, wanted: Any, **options: Any) -> Any:
        asked.append(len(wanted))
        return ask(self, wanted, **options)

    monkeypatch.setattr(AdminClient, "list_offsets", counted)
    actions = f"INJECT OFFSETS (TO {target}) WITH (POLICY = 'clamp')"
    statement: Any = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'r'")
    plan = stage.executor().unsafe.plan(request_of(stage.state, statement), "r")
    assert len(plan.items[0].rows) == PARTITIONS
    assert max(asked) == PARTITIONS
    assert len(asked) <= QUESTIONS
