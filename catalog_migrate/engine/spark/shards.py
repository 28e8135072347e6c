"""Shards: Delta table directories, created and changed through delta-rs, by Spark where it must."""

from __future__ import annotations

import json
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from catalog_migrate.delta import datatypes
from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.log import refuse_damaged_log, why_no_log, write_checksum
from catalog_migrate.delta.protocol import create_empty, create_shadow_table, form_of, publish
from catalog_migrate.delta.seal import CONSTRAINTS
from catalog_migrate.delta.table import (
    delete_data,
    delete_table,
    file_sizes,
    grown,
    open_table,
    shard_columns,
    shard_size,
    shard_version,
    table_size,
    tables_below,
    view_table,
)
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.evolution import Wanted, evolve, shard_layout
from catalog_migrate.engine.spark.statements import rows, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Layout, Shape
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import placeholder_location
from catalog_migrate.model.types import parse_type
from catalog_migrate.sql.tokens import escape_doubled_quotes
from catalog_migrate.store import store_at
from catalog_migrate.store.address import is_remote, local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

SPARK_ONLY = ("INTERVAL", "VOID")
"""Types that delta-rs would write into a table that Spark then cannot read."""


def needs_spark(shard: ShardSpec) -> bool:
    """Whether only Spark can create this shard."""
    return bool(shard.clustered_by) or any(
        datatypes.holds(parse_type(column.type), *SPARK_ONLY) for column in shard.columns
    )


def configuration(shard: ShardSpec) -> dict[str, str]:
    """Table properties and CHECK constraints as a Delta table's configuration."""
    checks = {
        f"{CONSTRAINTS}{check.name.lower()}": escape_doubled_quotes(check.expression)
        for check in shard.checks
    }
    return {**shard.properties, **shard.stamps, **checks}


