"""Rows of a new table by a query over tables at fixed versions, whatever names the session has.

As in :mod:`catalog_migrate.engine.spark.stand_ins` the names in the query are replaced by those of
stand-ins, which here have rows: temporary views over the tables' directories.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import CopyResult, FillRequest, FunctionSpec, ViewSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.shards import is_without_values, newest_write
from catalog_migrate.engine.spark.statements import run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, RowNotConverted
from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.substitution import replace_names
from catalog_migrate.store.address import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_serial = itertools.count(1)
_CHECK = re.compile(r"CHECK constraint (\S+) (\(.*?\)) violated by row", re.DOTALL)
_NOT_NULL = re.compile(r"NOT NULL constraint violated for column: (\S+?)\.?(?:\s|$)")
_ABOUT_ROWS = frozenset({
    "CAST_INVALID_INPUT", "CAST_OVERFLOW", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "CANNOT_PARSE_TIMESTAMP", "NUMERIC_VALUE_OUT_OF_RANGE",
    "EXCEED_LIMIT_LENGTH", "USER_RAISED_EXCEPTION",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "NOT_NULL_ASSERT_VIOLATION", "ROW_VALUE_IS_NULL",
    "NULL_MAP_KEY", "DUPLICATED_MAP_KEY", "COMPARATOR_RETURNS_NULL",
    "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "DATETIME_OVERFLOW",
    "DATETIME_FIELD_OUT_OF_BOUNDS", "ILLEGAL_DAY_OF_WEEK", "INVALID_FRACTION_OF_SECOND",
    "INVALID_TIMEZONE", "DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "INTERVAL_ARITHMETIC_OVERFLOW",
    "INTERVAL_DIVIDED_BY_ZERO", "NUMERIC_OUT_OF_SUPPORTED_RANGE", "CAST_OVERFLOW_IN_TABLE_INSERT",
    "INVALID_ARRAY_INDEX", "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", "INVALID_INDEX_OF_ZERO",
    "INVALID_BITMAP_POSITION", "COLLECTION_SIZE_LIMIT_EXCEEDED", "INVALID_PARAMETER_VALUE",
    "INVALID_REGEXP_REPLACE", "CANNOT_DECODE_URL", "INVALID_URL", "INVALID_UTF8_STRING",
    "MALFORMED_CHARACTER_CODING", "INVALID_BYTE_STRING", "CONVERSION_INVALID_INPUT",
    "CANNOT_PARSE_DECIMAL", "CANNOT_PARSE_INTERVAL", "CANNOT_PARSE_TIME", "CANNOT_PARSE_JSON_FIELD",
    "INVALID_INTERVAL_FORMAT", "MALFORMED_RECORD_IN_PARSING", "MALFORMED_VARIANT",
    "INVALID_VARIANT_CAST", "VARIANT_DUPLICATE_KEY", "VARIANT_SIZE_LIMIT",
    "VARIANT_CONSTRUCTOR_SIZE_LIMIT", "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    "ROW_SUBQUERY_TOO_MANY_ROWS",
})  # fmt: skip
"""Error classes, without what follows a dot, that other rows would not meet."""


class Fills:
    """Fills by ``INSERT ... query``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: SparkSession = spark

    def fill_rows(self, target: str, request: FillRequest) -> CopyResult:
        relations: dict[tuple[str, str], str] = {}
        functions: dict[tuple[str, str], str] = {}
        with ExitStack() as drops:
            for name, (path, version) in request.tables.items():
                stand_in = relations[name.folded] = _stand_in()
                source = statements.at_version(local_path(path), version)
                self._create_stand_in(stand_in, f"SELECT * FROM {source}", drops)
            for each in request.objects:
                stand_in = _stand_in()
                if isinstance(each, FunctionSpec):
                    spec = replace(each, body=replace_names(each.body, relations, functions))
                    self._create_stand_in_function(stand_in, spec, drops)
                    functions[each.name.folded] = stand_in
                else:
                    body = replace_names(each.sql, relations, functions)
                    self._create_stand_in(stand_in, _in_contract(each, body), drops)
                    relations[each.name.folded] = stand_in
            query = replace_names(request.query, relations, functions)
            self._insert_query(local_path(target), request.columns, query)
        return newest_write(local_path(target))

    def _create_stand_in(self, name: str, query: str, drops: ExitStack) -> None:
        with failing("create a stand-in"):
            run(self._spark, f"CREATE TEMPORARY VIEW {quote_sql(name)} AS {query}")
        drops.callback(self._spark.catalog.dropTempView, name)

    def _create_stand_in_function(
        self, name: str, function: FunctionSpec, drops: ExitStack
    ) -> None:
        with failing(f"create a stand-in of the function {function.name}"):
            run(self._spark, statements.create_function(function, temporary_as=name))
        drops.callback(
            run, self._spark, f"DROP TEMPORARY FUNCTION IF EXISTS {quote_sql(name)}"
        )

    def _insert_query(self, target: str, columns: Sequence[str], query: str) -> None:
        try:
            with failing(f"fill {target}"):
                run(self._spark, statements.insert_query(target, columns, query))
        except EngineFailure as failure:
            if failure.transient or (
                not _is_about_row(failure) and is_without_values(failure)
            ):
                raise
            if not _is_about_row(failure):
                raise EngineFailure(
                    f"cannot fill {target}: [{failure.condition or 'no error class'}]",
                    condition=failure.condition,
                ) from None
            raise RowNotConverted(
                _without_values(failure), condition=failure.condition
            ) from None  # what Spark says has the values of the row


def _stand_in() -> str:
    return f"catalog_migrate_fill_{next(_serial)}"


def _in_contract(view: ViewSpec, body: str) -> str:
    """A view's query with the names and types that it is in force with."""
    positions = ", ".join(f"c{number}" for number in range(len(view.columns)))
    items = ", ".join(
        f"CAST(c{number} AS {datatypes.without_lengths(column.type)}) AS {quote_sql(column.name)}"
        for number, column in enumerate(view.columns)
    )
    text = body.rstrip().rstrip(";")
    # The line break ends a comment that the body may end with.
    return f"SELECT {items} FROM ({text}\n) AS body ({positions})"


def _is_about_row(failure: EngineFailure) -> bool:
    """Whether it is a row that was refused, so that no other cause is to be looked for."""
    condition = (failure.condition or "").partition(".")[0]
    said = failure.message
    return condition in _ABOUT_ROWS or bool(_CHECK.search(said) or _NOT_NULL.search(said))


def _without_values(failure: EngineFailure) -> str:
    """What a row failed at, in words that have no value of it."""
    check = _CHECK.search(failure.message)
    if check is not None:
        return f"gives a row that violates CHECK {check[1]} {check[2]}"
    null = _NOT_NULL.search(failure.message)
    if null is not None:
        return f"gives NULL for column {null[1]}, which is NOT NULL"
    return f"fails [{failure.condition}]"
