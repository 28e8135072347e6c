"""The tables that sources, dead letters and cluster logs write: made before their first row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import ShardSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ShardMaker:
    """Creates the shards of items through ``create`` unless ``version`` finds them.

    An item whose query was started before must have its shard: nothing is made anew for it, lost
    rows are an error and not an empty table.
    """

    create: Callable[[ShardSpec], None]
    version: Callable[[str], int | None]

    @classmethod
    def local(cls, spark: SparkSession | None = None) -> ShardMaker:
        """Through delta-rs, and Spark for what only it can do."""
        from catalog_migrate.engine.spark.shards import Shards, shard_version

        return cls(Shards(spark).create_shard, shard_version)

    def ensure(self, state: State, item_id: str) -> None:
        """Make the shard of an item, of its dead letters and of its cluster's log."""
        item = state.items[item_id]
        for role in ("dead_letters", "log"):
            if role in item.links:
                self.ensure(state, item.links[role])
        if item.shard is None or item_id in state.streams:
            return
        warehouse = state.config["warehouse"].value
        path = f"{warehouse}/{item.shard}"
        if self.version(path) is None:
            definition = item.definition
            self.create(
                ShardSpec(path=path, columns=definition.columns, comment=definition.comment)
            )
