"""A source on PostgreSQL in Spark: the rows of its snapshot into its tables, then its changes.

When the rows are copied is in :mod:`catalog_migrate.streams.upstreams.table_snapshots`. Of changes
a table gets every one, or the current rows by key. One batch goes to the table of each one
upstream, then to the source's own, which gets a row for each transaction: a reader of that table
finds in the others whatever it names. Each table takes a batch once, under the transaction
(query id, batch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.connectors.base import Batch
from catalog_migrate.connectors.postgres.changes import Settings, changes, snapshot_files
from catalog_migrate.connectors.postgres.pgoutput import COMMIT, TABLE
from catalog_migrate.connectors.postgres.sessions import NEW_SNAPSHOT, RESET_SPLITS
from catalog_migrate.connectors.postgres.snapshot import StagedTable
from catalog_migrate.connectors.postgres.types import Position, is_unfit, lsn_text, spark_value
from catalog_migrate.connectors.query import OutputTable, QuerySpec, ddl
from catalog_migrate.connectors.row_values import hash_key
from catalog_migrate.connectors.spark_rows import append_once
from catalog_migrate.delta.table import at_this_version, load_table, require_plain, write_rows
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, UnfitValue
from catalog_migrate.model.names import quote_datafusion, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.store.address import local_path
from catalog_migrate.streams.catalog.surveys import watch_of
from catalog_migrate.streams.catalog.upstream_tables import (
    DELETED,
    TRANSACTION_COLUMNS,
    is_mirror,
    keeps_deleted,
    snapshot_app,
)
from catalog_migrate.streams.checkpoint.delta_tables import commit_batch
from catalog_migrate.streams.spark.moved_rows import complete_rows
from catalog_migrate.streams.spark.running import python_causes
from catalog_migrate.streams.upstreams.table_snapshots import expected

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Transaction
    from pyspark.sql import DataFrame, SparkSession


_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_AT = "struct(lsn, sequence, step)"
CHANGES = "__catalog_migrate_changes"
"""What a MERGE calls the rows that it takes."""

FEW = 32 << 20
"""Up to so many bytes of messages a batch is written through the driver."""
SMALL = 32 << 20
"""Up to so many bytes of a mirror's files are merged there."""
_KEYS = {"BIGINT", "INT", "SMALLINT", "STRING", "DATE", "BOOLEAN"}
"""Types of keys by which delta-rs finds every row. Statistics of files, by which it passes over
some, have times cut to milliseconds and decimals as floating point; and -0.0 is not 0.0 to it."""

_BATCH = 256 << 20
"""Bytes of log that a batch covers: the server decodes all of them before it sends the first
change, which its patience bounds. A larger transaction comes whole."""
_PATIENCE = 1800.0
"""Seconds that the server may take for that: a batch that is begun is read again as it is."""
_HEARTBEAT = 300.0
"""Seconds after which an idle slot is moved on: a standby keeps only a slot that moves."""


def load_files(
    spark: SparkSession, spec: QuerySpec, table: OutputTable, staged: StagedTable,
    files: Sequence[str], at: Position,
) -> None:
    """The rows in files of a staged snapshot into a table of ours; see :func:`load`.

    Nothing else may write in the session meanwhile.
    """
    load(placed(snapshot_files(spark, files), table, staged), spec, table, at)


def load(rows: DataFrame, spec: QuerySpec, table: OutputTable, at: Position) -> None:
    """The rows of a snapshot into a table of ours, once; a mirror becomes what they are."""
    try:
        _load(rows, spec, table, at)
    except Exception as error:
        _raise_unfit(error, rows, table, mirror=is_mirror(spec.external))
        raise


def _load(rows: DataFrame, spec: QuerySpec, table: OutputTable, at: Position) -> None:
    path, app = local_path(table.shard), snapshot_app(spec.item_id)
    if not is_mirror(spec.external):
        append_once(changes_rows(rows, table), path, app, spec.snapshot_number)
    elif spec.snapshot_number == 1:
        _require_empty(rows.sparkSession, table, path, app)
        append_once(snapshot_rows(rows, table), path, app, 1)
    else:
        merge_once(
            snapshot_rows(rows, table),
            snapshot_merge_statement(
                table, f"delta.{quote_sql(path)}", CHANGES, at.lsn,
                soft=keeps_deleted(spec.external),
            ),
            app, spec.snapshot_number,
        )


