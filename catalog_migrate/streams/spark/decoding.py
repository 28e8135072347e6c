"""From a record of a topic to a row: FORMAT JSON, TEXT and BYTES, and what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.engine.spark import datatypes
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import fold, quote_part, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Sized, parse_type
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark.columns import POSITION, declared_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

BAD_RECORD_MARK = "cannot read the record at "
"""What the message begins with when ON ERROR FAIL stops a query."""

_KEY_NOT_TEXT = "its key is not UTF-8"
_PROBLEM = "__catalog_migrate_problem"
_PARSED = "__catalog_migrate_parsed"
_ROW = "__catalog_migrate_row"
_CORRUPT = "__catalog_migrate_corrupt"
_END = "__catalog_migrate_end"
_FROM_KAFKA = {"KEY": "key", "PARTITION": "partition", "OFFSET": "offset", "TIMESTAMP": "timestamp"}
_POSITIONS = dict(zip(POSITION, ("topic", "partition", "offset", "timestamp"), strict=True))


def decode(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """Kafka records with their decoded row and what is wrong with it, for the two functions below.

    A record is bad when it has no value (JSON), is not UTF-8 (JSON, TEXT), is not exactly one JSON
    object, has a value of another type than declared, is too long for CHAR or VARCHAR, leaves a NOT
    NULL column out, or has a key that INCLUDE would show and is not UTF-8. Fields that were not
    declared are passed over; names of fields are compared with their case.
    """
    decoded = _decode_value(frame, spec, declared_columns(spec))
    key = next(
        (name for what, name in spec.external.include.items() if what.upper() == "KEY"), None
    )
    if key is None or not any(c.type == "STRING" for c in spec.columns if c.name == key):
        return decoded
    not_text = F.when(~F.is_valid_utf8(F.col("key").cast("string")), F.lit(_KEY_NOT_TEXT))
    return decoded.withColumn(_PROBLEM, F.coalesce(F.col(_PROBLEM), not_text))


def _decode_value(frame: DataFrame, spec: QuerySpec, columns: Sequence[Column]) -> DataFrame:
    written = (spec.external.format or "JSON").upper()
    if written == "JSON":
        return _decode_json(frame, columns)
    if written not in ("TEXT", "BYTES"):
        raise EngineFailure(
            f"source {spec.name}: FORMAT {written} is not known",
            remedy="write FORMAT JSON, TEXT or BYTES",
        )
    if len(columns) != 1:
        raise EngineFailure(
            f"source {spec.name}: FORMAT {written} gives one column, {len(columns)} are declared"
        )
    value = F.col("value")
    text = value.cast("string") if written == "TEXT" else value
    problem = F.lit(None).cast("string")
    if written == "TEXT":
        problem = F.when(~F.is_valid_utf8(text), F.lit("it is not UTF-8"))
    decoded = frame.withColumn(_ROW, F.struct(text.alias(columns[0].name)))
    return decoded.withColumn(
        _PROBLEM, F.coalesce(problem, *_broken_rules(F.col(_ROW), columns))
    )


def readable(decoded: DataFrame, spec: QuerySpec) -> DataFrame:
    """The rows of the shard that good records give."""
    return _rows(decoded.where(F.col(_PROBLEM).isNull()), spec, F.col(_ROW))


def unreadable(decoded: DataFrame) -> DataFrame:
    """The rows of the dead letter table that bad records give."""
    return decoded.where(F.col(_PROBLEM).isNotNull()).select(
        *(F.col(source).alias(name) for name, source in _POSITIONS.items()),
        "key",
        "value",
        F.col(_PROBLEM).alias("error"),
    )


def all_or_fail(decoded: DataFrame, spec: QuerySpec) -> DataFrame:
    """The rows of the shard; the first bad record fails the query and says where it lies."""
    message = F.concat(
        F.lit(f"{BAD_RECORD_MARK}topic "), F.col("topic"),
        F.lit(", partition "), F.col("partition").cast("string"),
        F.lit(", offset "), F.col("offset").cast("string"), F.lit(": "), F.col(_PROBLEM),
    )  # fmt: skip
    row = F.when(F.col(_PROBLEM).isNotNull(), F.raise_error(message)).otherwise(F.col(_ROW))
    return _rows(decoded, spec, row)


def _rows(decoded: DataFrame, spec: QuerySpec, row: Expression) -> DataFrame:
    """The columns of the shard, in its order."""
    own = {fold(column.name) for column in declared_columns(spec)}
    included = {fold(name): what for what, name in spec.external.include.items()}
    selected = []
    for column in spec.columns:
        name = fold(column.name)
        if name in own:
            value = row.getField(column.name)
        elif name in included:
            value = F.col(_FROM_KAFKA[included[name].upper()])
            if column.type == "STRING":
                value = value.cast("string")
        else:
            value = F.col(_POSITIONS[name])
        selected.append(value.alias(column.name))
    return decoded.select(*selected)


def _decode_json(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Each value inside an array that we end ourselves.

    Spark's parser stops behind the first value and passes over the rest in silence: a second
    object, or garbage. Inside the array both are errors, or make it longer than two.
    """
    text = F.col("value").cast("string")
    parsed = F.from_json(
        F.concat(F.lit('{"rows":['), text, F.lit(',{"' + _END + '":true}]}')),
        f"rows ARRAY<{_struct_ddl(columns)}>, {_CORRUPT} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    rows = F.col(_PARSED).getField("rows")
    # What fits only in part comes back with NULL in place of the misfit, and marked as corrupt.
    alone = (
        (F.size(rows) == 2)
        & F.get(rows, F.lit(0)).isNotNull()
        & F.get(rows, F.lit(1)).getField(_END).eqNullSafe(F.lit(True))
    )
    fields = F.from_json(text, "map<string,string>")
    misfits = F.array_compact(
        F.array(*(
            F.when(
                F.element_at(fields, F.lit(column.name)).isNotNull()
                & F.get(rows, F.lit(0)).getField(column.name).isNull(),
                F.lit(f"{quote_part(column.name)} {column.type}"),
            )
            for column in columns
        ))
    )
    problem = (
        F.when(F.col("value").isNull(), F.lit("it has no value"))
        .when(~F.is_valid_utf8(text), F.lit("it is not UTF-8"))
        .when(
            ~F.coalesce(alone, F.lit(False)),
            F.lit("it is not one JSON object of the declared columns"),
        )
        .when(
            F.col(_PARSED).getField(_CORRUPT).isNotNull(),
            F.when(
                F.size(misfits) > 0,
                F.concat(F.lit("its value does not fit "), F.array_join(misfits, ", ")),
            ).otherwise(F.lit("a value inside of it does not fit the declared type")),
        )
    )
    decoded = frame.withColumn(_PARSED, parsed).withColumn(
        _ROW, F.get(rows, F.lit(0))
    )
    return decoded.withColumn(
        _PROBLEM, F.coalesce(problem, *_broken_rules(F.col(_ROW), columns))
    )


def _broken_rules(row: Expression, columns: Sequence[Column]) -> list[Expression]:
    """What Delta would refuse the whole batch for: NULL where there must be a value, lengths."""
    rules = [F.lit(None).cast("string")]
    for column in columns:
        value = row.getField(column.name)
        tree = parse_type(column.type)
        if not column.nullable:
            rules.append(
                F.when(value.isNull(), F.lit(f"it has no {column.name}, which is NOT NULL"))
            )
        if isinstance(tree, Sized):
            rules.append(
                F.when(
                    F.length(value) > tree.length,
                    F.lit(f"its {column.name} is longer than {column.type}"),
                )
            )
    return rules


def _struct_ddl(columns: Sequence[Column]) -> str:
    fields = [
        f"{quote_sql(column.name)}: {datatypes.without_lengths(column.type)}" for column in columns
    ]
    return f"STRUCT<{', '.join([*fields, f'{_END}: BOOLEAN'])}>"
