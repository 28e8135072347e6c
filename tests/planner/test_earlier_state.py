"""Which rows a shard has, told from the records of all shards."""

from __future__ import annotations

import pytest

from catalog_migrate.catalog.records import (
    FORMAT_VERSION,
    ConfigRecord,
    ItemRecord,
    MappingRecord,
    ShardRecord,
)
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.earlier_state import (
    Step,
    going_back,
    last_holders,
    rows_of,
    where_now,
)


def shard(source: str | None = None, **fields: object) -> ShardRecord:
    """A shard that is in force, unless ``fields`` say more."""
    return ShardRecord("i1", "s1", **{"state": "live", "source": source, **fields})  # type: ignore[arg-type]


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


T: Identity = ("relation", "s", "t")


def state(serial: int, holder: str, shards: dict[str, ShardRecord]) -> State:
    """A table ``s.t`` at a serial, with its rows in one shard."""
    table = ObjectDefinition("s", "table", "t", (Column("a", "INT"),))
    mapping = MappingRecord("s", "table", "t", "release", "i1", "s1", "1:f", "1:d", "1:s")
    return State.from_rows(serial, [
        ("config", "format_version", encode_record(ConfigRecord(str(FORMAT_VERSION)))),
        ("config", "serial", encode_record(ConfigRecord(str(serial)))),
        ("mapping", "relation:s.t", encode_record(mapping)),
        ("item", "i1", encode_record(ItemRecord("release", "s1", table, shard=holder))),
        *(("shard", path, encode_record(record)) for path, record in shards.items()),
    ])


@pytest.mark.parametrize(("rows", "differs"), [(0, False), (1, True), (-1, True), (None, True)])
def test_rows_that_a_shard_from_before_got_later(rows: int | None, differs: bool) -> None:
    """A rollback brought them back: they are neither of then nor of since, where there are any."""
    earlier = {
        "z": shard(retired_serial=1, state="retired"), "a": shard(),
    }
    later = earlier | {
        "a": shard(retired_serial=2, state="retired"), "d": shard(rows_of=("z",)),
    }
    grown = {("a", 0): 0, ("d", 0): 0, ("z", 0): rows}
    back = going_back(
        [Step(state(1, "a", earlier)), Step(state(2, "d", later))], 1,
        lambda path, after, _upto: grown[path, after],
    )
    assert back.origins[T].differs is differs


def test_a_shard_from_before_whose_files_were_deleted() -> None:
    """What came to it is not known, and is not asked: the table may differ."""
    earlier = {"z": shard(retired_serial=1, state="retired"), "a": shard()}
    later = {
        "a": shard(retired_serial=2, state="retired"), "d": shard(rows_of=("z",)),
        "z": shard(retired_serial=1, state="gone"),
    }
    grown = {("a", 0): 0, ("d", 0): 0}
    back = going_back(
        [Step(state(1, "a", earlier)), Step(state(2, "d", later))], 1,
        lambda path, after, _upto: grown[path, after],
    )
    assert back.origins[T].differs
