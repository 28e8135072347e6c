"""Our own views (the schema ``catalog_migrate``) in a catalog that no release was brought into.

A start brings them in beside the software's release. Where there is none, because a catalog only
has connections, sources and sinks, they are made when somebody first asks for them.
"""

from __future__ import annotations

from typing import Any

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.state import State
from catalog_migrate.hook import cluster_logs, session_settings, system_schema
from catalog_migrate.policy import Policy
from catalog_migrate.reconciler.execution_context import OnProgress, new_token, silent
from catalog_migrate.release.release import Release
from catalog_migrate.start import Start
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.migrations import MigratedStreams


def make_own_views(
    spark: Any, log: CatalogLog, *, wait: float = 60.0, threads: int = 4,
    on_progress: OnProgress = silent,
) -> bool:
    """Bring our own views in, and this session's names in line; whether anything was committed.

    Nothing is done where a release is in force (its start brings them in) and for a catalog on an
    object store, which Spark has no way to read. ``wait`` is how many seconds another holder of the
    migration lease is waited for. Raises LeaseHeld, and what a start raises.
    """
    from catalog_migrate.engine.spark.engine import SparkEngine
    from catalog_migrate.release.builtin import system_release

    state = read_state(log)
    if is_remote(log.uri) or state.release_in_force("release") is not None:
        return False
    ansi, time_zone = session_settings(spark, log)
    engine = SparkEngine(spark, threads=threads)
    system = system_release(log.uri, cluster_logs(log), system_schema(engine, log, log.uri))
    if not _lacks(state, system):
        return False
    Start(
        engine, log, system, clock=SystemClock(), holder=this_holder(),
        approve=(), populate=None, wait=wait, threads=threads, policy=Policy(), approved=None,
        on_progress=on_progress, system=None, token=new_token, ttl=30.0, margin=10.0,
        settings=(ansi, time_zone), streams=MigratedStreams(),
    ).run_own()
    return True


def _lacks(state: State, system: Release) -> bool:
    """Whether our views are not there yet, or were made before a cluster had its log.

    Those of another version of this tool are left alone.
    """
    in_force = state.release_in_force("system")
    return in_force is None or (
        in_force.name == system.name and in_force.manifest_hash != system.manifest_hash
    )
