"""Addresses by their spelling."""

from __future__ import annotations

from catalog_migrate.store.address import local_path


def test_local_locations_lose_their_scheme():
    """file: addresses become paths, others stay."""
    assert local_path("file:/a/b/") == "/a/b"
    assert local_path("file:///a/b") == "/a/b"
    assert local_path("s3://bucket/a") == "s3://bucket/a"
