"""Fixtures of the whole suite: one Spark session a run, and places for tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one real Spark session of a run: local, in-memory names, Delta."""
    from catalog_migrate.engine.spark.session import local_session

    session = local_session(warehouse_dir=str(tmp_path_factory.mktemp("spark-warehouse")))
    yield session
    session.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """An empty directory for shards."""
    directory = tmp_path / "warehouse"
    directory.mkdir()
    return str(directory)


@pytest.fixture
def schema_name() -> str:
    """A schema name that no other test of this run has."""
    return f"s{next(_numbers)}"
