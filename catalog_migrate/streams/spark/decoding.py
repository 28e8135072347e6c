"""From a record of a topic to a row: FORMAT JSON, TEXT and BYTES, and what does not fit.

Formats of a schema registry are decoded by :mod:`catalog_migrate.streams.spark.registry_formats`
into the same two columns, row and problem, batch by batch.

Expressions are SQL text: built through the functions of PySpark they cost hundreds of calls into
the JVM at every start of a query, half a second of ten queries that restart together. They stand in
one SELECT, where later ones use earlier ones by name, because Spark analyses each SELECT anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from catalog_migrate.connectors.query import POSITION, QuerySpec, declared_columns
from catalog_migrate.delta import datatypes
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import fold, quote_part, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Sized, parse_type
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.streams.formats import exact_values
from catalog_migrate.streams.formats.exact_values import Exact, exact_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BAD_RECORD_MARK = "cannot read the record at "
"""What the message begins with when ON ERROR FAIL stops a query."""

_KEY_NOT_TEXT = "its key is not UTF-8"
PROBLEM = "__catalog_migrate_problem"
_PARSED = "__catalog_migrate_parsed"
_DOCUMENT = "__catalog_migrate_document"
_WRITTEN = "__catalog_migrate_written"
ROW = "__catalog_migrate_row"
KEY = "__catalog_migrate_key"
"""The text of a key with KEY FORMAT AVRO."""

_GOOD = "__catalog_migrate_good"
_CORRUPT = "__catalog_migrate_corrupt"
_END = "__catalog_migrate_end"
_TEXT = "CAST(value AS STRING)"
_FROM_KAFKA = {"KEY": "key", "PARTITION": "partition", "OFFSET": "offset", "TIMESTAMP": "timestamp"}
_PLACE = ("topic", "partition", "offset")
_MESSAGE = (
    f"concat({string_literal(BAD_RECORD_MARK + 'topic ')}, topic, ', partition ',"
    f" CAST(partition AS STRING), ', offset ', CAST(offset AS STRING), ': ', {PROBLEM},"
    " coalesce(concat(' (key sha256 ', substring(sha2(key, 256), 1, 16), ')'), ''))"
)
"""Where a bad record lies and why it is bad; its key as a hash, for a key is a value too."""
_POSITIONS = dict(zip(POSITION, ("topic", "partition", "offset", "timestamp"), strict=True))


def decode(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """Kafka records with their decoded row and what is wrong with it, for readable and unreadable.

    A record is bad when it has no value (JSON), is not UTF-8 (JSON, TEXT), is not exactly one JSON
    object, has a value of another type than declared, is too long for CHAR or VARCHAR, leaves a NOT
    NULL column out, or has a key that INCLUDE would show and is not UTF-8. Fields that were not
    declared are passed over; names of fields are compared with their case. With DECODING 'exact' it
    is bad as well when a column would hold another value than the one that was written.
    """
    return frame.selectExpr("*", *_steps(spec)).drop(_PARSED, _DOCUMENT, _WRITTEN)


def _steps(spec: QuerySpec) -> list[str]:
    """The row and what is wrong with it, as columns that use each other."""
    columns = declared_columns(spec)
    written = (spec.external.format or "JSON").upper()
    parsed: list[str] = []
    if written == "JSON":
        parsed, row, problem = json_steps(columns, exact=exact_of(spec.external))
    elif written in ("TEXT", "BYTES"):
        row, problem = _whole(spec, written, columns)
    else:
        raise EngineFailure(
            f"source {spec.name}: FORMAT {written} is not known",
            remedy="write FORMAT JSON, TEXT or BYTES",
        )
    rules = [problem, *broken_rules(columns), *key_rule(spec)]
    return [*parsed, f"{row} AS {ROW}", f"coalesce({', '.join(rules)}) AS {PROBLEM}"]


def key_rule(spec: QuerySpec) -> list[str]:
    """Return what is wrong with a key that INCLUDE shows as text."""
    key = next(
        (name for what, name in spec.external.include.items() if what.upper() == "KEY"), None
    )
    if key is None or spec.external.key_format == "AVRO":
        return []
    if not any(c.type == "STRING" for c in spec.columns if c.name == key):
        return []
    return [_when("NOT is_valid_utf8(CAST(key AS STRING))", string_literal(_KEY_NOT_TEXT))]


def _whole(spec: QuerySpec, written: str, columns: Sequence[Column]) -> tuple[str, str]:
    """Row and problem where the value is the one column."""
    if len(columns) != 1:
        raise EngineFailure(
            f"source {spec.name}: FORMAT {written} gives one column, {len(columns)} are declared"
        )
    value = _TEXT if written == "TEXT" else "value"
    problem = "CAST(NULL AS STRING)"
    if written == "TEXT":
        problem = _when(f"NOT is_valid_utf8({_TEXT})", "'it is not UTF-8'")
    return f"named_struct({string_literal(columns[0].name)}, {value})", problem


def readable(decoded: DataFrame, spec: QuerySpec) -> DataFrame:
    """Return the rows of the shard that good records give."""
    return _rows(decoded.where(f"{PROBLEM} IS NULL"), spec)


def unreadable(decoded: DataFrame) -> DataFrame:
    """Return the rows of the dead letter table that bad records give."""
    positions = [f"{source} AS {name}" for name, source in _POSITIONS.items()]
    return decoded.where(f"{PROBLEM} IS NOT NULL").selectExpr(
        *positions, "key", "value", f"{PROBLEM} AS error"
    )


def described_unreadable(decoded: DataFrame, limit: int) -> tuple[str, ...]:
    """Where bad records lie and what is wrong with them, at most ``limit``; runs a job."""
    bad = decoded.where(f"{PROBLEM} IS NOT NULL").selectExpr(
        "topic", "partition", "offset", f"{PROBLEM} AS problem"
    )
    return tuple(
        f"{row['topic']}:{row['partition']} offset {row['offset']} cannot be read: {row['problem']}"
        for row in bad.orderBy("topic", "partition", "offset").limit(limit).collect()
    )


def first_unreadable(decoded: DataFrame) -> str | None:
    """The message about the bad record that comes first, None when all are good; runs a job."""
    bad = decoded.where(f"{PROBLEM} IS NOT NULL").selectExpr(f"{_MESSAGE} AS message", *_PLACE)
    found = bad.orderBy(*_PLACE).limit(1).collect()
    return str(found[0]["message"]) if found else None


def all_or_fail(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """Return the rows of the shard; the first bad record fails the query and says where it lies."""
    good = f"CASE WHEN {PROBLEM} IS NOT NULL THEN raise_error({_MESSAGE}) ELSE {ROW} END"
    kept = [*dict.fromkeys([*_FROM_KAFKA.values(), *_POSITIONS.values()])]
    return _rows(frame.selectExpr(*kept, *_steps(spec), f"{good} AS {_GOOD}"), spec, row=_GOOD)


def _rows(decoded: DataFrame, spec: QuerySpec, *, row: str = ROW) -> DataFrame:
    """The columns of the shard, in its order."""
    own = {fold(column.name) for column in declared_columns(spec)}
    included = {fold(name): what for what, name in spec.external.include.items()}
    selected = []
    for column in spec.columns:
        name = fold(column.name)
        if name in own:
            value = _field(column, row)
        elif name in included:
            what = included[name].upper()
            value = _FROM_KAFKA[what]
            if what == "KEY" and spec.external.key_format == "AVRO":
                value = KEY
            elif column.type == "STRING":
                value = f"CAST({value} AS STRING)"
        else:
            value = _POSITIONS[name]
        selected.append(f"{value} AS {quote_sql(column.name)}")
    return decoded.selectExpr(*selected)


def json_steps(
    columns: Sequence[Column], value: str = "value", *, exact: Exact | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[str], str, str]:
    """Return the steps before, the row and the problem of JSON in the binary column ``value``.

    Without ``exact`` what Spark's parser makes of a value is taken, as earlier versions did.
    ``options`` are more for that parser.
    """
    text = f"CAST({value} AS STRING)"
    wrapped = _wrapped(text)
    parsed = f"{_from_json(columns, wrapped, exact, options)} AS {_PARSED}"
    row = f"get({_PARSED}.rows, 0)"
    if exact is None:
        return [parsed], row, _json_problem(columns, value, text)
    written = exact_values.written_struct((each.name, parse_type(each.type)) for each in columns)
    document = f"try_parse_json({wrapped})"
    steps = [parsed, f"{document} AS {_DOCUMENT}"]
    if written is not None:
        type_ = string_literal(written)
        steps.append(f"try_variant_get({_DOCUMENT}, '$.rows[0]', {type_}) AS {_WRITTEN}")
    problem = _json_problem(columns, value, text, [
        _when(exact_values.halves(text), string_literal(exact_values.PAIRS)),
        # it is JSON, so that this parser, which is as strict, has found a name again
        _when(f"{_DOCUMENT} IS NULL", string_literal(exact_values.ONCE)),
        *exact_values.misfits(columns, row, _WRITTEN, exact),
    ])
    return steps, exact_values.as_written(columns, row, _WRITTEN, exact), problem


def _wrapped(text: str) -> str:
    """Each value inside an array that we end ourselves.

    Spark's parser stops behind the first value and passes over the rest in silence: a second
    object, or garbage. Inside the array both are errors, or make it longer than two.
    """
    end = string_literal(',{"' + _END + '":true}]}')
    return f"""concat('{{"rows":[', {text}, {end})"""


def _from_json(
    columns: Sequence[Column], wrapped: str, exact: Exact | None, more: Mapping[str, str]
) -> str:
    schema = string_literal(f"rows ARRAY<{_struct_ddl(columns)}>, {_CORRUPT} STRING")
    options = {**more, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if exact is not None:
        options |= {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    said = ", ".join(string_literal(text) for pair in options.items() for text in pair)
    return f"from_json({wrapped}, {schema}, map({said}))"


def _json_problem(
    columns: Sequence[Column], value: str, text: str, rules: Sequence[str] = ()
) -> str:
    """Why a value is not one object of the declared columns; NULL for one that is.

    ``rules`` are of values that fit: texts that say what is wrong all the same.
    """
    rows = f"{_PARSED}.rows"
    # What fits only in part comes back with NULL in place of the misfit, and marked as corrupt.
    alone = (
        f"size({rows}) = 2 AND get({rows}, 0) IS NOT NULL AND get({rows}, 1).{_END} <=> true"
    )
    fields = f"from_json({text}, 'map<string,string>')"
    misfits = ", ".join(
        _when(
            f"element_at({fields}, {string_literal(column.name)}) IS NOT NULL"
            f" AND {_field(column, f'get({rows}, 0)')} IS NULL",
            string_literal(f"{quote_part(column.name)} {column.type}"),
        )
        for column in columns
    )
    # concat_ws passes over NULL; told apart from nothing, the message goes without names
    misfit = f"'its value does not fit ' || nullif(concat_ws(', ', {misfits}), '')"
    good = f" ELSE coalesce({', '.join(rules)})" if rules else ""
    return (
        f"CASE WHEN {value} IS NULL THEN 'it has no value'"
        f" WHEN NOT is_valid_utf8({text}) THEN 'it is not UTF-8'"
        f" WHEN NOT coalesce({alone}, false)"
        " THEN 'it is not one JSON object of the declared columns'"
        f" WHEN {_PARSED}.{_CORRUPT} IS NOT NULL THEN coalesce({misfit},"
        f" 'a value inside of it does not fit the declared type'){good} END"
    )


def broken_rules(columns: Sequence[Column]) -> list[str]:
    """What Delta would refuse the whole batch for: NULL where there must be a value, lengths."""
    rules = []
    for column in columns:
        value = _field(column)
        tree = parse_type(column.type)
        if not column.nullable:
            said = string_literal(f"it has no {column.name}, which is NOT NULL")
            rules.append(_when(f"{value} IS NULL", said))
        if isinstance(tree, Sized):
            said = string_literal(f"its {column.name} is longer than {column.type}")
            rules.append(_when(f"length({value}) > {tree.length}", said))
    return rules


def _field(column: Column, row: str = ROW) -> str:
    return f"{row}.{quote_sql(column.name)}"


def _when(condition: str, value: str) -> str:
    return f"CASE WHEN {condition} THEN {value} END"


def _struct_ddl(columns: Sequence[Column]) -> str:
    fields = [
        f"{quote_sql(column.name)}: {datatypes.without_lengths(column.type)}" for column in columns
    ]
    return f"STRUCT<{', '.join([*fields, f'{_END}: BOOLEAN'])}>"
