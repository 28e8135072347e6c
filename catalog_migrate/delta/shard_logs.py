"""Shards by their own logs; a plan without changes needs nothing more of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.delta.log import find_log_problem
from catalog_migrate.store.address import is_remote

if TYPE_CHECKING:
    from catalog_migrate.model.sizes import TableSize
    from catalog_migrate.model.table_features import Unsupported


class ShardLogs:
    """What planning asks an engine about shards, answered by their own logs without Spark.

    ``in_sight`` False: the rows may be another installation's, and none is reported as missing;
    with ``disks`` False those in directories, which may be on disks of other machines.
    """

    def __init__(self, *, in_sight: bool = True, disks: bool = True) -> None:
        self._in_sight = in_sight
        self._disks = disks

    def shard_size(self, path: str) -> TableSize:
        """By the statistics in the log; rows are unknown where no log is seen."""
        from catalog_migrate.delta.table import shard_size
        from catalog_migrate.model.sizes import TableSize

        return TableSize(-1, 0) if find_log_problem(path) is not None else shard_size(path)

    def count_appended(self, path: str, after: int, upto: int | None = None) -> int | None:
        """By the statistics of both versions; -1 where no log is seen."""
        from catalog_migrate.delta.table import count_appended

        return -1 if find_log_problem(path) is not None else count_appended(path, after, upto)

    def unsupported(self, path: str) -> Unsupported | None:
        """By the protocol in the log; nothing where no log is seen."""
        from catalog_migrate.delta.table import find_unsupported

        return find_unsupported(path)

    def find_shard_problem(self, path: str) -> str | None:
        """A look that costs next to nothing, on an object store a request."""
        is_seen = self._in_sight and (self._disks or is_remote(path))
        return find_log_problem(path) if is_seen else None
