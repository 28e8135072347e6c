"""Paths of shards: relative to the warehouse, handed out once.

An adopted table stays where it lies: its shard's path is absolute.
"""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9_-]")


def shard_path(schema: str, name: str, token: str) -> str:
    """A fresh shard path ``<schema>/<name>/<token>``; odd characters are percent-encoded."""
    return f"{_encode(schema)}/{_encode(name)}/{token}"


def shard_location(warehouse: str, path: str) -> str:
    """Where a shard lies: its path below the warehouse, or as it stands when it is absolute."""
    return path if is_absolute(path) else f"{warehouse.rstrip('/')}/{path}"


def is_absolute(path: str) -> bool:
    """Whether a shard lies where it was adopted and not below the warehouse."""
    return path.startswith("/") or "://" in path


def _encode(part: str) -> str:
    # '=' instead of '%': Hadoop decodes %xx in some paths and not in others
    return "".join(c if _SAFE.match(c) else "".join(f"={b:02x}" for b in c.encode()) for c in part)
