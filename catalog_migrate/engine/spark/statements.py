"""The text of every SQL statement that the Spark engine issues, and how each is run: as written.

Spark replaces ``${env:HOME}`` and its like in every text that it parses, names, comments and
literals included, unless ``spark.sql.variable.substitute`` is false. A view and a function keep
that setting from their creation, so that whoever reads them later gets what the release says. A
quote in a string is always escaped by a backslash: a doubled one is another text to Spark 4.0.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.engine.port import FunctionSpec, ShardSpec, ViewSpec
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.model.types import AddedField, canonical_type
from catalog_migrate.sql.tokens import escape_doubled_quotes, string_literal

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

_MARK = "/*catalog_migrate "
_MARK_END = "*/"


_SUBSTITUTE = "spark.sql.variable.substitute"
_RAW = "spark.sql.parser.escapedStringLiterals"
_VARIABLE = "${"

_alone = threading.RLock()
"""A setting is the session's: one such statement at a time, so that the last one restores it."""


@contextmanager
def as_written(spark: SparkSession, text: str) -> Iterator[str]:
    """The spelling of ``text`` that this session, whatever its version, parses inside as it stands.

    A session whose strings know no escapes reads it by the rule of all others meanwhile. Costs
    nothing where ``text`` has neither variables nor escapes.
    """
    spelled = escape_doubled_quotes(text)
    needed: dict[str, str] = {}
    if _VARIABLE in spelled:
        needed[_SUBSTITUTE] = "false"
    if "\\" in spelled and spark.conf.get(_RAW, "false") == "true":
        needed[_RAW] = "false"
    if not needed:
        yield spelled
        return
    with _alone:
        before = {setting: spark.conf.get(setting, None) for setting in needed}
        for setting, value in needed.items():
            spark.conf.set(setting, value)
        try:
            yield spelled
        finally:
            for setting, standing in before.items():
                if standing is None:
                    spark.conf.unset(setting)
                else:
                    spark.conf.set(setting, standing)


def run(spark: SparkSession, text: str) -> None:
    """Run one command as it is written."""
    with as_written(spark, text) as spelled:
        spark.sql(spelled)


def rows(spark: SparkSession, text: str) -> list[Row]:
    """Return what a query, as it is written, finds.

    A server of Spark Connect reads the text again with every action, so nothing is left to be done
    when this returns.
    """
    with as_written(spark, text) as spelled:
        return spark.sql(spelled).collect()


def schema(spark: SparkSession, text: str) -> StructType:
    """Return the columns of a query as it is written, which is analysed and not run."""
    with as_written(spark, text) as spelled:
        return spark.sql(spelled).schema


def by_path(path: str) -> str:
    """Return a Delta table named by its directory."""
    return f"delta.{quote_sql(path)}"


def at_version(path: str, version: int) -> str:
    """Return a Delta table as it was at a version, for a FROM clause."""
    return f"{by_path(path)} VERSION AS OF {version}"


def _properties(properties: Mapping[str, str]) -> str:
    if not properties:
        return ""
    pairs = ", ".join(
        f"{string_literal(key)} = {string_literal(value)}"
        for key, value in sorted(properties.items())
    )
    return f" TBLPROPERTIES ({pairs})"


def _comment(comment: str | None) -> str:
    return f" COMMENT {string_literal(comment)}" if comment else ""


def column_definition(column: Column) -> str:
    """One column of CREATE TABLE or ADD COLUMNS."""
    generated = f" GENERATED ALWAYS AS ({column.generated})" if column.generated else ""
    null = "" if column.nullable else " NOT NULL"
    return f"{quote_sql(column.name)} {column.type}{null}{generated}{_comment(column.comment)}"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(quote_sql, columns))


def create_shard(shard: ShardSpec) -> str:
    """CREATE TABLE at a path, for what delta-rs cannot create. Without checks: added after it."""
    columns = ", ".join(map(column_definition, shard.columns))
    partitioned = clustered = ""
    if shard.partitioned_by:
        partitioned = f" PARTITIONED BY ({_names(shard.partitioned_by)})"
    if shard.clustered_by:
        clustered = f" CLUSTER BY ({_names(shard.clustered_by)})"
    return (
        f"CREATE TABLE {by_path(shard.path)} ({columns}) USING delta{_comment(shard.comment)}"
        f"{partitioned}{clustered}{_properties({**shard.properties, **shard.stamps})}"
    )


