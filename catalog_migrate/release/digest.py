"""What tells one manifest from another: the hash of its bytes, and a default schema from outside.

A plan asks it before anything else, so nothing of a release is imported here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import xxhash

from catalog_migrate.errors import InvalidRelease
from catalog_migrate.store.local import read_chunks, read_file


class _DefaultSchema(msgspec.Struct, frozen=True):
    default_schema: str | None = None


def hash_of(data: bytes, *, default_schema: str | None = None) -> str:
    """Return the manifest hash of canonical bytes: 32 hex digits of xxh3_128.

    ``default_schema`` is one that stands above the manifest's own: it changes what bare names
    mean, so it makes another release of the same bytes.
    """
    if default_schema is not None:
        data += b"\0default_schema=" + default_schema.lower().encode()
    return xxhash.xxh3_128_hexdigest(data)


def overriding(given: str | None, own: str | None) -> str | None:
    """Return the default schema that a caller gives, None when it says nothing new."""
    return None if not given or given == own else given


def hash_file(path: Path, *, default_schema: str | None = None) -> str:
    """The manifest hash of a file, whose bytes alone are looked at unless they may say the default
    schema.

    It is no proof that the manifest is valid: only the hash of one that was read before says that.
    Raises OSError, and InvalidRelease for what is no JSON.
    """
    if default_schema is None:
        digest = xxhash.xxh3_128()
        for chunk in read_chunks(path):
            digest.update(chunk)
        return digest.hexdigest()
    data = read_file(path)
    try:
        own = msgspec.json.decode(data, type=_DefaultSchema).default_schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRelease(f"{path} cannot be read", problems=[]) from error
    return hash_of(data, default_schema=overriding(default_schema, own))
