"""Which rows a shard has: pure, from the records of all shards that there ever were.

The rows that came to a shard after it was made are its own. A copy has the own rows of everything
that its source has, besides; what a rollback made has those of the shards that it names.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.catalog.records import ShardRecord

Shards = Mapping[str, ShardRecord]


def where_now(path: str, shards: Shards) -> str:
    """The path that a shard is known by since an adopted table's directory was moved."""
    while (record := shards.get(path)) is not None and record.moved_to is not None:
        path = record.moved_to
    return path


def rows_of(path: str, shards: Shards) -> tuple[str, ...]:
    """The shards whose own rows are in this one, oldest first and itself the last."""
    chain: list[str] = []
    made_of: tuple[str, ...] = ()
    following: str | None = path
    while following is not None and following in shards and following not in chain:
        chain.append(following)
        made_of = shards[following].rows_of
        following = None if made_of else shards[following].source
    return tuple(dict.fromkeys((*made_of, *reversed(chain))))


def last_holders(shards: Shards) -> Mapping[str, str]:
    """By shard: the retired one, of those that have its rows, that was in force last."""
    found: dict[str, tuple[int, str]] = {}
    for path, record in shards.items():
        if record.retired_serial is None:
            continue  # in force, or an attempt that ended
        for held in rows_of(path, shards):
            found[held] = max(found.get(held, (0, "")), (record.retired_serial, path))
    return {held: path for held, (_, path) in found.items()}