def _require_empty(spark: SparkSession, table: OutputTable, path: str, app: str) -> None:
    """EngineFailure for a table with rows before the first ones of a mirror, whose keys would
    stand twice."""
    if load_table(path).transaction_version(app) is not None:
        return  # an earlier start has put them there
    if not spark.read.format("delta").load(path).isEmpty():
        raise EngineFailure(
            f"table {table.name} has rows already, and a mirror begins with those of its upstream",
            condition="TABLE_NOT_EMPTY",
            remedy="DELETE them, or drop the source and create it with another table: TABLES (t AS"
            " other)",
        )


def placed(rows: DataFrame, table: OutputTable, staged: StagedTable) -> DataFrame:
    """Rows of a snapshot with their values in the places that our columns of upstream have."""
    there = {name: place for place, name in enumerate(staged.columns)}
    values = ", ".join(
        f"get(after, {there[each.name]})" if each.name in there else "CAST(NULL AS STRING)"
        for each in table.upstream.columns
    )
    return rows.withColumn("after", F.expr(f"array({values})"))


def change_stream(spark: SparkSession, spec: QuerySpec, start: Position) -> DataFrame:
    """Return the changes of the source's tables; ``start`` counts until there is a checkpoint."""
    return changes(spark, Settings(
        spec.connection, spec.slot, spec.publication, expected(spec), start, timeout=_PATIENCE,
        max_bytes=_BATCH, heartbeat=_HEARTBEAT, watch=watch_of(spec),
    ))


# -- changes ---------------------------------------------------------------------------------------


class _Facts(msgspec.Struct, frozen=True):
    """What a batch has for one table: values that were not sent, and whether of rows that are new
    under their key, rows that were deleted, and its last TRUNCATE: LSN, sequence, and when it was
    committed (microseconds since 1970). ``size`` are the bytes of the whole batch."""

    truncated: tuple[int, int, int] | None = None
    unchanged: bool = False
    moved: bool = False
    gone: bool = True
    size: int = 0


