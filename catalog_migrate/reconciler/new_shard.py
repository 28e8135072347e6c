"""What a prepare builds: one new shard beside the ones in force."""

from __future__ import annotations

import msgspec

from catalog_migrate.planner.migration import Target


class NewShard(msgspec.Struct, frozen=True):
    """A shard that a prepare built: whose it is, where, and where its rows came from.

    ``expected`` counts the rows that several sources were to bring.
    """

    target: Target
    path: str
    source: str | None = None
    source_version: int | None = None
    version: int | None = None
    rows: int = 0
    unfilled: bool = False
    expected: int = 0

    def __str__(self) -> str:
        return str(self.target.definition.item_name)
