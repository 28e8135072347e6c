"""Starts on any engine and log: what the simulation and tests without a Spark session drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from catalog_migrate.migrations.options import BootstrapOptions, read_arguments
from catalog_migrate.migrations.plan import ReleaseToApply, going_back_to
from catalog_migrate.migrations.start import BootstrapReport, start
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.users.settings import UserSettings

if TYPE_CHECKING:
    from catalog_migrate.catalog.clock import Clock
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.migrations.execution_context import StreamTables
    from catalog_migrate.release.release import Release

_OF_THE_PROCESS = ("asks_for_users", "holder", "margin", "sessions", "token", "ttl")
_ALONE = BootstrapOptions(threads=1, timeout=None, users=UserSettings(threads=1))
"""Nothing runs beside the caller's thread, so that a run can be repeated."""


def migrate(
    engine: Engine, log: CatalogLog, release: Release, *, clock: Clock,
    system: Release | None = None, streams: StreamTables | None = None, **said: Any,
) -> BootstrapReport:
    """:func:`~catalog_migrate.hook.bootstrap` on any engine and log.

    ``system`` is the release of our own built-ins, ``streams`` are asked about the tables that they
    use. ``said`` are fields of :class:`~catalog_migrate.migrations.options.BootstrapOptions`.
    """
    parts = [ReleaseToApply(release)]
    if system is not None:
        parts.append(ReleaseToApply(system, "system"))
    return start(
        engine, log, parts, _options(said), clock=clock, streams=streams or MigratedStreams()
    )


def roll_back(
    engine: Engine, log: CatalogLog, *, clock: Clock, to: int | None = None,
    streams: StreamTables | None = None, **said: Any,
) -> BootstrapReport:
    """:func:`~catalog_migrate.hook.rollback` on any engine and log, as :func:`migrate`."""
    part, options = going_back_to(log, to, _options(said))
    return start(
        engine, log, [part], options, clock=clock, streams=streams or MigratedStreams()
    )


def _options(said: dict[str, Any]) -> BootstrapOptions:
    own = {name: said.pop(name) for name in _OF_THE_PROCESS if name in said}
    return replace(read_arguments(_ALONE, said.pop("plan", None), **said), **own)
