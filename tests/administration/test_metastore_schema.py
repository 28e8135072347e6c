"""Where an installation has its own views beside another's (simulated)."""

from __future__ import annotations

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import ItemRecord, MappingRecord
from catalog_migrate.engine.port import ViewSpec
from catalog_migrate.hook import system_schema
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.builtin import system_release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World
from tests.decisions import Changes, commit


def view_of(lineage: str, schema: str) -> ViewSpec:
    """A view of an installation's own."""
    return ViewSpec(
        ItemName(schema, "objects"), (Column("a", "INT", nullable=False),), "SELECT 1 AS a",
        properties={"catalog_migrate.lineage": lineage},
    )


def with_views_of(lineage: str, *, persistent: bool = True) -> SimulatedEngine:
    """A session in whose usual schema a view of this lineage stands."""
    engine = SimulatedEngine(World(), persistent=persistent)
    engine.ensure_schema("catalog_migrate")
    engine.create_view(view_of(lineage, "catalog_migrate"))
    return engine


def test_the_first_has_the_usual_schema() -> None:
    """Nothing stands there, or only what is our own."""
    log = MemoryLog()
    assert system_schema(SimulatedEngine(World(), persistent=True), log, "/c") == "catalog_migrate"
    state = create_catalog(log, warehouse="/w")
    assert system_schema(with_views_of(state.lineage), log, "/c") == "catalog_migrate"


def test_a_second_one_has_a_schema_of_its_own() -> None:
    """Named after its address, the same at every start; in a session as on a metastore. Where that
    one is held too, by what was at this address before, the next is taken."""
    engine = with_views_of("another")
    found = system_schema(engine, MemoryLog(), "/c")
    assert found.startswith("catalog_migrate_")
    assert found == system_schema(engine, MemoryLog(), "/c/")
    assert found != system_schema(engine, MemoryLog(), "/d")
    assert found == system_schema(with_views_of("another", persistent=False), MemoryLog(), "/c")
    engine.ensure_schema(found)
    engine.create_view(view_of("another", found))
    assert system_schema(engine, MemoryLog(), "/c") not in ("catalog_migrate", found)


def test_what_is_committed_stays() -> None:
    """Whoever leaves or comes later moves nobody's views."""
    log = MemoryLog()
    create_catalog(log, warehouse="/w")
    definition = ObjectDefinition("catalog_migrate_12345678", "view", "objects", sql="SELECT 1")

    def decide(_: object) -> Changes:
        from catalog_migrate.catalog.records import AllocatorRecord

        changes = Changes()
        for letter in "is":
            changes.put("allocator", letter, AllocatorRecord(next=2))
        changes.put("mapping", "relation:catalog_migrate_12345678.objects", MappingRecord(
            schema="catalog_migrate_12345678", kind="view", name="objects", owner="system",
            item_id="i1", global_id="s1", fingerprint="1:0", definition_hash="", storage_hash="",
        ))
        changes.put("item", "i1", ItemRecord(owner="system", global_id="s1", definition=definition))
        return changes

    commit(log, decide, kind="test")
    engine = SimulatedEngine(World(), persistent=True)
    assert system_schema(engine, log, "/c") == "catalog_migrate_12345678"


def test_the_views_of_another_schema_read_each_other_there() -> None:
    """No view of the second installation reads one of the first."""
    release = system_release("/c", schema="catalog_migrate_12345678")
    assert {definition.schema for definition in release.objects} == {"catalog_migrate_12345678"}
    assert not any("catalog_migrate." in (definition.sql or "") for definition in release.objects)
