"""What queries read of files and of shards, and the session that all of them run in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.config import REDACTED
from catalog_migrate.connectors.files.client import files_directory, spark_files_options
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.query import QuerySpec, ddl
from catalog_migrate.connectors.resolved import trigger_seconds
from catalog_migrate.connectors.sections import fold_option
from catalog_migrate.engine.spark.object_stores.commit_safety import require_checkpoints
from catalog_migrate.engine.spark.object_stores.settings import (
    CHECKPOINT_MANAGER,
    MANAGED_BY,
    needs_s3,
)
from catalog_migrate.model.names import quote_sql
from catalog_migrate.streams.formats.exact_values import exact_of
from catalog_migrate.streams.spark import file_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SESSION_CONFS: Mapping[str, str] = MappingProxyType({
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A column or a topic whose name looks like a variable is a name.
    "spark.sql.variable.substitute": "false",
    # What decodes a record names its steps within one SELECT.
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "true",
    # An idle query says so within half a second: that is how a fresh start is seen to be healthy.
    "spark.sql.streaming.noDataProgressEventInterval": "300",
    # stop() waits for the stream's thread, and forever unless told otherwise.
    "spark.sql.streaming.stopTimeout": "20000",
    # INT96, the default, counts nanoseconds: other engines read the year 9999 as another one.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Version 2 (named sources) cannot restart a query that was killed in mid-batch (tried).
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.redaction.options.regex": REDACTED,
})
"""What our own session sets; the caller's session stays as it is."""

def query_session(spark: SparkSession, warehouse: str = "") -> SparkSession:
    """Return a session for the queries: same application and catalog, settings of its own.

    Where their ``warehouse`` is on S3 their checkpoints are, and of two drivers on one of these
    Spark would stop neither. Raises :class:`UnsuitableSession` where the class that does is not on
    the class path.
    """
    session = spark.newSession()
    if needs_s3([warehouse]):
        session.conf.set(MANAGED_BY, CHECKPOINT_MANAGER)
        require_checkpoints(session, warehouse)
    for name, value in SESSION_CONFS.items():
        session.conf.set(name, value)
    # The default of 200 costs seconds a batch for the few rows that streams carry at a time.
    parallel = max(2, spark.sparkContext.defaultParallelism)
    session.conf.set("spark.sql.shuffle.partitions", str(parallel))
    return session


def setting(spec: QuerySpec, name: str) -> str | None:
    """Return a setting by its name, whatever its case and whether blanks or underscores join it."""
    wanted = fold_option(name)
    for known, value in spec.external.settings.items():
        if fold_option(known) == wanted:
            return value
    return None


def trigger_interval(spec: QuerySpec) -> str:
    """How often a batch is begun, as Spark's interval."""
    return f"{round(trigger_seconds(spec.external.settings) * 1000)} milliseconds"


_STRICT_FORMATS = frozenset({"json", "csv"})


def no_records(spark: SparkSession) -> DataFrame:
    """Records as Spark's connector gives them, none."""
    return spark.createDataFrame(
        [], "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, timestampType INT",
    )


def file_rows(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """Return the rows of the files below the connection's and the source's PATH, each file once.

    JSON and CSV are read strictly: a line that does not fit the declared columns stops the query,
    and with DECODING 'exact' one whose values they would hold as others.
    """
    connector = spec.external.connector or ""
    written = (option_of(spec.connection, connector, "FORMAT") or "json").lower()
    path = spec.external.options.get("PATH")
    place = files_directory(spec.connection, None if path is None else str(path))
    options = spark_files_options(
        spec.connection, spec.external.options, spec.external.settings
    )
    exact = exact_of(spec.external, options)
    if exact is not None and written == "json":
        file_lines.require_lines(spec, options)
        ours, theirs = file_lines.split_options(options)
        lines = spark.readStream.format("text").options(**theirs).load(str(place))
        return file_lines.json_lines(lines, spec, exact, ours)
    columns = spec.columns
    if exact is not None and written == "csv":
        columns = file_lines.csv_columns(spec.columns, exact)
    reader = (
        spark.readStream.format(written)
        .schema(", ".join(ddl(column) for column in columns))
        .options(**options)
    )
    if written in _STRICT_FORMATS:
        reader = reader.option("mode", "FAILFAST")
    rows = reader.load(str(place))
    if exact is not None and written == "csv":
        return file_lines.csv_values(rows, spec, exact)
    return rows.select(*(F.col(quote_sql(c.name)) for c in spec.columns))


def shard_rows(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    """Return what a sink reads: the rows of a shard, each appended row once."""
    reader = spark.readStream.format("delta")
    if setting(spec, "ON CHANGE") == "skip":
        reader = reader.option("skipChangeCommits", "true")
    return reader.load(spec.shard).select(*(F.col(quote_sql(c.name)) for c in spec.columns))
