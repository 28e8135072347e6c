"""FILES sources on real Spark: each file once, strictly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.errors import EngineFailure
from catalog_migrate.streams.spark.running import work_of

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """The directory ``in`` of a connection's directory."""
    directory = tmp_path / "landing" / "in"
    directory.mkdir(parents=True)
    return directory


def test_each_file_once(
    workshop: Any, landing: Path, forget_commit: Callable[..., int]
) -> None:
    """Files of the pattern are read once, across restarts and a batch that is run again."""
    (landing / "a.json").write_text('{"id": 1, "name": "x"}\n{"id": 2}\n')
    (landing / "b.txt").write_text("not ours")
    spec = workshop.source(
        "FILES", {"PATH": str(landing.parent), "FORMAT": "json"}, COLUMNS,
        {"PATH": "in", "PATTERN": "*.json"},
    )  # fmt: skip
    first = workshop.run(spec, rows=2)
    assert workshop.rows(spec.shard) == [(1, "x"), (2, None)]

    assert workshop.queries.last_batch(spec, first.query_id) == {"shard": 0}
    forget_commit(spec)
    workshop.queries.finish_batch(spec, timeout=120)
    (landing / "c.json").write_text('{"id": 3, "name": "z"}\n')
    second = workshop.run(spec, rows=1)
    assert workshop.rows(spec.shard) == [(1, "x"), (2, None), (3, "z")]
    assert second.query_id == first.query_id
    assert second.run_id != first.run_id
    assert workshop.queries.last_batch(spec, first.query_id) == {"shard": 1}


def test_tasks_are_seen_within_a_batch(spark: Any, landing: Path, tmp_path: Path) -> None:
    """What the tasks of a first batch have done is told before its progress, which comes last."""
    for number in range(6):
        (landing / f"{number}.txt").write_text("a\nb\n")
    # more tasks than cores, so that some have ended long before the batch has
    slow = spark.readStream.text(str(landing)).repartition(6).selectExpr(
        "value", "java_method('java.lang.Thread', 'sleep', 300L) AS slept"
    )
    query = slow.writeStream.format("noop").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).start()
    try:
        seen = 0
        while query.lastProgress is None:
            done = work_of(spark.sparkContext, query.runId)
            seen = max(seen, 0 if query.lastProgress else done)
        assert seen >= 1
        query.processAllAvailable()
        assert work_of(spark.sparkContext, query.runId) > 12  # records, and tasks
        assert work_of(spark.sparkContext, "another run") == 0
    finally:
        query.stop()


def test_exact_values(workshop: Any, landing: Path) -> None:
    """With DECODING 'exact' a value that its column would round stops the query."""
    (landing / "a.json").write_text('{"id": 1, "price": 12.34}\n')
    spec = workshop.source(
        "FILES", {"PATH": str(landing.parent), "FORMAT": "json"},
        "id BIGINT NOT NULL, price DECIMAL(10,2)", {"PATH": "in", "DECODING": "exact"},
    )  # fmt: skip
    workshop.run(spec, rows=1)
    (landing / "b.json").write_text('{"id": 2, "price": 0.005}\n')
    failure = workshop.await_failure(workshop.start(spec))
    assert failure.condition == "BAD_RECORD"
    assert "b.json: its price is no value that DECIMAL(10,2) holds exactly" in failure.causes[-1]
    assert [row[0] for row in workshop.rows(spec.shard)] == [1]


def test_line_that_does_not_fit(workshop: Any, landing: Path) -> None:
    """A line of another type stops the query instead of becoming NULL."""
    (landing / "a.csv").write_text("id,name\n1,x\nseven,y\n")
    spec = workshop.source(
        "FILES", {"PATH": str(landing.parent), "FORMAT": "csv", "files.header": "true"},
        COLUMNS, {"PATH": "in"},
    )  # fmt: skip
    failure = workshop.await_failure(workshop.start(spec))
    assert failure.condition.startswith("MALFORMED_RECORD_IN_PARSING"), failure
    assert workshop.rows(spec.shard) == []


def test_directory_that_is_not_there(workshop: Any, landing: Path) -> None:
    """A missing directory is refused at once, and named."""
    spec = workshop.source(
        "FILES", {"PATH": str(landing.parent), "FORMAT": "json"}, COLUMNS, {"PATH": "elsewhere"}
    )
    with pytest.raises(EngineFailure, match="elsewhere") as caught:
        workshop.queries.prepare(spec).start()
    assert caught.value.condition == "PATH_NOT_FOUND"
