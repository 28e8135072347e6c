"""Addresses by their spelling."""

from __future__ import annotations

from pathlib import Path

from catalog_migrate.store.address import is_same_place, local_path, moved_along, resolved


def test_local_locations_lose_their_scheme():
    """file: addresses become paths, others stay."""
    assert local_path("file:/a/b/") == "/a/b"
    assert local_path("file:///a/b") == "/a/b"
    assert local_path("s3://bucket/a") == "s3://bucket/a"


def test_what_lay_inside_a_moved_directory_moved_along():
    """All else is where it was, an object store too."""
    assert moved_along("/a/b//w/", "/a/b", "/c") == "/c/w"
    for stays in ("/a/bc/w", "/a/b", "s3://a/b"):
        assert moved_along(stays, "/a/b", "/c") == stays


def test_one_place_by_spelling_or_by_links(tmp_path: Path):
    """A link leads there; on an object store only the spelling counts."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert is_same_place(f"{tmp_path}/link", f"file:{tmp_path}//real/")
    assert resolved(f"{tmp_path}/link") == str(tmp_path.resolve() / "real")
    assert not is_same_place(f"{tmp_path}/real", f"{tmp_path}/other")
    assert is_same_place("s3://a/b/", "s3://a/b")
    assert not is_same_place("s3://a/b", "/a/b")
