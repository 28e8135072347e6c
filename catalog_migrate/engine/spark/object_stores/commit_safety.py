"""Whether the commits of a Spark session are safe at an address: a race in a table of our own.

Delta commits by the LogStore of the address' scheme, which any session may set. The one that it has
by default on S3 looks whether the version is there, and puts it: a commit that another process puts
in between is written over, and its rows are lost although their writer was told that they are in
the table. No name tells that reliably, so the session's own LogStore is raced against delta-rs,
whose commits the store itself refuses where one is.

And whether the session has what makes checkpoints of queries stop a second driver.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.delta.race import race_against
from catalog_migrate.engine.spark.object_stores.settings import LOG_STORE, own_jar
from catalog_migrate.errors import UnsafeCommits, UnsuitableSession
from catalog_migrate.store.address import (
    Storage,
    bucket_of,
    is_remote,
    show_address,
    storage_of,
)
from catalog_migrate.store.object_store import remedy_of_refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONDITIONAL_WRITES = "3.4.2"
"""The first Hadoop whose S3A can put an object only where none is."""

_PATIENCE = 60.0
_EXISTS = ("java.nio.file.FileAlreadyExistsException",
           "org.apache.hadoop.fs.FileAlreadyExistsException")


class LogStoreInUse(msgspec.Struct, frozen=True):
    """What a session commits with at an address: the LogStore's class, and Hadoop's version."""

    place: str
    name: str
    hadoop: str

    @property
    def key(self) -> str:
        """By which a verdict is remembered: another class, version or bucket is raced anew."""
        return f"{self.place} {self.name} Hadoop {self.hadoop}"


def log_store(spark: SparkSession, address: str) -> LogStoreInUse:
    """Return the LogStore of a session for the scheme of an address.

    Raises :class:`UnsuitableSession` where the session does not tell: over Spark Connect, or when
    the class that is set for the scheme is not on its class path.
    """
    jvm = _jvm(spark, address)
    try:
        store, _ = _open(spark, jvm)
        if store.getClass().getSimpleName() == "DelegatingLogStore":
            store = store.getDelegate(jvm.org.apache.hadoop.fs.Path(address))
        hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
    except Exception as error:  # noqa: BLE001 - whatever the JVM says
        raise _unusable(address, error, Storage()) from None
    if store.getClass().getSimpleName() == "LogStoreAdaptor":
        store = store.logStoreImpl()
    place = bucket_of(address) if is_remote(address) else "file:"
    return LogStoreInUse(place, str(store.getClass().getName()), hadoop)


def race_session(
    spark: SparkSession, address: str, storage: Storage | None = None
) -> LogStoreInUse:
    """Race a session against delta-rs in a table below ``address``, which is removed in the end.

    ``address`` has the scheme that the session is to use, ``storage`` are delta-rs' options.
    Returns what was raced. Raises :class:`UnsafeCommits` where of two commits at one version both
    went through, :class:`UnsuitableSession` where the session cannot write there at all,
    :class:`~catalog_migrate.errors.StoreFailure` where delta-rs cannot.
    """
    held = storage or Storage()
    used = log_store(spark, address)
    commits: list[SparkCommit] = []

    def writer(file: str, first: bytes, second: bytes) -> SparkCommit:
        commit = SparkCommit(spark, held, file, first, second)
        if not commits:
            commit.require_reads()
        commits.append(commit)
        return commit

    if not race_against(writer, address, held):
        raise unsafe(used)
    return used


def require_checkpoints(spark: SparkSession, address: str) -> None:
    """UnsuitableSession where a session's manager of checkpoint files cannot work at an address.

    That its class is not on the class path Spark says only when a query starts.
    """
    jvm = _jvm(spark, address)
    files = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    try:
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        files.create(jvm.org.apache.hadoop.fs.Path(address), hadoop)
    except Exception as error:  # noqa: BLE001 - whatever the JVM says
        raise _unusable(address, error, storage_of(address)) from None


def unsafe(used: LogStoreInUse) -> UnsafeCommits:
    """The error of a session that commits with this LogStore: what can be lost, how it is set."""
    scheme = used.place.partition("://")[0]
    remedy = (
        "set storage.require_safe_commits = false if no other process ever writes to these tables"
    )
    if scheme in ("s3", "s3a") and _is_older(used.hadoop, CONDITIONAL_WRITES):
        remedy = (
            "use Spark 4.1 or newer, whose Hadoop writes on a condition"
            f" ({CONDITIONAL_WRITES} and newer do); or {remedy}"
        )
    elif scheme in ("s3", "s3a"):
        remedy = (
            f"set spark.delta.logStore.{scheme}.impl to {LOG_STORE} in every session that writes"
            f" there, and put {own_jar()} into its spark.jars; or " + remedy
        )
    return UnsafeCommits(
        f"this session commits to {used.place} with {used.name} (Hadoop {used.hadoop}), which was"
        " seen to write over a commit that another process had made: rows that their writer was"
        " told are in the table would be lost",
        remedy=remedy, log_store=used.name, hadoop=used.hadoop, place=used.place,
    )


def _is_older(version: str, needed: str) -> bool:
    """Whether a version of Hadoop (``3.4.1``, ``3.4.1-amzn-2``) is older than another."""
    numbers = [tuple(map(int, re.findall(r"\d+", each)[:3])) for each in (version, needed)]
    return numbers[0] < numbers[1]


class SparkCommit:
    """A commit by the session's LogStore, which takes its lines one by one.

    The second line comes by a pipe when it is released: a LogStore that looks whether the version
    is there, and puts it afterwards, has looked by then.
    """

    def __init__(
        self, spark: SparkSession, storage: Storage, file: str, first: bytes, second: bytes
    ) -> None:
        jvm = _jvm(spark, file)
        self._file, self._storage, self._first, self._second = file, storage, first, second
        self._store, self._hadoop = _open(spark, jvm)
        self._path = jvm.org.apache.hadoop.fs.Path(file)
        self._inlet = jvm.java.io.PipedInputStream()
        self._outlet = jvm.java.io.PipedOutputStream(self._inlet)
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(self._inlet)).lines()
        self._lines = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines.iterator())
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._released = threading.Lock()
        self._won = False
        self._failure: Exception | None = None

    def require_reads(self) -> None:
        """UnsuitableSession where the session cannot list the log and read its commits."""
        try:
            found = self._store.listFrom(
                self._path.getParent().suffix(f"/{0:020d}.json"), self._hadoop
            )
            while found.hasNext():
                self._store.read(found.next().getPath(), self._hadoop)
        except Exception as error:  # noqa: BLE001 - whatever the JVM says
            raise _unusable(self._file, error, self._storage) from None

    def begin(self) -> None:
        self._say(self._first)
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE
        while (
            self._thread.is_alive() and self._inlet.available() and time.monotonic() < deadline
        ):
            time.sleep(0.002)

    def release(self) -> None:
        if self._released.acquire(blocking=False):
            self._say(self._second)
            self._outlet.close()

    def join(self) -> bool:
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise _unusable(self._file, self._failure, self._storage) from None
        return self._won

    def _say(self, line: bytes) -> None:
        self._outlet.write(line)
        self._outlet.flush()

    def _commit(self) -> None:
        from py4j.protocol import Py4JJavaError

        try:
            self._store.write(self._path, self._lines, False, self._hadoop)
            self._won = True
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() not in _EXISTS:
                self._failure = error
        except Exception as error:  # noqa: BLE001 - told by who waits
            self._failure = error


def _jvm(spark: Any, address: str) -> Any:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise UnsuitableSession(
            "a session over Spark Connect does not tell how it commits to "
            + show_address(address),
            remedy="set storage.require_safe_commits = false once you know that its server commits"
            f" by conditional PUT (spark.delta.logStore.s3a.impl = {LOG_STORE})",
        )
    return jvm


def _open(spark: Any, jvm: Any) -> tuple[Any, Any]:
    """(the LogStore of a session, Hadoop's settings of the session)."""
    session = spark._jsparkSession
    companion = getattr(jvm.org.apache.spark.sql.delta.storage, "LogStore$")
    store = getattr(companion, "MODULE$").apply(session)
    return store, session.sessionState().newHadoopConf()


def _unusable(address: str, error: Exception, storage: Storage) -> UnsuitableSession:
    java = getattr(error, "java_exception", None)
    said = str(java.toString()) if java is not None else str(error)
    refusal = remedy_of_refusal(said)
    return UnsuitableSession(
        f"this session cannot commit to {show_address(address)}:"
        f" {storage.hidden(' '.join(said.split()))}",
        remedy="give it the jars and settings of that store (docs/object-stores.md)"
        if refusal is None else f"{refusal}; the session's own are meant (spark.hadoop.fs.s3a.*,"
        " docs/object-stores.md)",
    )


