"""Spark's and delta-rs' errors as :class:`EngineFailure`: condition, whether a retry may help."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catalog_migrate.errors import CatalogMigrateError, EngineFailure, MetastoreFailure
from catalog_migrate.store.address import hide_options, plainly, show_cause
from catalog_migrate.store.object_store import remedy_of_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_PLAN = re.compile(r"\n(?:'|\+-|== SQL|\s+at |JVM stacktrace)")
_GRPC = re.compile(r'^<.*?\n\s*details = "(.*?)"\n', re.DOTALL)
"""What a call to a Spark Connect server came to, among what gRPC has for its own developers."""
_TRANSIENT_CONDITIONS = frozenset({
    "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_CONCURRENT_APPEND",
    "DELTA_CONCURRENT_WRITE", "DELTA_CONCURRENT_TRANSACTION", "DELTA_CONCURRENT_DELETE_READ",
    "DELTA_CONCURRENT_DELETE_DELETE", "DELTA_COMMIT_FAILED", "DELTA_METADATA_CHANGED_SINCE_READ",
    "CANNOT_ESTABLISH_CONNECTION", "OPERATION_CANCELED", "JOB_CANCELLED",
})  # fmt: skip
_TRANSIENT_CAUSES = re.compile(
    r"ConcurrentAppendException|ConcurrentModificationException|MetadataChangedException"
    r"|SocketTimeoutException|SocketException|ConnectException|UnknownHostException"
    r"|TimeoutException|Connection reset|ERROR XSDB6|lock could not be obtained"
    r"|SQLTransientConnectionException|SERVICE_UNAVAILABLE|Too many open files"
    r"|Connection refused|error sending request|tcp connect error|dns error"
    r"|Generic \w+ error: .*(?:connection closed|operation timed out|status code: 5\d\d)"
)
"""The last two lines are of delta-rs' object stores, which report an outage in words."""

_OF_METASTORE = re.compile(r"hive\.ql\.metadata\.|MetaException|hive\.metastore\.")
_AWAY = re.compile(
    r"Could not connect to meta store|Unable to instantiate \S*MetaStoreClient|TTransportException"
)
_REFUSED = re.compile(
    r"permission denied|AccessControlException|AccessDenied|not authorized|privilege"
    r"|instances could not be (?:deleted|made persistent)",
    re.IGNORECASE,
)
"""What a metastore says that may not write; the last is of its database, which refused it."""
METASTORE_AWAY = "METASTORE_UNREACHABLE"
METASTORE_REFUSED = "METASTORE_REFUSED"

_OF_S3 = re.compile(r"Service: S3\b|Generic S3 error")
"""How S3A, and delta-rs, tell an answer of S3."""

_WRAPPING = "TASK_WRITE_FAILED"
"""Says only where something failed; what it was stands in its cause."""

_FOREIGN = frozenset({"pyspark", "py4j", "grpc", "deltalake", "_internal"})

_working = threading.local()


class _Mute(logging.Filter):
    """Drops PySpark's copy of an error, on a thread where the engine reports it itself."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 (the base class names it)
        return not getattr(_working, "depth", 0)


def mute_query_errors() -> None:
    """Keep PySpark from printing errors of our own statements as JSON on stderr; others stay."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        if not any(isinstance(known, _Mute) for known in logger.filters):
            logger.addFilter(_Mute())


def condition_of(error: BaseException) -> str | None:
    """Spark's error class, innermost first where Spark wraps it; None where there is none."""
    getter: Callable[[], str | None] | None = getattr(error, "getCondition", None)
    found = getter() if getter is not None else None
    if found and found != _WRAPPING:
        return str(found)
    named = [text for text in _CONDITION.findall(_with_causes(error)) if "_" in text]
    return next((text for text in named if text != _WRAPPING), found)


def is_transient(error: BaseException, condition: str | None) -> bool:
    """Return whether the same statement may succeed a moment later."""
    if condition in _TRANSIENT_CONDITIONS:
        return True
    if type(error).__name__ == "CommitFailedError" or isinstance(error, ConnectionError):
        return True
    return bool(_TRANSIENT_CAUSES.search(_with_causes(error)))


def _with_causes(error: BaseException) -> str:
    """An error's text without stack frames; with Spark Connect also what it was caused by."""
    said = str(error)
    stack: Callable[[], str | None] | None = getattr(error, "getStackTrace", None)
    if stack is not None and "\nCaused by: " not in said:
        said = f"{said}\n{stack() or ''}"
    return "\n".join(line for line in said.splitlines() if not line.startswith("\tat "))


