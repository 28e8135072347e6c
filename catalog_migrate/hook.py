"""The start-up hook: one call that leaves the world as the release says, or says why not.

:func:`bootstrap` and :func:`rollback` are for a Spark session; with engine, log and clock handed in
they are :mod:`catalog_migrate.testing.starts`. A start brings our own views in beside the
software's release; where a catalog has connections, sources and sinks alone,
:func:`make_own_views` does when they are first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import (
    SessionSettings,
    default_warehouse,
    open_log,
    read_state,
)
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.delta.log import has_log
from catalog_migrate.errors import CatalogNotFound
from catalog_migrate.migrations import safe_commits
from catalog_migrate.migrations.options import (
    BootstrapArguments,
    BootstrapOptions,
    read_arguments,
)
from catalog_migrate.migrations.plan import ReleaseToApply, going_back_to
from catalog_migrate.migrations.start import BootstrapReport, Outcome, start
from catalog_migrate.model.paths import shard_location
from catalog_migrate.model.progress import Progress, silent
from catalog_migrate.planner.plan import Plan
from catalog_migrate.policy import Policy
from catalog_migrate.release.release import Release
from catalog_migrate.store.address import TRIED, Storage, is_remote, normalise
from catalog_migrate.store.object_store import require_fit
from catalog_migrate.streams.ddl.migrations import MigratedStreams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.engine.spark.object_stores.commit_safety import LogStoreInUse


def bootstrap(
    spark: Any,
    *,
    release: str | os.PathLike[str] | Release,
    catalog: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **arguments: Unpack[BootstrapArguments],
) -> BootstrapReport:
    """Bring the catalog and this session's names to ``release``; the software's start-up hook.

    ``spark`` is any session with Delta configured, ``release`` a directory of ``*.sql``, a manifest
    file or a loaded Release, ``catalog`` the durable catalog's directory, ``warehouse`` the
    directory of the shards (default: ``<catalog>/warehouse``; remembered by the catalog). Both may
    be on an object store (``s3://…``) whose options ``storage_options`` are handed to delta-rs and
    shown nowhere; the session reads the shards by its own settings. ``untried_stores`` are schemes
    of stores that were not tried (``gs``, ``abfss``) and may have the shards all the same.
    Where the session's commits to an object store write over those of others, the start is refused;
    with ``require_safe_commits`` False ``on_progress`` hears of it. ``safe_log_stores`` are classes
    of LogStores that are taken for safe without a race that shows it.
    ``approve`` takes ``schema.table[.column]`` entries; ``plan`` an approved plan (or its file):
    anything else is refused. ``policy`` holds rules about risks (those of the configuration:
    ``catalog_migrate.config.load().policy``).
    ``populate(spark, table_name, target_path)`` fills derived tables;
    ``timeout`` bounds in seconds how long another holder of the lease is waited for (default 600).
    ``on_progress`` hears of each step, and of a copy every two seconds, then from another thread.
    ``session`` puts on record that this process lives with the names from now on, so that no
    column is renamed or dropped under it; without it that must not matter, as in a command.
    ``users`` says which users' views and functions are looked at when something changes (default:
    those of every schema of the session's catalog). ``reason`` is kept in the history with what is
    committed.

    Raises MigrationBlocked (with the plan), StalePlan, LeaseHeld, PrepareFailed, NotReconciled,
    InvalidRelease, UnsuitableSession, UnsafeCommits; whatever is raised, running it again is safe.
    """
    from catalog_migrate.release.loader import load_release

    options = read_arguments(BootstrapOptions(session=True), plan, **arguments)
    loaded = release if isinstance(release, Release) else load_release(
        os.fspath(release), policy=options.policy
    )
    log = open_log(catalog, Storage(storage_options))
    return bring_in(spark, log, ReleaseToApply(loaded), options)


def bring_in(
    spark: Any, log: CatalogLog, part: ReleaseToApply, options: BootstrapOptions
) -> BootstrapReport:
    """Do :func:`bootstrap` or :func:`rollback` of ``part``."""
    state = _state(log)
    warehouse = options.warehouse or default_warehouse(log) if state is None else (
        state.setting("warehouse")
    )
    sessions = session_settings(spark, state, warehouse)
    raced = () if options.read_only else _race(spark, log, state, warehouse, options)
    engine = _engine(spark, options.threads)
    if not options.read_only:
        there = state is not None or is_remote(warehouse)
        _require_fit_catalog(engine, warehouse if there else None)
    parts = [part]
    read_at = address_for_spark(log.uri, warehouse) if _has_own_views(log, state) else None
    if part.past is None and read_at is not None:
        parts.append(_own_views(engine, log, read_at))
    options = msgspec.structs.replace(
        options, holder=this_holder(), sessions=sessions,
        populate=None if options.populate is None else partial(options.populate, spark),
    )
    report = start(engine, log, parts, options, clock=SystemClock(), streams=MigratedStreams())
    if report.outcome != "fenced_out":
        for used in raced:
            safe_commits.remember(log, used)
    return report


def _race(
    spark: Any, log: CatalogLog, state: State | None, warehouse: str, options: BootstrapOptions
) -> Sequence[LogStoreInUse]:
    """Require commits that write over no other's; return what was raced for it now."""
    if state is None and is_remote(warehouse):
        require_fit(warehouse, log.storage)  # the race needs what a catalog needs
    on_progress = options.on_progress or silent
    return safe_commits.require_safe_rows(
        spark, warehouse, state, storage=log.storage, options=options,
        on_note=lambda said: on_progress(Progress("commits", 0, 0, said)),
    )


def _has_own_views(log: CatalogLog, state: State | None) -> bool:
    """Whether a start keeps our own views; on S3 they come when they are first asked for."""
    return not is_remote(log.uri) or (
        state is not None and state.release_in_force("system") is not None
    )


def rollback(
    spark: Any,
    *,
    catalog: str | os.PathLike[str],
    to: int | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **arguments: Unpack[BootstrapArguments],
) -> BootstrapReport:
    """Bring back what the catalog had at serial ``to`` (default: before the newest migration).

    ``plan`` is an approved plan of :meth:`~catalog_migrate.api.Catalog.plan_rollback`: anything
    else is refused, and its serial counts. The other arguments are those of :func:`bootstrap`,
    which also says what is raised; ``session`` is off where it is not given. Running it again,
    after whatever, is safe.
    """
    options = read_arguments(BootstrapOptions(), plan, **arguments)
    log = open_log(catalog, Storage(storage_options))
    return bring_in(spark, log, *going_back_to(log, to, options))


def _engine(spark: Any, threads: int) -> Engine:
    from catalog_migrate.engine.spark.engine import SparkEngine

    return SparkEngine(spark, threads=threads)


def _require_fit_catalog(engine: Any, warehouse: str | None) -> None:
    """CatalogUnfit where names would go to a catalog beside Spark's own that cannot have them.

    ``warehouse`` is None where there is none yet.
    """
    from catalog_migrate.engine.spark.registrations import SESSION_CATALOG

    if engine.catalog != SESSION_CATALOG:
        from catalog_migrate.engine.spark.engine import require_fit_catalog

        require_fit_catalog(engine, warehouse)


def _state(log: CatalogLog) -> State | None:
    try:
        return read_state(log)
    except CatalogNotFound:
        return None


def session_settings(spark: Any, state: State | None, warehouse: str) -> SessionSettings:
    """ANSI mode and time zone: the catalog's, set on the session; a new catalog takes these over.

    A view keeps both from its creation, so they must be right before any DDL.
    UnsuitableSession for a session that cannot read the ``warehouse``.
    """
    if is_remote(warehouse):
        from catalog_migrate.engine.spark.engine import check_scheme

        check_scheme(spark, warehouse)
    if state is None:
        return SessionSettings(
            spark.conf.get("spark.sql.ansi.enabled", "true") == "true",
            spark.conf.get("spark.sql.session.timeZone", "UTC"),
        )
    sessions = SessionSettings(state.setting("ansi") == "true", state.setting("time_zone"))
    spark.conf.set("spark.sql.ansi.enabled", str(sessions.ansi).lower())
    spark.conf.set("spark.sql.session.timeZone", sessions.time_zone)
    return sessions


def cluster_logs(log: CatalogLog) -> tuple[str, ...]:
    """Directories of the clusters' logs that are there, for the views that read them."""
    if not log.exists():
        return ()
    state = read_state(log)
    warehouse = state.setting("warehouse")
    paths = (shard_location(warehouse, shard) for shard in state.shards_of_kind("log"))
    return tuple(path for path in paths if has_log(path))


def system_schema(engine: Engine, log: CatalogLog, catalog_uri: str) -> str:
    """Where our own views are: as committed, else the first place that others leave free.

    Two installations on one metastore, or in one session, have one each. Asks Spark only before
    the first start there.
    """
    from catalog_migrate.migrations.actions import is_ours, own_views_place
    from catalog_migrate.release.builtin import schemas_of_views

    state = read_state(log) if log.exists() else None
    committed = None if state is None else own_views_place(state)
    if committed is not None:
        return committed

    def is_free(schema: str) -> bool:
        return all(
            state is not None and is_ours(state, state.setting("warehouse"), each)
            for each in engine.observe(schema)
        )

    return next(filter(is_free, schemas_of_views(catalog_uri)))


def make_own_views(
    spark: Any, log: CatalogLog, *, wait: float = 60.0, threads: int = 4
) -> bool:
    """Bring our own views (the schema ``catalog_migrate``) in where no release was brought in.

    A start with a release brings them in where the catalog is in a directory; on S3, where Spark
    takes seconds for them, they come when they are asked for, and starts keep them from then on.
    This session's names come in line. Returns whether anything was committed. Nothing is done for a
    catalog that Spark does not read (:func:`address_for_spark`). ``wait`` is how many seconds
    another holder of the migration lease is waited for. Raises LeaseHeld, and what a start raises.
    """
    state = read_state(log)
    read_at = address_for_spark(log.uri, state.setting("warehouse"))
    started = not is_remote(log.uri) and state.release_in_force("release") is not None
    if read_at is None or started:
        return False
    session_settings(spark, state, state.setting("warehouse"))
    engine = _engine(spark, threads)
    part = _own_views(engine, log, read_at)
    in_force = state.release_in_force("system")
    if in_force is not None and (in_force.name != part.release.name or part.is_in_force(state)):
        return False  # they are there, or those of another version of this tool are
    options = BootstrapOptions(threads=threads, holder=this_holder(), timeout=wait)
    start(engine, log, [part], options, clock=SystemClock(), streams=MigratedStreams())
    return True


def address_for_spark(uri: str, warehouse: str) -> str | None:
    """Where our own views read a catalog's log; None where Spark has no way to.

    On an object store that Spark was tried on, if the rows are on it too: by the scheme that they
    have, which every session knows.
    """
    if not is_remote(uri):
        return uri
    schemes = [address.partition("://")[0].lower() for address in (uri, warehouse)]
    if not is_remote(warehouse) or not {*schemes} <= {*TRIED}:
        return None
    return f"{schemes[1]}://{normalise(uri).partition('://')[2]}"


def _own_views(engine: Engine, log: CatalogLog, read_at: str) -> ReleaseToApply:
    """Our own views as they are to be: over this catalog's log and those of its clusters."""
    from catalog_migrate.release.builtin import system_release

    schema = system_schema(engine, log, log.uri)
    return ReleaseToApply(system_release(read_at, cluster_logs(log), schema), "system")


__all__ = [
    "BootstrapReport", "Outcome", "Policy", "bootstrap", "make_own_views", "rollback",
]
