"""Rows that are not where the catalog says: each table by name, or the warehouse of them all."""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.catalog.records import (
    ConfigRecord,
    MappingRecord,
    ShardRecord,
    ShardState,
    identity_text,
)
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.model.names import parse_reference
from catalog_migrate.planner.missing_data import MissingData, missing_data

PLACE = "/rows"


def state_of(*tables: tuple[str, str, ShardState], owner: str = "release") -> State:
    """A state of tables by (name, shard, the shard's state)."""
    raw: dict[str, dict[str, str]] = {"mapping": {}, "shard": {}}
    for number, (name, shard, shard_state) in enumerate(tables):
        mapping = MappingRecord(
            schema="s", kind="table", name=name, owner=owner, item_id=f"i{number}",  # type: ignore[arg-type]
            global_id=f"s{number}", fingerprint="", definition_hash="", storage_hash="",
            text_hash="", comment_hash="",
        )
        raw["mapping"][identity_text(parse_reference(f"table:s.{name}"))] = encode_record(mapping)
        raw["shard"][shard] = encode_record(ShardRecord(f"i{number}", f"s{number}", shard_state))
    raw["config"] = {"warehouse": encode_record(ConfigRecord(value=PLACE))}
    return State(0, raw)


def seen(state: State, *standing: str) -> tuple[MissingData, ...]:
    """What is gone where only these directories have a log."""
    return missing_data(state, lambda path: None if path in standing else "Stale file handle")


def names(found: Iterable[MissingData]) -> list[str]:
    """Their names."""
    return [each.name for each in found]


def test_what_stands_is_not_told() -> None:
    """Every table in its place: nothing; no table at all: nothing either."""
    assert seen(state_of(("t", "s/t/1", "live")), "/rows/s/t/1") == ()
    assert seen(state_of()) == ()


def test_a_table_is_named_with_its_place() -> None:
    """One of two: its path is in the reason and in the remedy."""
    state = state_of(("t", "s/t/1", "live"), ("u", "s/u/1", "live"))
    (lost,) = seen(state, "/rows/s/u/1")
    assert lost.name == "s.t"
    assert "/rows/s/t/1: Stale file handle" in lost.reason
    assert "/rows/s/t/1" in lost.remedy


def test_all_of_several_are_the_warehouse() -> None:
    """A disk that is not mounted is one thing to mend, however many tables lie on it."""
    state = state_of(("t", "s/t/1", "live"), ("u", "s/u/1", "live"))
    (lost,) = seen(state)
    assert lost.name == PLACE
    assert "2 tables" in lost.reason
    assert "relocate --warehouse" in lost.remedy
    assert names(seen(state_of(("t", "s/t/1", "live")))) == ["s.t"]


def test_an_adopted_table_is_told_beside_the_warehouse() -> None:
    """It lies elsewhere, and is looked for where it was moved to by another word."""
    state = state_of(("t", "s/t/1", "live"), ("u", "s/u/1", "live"), ("a", "/else/a", "live"))
    assert names(seen(state)) == [PLACE, "s.a"]
    (lost,) = seen(state, "/rows/s/t/1", "/rows/s/u/1")
    assert "relocate --table s.a=PATH" in lost.remedy
    # whatever their directories are called
    assert names(seen(state_of(("t", "relocate/t/1", "live"), ("u", "relocate/u/1", "live")))) == [
        PLACE
    ]


def test_shards_that_are_not_in_force_are_not_looked_for() -> None:
    """Retired and half-made ones may be gone; so may what users own."""
    state = state_of(("t", "s/t/1", "retired"), ("u", "s/u/1", "building"))
    assert seen(state) == ()
    assert seen(state_of(("t", "s/t/1", "live"), owner="user")) == ()
