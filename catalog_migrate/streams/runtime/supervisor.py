"""Keeps the queries of one cluster as the catalog says: starts, stops, restarts, follows.

Level-triggered: every round compares what should run with what runs. Only the holder of the
cluster's lease has a supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.commits import Commit, Committed, commit_onto
from catalog_migrate.catalog.lease import Lease
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Swap
from catalog_migrate.connectors import row_values
from catalog_migrate.connectors.postgres.survey import Survey, survey_from
from catalog_migrate.connectors.postgres.types import DiscoveredTable
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    ChangesMissing,
    CheckpointCorrupt,
    ConnectorMissing,
    EngineFailure,
    PositionLost,
    RefusedStatement,
    TableChanged,
    UpstreamChanged,
)
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.streams.catalog import dependencies, failures, surveys
from catalog_migrate.streams.catalog.cluster_log import (
    FAILURE,
    OF_QUERIES,
    UPSTREAM,
    QueryStatus,
    hold_text,
    list_holds,
    summarize_error,
    utc_now,
)
from catalog_migrate.streams.catalog.failures import HOLD_AFTER, Failure
from catalog_migrate.streams.catalog.queries import (
    PreparedQuery,
    QueryEngine,
    QueryFailure,
    QueryProgress,
    RunningQuery,
    is_late_worker,
)
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.catalog.tables import note_columns
from catalog_migrate.streams.catalog.updates import (
    Hold,
    RecordHoldSurvey,
    RecordUpstream,
    TakeOverColumns,
)
from catalog_migrate.streams.catalog.upstream_tables import (
    FINAL,
    UpstreamColumns,
    hold_of,
    is_taken_over,
    upstream_columns,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.guards import check_start, claim, clear_torn_start
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.runtime import shard_handover
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.shard_handover import apply_committed
from catalog_migrate.streams.runtime.starts import WORKERS, Starts
from catalog_migrate.streams.upstreams.table_snapshots import forget_uncopied, tables_to_copy
from catalog_migrate.streams.upstreams.upstream import (
    Upstream,
    begin_at_offsets,
    expired_positions,
    find_awaited_input,
    input_known,
    require_ended_transactions,
    require_ledger,
    require_same_cluster_and_topics,
    require_there,
)

LONGEST_BACK_OFF = 60.0
"""Seconds between two starts of a query that keeps failing, at most."""

STOPS = 32
"""Queries that are stopped at once, at most; mostly they wait for the end of a batch."""

Known = Callable[[], Mapping[str, Upstream]]
"""Waits for and gives the upstreams of queries that start together, by item id."""

Starting = Callable[[Callable[[], RunningQuery]], RunningQuery]
"""Carries the start of a query out; (what starts it)."""

FOLLOW = 1.0
"""Seconds between two looks at whether a sink has drained a retired shard."""

EnsureShards = Callable[[State, str], None]
"""Makes sure that a query's shards are there and as it needs them; (state, item id)."""


@dataclass(slots=True)
class Managed:
    """One query under supervision; ``next_try`` and ``next_drain_check`` are moments of the clock.

    ``next_drain_check`` is when it is looked at again whether a sink has drained its table's old
    shard. ``causes`` counts what it failed of since it last worked. ``progress`` is the newest one
    that was seen of its present start, ``batch_at`` when its newest batch began, which may be of an
    earlier start. ``open_records`` are those behind the last stable offset, at the last
    look upstream.
    """

    item_id: str
    query: RunningQuery | None = None
    fingerprint: str = ""
    starting: Future[RunningQuery] | None = None
    failures: int = 0
    restarts: int = 0
    next_try: float = 0.0
    failure: Failure | None = None
    causes: dict[str, int] = field(default_factory=dict)
    next_drain_check: float = 0.0
    kind: QueryKind = "source"
    shown: str = ""
    last_reported_error: str | None = None
    open_records: int = 0
    progress: QueryProgress | None = None
    batch_at: str | None = None

    def see(self) -> QueryProgress | None:
        """Return the newest progress of its present start, which is kept for those who look."""
        self.progress = self.query.progress() if self.query is not None else None
        if self.progress is not None and self.progress.batch_at is not None:
            self.batch_at = self.progress.batch_at
        return self.progress

    @property
    def active(self) -> bool:
        """Whether it runs, as far as Spark knows."""
        return self.query is not None and self.query.active

    @property
    def name(self) -> str:
        """Its kind and the name that it is shown under, "" before it was started."""
        return f"{self.kind} {self.shown}" if self.shown else ""

    @property
    def error(self) -> str | None:
        """The text of its last failure, until it works again."""
        return None if self.failure is None else self.failure.message

    def forget_failures(self) -> None:
        """Count from nothing, and wait for nothing: it works, or what it failed of may be repaired.
        """
        self.failures, self.failure, self.next_try = 0, None, 0.0
        self.causes.clear()

    @property
    def waits_for_its_turn(self) -> bool:
        """Whether its start waits for others to have started."""
        return self.starting is not None and not (self.starting.running() or self.starting.done())


