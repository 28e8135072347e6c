"""Our own built-ins are a valid release over the catalog's log."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.release import builtin
from catalog_migrate.release.builtin import builtins_directory, system_release
from catalog_migrate.streams.positions.audit import entry


def test_system_release_reads_the_log_of_the_catalog() -> None:
    """The schema holds its views; the base view reads the log, at the catalog's path."""
    release = system_release("file:///data/catalog/")
    assert sorted(str(one.key) for one in release.objects) == [
        f"catalog_migrate.{name}"
        for name in (
            "audit", "clusters", "columns", "connections", "dependencies", "holds", "mappings",
            "objects", "operations", "operations_log", "records", "releases", "shards", "sinks",
            "sources", "statuses", "tombstones", "unsafe_operations", "user_objects",
        )
    ]
    records = release.by_identity["relation", "catalog_migrate", "records"]
    assert records.sql is not None
    assert "delta.`file:///data/catalog/log`" in records.sql
    readers = {
        identity[2] for identity, uses in release.uses.items()
        if identity != records.identity and records.identity not in uses
    }
    assert readers == {"statuses", "audit", "operations_log"}
    assert release.name.startswith("catalog_migrate ")


def test_the_history_of_unsafe_operations() -> None:
    """The view and `unsafe list` have the same columns: the whole audit, RESTORE included."""
    identity = ("relation", "catalog_migrate", "unsafe_operations")
    view = system_release("a").by_identity[identity]
    act = UnsafeAct(who="ann", host="h", at="2026-01-01", reason="r", request="{}")
    row = OperationRecord(kind="unsafe", state="done", unsafe=act)
    assert [column.name for column in view.columns] == list(entry("key", row))


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


class _Installed(PurePosixPath):
    """A file of an installed distribution that lies below ``home``."""

    home: Path

    def locate(self) -> Path:
        """Where it should be."""
        return type(self).home / self


def test_a_missing_file_of_ours_is_a_damaged_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view less would be taken for a release without it; so nothing is read at all."""
    package = tmp_path / "catalog_migrate"
    (package / "builtins").mkdir(parents=True)
    for source in builtins_directory().glob("*.sql"):
        (package / "builtins" / source.name).write_bytes(source.read_bytes())
    listed = [f"catalog_migrate/builtins/{path.name}" for path in (package / "builtins").iterdir()]
    kind = type("Installed", (_Installed,), {"home": tmp_path})
    monkeypatch.setattr(builtin, "files", lambda name: [kind(each) for each in listed])
    monkeypatch.setattr(builtin, "__file__", str(package / "release" / "builtin.py"))
    assert system_release("a").objects
    (tmp_path / listed[0]).unlink()
    with pytest.raises(PrerequisiteMissing, match="damaged") as caught:
        system_release("a")
    assert listed[0] in str(caught.value)
    monkeypatch.setattr(builtin, "files", lambda name: [])
    for path in (package / "builtins").iterdir():
        path.unlink()
    with pytest.raises(PrerequisiteMissing, match="damaged"):
        system_release("a")