class ChangesWriter:
    """The writer of a POSTGRES source's batches."""

    def __init__(self, spec: QuerySpec) -> None:
        self._spec = spec
        for table in spec.tables if is_mirror(spec.external) else ():
            if len(table.key) != len(table.upstream.key):
                raise EngineFailure(
                    f"source {spec.name}: table {table.name} has not every column of the key"
                    f" ({', '.join(table.upstream.key)}) of {table.upstream.full_name} any more",
                    condition="KEY_DROPPED",
                    remedy="give it the column again by a rollback, or drop the source and create"
                    " it with another table: TABLES (t AS other)",
                )

    def write(self, batch: Batch) -> None:
        """Write one batch into every table; a table that has it skips it."""
        rows = batch.frame.persist()
        try:
            facts, transactions = _summary(rows)
            for table in self._spec.tables:
                found = facts.get(table.upstream.full_name)
                if found is None:
                    self._commit(table.shard, table.columns, batch)
                    continue
                own = rows.where(
                    f"`table` = {string_literal(table.upstream.full_name)}"
                    f" AND operation <> {string_literal(TABLE)}"
                )
                mirror = is_mirror(self._spec.external)
                try:
                    if mirror:
                        self._merge(own, table, found, batch)
                    else:
                        self._append(changes_rows(own, table), table, found, batch)
                except Exception as error:
                    _raise_unfit(error, own, table, mirror=mirror)
                    raise
            self._commit(self._spec.shard, self._spec.columns, batch, transactions)
        finally:
            rows.unpersist()

    def cancel(self) -> None:
        """Nothing of its own to break off: each write is a Spark job."""

    @staticmethod
    def _commit(
        shard: str, columns: Sequence[Column], batch: Batch, rows: pa.Table | None = None
    ) -> None:
        """Append few rows or none, without a commit of Spark where delta-rs can."""
        try:
            commit_batch(shard, batch.query_id, batch.number, rows)
        except EngineFailure:
            session, schema = batch.frame.sparkSession, ", ".join(map(ddl, columns))
            frame = session.createDataFrame([] if rows is None else rows, schema)
            append_once(frame, local_path(shard), batch.query_id, batch.number)

    @staticmethod
    def _append(rows: DataFrame, table: OutputTable, facts: _Facts, batch: Batch) -> None:
        """Append changes, once: few of them by delta-rs, without a commit of Spark."""
        if facts.size <= FEW and _write_few(rows, table, batch, write_rows):
            return
        append_once(rows, local_path(table.shard), batch.query_id, batch.number)

    def _merge(self, rows: DataFrame, table: OutputTable, facts: _Facts, batch: Batch) -> None:
        """Bring the rows of a mirror up to the end of the batch, once."""
        if not facts.moved:
            self._merge_last(rows, table, facts, batch)
            return
        known = load_table(local_path(table.shard)).transaction_version(batch.query_id)
        if known is not None and known >= batch.number:
            return  # the rows that the values are of are those of after the batch
        with complete_rows(since_truncate(rows, facts), table) as whole:
            self._merge_last(whole, table, facts, batch)

    def _merge_last(
        self, rows: DataFrame, table: OutputTable, facts: _Facts, batch: Batch
    ) -> None:
        path = local_path(table.shard)
        last, soft = last_rows(rows, table, facts), keeps_deleted(self._spec.external)
        if (
            facts.size <= FEW and not facts.unchanged and facts.truncated is None
            and _KEYS.issuperset(each.type for each in table.key)
            and _write_few(
                last.drop("_kept"), table, batch,
                partial(_merge_rows, table=table, soft=soft), rewritten=SMALL,
            )
        ):
            return
        merge_once(
            last,
            merge_statement(table, f"delta.{quote_sql(path)}", CHANGES, facts, soft=soft),
            batch.query_id, batch.number,
        )


def _write_few(
    rows: DataFrame, table: OutputTable, batch: Batch, write: Callable[..., None],
    rewritten: int | None = None,
) -> bool:
    """Write few rows by delta-rs, which takes milliseconds where Spark takes seconds; False where
    they are Spark's to write."""

    def write_plain(opened: DeltaTable, rows: pa.Table, *, transaction: Transaction) -> None:
        require_plain(opened, rewritten=rewritten)
        write(opened, rows, transaction=transaction)

    try:
        with failing(f"open {table.shard}"):
            require_plain(load_table(table.shard), rewritten=rewritten)
        commit_batch(table.shard, batch.query_id, batch.number, rows.toArrow(), write=write_plain)
    except EngineFailure:
        return False
    return True


def _merge_rows(
    opened: DeltaTable, rows: pa.Table, *, transaction: Transaction, table: OutputTable, soft: bool
) -> None:
    """What :func:`merge_statement` says, of a batch without TRUNCATE and without values that were
    not sent. EngineFailure for keys that are NULL, which delta-rs does not find, and for two rows
    of one key, which Spark's MERGE refuses."""
    keys = rows.select([each.name for each in table.key])
    different = keys.group_by(keys.column_names).aggregate([]).num_rows
    if different != rows.num_rows or any(column.null_count for column in keys.columns):
        raise EngineFailure(f"a key of {table.name} is NULL, or two rows have it")
    names = [*(column.name for _, column in table.mapped_columns), "_lsn"]
    values = {quote_datafusion(name): f"s.{quote_datafusion(name)}" for name in names}
    newer, deleted = "s._lsn >= t._lsn", quote_datafusion(DELETED.name)
    on = " AND ".join(f"t.{name} = s.{name}" for name in map(quote_datafusion, keys.column_names))
    merger = opened.merge(
        rows, on, source_alias="s", target_alias="t",
        commit_properties=at_this_version(transaction=transaction),
    )
    if soft:
        gone = {"_lsn": "s._lsn", deleted: f"coalesce(t.{deleted}, s._committed)"}
        merger = merger.when_matched_update(gone, f"{newer} AND s._gone")
    else:
        merger = merger.when_matched_delete(f"{newer} AND s._gone")
    kept = {**values, deleted: "NULL"} if soft else values
    merger.when_matched_update(kept, f"{newer} AND NOT s._gone").when_not_matched_insert(
        values, "NOT s._gone"
    ).execute()


