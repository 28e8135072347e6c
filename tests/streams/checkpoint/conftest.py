"""Checkpoints as Spark 4.2 writes them, built from text; the golden bytes were copied from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


def offsets_text(sources: Sequence[str], *, timestamp: int = 1795277816210) -> str:
    """An entry of the offset log."""
    metadata = {
        "batchWatermarkMs": 0,
        "batchTimestampMs": timestamp,
        "conf": {"spark.sql.shuffle.partitions": "2"},
    }
    return "\n".join(["v1", json.dumps(metadata, separators=(",", ":")), *sources])


Build = Callable[..., Checkpoint]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write a checkpoint: ``batches`` are the lines of each, ``committed`` the newest commit."""

    def write(
        batches: Sequence[Sequence[str]],
        committed: int | None,
        *,
        name: str = "ckpt",
        first: int = 0,
        files: Files | None = None,
    ) -> Checkpoint:
        root = tmp_path / name
        for part in ("offsets", "commits"):
            (root / part).mkdir(parents=True)
        (root / "metadata").write_text(f'{{"id":"{QUERY}"}}')
        for number, sources in enumerate(batches, start=first):
            text = offsets_text(sources, timestamp=1795277816210 + number)
            (root / "offsets" / str(number)).write_text(text)
            (root / "offsets" / f".{number}.crc").write_bytes(b"crc\x00")
        if committed is not None:
            for number in range(first, committed + 1):
                (root / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
                (root / "commits" / f".{number}.crc").write_bytes(b"crc\x00")
        return Checkpoint(root, files=files)

    return write


@pytest.fixture
def one_store(spark: SparkSession) -> Iterator[None]:
    """A stateful query has one state store, and its shuffles one partition."""
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    spark.conf.set(key, "1")
    yield
    spark.conf.set(key, before)
