"""Shards: Delta table directories, created and changed through delta-rs, by Spark where it must."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from catalog_migrate.delta import datatypes
from catalog_migrate.delta.checksum import write_checksum
from catalog_migrate.delta.log import LOG, has_log, refuse_damaged_log, why_no_log
from catalog_migrate.delta.table import (
    file_sizes,
    grown,
    open_table,
    shard_columns,
    shard_size,
    shard_version,
    table_size,
)
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark import seals, statements
from catalog_migrate.engine.spark.evolution import Wanted, evolve, is_shadow_table
from catalog_migrate.engine.spark.reshape import shard_layout
from catalog_migrate.engine.spark.seals import CONSTRAINTS
from catalog_migrate.engine.spark.shadow_table import create_empty, create_shadow_table, form_of
from catalog_migrate.engine.spark.variable_substitution import run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Layout, Shape
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import local_path, placeholder_location
from catalog_migrate.model.types import parse_type

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_APPEND_ONLY_ATTEMPTS = 20
"""Races for the next version that are lost before a shard counts as too busy."""

SPARK_ONLY = ("INTERVAL", "VOID")
"""Types that delta-rs would write into a table that Spark then cannot read."""


def needs_spark(shard: ShardSpec) -> bool:
    """Whether only Spark can create this shard."""
    return bool(shard.clustered_by) or any(
        datatypes.holds(parse_type(column.type), *SPARK_ONLY) for column in shard.columns
    )


def configuration(shard: ShardSpec) -> dict[str, str]:
    """Table properties and CHECK constraints as a Delta table's configuration."""
    checks = {f"{CONSTRAINTS}{check.name.lower()}": check.expression for check in shard.checks}
    return {**shard.properties, **shard.stamps, **checks}


class Shards:
    """What :class:`~catalog_migrate.engine.port.Engine` says of shards, copying apart."""

    def __init__(self, spark: SparkSession | None) -> None:
        """``spark`` None: what only Spark can do is refused."""
        self._session = spark

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            raise EngineFailure(
                "this needs a Spark session",
                remedy="the runtime does it at its next start: catalog-migrate run",
            )
        return self._session

    def create_shard(self, shard: ShardSpec) -> None:
        """Create through delta-rs (3 ms), or Spark for what delta-rs cannot do."""
        path = local_path(shard.path)
        if self.shard_version(path) is not None:
            self._confirm(shard)
            return
        if needs_spark(shard):
            self._create_by_spark(shard)
            return
        from deltalake import DeltaTable, Schema

        with failing(f"create the shard {path}"):
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
        self._add_missing_features(table, shard)

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
        self._add_missing_features(open_table(path), shard)

    def _add_missing_features(self, table: DeltaTable, shard: ShardSpec) -> None:
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
            write_checksum(shard.path, table.version())

    def _create_by_spark(self, shard: ShardSpec) -> None:
        with failing(f"create the shard {shard.path}"):
            run(self._spark, statements.create_shard(shard))
            for check in shard.checks:
                run(self._spark, statements.add_check(shard.path, check.name, check.expression))

    # reading -------------------------------------------------------------------------------
    def shard_version(self, path: str) -> int | None:
        """Newest version by the log."""
        return shard_version(path)

    def why_no_shard(self, path: str) -> str | None:
        """Why there is no log, unread."""
        return why_no_log(path)

    def shard_columns(self, path: str) -> Sequence[Column]:
        """Columns by the log's newest schema."""
        return shard_columns(path)

    def shard_size(self, path: str) -> tuple[int, int]:
        """(rows, bytes) by the statistics in the log; rows -1 when a file has none."""
        return shard_size(path)

    def grown(self, path: str, after: int, upto: int | None = None) -> int | None:
        """By the lists of data files of both versions."""
        return grown(path, after, upto)

    def count_rows(self, path: str, version: int) -> int:
        """Rows at a version: by statistics, else counted by Spark."""
        rows, _ = table_size(open_table(path, version=version))
        if rows >= 0:
            return rows
        with failing(f"count the rows of {path} at version {version}"):
            source = statements.at_version(local_path(path), version)
            return int(run(self._spark, f"SELECT count(*) FROM {source}").collect()[0][0])

    # seal ----------------------------------------------------------------------------------
    def seal_properties(self, path: str) -> Mapping[str, str | None]:
        """What the seal's properties are now."""
        return seals.seal_properties(path)

    def is_sealed(self, path: str) -> bool:
        """Whether the constraint stands."""
        return seals.is_sealed(path)

    def seal(self, path: str, *, follows: int, app_id: str, epoch: int) -> int:
        """One commit behind ``follows`` and whatever data came after it."""
        refuse_damaged_log(path)
        return seals.seal(path, follows=follows, app_id=app_id, epoch=epoch)

    def unseal(
        self, path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
    ) -> None:
        """Put the earlier values back, then take the constraint off: its absence is the proof."""
        seals.unseal(path, properties, app_id=app_id, epoch=epoch)

    def fence(self, path: str, app_id: str, epoch: int) -> None:
        """An empty commit with a transaction."""
        seals.fence(path, app_id, epoch)

    # changing in place ---------------------------------------------------------------------
    def truncate_shard(self, path: str) -> None:
        """Remove all rows; a sealed shard refuses."""
        if seals.is_sealed(path):
            raise EngineFailure(
                f"cannot empty {path}: it is sealed", condition="DELTA_CANNOT_MODIFY_APPEND_ONLY"
            )
        if not file_sizes(open_table(path)):
            return
        with failing(f"empty {path}"):
            open_table(path).delete()

    def shard_layout(self, path: str) -> Layout:
        """Physical names by the log's newest schema."""
        return shard_layout(open_table(path))

    def create_shadow_table(self, path: str, shadow: str) -> None:
        """An empty table like the one at ``path``."""
        create_shadow_table(shadow, form_of(open_table(path)))

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
        """All of it in one commit, which is put where no other one is."""
        wanted = Wanted(columns, shard, shape)
        evolve(lambda: self._spark, local_path(path), wanted, app_id=app_id, epoch=epoch)

    # directories ---------------------------------------------------------------------------
    def delete_shard(self, path: str) -> None:
        """Remove the directory, log last: what is half removed is still found as a shard."""
        directory = Path(local_path(path))
        with failing(f"remove {path}"):
            if not directory.is_dir():
                return
            for entry in directory.iterdir():
                if entry.name == LOG:
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
            shutil.rmtree(directory)

    def delete_shard_data(self, path: str) -> None:
        """Remove what a VACUUM may remove; ``_delta_log`` and other tables inside stay."""
        directory = Path(local_path(path))
        with failing(f"remove the data of {path}"):
            if directory.is_dir():
                _remove_data(directory)

    def list_shards(self, warehouse: str) -> Iterable[str]:
        """Directories below the warehouse that hold a ``_delta_log``, sorted."""
        return list_shards(warehouse)


