"""Another text for a view or SQL function that stays what it is otherwise.

Spark keeps with a text the schema that its bare names are of, and the settings it is analysed
under: both are those of the session that stores it. So that nothing of another session gets in, it
is stored by one that has what was kept with the earlier text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catalog_migrate.engine.port import FunctionSpec, UserDefinition
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.connect import is_connect
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_alone = threading.Lock()
"""One statement at a time where the session itself is changed for it."""


def replace_text(
    spark: SparkSession, catalog: str, definition: UserDefinition, sql: str, *,
    comment: str, settings: Mapping[str, str],
) -> None:
    """ALTER VIEW … AS, or CREATE OR REPLACE FUNCTION with the ``comment``.

    ``settings`` are those that were stored with the present text; empty where they are not known.
    """
    text = sql.rstrip().rstrip(";")
    if definition.kind == "view":
        statement = f"ALTER VIEW {definition.name.sql} AS {text}"
    else:
        statement = statements.create_function(_function(definition, text, comment))
    with failing(f"replace the text of {definition.name}"), _session(
        spark, catalog, definition.namespace, settings,
        # the session that calls a function remembers its body until it replaces that itself
        own=definition.kind == "view" and not is_connect(spark),
    ) as session:
        session.sql(statement)  # as it is: under the settings that its author had


def _function(definition: UserDefinition, body: str, comment: str) -> FunctionSpec:
    return FunctionSpec(
        definition.name, definition.arguments, definition.returns, body, comment or None
    )


@contextmanager
def _session(
    spark: SparkSession, catalog: str, schema: str, settings: Mapping[str, str], *, own: bool
) -> Iterator[SparkSession]:
    """A session whose bare names are of ``schema``, under ``settings``.

    One of its ``own``, which Spark Connect has not: else this one, which is put back.
    """
    if own:
        another = spark.newSession()
        _set(another, {**spark.conf.getAll, **settings})
        _use(another, catalog, schema)
        yield another
        return
    with _alone:
        before = spark.catalog.currentDatabase()
        kept = {key: spark.conf.get(key, None) for key in settings}
        try:
            _set(spark, settings)
            _use(spark, catalog, schema)
            yield spark
        finally:
            for key, value in kept.items():
                if value is None:
                    spark.conf.unset(key)
                elif spark.conf.isModifiable(key):
                    spark.conf.set(key, value)
            spark.catalog.setCurrentDatabase(before)


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        if spark.conf.get(key, None) != value and spark.conf.isModifiable(key):
            spark.conf.set(key, value)


def _use(spark: SparkSession, catalog: str, schema: str) -> None:
    """USE, unless the schema is missing: then the text has no bare name."""
    if not schema:
        return
    try:
        with failing(f"use the schema {schema}"):
            statements.run(spark, f"USE {quote_sql(catalog)}.{quote_sql(schema)}")
    except EngineFailure as error:
        if error.condition != "SCHEMA_NOT_FOUND":
            raise