@dataclass(slots=True)
class Supervisor:
    """The queries of one cluster; methods are called from one thread only.

    ``drain`` is the seconds that a batch may take to end when its query is stopped. ``say`` hears
    of failures, recoveries and holds. ``hold_after`` is how often a query fails of the same cause
    before it is held, ``starts_at_once`` how many queries start at once, ``show_values`` whether
    errors may quote rows.
    """

    log: CatalogLog
    lease: Lease
    engine: QueryEngine
    clock: Clock
    cluster: str
    ensure_shards: EnsureShards
    ports: Ports = field(default_factory=Ports)
    drain: float = 30.0
    threads: int = 4
    say: Callable[[str], None] = lambda _: None
    upstream_columns: UpstreamColumns = "evolve"
    hold_after: int = HOLD_AFTER
    show_values: bool = False
    managed: dict[str, Managed] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    prepared: dict[str, tuple[QuerySpec, PreparedQuery]] = field(default_factory=dict)
    starts_at_once: int = WORKERS
    _wanted: dependencies.WantedQueries | None = None
    _starts: Starts = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._starts = Starts(
            self.starts_at_once, self.clock,
            partial(self.ports.threads.pool, WORKERS, "start"), self._outcome,
        )

    def spec(
        self, state: State, item_id: str, stream: StreamRecord | None = None
    ) -> QuerySpec:
        """Return an item's :func:`~catalog_migrate.streams.catalog.query_spec.spec_of`."""
        return spec_of(
            state, item_id, resolve=self.ports.resolve, stream=stream,
            upstream_columns=self.upstream_columns,
        )

    def checkpoint(self, state: State, item_id: str) -> Checkpoint:
        """Return the checkpoint of a query, which need not be there yet."""
        stream = state.streams.get(item_id) or first_stream(item_id)
        return self.ports.checkpoint(dependencies.location(state, stream.checkpoint))

    # -- rounds --------------------------------------------------------------------------------

    def round(self, state: State) -> bool:
        """Compare and act once; whether anything was started, stopped or found dead.

        Items in ``pinned`` are left alone: an operation is at work on them.
        """
        wanted = self._wants(state)
        for hold in state.holds.values():
            if hold.holder == FAILURE and hold.item_id in self.managed:
                self.managed[hold.item_id].forget_failures()  # the hold has them
        for item_id in self._list_changed(wanted):
            _call_back(self.managed[item_id])
        acted = self.collect()
        stop = [item_id for item_id in self._list_changed(wanted) if self.managed[item_id].active]
        if stop:
            self.stop(stop, state)
            acted = True
        followed = self._follow(state)
        if followed is not None:
            state, acted = followed, True
        for item_id in list(self.managed):
            if item_id not in state.items and self.managed[item_id].starting is None:
                del self.managed[item_id]
        return self._start_wanted(state, wanted) or acted

    def _list_changed(self, wanted: dependencies.WantedQueries) -> list[str]:
        """List the queries that are to run otherwise, or not at all."""
        return [
            item_id for item_id, each in self.managed.items()
            if item_id not in self.pinned and each.fingerprint != wanted.fingerprint(item_id)
        ]

    def _start_wanted(self, state: State, wanted: dependencies.WantedQueries) -> bool:
        """Begin to start what is to run and does not, once its pause is over; whether any was."""
        now, acted = self.clock.monotonic(), False
        for item_id in wanted:
            if item_id in self.pinned:
                continue
            each = self.managed.setdefault(item_id, Managed(item_id))
            idle = each.query is None and each.starting is None and each.next_try <= now
            if idle and input_known(state, item_id):
                self._begin(state, each)
                acted = True
        return acted

    def _wants(self, state: State) -> dependencies.WantedQueries:
        """What a state wants; looked for once, for most rounds find the state of the last one."""
        if self._wanted is None or self._wanted.state is not state:
            mine = [found.item_id for found in dependencies.queries(state, self.cluster)]
            self._wanted = dependencies.WantedQueries(
                state, (item_id for item_id in mine if not list_holds(state, item_id))
            )
        return self._wanted

    def collect(self) -> bool:
        """Take in what started and what died since the last round; start those whose turn it is."""
        self._starts.admit()
        acted = False
        for each in self.managed.values():
            if each.starting is not None and each.starting.done():
                self._start(each)
                acted = True
            query = each.query
            if query is not None and not query.active:
                each.query = None
                self._end(each, query.failure())
                acted = True
            elif query is not None and each.failure is not None and query.progress() is not None:
                each.forget_failures()
            reported = each.last_reported_error is not None
            if reported and each.active and query and query.progress() is not None:
                each.last_reported_error = None
                self.say(f"{each.name} runs again")
        return acted

    def _start(self, each: Managed) -> None:
        assert each.starting is not None
        future, each.starting = each.starting, None
        error = future.exception()
        if error is None:
            each.query = future.result()
            return
        if not isinstance(error, Exception):
            raise error
        if not isinstance(error, CatalogMigrateError):
            self._fail(each, Failure(code=type(error).__name__, message=self._describe(error)))
            return
        failure = failures.of_error(error, each.shown)
        if isinstance(error, UpstreamChanged | ConnectorMissing) and (
            each.item_id not in self.pinned
        ):
            # of a trial it is the new definition that leads elsewhere: it is rolled back
            self.hold(each.item_id, failure)
        else:
            self._upstream_failed(each.item_id, error)
        self._fail(each, failure)

    def _describe(self, error: Exception) -> str:
        """Return the text of an error that is not ours, without values of rows unless they may be
        shown."""
        return str(error) if self.show_values else row_values.of_python(error)

    def _end(self, each: Managed, found: QueryFailure | None) -> None:
        """Take in why a query died: it is tried again, or held for what no waiting changes."""
        if found is None:
            self._fail(each, Failure(code="ENDED", message="it ended by itself"))
            return
        failure = failures.of_query(found, each.kind, each.shown)
        if found.error is not None:
            self._upstream_failed(each.item_id, found.error)
        elif each.kind == "source" and failures.is_lost(failure.message):
            self._records_lost(each.item_id)
        self._fail(each, failure)

    def _records_lost(self, item_id: str) -> None:
        """Hold a source whose position the broker has no records at any more; not in a trial."""
        state = self.lease.read_state()
        if item_id in self.pinned or item_id not in state.items:
            return
        name = dependencies.display(state, item_id)
        try:
            spec = self.spec(state, item_id)
            lost = expired_positions(spec, self.checkpoint(state, item_id), self.ports.upstreams)
        except CatalogMigrateError:
            return  # a broker or a secret that is not there now: the next try meets it again
        found = failures.describe_expired(lost, name)
        if found is not None:
            self.hold(item_id, found)

    def _upstream_failed(self, item_id: str, error: CatalogMigrateError) -> None:
        """Take over what a table upstream has become, or hold the source; not in a trial."""
        if item_id in self.pinned or not isinstance(error, (*FINAL, TableChanged)):
            return
        state = self.lease.read_state()
        if item_id not in state.items:
            return
        name = dependencies.display(state, item_id)
        external = dependencies.external_of(state.items[item_id])
        policy = upstream_columns(external, self.upstream_columns)
        if isinstance(error, TableChanged) and is_taken_over(error, policy):
            try:
                spec = self.spec(state, item_id)
                there = self._table(spec, error.table)
            except CatalogMigrateError:
                return  # a server or a secret that is not there now: the next try meets it again
            copied = tables_to_copy(spec, error, there)
            change = TakeOverColumns(item_id, error, there, copied)
            try:
                self.commit(Commit("evolve", (change,), reason=error.message))
                more = "" if copied is None else "; its table is copied again for old rows"
                self.say(f"source {name}: column change applied: {error.message}{more}")
            except RefusedStatement as refused:
                self.hold(item_id, hold_of(refused, name))
            except CatalogWriteRefused as refused:
                self.say(f"source {name}: column change not applied yet: {refused.message}")
            return
        if isinstance(error, ChangesMissing):
            try:
                if not self._keep_survey(state, item_id, str(error.data.get("fingerprint", ""))):
                    return  # the next try meets all of it
            except CatalogWriteRefused as refused:
                self.say(f"source {name} is not held yet: {refused.message}")
                return
        self.hold(item_id, hold_of(error, name))

    def _keep_survey(self, state: State, item_id: str, fingerprint: str) -> bool:
        """Put down what a source is about to be held for, which counts once it is resumed.

        False where the server does not say that it is what had this ``fingerprint`` (empty: any):
        resuming must accept nothing that the hold does not name.
        """
        found = None
        with suppress(CatalogMigrateError):  # what is not known now is looked up then
            found = self.ports.databases.survey(self.spec(state, item_id))
        if fingerprint and (found is None or found.fingerprint != fingerprint):
            return False
        self.commit(Commit("stream", (RecordHoldSurvey(item_id, found),)))
        return True

    def _table(self, spec: QuerySpec, name: str) -> DiscoveredTable:
        """A table upstream as it is now."""
        table = next(each.upstream for each in spec.tables if each.upstream.full_name == name)
        (found,) = self.ports.databases.tables(
            spec.connection, [table.postgres_name], publication=spec.publication
        )
        return found

    def _fail(self, each: Managed, failure: Failure) -> None:
        """Have it tried again after a pause; what repeats itself too often is held.

        Never a connection that is down, nor in a trial. One whose process of Python came up too
        late gets its turn again without a pause, behind those that wait for theirs.
        """
        each.restarts += 1
        late = is_late_worker(failure.message)
        if late:
            each.failure = failure
            self._starts.slow_down()
        else:
            each.failures += 1
            each.failure = failures.count_try(failure, each.causes)
            pause = min(LONGEST_BACK_OFF, 0.5 * 2 ** min(each.failures - 1, 10))
            each.next_try = self.clock.monotonic() + pause
        short = summarize_error(failure.message)
        if each.last_reported_error != short:  # the same over and over is reported once
            each.last_reported_error = short
            self.say(f"{each.name} failed and is tried again: {short}")
        if (
            each.failure.tries >= self.hold_after and not failure.passing and not late
            and each.item_id not in self.pinned
        ):
            self.hold(each.item_id, each.failure, FAILURE)

    # -- following -----------------------------------------------------------------------------

    def _follow(self, state: State) -> State | None:
        """Move sinks whose table has another shard now; they drain the old one first.

        Returns the newest state when one was moved or tried in vain: what is started next must not
        be started from positions of before.
        """
        newest: State | None = None
        for item_id, each in self.managed.items():
            query = each.query
            if item_id in self.pinned or query is None or each.starting is not None:
                continue
            if item_id not in state.items or not shard_handover.pending(state, item_id):
                continue
            if each.next_drain_check > self.clock.monotonic():
                continue
            each.next_drain_check = self.clock.monotonic() + FOLLOW
            checkpoint = self.checkpoint(state, item_id)
            try:
                if not shard_handover.ready(state, item_id, checkpoint, self.ports.tables):
                    continue
                self.stop_one(item_id)
                shard_handover.step(
                    state, item_id, checkpoint, self.ports.tables, commit=self.commit
                )
                each.forget_failures()
            except PositionLost as error:
                self.hold(item_id, failures.of_error(error, each.shown))
            except CatalogMigrateError as error:
                found = failures.of_error(error, each.shown)
                self._fail(each, msgspec.structs.replace(
                    found, message=f"cannot follow its table: {found.message}"
                ))
            newest = self.lease.read_state()
        return newest

    # -- starting ------------------------------------------------------------------------------

    def prepare(self, state: State, item_ids: Sequence[str]) -> dict[str, CatalogMigrateError]:
        """Make the plans of queries that are about to be started anew, while they still run.

        Returns what was refused, by item id, without any secret in it. A plan is used by the next
        start that would make the very same one; others are dropped by :meth:`forget`.
        """
        refused: dict[str, CatalogMigrateError] = {}

        def one(item_id: str) -> None:
            try:
                spec = self.spec(state, item_id)
                self.prepared[item_id] = spec, self.engine.prepare(spec)
            except CatalogMigrateError as error:
                refused[item_id] = error

        with self.ports.threads.pool(self.threads, "prepare") as pool:
            list(pool.map(one, item_ids))
        return refused

    def forget(self, item_ids: Iterable[str]) -> None:
        """Drop plans that were prepared and not used."""
        for item_id in item_ids:
            self.prepared.pop(item_id, None)

    def _plan(self, spec: QuerySpec) -> tuple[QuerySpec, PreparedQuery]:
        """The plan that was prepared for this very specification, else a new one."""
        known = self.prepared.pop(spec.item_id, None)
        if known is None or known[0] != spec:
            known = spec, self.engine.prepare(spec)
        return known

    def _begin(
        self, state: State, each: Managed, known: Known | None = None,
        by: Starting | None = None, after: Sequence[Future[RunningQuery]] = (),
    ) -> Future[RunningQuery]:
        each.fingerprint = dependencies.fingerprint(state, each.item_id)
        definition = state.items[each.item_id].definition
        each.kind = "source" if definition.kind == "source" else "sink"
        each.shown = str(definition.item_name)
        item_id = each.item_id

        def begin(waited: bool) -> RunningQuery:
            now = self.lease.read_state() if waited else state
            act = partial(self.start_query, now, item_id, known, after)
            return act() if by is None else by(act)

        each.starting = self._starts.submit(item_id, begin)
        return each.starting

    def _outcome(self, item_id: str) -> bool | None:
        """Whether a start that was begun went well; None while it is under way."""
        each = self.managed.get(item_id)
        if each is None or each.query is None:
            return False if each is None or each.starting is None else None
        if not each.query.active:
            return False
        return True if each.query.progress() is not None else None

    def start(
        self, state: State, item_id: str, *, known: Known | None = None,
        by: Starting | None = None, after: Sequence[Future[RunningQuery]] = (),
    ) -> Future[RunningQuery] | None:
        """Begin to start a query now, whatever its back-off; None where it runs or starts already.

        ``known`` gives the upstreams that were just asked about for all that start together. ``by``
        carries the start out. It is made ready at once, and does not go off before those that it
        comes ``after`` have ended.
        """
        each = self.managed.setdefault(item_id, Managed(item_id))
        if each.query is not None or each.starting is not None:
            return None
        each.forget_failures()  # of before what an operation has repaired
        return self._begin(state, each, known, by, after)

    def start_query(
        self, state: State, item_id: str, known: Known | None = None,
        after: Sequence[Future[RunningQuery]] = (),
    ) -> RunningQuery:
        """Everything between a committed definition and a started query; runs in a thread.

        Spark's plan comes first, while the upstream is asked: that is identified and written down
        before the first batch, and compared at every later start. Then the checkpoint's guards, and
        the start, when those that it comes ``after`` have ended.
        """
        self.ensure_shards(state, item_id)
        notes = note_columns(state, item_id)
        if notes:
            self.commit(Commit("evolved", notes))
        stream = state.streams.get(item_id) or first_stream(item_id)
        spec = self.spec(state, item_id, stream)
        redactor = spec.redactor
        try:
            planned, query = self._plan(spec)
            checkpoint = self.ports.checkpoint(spec.checkpoint).remembered()
            query_id, batches = self._look_up(spec, checkpoint)
            asked = known() if known is not None else {}
            found = asked.get(item_id) or self.ports.upstreams.identify(spec)
            stream = self._identify(state, spec, stream, found)
            spec = self.spec(state, item_id, stream)
            item = state.items[item_id]
            # a text that changes when another stream stands in the place of the input
            sources = [item.links.get("reads") or f"{item.definition.kind} {item_id}"]
            clear_torn_start(checkpoint)
            claim(checkpoint, item=item_id, sources=sources)
            if checkpoint.query_id != query_id:
                query_id, batches = self._last_batches(spec, checkpoint)
            apply_committed(checkpoint, item_id, stream)
            if checkpoint.restoring is not None:
                Snapshots(checkpoint).restore(
                    checkpoint.restoring, sinks_latest=batches
                )
            check_start(
                checkpoint, item=item_id, sources=sources, generation=stream.generation,
                sinks=batches,
            )
            stream = self._survey(spec, stream, checkpoint)
            spec = self.spec(state, item_id, stream)
            begin_at_offsets(spec, checkpoint, self.ports.upstreams, self.clock.wall())
            require_ended_transactions(
                spec, checkpoint, found, self.ports.upstreams, self.engine.find_open_transactions
            )
            require_ledger(spec, checkpoint)
            if spec != planned:  # the first start of a sink: its topic ids became known just now
                query = self.engine.prepare(spec)
            for other in after:
                with suppress(CancelledError):
                    other.exception()
            self.lease.ensure()
            return query.start()
        except CatalogMigrateError as error:
            error.message = redactor.scrub(error.message)
            raise
        except Exception as error:  # noqa: BLE001 - a driver's own error may quote its input
            raise EngineFailure(
                redactor.scrub(f"{type(error).__name__}: {self._describe(error)}"),
                condition=type(error).__name__,
            ) from None

    def _look_up(
        self, spec: QuerySpec, checkpoint: Checkpoint
    ) -> tuple[str | None, Mapping[str, int | None]]:
        """:meth:`_last_batches` ahead of time where that asks no server, else nothing."""
        if spec.kind != "source":
            return None, {}
        try:
            return self._last_batches(spec, checkpoint)
        except CheckpointCorrupt:  # perhaps of a start that was cut off, which is cleared later
            return None, {}

    def _last_batches(
        self, spec: QuerySpec, checkpoint: Checkpoint
    ) -> tuple[str | None, Mapping[str, int | None]]:
        """The query that a checkpoint is of, and the last batch of it that each sink has."""
        query_id = checkpoint.query_id
        return query_id, {} if query_id is None else self.engine.last_batch(spec, query_id)

    def _identify(
        self, state: State, spec: QuerySpec, stream: StreamRecord, found: Upstream
    ) -> StreamRecord:
        """The record of positions with its upstream known; committed when it is new."""
        reads = stream.reads
        if spec.kind == "sink" and not reads:
            reads = state.items[state.items[spec.item_id].links["reads"]].shard or ""
        if stream.upstream:
            require_same_cluster_and_topics(spec, stream, found)
        require_there(spec, found)

        note = RecordUpstream(
            spec.item_id, stream, upstream=found.upstream, topics=found.topics, reads=reads
        )
        known = note.on(stream)
        if state.streams.get(spec.item_id) == known:
            return known
        return self.commit(Commit("stream", (note,))).streams.get(spec.item_id) or known

    def _survey(
        self, spec: QuerySpec, stream: StreamRecord, checkpoint: Checkpoint
    ) -> StreamRecord:
        """Look at what the tables of a POSTGRES source depend on, and commit what is new of that.

        Raises ChangesMissing where that was altered so that changes may be missing.
        """
        if not spec.tables:
            return stream
        found = self.ports.databases.look(
            forget_uncopied(spec), surveys.read_planned(checkpoint)
        )
        return self._record_survey(spec, stream, found)

    def refresh_survey(self, state: State, item_id: str) -> None:
        """Record what a running POSTGRES source has found to be well since its start.

        Then the next start has no DDL to judge by that the query has gone past. Asks the server
        only where there was some.
        """
        stream = state.streams.get(item_id)
        if stream is None:
            return
        position = surveys.read_planned(self.checkpoint(state, item_id))
        recorded = survey_from(stream.survey)
        if position is None or recorded is None or position.catalog in ("", recorded.fingerprint):
            return
        spec = self.spec(state, item_id)
        found = self.ports.databases.survey(spec)
        if found.fingerprint == position.catalog:  # else it was altered again: later
            self._record_survey(spec, stream, found)

    def _record_survey(
        self, spec: QuerySpec, stream: StreamRecord, found: Survey
    ) -> StreamRecord:
        known = surveys.with_survey(stream, found)
        if known == stream:
            return stream
        self.commit(Commit("stream", (Swap("stream", spec.item_id, stream, known),)))
        return known

    # -- stopping ------------------------------------------------------------------------------

    def stop(self, item_ids: Sequence[str], state: State | None = None) -> None:
        """Stop queries, sinks before the sources that they read, each wave in parallel."""
        self.await_starts(item_ids)
        waves = [*reversed(dependencies.topological(state, item_ids))] if state else []
        rest = tuple(set(item_ids).difference(*waves))
        for wave in filter(None, (*waves, rest)):
            with self.ports.threads.pool(min(STOPS, len(wave)), "stop") as pool:
                list(pool.map(self.stop_one, wave))

    def await_starts(self, item_ids: Iterable[str]) -> None:
        """Call back starts whose turn has not come, and wait for those under way."""
        for item_id in item_ids:
            each = self.managed.get(item_id)
            if each is not None and not _call_back(each) and each.starting is not None:
                each.starting.exception()
                self._start(each)

    def stop_one(self, item_id: str, limit: float | None = None) -> None:
        """Stop a query that is not about to start; its batch may take ``limit`` seconds to end."""
        each = self.managed.get(item_id)
        if each is None:
            return
        if each.query is not None:
            each.query.stop(self.drain if limit is None else limit)
        each.query, each.failures, each.next_try = None, 0, 0.0

    def close(self, state: State | None = None) -> None:
        """Stop everything."""
        self.stop(list(self.managed), state)
        self._starts.close()

    # -- holds and status ----------------------------------------------------------------------

    def hold(self, item_id: str, failure: Failure, holder: str = UPSTREAM) -> None:
        """Hold a query for what it met; the hold of before gets the new reason.

        Nothing is written where it has that already. RESUME lifts it, and the next start counts
        failures from nothing. Where the catalog's store refuses the write (a full disk) that is
        reported, and the next failure sets the hold.
        """
        since = utc_now(self.clock)
        each = self.managed.get(item_id)
        name = each.name if each is not None and each.name else item_id
        record = failure.to_hold(item_id, holder, since)
        hold = Commit("hold", (Hold(record),), reason=f"{name}: {failure.message}")
        try:
            before, after = self.commit_onto(hold)
        except CatalogWriteRefused as error:
            self.say(f"{name} is not held yet: {error.message}")
            return
        if after is not before:
            text = "; ".join(filter(None, (hold_text(record), record.remedy)))
            self.say(f"{name} is held, {text}")

    @staticmethod
    def _find_hold(state: State, item_id: str) -> Failure | None:
        """What a query is held for that this runtime has not met itself."""
        return next((
            failures.of_hold(hold) for _, hold in sorted(state.holds.items())
            if hold.item_id == item_id and hold.holder in OF_QUERIES
        ), None)

    def statuses(self, state: State) -> list[QueryStatus]:
        """How every query of the cluster is, for the log."""
        found = []
        for each in dependencies.queries(state, self.cluster):
            managed = self.managed.get(each.item_id) or Managed(each.item_id)
            holds = list_holds(state, each.item_id)
            progress = managed.see()
            failure = managed.failure or self._find_hold(state, each.item_id)
            if failure is None and not holds and managed.query is None and managed.starting is None:
                failure = find_awaited_input(state, each.item_id)
            found.append(
                QueryStatus(
                    item_id=each.item_id,
                    name=str(each.item.definition.item_name),
                    kind=each.mapping.kind,
                    state=_state(managed, holds, progress is not None),
                    run_id=managed.query.run_id if managed.query is not None else None,
                    query_id=managed.query.query_id if managed.query is not None else None,
                    batch=progress.batch if progress is not None else None,
                    rows=progress.total_rows if progress is not None else None,
                    lag=_lag(managed, progress),
                    error=failure.message if failure is not None
                    else self.engine.awaited.get(each.item_id),
                    failure=None if failure is None or not failure.code
                    else msgspec.json.encode(failure).decode(),
                    restarts=managed.restarts,
                )
            )
        return found

    def commit(self, wanted: Commit) -> State:
        """Commit under the cluster's lease."""
        return self.commit_onto(wanted).after

    def commit_onto(self, wanted: Commit) -> Committed:
        """:meth:`commit`, also returning the state that it was made on."""
        requirements = (self.lease.held, *wanted.requirements)
        with self._lock:
            return commit_onto(
                self.log, msgspec.structs.replace(wanted, requirements=requirements)
            )


def _call_back(each: Managed) -> bool:
    """Take back the start of a query whose turn has not come; whether it could be."""
    if each.starting is None or not each.starting.cancel():
        return False
    each.starting = None
    return True


def _lag(managed: Managed, progress: QueryProgress | None) -> int | None:
    """Records that are there and not read: also those that wait for the end of a transaction."""
    if progress is None or progress.lag is None:
        return None
    return progress.lag + managed.open_records


def _state(managed: Managed, holds: tuple[str, ...], progressed: bool) -> str:
    if managed.active:
        return "running" if progressed else "starting"
    if holds:
        return "held"
    if managed.starting is not None:
        return "starting"
    return "backing_off" if managed.failures else "stopped"
