"""The engine on a Spark session with Delta: names, shards, copies and binding in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.delta import datatypes
from catalog_migrate.delta.table import view_table
from catalog_migrate.engine.port import Registration, ViewSpec
from catalog_migrate.engine.spark.binding import Binding
from catalog_migrate.engine.spark.connect import UnsuitableSession, is_connect
from catalog_migrate.engine.spark.copies import Copies
from catalog_migrate.engine.spark.registrations import Registrations
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.engine.spark.statements import by_path, rows
from catalog_migrate.engine_failures import failing, mute_query_errors
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.store.address import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_MARKS = "catalog_migrate."
"""Begins the properties that say whose a table is."""
_NOT_THERE = frozenset({
    "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
})  # fmt: skip
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


SPARK_MINORS = ("4.0", "4.1", "4.2")
"""Minors of Spark that the tests run on; a later one of the same major version is tried."""

_LIMITS = {"4.0": "no rows or checkpoints on S3"}
"""What a minor cannot do that the newest can."""


def limits(version: str) -> str:
    """What a Spark of this version (``4.1.1``) cannot do, or that it was not tried; else empty."""
    minor = ".".join(version.split(".")[:2])
    if minor not in SPARK_MINORS:
        return f"not tried: the tests run on {', '.join(SPARK_MINORS)}"
    return _LIMITS.get(minor, "")


def check_session(spark: SparkSession) -> None:
    """:class:`UnsuitableSession` unless it is Spark 4 and speaks Delta in its own catalog."""
    newest = SPARK_MINORS[-1]
    if spark.version.partition(".")[0] != newest.partition(".")[0]:
        raise UnsuitableSession(
            f"this session is Spark {spark.version}; Spark {newest} is needed"
            f" ({' and '.join(SPARK_MINORS[:-1])} do as well)",
            remedy=f"start it with pyspark {newest} and the delta-spark of that version",
        )
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    lacking = []
    if _EXTENSION not in extensions:
        lacking.append(f"spark.sql.extensions={_EXTENSION}")
    if catalog != _CATALOG:
        lacking.append(f"spark.sql.catalog.spark_catalog={_CATALOG}")
    if lacking:
        raise UnsuitableSession(
            "this Spark session has no Delta: it lacks " + " and ".join(lacking),
            remedy="set these when the session is built, with delta-spark's jars on its class path",
        )


def check_scheme(spark: SparkSession, address: str) -> None:
    """:class:`UnsuitableSession` where no jar on the session's class path reads an address.

    Nothing is asked of the store. A session without a JVM of its own is taken at its word.
    """
    scheme, remote, _ = address.partition("://")
    session = getattr(spark, "_jsparkSession", None)
    jvm = getattr(spark, "_jvm", None)
    if not remote or session is None or jvm is None:
        return
    from py4j.protocol import Py4JJavaError

    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, session.sessionState().newHadoopConf()
        )
    except Py4JJavaError as error:
        way = "have the jars of that store on its class path"
        if scheme.startswith("s3"):
            way = "have hadoop-aws and what it needs on its class path"
        if scheme == "s3":
            way += ", and spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem, or name"
            way += " the rows s3a://"
        raise UnsuitableSession(
            f"this Spark session cannot read {address}: it has no file system for {scheme}://",
            remedy=f"when the session is built, {way}",
        ) from error


class SparkEngine(Registrations, Shards, Copies, Binding):
    """Implements :class:`~catalog_migrate.engine.port.Engine`; methods may be called in parallel.

    ``threads`` is how many statements :meth:`bind` runs at once. Raises
    :class:`UnsuitableSession` for a session without Delta.
    """

    def __init__(self, spark: SparkSession, *, threads: int = 4) -> None:
        check_session(spark)
        mute_query_errors()
        self.spark = spark
        Registrations.__init__(self, spark)
        Shards.__init__(self, spark)
        Copies.__init__(self, spark)
        Binding.__init__(self, spark, threads)
        self._remote = is_connect(spark)

    def register_table(self, name: ItemName, path: str) -> None:
        # Spark creates an empty table without a word where there is no log.
        why = self.why_no_shard(path)
        if why is not None:
            raise EngineFailure(
                f"cannot register {name}: there is no Delta table at {path}: {why}",
                condition="DELTA_TABLE_NOT_FOUND",
            )
        if self._remote:
            self._require_same_table(name, local_path(path))
        super().register_table(name, path)

    def _require_same_table(self, name: ItemName, path: str) -> None:
        """EngineFailure where the server has no table at ``path``, or one with other marks.

        A server on another machine would make an empty table at a path that it does not see.
        """
        configuration = view_table(path).metadata().configuration
        ours = {key: value for key, value in configuration.items() if key.startswith(_MARKS)}
        theirs: dict[str, str] | None = None
        try:
            with failing(f"look for {path} on the Spark Connect server"):
                shown = rows(self.spark, f"SHOW TBLPROPERTIES {by_path(path)}")
            theirs = {row["key"]: row["value"] for row in shown}
        except EngineFailure as error:
            if error.condition not in _NOT_THERE:
                raise
        if theirs is None or not ours.items() <= theirs.items():
            raise EngineFailure(
                f"cannot register {name}: the Spark Connect server does not see the Delta table at"
                f" {path}",
                condition="DELTA_TABLE_NOT_FOUND",
                remedy="keep the rows where this machine and the server have them under one"
                " address: an object store or a shared file system",
            )

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        """Create (or replace) a view with its column list, casts and SCHEMA BINDING."""
        types = self.body_types(view.name, view.sql, view.columns)
        spec = ViewSpec(
            view.name,
            [
                Column(c.name, datatypes.without_lengths(c.type), c.nullable, comment=c.comment)
                for c in view.columns
            ],
            view.sql,
            view.comment,
            view.properties,
        )
        self.create_typed_view(spec, types, over=over)