def add_check(path: str, name: str, expression: str) -> str:
    """Return a new CHECK constraint; Spark proves it on the rows that are there."""
    return f"ALTER TABLE {by_path(path)} ADD CONSTRAINT {quote_sql(name)} CHECK ({expression})"


def violating(path: str, version: int, expression: str) -> str:
    """Return a row of a version that a CHECK of this expression would refuse, if there is one."""
    return (
        f"SELECT 1 FROM {at_version(path, version)} WHERE NOT coalesce(({expression}), false)"
        " LIMIT 1"
    )


def count_violating(query: str, expression: str) -> str:
    """Return how many rows of a query a CHECK of this expression would refuse."""
    return f"SELECT count(*) FROM ({query}) AS copied WHERE {violate(expression)}"


def violate(expression: str) -> str:
    """Return the condition of a row that a CHECK of this expression refuses."""
    return f"NOT coalesce(({expression}\n), false)"


def count_refused(query: str, conditions: Sequence[str], evaluated: Sequence[str]) -> str:
    """Return how many rows of a query meet each condition, after evaluating columns on every row.

    Only ``last`` does that for every type, also where the value cannot be NULL: a count of such a
    column is one of rows, and its expression is left out.
    """
    items = [f"count_if({condition})" for condition in conditions]
    items += [f"last({quote_sql(column)}) IS NULL" for column in evaluated]
    columns = ", ".join(items)
    return f"SELECT {columns} FROM ({query}) AS copied"


def drop_check(path: str, name: str) -> str:
    """Take a CHECK constraint off."""
    return f"ALTER TABLE {by_path(path)} DROP CONSTRAINT IF EXISTS {quote_sql(name)}"


def add_column(path: str, column: Column, after: str | None) -> str:
    """Return a new column behind ``after`` (None: the first one)."""
    place = "FIRST" if after is None else f"AFTER {quote_sql(after)}"
    return f"ALTER TABLE {by_path(path)} ADD COLUMNS ({column_definition(column)} {place})"


def add_field(path: str, column: str, field: AddedField) -> str:
    """Return a new field of a struct that is in ``column``."""
    names = ".".join(map(quote_sql, (column, *field.path)))
    place = "FIRST" if field.after is None else f"AFTER {quote_sql(field.after)}"
    return (
        f"ALTER TABLE {by_path(path)} ADD COLUMNS"
        f" ({names} {canonical_type(field.type)} {place})"
    )


def retype_column(path: str, column: Column) -> str:
    """Another type for a column; Spark refuses what would need other files."""
    return (
        f"ALTER TABLE {by_path(path)} ALTER COLUMN {quote_sql(column.name)}"
        f" TYPE {canonical_type(column.type)}"
    )


def comment_column(path: str, name: str, comment: str | None) -> str:
    """Another comment for a column; none is an empty one."""
    return (
        f"ALTER TABLE {by_path(path)} ALTER COLUMN {quote_sql(name)}"
        f" COMMENT {string_literal(comment or '')}"
    )


def comment_table(path: str, comment: str | None) -> str:
    """Another comment for a table; none is an empty one."""
    return f"COMMENT ON TABLE {by_path(path)} IS {string_literal(comment or '')}"


def rename_column(path: str, name: str, to: str) -> str:
    """Another name for a column; needs column mapping."""
    return f"ALTER TABLE {by_path(path)} RENAME COLUMN {quote_sql(name)} TO {quote_sql(to)}"


def drop_columns(path: str, names: Sequence[str]) -> str:
    """Take columns away, in one commit; needs column mapping."""
    return f"ALTER TABLE {by_path(path)} DROP COLUMNS ({_names(names)})"


def move_column(path: str, name: str, after: str | None) -> str:
    """Another place for a column: behind ``after``, or first."""
    place = "FIRST" if after is None else f"AFTER {quote_sql(after)}"
    return f"ALTER TABLE {by_path(path)} ALTER COLUMN {quote_sql(name)} {place}"


