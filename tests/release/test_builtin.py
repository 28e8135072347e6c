"""Our own built-ins are a valid release over the catalog's log."""

from __future__ import annotations

from catalog_migrate.release.builtin import system_release


def test_system_release_reads_the_log_of_the_catalog() -> None:
    """The schema holds its views; only the base view reads the log, at the catalog's path."""
    release = system_release("file:///data/catalog/")
    assert sorted(str(one.key) for one in release.objects) == [
        f"catalog_migrate.{name}"
        for name in (
            "clusters", "columns", "connections", "dependencies", "holds", "mappings", "objects",
            "operations", "records", "releases", "shards", "sinks", "sources", "statuses",
            "tombstones", "unsafe_operations",
        )
    ]
    records = release.by_identity["relation", "catalog_migrate", "records"]
    assert records.sql is not None
    assert "delta.`file:///data/catalog/log`" in records.sql
    readers = {
        identity[2] for identity, uses in release.uses.items()
        if identity != records.identity and records.identity not in uses
    }
    assert readers == {"statuses"}
    assert release.name.startswith("catalog_migrate ")


def test_another_catalog_is_another_definition() -> None:
    """The log's path is part of the definition, so the hash differs from catalog to catalog."""
    assert system_release("a").manifest_hash != system_release("b").manifest_hash


def test_statuses_read_the_logs_of_the_clusters() -> None:
    """Without a cluster the view is empty; with some it reads the log of each."""
    identity = ("relation", "catalog_migrate", "statuses")
    none = system_release("a").by_identity[identity].sql
    two = system_release("a", ("/w/one", "/w/two")).by_identity[identity].sql
    assert none is not None
    assert two is not None
    assert "WHERE false" in none
    assert "delta.`/w/one` UNION ALL SELECT * FROM delta.`/w/two`" in two
