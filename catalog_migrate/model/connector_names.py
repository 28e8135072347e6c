"""The names of connectors, and where each is found.

Ours by an import string, those of other packages by their entry point, which is looked for only
under a name that is not ours. Nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    found = entry_points(group=ENTRY_POINTS)
    return next((point for point in found if point.name.upper() == name.upper()), None)
