"""A source on a real topic for each test, in a catalog of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from tests.services.stage import Stage

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

__all__ = ["Stage"]


@pytest.fixture
def stage(
    tmp_path: Path, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    """An empty catalog in memory beside a real broker."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    monkeypatch.setenv("STAGE_PW", kafka.users["app"])
    return Stage(log, tmp_path, kafka)


@pytest.fixture
def at(stage: Stage) -> Callable[..., str]:
    """A source with records and positions and the gate open; returns the topic."""

    def make(counts: list[int], positions: dict[int, int], **options: Any) -> str:
        topic = stage.topic("t", counts)
        stage.source(topic)
        stage.started(topic, positions, **options)
        stage.open_gate()
        return topic

    return make
