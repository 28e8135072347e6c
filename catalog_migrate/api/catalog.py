"""One opened catalog for programs: plan, apply, execute statements, look, repair."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from catalog_migrate.api.status import Status, describe_object, status_of, unknown_object
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogExported, CatalogMigrateError, CatalogMoved, UsageError
from catalog_migrate.migrations.options import BootstrapOptions, read_arguments
from catalog_migrate.model.names import parse_reference
from catalog_migrate.store.address import Storage, is_remote, rows_address

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from catalog_migrate.catalog.history import Entry, ObjectEntry
    from catalog_migrate.delta.shard_logs import ShardLogs
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.migrations.actions import Drift
    from catalog_migrate.migrations.execution_context import ExecutionContext, Journal
    from catalog_migrate.migrations.options import BootstrapArguments
    from catalog_migrate.migrations.plan import PlanningInputs
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.progress import OnProgress
    from catalog_migrate.operations.steps import Step
    from catalog_migrate.planner.missing_data import MissingData
    from catalog_migrate.planner.plan import Migration, Plan
    from catalog_migrate.release.release import Release
    from catalog_migrate.sql.parser import Parsed
    from catalog_migrate.streams.ddl.execute import Result
    from catalog_migrate.streams.positions.client import Confirm, UnsafeClient
    from catalog_migrate.streams.runtime.runtime import Runtime, RuntimeOptions

Mode = Literal["read-only", "write"]

_DEFAULTS = BootstrapOptions()


class Catalog:
    """One durable catalog; every call reads its newest state.

    ``mode`` "read-only" (the default) makes every writing call an error; nothing is ever written
    by opening.
    """

    def __init__(self, log: CatalogLog, mode: Mode = "read-only") -> None:
        self.log = log
        self.mode = mode

    @classmethod
    def open(
        cls, uri: str | os.PathLike[str], mode: Mode = "read-only",
        storage_options: Mapping[str, str] | None = None,
    ) -> Catalog:
        """Open the catalog at ``uri``; CatalogNotFound, NotACatalog or UnsupportedFormat if not.

        ``storage_options`` are those of an object store, for delta-rs; no message has them.
        """
        catalog = cls(open_log(uri, Storage(storage_options)), mode)
        catalog.state()
        return catalog

    @classmethod
    def create(
        cls, uri: str | os.PathLike[str], warehouse: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None, untried_stores: Collection[str] = (),
    ) -> Catalog:
        """An empty catalog at ``uri``, for connections, sources and sinks alone; open for writing.

        A release needs none made beforehand: its first start makes it, or takes this one.
        ``warehouse`` is the directory of all rows, or their address on an object store (default:
        beside a catalog on files); ``untried_stores`` as in
        :func:`~catalog_migrate.hook.bootstrap`. CommitConflict when there is one already,
        CatalogLost where rows of one that is gone lie, StoreFailure where the store is silent.
        """
        from catalog_migrate.catalog.marks import refuse_lost
        from catalog_migrate.catalog.opening import create_catalog, default_warehouse

        log = open_log(uri, Storage(storage_options))
        rows = (
            default_warehouse(log) if warehouse is None
            else rows_address(os.fspath(warehouse), untried_stores)
        )
        if not log.exists():
            refuse_lost(log, rows)
        create_catalog(log, warehouse=rows)
        return cls.open(uri, "write", storage_options)

    def state(self, serial: int | None = None) -> State:
        """Return the newest committed state, or the one that the catalog last had at ``serial``.

        UnknownSerial for a serial that it never had.
        """
        if serial is None:
            return read_state(self.log)
        from catalog_migrate.catalog.history import state_at

        return state_at(self.log, serial)

    def history(self, *, everything: bool = False) -> Iterator[Entry]:
        """Who changed what, newest first, read from the commits themselves as it is asked for.

        Commits that only prepare, tidy or book are left out unless ``everything`` is wanted.
        CatalogCorrupt names the file where the history is not whole.
        """
        from catalog_migrate.catalog.history import entries

        return (entry for entry in entries(self.log) if everything or not entry.is_routine)

    def object_history(self, name: str) -> Iterator[ObjectEntry]:
        """What happened to the object that stands, or stood last, under a name; newest first.

        UnknownObject for a name that nothing ever had.
        """
        from catalog_migrate.catalog.history import object_history

        found = object_history(self.log, identity_text(parse_reference(name)))
        first = next(found, None)
        if first is None:
            raise unknown_object(self.state(), name)
        return chain((first,), found)

    # -- planning ------------------------------------------------------------------------------

    def plan(
        self, release: Release | str | os.PathLike[str],
        **arguments: Unpack[BootstrapArguments],
    ) -> Plan:
        """What :meth:`apply` would do with these arguments; writes nothing and needs no Spark."""
        return self.migration(release, read_arguments(_DEFAULTS, **arguments)).plan

    def migration(
        self, release: Release | str | os.PathLike[str], options: BootstrapOptions = _DEFAULTS, *,
        views: bool = True,
    ) -> Migration:
        """:meth:`plan` with everything that applying (or binding) it needs.

        ``views`` False: the queries of views are not parsed here, because Spark is to bind them.
        """
        from catalog_migrate.migrations.plan import ReleaseToApply, plan_release
        from catalog_migrate.planner.plan_validation import with_bodies
        from catalog_migrate.planner.policy_evaluation import with_fence
        from catalog_migrate.release.loader import load_release
        from catalog_migrate.release.release import Release

        state = self.state()
        loaded = release if isinstance(release, Release) else load_release(
            release, policy=options.policy
        )
        migration = plan_release(
            ReleaseToApply(loaded), state, self._planning_inputs(state, options), options
        )
        return with_fence(
            with_bodies(migration, loaded, views=views), state, loaded, options.policy
        )

    def plan_in_force(self, manifest_hash: str) -> Plan | None:
        """The empty plan when the manifest of this hash is in force already, else None.

        Spares reading the manifest's objects, which is most of what a plan without changes costs.
        """
        from catalog_migrate.planner.assembly import in_force
        from catalog_migrate.planner.plan_validation import with_missing_data

        state = self.state()
        standing = state.release_in_force()
        if standing is None:
            return None
        known = in_force(state, standing.name, manifest_hash, uri=self.log.uri)
        return None if known is None else with_missing_data(known, self.gone(state)).plan

    def gone(self, state: State) -> tuple[MissingData, ...]:
        """Tables whose rows are gone, as far as that can be told from here.

        The rows of a catalog on an object store may lie on disks of other machines, those of a copy
        or of what was exported are somebody else's.
        """
        from catalog_migrate.planner.missing_data import missing_data

        return missing_data(state, self._shard_logs(state).find_shard_problem)

    def _planning_inputs(self, state: State, options: BootstrapOptions) -> PlanningInputs:
        """What planning sees from here, without Spark; UsageError as a start says it."""
        from catalog_migrate.catalog.opening import require_warehouse
        from catalog_migrate.migrations.plan import PlanningInputs

        require_warehouse(state, options.warehouse)
        return PlanningInputs(self.log, self._shard_logs(state))

    def _shard_logs(self, state: State) -> ShardLogs:
        from catalog_migrate.catalog.opening import require_in_use
        from catalog_migrate.delta.shard_logs import ShardLogs

        in_sight = True
        try:
            require_in_use(state, self.log)
        except (CatalogExported, CatalogMoved):
            in_sight = False
        return ShardLogs(in_sight=in_sight, disks=not is_remote(self.log.uri))

    def bind(
        self, migration: Migration, engine: Engine, options: BootstrapOptions = _DEFAULTS
    ) -> Plan:
        """The plan with all that ``engine`` can prove: texts, and rows that are copied.

        And with what becomes of users' views and functions that read what changes; what breaks
        waits for one of ``options.approve`` unless a rule of the policy says otherwise. Writes
        nothing.
        """
        from catalog_migrate.migrations.look_at_rows import look_at_rows
        from catalog_migrate.migrations.prepare import with_validation
        from catalog_migrate.planner.user_objects import with_users
        from catalog_migrate.users.examination import examine

        state = self.state()
        work = self._work(state, engine)
        bound = look_at_rows(work, state, with_validation(work, state, migration))
        if bound.plan.is_empty:
            return bound.plan
        found = examine(engine, state, bound, options.users).users
        return with_users(
            bound, found, options.approve, options.policy, asks=True,
            repairs=options.users.repair and engine.persistent_names,
        ).plan

    def apply(
        self,
        plan: Plan | str | os.PathLike[str] | None = None,
        *,
        spark: Any,
        release: Release | str | os.PathLike[str],
        **arguments: Unpack[BootstrapArguments],
    ) -> BootstrapReport:
        """Bring ``release`` in force, exactly as ``plan`` says when one is given.

        All other arguments are those of :func:`~catalog_migrate.hook.bootstrap`.
        """
        self._writing("apply")
        from catalog_migrate.hook import bootstrap

        return bootstrap(
            spark, release=release, catalog=self.log.uri, plan=plan,
            storage_options=self.log.storage.options(), **arguments,
        )

    def plan_rollback(
        self, to: int | None = None, **arguments: Unpack[BootstrapArguments]
    ) -> Plan:
        """Return what :meth:`rollback` would do; writes nothing and needs no Spark.

        ``to`` None stands for the serial before the newest migration. Raises UnknownSerial, and
        UsageError where there is nothing to go back to.
        """
        return self.rollback_migration(to, read_arguments(_DEFAULTS, **arguments)).plan

    def rollback_migration(
        self, to: int | None = None, options: BootstrapOptions = _DEFAULTS
    ) -> Migration:
        """:meth:`plan_rollback` with everything that carrying it out (or binding it) needs."""
        from catalog_migrate.migrations.plan import going_back_to, plan_release

        state = self.state()
        earlier, options = going_back_to(self.log, to, options)
        return plan_release(earlier, state, self._planning_inputs(state, options), options)

    def rollback(
        self,
        *,
        spark: Any,
        to: int | None = None,
        plan: Plan | str | os.PathLike[str] | None = None,
        **arguments: Unpack[BootstrapArguments],
    ) -> BootstrapReport:
        """Go back to serial ``to``, exactly as ``plan`` says when one is given.

        All other arguments are those of :func:`~catalog_migrate.hook.rollback`.
        """
        self._writing("rollback")
        from catalog_migrate.hook import rollback

        return rollback(
            spark, catalog=self.log.uri, to=to, plan=plan,
            storage_options=self.log.storage.options(), **arguments,
        )

    # -- connections, sources, sinks -----------------------------------------------------------

    def execute(
        self,
        sql: str | Sequence[Parsed],
        *,
        on_result: Callable[[Result], None] | None = None,
        on_progress: Callable[[str], None] | None = None,
        limit: float | None = None,
        confirm: Confirm | None = None,
    ) -> list[Result]:
        """Execute statements of docs/statements.md, each its own commit; needs no Spark.

        ``sql`` is their text, or what :func:`~catalog_migrate.sql.parser.parse` made of one.

        An ALTER under running queries is carried out by their cluster's runtime, this call waits
        for it. ``limit`` is how many seconds restarted queries have to become healthy before they
        are rolled back. ``confirm`` is shown the plan of an unsafe operation and says whether it is
        meant; without it none is begun. The whole text is parsed first; the first error ends it.
        Raises SyntaxProblem, InvalidOptions, UnknownItem, RefusedStatement, ValidationFailed,
        CommitConflict (SQLSTATE 40001), AlterRolledBack, AlterFailed, AlterUnfinished.
        """
        from catalog_migrate.sql.parser import parse
        from catalog_migrate.streams.catalog.tables import ShardMaker
        from catalog_migrate.streams.ddl.execute import Executor
        from catalog_migrate.streams.ddl.plans import writes

        statements = parse(sql) if isinstance(sql, str) else sql
        if any(writes(parsed.statement) for parsed in statements):
            self._writing("this statement")
        executor = Executor(self.log, ShardMaker.local().ensure)
        if on_progress is not None:
            executor.on_progress = on_progress
        if limit is not None:
            executor.limit = limit
        if confirm is not None:
            executor.confirm = confirm
        before = self.log.version()
        results = executor.run(statements, on_result)
        if self.log.version() != before:
            with suppress(CatalogMigrateError):  # what is refused is left to the next start
                self.log.keep_audit()
                self.log.keep_state()
        return results

    def unsafe(self, *, on_progress: Callable[[str], None] | None = None) -> UnsafeClient:
        """Asks for unsafe operations: dry runs, requests, undo (docs/statements.md)."""
        from catalog_migrate.streams.catalog.tables import ShardMaker
        from catalog_migrate.streams.ddl.execute import Executor

        executor = Executor(self.log, ShardMaker.local().ensure)
        if on_progress is not None:
            executor.on_progress = on_progress
        return executor.unsafe

    def acknowledge(self, operation: str, *, who: str, at: str) -> bool:
        """Note that somebody has seen an unsafe operation; False when somebody had."""
        self._writing("acknowledge")
        from catalog_migrate.catalog.commits import Commit, commit_onto
        from catalog_migrate.streams.positions.audit import Acknowledge

        note = Acknowledge(operation, f"{who} {at}".strip())
        before, after = commit_onto(self.log, Commit("acknowledge", (note,)))
        return after is not before

    def runtime(
        self,
        spark: Any,
        cluster: str = "main",
        *,
        options: RuntimeOptions | None = None,
        on_event: Callable[[str], None] | None = None,
        start: BootstrapOptions = _DEFAULTS,
    ) -> Runtime:
        """The runtime of a cluster in the caller's session: ``run()`` it, or ``start()`` it in a
        thread and ``close()`` it in the end.

        On an object store the session's commits are looked at first as by a ``start`` with these
        options: UnsafeCommits, UnsuitableSession, StoreFailure.
        """
        self._writing("running a cluster")
        from catalog_migrate.engine.spark.connect import is_connect, unsuitable
        from catalog_migrate.engine.spark.engine import SparkEngine
        from catalog_migrate.migrations import safe_commits
        from catalog_migrate.streams.catalog.tables import ShardMaker
        from catalog_migrate.streams.runtime.runtime import Runtime
        from catalog_migrate.streams.spark.engine import SparkQueries

        if is_connect(spark):
            raise unsuitable("the runtime of streams", "this one is a client's of Spark Connect")
        state = self.state()
        warehouse = state.setting("warehouse")
        for used in safe_commits.require_safe_rows(
            spark, warehouse, state, storage=self.log.storage, options=start, on_note=on_event
        ):
            safe_commits.remember(self.log, used)
        engine = SparkEngine(spark, threads=start.threads)
        queries = SparkQueries(
            spark, warehouse, say=on_event,
            show_values=options is not None and options.show_values,
        )
        runtime = Runtime(
            self.log, cluster, queries,
            ensure_shards=ShardMaker.local(spark).ensure,
            reconcile=lambda state: self._bring_in_line(engine, state), options=options,
            on_event=on_event,
        )
        queries.alive = runtime.require_alive
        return runtime

    def _bring_in_line(self, engine: Engine, state: State) -> None:
        """What a runtime does for the names of its session after each change of the catalog."""
        from catalog_migrate.catalog.lease import acquire
        from catalog_migrate.migrations.reconcile import finish_shared, reconcile_names

        work = self._work(state, engine)
        if not engine.persistent_names:
            reconcile_names(work, state)
        if not (engine.persistent_names or state.tombstones):
            return
        lease = acquire(self.log, holder=this_holder(), wait=1.0, clock=work.clock)
        with lease.keep():
            work = work.at(state, lease)
            newest = finish_shared(work, lease.read_state())
            if engine.persistent_names:
                reconcile_names(work, newest)

    # -- looking -------------------------------------------------------------------------------

    def status(self, serial: int | None = None) -> Status:
        """What is in force and what is pending, now or when ``serial`` was; needs no Spark."""
        state = self.state(serial)
        return status_of(state, gone=self.gone(state) if serial is None else ())

    def show(self, name: str, serial: int | None = None) -> dict[str, Any]:
        """One object: ids, fingerprint, columns, what it depends on, where its rows are.

        ``serial`` asks for what it was then. ``name`` is ``schema.name`` or ``kind:schema.name``;
        UnknownObject with the nearest names.
        """
        return describe_object(self.state(serial), name)

    def graph(self, *, system: bool = True) -> DependencyGraph:
        """Return what uses what, in force now; our own built-ins too unless ``system`` is False."""
        return self.state().select_graph(system=system)

    def drift(self, engine: Engine) -> tuple[Drift, ...]:
        """Where the names in Spark's catalog are not what is committed."""
        return self.compare_names(engine)[0]

    def compare_names(self, engine: Engine) -> tuple[tuple[Drift, ...], tuple[Step, ...]]:
        """Return where names in Spark's catalog are not as committed, and what repairs them."""
        from catalog_migrate.migrations.reconcile import compare

        state = self.state()
        work = self._work(state, engine)
        found, operations = compare(work, state)
        return found.drift, tuple(each.step for each in operations)

    def repair(
        self, engine: Engine, *, timeout: float = 60.0, on_progress: OnProgress | None = None,
        journal: Journal | None = None,
    ) -> int:
        """Repair the drift; returns the number of steps. Names that are not ours are left alone.

        ``journal`` takes the steps there were and those that were executed.
        """
        self._writing("drift --repair")
        from catalog_migrate.catalog.lease import acquire
        from catalog_migrate.catalog.opening import require_in_use
        from catalog_migrate.migrations.reconcile import reconcile_names

        state = self.state()
        require_in_use(state, self.log)  # names would lead to rows of somebody else
        work = self._work(state, engine, on_progress)
        work = work if journal is None else dataclasses.replace(work, journal=journal)
        if not engine.persistent_names:
            return reconcile_names(work, state, keep_foreign_names=True)
        lease = acquire(self.log, holder=this_holder(), wait=timeout, clock=work.clock)
        with lease.keep():
            newest = lease.read_state()
            return reconcile_names(work.at(state, lease), newest, keep_foreign_names=True)

    def unlock(self, holder: str) -> bool:
        """Take the migration lease away from ``holder``, which is surely dead.

        False when nobody held it; LeaseHeld when another holds it.
        """
        self._writing("unlock")
        from catalog_migrate.catalog.lease import unlock

        lease = self.state().leases.get("migration")
        unlock(self.log, holder)
        return lease is not None and bool(lease.holder)

    def forget_sessions(
        self, sessions: Collection[str] = (), *, before: int | None = None
    ) -> tuple[str, ...]:
        """Forget sessions that are surely gone: these, and all of a serial older than ``before``.

        Returns the ids; an unknown one is an error.
        """
        self._writing("unlock --session")
        from catalog_migrate.catalog.sessions import remove_sessions

        return tuple(remove_sessions(self.log, sessions, before=before))

    def make_own_views(self, spark: Any, *, timeout: float = 60.0, threads: int = 4) -> bool:
        """The views of the schema ``catalog_migrate`` in ``spark``, where no release was applied.

        A start with a release brings them in by itself, but for a catalog on S3. Returns whether
        they were made just now.
        """
        self._writing("making our own views")
        from catalog_migrate.hook import make_own_views

        return make_own_views(spark, self.log, wait=timeout, threads=threads)

    def _work(
        self, state: State, engine: Engine, on_progress: OnProgress | None = None
    ) -> ExecutionContext:
        from catalog_migrate.catalog.clock import SystemClock
        from catalog_migrate.migrations.execution_context import ExecutionContext
        from catalog_migrate.model.progress import silent
        from catalog_migrate.streams.ddl.migrations import MigratedStreams

        return ExecutionContext(
            engine, self.log, SystemClock(), state.setting("warehouse"), MigratedStreams(),
            on_progress=on_progress or silent,
        )

    def _writing(self, verb: str) -> None:
        if self.mode != "write":
            raise UsageError(
                f"the catalog was opened read-only, and {verb} writes",
                remedy='open it with mode="write"',
            )
