"""From the lines of files to rows, with DECODING 'exact': JSON and CSV of FILES sources.

Files have no dead letters: the first line with a value that its column would hold as another one
fails the query, and says in which file it lies, which column it is and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from catalog_migrate.connectors.files.options import options_not_of_lines
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import parse_type
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.streams.formats import exact_values
from catalog_migrate.streams.formats.exact_values import Exact
from catalog_migrate.streams.spark import decoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_LINES = frozenset({
    "pathglobfilter", "maxfilespertrigger", "linesep", "compression", "wholetext",
})  # fmt: skip
_FILE = "__catalog_migrate_file"
_PROBLEM = decoding.PROBLEM


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of a JSON reader for the parser of one line, and those for the lines."""
    lines = {name: value for name, value in options.items() if name.lower() in _OF_LINES}
    return {name: value for name, value in options.items() if name not in lines}, lines


def require_lines(spec: QuerySpec, options: Mapping[str, str]) -> None:
    """Refuse options by which a record of JSON is no line of UTF-8, with EngineFailure.

    CREATE and ALTER refuse them too; this is for what an earlier version let in.
    """
    found = options_not_of_lines({f"files.{name}": value for name, value in options.items()})
    if found:
        raise EngineFailure(
            f"source {spec.name}: DECODING 'exact' reads JSON by lines of UTF-8, its connection"
            f" says {', '.join(found)}",
            condition="NOT_SUPPORTED",
            remedy=f"ALTER SOURCE {spec.name} SET (DECODING = 'lenient'), or take the option away",
        )


def json_lines(
    lines: DataFrame, spec: QuerySpec, exact: Exact, options: Mapping[str, str]
) -> DataFrame:
    """One row of each line that is not empty."""
    return _all_or_fail(decode_lines(lines, spec, exact, options), spec.columns)


def decode_lines(
    lines: DataFrame, spec: QuerySpec, exact: Exact, options: Mapping[str, str]
) -> DataFrame:
    """Return row and problem of each line that is not empty."""
    steps, row, problem = decoding.json_steps(
        spec.columns, "value", exact=exact, options=options
    )
    rules = ", ".join([problem, *decoding.broken_rules(spec.columns)])
    return lines.selectExpr("value", f"_metadata.file_path AS {_FILE}").where(
        "trim(value) <> ''"
    ).selectExpr(
        _FILE, *steps, f"{row} AS {decoding.ROW}", f"coalesce({rules}) AS {_PROBLEM}"
    )


def csv_columns(columns: Sequence[Column], exact: Exact) -> tuple[Column, ...]:
    """As what a CSV reader is to read columns: as text where it would make another value of it."""
    return tuple(
        Column(column.name, "STRING") if _by_text(column, exact) is not None else column
        for column in columns
    )


def csv_values(rows: DataFrame, spec: QuerySpec, exact: Exact) -> DataFrame:
    """Return the rows that were read as :func:`csv_columns` says, in the declared types."""
    return _all_or_fail(decode_csv(rows, spec, exact), spec.columns)


def decode_csv(rows: DataFrame, spec: QuerySpec, exact: Exact) -> DataFrame:
    """Return row and problem of each of them."""
    parts, rules = [], []
    for column in spec.columns:
        name, value = quote_sql(column.name), quote_sql(column.name)
        said = _by_text(column, exact)
        if said is not None:
            value, fits = said
            wrong = string_literal(
                f"its {column.name} is no value that {column.type} holds exactly"
            )
            rules.append(f"CASE WHEN {name} <> '' AND NOT coalesce({fits}, false) THEN {wrong} END")
        else:
            found = exact_values.misfit(parse_type(column.type), name, None, exact)
            rules += [] if found is None else [
                f"{string_literal(f'its {column.name} ')} || {found}"
            ]
        parts.append(f"{string_literal(column.name)}, {value}")
    problem = f"coalesce({', '.join([*rules, 'CAST(NULL AS STRING)'])})"
    return rows.selectExpr(
        f"_metadata.file_path AS {_FILE}", f"named_struct({', '.join(parts)}) AS {decoding.ROW}",
        f"{problem} AS {_PROBLEM}",
    )


def _by_text(column: Column, exact: Exact) -> tuple[str, str] | None:
    """The value and whether it is what was written, of a column that is read as text."""
    text = quote_sql(column.name)
    return exact_values.from_text(parse_type(column.type), text, exact)


def _all_or_fail(decoded: DataFrame, columns: Sequence[Column]) -> DataFrame:
    row = decoding.ROW
    message = (
        f"concat({string_literal(decoding.BAD_RECORD_MARK + 'file ')}, {_FILE}, ': ', {_PROBLEM})"
    )
    good = f"CASE WHEN {_PROBLEM} IS NOT NULL THEN raise_error({message}) ELSE {row} END"
    return decoded.selectExpr(f"{good} AS {row}").selectExpr(
        *(f"{row}.{quote_sql(column.name)} AS {quote_sql(column.name)}" for column in columns)
    )
