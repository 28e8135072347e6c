"""Delta tables of others, made by delta-rs, and catalogs beside them; no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.administration.adoption import AdoptionRequest
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.opening import create_catalog, open_log, read_state
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ItemRecord,
    MappingRecord,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.migrations.actions import shard_spec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.model.paths import shard_location, shard_path
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release, facts_of
from tests.decisions import Changes, commit

ORDERS = "CREATE TABLE shop.orders (id BIGINT, qty INT);"


def release_of(sql: str, name: str = "1") -> Release:
    """A release of these statements."""
    return load_texts([("release.sql", sql)], name=name, default_schema=None)


def rows_of(ids: Sequence[int]) -> Table:
    """Rows (id BIGINT, qty INT)."""
    return Table.from_pydict({
        "id": Array(list(ids), DataType.int64()), "qty": Array(list(ids), DataType.int32()),
    })


@dataclass
class Place:
    """A directory with customers' tables and catalogs in it."""

    home: Path

    def table(
        self, name: str, ids: Sequence[int] = (1, 2, 3), *, partition_by: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """A Delta table (id, qty) with these rows, and its path."""
        path = str(self.home / "data" / name)
        write_deltalake(
            path, rows_of(ids), partition_by=[partition_by] if partition_by else None,
            configuration=dict(properties) if properties else None,
        )
        return path

    def log(self, name: str = "catalog") -> CatalogLog:
        """The log of a catalog of this name, which need not exist."""
        return open_log(str(self.home / name))

    def state(self, name: str = "catalog") -> State:
        """What is committed there."""
        return read_state(self.log(name))

    def warehouse(self, name: str = "catalog") -> str:
        """The default warehouse of a catalog of this name."""
        return str(self.home / name / "warehouse")

    def installed(self, name: str = "catalog", *tables: str) -> State:
        """A catalog with tables (id, qty) of three rows each below its warehouse, as a start that
        brought them in leaves it."""
        log = self.log(name)
        state = create_catalog(log, warehouse=self.warehouse(name))
        changes = Changes()
        changes.raise_serial()
        for number, table in enumerate(tables or ("shop.orders",), start=1):
            definition = release_of(f"CREATE TABLE {table} (id BIGINT, qty INT);").objects[0]
            shard = shard_path(definition.schema, definition.name, f"{number:032x}")
            self.shard(state, f"i{number}", definition, shard)
            self.record(changes, f"i{number}", definition, shard)
        for letter in "is":
            changes.put("allocator", letter, AllocatorRecord(next=len(tables or "x") + 1))
        return commit(log, lambda _: changes, kind="test")

    def shard(
        self, state: State, item_id: str, definition: ObjectDefinition, shard: str,
        ids: Sequence[int] = (1, 2, 3), source: str | None = None,
    ) -> str:
        """A shard with rows, made as a prepare makes it; its directory."""
        path = shard_location(state.setting("warehouse"), shard)
        marks = marks_of(state, item_id, definition, source)
        Shards(None).create_shard(shard_spec(definition, path, marks))
        write_deltalake(path, rows_of(ids), mode="append")
        return path

    def record(
        self, changes: Changes, item_id: str, definition: ObjectDefinition, shard: str
    ) -> None:
        """The records of a table in force."""
        changes.put("mapping", identity_text(definition.identity), MappingRecord.of(
            definition, facts_of(definition).hashes, owner="release", item_id=item_id,
            global_id=f"s{item_id[1:]}",
        ))
        changes.put("item", item_id, ItemRecord(
            owner="release", global_id=f"s{item_id[1:]}", definition=definition, shard=shard,
        ))
        changes.put("shard", shard, ShardRecord(
            item_id=item_id, global_id=f"s{item_id[1:]}", state="live", version=1,
        ))

    def files(self) -> dict[str, tuple[int, int]]:
        """Every file and directory with size and time of change."""
        return {
            str(path): (path.stat().st_size if path.is_file() else -1, path.stat().st_mtime_ns)
            for path in self.home.rglob("*")
        }


def wanted(name: str, path: str, *, asked: bool = True) -> AdoptionRequest:
    """A table asked for by its place."""
    schema, _, bare = name.partition(".")
    return AdoptionRequest(ItemName(schema, bare), path, "path", asked)


def properties(path: str) -> dict[str, Any]:
    """The table properties there."""
    return dict(DeltaTable(path).metadata().configuration)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty directory."""
    return Place(tmp_path)


Crash = Callable[[str], None]


class Killed(BaseException):
    """The process dies here: no handler of Exception may hide it."""


def killed_at(prefix: str) -> Crash:
    """A listener that dies at the first step of this name."""

    def listen(step: str) -> None:
        if step.startswith(prefix):
            raise Killed(step)

    return listen
