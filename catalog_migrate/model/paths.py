"""Paths of shards: relative to the warehouse, handed out once.

An adopted table stays where it lies: its shard's path is absolute.
"""

from __future__ import annotations

import re
from hashlib import sha256

_LONGEST = 128
_KEPT = 100
_SAFE = re.compile(r"[A-Za-z0-9_-]")


def local_path(location: str) -> str:
    """A location without the scheme of the local file system: ``file:/a`` becomes ``/a``."""
    if location.startswith("file:"):
        location = location[len("file:") :]
        if location.startswith("//"):
            location = "/" + location.lstrip("/")
    return location.rstrip("/") or "/"


def shard_path(schema: str, name: str, token: str) -> str:
    """A fresh shard path ``<schema>/<name>/<token>``; odd characters are encoded.

    A directory's name has room for 255 bytes, and an odd character takes up to twelve: a long part
    is cut and ends with its hash. It is for people to read; what makes a path unique is the token.
    """
    return f"{_part(schema)}/{_part(name)}/{token}"


def _part(part: str) -> str:
    encoded = _encode(part)
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{encoded[:_KEPT]}-{sha256(part.encode()).hexdigest()[:16]}"


def shard_location(warehouse: str, path: str) -> str:
    """Where a shard lies: its path below the warehouse, or as it stands when it is absolute."""
    return path if is_absolute(path) else f"{warehouse.rstrip('/')}/{path}"


def is_absolute(path: str) -> bool:
    """Whether a shard lies where it was adopted and not below the warehouse."""
    return path.startswith("/") or "://" in path


def _encode(part: str) -> str:
    # '=' instead of '%': Hadoop decodes %xx in some paths and not in others
    return "".join(c if _SAFE.match(c) else "".join(f"={b:02x}" for b in c.encode()) for c in part)
