"""Checkpoints as Spark 4.2 writes them, built from text; the golden bytes were copied from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.store.address import Storage, is_remote, remember
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files, checksum_of
from tests.services.checkpoints import root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.object_store import ObjectStore

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


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.services)])
def place(request: pytest.FixtureRequest) -> str:
    """An address to put checkpoints at: a directory, and a folder of a bucket."""
    if request.param == "local":
        return str(request.getfixturevalue("tmp_path"))
    address: str = request.getfixturevalue("bucket")
    remember(address, Storage(request.getfixturevalue("object_store").options))
    return f"{address}/_checkpoints"


@pytest.fixture
def build(request: pytest.FixtureRequest, place: str) -> Build:
    """Write a checkpoint: ``batches`` are the lines of each, ``committed`` the newest commit."""
    server = request.getfixturevalue("object_store") if is_remote(place) else None
    return builder(place, server)


@pytest.fixture
def build_on_disk(tmp_path: Path) -> Build:
    """The same, where a store makes no difference but takes its time."""
    return builder(str(tmp_path), None)


def builder(place: str, server: ObjectStore | None) -> Build:
    """What writes checkpoints at an address, as Spark does there."""

    def write(
        batches: Sequence[Sequence[str]],
        committed: int | None,
        *,
        name: str = "ckpt",
        first: int = 0,
        files: Files | None = None,
    ) -> Checkpoint:
        checkpoint = Checkpoint(f"{place}/{name}", files=files)
        contents = {"metadata": f'{{"id":"{QUERY}"}}'.encode()}
        for number, sources in enumerate(batches, start=first):
            text = offsets_text(sources, timestamp=1795277816210 + number)
            contents[f"offsets/{number}"] = text.encode()
        if committed is not None:
            for number in range(first, committed + 1):
                contents[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
        if server is not None:
            for folder in ("", "/offsets", "/commits"):
                server.mark_folder(f"{checkpoint.address}{folder}")
            checkpoint.store.put_all(contents)
        else:
            checksums = {checksum_of(name): b"crc\x00" for name in contents if "/" in name}
            for part in ("offsets", "commits"):
                (root(checkpoint) / part).mkdir(parents=True)
            checkpoint.store.put_all({**contents, **checksums}, durable=False)
        return checkpoint

    return write


@pytest.fixture
def one_store(spark: SparkSession) -> Iterator[None]:
    """A stateful query has one state store, and its shuffles one partition."""
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    spark.conf.set(key, "1")
    yield
    spark.conf.set(key, before)
