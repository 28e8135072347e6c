"""The engine on a Spark session with Delta: names, shards, copies and binding in one.

And what a session, and its catalog of names, must be able to do for it.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.delta import datatypes
from catalog_migrate.delta.table import view_table
from catalog_migrate.engine.port import FunctionSpec, Registration, ShardSpec, ViewSpec
from catalog_migrate.engine.spark.analysis import Analysis
from catalog_migrate.engine.spark.binding import Binding
from catalog_migrate.engine.spark.connect import is_connect
from catalog_migrate.engine.spark.definitions import Definitions
from catalog_migrate.engine.spark.fills import Fills
from catalog_migrate.engine.spark.shards import Copies, Shards
from catalog_migrate.engine.spark.statements import by_path, rows, run
from catalog_migrate.engine_failures import failing, mute_query_errors
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogUnfit,
    EngineFailure,
    UnsuitableSession,
)
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.store.address import is_same_place, local_path

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


class SparkEngine(Definitions, Shards, Copies, Fills, Binding, Analysis):
    """Implements :class:`~catalog_migrate.engine.port.Engine`; methods may be called in parallel.

    ``threads`` is how many statements :meth:`bind` and :meth:`analyse` run at once. Raises
    :class:`UnsuitableSession` for a session without Delta.
    """

    def __init__(self, spark: SparkSession, *, threads: int = 4) -> None:
        check_session(spark)
        mute_query_errors()
        self.spark = spark
        Definitions.__init__(self, spark)
        Shards.__init__(self, spark)
        Copies.__init__(self, spark)
        Fills.__init__(self, spark)
        Binding.__init__(self, spark, threads)
        Analysis.__init__(self, spark, threads)
        self._remote = is_connect(spark)

    def register_table(self, name: ItemName, path: str) -> None:
        # Spark creates an empty table without a word where there is no log.
        why = self.find_shard_problem(path)
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
        body = self.body_columns(view.name, view.sql, view.columns)
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
        self.create_typed_view(spec, body, over=over)


# -- what a catalog of names must be able to do, tried on names that go again ----------------------

# Each requirement is met or not by the very statements that a start sends. AWS Glue, Unity Catalog
# and the like are the session's configuration: nothing here knows one of them.

_TRIED = {"catalog_migrate.lineage": "probe", "catalog_migrate.id": "s1"}


class Requirement(msgspec.Struct, frozen=True):
    """One thing that a catalog must do: what it is ``needed_for``, and ``why`` it cannot, if so."""

    name: str
    needed_for: str
    why: str | None = None
    optional: bool = False

    def __str__(self) -> str:
        if self.why is None:
            return f"{self.name}: yes ({self.needed_for})"
        return f"{self.name}: no, so without {self.needed_for}: {self.why}"


class CatalogProbe(msgspec.Struct, frozen=True):
    """What a catalog can do, as seen in ``schema``, which is gone again."""

    catalog: str
    schema: str
    requirements: tuple[Requirement, ...]

    @property
    def lacking(self) -> tuple[Requirement, ...]:
        """What it cannot do and must."""
        return tuple(each for each in self.requirements if each.why and not each.optional)

    def __str__(self) -> str:
        tried = f"{self.catalog}, tried in the schema {self.schema}, which is dropped again"
        return "; ".join([tried, *map(str, self.requirements)])


def probe_catalog(engine: SparkEngine, rows_at: str | None = None) -> CatalogProbe:
    """Try the session's current catalog with a table, a view and a function in a schema of its own.

    The table lies below ``rows_at``, in a temporary directory of this machine if None. Nothing of
    it is left, unless the catalog refuses to drop it.
    """
    token = secrets.token_hex(4)
    with ExitStack() as scratch:
        if rows_at is None:
            rows_at = scratch.enter_context(tempfile.TemporaryDirectory())
        place = f"{rows_at.rstrip('/')}/_probe-{token}"
        try:
            return _Trial(engine, f"catalog_migrate_probe_{token}", place).probe()
        finally:
            with suppress(CatalogMigrateError):
                engine.delete_shard(place)


def require_fit_catalog(engine: SparkEngine, rows_at: str | None) -> CatalogProbe:
    """:func:`probe_catalog`; CatalogUnfit where something is lacking that every release needs."""
    found = probe_catalog(engine, rows_at)
    if found.lacking:
        lacking = "; ".join(f"{each.name}: {each.why}" for each in found.lacking)
        raise CatalogUnfit(
            f"the catalog {found.catalog} cannot have the names of a release: {lacking}",
            remedy="make another catalog the session's current one (spark.catalog, or USE), or let"
            " this user do there what docs/catalogs.md lists",
            probe=found,
        )
    return found


class _Trial:
    """The statements of one probe; what an earlier one lacks is why a later one cannot be tried."""

    def __init__(self, engine: SparkEngine, schema: str, path: str) -> None:
        self._engine = engine
        self._schema = schema
        self._path = path
        self._table = ItemName(schema, "t")
        self._view = ViewSpec(
            ItemName(schema, "v"), [Column("a", "INT", nullable=True)],
            f"SELECT a FROM {self._table.sql}", properties=_TRIED,
        )
        self._function = FunctionSpec(
            ItemName(schema, "f"), [Argument("a", "INT")], "INT", "a", properties=_TRIED
        )

    def probe(self) -> CatalogProbe:
        """Try it all, then drop what was made."""
        found = []
        for name, needed_for, optional, act in (
            ("a schema", "any name", False, self._make_schema),
            ("external tables with a location", "tables", False, self._make_table),
            ("rows by their path", "copies and changes in place", False, self._write_by_path),
            ("views with properties", "views, and telling ours from others'", False,
             self._make_view),
            ("SHOW TABLE EXTENDED", "upgrades, drift and its repair", False, self._list),
            ("SQL functions with comments", "functions", True, self._make_function),
            ("dropping", "objects that go, and all that is replaced", False, self._drop),
        ):
            found.append(Requirement(name, needed_for, self._try(act), optional))
        return CatalogProbe(self._engine.catalog, self._schema, tuple(found))

    def _try(self, act: Callable[[], str | None]) -> str | None:
        try:
            return act()
        except CatalogMigrateError as error:
            return error.message

    def _make_schema(self) -> None:
        self._engine.ensure_schema(self._schema)

    def _make_table(self) -> str | None:
        self._engine.create_shard(ShardSpec(self._path, self._view.columns))
        self._engine.register_table(self._table, self._path)
        found = self._engine.find(self._table)
        if found is None or found.location is None:
            return "the catalog does not tell where a table lies"
        if found.managed or not is_same_place(found.location, self._path):
            return f"it has the table at {found.location}, and not where it was made"
        return None

    def _write_by_path(self) -> str | None:
        with failing(f"write to {self._path}"):
            run(self._engine.spark, f"INSERT INTO {by_path(self._path)} VALUES (1)")
            found = rows(self._engine.spark, f"SELECT a FROM {self._table.sql}")
        return None if found else f"a row that was written by path is not in {self._table}"

    def _make_view(self) -> str | None:
        self._engine.create_view(self._view)
        found = self._engine.find(self._view.name)
        if found is None or found.kind != "view":
            return "the view is not there"
        if dict(found.properties) != _TRIED:
            return "the view's properties were not kept"
        self._engine.create_view(self._view, over=found)
        return None

    def _list(self) -> str | None:
        listed = {each.name.name for each in self._engine.observe(self._schema)}
        return None if {"t", "v"} <= listed else f"of a table and a view it lists {sorted(listed)}"

    def _make_function(self) -> str | None:
        self._engine.create_function(self._function)
        for found in self._engine.observe(self._schema):
            if found.kind == "function":
                return None if dict(found.properties) == _TRIED else "its comment was not kept"
        return "the function is not listed"

    def _drop(self) -> str | None:
        try:
            standing = self._engine.observe(self._schema)
        except EngineFailure:  # told already: what was made is dropped by its name
            standing = [
                Registration(self._view.name, "view"), Registration(self._table, "table"),
            ]
        for each in sorted(standing, key=lambda one: one.kind, reverse=True):
            self._engine.drop(each)
        with failing(f"drop the schema {self._schema}"):
            run(self._engine.spark, f"DROP SCHEMA IF EXISTS {quote_sql(self._schema)}")
        return None