def short_message(error: BaseException) -> str:
    """Return what Spark says, without query plans, search paths, stack traces."""
    text = str(error)
    if "\x1b" in text:  # delta-rs draws its causes
        text = plainly(error)
    grpc = _GRPC.match(text)
    if grpc is not None:
        text = grpc[1]
    start = _CONDITION.search(text)
    if start is not None:
        text = text[start.start() :]
    cut = _PLAN.search(text)
    if cut is not None:
        text = text[: cut.start()]
    place = re.search(r"line \d+,? pos(?:ition)? \d+", text)
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip()
        and not line.startswith(("Search path", "If you did not", "To tolerate the error"))
    ]
    short = re.sub(r"\s*SQLSTATE: \w+;?.*$", "", " ".join(lines[:6]))[:1000]
    return f"{short} ({place[0]})" if place and place[0] not in short else short


def is_foreign(error: BaseException) -> bool:
    """Whether Spark, py4j, delta-rs or the file system raised it, rather than a mistake of ours.

    Told by module (delta-rs calls its own ``_internal``), so that reading a shard imports no
    pyspark.
    """
    home = type(error).__module__.partition(".")[0]
    return home in _FOREIGN or isinstance(error, OSError | ValueError)


def is_panic(error: BaseException) -> bool:
    """Return whether delta-rs broke off, as it does on a log that contradicts itself.

    Its error is no :class:`Exception`, and of a module of its own.
    """
    return type(error).__module__ == "pyo3_runtime" and type(error).__name__ == "PanicException"


def _remedy_of_store(error: BaseException) -> str | None:
    """What to do where an object store refused; None for what has another cause."""
    said = _with_causes(error)
    return remedy_of_refusal(said) if _OF_S3.search(said) else None


def _metastore_failure(doing: str, error: BaseException) -> MetastoreFailure | None:
    """The error of a shared metastore that is away or refuses; None for what has another cause."""
    # PySpark tells causes only there
    said = f"{_with_causes(error)}\n{getattr(error, '_stackTrace', '')}"
    if not _OF_METASTORE.search(said):
        return None
    away, refused = _AWAY.search(said), _REFUSED.search(said)
    address = _metastore_address() if away or refused else None
    if address is None:
        return None
    if away:
        reason = f"the metastore {address} does not answer"
        return MetastoreFailure(
            f"cannot {doing}: {reason}", reason=reason, metastore=address,
            condition=METASTORE_AWAY,
            remedy="start it, or correct hive.metastore.uris, and run this again",
        )
    reason = f"the metastore {address} refuses: {hide_options(short_message(error))}"
    return MetastoreFailure(
        f"cannot {doing}: {reason}", reason=reason, metastore=address,
        condition=METASTORE_REFUSED,
        remedy="have its operator let this user create, change and drop schemas, tables and"
        " views, and run this again",
    )


def _metastore_address() -> str | None:
    """Where the shared metastore of this process' Spark is; None for an embedded one."""
    pyspark = sys.modules.get("pyspark")
    context: Any = pyspark and pyspark.SparkContext._active_spark_context
    if context is None:
        return None
    found = context._jsc.hadoopConfiguration().get("hive.metastore.uris")
    return hide_options(str(found)) if found else None


@contextmanager
def mute() -> Iterator[None]:
    """Have PySpark print no copy of an error on this thread: the caller reports it."""
    _working.depth = getattr(_working, "depth", 0) + 1
    try:
        yield
    finally:
        _working.depth -= 1


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Turn what Spark and delta-rs raise into :class:`EngineFailure`, the cause kept.

    ``doing`` says what was attempted and on what: ``create the view s.v``, and is kept with the
    error. An error of ours, such as that of a store which does not answer, has its own code and
    remedy and stays.
    """
    try:
        with mute():
            yield
    except CatalogMigrateError:
        raise
    except BaseException as error:
        if not (is_foreign(error) if isinstance(error, Exception) else is_panic(error)):
            raise
        of_metastore = _metastore_failure(doing, error)
        if of_metastore is not None:
            raise of_metastore from show_cause(error)
        condition, reason = condition_of(error), hide_options(short_message(error))
        raise EngineFailure(
            f"cannot {doing}: {reason}", reason=reason,
            condition=condition or type(error).__name__,
            transient=is_transient(error, condition), remedy=_remedy_of_store(error), doing=doing,
        ) from show_cause(error)