_OF_VALUES = (
    "CAST_", "NUMERIC_", "ARITHMETIC_OVERFLOW", "DATETIME_OVERFLOW", "EXCEED_LIMIT_LENGTH",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
)
"""How Spark's error classes begin that are about a value, and name neither table nor column."""


def _raise_unfit(error: Exception, rows: DataFrame, table: OutputTable, *, mirror: bool) -> None:
    """Raise UnfitValue for the first value that does not fit its column, where the error is about
    one; one job."""
    if not any((each.condition or "").startswith(_OF_VALUES) for each in python_causes(error)):
        return
    names = [column.name for column in table.upstream.columns]
    key = [place for place, name in enumerate(names) if name in table.upstream.key]
    image = "IF(operation = 'delete', before, after)"
    place_of = f"struct(lsn, sequence, array({', '.join(f'{image}[{at}]' for at in key)}) AS key)"
    mapped = table.mapped_columns
    found = rows.coalesce(1).agg(*(
        F.expr(f"min({place_of}) FILTER (WHERE {unfit})").alias(str(place))
        for place, unfit in (
            (place, is_unfit(column.type, f"get({image}, {place})", key=mirror and place in key))
            for place, column in mapped
        )
    )).collect()[0]
    first = min(
        ((found[str(place)], names[place], column) for place, column in mapped
         if found[str(place)] is not None), default=None, key=lambda each: each[0][:2],
    )
    if first is None:
        return
    at, name, column = first
    raise UnfitValue(
        f"column {name} of {table.upstream.full_name} has a value that does not fit column"
        f" {column.name} {column.type} of {table.name} (LSN {lsn_text(at['lsn'])}, key sha256"
        f" {hash_key(at['key'])})",
        remedy=f"change the value upstream, then {NEW_SNAPSHOT}",
        table=table.upstream.full_name, column=name, lsn=at["lsn"], key=hash_key(at["key"]),
        statements=RESET_SPLITS,
    ) from None


def merge_once(rows: DataFrame, statement: str, app: str, version: int) -> None:
    """Carry out a MERGE of ``rows``, called CHANGES in it, under the transaction (app, version).

    A table that has it skips it. Nothing else may write in the session of the rows meanwhile.
    """
    session = rows.sparkSession
    rows.createOrReplaceTempView(CHANGES)
    session.conf.set(_APP, app)
    session.conf.set(_VERSION, str(version))
    try:
        session.sql(statement)
    finally:
        session.conf.unset(_APP)
        session.conf.unset(_VERSION)
        session.catalog.dropTempView(CHANGES)


def changes_rows(rows: DataFrame, table: OutputTable) -> DataFrame:
    """Rows of FORMAT CHANGES: the image after, of a deleted row the one before; then the product's
    own columns."""
    names = "array(" + ", ".join(string_literal(each.name) for each in table.upstream.columns) + ")"
    image = "IF(operation = 'delete', before, after)"
    return rows.selectExpr(
        *(f"{_value(column, image, place)} AS {quote_sql(column.name)}"
          for place, column in table.mapped_columns),
        "lsn AS _lsn", "sequence AS _sequence", "operation AS _operation",
        "transaction AS _transaction", "committed AS _committed",
        f"map_filter(map_from_arrays({names}, before), (k, v) -> v IS NOT NULL) AS _before",
        f"transform(unchanged, place -> get({names}, place)) AS _unchanged",
    )


def snapshot_rows(rows: DataFrame, table: OutputTable) -> DataFrame:
    """Rows of a snapshot in the shape of a mirror."""
    keys = {column.name for column in table.key}
    return rows.selectExpr(
        *(f"{spark_value(column.type, f'get(after, {place})', key=column.name in keys)}"
          f" AS {quote_sql(column.name)}" for place, column in table.mapped_columns),
        "lsn AS _lsn",
    )


