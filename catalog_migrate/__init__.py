"""Built-in catalog migration for Spark and Delta Lake: one call at start-up, one readable plan.

``bootstrap`` is the start-up hook, ``Catalog`` the programming interface, ``errors`` everything
that can be raised. Both names are loaded on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalog_migrate import errors
from catalog_migrate.version import __version__

if TYPE_CHECKING:
    from catalog_migrate.api import Catalog
    from catalog_migrate.errors import MigrationBlocked
    from catalog_migrate.hook import BootstrapReport, bootstrap
    from catalog_migrate.policy import Policy
    from catalog_migrate.users.settings import UserSettings

__all__ = [
    "BootstrapReport",
    "Catalog",
    "MigrationBlocked",
    "Policy",
    "UserSettings",
    "__version__",
    "bootstrap",
    "errors",
]

_LAZY = {
    "Catalog": "catalog_migrate.api",
    "BootstrapReport": "catalog_migrate.hook",
    "Policy": "catalog_migrate.policy",
    "MigrationBlocked": "catalog_migrate.errors",
    "UserSettings": "catalog_migrate.users.settings",
    "bootstrap": "catalog_migrate.hook",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
