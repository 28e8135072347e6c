"""CREATE SOURCE with PAUSED and START OFFSETS: nothing before RESUME, then exactly from there."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.errors import EngineFailure

if TYPE_CHECKING:
    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]


def test_offsets_and_paused(pipeline: Pipeline) -> None:
    """Each partition begins where it was said to, others at START; offsets that are not there are
    refused before anything is committed."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 4)
    for partition in range(4):
        first = 100 * partition
        pipeline.kafka.produce(
            topic, [f'{{"id": {n}}}' for n in range(first, first + 5)], partition=partition
        )
    time.sleep(0.01)
    moment = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    pipeline.kafka.produce(topic, ['{"id": 205}', '{"id": 206}'], partition=2)
    create = (
        f"CREATE SOURCE {pipeline.q('s')} (id BIGINT) IN CLUSTER {pipeline.q('main')} FROM KAFKA "
        f"CONNECTION {pipeline.q('c')} (TOPIC '{topic}', START 'latest', START OFFSETS (%s)) "
        "FORMAT JSON PAUSED WITH (TRIGGER '100 milliseconds')"
    )
    version = pipeline.catalog.state().version
    for bad, why in (("'%s:4' = 0", "t-4 does not exist"), ("'%s:1' = 6", "6 is beyond the end")):
        with pytest.raises(EngineFailure, match=why):
            pipeline.run(create % bad % topic)
    assert pipeline.catalog.state().version == version

    pipeline.run(
        create % f"'{topic}:0' = 3, '{topic}:1' = earliest, '{topic}:2' = '{moment}'"
    )
    pipeline.start()
    assert pipeline.run_ids() == {}
    pipeline.run(f"RESUME SOURCE {pipeline.q('s')}")
    wanted = Counter([3, 4, *range(100, 105), 205, 206])
    pipeline.until(lambda: pipeline.ids("s") == wanted, "the rows from there on")
