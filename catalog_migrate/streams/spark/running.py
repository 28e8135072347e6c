"""A query that was started: its progress, how it failed, and how it is stopped between batches.

Why it died is the chain of causes, from Spark's own message to the innermost one. Between Spark's
``foreachBatch`` and a writer stands a gate: whose batch it is, errors kept, a way to stop.

And the writer of a source with ON ERROR INTO: good rows to its shard, bad ones to their table.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog_migrate.connectors import row_values
from catalog_migrate.connectors.base import Batch, BatchWriter
from catalog_migrate.connectors.postgres.sessions import parse_failure
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.spark_rows import append_once
from catalog_migrate.engine_failures import failing, is_transient, mute
from catalog_migrate.errors import CatalogMigrateError, EngineFailure, ReplicationFailed, RowRefused
from catalog_migrate.streams.catalog.failures import is_passing, place_of
from catalog_migrate.streams.catalog.queries import WRAPPERS, QueryFailure, QueryProgress
from catalog_migrate.streams.checkpoint.directory import Checkpoint, batch_number
from catalog_migrate.streams.spark import decoding
from catalog_migrate.streams.spark.decoding import BAD_RECORD_MARK

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from catalog_migrate.connectors.secrets import Redactor


class BatchGate:
    """The function given to ``foreachBatch``.

    Spark wraps what a Python function raises into text, so the error itself is kept here.
    """

    def __init__(self, writer: BatchWriter, scrubbed: Callable[[BaseException], BaseException]):
        self._writer = writer
        self._scrubbed = scrubbed
        self._lock = threading.Lock()
        self._writing = False
        self._closed = False
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """What the last batch raised, scrubbed; None when it ended well."""
        return self._error

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write one batch of the stream."""
        with self._lock:
            if self._closed:
                raise EngineFailure("the query was stopped", condition="QUERY_STOPPED")
            self._writing = True
            self._error = None
        try:
            # Within foreachBatch the calling thread is the stream's own, and carries its id.
            query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            with mute():
                self._writer.write(Batch(frame, number, str(query_id)))
        except Exception as error:
            self._error = self._scrubbed(error)
            if self._error is error:
                raise
            raise self._error from None
        finally:
            with self._lock:
                self._writing = False

    def close_if_free(self) -> bool:
        """Begin no further batch, unless one is being written; whether it is closed."""
        with self._lock:
            self._closed = self._closed or not self._writing
            return self._closed

    def close(self) -> None:
        """Begin no further batch, and break off the one under way."""
        with self._lock:
            self._closed = True
            writing = self._writing
        if writing:
            self._writer.cancel()