def set_property(path: str, name: str, value: str) -> str:
    """One table property."""
    pair = f"{string_literal(name)} = {string_literal(value)}"
    return f"ALTER TABLE {by_path(path)} SET TBLPROPERTIES ({pair})"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """Table properties together, as Delta compares some with each other."""
    pairs = ", ".join(
        f"{string_literal(key)} = {string_literal(value)}"
        for key, value in sorted(properties.items())
    )
    return f"ALTER TABLE {by_path(path)} SET TBLPROPERTIES ({pairs})"


def unset_properties(path: str, keys: Iterable[str]) -> str:
    """Take table properties away; one that is not there is none."""
    names = ", ".join(map(string_literal, keys))
    return f"ALTER TABLE {by_path(path)} UNSET TBLPROPERTIES IF EXISTS ({names})"


def clone(path: str, there: str) -> str:
    """Make a table that reads the files of another one."""
    return f"CREATE TABLE {by_path(there)} SHALLOW CLONE {by_path(path)}"


def enable_feature(path: str, feature: str) -> str:
    """Allow a Delta table feature on a table that is there; those it had stay."""
    return (
        f"ALTER TABLE {by_path(path)} SET TBLPROPERTIES ('delta.feature.{feature}' = 'supported')"
    )


def relax_column(path: str, name: str) -> str:
    """Let a column be NULL."""
    return f"ALTER TABLE {by_path(path)} ALTER COLUMN {quote_sql(name)} DROP NOT NULL"


def register_table(name: ItemName, path: str) -> str:
    """Give a shard that exists a name."""
    return f"CREATE TABLE {name.sql} USING delta LOCATION {string_literal(path)}"


class BodyColumn(NamedTuple):
    """A column that a view's body yields; ``named`` False: Spark made its name up."""

    type: str
    named: bool = True


def create_view(view: ViewSpec, body: Sequence[BodyColumn], *, replace: bool = True) -> str:
    """CREATE [OR REPLACE] VIEW with the contract; ``body`` are the columns of its query.

    Where the body's type is the contract's, the body stays as it is written: a cast that changes
    nothing would hide a later change of the base from SCHEMA BINDING.
    """
    columns = ", ".join(quote_sql(c.name) + _comment(c.comment) for c in view.columns)
    create = "CREATE OR REPLACE VIEW" if replace else "CREATE VIEW"
    return (
        f"{create} {view.name.sql} ({columns}){_comment(view.comment)}"
        f"{_properties(view.properties)} WITH SCHEMA BINDING AS {_fit_body(view, body)}"
    )


def _fit_body(view: ViewSpec, body: Sequence[BodyColumn]) -> str:
    text = view.sql.rstrip().rstrip(";")
    fitted = [
        (column, found, column.type == found.type)
        for column, found in zip(view.columns, body, strict=True)
    ]
    if all(fits and found.named for _, found, fits in fitted):
        return text
    positions = ", ".join(f"c{number}" for number in range(len(view.columns)))
    items = ", ".join(
        f"{_fit_column(number, column, found, fits=fits)} AS {quote_sql(column.name)}"
        for number, (column, found, fits) in enumerate(fitted)
    )
    # The line break ends a comment that the body may end with.
    return f"SELECT {items} FROM ({text}\n) AS body ({positions})"


def _fit_column(number: int, column: Column, found: BodyColumn, *, fits: bool) -> str:
    """A column of a body under the contract.

    Spark refuses a permanent view with a name that it made up, and an alias of such a column is
    one to it. ``coalesce`` of one value is that value, of its type: an expression, which is named.
    """
    if not fits:
        return f"CAST(c{number} AS {column.type})"
    return f"c{number}" if found.named else f"coalesce(c{number})"


def _argument(argument: Argument) -> str:
    default = f" DEFAULT {argument.default}" if argument.default is not None else ""
    return f"{quote_sql(argument.name)} {argument.type}{default}{_comment(argument.comment)}"


