"""Spark Connect: a session on a server (``sc://host:port``), opened here or handed over.

Nothing of PySpark's client is imported before a session is opened.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from catalog_migrate.engine_failures import short_message
from catalog_migrate.errors import (
    PrerequisiteMissing,
    ServerUnreachable,
    UnsuitableSession,
    UsageError,
)
from catalog_migrate.retry import retry, until
from catalog_migrate.store.address import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADDRESS = re.compile(r"sc://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(?:/?|/;(.*))", re.DOTALL)
_FORM = "write sc://HOST:PORT, with /;use_ssl=true behind it for TLS"
_CLIENT = "pyspark.sql.connect"
_ANSWER = 12.0
"""Seconds that a server may take to say which Spark it is."""
_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The variable from which PySpark takes a token that the address does not have."""
_START = 4.0
"""Seconds that a server which refuses to be connected to may take to start."""
_PAUSE = 0.2
_TRIES = 6
"""Calls repeated to a server that went away meanwhile: PySpark's own 15 last ten minutes."""


def unsuitable(doing: str, found: str) -> UnsuitableSession:
    """The error of what cannot be done through Spark Connect; ``found`` says where it is met."""
    return UnsuitableSession(
        f"{doing} needs a Spark session of its own process, and {found}",
        remedy="use a session of this machine or of a cluster; leave spark.remote unset for that",
    )


def is_connect(spark: object) -> bool:
    """Return whether a session is a client's of Spark Connect; looking imports nothing."""
    return any(kind.__module__.startswith(_CLIENT) for kind in type(spark).__mro__)


def show_server(address: str) -> str:
    """``sc://host:port`` of an address, without its parameters, one of which may be a token.

    UsageError for what is no such address, which is not told: it may hold one as well.
    """
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        raise UsageError("spark.remote is not the address of a Spark Connect server", remedy=_FORM)
    return f"sc://{found[1]}{found[2] or ''}"


@contextmanager
def remote_session(address: str) -> Iterator[SparkSession]:
    """A session of our own on a server; in the end it is closed, and what it runs is cancelled.

    Raises :class:`ServerUnreachable` within 15 s, PrerequisiteMissing where packages are missing,
    UsageError for what is no address.
    """
    from catalog_migrate.engine.spark.jars import locate_pyspark

    server = show_server(address)
    locate_pyspark()
    try:
        sessions: Any = importlib.import_module(f"{_CLIENT}.session")
    except ImportError as error:
        raise PrerequisiteMissing(
            f"Spark Connect needs packages that are not there: {error}",
            remedy="pip install 'catalog_migrate[connect]'",
        ) from error
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    try:
        spark = sessions.SparkSession.builder.remote(address.strip()).create()
    except PySparkException:  # it would tell the parameters
        raise UsageError(
            f"spark.remote is {server} with parameters that Spark Connect does not know",
            remedy=_FORM,
        ) from None
    try:
        spark.client.set_retry_policies([])
        _await_answer(spark, server, address)
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES)])
        yield spark
    except ServerUnreachable:
        spark.release_session_on_close = False  # nobody is there to be told
        raise
    finally:
        spark.client.set_retry_policies([])
        spark.stop()


def _await_answer(spark: Any, server: str, address: str) -> None:
    """Ask which Spark it is; in a thread, for a call may hang where nothing refuses it."""
    answers: list[str] = []
    failures: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(
                retry(lambda: spark.version, Exception, until(_START, _PAUSE), when=_is_away)
            )
        except Exception as error:  # noqa: BLE001 (whatever it is, it is raised below)
            failures.append(error)

    asking = threading.Thread(target=ask, name="spark-connect", daemon=True)
    asking.start()
    asking.join(_ANSWER)
    if answers:
        return
    reason = f"no answer within {_ANSWER:g} s"
    if failures:
        reason = _scrub(short_message(failures[0]), address, spark.client.token)
    raise ServerUnreachable(
        f"the Spark Connect server {server} cannot be used: {reason}",
        remedy=f"start it, or correct spark.remote (a token is given by the variable {_VARIABLE},"
        " or by /;token=… in the address; it implies TLS, except on localhost: a server without TLS"
        " takes no token from another machine, 127.0.0.1 included)",
        server=server,
    )


def _is_away(error: BaseException) -> bool:
    """Whether nobody was connected to, rather than somebody refused the call."""
    status = getattr(error, "getGrpcStatusCode", None)
    return status is not None and status().name == "UNAVAILABLE"


def _scrub(text: str, address: str, token: str | None) -> str:
    """``text`` without the token, and without a value of another parameter of the address."""
    found = _ADDRESS.fullmatch(address.strip())
    values = [each.partition("=")[2] for each in ((found and found[3]) or "").split(";")]
    for secret in (*values, *map(unquote, values), token or ""):
        if len(secret) > 4:  # true, and the like
            text = text.replace(secret, HIDDEN)
    return text
