"""An engine without a JVM: real Delta shards through delta-rs, names in this process' memory.

It copies plain columns and widening casts, which is what the releases of these tests need. So a
start takes a second, and many processes can fight over one catalog and its shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    CopyResult,
    FunctionSpec,
    Registration,
    UserDefinition,
    ViewSpec,
)
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.engine_failures import failing
from catalog_migrate.model.names import Identity, ItemName

_COLUMN = re.compile(r"`?(\w+)`?|CAST\(`?(\w+)`? AS \w+\)")
_ARROW = {"BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string()}

Projection = Sequence[tuple[str, str]]


def read(path: str, version: int, *, without: frozenset[str] = frozenset()) -> pa.Table:
    """Rows of the data files of a version, those of ``without`` left out."""
    table = DeltaTable(path, version=version)
    schema = pa.schema(
        [(c.name, _ARROW[c.type]) for c in Shards(None).shard_columns(path)]
    )
    with failing(f"read {path}"):
        parts = [pq.read_table(uri) for uri in table.file_uris() if uri not in without]
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


class DirectEngine:
    """Implements the engine port; ``on_call`` hears of every call before and after its effect."""

    def __init__(self, on_call: Callable[[str], None] = lambda _: None) -> None:
        self._shards = Shards(None)
        self._names: dict[tuple[str, str], Registration] = {}
        self.on_call = on_call

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("on_call", "persistent_names", "catalog"):
            return object.__getattribute__(self, name)
        try:
            value = object.__getattribute__(self, name)
        except AttributeError:
            value = getattr(self._shards, name)  # about shards alone, without Spark

        def call(*args: Any, **kwargs: Any) -> Any:
            self.on_call(name)
            result = value(*args, **kwargs)
            self.on_call(f"{name}.done")
            return result

        return call

    @property
    def persistent_names(self) -> bool:
        """They die with this process."""
        return False

    @property
    def catalog(self) -> str:
        """The session's own."""
        return "spark_catalog"

    # names ---------------------------------------------------------------------------------
    def schemas(self) -> Sequence[str]:
        """Those that hold a name."""
        return sorted({key[0] for key in self._names})

    def user_definitions(
        self, schema: str, *, but: Container[Identity] = ()
    ) -> Sequence[UserDefinition]:
        """No user of these tests has a view."""
        return []

    def ensure_schema(self, schema: str, lineage: str = "") -> None:
        """Schemas need no making."""

    def drop_schema_if_empty(self, schema: str, lineage: str = "") -> None:
        """Schemas need no dropping."""

    def names(self, schema: str) -> frozenset[ItemName]:
        """Names of relations."""
        return frozenset(held.name for held in self.observe(schema))

    def observe(self, schema: str) -> Sequence[Registration]:
        """All that stands in a schema."""
        return [held for key, held in sorted(self._names.items()) if key[0] == schema.lower()]

    def register_table(self, name: ItemName, path: str) -> None:
        """A name for a shard that is there."""
        assert self._shards.shard_version(path) is not None, path
        self._names[name.folded] = Registration(name, "table", location=path)

    def create_view(self, view: ViewSpec, *, over: Registration | None = None) -> None:
        """Remember a view."""
        self._names[view.name.folded] = Registration(
            view.name, "view", properties=view.properties, text=view.sql
        )

    def create_function(
        self, function: FunctionSpec, *, over: Registration | None = None
    ) -> None:
        """Remember a function."""
        self._names[function.name.folded] = Registration(
            function.name, "function", properties=function.properties
        )

    def drop(self, registration: Registration, **_: object) -> None:
        """Forget a name."""
        self._names.pop(registration.name.folded, None)

    def bind(self, requests: Sequence[AnyRequest]) -> Sequence[BindResult]:
        """Every text of these releases is plain."""
        return [
            BindResult(
                each.name, None, each.view.columns if isinstance(each, BindRequest) else None
            )
            for each in requests
        ]

    # copies --------------------------------------------------------------------------------
    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Projection
    ) -> CopyResult:
        """All rows of one version."""
        return self._insert(read(source, source_version), target, projection)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str, projection: Projection
    ) -> CopyResult | None:
        """The rows of files that came; None when some went."""
        before = frozenset(DeltaTable(source, version=after).file_uris())
        if before - frozenset(DeltaTable(source, version=upto).file_uris()):
            return None
        return self._insert(read(source, upto, without=before), target, projection)

    def _insert(self, rows: pa.Table, target: str, projection: Projection) -> CopyResult:
        with failing(f"copy into {target}"):
            table = DeltaTable(target)
            if rows.num_rows:
                columns: Mapping[str, pa.DataType] = {
                    c.name: _ARROW[c.type] for c in self._shards.shard_columns(target)
                }
                taken: dict[str, pa.ChunkedArray] = {}
                for column, expression in projection:
                    match = _COLUMN.fullmatch(expression)
                    assert match is not None, expression
                    taken[column] = rows[match[1] or match[2]].cast(columns[column])
                write_deltalake(table, pa.table(taken), mode="append")
            return CopyResult(rows.num_rows, DeltaTable(target).version())
