"""The names of connectors, and where each is found.

Ours by an import string, those of other packages by their entry point, which is looked for only
under a name that is not ours. Nothing is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

ENTRY_POINTS = "catalog_migrate.connectors"
"""The group of entry points: the connector's name (letters, digits and _) to the object."""

OURS: Mapping[str, str] = MappingProxyType({
    "KAFKA": "catalog_migrate.connectors.kafka.connector:CONNECTOR",
    "POSTGRES": "catalog_migrate.connectors.postgres.connector:CONNECTOR",
    "FILES": "catalog_migrate.connectors.files.connector:CONNECTOR",
    "SCHEMA REGISTRY": "catalog_migrate.connectors.registry.connector:CONNECTOR",
    "SSH TUNNEL": "catalog_migrate.connectors.ssh.connector:CONNECTOR",
})
"""Our connectors by the name that statements call them."""


def package_of(name: str) -> str | None:
    """Return the distribution that has another package's connector, None for ours."""
    point = find_plugin(name)
    return None if point is None or point.dist is None else point.dist.name


def find_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of another package's connector, None where none is installed.

    Names are compared without case. Ours cannot be replaced.
    """
    if name.upper() in OURS:
        return None
    return _find_plugins(tuple(map(_stamp_of, sys.path))).get(name.upper())


@lru_cache(maxsize=1)
def _find_plugins(_: tuple[tuple[str, int], ...]) -> Mapping[str, EntryPoint]:
    """All of them by name. A lookup reads the metadata of each package: a connector that is missing
    is asked for by every round of a runtime, and for every query that a statement looks at."""
    points = tuple(entry_points(group=ENTRY_POINTS))
    return {point.name.upper(): point for point in reversed(points)}  # the first of a name counts


def _stamp_of(path: str) -> tuple[str, int]:
    """A place of packages, and when one was last installed or removed there."""
    try:
        return path, os.stat(path or ".").st_mtime_ns
    except OSError:
        return path, 0