def create_function(
    function: FunctionSpec, *, temporary_as: str | None = None, replace: bool = True
) -> str:
    """CREATE [OR REPLACE] FUNCTION; ``temporary_as`` makes it a temporary one of that name.

    Spark keeps no properties of a function: they travel in its comment.
    """
    arguments = ", ".join(map(_argument, function.arguments))
    if isinstance(function.returns, str):
        returns = function.returns
    else:
        columns = ", ".join(
            f"{quote_sql(c.name)} {c.type}{_comment(c.comment)}" for c in function.returns
        )
        returns = f"TABLE ({columns})"
    declared = f" RETURNS {returns}" if returns else ""  # else Spark takes the body's type
    comment = write_function_comment(function.comment, function.properties)
    create = "CREATE OR REPLACE" if replace else "CREATE"
    head = (
        f"{create} FUNCTION {function.name.sql}"
        if temporary_as is None
        else f"{create} TEMPORARY FUNCTION {quote_sql(temporary_as)}"
    )
    body = function.body.rstrip().rstrip(";")
    return f"{head} ({arguments}){declared}{_comment(comment)} RETURN {body}"


def write_function_comment(comment: str | None, properties: Mapping[str, str]) -> str | None:
    """Return a function's comment with its properties behind it."""
    if not properties:
        return comment
    text = json.dumps(dict(sorted(properties.items())), separators=(",", ":"))
    return f"{comment or ''}{_MARK}{text.replace('*/', '*' + chr(92) + '/')}{_MARK_END}"


def read_function_comment(comment: str) -> Mapping[str, str]:
    """Return the properties inside a function's comment; empty when it is not one of ours."""
    _, mark, rest = comment.rpartition(_MARK)
    if not mark or not rest.endswith(_MARK_END):
        return {}
    try:
        found = json.loads(rest[: -len(_MARK_END)])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def insert(target: str, projection: Sequence[tuple[str, str]], source: str) -> str:
    """INSERT INTO target (columns) SELECT expressions FROM ``source`` (a FROM clause)."""
    columns = _names([column for column, _ in projection])
    return f"INSERT INTO {by_path(target)} ({columns}) {select(projection, source)}"


def insert_query(target: str, columns: Sequence[str], query: str) -> str:
    """INSERT INTO target (columns) what a query gives."""
    text = query.rstrip().rstrip(";")
    return f"INSERT INTO {by_path(target)} ({_names(columns)}) {text}"


def select(projection: Sequence[tuple[str, str]], source: str) -> str:
    """SELECT of a projection."""
    items = ", ".join(f"{expression} AS {quote_sql(column)}" for column, expression in projection)
    return f"SELECT {items} FROM {source}"


ROW = "catalog_migrate_row"
VALUE = "catalog_migrate_value"


def for_every_writer(relation: str, expression: str, *, boolean: bool) -> str:
    """Return a query, only to be analysed, that refuses what Delta cannot evaluate in every INSERT.

    A join takes deterministic expressions without aggregates only, a lambda none with a subquery.
    ADD CONSTRAINT takes them all, and every INSERT fails then.
    """
    held = f"({expression}\n)" if boolean else f"({expression}\n) IS NULL"
    return (
        f"SELECT ({expression}\n) AS {VALUE} FROM {quote_sql(relation)} AS {ROW}"
        f" JOIN (SELECT 1 AS catalog_migrate_one) AS catalog_migrate_other"
        f" ON exists(array(1), catalog_migrate_each -> {held})"
    )


def evaluate(expressions: Sequence[tuple[str, str]]) -> str:
    """One row with the value of each (expression, type)."""
    items = ", ".join(
        f"CAST(({expression}\n) AS {type_}) AS {VALUE}{number}"
        for number, (expression, type_) in enumerate(expressions)
    )
    return f"SELECT {items}"


def side_by_side(bodies: Sequence[str]) -> str:
    """One query, only to be analysed, with a struct of the columns of each body."""
    items = ", ".join(f"struct(q{number}.*) AS q{number}" for number in range(len(bodies)))
    # The line break ends a comment that a body may end with.
    tables = ", ".join(
        f"({body.rstrip().rstrip(';')}\n) AS q{number}" for number, body in enumerate(bodies)
    )
    return f"SELECT {items} FROM {tables}"


def in_files(source: str, files: Sequence[str]) -> str:
    """Return the rows of a FROM clause that lie in data files of these names."""
    listed = ", ".join(map(string_literal, files))
    return f"{source} WHERE _metadata.file_name IN ({listed})"
