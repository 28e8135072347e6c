"""The engine on a Spark session with Delta: composes names, shards, copies and binding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import (
    BindRequest,
    BindResult,
    CopyResult,
    FunctionSpec,
    Registration,
    ShardSpec,
    ViewSpec,
)
from catalog_migrate.engine.spark.binding import Binding
from catalog_migrate.engine.spark.copies import Copies
from catalog_migrate.engine.spark.registrations import Registrations
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.engine_failures import mute_query_errors
from catalog_migrate.errors import EngineFailure, UnsuitableSession
from catalog_migrate.model.layout import Layout, Shape
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


SPARK_VERSION = "4.2"
"""The version of Spark that the tests run on; another one of the same major version is tried."""


def check_session(spark: SparkSession) -> None:
    """:class:`UnsuitableSession` unless it is Spark 4 and speaks Delta in its own catalog."""
    if spark.version.partition(".")[0] != SPARK_VERSION.partition(".")[0]:
        raise UnsuitableSession(
            f"this session is Spark {spark.version}; Spark {SPARK_VERSION} is needed",
            remedy=f"start it with pyspark {SPARK_VERSION} and the delta-spark of that version",
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


class SparkEngine:
    """Implements :class:`~catalog_migrate.engine.port.Engine`; methods may be called in parallel.

    ``threads`` is how many statements :meth:`bind` runs at once; ``lineage`` names the catalog
    whose registrations these are. Raises :class:`UnsuitableSession` for a session without Delta.
    """

    def __init__(
        self, spark: SparkSession, *, threads: int = 4, lineage: str | None = None
    ) -> None:
        check_session(spark)
        mute_query_errors()
        self.spark = spark
        self.lineage = lineage
        self._registrations = Registrations(spark)
        self._shards = Shards(spark)
        self._copies = Copies(spark)
        self._binding = Binding(spark, threads)

    # names ---------------------------------------------------------------------------------
    @property
    def persistent_names(self) -> bool:
        """Whether names outlive the session."""
        return self._registrations.persistent_names

    def ensure_schema(self, schema: str) -> None:
        """Create the schema unless it exists."""
        self._registrations.ensure_schema(schema)

    def drop_schema_if_empty(self, schema: str) -> None:
        """Drop a schema that holds nothing any more."""
        self._registrations.drop_schema_if_empty(schema)

    def names(self, schema: str) -> frozenset[ItemName]:
        """Names of relations only."""
        return self._registrations.names(schema)

    def observe(self, schema: str) -> Sequence[Registration]:
        """All relations and user functions with what recognises them."""
        return self._registrations.observe(schema)

    def register_table(self, name: ItemName, path: str) -> None:
        """Make ``name`` a table at an existing shard."""
        # Spark creates an empty table without a word where there is no log.
        why = self.why_no_shard(path)
        if why is not None:
            raise EngineFailure(
                f"cannot register {name}: there is no Delta table at {path}: {why}",
                condition="DELTA_TABLE_NOT_FOUND",
            )
        self._registrations.register_table(name, path)

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        """Create (or replace) a view with its column list, casts and SCHEMA BINDING."""
        types = self._binding.body_types(view.name, view.sql, view.columns)
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
        self._registrations.create_view(spec, types, over=over)

    def create_function(
        self, function: FunctionSpec, *, over: Registration | None = None
    ) -> None:
        """Create (or replace) a permanent SQL function."""
        self._registrations.create_function(function, over=over)

    def drop(self, registration: Registration, *, beside: Sequence[Registration] = ()) -> None:
        """Drop exactly this name with the statement of its kind."""
        self._registrations.drop(registration, beside=beside)

    # shards --------------------------------------------------------------------------------
    def create_shard(self, shard: ShardSpec) -> None:
        """Create an empty Delta table at a fresh path."""
        self._shards.create_shard(shard)

    def shard_version(self, path: str) -> int | None:
        """Newest version; None when there is no Delta table."""
        return self._shards.shard_version(path)

    def why_no_shard(self, path: str) -> str | None:
        """Why no Delta log is seen there; nothing of it is read."""
        return self._shards.why_no_shard(path)

    def shard_columns(self, path: str) -> Sequence[Column]:
        """Columns with canonical types, nullability and comments."""
        return self._shards.shard_columns(path)

    def shard_size(self, path: str) -> tuple[int, int]:
        """(rows, bytes); rows is -1 when unknown."""
        return self._shards.shard_size(path)

    def grown(self, path: str, after: int, upto: int | None = None) -> int | None:
        """See the port."""
        return self._shards.grown(path, after, upto)

    def count_rows(self, path: str, version: int) -> int:
        """Rows of the shard at a version."""
        return self._shards.count_rows(path, version)

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Sequence[tuple[str, str]]
    ) -> CopyResult:
        """Bulk copy of one version; a failure names column and row."""
        return self._copies.copy_rows(source, source_version, target, projection)

    def copy_tail(
        self,
        source: str,
        after: int,
        upto: int,
        target: str,
        projection: Sequence[tuple[str, str]],
    ) -> CopyResult | None:
        """Copy what was appended since; None when more than appending happened."""
        return self._copies.copy_tail(source, after, upto, target, projection)

    def truncate_shard(self, path: str) -> None:
        """Remove all rows of a private shard."""
        self._shards.truncate_shard(path)

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        """Seal behind version ``follows`` and the data that came after it."""
        return self._shards.seal(path, follows=follows, app_id=app_id, epoch=epoch)

    def seal_properties(self, path: str) -> Mapping[str, str | None]:
        """The present value of each property that sealing changes."""
        return self._shards.seal_properties(path)

    def is_sealed(self, path: str) -> bool:
        """Whether the shard carries the seal."""
        return self._shards.is_sealed(path)

    def unseal(
        self, path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
    ) -> None:
        """Take the seal off and put the earlier values back."""
        self._shards.unseal(path, properties, app_id=app_id, epoch=epoch)

    def fence(self, path: str, app_id: str, epoch: int) -> None:
        """One empty commit carrying a transaction: a late seal then loses."""
        self._shards.fence(path, app_id, epoch)

    def shard_layout(self, path: str) -> Layout:
        """Physical and given names of a shard's columns."""
        return self._shards.shard_layout(path)

    def create_shadow_table(self, path: str, shadow: str) -> None:
        """An empty table like the one at ``path``, to try statements on."""
        self._shards.create_shadow_table(path, shadow)

    def evolve(
        self,
        path: str,
        columns: Sequence[Column],
        shard: ShardSpec,
        shape: Shape | None = None,
        *,
        app_id: str = "",
        epoch: int = 0,
    ) -> None:
        """Bring a shard to ``columns`` in place."""
        self._shards.evolve(path, columns, shard, shape, app_id=app_id, epoch=epoch)

    def delete_shard(self, path: str) -> None:
        """Remove a directory that nothing refers to."""
        self._shards.delete_shard(path)

    def delete_shard_data(self, path: str) -> None:
        """Remove the data files of a retired shard."""
        self._shards.delete_shard_data(path)

    def list_shards(self, warehouse: str) -> Iterable[str]:
        """Absolute paths of all Delta table directories below the warehouse."""
        return self._shards.list_shards(warehouse)

    # binding -------------------------------------------------------------------------------
    def bind(self, requests: Sequence[BindRequest]) -> Sequence[BindResult]:
        """Analyse each body against typed empty stand-ins of its parents."""
        return self._binding.bind(requests)
