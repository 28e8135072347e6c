"""Columns of a shard renamed, dropped and moved in place, by Spark and through column mapping.

What delta-rs 1.6 can do on a mapped table was tried: read, append, seal, unseal, fence, comment,
properties, empty; not ADD COLUMN. So nothing but that depends on whether a shard is mapped, a
shard is created without, and mapping is turned on by the first rename or drop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.variable_substitution import run
from catalog_migrate.engine_failures import failing
from catalog_migrate.model.layout import Alter, Layout, PlacedColumn, Shape, steps_to
from catalog_migrate.model.objects import Column
from catalog_migrate.store.address import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

MAPPING_MODE = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"


def is_mapped(table: DeltaTable) -> bool:
    """Whether column mapping is on, so that names are not those in the files."""
    return table.metadata().configuration.get(MAPPING_MODE, "none").lower() != "none"


def shard_layout(table: DeltaTable) -> Layout:
    """Physical and given names of a table's columns, with canonical types, in order."""
    schema: Mapping[str, Any] = json.loads(table.schema().to_json())
    given = datatypes.columns_of(schema)
    return Layout(
        is_mapped(table),
        tuple(
            PlacedColumn(
                (field.get("metadata") or {}).get(_PHYSICAL, column.name), column.name, column.type
            )
            for field, column in zip(schema["fields"], given, strict=True)
        ),
    )


def reshape(
    spark: SparkSession, table: DeltaTable, columns: Sequence[Column], shape: Shape
) -> bool:
    """Issue what is still missing of ``shape``; whether that was anything.

    ``columns`` are the shape's with everything that an ADD COLUMN needs.
    """
    path = local_path(table.table_uri)
    steps = steps_to(shard_layout(table), shape)
    declared = {column.name.lower(): column for column in columns}
    with failing(f"change {path} in place"):
        for step in steps:
            run(spark, _statement(path, step, declared))
    return bool(steps)


def _statement(path: str, step: Alter, declared: Mapping[str, Column]) -> str:
    if step.op == "map":
        return statements.set_property(path, MAPPING_MODE, "name")
    if step.op == "drop":
        return statements.drop_columns(path, step.names)
    (name,) = step.names
    if step.op == "rename":
        return statements.rename_column(path, name, step.to or name)
    if step.op == "add":
        return statements.add_column(path, declared[name.lower()], step.after)
    return statements.move_column(path, name, step.after)
