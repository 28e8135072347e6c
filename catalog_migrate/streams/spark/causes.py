"""Why a query died: the chain of causes, from Spark's own message to the innermost one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog_migrate.errors import CatalogMigrateError, EngineFailure
from catalog_migrate.replication.errors import parse_failure
from catalog_migrate.streams.queries import WRAPPERS, QueryFailure
from catalog_migrate.streams.spark.decoding import BAD_RECORD_MARK

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from catalog_migrate.connections.secrets import Redactor

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


class Cause(NamedTuple):
    """One exception of a chain, by its class' simple name."""

    name: str
    condition: str | None
    message: str
    error: CatalogMigrateError | None = None

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
    query: StreamingQuery, batch_error: BaseException | None, redactor: Redactor
) -> QueryFailure | None:
    """Why a query ended, None when it did not fail.

    ``batch_error`` is what the Python function of ``foreachBatch`` raised: Spark has only its text.
    """
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    if batch_error is not None:
        causes = list(python_causes(batch_error))
    else:
        causes = list(java_causes(found.get()))
    return explain(causes, redactor)


def explain(causes: list[Cause], redactor: Redactor) -> QueryFailure:
    """The chain with the secrets taken out, under the condition that says most.

    That is the innermost of Spark's error classes; the connector's own exceptions have none, and
    go by the innermost class.
    """
    telling = [cause for cause in causes if not cause.is_wrapper] or causes
    conditions = [cause.condition for cause in telling if cause.condition is not None]
    condition = conditions[-1] if conditions else telling[-1].name
    if any(BAD_RECORD_MARK in cause.message for cause in causes):
        condition = BAD_RECORD
    errors = [cause.error for cause in causes if cause.error is not None]
    if errors:
        condition = errors[-1].code
    texts: list[str] = []
    for cause in causes:
        text = redactor.scrub(str(cause))
        if text not in texts:
            texts.append(text)
    return QueryFailure(
        condition=condition, causes=tuple(texts), error=errors[-1] if errors else None
    )


def scrubbed(error: BaseException, redactor: Redactor) -> BaseException:
    """The error itself, or one with the same text less its secrets."""
    causes = list(python_causes(error))
    if all(redactor.scrub(cause.message) == cause.message for cause in causes):
        return error
    failure = explain(causes, redactor)
    return EngineFailure("; ".join(failure.causes), condition=failure.condition)


def python_causes(error: BaseException) -> Iterator[Cause]:
    """An exception of Python and what it came from; Spark's lead on into the JVM."""
    current: BaseException | None = error
    for _ in range(_DEPTH):
        if current is None:
            return
        origin = getattr(current, "_origin", None)
        if origin is None:
            origin = getattr(current, "java_exception", None)
        if origin is not None:
            yield from java_causes(origin)
            return
        condition = current.condition if isinstance(current, EngineFailure) else None
        text = current.message if isinstance(current, CatalogMigrateError) else str(current)
        yield _cause(type(current).__name__, condition, text)
        inner = current.__cause__
        if inner is None and not current.__suppress_context__:
            inner = current.__context__
        current = inner


def java_causes(throwable: Any) -> Iterator[Cause]:
    """An exception of the JVM and what it came from."""
    current = throwable
    for _ in range(_DEPTH):
        if current is None:
            return
        yield _cause(
            current.getClass().getSimpleName(), _condition(current), current.getMessage()
        )
        current = current.getCause()


def _cause(name: str, condition: str | None, text: str | None) -> Cause:
    """One exception; the error that a reader of ours has put into its text says what it means."""
    error = parse_failure(text or "")
    if error is None:
        return Cause(name, condition, _short(text))
    return Cause(name, error.code, error.message, error)


def _condition(throwable: Any) -> str | None:
    """Spark's error class of a JVM exception that has one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return None
    from py4j.java_gateway import is_instance_of

    if not is_instance_of(gateway, throwable, "org.apache.spark.SparkThrowable"):
        return None
    found = throwable.getCondition()
    return None if found is None else str(found)


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