def list_shards(warehouse: str) -> Sequence[str]:
    """Directories below the warehouse that hold a ``_delta_log``, sorted; needs no Spark."""
    return sorted(_walk(local_path(warehouse)))


def _remove_data(directory: Path) -> None:
    """Remove data files below a directory, and the directories that are empty then.

    An adopted directory may hold more than the table: hidden names (a query's ``_checkpoints``)
    and other tables are left alone.
    """
    for entry in directory.iterdir():
        if _is_hidden(entry.name):
            continue
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink(missing_ok=True)
        elif not has_log(entry):
            _remove_data(entry)
            if not any(entry.iterdir()):
                entry.rmdir()


def _is_hidden(name: str) -> bool:
    """Whether VACUUM passes a name over (Delta's ``DeltaTableUtils.isHiddenDirectory``).

    Hadoop's checksums of data files are hidden too, and go with those.
    """
    if not name.startswith((".", "_")) or "=" in name:
        return False
    return not (name.startswith(("_change_data", "_delta_index")) or name.endswith(".crc"))


def make_append_only(path: str) -> bool:
    """Refuse UPDATE, DELETE and MERGE in a shard from now on; whether that is new. No Spark.

    Appends under way go on: what they race for is only the next version.
    """
    from deltalake.exceptions import CommitFailedError

    for attempt in range(_APPEND_ONLY_ATTEMPTS):
        table = open_table(path)
        if table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
            return False
        with failing(f"make {path} append-only"):
            try:
                table.alter.set_table_properties(
                    {"delta.appendOnly": "true"}, raise_if_not_exists=False
                )
            except CommitFailedError:
                if attempt == _APPEND_ONLY_ATTEMPTS - 1:
                    raise
                continue
        return True
    return False


def create_placeholder(path: str) -> str | None:
    """An empty table of the same shape in a directory of its own; None when ``path`` is gone.

    EngineFailure when files lie there without a log: whoever drops the name would remove them.
    """
    path = local_path(path)
    if shard_version(path) is None:
        if Path(path).is_dir() and any(Path(path).iterdir()):
            raise EngineFailure(
                f"{path} has files and no Delta log, and a managed name that points there",
                condition="DELTA_TABLE_NOT_FOUND",
                remedy="restore its _delta_log, or move the directory away",
            )
        return None
    form = form_of(open_table(path))
    mapping = {
        name: value for name, value in form.configuration.items()
        if name.startswith("delta.columnMapping.")
    }
    placeholder = placeholder_location(path)
    create_empty(placeholder, form.with_configuration(mapping))
    return placeholder


def write_mark(path: str, properties: dict[str, str], *, follows: int) -> int | None:
    """Set properties at exactly version ``follows + 1``; None when another writer took it."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    table = open_table(path, version=follows)
    if shard_version(path) != follows:
        return None
    with failing(f"mark {path}"):
        try:
            table.alter.set_table_properties(
                properties, raise_if_not_exists=False,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            if shard_version(path) == follows:
                raise  # no race: the table has a feature that cannot be written
            return None
    if table.version() != follows + 1:
        return None
    return follows + 1


def _walk(root: str) -> Iterator[str]:
    for directory, below, _ in os.walk(root):
        if LOG in below:
            below.clear()
            yield directory
        below[:] = [name for name in below if not is_shadow_table(name)]
