"""The start-up hook: one call that leaves the world as the release says, or says why not.

:func:`bootstrap` is the hook for a Spark session; :func:`migrate` is the same with engine, log and
clock handed in, and is what the simulation drives. A start brings our own views in beside the
software's release; where a catalog has connections, sources and sinks alone, :func:`make_own_views`
does when somebody first asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.errors import CatalogNotFound
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.log import has_log
from catalog_migrate.model.paths import shard_location
from catalog_migrate.planner.plan import Plan
from catalog_migrate.policy import Policy
from catalog_migrate.reconciler.execution_context import OnProgress, new_token, silent
from catalog_migrate.reconciler.prepare import Populate
from catalog_migrate.release.release import Release
from catalog_migrate.start import BootstrapReport, Outcome, Start
from catalog_migrate.store.address import Storage, is_remote, rows_directory
from catalog_migrate.store.local import read_file
from catalog_migrate.streams.migrations import MigratedStreams

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.reconciler.stream_tables import StreamTables


def bootstrap(
    spark: Any,
    *,
    release: str | os.PathLike[str] | Release,
    catalog: str | os.PathLike[str],
    warehouse: str | os.PathLike[str] | None = None,
    policy: Policy | None = None,
    approve: Collection[str] = (),
    plan: Plan | str | os.PathLike[str] | None = None,
    populate: Callable[[Any, str, str], None] | None = None,
    read_only: bool = False,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
    threads: int = 4,
    session: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> BootstrapReport:
    """Bring the catalog and this session's names to ``release``; the software's start-up hook.

    ``spark`` is any session with Delta configured, ``release`` a directory of ``*.sql``, a manifest
    file or a loaded Release, ``catalog`` the durable catalog's directory, ``warehouse`` the
    directory of the shards (default: ``<catalog>/warehouse``; remembered by the catalog).
    ``catalog`` may be on an object store (``s3://…``) whose options ``storage_options`` are handed
    to delta-rs and shown nowhere; the shards lie in a directory that Spark reads.
    ``approve`` takes ``schema.table[.column]`` entries; ``plan`` an approved plan (or its file):
    anything else is refused. ``policy`` holds rules about risks (those of the configuration:
    ``catalog_migrate.config.load().policy``).
    ``populate(spark, table_name, target_path)`` fills derived tables;
    ``timeout`` bounds in seconds how long another holder of the lease is waited for (default 600).
    ``session`` puts on record that this process lives with the names from now on, so that no
    column is renamed or dropped under it; without it that must not matter, as in a command.

    Raises MigrationBlocked (with the plan), StalePlan, LeaseHeld, PrepareFailed, NotReconciled,
    InvalidRelease, UnsuitableSession; whatever is raised, running it again is safe.
    """
    from catalog_migrate.engine.spark.engine import SparkEngine
    from catalog_migrate.release.builtin import system_release
    from catalog_migrate.release.loader import load_release

    uri = os.path.abspath(os.fspath(catalog)) if "://" not in os.fspath(catalog) else str(catalog)
    loaded = release if isinstance(release, Release) else load_release(os.fspath(release))
    fill: Populate | None = None
    if populate is not None:
        callback = populate

        def fill(name: str, path: str) -> None:
            callback(spark, name, path)

    log = open_log(uri, Storage(storage_options))
    ansi, time_zone = session_settings(spark, log)
    engine = SparkEngine(spark, threads=threads)
    system: Release | None = None
    if not is_remote(uri):  # Spark reads the log for our own views, and has no way to most stores
        schema = system_schema(engine, log, uri)
        system = system_release(uri, cluster_logs(log), schema)
    return migrate(
        engine,
        log,
        loaded,
        warehouse=None if warehouse is None else rows_directory(os.fspath(warehouse)),
        clock=SystemClock(),
        holder=this_holder(),
        approve=approve,
        populate=fill,
        wait=600.0 if timeout is None else timeout,
        threads=threads,
        policy=policy,
        plan=_approved(plan),
        read_only=read_only,
        on_progress=on_progress or silent,
        system=system,
        ansi=ansi,
        time_zone=time_zone,
        session=session,
    )


def session_settings(spark: Any, log: CatalogLog) -> tuple[bool, str]:
    """ANSI mode and time zone: the catalog's, set on the session; a new catalog takes these over.

    A view keeps both from its creation (STACK section 2), so they must be right before any DDL.
    """
    try:
        config = read_state(log).config
    except CatalogNotFound:
        return (
            spark.conf.get("spark.sql.ansi.enabled", "true") == "true",
            spark.conf.get("spark.sql.session.timeZone", "UTC"),
        )
    ansi, time_zone = config["ansi"].value == "true", config["time_zone"].value
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    spark.conf.set("spark.sql.session.timeZone", time_zone)
    return ansi, time_zone


def _approved(plan: Plan | str | os.PathLike[str] | None) -> Plan | None:
    if plan is None or isinstance(plan, Plan):
        return plan
    from catalog_migrate.planner.planfile import decode_plan

    return decode_plan(read_file(plan))


def cluster_logs(log: CatalogLog) -> tuple[str, ...]:
    """Directories of the clusters' logs that are there, for the views that read them."""
    if not log.exists():
        return ()
    state = read_state(log)
    warehouse = state.setting("warehouse")
    paths = (shard_location(warehouse, shard) for shard in state.shards_of_kind("log"))
    return tuple(path for path in paths if has_log(path))


def migrate(
    engine: Engine,
    log: CatalogLog,
    release: Release,
    *,
    warehouse: str | None,
    clock: Clock,
    holder: str,
    approve: Collection[str] = (),
    populate: Populate | None = None,
    wait: float | None = None,
    threads: int = 1,
    policy: Policy | None = None,
    plan: Plan | None = None,
    read_only: bool = False,
    on_progress: OnProgress = silent,
    system: Release | None = None,
    token: Callable[[], str] = new_token,
    ttl: float = 30.0,
    margin: float = 10.0,
    ansi: bool = True,
    time_zone: str = "UTC",
    session: bool = False,
    streams: StreamTables | None = None,
) -> BootstrapReport:
    """:func:`bootstrap` on any engine and log; ``system`` is the release of our own built-ins.

    ``ttl`` and ``margin`` (seconds) are the lease's; ``ansi`` and ``time_zone`` are remembered by
    a catalog that is created now. ``streams`` are asked about the tables that they use.
    """
    start = Start(
        engine, log, release, clock=clock, holder=holder, approve=tuple(approve),
        populate=populate, wait=wait, threads=threads, policy=policy or Policy(), approved=plan,
        on_progress=on_progress, system=system, token=token, ttl=ttl, margin=margin,
        settings=(ansi, time_zone), streams=streams or MigratedStreams(), session=session,
    )
    return start.read_only(warehouse) if read_only else start.run(warehouse)


def system_schema(engine: Engine, log: CatalogLog, catalog_uri: str) -> str:
    """Where our own views are: as committed, else the usual schema unless another has it.

    Two installations on one metastore have one each. Asks Spark only before the first start there.
    """
    from catalog_migrate.reconciler.actions import former
    from catalog_migrate.reconciler.desired import PREFIX
    from catalog_migrate.release.builtin import SYSTEM_SCHEMA, schema_beside

    state = read_state(log) if log.exists() else None
    if state is not None and state.has_owner("system"):
        return next(m.schema for m in state.mappings.values() if m.owner == "system")
    if not engine.persistent_names:
        return SYSTEM_SCHEMA
    ours = {state.lineage, *former(state)[1]} if state is not None else set()
    for registration in engine.observe(SYSTEM_SCHEMA):
        lineage = registration.properties.get(PREFIX + "lineage")
        if lineage is not None and lineage not in ours:
            return schema_beside(catalog_uri)
    return SYSTEM_SCHEMA


def make_own_views(
    spark: Any, log: CatalogLog, *, wait: float = 60.0, threads: int = 4,
    on_progress: OnProgress = silent,
) -> bool:
    """Bring our own views (the schema ``catalog_migrate``) in where no release was brought in.

    This session's names come in line. Returns whether anything was committed. Nothing is done for a
    catalog on an object store, which Spark has no way to read. ``wait`` is how many seconds another
    holder of the migration lease is waited for. Raises LeaseHeld, and what a start raises.
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


__all__ = ["BootstrapReport", "Outcome", "Policy", "bootstrap", "make_own_views", "migrate"]
