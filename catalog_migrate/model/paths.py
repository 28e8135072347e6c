"""Paths of shards: relative to the warehouse, handed out once.

An adopted table stays where it lies: its shard's path is absolute.
"""

from __future__ import annotations

import re
from hashlib import sha256
from uuid import uuid4

_LONGEST = 128
_KEPT = 100
_SAFE = re.compile(r"[A-Za-z0-9_-]")
_PLACEHOLDER = re.compile(r"-[0-9a-f]{32}\.twin\Z")


def shard_path(schema: str, name: str, token: str) -> str:
    """Return a fresh shard path ``<schema>/<name>/<token>``; odd characters are encoded.

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
    """Return whether a shard lies where it was adopted and not below the warehouse."""
    return path.startswith("/") or "://" in path


def placeholder_location(location: str) -> str:
    """Where the empty table lies that a managed name points at while it is being dropped.

    Spark removes the files that such a name points at together with the name.
    """
    return f"{location}-{uuid4().hex}.twin"


def is_placeholder(location: str) -> bool:
    """Return whether a location is one of :func:`placeholder_location`: a table without rows."""
    return _PLACEHOLDER.search(location) is not None


def without_placeholder(location: str) -> str:
    """The location that a placeholder stands for; any other one as it is."""
    return _PLACEHOLDER.sub("", location)


def _encode(part: str) -> str:
    # '=' instead of '%': Hadoop decodes %xx in some paths and not in others
    return "".join(c if _SAFE.match(c) else "".join(f"={b:02x}" for b in c.encode()) for c in part)
