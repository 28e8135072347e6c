"""The tables of streams: made before a source's first row, append-only before a sink reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.errors import ShardGone
from catalog_migrate.model.paths import shard_location
from catalog_migrate.streams import dependencies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ShardMaker(msgspec.Struct, frozen=True):
    """Creates the shards of items through ``create`` unless ``version`` finds them.

    ``protect`` makes a shard append-only, which the tables that sinks read must be. An item whose
    query was started before must have its shard: nothing is made anew for it, lost rows are an
    error and not an empty table.
    """

    create: Callable[[ShardSpec], None]
    version: Callable[[str], int | None]
    protect: Callable[[str], object] = lambda _: None

    @classmethod
    def local(cls, spark: SparkSession | None = None) -> ShardMaker:
        """Through delta-rs, and Spark for what only it can do."""
        from catalog_migrate.delta.protocol import make_append_only
        from catalog_migrate.delta.table import shard_version
        from catalog_migrate.engine.spark.shards import Shards

        return cls(Shards(spark).create_shard, shard_version, make_append_only)

    def ensure(self, state: State, item_id: str) -> None:
        """Make the shard of an item, of its dead letters and of its cluster's log.

        For a sink: see that the table which it reads only grows (unless ON CHANGE is skip).
        Raises :class:`~catalog_migrate.errors.ShardGone` when a query that was started before has
        lost one of them.
        """
        item = state.items[item_id]
        warehouse = state.config["warehouse"].value
        for table in dependencies.must_only_grow(state, [item_id]):
            shard = state.items[table].shard
            if shard is not None:
                self.protect(shard_location(warehouse, shard))
        if item_id in state.streams:
            self._require(state, item_id)
            return
        for role in ("dead_letters", "log"):
            if role in item.links:
                self.ensure(state, item.links[role])
        if item.shard is None:
            return
        path = shard_location(warehouse, item.shard)
        if self.version(path) is None:
            definition = item.definition
            self.create(
                ShardSpec(
                    path=path, columns=definition.columns, comment=definition.comment,
                    stamps=marks_of(state, item_id, definition),
                )
            )

    def _require(self, state: State, item_id: str) -> None:
        """A started query writes on where it wrote: an empty table would hide what is lost."""
        item = state.items[item_id]
        for owner in (item_id, item.links.get("dead_letters", "")):
            kept = state.items.get(owner)
            if kept is None or kept.shard is None:
                continue
            path = shard_location(state.setting("warehouse"), kept.shard)
            if self.version(path) is None:
                raise ShardGone(
                    f"the table of {kept.definition.kind} {kept.definition.item_name} is gone: "
                    f"there is none at {path}, and its query has written there before",
                    remedy="restore the directory from a backup; to begin anew with an empty table,"
                    " drop the source and create it again",
                    path=path, item_id=owner,
                )