def since_truncate(rows: DataFrame, facts: _Facts) -> DataFrame:
    """Return the changes of rows after the last TRUNCATE of the batch."""
    if facts.truncated is not None:
        lsn, sequence, _ = facts.truncated
        rows = rows.where(f"struct(lsn, sequence) > struct({lsn}L, {sequence})")
    return rows.where("operation <> 'truncate'")


def last_rows(rows: DataFrame, table: OutputTable, facts: _Facts) -> DataFrame:
    """One row for each key that the batch touches: what became of it.

    ``_gone`` is whether it was deleted, ``_kept`` the columns whose value upstream never sent,
    because it stayed what it was before the batch.
    """
    upstream = table.upstream
    keys = [place for place, column in enumerate(upstream.columns) if column.name in upstream.key]
    rows = since_truncate(rows, facts)
    touched = rows.where("operation IN ('insert', 'update')").selectExpr(
        "lsn", "sequence", "1 AS step", "committed", "false AS gone", "after AS image", "unchanged",
        *(f"after[{place}] AS key{place}" for place in keys),
    )
    if facts.gone:
        same = " AND ".join(f"before[{place}] <=> after[{place}]" for place in keys)
        touched = touched.unionByName(rows.where(
            "operation = 'delete' OR (operation = 'update' AND before IS NOT NULL"
            f" AND NOT ({same}))"
        ).selectExpr(
            "lsn", "sequence", "0 AS step", "committed", "true AS gone",
            "CAST(NULL AS ARRAY<STRING>) AS image", "CAST(NULL AS ARRAY<INT>) AS unchanged",
            *(f"before[{place}] AS key{place}" for place in keys),
        ))
    aggregates = [
        f"max_by(struct(lsn, committed, gone, image), {_AT}) AS newest",
    ]
    if facts.unchanged:
        aggregates += [
            f"max_by(struct(image[{place}] AS value), {_AT}) FILTER (WHERE NOT gone AND NOT"
            f" coalesce(array_contains(unchanged, {place}), false)) AS sent{place}"
            for place in range(len(upstream.columns))
        ]
    # by columns: Spark sorts what it groups, and compares arrays value by value
    grouped = touched.groupBy(*(f"key{place}" for place in keys)).agg(*map(F.expr, aggregates))
    image = "newest.image"
    if facts.unchanged:
        image = "array(" + ", ".join(
            f"sent{place}.value" for place in range(len(upstream.columns))
        ) + ")"
    selected = []
    for place, column in table.mapped_columns:
        # of a deleted row only the key is known
        value = f"key{place}" if place in keys else f"get({image}, {place})"
        converted = spark_value(column.type, value, key=place in keys)
        selected.append(f"{converted} AS {quote_sql(column.name)}")
    kept = "array()"
    if facts.unchanged:
        kept = "filter(array(" + ", ".join(
            f"IF(sent{place} IS NULL, {place}, NULL)" for place in range(len(upstream.columns))
        ) + "), place -> place IS NOT NULL)"
    return grouped.selectExpr(
        *selected, "newest.lsn AS _lsn", "newest.committed AS _committed", "newest.gone AS _gone",
        f"{kept} AS _kept",
    )


