"""Copying rows from an old shard into a new one, and finding the row that made it fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog_migrate.delta import datatypes
from catalog_migrate.delta.log import refuse_damaged_log
from catalog_migrate.delta.table import data_files, shard_columns, view_table
from catalog_migrate.engine.port import CopyResult
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.statements import as_written, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, RowNotConverted
from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.tokens import tokenise
from catalog_migrate.store.address import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Projection = Sequence[tuple[str, str]]
"""(column of the target, SQL expression over the columns of the source), in order."""

_NUMBER = "catalog_migrate_row_number"
_SHOWN_VALUES = 8
_SHOWN_LENGTH = 60


class Copies:
    """Bulk and tail copies by ``INSERT ... SELECT``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: SparkSession = spark

    def copy_rows(
        self, source: str, source_version: int, target: str, projection: Projection
    ) -> CopyResult:
        refuse_damaged_log(source)
        rows = statements.at_version(local_path(source), source_version)
        return self._insert(rows, source, local_path(target), projection)

    def copy_tail(
        self, source: str, after: int, upto: int, target: str, projection: Projection
    ) -> CopyResult | None:
        """The rows of the data files that came between two versions, when none went.

        Comparing the two file lists rather than reading commits also serves a compaction or an
        update of the new rows alone, and is exact.
        """
        refuse_damaged_log(source)
        before, until = data_files(source, after), data_files(source, upto)
        if before - until:
            return None
        added = sorted(path.rsplit("/", 1)[-1] for path in until - before)
        if not added:
            return CopyResult(0, view_table(target).version())
        version = statements.at_version(local_path(source), upto)
        rows = statements.in_files(version, added)
        return self._insert(rows, source, local_path(target), projection)

    def _insert(self, rows: str, source: str, target: str, projection: Projection) -> CopyResult:
        if self._spark.version.startswith("4.0."):
            self._refuse_cast_structs(rows, target, projection)
        try:
            with failing(f"copy {source} into {target}"):
                run(self._spark, statements.insert(target, projection, rows))
        except EngineFailure as failure:
            if failure.transient:
                raise
            place = self._locate(rows, target, projection)
            if place is None:
                raise
            raise RowNotConverted(
                f"cannot copy {source} into {target}: {place}", condition=failure.condition
            ) from failure
        return _newest_write(target)

    def _refuse_cast_structs(self, rows: str, target: str, projection: Projection) -> None:
        """EngineFailure where the INSERT itself would cast a struct.

        Delta 4.0 then writes a NULL as a struct of NULLs, in silence. A CAST in the projection is
        Spark's, which keeps it.
        """
        types = {
            column.name.lower(): _plain(column.type)
            for column in shard_columns(target) if "STRUCT<" in column.type
        }
        nested = [(name, expression) for name, expression in projection if name.lower() in types]
        if not nested:
            return
        with failing(f"analyse the copy into {target}"):
            query = statements.select(nested, rows)
            fields = json.loads(statements.schema(self._spark, query).json())["fields"]
        for (name, expression), field in zip(nested, fields, strict=True):
            wanted, found = types[name.lower()], _plain(datatypes.canonical_of(field["type"]))
            if found != wanted:
                raise EngineFailure(
                    f"cannot copy into {target}: {name} is {wanted} and {expression} gives {found};"
                    " Delta 4.0 would write a NULL of it as a struct of NULLs",
                    remedy=f"USING CAST({expression} AS {wanted}), or Spark 4.1",
                )

    # finding the row -----------------------------------------------------------------------
    def _locate(self, rows: str, target: str, projection: Projection) -> str | None:
        """Which column of which row it was; None when that cannot be found out."""
        try:
            types = {column.name.lower(): column.type for column in shard_columns(target)}
            for column, expression in projection:
                # the INSERT casts as well: `USING city` fails there and not by itself
                stored = f"CAST(({expression}) AS {types[column.lower()]})"
                failure = self._failure_of(f"SELECT * FROM {rows}", stored)
                if failure is None:
                    continue
                row = self._failing_row(rows, stored)
                where = f" on a row with {row}" if row else ""
                return f"column {quote_sql(column)} = {expression} fails{where}: {failure}"
            return self._null_under_not_null(rows, target, projection)
        except EngineFailure:
            # The copy's own failure is raised by the caller: it says more than this one.
            return None

    def _failure_of(self, query: str, expression: str) -> str | None:
        """Spark's message when the expression fails on one of the query's rows."""
        try:
            with (
                failing(f"evaluate {expression}"),
                as_written(self._spark, query) as asked,
                as_written(self._spark, expression) as value,
            ):
                frame = self._spark.sql(asked).selectExpr(f"{value} AS value")
                frame.write.format("noop").mode("overwrite").save()
        except EngineFailure as failure:
            return failure.message.partition(": ")[2]
        return None

    def _failing_row(self, rows: str, expression: str) -> str | None:
        """Halve the range of row numbers of one partition until a single row is left.

        A filter on a number that is not deterministic stays between the scan and the expression,
        and the numbers are the same in each run as long as the files are.
        """
        numbered = f"(SELECT *, monotonically_increasing_id() AS {_NUMBER} FROM {rows})"
        with failing("number the rows"):
            ranges = statements.rows(
                self._spark, f"SELECT min({_NUMBER}) AS low, max({_NUMBER}) AS high FROM {numbered}"
                f" GROUP BY {_NUMBER} >> 33 ORDER BY low"
            )

        def between(low: int, high: int) -> str:
            return f"SELECT * FROM {numbered} WHERE {_NUMBER} BETWEEN {low} AND {high}"

        for low, high in ranges:
            if self._failure_of(between(low, high), expression) is None:
                continue
            while low < high:
                middle = (low + high) // 2
                if self._failure_of(between(low, middle), expression) is not None:
                    high = middle
                else:
                    low = middle + 1
            return self._shown(between(low, low), expression)
        return None

    def _null_under_not_null(self, rows: str, target: str, projection: Projection) -> str | None:
        """The first row whose value is NULL under a NOT NULL column of the target."""
        strict = {column.name.lower() for column in shard_columns(target) if not column.nullable}
        for column, expression in projection:
            if column.lower() not in strict:
                continue
            row = self._shown(
                f"SELECT * FROM (SELECT * FROM {rows}) WHERE ({expression}) IS NULL", expression
            )
            if row is not None:
                return (
                    f"column {quote_sql(column)} = {expression} is NULL on a row"
                    f"{f' with {row}' if row else ''}; WHERE ({expression}) IS NULL finds them all"
                )
        return None

    def _shown(self, query: str, expression: str) -> str | None:
        """The values of a row that the expression reads, and no other: errors end up in logs."""
        row = self._first(query)
        if row is None:
            return None
        read = {token.name.lower() for token in tokenise(expression) if token.is_name}
        values = [(name, value) for name, value in row.items() if name.lower() in read]
        shown = ", ".join(
            f"{name}={str(value)[:_SHOWN_LENGTH]}" for name, value in values[:_SHOWN_VALUES]
        )
        return shown + (", ..." if len(values) > _SHOWN_VALUES else "")

    def _first(self, query: str) -> dict[str, object] | None:
        with failing("show a row"):
            found = statements.rows(self._spark, f"{query} LIMIT 1")
        return found[0].asDict() if found else None


def _plain(type_: str) -> str:
    """A type without lengths of text and without NOT NULL, as an INSERT compares it."""
    return datatypes.without_lengths(type_).replace(" NOT NULL", "")


def _newest_write(target: str) -> CopyResult:
    """Rows and version of the last commit; the target is private, so it is ours."""
    with failing(f"read the shard {target}"):
        commit = view_table(target).history(1)[0]
    metrics = commit.get("operationMetrics") or {}
    return CopyResult(int(metrics.get("numOutputRows", 0)), int(commit["version"]))
