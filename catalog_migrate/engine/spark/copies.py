"""Copying rows from an old shard into a new one, and finding the row that made it fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog_migrate.engine.port import CopyResult
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.failures import condition_of, failing, short_message
from catalog_migrate.engine.spark.shards import data_files
from catalog_migrate.engine.spark.statements import local_path
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.tokens import string_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Projection = Sequence[tuple[str, str]]
"""(column of the target, SQL expression over the columns of the source), in order."""

_SHOWN_VALUES = 8
_SHOWN_LENGTH = 60


class Copies:
    """Bulk and tail copies by ``INSERT ... SELECT``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Projection
    ) -> CopyResult:
        """All rows of one version."""
        rows = statements.at_version(local_path(source), source_version)
        return self._insert(rows, source, local_path(target), projection)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str, projection: Projection
    ) -> CopyResult | None:
        """The rows of the data files that came between two versions, when none went.

        Comparing the two file lists rather than reading commits also serves a compaction or an
        update of the new rows alone, and is exact.
        """
        before, until = data_files(source, after), data_files(source, upto)
        if before - until:
            return None
        added = sorted(path.rsplit("/", 1)[-1] for path in until - before)
        if not added:
            return CopyResult(0, _newest(target))
        version = statements.at_version(local_path(source), upto)
        rows = statements.in_files(version, added)
        return self._insert(rows, source, local_path(target), projection)

    def _insert(self, rows: str, source: str, target: str, projection: Projection) -> CopyResult:
        try:
            with failing(f"copy {source} into {target}"):
                self._spark.sql(statements.insert(target, projection, rows))
        except EngineFailure as failure:
            if failure.transient:
                raise
            place = self._locate(rows, target, projection)
            if place is None:
                raise
            raise EngineFailure(
                f"{failure.message}; {place}", condition=failure.condition
            ) from failure
        return _newest_write(target)

    # finding the row -----------------------------------------------------------------------
    def _locate(self, rows: str, target: str, projection: Projection) -> str | None:
        """Which column of which row it was; None when no expression fails by itself."""
        for column, expression in projection:
            failure = self._failure_of(rows, expression)
            if failure is None:
                continue
            row = self._failing_row(rows, expression)
            where = f" on the row {row}" if row else ""
            return f"column {quote_sql(column)} = {expression} fails{where}: {failure}"
        return self._null_under_not_null(rows, target, projection)

    def _failure_of(self, rows: str, expression: str, condition: str = "TRUE") -> str | None:
        """Spark's message when the expression fails on one of the rows."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            frame = self._spark.sql(f"SELECT * FROM {_filtered(rows, condition)}")
            frame.selectExpr(f"{expression} AS value").write.format("noop").mode(
                "overwrite"
            ).save()
        except (PySparkException, Py4JError) as error:
            if condition_of(error) is None:
                raise
            return short_message(error)
        return None

    def _failing_row(self, rows: str, expression: str) -> str | None:
        """Halve the range of row numbers inside the data files until one row is left."""
        top = self._first(f"SELECT max(_metadata.row_index) AS top FROM {rows}")
        if top is None or top["top"] is None:
            return None
        low, high = 0, int(str(top["top"]))
        while low < high:
            middle = (low + high) // 2
            condition = f"_metadata.row_index BETWEEN {low} AND {middle}"
            if self._failure_of(rows, expression, condition) is not None:
                high = middle
            else:
                low = middle + 1
        at = f"_metadata.row_index = {low}"
        listed = self._spark.sql(
            f"SELECT DISTINCT _metadata.file_name AS name FROM {_filtered(rows, at)}"
        ).collect()
        for row in listed:
            one = f"{at} AND _metadata.file_name = {string_literal(row['name'])}"
            if self._failure_of(rows, expression, one) is not None:
                return self._shown(f"SELECT * FROM {_filtered(rows, one)}")
        return None

    def _null_under_not_null(self, rows: str, target: str, projection: Projection) -> str | None:
        """The first row whose value is NULL under a NOT NULL column of the target."""
        strict = {
            field.name.lower()
            for field in self._spark.sql(f"SELECT * FROM {statements.by_path(target)}").schema
            if not field.nullable
        }
        for column, expression in projection:
            if column.lower() not in strict:
                continue
            row = self._shown(f"SELECT * FROM {_filtered(rows, f'({expression}) IS NULL')}")
            if row is not None:
                return f"column {quote_sql(column)} = {expression} is NULL on the row {row}"
        return None

    def _shown(self, query: str) -> str | None:
        row = self._first(query)
        if row is None:
            return None
        values = list(row.items())[:_SHOWN_VALUES]
        shown = ", ".join(f"{name}={str(value)[:_SHOWN_LENGTH]}" for name, value in values)
        return f"({shown}{', ...' if len(row) > _SHOWN_VALUES else ''})"

    def _first(self, query: str) -> dict[str, object] | None:
        frame: DataFrame = self._spark.sql(query)
        found = frame.limit(1).collect()
        return found[0].asDict() if found else None


def _filtered(rows: str, condition: str) -> str:
    """A FROM clause with one more condition."""
    return f"{rows} AND {condition}" if " WHERE " in rows else f"{rows} WHERE {condition}"


def _newest(path: str) -> int:
    from deltalake import DeltaTable

    with failing(f"read the shard {path}"):
        return DeltaTable(local_path(path)).version()


def _newest_write(target: str) -> CopyResult:
    """Rows and version of the last commit; the target is private, so it is ours."""
    from deltalake import DeltaTable

    with failing(f"read the shard {target}"):
        table = DeltaTable(target)
        commit = table.history(1)[0]
    metrics = commit.get("operationMetrics") or {}
    return CopyResult(int(metrics.get("numOutputRows", 0)), int(commit["version"]))
