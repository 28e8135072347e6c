"""Our own built-ins are a valid release over the catalog's log."""

from __future__ import annotations

from catalog_migrate.release.builtin import system_release


def test_system_release_reads_the_log_of_the_catalog() -> None:
    """The schema holds the eight views; only the base view reads the log, at the catalog's path."""
    release = system_release("file:///data/catalog/")
    assert sorted(str(one.key) for one in release.objects) == [
        f"catalog_migrate.{name}"
        for name in (
            "columns", "dependencies", "mappings", "objects", "records", "releases", "shards",
            "tombstones",
        )
    ]
    records = release.by_identity["relation", "catalog_migrate", "records"]
    assert records.sql is not None
    assert "delta.`file:///data/catalog/log`" in records.sql
    assert set(release.uses.values()) == {(), (records.identity,)}
    assert release.name.startswith("catalog_migrate ")


def test_another_catalog_is_another_definition() -> None:
    """The log's path is part of the definition, so the hash differs from catalog to catalog."""
    assert system_release("a").manifest_hash != system_release("b").manifest_hash
