"""The options of a connection with its secrets' values, as a client is given them.

They are made at the moment a client is about to be started, and are never stored.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.values import milliseconds

Resolved = Mapping[str, str | Secret]
"""Effective options of a connection by canonical name, with the values of its secrets."""


@functools.cache
def file_with(text: str) -> str:
    """A path under which this process, and no other user, reads ``text``; one for each text."""
    if not hasattr(os, "memfd_create"):
        return _private_file(text)
    # Its name is only for /proc and says nothing.
    descriptor = os.memfd_create("catalog_migrate")
    os.fchmod(descriptor, 0o600)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text.encode())
    return f"/proc/self/fd/{descriptor}"


def _private_file(text: str) -> str:
    """The same with a temporary file, removed when the process ends in an orderly way."""
    descriptor, path = tempfile.mkstemp(prefix="catalog_migrate-")  # mode 0600
    atexit.register(Path(path).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
    return path


def trigger_seconds(settings: Mapping[str, str]) -> float:
    """The interval of a source's or sink's TRIGGER setting."""
    return milliseconds(settings.get("TRIGGER", "1 second")) / 1000
