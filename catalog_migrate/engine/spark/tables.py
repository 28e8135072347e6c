"""Opening a shard's Delta table through delta-rs, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.engine.spark.failures import failing
from catalog_migrate.model.paths import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable


def open_table(path: str, *, version: int | None = None) -> DeltaTable:
    """The table at a path, newest version or the one asked for; EngineFailure where none is."""
    from deltalake import DeltaTable

    with failing(f"read the shard {path}"):
        return DeltaTable(local_path(path), version=version)
