"""Starts on any engine and log: what the simulation and tests without a Spark session drive."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from catalog_migrate.pipeline.plan import BootstrapOptions, ReleaseToApply
from catalog_migrate.pipeline.start import BootstrapReport, start
from catalog_migrate.policy import Policy
from catalog_migrate.streams.migrations import MigratedStreams
from catalog_migrate.users.settings import UserSettings

if TYPE_CHECKING:
    from catalog_migrate.catalog.clock import Clock
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.reconciler.execution_context import StreamTables
    from catalog_migrate.release.release import Release


def migrate(
    engine: Engine, log: CatalogLog, release: Release, *, clock: Clock,
    system: Release | None = None, streams: StreamTables | None = None, **said: Any,
) -> BootstrapReport:
    """:func:`~catalog_migrate.hook.bootstrap` on any engine and log.

    ``system`` is the release of our own built-ins, ``streams`` are asked about the tables that they
    use. ``said`` are fields of :class:`~catalog_migrate.pipeline.plan.BootstrapOptions`.
    """
    parts = [ReleaseToApply(release)]
    if system is not None:
        parts.append(ReleaseToApply(system, "system"))
    return start(
        engine, log, parts, _options(**said), clock=clock, streams=streams or MigratedStreams()
    )


def roll_back(
    engine: Engine, log: CatalogLog, *, clock: Clock, to: int | None = None,
    plan: Plan | None = None, policy: Policy | None = None, streams: StreamTables | None = None,
    **said: Any,
) -> BootstrapReport:
    """:func:`~catalog_migrate.hook.rollback` on any engine and log, as :func:`migrate`."""
    from catalog_migrate.pipeline.rollback import going_back_by, read_past

    past = read_past(log, to, plan)
    options = _options(policy=going_back_by(policy), plan=plan, **said)
    return start(
        engine, log, [ReleaseToApply(past.release, past=past)], options, clock=clock,
        streams=streams or MigratedStreams(),
    )


def _options(
    *, policy: Policy | None = None, approve: Collection[str] = (),
    users: UserSettings | None = None, **said: Any,
) -> BootstrapOptions:
    return BootstrapOptions(
        policy=policy or Policy(), approve=tuple(approve), users=users or UserSettings(threads=1),
        **said,
    )
