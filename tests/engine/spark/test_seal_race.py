"""The seal against Spark's own writers, on a table that delta-rs does not write."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.table import shard_size, shard_version
from catalog_migrate.errors import EngineFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

APP = "catalog_migrate/test"
OLD = 400
"""Rows that are there before, one of which each DELETE takes."""
SECONDS = 300


class Writer(threading.Thread):
    """Runs a statement for each number from 0 on, until it is refused.

    What Delta refuses for another one's rows is tried again, as it asks. Behind its second
    statement it waits until ``slower`` has had as many: on a busy machine that might lose every
    race.
    """

    def __init__(
        self, spark: SparkSession, statement: Callable[[int], str], slower: Writer | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.spark, self.statement, self.slower = spark, statement, slower
        self.done = 0
        self.refused = ""

    def run(self) -> None:
        while self.done < OLD and not self.refused:
            if self.slower is not None and self.slower.done < 2 <= self.done:
                time.sleep(0.01)
                continue
            try:
                self.spark.sql(self.statement(self.done)).collect()
                self.done += 1
            except Exception as refused:  # noqa: BLE001 - asserted by the test
                if "DELTA_CONCURRENT_APPEND" not in str(refused):
                    self.refused = str(refused)


def version_of(path: str) -> int:
    version = shard_version(path)
    assert version is not None
    return version


def commits(path: str) -> list[dict[str, object]]:
    """What each commit says of itself, which is the first thing in it where it has a time."""
    log = sorted((Path(path) / "_delta_log").glob("*.json"))
    return [json.loads(file.read_text().splitlines()[0])["commitInfo"] for file in log]


def test_a_seal_lands_among_inserts_and_deletes(spark: SparkSession, warehouse: str) -> None:
    """Deletion vectors and in-commit timestamps: each row of an acknowledged INSERT is below the
    seal, each of an acknowledged DELETE is not, no time goes back, and both are refused then. A
    holder that came later bars the one before it."""
    path = f"{warehouse}/t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (writer INT, n BIGINT) USING delta TBLPROPERTIES"
        " ('delta.enableDeletionVectors' = 'true', 'delta.enableInCommitTimestamps' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ 0, id FROM range({OLD})")
    earlier, began = seals.seal_properties(path), version_of(path)
    deletes = Writer(spark, lambda n: f"DELETE FROM delta.`{path}` WHERE writer = 0 AND n = {n}")
    writers = [
        Writer(spark, lambda n: f"INSERT INTO delta.`{path}` VALUES (1, {n})", deletes), deletes
    ]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + SECONDS
    while min(writer.done for writer in writers) < 2:
        assert time.monotonic() < deadline
        assert all(not writer.refused for writer in writers), [w.refused for w in writers]
        time.sleep(0.01)
    seals.fence(path, APP, 2)
    with pytest.raises(EngineFailure, match="epoch above 1 has fenced"):
        seals.seal(path, follows=began, app_id=APP, epoch=1)
    sealed = seals.seal(path, follows=began, app_id=APP, epoch=2)
    for writer in writers:
        writer.join(SECONDS)
        assert not writer.is_alive()
    assert version_of(path) == sealed
    inserted, deleted = (writer.done for writer in writers)
    rows = spark.read.format("delta").load(path)
    assert sorted(tuple(row) for row in rows.collect()) == [
        *((0, n) for n in range(deleted, OLD)), *((1, n) for n in range(inserted))
    ]
    assert shard_size(path)[0] == OLD - deleted + inserted
    assert all(writer.refused for writer in writers)
    times = [commit["inCommitTimestamp"] for commit in commits(path)]
    assert len(times) == sealed + 1
    assert times == sorted(set(times))
    seals.unseal(path, earlier, app_id=APP, epoch=2)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 0)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE writer = 1")
    assert shard_size(path)[0] == OLD - deleted + 1
