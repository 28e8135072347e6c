"""What is to be done to names, told from what is committed and what is observed."""

from __future__ import annotations

import pytest

from catalog_migrate.catalog.records import FORMAT_VERSION, ConfigRecord, MappingRecord, ShardRecord
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.engine.port import Registration, ViewSpec
from catalog_migrate.migrations.actions import DesiredName, difference, shard_at
from catalog_migrate.migrations.others import describe_holder
from catalog_migrate.model.names import Identity, ItemName

OWN: Identity = ("relation", "catalog_migrate", "own")
T: Identity = ("relation", "s", "t")


@pytest.fixture
def state() -> State:
    """A table of the release, and a view of our own."""
    return State.from_rows(0, [
        ("config", "format_version", encode_record(ConfigRecord(str(FORMAT_VERSION)))),
        ("config", "lineage", encode_record(ConfigRecord("a" * 32))),
        ("mapping", "relation:catalog_migrate.own", encode_record(MappingRecord(
            "catalog_migrate", "view", "own", "system", "i1", "s1", "1:a", "1:b", "1:c"
        ))),
        ("mapping", "relation:s.t", encode_record(MappingRecord(
            "s", "table", "t", "release", "i2", "s2", "1:a", "1:b", "1:c"
        ))),
        ("shard", "s/t/1", encode_record(ShardRecord("i2", "s2", "live"))),
    ])


def test_own_views_are_not_put_beside_those_of_others(state: State) -> None:
    """Where another installation has its own ones in the schema; names of the release are."""
    desired = {
        OWN: DesiredName(OWN, ItemName("catalog_migrate", "own"), "view", "i1", "s1", ()),
        T: DesiredName(T, ItemName("s", "t"), "table", "i2", "s2", (), location="s/t/1"),
    }
    theirs = Registration(
        ItemName("catalog_migrate", "other"), "view",
        properties={"catalog_migrate.lineage": "b" * 32},
    )
    found = difference(state, desired, [theirs], "/w")
    assert found.missing == {T}
    assert found.held_views is not None
    assert difference(state, desired, [], "/w").missing == {OWN, T}


def test_a_view_with_another_definition_is_replaced_and_reported(state: State) -> None:
    """The report names the object, its kind and why; nothing is dropped for it."""
    wanted = DesiredName(
        OWN, ItemName("catalog_migrate", "own"), "view", "i1", "s1", (),
        view=ViewSpec(ItemName("catalog_migrate", "own"), (), "SELECT 2"),
    )
    edited = Registration(
        wanted.name, "view", text="SELECT 1",
        properties={
            "catalog_migrate.lineage": "a" * 32, "catalog_migrate.id": "s1",
            "catalog_migrate.definition": "another",
        },
    )
    found = difference(state, {OWN: wanted}, [edited], "/w")
    (drift,) = found.drift
    assert (drift.kind, drift.name, drift.reason, drift.object) == (
        "different", "catalog_migrate.own", "its definition is not the committed one", "view"
    )
    assert (set(found.replaced), set(found.drops)) == ({OWN}, set())


def test_a_shard_is_known_by_the_paths_that_were_handed_out(state: State) -> None:
    """What else lies in the warehouse is none of ours."""
    assert shard_at(state, "/w", "/w/s/t/1") == "s/t/1"
    assert shard_at(state, "/w", "/w/s/t/2") is None
    assert shard_at(state, "/w", "/elsewhere/s/t/1") is None


@pytest.mark.parametrize(("kind", "location", "installation", "words"), [
    ("view", None, "", "a view that is not ours: with another definition"),
    ("view", None, "catalog id x", "a view of another installation (catalog id x)"),
    ("table", "/t", "", "a table that is not ours: /t"),
    ("table", "/t", "catalog id x", "a table of another installation (catalog id x): /t"),
])
def test_what_holds_a_name_in_words(
    kind: str, location: str | None, installation: str, words: str
) -> None:
    """Whose it is, and where; of a view whose it is not known, that it is another."""
    held = Registration(ItemName("s", "t"), kind, location)  # type: ignore[arg-type]
    assert describe_holder(held, installation) == words
