"""Dead letters and files through statements and the runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import once

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]


def rows_of(pipeline: Pipeline, name: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table or source, read by Spark from where the catalog says they are."""
    location = pipeline.catalog.show(pipeline.q(name))["location"]
    frame = pipeline.spark.read.format("delta").load(location)
    return sorted(tuple(row) for row in frame.selectExpr(*columns.split(", ")).collect())


def test_dead_letters_and_files(pipeline: Pipeline, kafka: Any, tmp_path: Path) -> None:
    """Records that do not fit go to their table with the reason; files are read once each."""
    pipeline.kafka_connection("c")
    topic = pipeline.topic("t", 1)
    inbox = tmp_path / "inbox" / "orders"
    inbox.mkdir(parents=True)
    pipeline.run(
        f"CREATE CONNECTION {pipeline.q('files')} TO FILES (PATH '{inbox.parent}', FORMAT 'json')"
    )
    pipeline.source("s", "c", topic, f"ON ERROR INTO {pipeline.q('bad')}")
    pipeline.run(
        f"CREATE SOURCE {pipeline.q('f')} (id BIGINT) IN CLUSTER {pipeline.q('main')} FROM FILES "
        f"CONNECTION {pipeline.q('files')} (PATH 'orders')"
    )
    (inbox / "1.json").write_text('{"id": 0}\n{"id": 1}\n')
    pipeline.start()
    pipeline.await_running(2)
    kafka.produce(topic, [("a", '{"id": 0}'), ("b", "no json"), ("c", '{"id": "x"}'),
                          ("d", '{"id": 1}')])
    pipeline.until(lambda: pipeline.ids("s") == once(2), "the good records")
    pipeline.until(lambda: pipeline.ids("f") == once(2), "the first file")
    building = inbox.parent / "2.json"
    building.write_text(json.dumps({"id": 2}) + "\n")
    building.rename(inbox / "2.json")  # a file that is there is whole
    pipeline.until(lambda: pipeline.ids("f") == once(3), "the second file")
    bad = rows_of(pipeline, "bad", "_offset, CAST(value AS STRING), error IS NOT NULL")
    assert bad == [(1, "no json", True), (2, '{"id": "x"}', True)]
    pipeline.stop()
    (inbox / "3.json").write_text('{"id": 3}\n')
    pipeline.start()
    pipeline.until(lambda: pipeline.ids("f") == once(4), "the third file after a restart")
    assert pipeline.ids("s") == once(2)
    assert len(rows_of(pipeline, "bad", "_offset")) == 2