def merge_statement(
    table: OutputTable, target: str, source: str, facts: _Facts, *, soft: bool
) -> str:
    """Return the MERGE that brings a mirror up to date; changes older than a row leave it as it is.

    ``soft``: rows that were deleted upstream stay, with the time.
    """
    keys = _keys(table)
    sets = []
    for place, column in table.mapped_columns:
        name = quote_sql(column.name)
        value = f"s.{name}"
        if facts.unchanged:
            value = f"IF(array_contains(s._kept, {place}), t.{name}, s.{name})"
        sets.append(f"t.{name} = {value}")
    names = [quote_sql(column.name) for _, column in table.mapped_columns]
    sets.append("t._lsn = s._lsn")
    inserted, values = [*names, "_lsn"], [*(f"s.{name}" for name in names), "s._lsn"]
    deleted = quote_sql(DELETED.name)
    newer = "s._lsn >= t._lsn"
    if soft:
        sets.append(f"t.{deleted} = NULL")
        gone = [
            f"WHEN MATCHED AND {newer} AND s._gone THEN UPDATE SET t._lsn = s._lsn,"
            f" t.{deleted} = coalesce(t.{deleted}, s._committed)",
        ]
    else:
        gone = [f"WHEN MATCHED AND {newer} AND s._gone THEN DELETE"]
    clauses = [
        *gone,
        f"WHEN MATCHED AND {newer} AND NOT s._gone THEN UPDATE SET {', '.join(sets)}",
        f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({', '.join(inserted)})"
        f" VALUES ({', '.join(values)})",
    ]
    if facts.truncated is not None:
        lsn, _, committed = facts.truncated
        if soft:
            clauses.append(
                f"WHEN NOT MATCHED BY SOURCE AND t._lsn <= {lsn}L AND t.{deleted} IS NULL THEN"
                f" UPDATE SET t._lsn = {lsn}L, t.{deleted} = timestamp_micros({committed}L)"
            )
        else:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND t._lsn <= {lsn}L THEN DELETE")
    return f"MERGE INTO {target} AS t USING {source} AS s ON {keys} {' '.join(clauses)}"


def snapshot_merge_statement(
    table: OutputTable, target: str, source: str, lsn: int, *, soft: bool
) -> str:
    """The MERGE that makes a mirror what a snapshot at ``lsn`` is, whatever stands in it.

    ``soft``: rows that are not there upstream stay, with the time at which that was seen.
    """
    keys = _keys(table)
    names = [*(quote_sql(column.name) for _, column in table.mapped_columns), "_lsn"]
    deleted = quote_sql(DELETED.name)
    sets = [f"t.{name} = s.{name}" for name in names]
    gone = "THEN DELETE"
    if soft:
        sets.append(f"t.{deleted} = NULL")
        # changes from before the snapshot, or of another server, must not count against it
        gone = (
            f"THEN UPDATE SET t._lsn = {lsn}L,"
            f" t.{deleted} = coalesce(t.{deleted}, current_timestamp())"
        )
    return (
        f"MERGE INTO {target} AS t USING {source} AS s ON {keys}"
        f" WHEN MATCHED THEN UPDATE SET {', '.join(sets)}"
        f" WHEN NOT MATCHED THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{name}' for name in names)})"
        f" WHEN NOT MATCHED BY SOURCE {gone}"
    )


def _summary(rows: DataFrame) -> tuple[dict[str, _Facts], pa.Table | None]:
    """By table upstream what a batch has for it, and the rows of the source's own table; one job,
    which reads the batch."""
    from pyarrow import compute

    found = rows.where(F.col("operation").isin(COMMIT, TABLE)).select(
        "table", F.col("lsn").alias("_lsn"), F.col("transaction").alias("_transaction"),
        F.col("committed").alias("_committed"), F.col("sequence").cast("bigint").alias("changes"),
        F.unix_micros("committed").alias("micros"), "unchanged",
    ).toArrow()
    of_tables = compute.is_valid(found["table"])
    facts = {}
    for row in found.filter(of_tables).to_pylist():
        unchanged, moved, gone = map(bool, row["unchanged"])
        truncated = (row["_lsn"], row["changes"], row["micros"])
        facts[row["table"]] = _Facts(
            None if row["_lsn"] is None else truncated, unchanged, moved, gone,
            row["_transaction"],
        )
    if not facts:
        return {}, None
    transactions = found.filter(compute.invert(of_tables))
    return facts, transactions.select([each.name for each in TRANSACTION_COLUMNS])


def _keys(table: OutputTable) -> str:
    """Whether rows ``t`` and ``s`` have the same key. NaN of a numeric is NULL here."""
    return " AND ".join(
        f"t.{quote_sql(each.name)} {'<=>' if each.nullable else '='} s.{quote_sql(each.name)}"
        for each in table.key
    )


def _value(column: Column, image: str, place: int) -> str:
    """The value at a place of an image, as the type of our column."""
    return spark_value(column.type, f"get({image}, {place})")
