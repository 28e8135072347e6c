"""The programming interface: whatever the command line can do, a program can too.

``Catalog`` (``catalog``) is one opened catalog: look, plan, execute statements, repair. The verbs
that also read a release or start a Spark session are functions of the configuration
(:func:`catalog_migrate.config.load`), as in Alembic's ``command``:

- ``releases``: plan, check, compare and compile releases, plan a rollback
- ``starts``: apply, start, roll back
- ``administration``: adopt, export, relocate, rebuild
- ``registrations``: the names in Spark's catalog compared and repaired; one reading statement
- ``users``: users' views and functions, looked at again
- ``streams``: run a cluster, unsafe operations, positions
- ``doctor``: try what the product needs on this machine

    settings = config.load(flags={"catalog.uri": "catalog", "release.path": "release"})
    plan = releases.plan_release(settings)
    report = starts.apply_release(settings, confirm=lambda plan: not plan.blocked)

They return values and raise :class:`~catalog_migrate.errors.CatalogMigrateError`; none prints or
asks. What a person has to confirm is a callback: without one the answer is yes, but an unsafe
operation is begun with one alone. A Spark session that runs already is used, and left running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalog_migrate.errors import UnknownObject

if TYPE_CHECKING:
    from catalog_migrate.api.catalog import Catalog, Mode
    from catalog_migrate.api.status import Status

__all__ = ["Catalog", "Mode", "Status", "UnknownObject"]

_LAZY = {"Catalog": "catalog", "Mode": "catalog", "Status": "status"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
