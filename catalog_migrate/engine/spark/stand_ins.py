"""Typed empty stand-ins of what a text reads: temporary views and functions, nothing else.

The names of relations and functions in a text are replaced by those of the stand-ins, so that it is
analysed against columns which nothing in the catalog may have yet.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import UnknownType
from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.references import occurrences, splice
from catalog_migrate.sql.tokens import tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.engine.port import FunctionSpec
    from catalog_migrate.model.objects import Column

Signature = tuple[tuple[str, str, bool], ...]
"""Names, types and nullability of a relation: relations of one signature may share a stand-in."""

_serial = itertools.count(1)
_STAND_IN = re.compile(
    r"`(?P<quoted>catalog_migrate_bind_\d+)`|\b(?P<plain>catalog_migrate_bind_\d+)\b"
)


def signature(columns: Sequence[Column]) -> Signature:
    """Return what relations of the same columns have in common."""
    return tuple((column.name, column.type, column.nullable) for column in columns)


def new_name() -> str:
    """Return a name for a stand-in that nothing else has."""
    return f"catalog_migrate_bind_{next(_serial)}"


def real_names(text: str, names: Mapping[str, tuple[str, str]], *, whole: bool = False) -> str:
    """Return a text of Spark's with the real names in place of those of the stand-ins.

    With ``whole`` they have the catalog before them, as they do in plans.
    """

    def real(found: re.Match[str]) -> str:
        known = names.get(found["quoted"] or found["plain"])
        if known is None:
            return found[0]
        parts = ("spark_catalog", *known) if whole else known
        return ".".join(map(quote_sql, parts) if found["quoted"] else parts)

    return _STAND_IN.sub(real, text)


@contextmanager
def drop_afterwards(
    spark: SparkSession, relations: Collection[str], functions: Collection[str]
) -> Iterator[None]:
    """Drop the stand-ins of these names, which may get more meanwhile, in the end."""
    try:
        yield
    finally:
        for view in relations:
            spark.catalog.dropTempView(view)
        for function in functions:
            with failing("drop a stand-in"):
                statements.run(spark, f"DROP TEMPORARY FUNCTION IF EXISTS {quote_sql(function)}")


def create_relation(spark: SparkSession, name: str, columns: Sequence[Column]) -> None:
    """Create an empty temporary view of these columns."""
    from pyspark.sql.types import StructType

    schema: StructType | str
    try:
        schema = StructType.fromJson(datatypes.json_schema(columns, stored=False))
    except UnknownType:  # a user's view may have types that no release may have
        schema = ", ".join(
            f"{quote_sql(each.name)} {each.type}{'' if each.nullable else ' NOT NULL'}"
            for each in columns
        )
    with failing("create a stand-in"):
        spark.createDataFrame([], schema).createOrReplaceTempView(name)


def create_function(spark: SparkSession, name: str, function: FunctionSpec, body: str) -> None:
    """Create a temporary function that does what ``function`` does, by a text over stand-ins."""
    body = _with_own_name(body, function, name)
    spec = replace(function, body=body, comment=None, properties={})
    with failing(f"bind the function {function.name}"):
        statements.run(spark, statements.create_function(spec, temporary_as=name))


def _with_own_name(body: str, function: FunctionSpec, name: str) -> str:
    """A body whose arguments written as ``f.x`` are those of the function's stand-in."""
    tokens = tokenise(body)
    arguments = {argument.name.lower() for argument in function.arguments}
    own = function.name.name.lower()
    relations = [name.parts[-1].lower() for name in occurrences(tokens) if name.kind == "relation"]
    if own in relations:
        return body  # its columns come first
    pieces: list[tuple[int, int, str | None]] = []
    for index, token in enumerate(tokens[:-2]):
        dot, argument = tokens[index + 1 : index + 3]
        if (
            token.is_name and token.name.lower() == own and dot.is_operator(".")
            and argument.is_name and argument.name.lower() in arguments
            and not (index and tokens[index - 1].is_operator("."))
        ):
            pieces.append((token.start, token.end, quote_sql(name)))
    return splice(body, pieces)
