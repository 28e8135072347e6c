"""One batch INTO POSTGRES: exactly once, in one transaction with its row in the ledger."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)
from pyspark.sql.window import Window

from catalog_migrate.connections.values import table_of
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import fold, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Array, Atomic, Interval, Map, Struct, parse_type
from catalog_migrate.streams.queries import (
    OFFSET,
    PARTITION,
    QuerySpec,
    find_columns,
    reads_kafka_source,
    written_columns,
)
from catalog_migrate.streams.spark.ledger import Ledger
from catalog_migrate.streams.spark.running import JSON_OPTIONS
from catalog_migrate.streams.spark.sources import target_table

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from catalog_migrate.streams.spark.running import Batch


_CHUNK = 1000
"""Lines handed to the server at once."""
_RANK = "__catalog_migrate_rank"
_INCOMING = "catalog_migrate_incoming"


class PostgresSink:
    """Writes batches of a sink into its table.

    Without KEY every row is appended. With KEY a row replaces the one of its key: of several in a
    batch the last by ORDER BY (rows of a Kafka source: by partition and offset), and none
    replaces one that ORDER BY puts behind it.
    """

    def __init__(self, spec: QuerySpec) -> None:
        where = f"what {spec.name} reads"
        self._spec = spec
        self._target = target_table(spec)
        self._ledger = Ledger(spec.connection, self._target)
        self._columns = written_columns(spec)
        self._key = find_columns(spec.columns, spec.external.key, where=where)
        self._order = find_columns(spec.columns, spec.external.order_by, where=where)
        if self._key and not self._order and not reads_kafka_source(spec):
            raise EngineFailure(
                f"sink {spec.name} has KEY but no ORDER BY: of two rows with one key in a batch it"
                " cannot tell which is the last",
                condition="ORDER_BY_MISSING",
                remedy="write KEY (…) ORDER BY (…) with a column that grows, as a time of change",
            )
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None

    def write(self, batch: Batch) -> None:
        """Enter the batch into the ledger and copy its rows, or pass over it when it is there."""
        spec = self._spec
        with self._ledger.connect(batch.query_id) as connection:
            with self._lock:
                self._connection = connection
            try:
                self._ledger.create(connection)
                with connection.transaction():
                    if self._ledger.claim(connection, batch.query_id, batch.number, spec.item_id):
                        self._copy(connection, batch.frame)
            finally:
                with self._lock:
                    self._connection = None

    def cancel(self) -> None:
        """Break off the statement under way; its transaction is rolled back."""
        with self._lock:
            if self._connection is not None:
                self._connection.cancel_safe(timeout=2.0)

    def _copy(self, connection: Connection[Any], frame: DataFrame) -> None:
        from psycopg.sql import SQL, Identifier

        table = Identifier(*(part for part in table_of(self._target) if part is not None))
        names = self._target_names(connection, table)
        listed = SQL(", ").join(Identifier(names[fold(column.name)]) for column in self._columns)
        if not self._key:
            _send(connection, table, listed, self._lines(frame))
            return
        incoming = Identifier("pg_temp", _INCOMING)
        connection.execute(
            SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
            .format(Identifier(_INCOMING), listed, table)
        )
        _send(connection, incoming, listed, self._lines(self._last_of_each_key(frame)))
        connection.execute(self._merge(table, incoming, listed, names))

    def _lines(self, frame: DataFrame) -> Iterator[str]:
        lines = frame.select(copy_line(self._columns).alias("line"))
        for row in lines.toLocalIterator(prefetchPartitions=True):
            yield row[0]

    def _last_of_each_key(self, frame: DataFrame) -> DataFrame:
        order = [column.name for column in self._order]
        if not order:
            order = [PARTITION, OFFSET]
        elif reads_kafka_source(self._spec):
            order += [PARTITION, OFFSET]
        window = Window.partitionBy(
            *(F.col(quote_sql(column.name)) for column in self._key)
        ).orderBy(*(F.col(quote_sql(name)).desc_nulls_last() for name in order))
        ranked = frame.withColumn(_RANK, F.row_number().over(window))
        return ranked.where(F.col(_RANK) == 1).drop(_RANK)

    def _merge(
        self, table: Identifier, incoming: Identifier, listed: Composed, names: dict[str, str]
    ) -> Composed:
        """The upsert. By key in a fixed order, so that two sinks on one table cannot deadlock."""
        from psycopg.sql import SQL, Identifier

        key = [Identifier(names[fold(column.name)]) for column in self._key]
        keys = SQL(", ").join(key)
        folded = {fold(column.name) for column in self._key}
        others = [
            Identifier(names[fold(column.name)])
            for column in self._columns
            if fold(column.name) not in folded
        ]
        statement = SQL(
            "INSERT INTO {} AS standing ({}) SELECT {} FROM {} ORDER BY {} ON CONFLICT ({}) DO "
        ).format(table, listed, listed, incoming, keys, keys)
        if not others:
            return statement + SQL("NOTHING")
        changes = SQL(", ").join(SQL("{} = EXCLUDED.{}").format(name, name) for name in others)
        statement += SQL("UPDATE SET {}").format(changes)
        if not self._order:
            return statement
        # A NULL comes before every value, as in the order within the batch.
        standing = self._order_row("standing", names)
        excluded = self._order_row("excluded", names)
        return statement + SQL(" WHERE (({}) <= ({})) IS NOT FALSE").format(standing, excluded)

    def _order_row(self, row: str, names: dict[str, str]) -> Composed:
        from psycopg.sql import SQL, Identifier

        parts = []
        for column in self._order:
            value = SQL("{}.{}").format(Identifier(row), Identifier(names[fold(column.name)]))
            parts.append(SQL("{} IS NOT NULL").format(value))
            # Spark orders text by its bytes; the database's own collation need not.
            is_text = column.type == "STRING" or "CHAR(" in column.type
            parts.append(SQL('{}::text COLLATE "C"').format(value) if is_text else value)
        return SQL(", ").join(parts)

    def _target_names(self, connection: Connection[Any], table: Identifier) -> dict[str, str]:
        """Our columns' folded names to the table's own, which may be written in another case."""
        there = _columns_of(connection, table)
        names: dict[str, str] = {}
        missing = []
        for column in self._columns:
            candidates = [name for name in there if fold(name) == fold(column.name)]
            if column.name in candidates:
                names[fold(column.name)] = column.name
            elif len(candidates) == 1:
                names[fold(column.name)] = candidates[0]
            else:
                missing.append(column.name)
        if missing:
            raise EngineFailure(
                f"table {self._target} has no column {', '.join(missing)}",
                condition="UNDEFINED_COLUMN",
                remedy=f"ALTER TABLE {self._target} ADD COLUMN … in the database",
            )
        return names


def _columns_of(connection: Connection[Any], table: Identifier) -> Sequence[str]:
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum",
        (table.as_string(connection),),
    )
    return [row[0] for row in rows]


def _send(
    connection: Connection[Any], table: Identifier, listed: Composed, lines: Iterator[str]
) -> None:
    """COPY the lines into a table."""
    from psycopg.sql import SQL

    statement = SQL("COPY {} ({}) FROM STDIN").format(table, listed)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == _CHUNK:
                copy.write("\n".join(chunk) + "\n")
                chunk.clear()
        if chunk:
            copy.write("\n".join(chunk) + "\n")


_AS_CAST = frozenset({
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP_NTZ",
})  # fmt: skip
_NULL = "\\N"


def copy_line(columns: Sequence[Column]) -> Expression:
    """One line, without its end: fields separated by tabs, NULL as ``\\N``."""
    fields = [F.coalesce(_field(column), F.lit(_NULL)) for column in columns]
    return F.concat_ws("\t", *fields)


def _field(column: Column) -> Expression:
    """One value as PostgreSQL reads it; NULL stays NULL.

    Timestamps carry UTC's offset; arrays, maps, structs and variants are JSON (for columns of type
    json, jsonb or text); floats print so that they read back to the same bits.
    """
    value = F.col(quote_sql(column.name))
    tree = parse_type(column.type)
    if isinstance(tree, Array | Map | Struct):
        return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
    if isinstance(tree, Interval):
        raise EngineFailure(
            f"column {column.name} is {column.type}: intervals cannot be written to POSTGRES",
            remedy="send a table without it",
        )
    if isinstance(tree, Atomic):
        if tree.name in _AS_CAST:
            return value.cast("string")
        if tree.name == "BINARY":
            # the backslash of \x is escaped, as every one is
            return F.concat(F.lit("\\\\x"), F.lower(F.hex(value)))
        if tree.name == "TIMESTAMP":
            return F.concat(value.cast("string"), F.lit("+00"))
        if tree.name == "VARIANT":
            return _escaped(F.to_json(value, dict(JSON_OPTIONS)))
        if tree.name == "VOID":
            return F.lit(None).cast("string")
    return _escaped(value.cast("string"))


def _escaped(text: Expression) -> Expression:
    for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = F.replace(text, F.lit(plain), F.lit(escaped))
    return text
