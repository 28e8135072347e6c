"""Addresses by their spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog_migrate.delta.table import options_for
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, UsageError
from catalog_migrate.migrations.execution_context import relative
from catalog_migrate.store import address
from catalog_migrate.store.address import (
    Storage,
    folders_above,
    is_same_place,
    local_path,
    move_address,
    remember,
    resolved,
    rows_address,
    storage_of,
)


def test_local_locations_lose_their_scheme():
    """file: addresses become paths, others stay."""
    assert local_path("file:/a/b/") == "/a/b"
    assert local_path("file:///a/b") == "/a/b"
    assert local_path("s3://bucket/a") == "s3://bucket/a"


def test_what_lay_inside_a_moved_directory_moved_along():
    """All else is where it was, an object store too."""
    assert move_address("/a/b//w/", "/a/b", "/c") == "/c/w"
    for stays in ("/a/bc/w", "/a/b", "s3://a/b"):
        assert move_address(stays, "/a/b", "/c") == stays


def test_one_place_by_spelling_or_by_links(tmp_path: Path):
    """A link leads there; on an object store only the spelling counts."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert is_same_place(f"{tmp_path}/link", f"file:{tmp_path}//real/")
    assert resolved(f"{tmp_path}/link") == str(tmp_path.resolve() / "real")
    assert not is_same_place(f"{tmp_path}/real", f"{tmp_path}/other")
    assert is_same_place("s3://a/b/", "s3://a/b")
    assert not is_same_place("s3://a/b", "/a/b")


def test_s3_and_s3a_are_one_place():
    """Whoever compares takes them for the same; what is stored stays as it was given."""
    assert is_same_place("s3a://b/w/", "s3://b//w")
    assert resolved("S3A://b/w/x") == "s3://b/w/x"
    assert not is_same_place("s3://b/w", "gs://b/w")
    assert relative("s3a://b/w", "s3://b/w/s/t/1") == "s/t/1"
    assert relative("s3a://b/w", "s3://b/w2/s") is None
    assert move_address("s3a://a/b/w", "s3://a/b", "s3://c/d") == "s3://c/d/w"
    assert list(folders_above("s3://b/w/t")) == ["s3://b/w", "s3://b"]
    assert list(folders_above("/w/t")) == ["/w", "/"]


def test_where_rows_may_lie():
    """In a directory or on a store that was tried; on another where it is enabled by name."""
    assert rows_address("s3a://b//w/") == "s3a://b/w"
    assert rows_address("gs://b/w", ["gs"]) == "gs://b/w"
    assert rows_address("file:/w/") == "/w"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gs://b/w", "not tried: gs"), ("abfss://c@a.dfs.core.windows.net/w", "not tried: abfss"),
        ("az://b/w", "rows cannot lie at az://b/w"), ("hdfs://n/w", "rows cannot lie at hdfs://n/w"),
        ("s3:///w", "a bucket and a path"), ("s3://b/a b", "a bucket and a path"),
        ("s3://b/a%20b", "a bucket and a path"), ("s3://b/../w", "a bucket and a path"),
        ("s3://KEY:SECRET@b/w", "holds a login"), ("", "empty text"),
    ],
)
def test_where_rows_may_not_lie(text: str, told: str):
    """The address is told, a login in it is not."""
    with pytest.raises(UsageError, match=told) as found:
        rows_address(text)
    assert "SECRET" not in str(found.value)


def test_options_are_found_by_the_address(monkeypatch: pytest.MonkeyPatch):
    """Those of the bucket; else those of all others, where they are the same."""
    monkeypatch.setattr(address, "_given", {})
    one, two = Storage({"aws_region": "one"}), Storage({"aws_region": "two"})
    assert options_for("s3://b/w") is None
    remember("s3a://b/catalog", one)
    assert storage_of("s3://b/w") is one
    assert storage_of("s3://elsewhere/w") is one
    assert not storage_of("/w")
    remember("s3://other/catalog", two)
    assert options_for("s3://other/w") == {"aws_region": "two"}
    assert not storage_of("s3://elsewhere/w")
    remember("s3://b/x", Storage())  # nothing said is nothing changed
    assert storage_of("s3://b/w") is one


def test_what_was_given_is_told_by_no_failure(monkeypatch: pytest.MonkeyPatch):
    """A server may repeat a key; neither the error nor its cause does."""
    monkeypatch.setattr(address, "_given", {})
    remember("s3://b/catalog", Storage({"aws_access_key_id": "MARKED-KEY"}))
    with pytest.raises(EngineFailure) as found, failing("read it"):
        raise OSError("InvalidAccessKeyId: MARKED-KEY")
    assert "MARKED" not in f"{found.value}{found.value.__cause__!r}"
    assert "InvalidAccessKeyId: ***" in str(found.value)
