"""A table that rows were written to and that is not there any more is told, never made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ItemRecord,
    MappingRecord,
    ShardRecord,
    StreamRecord,
)
from catalog_migrate.errors import ShardGone
from catalog_migrate.model.objects import Column, External, ObjectDefinition
from catalog_migrate.streams.catalog.tables import ShardMaker
from tests.decisions import Changes, commit

from .conftest import Place

SOURCE = ObjectDefinition(
    "shop", "source", "src", (Column("id", "BIGINT"),), external=External(connector="KAFKA")
)


def with_source(place: Place, *, started: bool) -> str:
    """A source in force, started before or not; the directory of its table."""
    place.installed()

    def decide(_: object) -> Changes:
        changes = Changes()
        changes.put("allocator", "i", AllocatorRecord(next=8))
        changes.put("allocator", "u", AllocatorRecord(next=8))
        changes.put("mapping", "relation:shop.src", MappingRecord(
            schema="shop", kind="source", name="src", owner="user", item_id="i7",
            global_id="u7", fingerprint="1:0", definition_hash="", storage_hash="",
        ))
        changes.put("item", "i7", ItemRecord(
            owner="user", global_id="u7", definition=SOURCE, shard="shop/src/x",
        ))
        changes.put("shard", "shop/src/x", ShardRecord("i7", "u7", "live"))
        if started:
            changes.put("stream", "i7", StreamRecord(checkpoint="_checkpoints/i7"))
        return changes

    commit(place.log(), decide, kind="test")
    return f"{place.warehouse()}/shop/src/x"


def test_a_source_that_never_ran_gets_its_table(place: Place) -> None:
    """With the marks by which a rebuild knows it."""
    path = with_source(place, started=False)
    ShardMaker.local().ensure(place.state(), "i7")
    table = DeltaTable(path)
    assert table.metadata().configuration["catalog_migrate.name"] == "source:shop.src"
    assert [field.name for field in table.schema().fields] == ["id"]


def test_a_source_that_ran_is_not_given_an_empty_table(place: Place) -> None:
    """Its directory was removed: that is told with the place, and nothing is made."""
    path = with_source(place, started=False)
    state = place.state()
    ShardMaker.local().ensure(state, "i7")
    commit(place.log(), lambda _: started(), kind="test")
    ShardMaker.local().ensure(place.state(), "i7")
    shutil.rmtree(path)
    with pytest.raises(ShardGone) as gone:
        ShardMaker.local().ensure(place.state(), "i7")
    assert path in str(gone.value)
    assert "restore" in str(gone.value)
    assert not Path(path).exists()


def started() -> Changes:
    """The row that a runtime writes before the first batch."""
    changes = Changes()
    changes.put("stream", "i7", StreamRecord(checkpoint="_checkpoints/i7"))
    return changes


def test_dead_letters_of_a_source_that_ran(place: Place) -> None:
    """The table that takes them is held to the same."""
    with_source(place, started=True)
    state = place.state()
    orders = f"{place.warehouse()}/{state.items['i1'].shard}"
    path = f"{place.warehouse()}/shop/src/x"
    from catalog_migrate.migrations.actions import shard_spec

    ShardMaker.local().create(shard_spec(SOURCE, path))

    def link(current: object) -> Changes:
        changes = Changes()
        item = place.state().items["i7"]
        changes.put("item", "i7", msgspec.structs.replace(
            item, uses=("i1",), links={"dead_letters": "i1"}
        ))
        return changes

    commit(place.log(), link, kind="test")
    ShardMaker.local().ensure(place.state(), "i7")
    shutil.rmtree(orders)
    with pytest.raises(ShardGone) as gone:
        ShardMaker.local().ensure(place.state(), "i7")
    assert gone.value.data["item_id"] == "i1"
