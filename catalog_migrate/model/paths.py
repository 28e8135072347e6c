"""Paths of shards: relative to the warehouse, handed out once."""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9_-]")


def shard_path(schema: str, name: str, token: str) -> str:
    """A fresh shard path ``<schema>/<name>/<token>``; odd characters are percent-encoded."""
    return f"{_encode(schema)}/{_encode(name)}/{token}"


def _encode(part: str) -> str:
    # '=' instead of '%': Hadoop decodes %xx in some paths and not in others
    return "".join(c if _SAFE.match(c) else "".join(f"={b:02x}" for b in c.encode()) for c in part)