class Shards:
    """What :class:`~catalog_migrate.engine.port.Engine` says of shards, copying apart."""

    def __init__(self, spark: SparkSession | None) -> None:
        """``spark`` None: what only Spark can do is refused."""
        self._session_given = spark

    @property
    def _session(self) -> SparkSession:
        if self._session_given is None:
            raise EngineFailure(
                "this needs a Spark session",
                remedy="the runtime does it at its next start: catalog-migrate run",
            )
        return self._session_given

    def create_shard(self, shard: ShardSpec) -> None:
        """Create through delta-rs (3 ms), or Spark for what delta-rs cannot do.

        For an object store delta-rs makes it on this machine.
        """
        path = local_path(shard.path)
        if self.shard_version(path) is not None:
            self._confirm(shard)
            return
        if needs_spark(shard):
            self._create_by_spark(shard)
        elif not is_remote(path):
            self._create(path, shard)
        else:
            with TemporaryDirectory(prefix="catalog-migrate-") as here:
                self._create(here, shard)
                with failing(f"create the shard {path}"):
                    made = publish(here, path)
            if not made:
                self._confirm(shard)

    def _create(self, path: str, shard: ShardSpec) -> None:
        from deltalake import DeltaTable, Schema

        with failing(f"create the shard {shard.path}"):
            table = DeltaTable.create(
                path,
                schema=Schema.from_json(
                    json.dumps(datatypes.json_schema(shard.columns, stored=True))
                ),
                partition_by=list(shard.partitioned_by) or None,
                description=shard.comment,
                configuration=configuration(shard),
                raise_if_key_not_exists=False,
            )
        write_checksum(path, 0)
        self._add_missing_features(path, table, shard)

    def _confirm(self, shard: ShardSpec) -> None:
        """A shard that is there must be an empty one in the same form (a repeated call)."""
        path = local_path(shard.path)
        standing = [(c.name, c.type, c.nullable) for c in self.shard_columns(path)]
        if standing != [(c.name, c.type, c.nullable) for c in shard.columns] or (
            self.shard_size(path)[0] != 0
        ):
            raise EngineFailure(
                f"cannot create the shard {path}: another table is there",
                condition="DELTA_TABLE_ALREADY_EXISTS",
            )
        self._add_missing_features(path, open_table(path), shard)

    def _add_missing_features(self, path: str, table: DeltaTable, shard: ShardSpec) -> None:
        """Name the features that Spark demands of a table whose protocol lists features.

        delta-rs lists only those of the types: Spark then refuses a NOT NULL column with
        ``DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH``.
        """
        from deltalake import TableFeatures

        protocol = table.protocol()
        listed = protocol.writer_features
        if protocol.min_writer_version < 7 or listed is None:
            return
        wanted = {"appendOnly": TableFeatures.AppendOnly, "invariants": TableFeatures.Invariants}
        if any(column.generated is not None for column in shard.columns):
            wanted["generatedColumns"] = TableFeatures.GeneratedColumns
        if shard.checks:
            wanted["checkConstraints"] = TableFeatures.CheckConstraints
        if shard.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
            wanted["changeDataFeed"] = TableFeatures.ChangeDataFeed
        missing = [feature for name, feature in wanted.items() if name not in listed]
        if missing:
            with failing(f"create the shard {shard.path}"):
                table.alter.add_feature(missing, allow_protocol_versions_increase=True)
            write_checksum(path, table.version())

    def _create_by_spark(self, shard: ShardSpec) -> None:
        with failing(f"create the shard {shard.path}"):
            run(self._session, statements.create_shard(shard))
            for check in shard.checks:
                run(self._session, statements.add_check(shard.path, check.name, check.expression))

    shard_version = staticmethod(shard_version)
    why_no_shard = staticmethod(why_no_log)
    shard_columns = staticmethod(shard_columns)
    shard_size = staticmethod(shard_size)
    grown = staticmethod(grown)

    def count_rows(self, path: str, version: int) -> int:
        """Rows at a version: by statistics, else counted by Spark."""
        known, _ = table_size(view_table(path, version=version))
        if known >= 0:
            return known
        with failing(f"count the rows of {path} at version {version}"):
            source = statements.at_version(local_path(path), version)
            return int(rows(self._session, f"SELECT count(*) FROM {source}")[0][0])

    seal_properties = staticmethod(seals.seal_properties)
    is_sealed = staticmethod(seals.is_sealed)
    unseal = staticmethod(seals.unseal)
    fence = staticmethod(seals.fence)

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        """One commit behind ``follows`` and whatever data came after it."""
        refuse_damaged_log(path)
        return seals.seal(path, follows=follows, app_id=app_id, epoch=epoch)

    def truncate_shard(self, path: str) -> None:
        """Remove all rows; a sealed shard refuses."""
        if seals.is_sealed(path):
            raise EngineFailure(
                f"cannot empty {path}: it is sealed", condition="DELTA_CANNOT_MODIFY_APPEND_ONLY"
            )
        if not file_sizes(view_table(path)):
            return
        with failing(f"empty {path}"):
            open_table(path).delete()

    def shard_layout(self, path: str) -> Layout:
        """Physical names by the log's newest schema."""
        return shard_layout(view_table(path))

    def create_shadow_table(self, path: str, shadow: str) -> None:
        create_shadow_table(shadow, form_of(view_table(path)))

    def evolve(
        self, path: str, columns: Sequence[Column], shard: ShardSpec, shape: Shape | None = None, *,
        app_id: str = "", epoch: int = 0,
    ) -> None:
        """All of it in one commit, which is put where no other one is."""
        wanted = Wanted(columns, shard, shape)
        evolve(lambda: self._session, local_path(path), wanted, app_id=app_id, epoch=epoch)

    delete_shard = staticmethod(delete_table)
    delete_shard_data = staticmethod(delete_data)
    list_shards = staticmethod(tables_below)


def create_placeholder(path: str) -> str | None:
    """An empty table of the same shape in a directory of its own; None when ``path`` is missing.

    EngineFailure when files lie there without a log: whoever drops the name would remove them.
    """
    path = local_path(path)
    if shard_version(path) is None:
        place = store_at(path)
        if place.exists("/") and any(place.names()):
            raise EngineFailure(
                f"{path} has files and no Delta log, and a managed name that points there",
                condition="DELTA_TABLE_NOT_FOUND",
                remedy="restore its log, or move the directory away",
            )
        return None
    form = form_of(view_table(path))
    mapping = {
        name: value for name, value in form.configuration.items()
        if name.startswith("delta.columnMapping.")
    }
    placeholder = placeholder_location(path)
    create_empty(placeholder, form.with_configuration(mapping))
    return placeholder


