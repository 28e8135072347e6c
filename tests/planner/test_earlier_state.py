"""Which rows a shard has, told from the records of all shards."""

from __future__ import annotations

from catalog_migrate.catalog.records import ShardRecord
from catalog_migrate.planner.earlier_state import last_holders, rows_of, where_now


def shard(source: str | None = None, **fields: object) -> ShardRecord:
    """A shard that is in force, unless ``fields`` say more."""
    return ShardRecord("i1", "s1", "live", source=source, **fields)  # type: ignore[arg-type]


SHARDS = {
    "a": shard(retired_serial=2),
    "b": shard("a", retired_serial=3),
    "c": shard(retired_serial=5),
    "d": shard("c", retired_serial=6, rows_of=("a", "b", "c")),
    "e": shard("d"),
    "building": shard("b"),
    "circle": shard("circle"),
    "old": shard(moved_to="older"),
    "older": shard(moved_to="new"),
    "new": shard(),
}


def test_rows_of() -> None:
    """A copy has what its source has; what a rollback made has what it names; each its own."""
    assert rows_of("b", SHARDS) == ("a", "b")
    assert rows_of("d", SHARDS) == ("a", "b", "c", "d")
    assert rows_of("e", SHARDS) == ("a", "b", "c", "d", "e")
    assert rows_of("circle", SHARDS) == ("circle",)
    assert rows_of("unknown", SHARDS) == ()


def test_last_holders() -> None:
    """Of the retired shards with the rows of one, the one that was in force last."""
    assert last_holders(SHARDS) == {"a": "d", "b": "d", "c": "d", "d": "d"}


def test_where_now() -> None:
    """A moved directory is followed as often as it was moved."""
    assert where_now("old", SHARDS) == "new"
    assert where_now("a", SHARDS) == "a"