class SortingWriter:
    """Writes both tables under the same (query, batch), so that each skips a batch it has.

    ``decoded`` makes persisted rows and problems of a batch's records; without it they are decoded
    already. Without ``dead_letters`` a bad record fails the batch.
    Both are written even when they get no row: the transaction in a table's log is the proof that
    the batch arrived there.
    """

    def __init__(
        self, spec: QuerySpec, dead_letters: str | None,
        decoded: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self._spec = spec
        self._dead_letters = dead_letters
        self._decoded = decoded or _persisted

    def write(self, batch: Batch) -> None:
        """Decode once, write twice."""
        decoded = self._decoded(batch.frame)
        try:
            if self._dead_letters is None:
                self._require_readable(decoded)
            else:
                self._append(decoding.unreadable(decoded), self._dead_letters, batch)
            self._append(decoding.readable(decoded, self._spec), self._spec.shard, batch)
        finally:
            decoded.unpersist()

    def cancel(self) -> None:
        """Nothing of its own to break off: each write is a Spark job."""

    @staticmethod
    def _require_readable(decoded: DataFrame) -> None:
        """ON ERROR FAIL: EngineFailure that says where the first bad record lies, and why."""
        found = decoding.first_unreadable(decoded)
        if found is not None:
            raise EngineFailure(found)

    @staticmethod
    def _append(rows: DataFrame, path: str, batch: Batch) -> None:
        append_once(rows, path, batch.query_id, batch.number)


def _persisted(frame: DataFrame) -> DataFrame:
    return frame.persist()


BAD_RECORD = "BAD_RECORD"
"""Condition of a query that met a record which does not fit, under ON ERROR FAIL."""

_ADVICE = re.compile(
    r"If you don't want your streaming query to fail on such cases, set the\s+source option"
    r" \W?failOnDataLoss\W? to \W?false\W?\.\s*"
)
_DEPTH = 20
_LONGEST = 1000
_WRAPPER_CLASSES = frozenset({
    "StreamingQueryException", "SparkException", "Py4JException", "Py4JJavaError",
    "RuntimeException", "ExecutionException", "CompletionException", "KafkaException",
    "UndeclaredThrowableException", "ForeachBatchUserFuncException", "ForeachUserFuncException",
})  # fmt: skip


_CONNECTIONS = frozenset({
    "TimeoutException", "DisconnectException", "NetworkException", "ConnectException",
    "SocketException", "SocketTimeoutException", "UnknownHostException", "NoRouteToHostException",
    "ClosedChannelException", "EOFException", "AuthenticationException",
    "SaslAuthenticationException", "SslAuthenticationException", "IllegalSaslStateException",
    "LeaderNotAvailableException", "NotLeaderOrFollowerException", "BrokerNotAvailableException",
    "CoordinatorNotAvailableException", "NotEnoughReplicasException",
    "OAuthBearerLoginException", "LoginException", "SSLHandshakeException", "SSLException",
})  # fmt: skip
"""Classes of what the JVM's clients raise for a connection that is down, refused or changing."""


class Cause(NamedTuple):
    """One exception of a chain, by its class' simple name.

    ``error`` is what a reader of ours put into its text, ``own`` an error of ours as it was raised.
    ``passing`` is whether it may end by itself.
    """

    name: str
    condition: str | None
    message: str
    error: CatalogMigrateError | None = None
    own: CatalogMigrateError | None = None
    passing: bool = False
    place: dict[str, str] = {}  # noqa: RUF012 - never changed

    @property
    def is_wrapper(self) -> bool:
        """Whether it only says that something inside of it failed."""
        if self.condition is not None:
            return self.condition in WRAPPERS or self.condition.startswith("_LEGACY")
        return self.name in _WRAPPER_CLASSES

    def __str__(self) -> str:
        if not self.message:
            return self.name
        known = self.message.startswith((f"[{self.condition}", f"{self.name}:"))
        return self.message if known else f"{self.name}: {self.message}"


def failure_of(
    query: StreamingQuery, batch_error: BaseException | None, redactor: Redactor,
    show_values: bool = False,
) -> QueryFailure | None:
    """Return why a query ended, None when it did not fail.

    ``batch_error`` is what the Python function of ``foreachBatch`` raised: Spark has only its text.
    Without ``show_values`` the values of rows are taken out.
    """
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    if batch_error is not None:
        causes = list(python_causes(batch_error, show_values))
    else:
        causes = list(java_causes(found.get(), show_values))
    return explain(causes, redactor)


def explain(causes: list[Cause], redactor: Redactor) -> QueryFailure:
    """Return the chain with the secrets taken out, under the condition that says most."""
    error = next((cause.error for cause in reversed(causes) if cause.error is not None), None)
    told = _telling(causes)
    place = {name: value for cause in causes for name, value in cause.place.items()}
    remedy, statements = "", ()
    if told is not None:
        remedy, statements = redactor.scrub(told.remedy or ""), told.data.get("statements", ())
        place |= place_of(told.data)
    return QueryFailure(
        condition=_condition_of(causes) if error is None else error.code,
        causes=tuple(dict.fromkeys(redactor.scrub(str(cause)) for cause in causes)),
        error=error, remedy=remedy, statements=tuple(statements), place=place,
        passing=any(
            cause.passing or is_transient(RuntimeError(cause.message), cause.condition)
            for cause in causes
        ),
    )


def _telling(causes: Sequence[Cause]) -> CatalogMigrateError | None:
    """The innermost error of ours that says what to do, or more than its text."""
    own = [cause.own for cause in causes if cause.own is not None]
    return next((each for each in reversed(own) if each.remedy or each.data), None)


def _condition_of(causes: Sequence[Cause]) -> str:
    """The innermost of Spark's error classes; the connector's own exceptions have none, and go by
    the innermost class."""
    if any(BAD_RECORD_MARK in cause.message for cause in causes):
        return BAD_RECORD
    telling = [cause for cause in causes if not cause.is_wrapper] or causes
    conditions = [cause.condition for cause in telling if cause.condition is not None]
    return conditions[-1] if conditions else telling[-1].name


def scrubbed(
    error: BaseException, redactor: Redactor, show_values: bool = False
) -> BaseException:
    """The error itself, or one with the same text less its secrets, and less values of rows."""
    raw, causes = list(python_causes(error, True)), list(python_causes(error, show_values))
    if all(
        redactor.scrub(cause.message) == before.message
        for cause, before in zip(causes, raw, strict=True)
    ):
        return error
    found = explain(causes, redactor)
    return EngineFailure(
        "; ".join(found.causes), condition=found.condition, transient=found.passing,
        remedy=found.remedy or None, statements=found.statements, **found.place,
    )


def python_causes(error: BaseException, show_values: bool = False) -> Iterator[Cause]:
    """Yield an exception of Python and what it came from; Spark's lead on into the JVM."""
    current: BaseException | None = error
    for _ in range(_DEPTH):
        if current is None:
            return
        origin = getattr(current, "_origin", None)
        if origin is None:
            origin = getattr(current, "java_exception", None)
        if origin is not None:
            yield from java_causes(origin, show_values)
            return
        yield _python_cause(current, show_values)
        inner = current.__cause__
        if inner is None and not current.__suppress_context__:
            inner = current.__context__
        current = inner


def _python_cause(error: BaseException, show_values: bool) -> Cause:
    condition = error.condition if isinstance(error, EngineFailure) else None
    if isinstance(error, RowRefused):
        condition = error.code
    own = error if isinstance(error, CatalogMigrateError) else None
    text = str(error) if own is None else own.message
    told = text if show_values else row_values.of_python(error)
    return _cause(type(error).__name__, condition, text, told)._replace(
        own=own, passing=is_passing(own) if own is not None else _passes(error),
        place=row_values.place_in(error) if hasattr(error, "diag") else {},
        error=own if isinstance(own, ReplicationFailed) else None,
    )


def java_causes(throwable: Any, show_values: bool = False) -> Iterator[Cause]:
    """Yield an exception of the JVM and what it came from."""
    current = throwable
    for _ in range(_DEPTH):
        if current is None:
            return
        name, condition = current.getClass().getSimpleName(), _condition(current)
        text = str(current.getMessage() or "")
        told = text if show_values else _without_values(current, condition, text)
        yield _cause(name, condition, text, told)._replace(passing=name in _CONNECTIONS)
        current = current.getCause()


def _passes(error: BaseException) -> bool:
    """Whether it is psycopg's word for a server that is away, full, or in the way of itself."""
    return any(kind.__name__ == "OperationalError" for kind in type(error).__mro__)


def _without_values(throwable: Any, condition: str | None, text: str) -> str:
    """What an exception of the JVM says, less values of rows."""
    if condition is None and not _is_spark(throwable):
        return row_values.of_java(str(throwable.getClass().getName()), text)
    parameters = {str(name): str(value) for name, value in (
        dict(throwable.getMessageParameters() or {}).items()
    )}
    return row_values.of_spark(text, condition, throwable.getSqlState(), parameters)


def _cause(name: str, condition: str | None, text: str, told: str) -> Cause:
    """One exception; the error that a reader of ours has put into its text says what it means.

    ``told`` is what may be shown of the text.
    """
    error = parse_failure(text)
    if error is None:
        return Cause(name, condition, _short(told))
    return Cause(name, error.code, error.message, error)


def _condition(throwable: Any) -> str | None:
    """Spark's error class of a JVM exception that has one."""
    found = throwable.getCondition() if _is_spark(throwable) else None
    return None if found is None else str(found)


def _is_spark(throwable: Any) -> bool:
    """Whether a JVM exception is one of Spark's, which have an error class or could have."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return False
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(gateway, throwable, "org.apache.spark.SparkThrowable"))


def _short(text: str | None) -> str:
    """A message without stack traces, plans and what follows them, and without Spark's advice on
    an option that is none of ours."""
    lines = []
    for line in (text or "").splitlines():
        if line.lstrip().startswith(("at ", "Traceback ", "=== ", "== ", "Driver stacktrace:")):
            break
        if line.strip():
            lines.append(line.strip())
    return _ADVICE.sub("", " ".join(lines))[:_LONGEST]


_POLL = 0.02
"""Seconds between two looks at a checkpoint while a batch is waited for."""
_BREAK_OFF = 5.0
"""Seconds that a writer gets to notice that it was told to give up."""


class SparkRunningQuery:
    """One start of a query."""

    def __init__(
        self,
        query: StreamingQuery,
        *,
        name: str,
        checkpoint: Checkpoint,
        redactor: Redactor,
        gate: BatchGate | None,
        cancel_jobs: Callable[[str], None],
        count_work: Callable[[str], int],
        show_values: bool = False,
    ) -> None:
        self._query = query
        self._name = name
        self._checkpoint = checkpoint
        self._redactor = redactor
        self._gate = gate
        self._cancel_jobs = cancel_jobs
        self._count_work = count_work
        self._show_values = show_values
        self._stopped = False
        self._stopping = threading.Lock()
        self._counting = threading.Lock()
        self._total = 0
        self._counted = ""
        self._batch_at: str | None = None

    @property
    def query_id(self) -> str:
        """The id in the checkpoint's metadata."""
        return str(self._query.id)

    @property
    def run_id(self) -> str:
        """Another one after each start."""
        return str(self._query.runId)

    @property
    def active(self) -> bool:
        """Whether it has not ended; says nothing about health."""
        return bool(self._query.isActive)

    def progress(self) -> QueryProgress | None:
        """Return the newest progress since this start; None until the first."""
        java = self._query._jsq.lastProgress()
        if java is None:
            return None
        # One call across to the JVM; PySpark's own value takes a hundred.
        newest = json.loads(java.json())
        with self._counting:
            if newest["timestamp"] > self._counted:
                self._count()
            total, batch_at = self._total, self._batch_at
        # An idle trigger reports the number of the batch that comes next.
        ran = "addBatch" in newest["durationMs"]
        rows = int(newest["numInputRows"])
        return QueryProgress(
            batch=int(newest["batchId"]) - (0 if ran else 1),
            rows=rows,
            total_rows=total,
            at=newest["timestamp"],
            lag=lag_of(newest["sources"]),
            idle=not ran,
            batch_at=batch_at,
        )

    def worked(self) -> int:
        """Tasks that ended in the newest jobs of this run, and records that they have handled.

        Spark counts records of a task under way at each heartbeat of its executor (10 s).
        """
        with failing(f"ask for the tasks of {self._name}"):
            return self._count_work(self.run_id)

    def failure(self) -> QueryFailure | None:
        """Return why it ended; None while it runs and when it was stopped."""
        if self._stopped or self.active:
            return None
        return failure_of(
            self._query, self._gate.error if self._gate else None, self._redactor,
            self._show_values,
        )

    def stop(self, drain: float) -> bool:
        """Let the current batch end for at most ``drain`` seconds, then stop.

        Returns whether the checkpoint was left without an uncommitted batch. Raises
        :class:`~catalog_migrate.errors.EngineFailure` when Spark cannot end the query.
        """
        with self._stopping:
            if self.active and not self._between_batches(drain) and self._gate is not None:
                # stop() waits for the function of foreachBatch, which may hang on a dead server;
                # while it runs a job, stop() kills the stream by a StackOverflowError.
                self._stopped = True
                self._gate.close()
                self._cancel_jobs(self.run_id)
                self._wait(lambda: not self.active, _BREAK_OFF)
            if self.active:
                self._stopped = True
                with failing(f"stop the query of {self._name}"):
                    self._query.stop()
            return is_settled(self._checkpoint)

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended by itself; whether it has."""
        return self._wait(lambda: not self.active, timeout)

    def _between_batches(self, drain: float) -> bool:
        """Wait for the end of the batch under way; True once none is and none can begin to write.

        Told by the checkpoint: ``query.status`` is active also while a trigger looks for data.
        """
        deadline = time.monotonic() + drain
        current = batch_number(self._checkpoint.latest_offsets)
        while self.active:
            if batch_number(self._checkpoint.latest_commits) >= current:
                if self._gate is None or self._gate.close_if_free():
                    return True
                current = max(current, batch_number(self._checkpoint.latest_offsets))
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True

    def _count(self) -> None:
        """Add the rows of the progress that has come since the last look; Spark keeps a hundred."""
        recent = self._query._jsq.recentProgress()
        counted, newest = self._counted, None
        for index in range(len(recent) - 1, -1, -1):
            entry = json.loads(recent[index].json())
            if entry["timestamp"] <= counted:
                break
            if newest is None and "addBatch" in entry["durationMs"]:
                newest = entry["timestamp"]
            self._total += int(entry["numInputRows"])
            self._counted = max(self._counted, entry["timestamp"])
        self._batch_at = newest or self._batch_at

    @staticmethod
    def _wait(ended: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True


def work_of(context: SparkContext, run_id: str) -> int:
    """Tasks that have ended in the jobs of a run that Spark remembers, and records of all tasks."""
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    done = 0
    for job_id in tracker.getJobIdsForGroup(run_id):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:  # one that waits for another has done nothing
                data = store.lastStageAttempt(stage_id)
                done += stage.numCompletedTasks + data.inputRecords() + data.outputRecords()
    return done


def is_settled(checkpoint: Checkpoint) -> bool:
    """Return whether every batch that a checkpoint began is committed."""
    return batch_number(checkpoint.latest_commits) >= batch_number(checkpoint.latest_offsets)


def lag_of(sources: list[dict[str, Any]]) -> int | None:
    """Records that are there and not read yet, over all sources; None when one cannot say.

    Kafka says which offsets are the newest; a Delta table says how many bytes it has left, of which
    only nothing can be counted in rows.
    """
    total = 0
    for source in sources:
        metrics = source.get("metrics") or {}
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if "maxOffsetsBehindLatest" in metrics and isinstance(latest, dict):
            total += _behind(latest, end if isinstance(end, dict) else {})
        elif metrics.get("numBytesOutstanding") != "0":
            return None
    return total


def _behind(latest: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(
        max(0, int(newest) - int(end.get(topic, {}).get(partition, 0)))
        for topic, partitions in latest.items()
        for partition, newest in partitions.items()
    )
